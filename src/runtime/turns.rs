//! The order of queries to the runtime, and of other work for pods: requests in, the next query out, so that queries that
//! the runtime never answers do not delay others. Pure.
//!
//! ```text
//! waiting --turn comes--> asked, quick --1 s--> asked, slow --no answer--> waiting, tried before --back-off--> asked, slow
//!                           |                     +--answered--> forgotten
//!                           +--1 s, and no slow place is free--> given up: waiting, tried before
//! ```
//!
//! A shim that hangs answers none of its pod's queries. So namespaces take turns, and pods within a namespace; queries
//! that were tried before come after new ones; and a query that is not answered at once does not keep its quick place.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    hash::Hash,
    sync::Arc,
    time::{Duration, Instant},
};

/// 1 s: a query without an answer for this long moves to a slow place. Runtimes answer in milliseconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// 1 s to 60 s until a failed query is sent again, twice as long each time.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// 30 s: waiting longer than this for an answer causes a warning.
pub(crate) const WORTH_A_WARNING: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug)]
pub(crate) struct TurnLimits {
    /// Queries in flight for less than [`PATIENCE`] that were not tried before.
    pub quick: usize,
    /// All other queries in flight.
    pub slow: usize,
    /// Of these, the number that may be started after an earlier try.
    pub tried: usize,
    /// Queries that wait or are in flight; half of them may have been tried before.
    pub all: usize,
}

/// The object of a query. Queries of one pod wait for each other first, then those of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Empty if unknown.
    pub namespace: Arc<str>,
    /// Any value that differs between pods.
    pub pod: Arc<str>,
}

/// How many queries have no answer yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backlog {
    /// Their number.
    pub count: usize,
    /// When the oldest of them was due.
    pub since: Option<Instant>,
}

/// Whether queries have been waiting for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// The first one has.
    Began(Backlog),
    /// None has any more.
    Ended,
}

/// The queries, at most one per object.
#[derive(Debug)]
pub(crate) struct Turns<K> {
    limits: TurnLimits,
    questions: HashMap<K, Question>,
    /// By age.
    ages: BTreeSet<(Instant, K)>,
    /// The due ones: never tried, and tried before.
    fresh: Queue<K>,
    tried: Queue<K>,
    /// Those that are not due yet.
    later: BTreeSet<(Instant, K)>,
    asked: HashMap<K, Asked>,
    /// Whether [`News::Began`] was the last news.
    is_delayed: bool,
    /// The minimum between two starts.
    spacing: Duration,
    /// None starts before this.
    spaced: Option<Instant>,
    /// Whether one waits only for that.
    is_held: bool,
}

#[derive(Debug)]
struct Question {
    owner: Owner,
    since: Instant,
    failures: u32,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Later(Instant),
    Due,
    Asked,
    /// The answer may be out of date when it arrives: the query is sent once more.
    AskedAndWanted,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Instant,
    is_slow: bool,
    was_tried: bool,
}

impl<K: Clone + Ord + Hash> Turns<K> {
    /// No queries.
    pub(crate) fn new(limits: TurnLimits) -> Self {
        Self {
            limits,
            questions: HashMap::new(),
            ages: BTreeSet::new(),
            fresh: Queue::default(),
            tried: Queue::default(),
            later: BTreeSet::new(),
            asked: HashMap::new(),
            is_delayed: false,
            spacing: Duration::ZERO,
            spaced: None,
            is_held: false,
        }
    }

    /// With at least this long between the starts of two queries.
    pub(crate) fn spaced(self, spacing: Duration) -> Self {
        Self { spacing, ..self }
    }

    /// Requests an answer, after a pause. If it is already requested, it becomes due no later than before; if it was
    /// tried before, no earlier. Returns whether there was room.
    pub(crate) fn add(&mut self, key: K, owner: Owner, after: Duration, now: Instant) -> bool {
        if let Some(known) = self.questions.get_mut(&key) {
            match known.stage {
                Stage::Asked => known.stage = Stage::AskedAndWanted,
                Stage::Later(at) if known.failures == 0 && now + after < at => {
                    self.later.remove(&(at, key.clone()));
                    self.wait(&key, after, now);
                }
                Stage::Later(_) | Stage::Due | Stage::AskedAndWanted => {}
            }
            return true;
        }
        if self.questions.len() >= self.limits.all {
            return false;
        }
        let question = Question { owner, since: now, failures: 0, stage: Stage::Due };
        self.questions.insert(key.clone(), question);
        self.wait(&key, after, now);
        self.ages.insert((now, key));
        true
    }

