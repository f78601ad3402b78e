//! Which containers have a session, and which way the next command goes: attempts, openings and ends in; sessions, or the
//! reason why there is none, out. Pure.
//!
//! ```text
//! none --first command ran--> wanted --turn--> opening --opened--> idle <--> in use
//!                               ^                 |                  |         |
//!                               +---back-off------+---failed---------+---ended-+
//! ```

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use crate::{ids::ContainerId, results::exec_route::WhySync};

/// 2,048 containers at most: a session costs criprobe some 15 KiB, and the runtime more.
pub(super) const MOST: usize = 2_048;

/// 64 commands of a container are known to work; the oldest is forgotten for another one.
const MOST_COMMANDS: usize = 64;

/// 4 sessions are opened at a time: each costs the runtime as much as an ExecSync.
const OPENING_AT_ONCE: usize = 4;

/// 1 s: an opening that takes longer leaves its turn to others, so that shells that never answer delay no others.
pub(super) const QUICK: Duration = Duration::from_secs(1);

/// 64 openings at most, with those that take longer.
const MOST_OPENING: usize = 64;

/// 150 s: how long an idle session is kept.
pub(super) const IDLE: Duration = Duration::from_secs(150);

/// 120 s: probes that come less often have no session. So an idle session is closed only if none of its probes is left.
pub(super) const LONGEST_PERIOD: Duration = Duration::from_secs(120);

/// 10 min: so long after its last command, a container is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// 1 s to 5 min until the next opening, twice as long each time.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// 1 min to 30 days until the next opening, four times as long each time, after those in a row that left something behind: a
/// program that is named `sh` and does not read its input. It counts against the container's limit of pids: 3 in the first
/// 6 minutes, 7 in the first day.
const BARREN: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(30 * 24 * 3_600));

/// 60 s: a session that lasted as long worked; the next back-off is the shortest again.
const WORKED: Duration = Duration::from_secs(60);

/// 60 s: so long, a command goes by ExecSync that a session could not decide.
const DOUBT: Duration = Duration::from_secs(60);

/// What is known of a container that has commands which ask for a session. `S`: a session that is open.
#[derive(Debug)]
struct Slot<S> {
    stage: Stage<S>,
    /// Those that ExecSync has run, as hashes, the newest last.
    known: VecDeque<u64>,
    /// Until when ExecSync decides which commands, and why.
    doubts: Vec<(u64, WhySync, Instant)>,
    failures: u32,
    /// Openings in a row that left something behind.
    barren: u32,
    /// When a command asked for a session last.
    used: Instant,
}

#[derive(Debug)]
enum Stage<S> {
    /// The next known command asks for one, from then on.
    None {
        from: Instant,
        why: WhySync,
    },
    /// It waits for its turn.
    Wanted,
    Opening,
    Idle(S),
    InUse,
}

/// Which way a command goes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Way<S> {
    /// By this session, which has to be given back, or be reported as ended.
    Session(S),
    /// The session is in use: it may be there again soon.
    Busy,
    /// By ExecSync.
    Sync(WhySync),
}

/// Why a session could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unopened {
    pub(super) why: WhySync,
    /// What was started may still be running, and nothing can end it.
    pub(super) is_left: bool,
}

impl From<WhySync> for Unopened {
    fn from(why: WhySync) -> Self {
        Self { why, is_left: matches!(why, WhySync::Shell | WhySync::Silent) }
    }
}

/// How many there are, and what has become of the others, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionCounts {
    /// Open ones.
    pub open: u64,
    /// That were opened.
    pub opened: u64,
    /// That could not be opened.
    pub failed: u64,
    /// That ended although they were in use or waited for commands.
    pub ended: u64,
    /// That were closed because no command came, or because their container was to stop.
    pub closed: u64,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Book<S> {
    slots: HashMap<ContainerId, Slot<S>>,
    wanted: VecDeque<ContainerId>,
    /// When each opening began.
    opening: HashMap<ContainerId, Instant>,
    counts: SessionCounts,
    /// Of so many containers.
    most: usize,
}