    /// Takes the next query, if there is a place for it.
    pub(crate) fn start(&mut self, now: Instant) -> Option<K> {
        self.start_one_of(now, |_, _| true)
    }

    /// Like [`Turns::start`], only of these namespaces and pods.
    pub(crate) fn start_one_of(
        &mut self,
        now: Instant,
        admits: impl Fn(&Arc<str>, &Arc<str>) -> bool,
    ) -> Option<K> {
        while let Some((at, key)) = self.later.first().filter(|(at, _)| *at <= now).cloned() {
            self.later.remove(&(at, key.clone()));
            self.wait(&key, Duration::ZERO, now);
        }
        self.is_held =
            self.spaced.is_some_and(|at| now < at) && !(self.fresh.is_empty() && self.tried.is_empty());
        if self.is_held {
            return None;
        }
        let quick = self.asked.values().filter(|asked| !asked.is_slow).count();
        let slow = self.asked.len() - quick;
        let tried = self.asked.values().filter(|asked| asked.was_tried).count();
        let mut next = None;
        if quick < self.limits.quick {
            next = self.fresh.pop(|key| is_due(&self.questions, key), &admits).map(|key| (key, false));
        }
        if next.is_none() && slow < self.limits.slow && tried < self.limits.tried {
            next = self.tried.pop(|key| is_due(&self.questions, key), &admits).map(|key| (key, true));
        }
        let (key, was_tried) = next?;
        self.spaced = (!self.spacing.is_zero()).then(|| now + self.spacing);
        self.asked.insert(key.clone(), Asked { at: now, is_slow: was_tried, was_tried });
        self.questions.get_mut(&key)?.stage = Stage::Asked;
        Some(key)
    }

    /// Moves queries that have been in flight for too long to slow places. Returns those to give up because none is
    /// free; each of these still ends with [`Turns::failed`].
    pub(crate) fn overdue(&mut self, now: Instant) -> Vec<K> {
        let mut free =
            self.limits.slow.saturating_sub(self.asked.values().filter(|asked| asked.is_slow).count());
        let mut given_up = Vec::new();
        for (key, asked) in &mut self.asked {
            if asked.is_slow || now.saturating_duration_since(asked.at) < PATIENCE {
                continue;
            }
            if free == 0 {
                given_up.push(key.clone());
            } else {
                free -= 1;
                asked.is_slow = true;
            }
        }
        given_up
    }

    /// The runtime answered.
    pub(crate) fn answered(&mut self, key: &K, now: Instant) {
        self.asked.remove(key);
        let Some(question) = self.remove(key) else { return };
        if question.stage == Stage::AskedAndWanted {
            self.add(key.clone(), question.owner, Duration::ZERO, now);
        }
    }

    /// The runtime did not answer, or returned an error. The query is sent again after a growing pause.
    pub(crate) fn failed(&mut self, key: &K, now: Instant) {
        let pause = BACKOFF.0.saturating_mul(2u32.saturating_pow(self.failures(key))).min(BACKOFF.1);
        self.put_off(key, pause, now);
    }

    /// Like [`Turns::failed`], with this pause. Dropped if too many were tried before: it is requested again if it is
    /// needed.
    pub(crate) fn put_off(&mut self, key: &K, pause: Duration, now: Instant) {
        self.asked.remove(key);
        let is_full =
            self.questions.values().filter(|question| question.failures > 0).count() > self.limits.all / 2;
        let Some(question) = self.questions.get_mut(key) else { return };
        question.failures = question.failures.saturating_add(1);
        if is_full {
            self.remove(key);
        } else {
            self.wait(key, pause, now);
        }
    }

    /// How often a query failed.
    pub(crate) fn failures(&self, key: &K) -> u32 {
        self.questions.get(key).map_or(0, |question| question.failures)
    }