impl<S> Default for Book<S> {
    fn default() -> Self {
        Self {
            most: MOST,
            slots: HashMap::new(),
            wanted: VecDeque::new(),
            opening: HashMap::new(),
            counts: SessionCounts::default(),
        }
    }
}

impl<S> Book<S> {
    /// Has it have sessions of no more than so many containers.
    pub(super) fn limit(&mut self, most: usize) {
        self.most = most;
    }

    /// Which way a command goes now that asks for a session.
    pub(super) fn way(&mut self, container: &ContainerId, command: u64, now: Instant) -> Way<S> {
        if !self.slots.contains_key(container) {
            if self.slots.len() >= self.most {
                return Way::Sync(WhySync::TooManySessions);
            }
            let stage = Stage::None { from: now, why: WhySync::FirstAttempt };
            let slot =
                Slot { stage, known: VecDeque::new(), doubts: Vec::new(), failures: 0, barren: 0, used: now };
            self.slots.insert(container.clone(), slot);
        }
        let Some(slot) = self.slots.get_mut(container) else { return Way::Sync(WhySync::FirstAttempt) };
        slot.used = now;
        slot.doubts.retain(|(_, _, until)| *until > now);
        if let Some((_, why, _)) = slot.doubts.iter().find(|(of, _, _)| *of == command) {
            return Way::Sync(*why);
        }
        let is_known = slot.known.contains(&command);
        match &slot.stage {
            Stage::None { from, why } if *from > now => return Way::Sync(*why),
            Stage::None { .. } => {
                slot.stage = Stage::Wanted;
                self.wanted.push_back(container.clone());
                return Way::Sync(if is_known { WhySync::Opening } else { WhySync::FirstAttempt });
            }
            Stage::Wanted | Stage::Opening | Stage::Idle(_) | Stage::InUse if !is_known => {
                return Way::Sync(WhySync::FirstAttempt);
            }
            Stage::Wanted | Stage::Opening => return Way::Sync(WhySync::Opening),
            Stage::InUse => return Way::Busy,
            Stage::Idle(_) => {}
        }
        match std::mem::replace(&mut slot.stage, Stage::InUse) {
            Stage::Idle(session) => Way::Session(session),
            _ => Way::Busy,
        }
    }

    /// ExecSync ran a command, which ended with a code of its own: a session may run it from now on.
    pub(super) fn works(&mut self, container: &ContainerId, command: u64) {
        let Some(slot) = self.slots.get_mut(container) else { return };
        if !slot.known.contains(&command) {
            if slot.known.len() >= MOST_COMMANDS {
                slot.known.pop_front();
            }
            slot.known.push_back(command);
        }
    }

    /// A session could not decide a command: for a while, ExecSync does at once.
    pub(super) fn doubt(&mut self, container: &ContainerId, command: u64, why: WhySync, now: Instant) {
        let Some(slot) = self.slots.get_mut(container) else { return };
        slot.doubts.retain(|(of, _, _)| *of != command);
        if slot.doubts.len() < MOST_COMMANDS {
            slot.doubts.push((command, why, now + DOUBT));
        }
    }

    /// A session is free again; it is closed if its container is being stopped, or was forgotten meanwhile.
    pub(super) fn give_back(&mut self, container: &ContainerId, session: S) {
        match self.slots.get_mut(container) {
            Some(slot) if matches!(slot.stage, Stage::InUse) => slot.stage = Stage::Idle(session),
            _ => self.counts.close(),
        }
    }

    /// A client stops a container: no session is left for what waits until all of the container's processes have ended.
    pub(super) fn stopping(&mut self, container: &ContainerId, now: Instant) {
        let Some(slot) = self.slots.get_mut(container) else { return };
        let pause = Stage::None { from: now + BACK_OFF.1, why: WhySync::Ended };
        if let Stage::Idle(_) = std::mem::replace(&mut slot.stage, pause) {
            self.counts.close();
        }
    }

    /// Whose sessions are idle.
    pub(super) fn idle(&self) -> Vec<ContainerId> {
        let idle = self.slots.iter().filter(|(_, slot)| matches!(slot.stage, Stage::Idle(_)));
        idle.map(|(container, _)| container.clone()).collect()
    }

    /// An idle session, to be looked at: as one that a command is to use.
    pub(super) fn take(&mut self, container: &ContainerId) -> Option<S> {
        let stage = &mut self.slots.get_mut(container)?.stage;
        match std::mem::replace(stage, Stage::InUse) {
            Stage::Idle(session) => Some(session),
            other => {
                *stage = other;
                None
            }
        }
    }

    /// A session that was in use is gone; `opened`: when it was opened.
    pub(super) fn ended(&mut self, container: &ContainerId, why: WhySync, opened: Instant, now: Instant) {
        self.counts.open = self.counts.open.saturating_sub(1);
        self.counts.ended += 1;
        let Some(slot) = self.slots.get_mut(container) else { return };
        if now.saturating_duration_since(opened) >= WORKED {
            slot.failures = 0;
        }
        if matches!(slot.stage, Stage::InUse) {
            slot.back_off(why, now);
        }
    }

    /// Whose session is to be opened now.
    pub(super) fn next_opening(&mut self, now: Instant) -> Option<ContainerId> {
        let quick =
            self.opening.values().filter(|began| now.saturating_duration_since(**began) < QUICK).count();
        if quick >= OPENING_AT_ONCE || self.opening.len() >= MOST_OPENING {
            return None;
        }
        loop {
            let container = self.wanted.pop_front()?;
            let stage = self.slots.get_mut(&container).map(|slot| &mut slot.stage);
            if let Some(stage @ Stage::Wanted) = stage {
                *stage = Stage::Opening;
                self.opening.insert(container.clone(), now);
                return Some(container);
            }
        }
    }

    /// No opening is in progress any more, however they ended.
    pub(super) fn forget_openings(&mut self, now: Instant) {
        for container in std::mem::take(&mut self.opening).into_keys() {
            self.opened(&container, Err(WhySync::Ended.into()), now);
        }
    }

    /// How an opening ended.
    pub(super) fn opened(&mut self, container: &ContainerId, opened: Result<S, Unopened>, now: Instant) {
        self.opening.remove(container);
        let slot = self.slots.get_mut(container).filter(|slot| matches!(slot.stage, Stage::Opening));
        match opened {
            Ok(session) => {
                self.counts.opened += 1;
                self.counts.open += 1;
                match slot {
                    Some(slot) => (slot.stage, slot.barren) = (Stage::Idle(session), 0),
                    None => self.counts.close(),
                }
            }
            Err(Unopened { why, is_left }) => {
                self.counts.failed += 1;
                if let Some(slot) = slot {
                    slot.back_off(why, now);
                    if is_left {
                        let pause = BARREN.0.saturating_mul(1 << (2 * slot.barren.min(15))).min(BARREN.1);
                        slot.barren += 1;
                        slot.stage = Stage::None { from: now + pause, why };
                    }
                }
            }
        }
    }

    /// Closes what is idle for too long, and forgets containers without commands.
    pub(super) fn tidy(&mut self, now: Instant) {
        let Self { slots, counts, .. } = self;
        slots.retain(|_, slot| {
            let is_unused = now.saturating_duration_since(slot.used) >= IDLE;
            match &slot.stage {
                Stage::Idle(_) if is_unused => {
                    counts.close();
                    false
                }
                Stage::None { from, .. } => {
                    !is_unused || *from > now && now.saturating_duration_since(slot.used) < FORGOTTEN
                }
                Stage::Idle(_) | Stage::Wanted | Stage::Opening | Stage::InUse => true,
            }
        });
    }

    /// What was counted.
    pub(super) fn counts(&self) -> SessionCounts {
        self.counts
    }
}

impl SessionCounts {
    /// One that was open is not needed any more.
    fn close(&mut self) {
        self.open = self.open.saturating_sub(1);
        self.closed += 1;
    }
}