    /// The runtime is back: earlier failures no longer count.
    pub(crate) fn forgive(&mut self, now: Instant) {
        self.later.clear();
        (self.fresh, self.tried) = (Queue::default(), Queue::default());
        self.ages = self.questions.keys().map(|key| (now, key.clone())).collect();
        let mut waiting = Vec::new();
        for (key, question) in &mut self.questions {
            (question.since, question.failures) = (now, 0);
            waiting.extend(question.waits().then(|| key.clone()));
        }
        waiting.iter().for_each(|key| self.wait(key, Duration::ZERO, now));
    }

    /// Forgets waiting queries that are no longer needed.
    pub(crate) fn retain(&mut self, is_wanted: impl Fn(&K) -> bool) {
        let gone: Vec<K> = self
            .questions
            .iter()
            .filter(|(key, question)| question.waits() && !is_wanted(key))
            .map(|(key, _)| key.clone())
            .collect();
        gone.iter().for_each(|key| drop(self.remove(key)));
    }

    /// Whether it waits or is in flight.
    pub(crate) fn contains(&self, key: &K) -> bool {
        self.questions.contains_key(key)
    }

    /// When [`Turns::start`], [`Turns::overdue`] or [`Turns::news`] may have a result next, if nothing else happens.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let later = self.later.first().map(|(at, _)| *at);
        let overdue =
            self.asked.values().filter(|asked| !asked.is_slow).map(|asked| asked.at + PATIENCE).min();
        let delayed =
            self.ages.first().filter(|_| !self.is_delayed).map(|(since, _)| *since + WORTH_A_WARNING);
        let held = self.spaced.filter(|_| self.is_held);
        [later, overdue, delayed, held].into_iter().flatten().min()
    }

    /// The queries without an answer.
    pub(crate) fn backlog(&self) -> Backlog {
        Backlog { count: self.questions.len(), since: self.ages.first().map(|(since, _)| *since) }
    }

    /// What has changed.
    pub(crate) fn news(&mut self, now: Instant) -> Option<News> {
        let backlog = self.backlog();
        let is_delayed =
            backlog.since.is_some_and(|since| now.saturating_duration_since(since) >= WORTH_A_WARNING);
        if std::mem::replace(&mut self.is_delayed, is_delayed) == is_delayed {
            return None;
        }
        Some(if is_delayed { News::Began(backlog) } else { News::Ended })
    }

    fn wait(&mut self, key: &K, after: Duration, now: Instant) {
        let Some(question) = self.questions.get_mut(key) else { return };
        if after.is_zero() {
            question.stage = Stage::Due;
            let queue = if question.failures == 0 { &mut self.fresh } else { &mut self.tried };
            queue.push(key.clone(), &question.owner);
        } else {
            question.stage = Stage::Later(now + after);
            self.later.insert((now + after, key.clone()));
        }
    }

    fn remove(&mut self, key: &K) -> Option<Question> {
        let question = self.questions.remove(key)?;
        self.ages.remove(&(question.since, key.clone()));
        if let Stage::Later(at) = question.stage {
            self.later.remove(&(at, key.clone()));
        }
        Some(question)
    }
}

impl Question {
    fn waits(&self) -> bool {
        matches!(self.stage, Stage::Later(_) | Stage::Due)
    }
}

fn is_due<K: Eq + Hash>(questions: &HashMap<K, Question>, key: &K) -> bool {
    questions.get(key).is_some_and(|question| question.stage == Stage::Due)
}

/// The due queries: namespaces take turns, in each its pods, in each pod in order of arrival.
#[derive(Debug)]
struct Queue<K>(VecDeque<(Arc<str>, Pods<K>)>);

/// The due queries of one namespace.
type Pods<K> = VecDeque<(Arc<str>, VecDeque<K>)>;

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<K> Queue<K> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn push(&mut self, key: K, owner: &Owner) {
        let pods = of(&mut self.0, &owner.namespace);
        of(pods, &owner.pod).push_back(key);
    }

    /// The next one that is still due, of a namespace and pod that are admitted; others were forgotten meanwhile.
    fn pop(
        &mut self,
        is_due: impl Fn(&K) -> bool,
        admits: impl Fn(&Arc<str>, &Arc<str>) -> bool,
    ) -> Option<K> {
        loop {
            let of_pod = |(namespace, pods): &(Arc<str>, Pods<K>)| {
                pods.iter().position(|(pod, _)| admits(namespace, pod))
            };
            let (at, of_pod) =
                self.0.iter().enumerate().find_map(|(at, queue)| Some((at, of_pod(queue)?)))?;
            let (namespace, mut pods) = self.0.remove(at)?;
            let key = pods.remove(of_pod).and_then(|(pod, mut keys)| {
                let key = keys.pop_front();
                if !keys.is_empty() {
                    pods.push_back((pod, keys));
                }
                key
            });
            if !pods.is_empty() {
                self.0.push_back((namespace, pods));
            }
            if let Some(key) = key.filter(&is_due) {
                return Some(key);
            }
        }
    }
}