impl<S> Slot<S> {
    fn back_off(&mut self, why: WhySync, now: Instant) {
        let pause = BACK_OFF.0.saturating_mul(1 << self.failures.min(16)).min(BACK_OFF.1);
        self.failures = self.failures.saturating_add(1);
        self.stage = Stage::None { from: now + pause, why };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    type Sessions = Book<&'static str>;

    fn id(name: &str) -> ContainerId {
        ContainerId::from(name)
    }

    fn open(book: &mut Sessions, container: &ContainerId, now: Instant) {
        assert_eq!(book.way(container, 1, now), Way::Sync(WhySync::FirstAttempt));
        book.works(container, 1);
        assert_eq!(book.way(container, 1, now), Way::Sync(WhySync::Opening));
        assert_eq!(book.next_opening(now), Some(container.clone()));
        book.opened(container, Ok("session"), now);
    }

    #[test]
    fn a_command_goes_by_a_session_once_execsync_has_run_it_and_one_at_a_time() {
        let (mut book, now, a) = (Sessions::default(), clock::now(), id("a"));
        open(&mut book, &a, now);
        assert_eq!(book.way(&a, 2, now), Way::Sync(WhySync::FirstAttempt), "another command");
        assert_eq!(book.way(&a, 1, now), Way::Session("session"));
        assert_eq!(book.way(&a, 1, now), Way::Busy);
        book.give_back(&a, "session");
        book.doubt(&a, 1, WhySync::ExitCode, now);
        assert_eq!(book.way(&a, 1, now), Way::Sync(WhySync::ExitCode));
        assert_eq!(book.way(&a, 1, now + DOUBT), Way::Session("session"));
        let counts = SessionCounts { open: 1, opened: 1, ..SessionCounts::default() };
        assert_eq!(book.counts(), counts);
    }

    #[test]
    fn what_ends_is_opened_again_ever_later() {
        let (mut book, began, a) = (Sessions::default(), clock::now(), id("a"));
        open(&mut book, &a, began);
        assert_eq!(book.way(&a, 1, began), Way::Session("session"));
        book.ended(&a, WhySync::Silent, began, began);
        let mut openings = Vec::new();
        for second in 0..700 {
            let now = began + Duration::from_secs(second);
            let way = book.way(&a, 1, now);
            assert!(!matches!(way, Way::Session(_) | Way::Busy), "{way:?} at {second} s");
            while let Some(container) = book.next_opening(now) {
                openings.push(second);
                book.opened(&container, Err(WhySync::StreamRefused.into()), now);
            }
        }
        assert_eq!(openings, [1, 3, 7, 15, 31, 63, 127, 255, 511]);
        let now = began + Duration::from_secs(1_000);
        let _ = book.way(&a, 1, now);
        assert_eq!(book.next_opening(now), Some(a.clone()));
        book.opened(&a, Ok("another"), now);
        assert_eq!(book.way(&a, 1, now + WORKED), Way::Session("another"));
        book.ended(&a, WhySync::Ended, now, now + WORKED);
        let _ = book.way(&a, 1, now + WORKED + BACK_OFF.0);
        assert_eq!(book.next_opening(now + WORKED + BACK_OFF.0), Some(a), "the last one worked");
    }

    #[test]
    fn what_runs_as_sh_and_never_answers_is_started_ever_more_rarely() {
        let (mut book, began, a) = (Sessions::default(), clock::now(), id("a"));
        let mut openings = Vec::new();
        for second in 0..10_000 {
            let now = began + Duration::from_secs(second);
            let _ = book.way(&a, 1, now);
            while let Some(container) = book.next_opening(now) {
                openings.push(second);
                book.opened(&container, Err(WhySync::Silent.into()), now);
            }
            book.tidy(now);
        }
        assert_eq!(openings, [0, 60, 300, 1_260, 5_100]);
        assert_eq!(book.slots.len(), 1);
        book.tidy(began + Duration::from_secs(10_000) + FORGOTTEN);
        assert!(book.slots.is_empty());
    }

    #[test]
    fn idle_sessions_are_closed_and_ended_ones_noticed() {
        let (mut book, now) = (Sessions::default(), clock::now());
        for name in ["idle", "used", "over"] {
            open(&mut book, &id(name), now);
        }
        let later = now + IDLE;
        for name in ["used", "over"] {
            assert_eq!(book.way(&id(name), 1, later), Way::Session("session"));
            book.give_back(&id(name), "session");
        }
        book.tidy(later);
        let mut idle = book.idle();
        idle.sort_unstable();
        assert_eq!(idle, [id("over"), id("used")]);
        assert_eq!(book.take(&id("over")), Some("session"));
        assert_eq!(book.take(&id("over")), None, "it is in use");
        book.ended(&id("over"), WhySync::Ended, now, later);
        let counts = SessionCounts { open: 1, opened: 3, ended: 1, closed: 1, failed: 0 };
        assert_eq!(book.counts(), counts);
        assert_eq!(book.way(&id("over"), 1, later), Way::Sync(WhySync::Ended));
        assert_eq!(book.way(&id("idle"), 1, later), Way::Sync(WhySync::FirstAttempt), "it was forgotten");
        book.tidy(later + 2 * IDLE);
        assert_eq!(book.counts().open, 0);
    }

    #[test]
    fn containers_and_openings_are_bounded() {
        let (mut book, now) = (Sessions::default(), clock::now());
        for number in 0..MOST {
            assert_eq!(book.way(&id(&number.to_string()), 1, now), Way::Sync(WhySync::FirstAttempt));
        }
        assert_eq!(book.way(&id("one more"), 1, now), Way::Sync(WhySync::TooManySessions));
        let mut openings = |now| std::iter::from_fn(|| book.next_opening(now)).count();
        assert_eq!((openings(now), openings(now)), (OPENING_AT_ONCE, 0));
        let later: usize = (1..100).map(|number| openings(now + QUICK * number)).sum();
        assert_eq!(later, MOST_OPENING - OPENING_AT_ONCE, "those that hang leave their turns to others");
        book.forget_openings(now);
        let again = std::iter::from_fn(|| book.next_opening(now)).count();
        assert_eq!(again, OPENING_AT_ONCE, "none is in progress any more");
        for command in 0..1_000 {
            book.works(&id("0"), command);
            book.doubt(&id("0"), command, WhySync::ExitCode, now);
        }
        let slot = &book.slots[&id("0")];
        assert_eq!((slot.known.len(), slot.doubts.len()), (MOST_COMMANDS, MOST_COMMANDS));
        book.tidy(now + 3 * IDLE);
    }

    #[test]
    fn a_container_that_is_being_stopped_keeps_no_session() {
        let now = clock::now();
        let stop = |mut book: Sessions| {
            book.stopping(&id("a"), now);
            assert_eq!(book.way(&id("a"), 1, now), Way::Sync(WhySync::Ended));
            book
        };
        let open_one = || {
            let mut book = Sessions::default();
            open(&mut book, &id("a"), now);
            book
        };
        let closed = SessionCounts { opened: 1, closed: 1, ..SessionCounts::default() };
        assert_eq!(stop(open_one()).counts(), closed, "idle");
        for is_there in [true, false] {
            let mut used = open_one();
            assert_eq!(used.way(&id("a"), 1, now), Way::Session("session"));
            let mut used = stop(used);
            if is_there {
                used.give_back(&id("a"), "session");
                assert_eq!(used.counts(), closed, "in use");
            } else {
                used.ended(&id("a"), WhySync::Ended, now, now);
            }
            assert_eq!(used.way(&id("a"), 1, now + BACK_OFF.0), Way::Sync(WhySync::Ended));
        }
        let mut opening = Sessions::default();
        assert_eq!(opening.way(&id("a"), 1, now), Way::Sync(WhySync::FirstAttempt));
        let mut wanted = stop(opening);
        assert_eq!(wanted.next_opening(now), None, "it waited for its turn");
        let mut opening = Sessions::default();
        let _ = opening.way(&id("a"), 1, now);
        assert_eq!(opening.next_opening(now), Some(id("a")));
        let mut opening = stop(opening);
        opening.opened(&id("a"), Ok("late"), now);
        assert_eq!(opening.counts(), closed, "it was being opened");
    }
}