/// The queue of that name; if there is none, an empty one is added last.
fn of<'a, T: Default>(queues: &'a mut VecDeque<(Arc<str>, T)>, name: &Arc<str>) -> &'a mut T {
    let at = queues.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
        queues.push_back((name.clone(), T::default()));
        queues.len() - 1
    });
    &mut queues[at].1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const LIMITS: TurnLimits = TurnLimits { quick: 4, slow: 6, tried: 2, all: 1_000 };

    fn owner(namespace: &str, pod: &str) -> Owner {
        Owner { namespace: namespace.into(), pod: pod.into() }
    }

    fn started(turns: &mut Turns<String>, now: Instant) -> Vec<String> {
        std::iter::from_fn(|| turns.start(now)).collect()
    }

    #[test]
    fn namespaces_take_turns_and_in_each_its_pods() {
        let (mut turns, now) = (Turns::new(TurnLimits { quick: 100, ..LIMITS }), clock::now());
        for (namespace, pod, count) in [("a", "1", 3), ("a", "2", 1), ("b", "3", 2)] {
            for number in 0..count {
                let key = format!("{namespace}{pod}{number}");
                assert!(turns.add(key, owner(namespace, pod), Duration::ZERO, now));
            }
        }
        assert_eq!(started(&mut turns, now), ["a10", "b30", "a20", "b31", "a11", "a12"]);
    }

    #[test]
    fn whoever_is_not_admitted_keeps_its_turn_and_delays_no_other() {
        let (mut turns, now) = (Turns::new(TurnLimits { quick: 100, ..LIMITS }), clock::now());
        for (namespace, pod) in [("a", "1"), ("a", "2"), ("b", "3"), ("c", "4")] {
            for number in 0..2 {
                let key = format!("{namespace}{pod}{number}");
                assert!(turns.add(key, owner(namespace, pod), Duration::ZERO, now));
            }
        }
        let without = |turns: &mut Turns<String>, left_out: &str| {
            turns.start_one_of(now, |namespace, pod| **namespace != *left_out && **pod != *left_out)
        };
        assert_eq!(without(&mut turns, "a").as_deref(), Some("b30"));
        assert_eq!(without(&mut turns, "1").as_deref(), Some("a20"));
        assert_eq!(started(&mut turns, now), ["c40", "b31", "a10", "c41", "a21", "a11"]);
    }

    #[test]
    fn questions_that_are_never_answered_delay_those_of_others_by_seconds_only() {
        let (mut turns, began) = (Turns::new(LIMITS), clock::now());
        for number in 0..200 {
            turns.add(format!("hung{number:03}"), owner("a", &number.to_string()), Duration::ZERO, began);
        }
        for number in 0..20 {
            turns.add(format!("well{number:03}"), owner("b", &number.to_string()), Duration::ZERO, began);
        }
        let mut limits: HashMap<String, Instant> = HashMap::new();
        let mut answered_at = Vec::new();
        for tenth in 0..6_000 {
            let now = began + Duration::from_millis(100) * tenth;
            if tenth == 3_000 {
                turns.add("well-late".to_owned(), owner("a", "late"), Duration::ZERO, now);
            }
            for key in turns.overdue(now) {
                limits.remove(&key);
                turns.failed(&key, now);
            }
            let ended: Vec<_> =
                limits.iter().filter(|(_, end)| **end <= now).map(|(key, _)| key.clone()).collect();
            for key in ended {
                limits.remove(&key);
                turns.failed(&key, now);
            }
            while let Some(key) = turns.start(now) {
                if key.starts_with("well") {
                    turns.answered(&key, now);
                    answered_at.push(tenth);
                } else {
                    limits.insert(key, now + Duration::from_secs(5));
                }
            }
            assert!(limits.len() <= LIMITS.quick + LIMITS.slow, "{}", limits.len());
        }
        assert_eq!(answered_at.len(), 21);
        assert!(answered_at[19] <= 60, "the last of the first ones came after {} tenths", answered_at[19]);
        assert_eq!(answered_at[20], 3_000, "what comes later is asked at once");
        assert_eq!(turns.backlog(), Backlog { count: 200, since: Some(began) });
    }

    #[test]
    fn what_failed_is_asked_again_ever_later_and_no_earlier_for_being_wanted() {
        let (mut turns, began) = (Turns::new(LIMITS), clock::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        let want =
            |turns: &mut Turns<String>, now| turns.add("a".to_owned(), owner("n", "p"), Duration::ZERO, now);
        want(&mut turns, began);
        let mut asked = Vec::new();
        for second in 0..200 {
            want(&mut turns, at(second));
            while let Some(key) = turns.start(at(second)) {
                asked.push(second);
                turns.failed(&key, at(second));
            }
        }
        assert_eq!(asked, [0, 1, 3, 7, 15, 31, 63, 123, 183]);
        turns.forgive(at(200));
        assert_eq!(turns.start(at(200)), Some("a".to_owned()), "the runtime is there again");
        want(&mut turns, at(200));
        turns.answered(&"a".to_owned(), at(201));
        assert_eq!(turns.start(at(201)), Some("a".to_owned()), "it was wanted after it was asked");
        turns.answered(&"a".to_owned(), at(201));
        assert_eq!((turns.backlog(), turns.deadline()), (Backlog::default(), None));
    }

    #[test]
    fn what_waits_for_long_is_news_once_and_once_it_does_not() {
        let (mut turns, began) = (Turns::new(LIMITS), clock::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        for key in ["a", "b"] {
            turns.add(key.to_owned(), owner("n", key), Duration::ZERO, began);
        }
        assert_eq!((turns.news(at(29)), turns.deadline()), (None, Some(at(30))));
        let backlog = Backlog { count: 2, since: Some(began) };
        assert_eq!(turns.news(at(30)), Some(News::Began(backlog)));
        turns.retain(|key| key == "a");
        assert_eq!((turns.news(at(31)), turns.start(at(31))), (None, Some("a".to_owned())));
        turns.answered(&"a".to_owned(), at(32));
        assert_eq!((turns.news(at(32)), turns.news(at(33))), (Some(News::Ended), None));
    }

    #[test]
    fn a_pause_is_kept_unless_it_is_wanted_at_once_and_room_is_bounded() {
        let (mut turns, now) = (Turns::new(TurnLimits { all: 2, ..LIMITS }), clock::now());
        let pause = Duration::from_millis(100);
        let add = |turns: &mut Turns<&str>, key, after| turns.add(key, owner("n", key), after, now);
        assert!(add(&mut turns, "a", pause) && add(&mut turns, "b", pause));
        assert!(!add(&mut turns, "c", Duration::ZERO), "there is no room");
        assert!(add(&mut turns, "a", Duration::ZERO), "one that waits already needs none");
        assert_eq!((turns.start(now), turns.start(now)), (Some("a"), None));
        assert_eq!(turns.start(now + pause), Some("b"));
        for key in ["a", "b"] {
            turns.failed(&key, now);
        }
        assert_eq!((turns.start(now), turns.backlog().count), (None, 2), "both wait for their next try");
    }

    #[test]
    fn starts_are_spaced_and_a_deadline_announces_each() {
        let spacing = Duration::from_millis(20);
        let (mut turns, began) = (Turns::new(LIMITS).spaced(spacing), clock::now());
        for key in ["a", "b"] {
            turns.add(key, owner("n", key), Duration::ZERO, began);
        }
        assert_eq!((turns.start(began), turns.start(began)), (Some("a"), None));
        turns.answered(&"a", began);
        assert_eq!(turns.deadline(), Some(began + spacing));
        assert_eq!(turns.start(began + spacing), Some("b"));
        turns.answered(&"b", began + spacing);
        assert_eq!((turns.start(began + spacing), turns.deadline()), (None, None));
    }
}
