//! The history of a probe: attempts, changes of verdict and acts in; the newest of each out, oldest first. Pure. Stored
//! compactly, because there may be 5,000 of them.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, LazyLock},
    time::{Duration, SystemTime},
};

use super::{
    AttemptRecord, AttemptResult, Verdict, brief,
    exec_route::ExecRoute,
    phases::{PhasesSlot, is_slow},
};

/// The newest attempts and changes of verdict of one probe, also those on former containers.
///
/// Holds nothing before the first of them. Full of attempts that say nothing, or all the same, those of 5,000 probes
/// take 12 MiB with the default limits. The owner of the histories bounds what all of them take: attempts by `room` and
/// `trim`; what attempts say, which comes on top, by `output_bytes` and `forget`, as it would be 48 MiB more where each
/// says something else.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct History {
    limits: HistoryLimits,
    attempts: VecDeque<Stored>,
    changes: VecDeque<VerdictChange>,
    acts: Vec<ActNote>,
    /// The verdict before the first of the changes; known only after a restart of ours.
    before: Option<Verdict>,
    /// What the texts take, each counted once.
    output_bytes: usize,
}

/// How much is kept of the attempts of one probe, as an operator sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLimits {
    /// How many attempts are kept, at least 1; another one replaces the oldest.
    pub attempts: u16,
    /// How many bytes of what each attempt said are kept, cut at a character; of the last attempt there is more in its
    /// record.
    pub output_bytes: u16,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self { attempts: 32, output_bytes: OUTPUT_KEPT as u16 }
    }
}

/// 32 changes of verdict are kept; another one replaces the oldest.
const CHANGES_KEPT: usize = 32;

/// 256 bytes of what an act or a client's own attempt said are kept, cut at a character; so are those of what the newest
/// attempt said, whatever else is to be forgotten. The default for all attempts.
pub(crate) const OUTPUT_KEPT: usize = 256;

/// 8 acts are kept, and what they printed; another one replaces the oldest.
const ACTS_KEPT: usize = 8;

/// 32 bytes: what a text takes beside its own, the counts of its owners and the allocator's share.
const TEXT_OVERHEAD: usize = 32;

/// Replaces an output that had to be dropped.
static FORGOTTEN: LazyLock<Arc<str>> = LazyLock::new(|| "\u{2026}".into());

/// 4 attempts or changes before there is room for more.
const FIRST_FEW: usize = 4;

/// 32 attempts or changes: for so many there is room after the first few, and for so many more each time that it is used up.
const STEP: usize = 32;

/// One change of verdict. An absent verdict counts as unknown here, as it does wherever it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerdictChange {
    /// When.
    pub at: SystemTime,
    /// The verdict before.
    pub from: Verdict,
    /// The verdict since.
    pub to: Verdict,
    pub why: ChangeReason,
}

/// Something that was done to the container because of the probe, or what that printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActNote {
    /// When.
    pub at: SystemTime,
    /// In words, at most [`OUTPUT_KEPT`] bytes: `stop after liveness failure`.
    pub text: Arc<str>,
}

/// What made a verdict change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeReason {
    /// So many equal results in a row.
    Results(u32),
    /// The same, of which only some are of this container.
    Continued {
        /// Those of this container.
        here: u32,
        /// Those of the containers before it.
        before: u32,
    },
    /// The container began to run: what its type starts with stands.
    Started,
    /// The container ran long before us: nothing is known of it.
    Adopted,
    /// The container does not run.
    NotRunning,
}

/// An attempt in 48 bytes and what it said. Attempts that said the same share it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stored {
    millis: u64,
    output: Option<Arc<str>>,
    micros: u32,
    code: Code,
    /// Of the container; [`MANY`] where that is not known, or more.
    container_attempt: u16,
    result: AttemptResult,
    is_first: bool,
    phases: Option<PhasesSlot>,
}

/// 65,535 containers of one name have numbers of their own: at one restart in five minutes, that takes 227 days.
const MANY: u16 = u16::MAX;

/// What an attempt ended with: never both. Of one with a command, also the route of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    None(Option<ExecRoute>),
    Exit(i32, Option<ExecRoute>),
    Status(u16),
}

impl History {
    /// That of a probe whose verdict was known before anything is remembered of it.
    pub(super) fn restored(before: Option<Verdict>) -> Self {
        Self { before, ..Self::default() }
    }

    /// The attempts, oldest first: times to the millisecond, durations to the microsecond and at most 71 minutes, of each
    /// output at most [`HistoryLimits::output_bytes`], or an ellipsis where it was forgotten.
    pub fn attempts(&self) -> impl ExactSizeIterator<Item = AttemptRecord> {
        self.attempts.iter().map(AttemptRecord::from)
    }

    /// The changes of verdict, oldest first.
    pub fn changes(&self) -> impl ExactSizeIterator<Item = &VerdictChange> {
        self.changes.iter()
    }

    /// The acts, oldest first.
    pub fn acts(&self) -> &[ActNote] {
        &self.acts
    }

    /// Keeps the beginning of what is said of an act.
    pub(super) fn acted(&mut self, text: &str, at: SystemTime) {
        if self.acts.len() >= ACTS_KEPT {
            self.forget_act();
        }
        let text: Arc<str> = brief(text, OUTPUT_KEPT).into();
        self.output_bytes += text_size(&text);
        self.acts.push(ActNote { at, text });
    }

    /// Forgets the oldest act.
    fn forget_act(&mut self) {
        let oldest = self.acts.remove(0);
        self.output_bytes -= text_size(&oldest.text);
    }

    /// Keeps an attempt. Returns what is kept of its output, if there is any.
    pub(super) fn attempted(&mut self, attempt: &AttemptRecord) -> Option<Arc<str>> {
        let output = self.text(&attempt.output);
        let since_epoch = attempt.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let oldest = push(
            &mut self.attempts,
            self.limits.attempts.into(),
            Stored {
                millis: u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX),
                output: output.clone(),
                micros: u32::try_from(attempt.duration.as_micros()).unwrap_or(u32::MAX),
                code: match (attempt.exit_code, attempt.status) {
                    (Some(code), _) => Code::Exit(code, attempt.route),
                    (None, Some(status)) => Code::Status(status),
                    (None, None) => Code::None(attempt.route),
                },
                container_attempt: attempt
                    .container_attempt
                    .map_or(MANY, |number| number.try_into().unwrap_or(MANY)),
                result: attempt.result,
                is_first: attempt.is_first,
                phases: attempt.phases.clone().filter(|_| is_slow(attempt.duration)),
            },
        );
        self.release(oldest.and_then(|oldest| oldest.output));
        output
    }

    /// Keeps so much from now on, and forgets what exceeds it.
    pub(super) fn limit(&mut self, limits: HistoryLimits) {
        let is_shorter = limits.output_bytes < self.limits.output_bytes;
        self.limits = limits;
        self.trim(limits.attempts.into());
        if is_shorter {
            self.cut(limits.output_bytes.into());
        }
    }

    /// How much is kept.
    pub(super) fn limits(&self) -> HistoryLimits {
        self.limits
    }

    /// For how many attempts there is room, used or not.
    pub(super) fn room(&self) -> usize {
        self.attempts.capacity()
    }

    /// Forgets the oldest attempts beyond so many.
    pub(super) fn trim(&mut self, most: usize) {
        while self.attempts.len() > most.max(1) {
            let oldest = self.attempts.pop_front();
            self.release(oldest.and_then(|oldest| oldest.output));
        }
        self.attempts.shrink_to(most);
    }

    /// Cuts what attempts said to so many bytes.
    fn cut(&mut self, bytes: usize) {
        let mut cut = HashMap::new();
        for stored in &mut self.attempts {
            let long = stored.output.take_if(|text| text.len() > bytes && !is_forgotten(text));
            if let Some(text) = long {
                let short = || Some(brief(&text, bytes)).filter(|text| !text.is_empty()).map(Arc::from);
                stored.output = cut.entry(text.as_ptr()).or_insert_with(short).clone();
            }
        }
        let mut seen = HashSet::new();
        let texts = self.attempts.iter().filter_map(|stored| stored.output.as_ref());
        let texts = texts.filter(|text| !is_forgotten(text) && seen.insert(text.as_ptr()));
        let acts = self.acts.iter().map(|act| &act.text);
        self.output_bytes = texts.chain(acts).map(|text| text_size(text)).sum();
    }

    /// What is kept of what the newest attempt said.
    pub(crate) fn newest_output(&self) -> Option<&Arc<str>> {
        self.attempts.back()?.output.as_ref()
    }

    /// What the texts of all attempts and acts take, in bytes.
    pub(super) fn output_bytes(&self) -> usize {
        self.output_bytes
    }

    /// Forgets texts until they take `most` bytes: those of the oldest attempts first, then the oldest acts, then what exceeds
    /// [`OUTPUT_KEPT`] of the newest attempt's, whose beginning always stays.
    pub(super) fn forget(&mut self, most: usize) {
        for at in 1..self.attempts.len() {
            if self.output_bytes <= most {
                return;
            }
            let output = &mut self.attempts[at - 1].output;
            if output.is_some() {
                let text = output.replace(Arc::clone(&FORGOTTEN));
                self.release(text);
            }
        }
        while self.output_bytes > most && !self.acts.is_empty() {
            self.forget_act();
        }
        let newest = self.attempts.back_mut().and_then(|newest| newest.output.as_mut());
        if let Some(newest) = newest.filter(|text| self.output_bytes > most && text.len() > OUTPUT_KEPT) {
            let text: Arc<str> = brief(newest, OUTPUT_KEPT).into();
            self.output_bytes += text_size(&text);
            let text = Some(std::mem::replace(newest, text));
            self.release(text);
        }
    }

    /// What is kept of a text: that of an earlier attempt if it is the same, the text itself if it is short.
    fn text(&mut self, said: &Arc<str>) -> Option<Arc<str>> {
        let kept = brief(said, self.limits.output_bytes.into());
        if kept.is_empty() {
            return None;
        }
        let mut earlier = self.attempts.iter().rev().filter_map(|stored| stored.output.as_ref());
        if let Some(same) = earlier.find(|text| ***text == *kept) {
            return Some(Arc::clone(same));
        }
        let text = if kept.len() == said.len() { Arc::clone(said) } else { kept.into() };
        self.output_bytes += text_size(&text);
        Some(text)
    }

    /// Counts a text off that an attempt had, unless another one still has it.
    fn release(&mut self, text: Option<Arc<str>>) {
        let Some(text) = text.filter(|text| !is_forgotten(text)) else { return };
        let mut others = self.attempts.iter().filter_map(|stored| stored.output.as_ref());
        if !others.any(|other| Arc::ptr_eq(other, &text)) {
            self.output_bytes -= text_size(&text);
        }
    }

    /// Notes the verdict as it is now, if that is a change.
    pub(super) fn note_verdict(&mut self, to: Option<Verdict>, why: ChangeReason, at: SystemTime) {
        let from = self.changes.back().map(|last| last.to).or(self.before).unwrap_or(Verdict::Unknown);
        let to = to.unwrap_or(Verdict::Unknown);
        if from != to {
            push(&mut self.changes, CHANGES_KEPT, VerdictChange { at, from, to, why });
        }
    }
}

/// Whether this only replaces a text that was forgotten.
fn is_forgotten(text: &Arc<str>) -> bool {
    Arc::ptr_eq(text, &FORGOTTEN)
}

/// What a text of that size takes.
pub(super) fn text_size(text: &str) -> usize {
    text.len() + TEXT_OVERHEAD
}

/// Adds one; returns the oldest where that has to go for it.
///
/// Room is taken for the first few, which is all that many probes ever have of changes, and then for many at a time: taken
/// one by one, it would leave holes between those of thousands of probes.
fn push<T>(kept: &mut VecDeque<T>, most: usize, item: T) -> Option<T> {
    let oldest = if kept.len() >= most { kept.pop_front() } else { None };
    if kept.len() == kept.capacity() {
        let more = match kept.len() {
            0 => FIRST_FEW,
            few @ 1..STEP => STEP - few,
            STEP.. => STEP,
        };
        kept.reserve_exact(more.min(most - kept.len()).max(1));
    }
    kept.push_back(item);
    oldest
}

impl From<&Stored> for AttemptRecord {
    fn from(stored: &Stored) -> Self {
        let (exit_code, status, route) = match stored.code {
            Code::None(route) => (None, None, route),
            Code::Exit(code, route) => (Some(code), None, route),
            Code::Status(status) => (None, Some(status), None),
        };
        Self {
            at: SystemTime::UNIX_EPOCH + Duration::from_millis(stored.millis),
            result: stored.result,
            duration: Duration::from_micros(stored.micros.into()),
            lag: None,
            exit_code,
            status,
            container_attempt: Some(stored.container_attempt).filter(|&number| number < MANY).map(u32::from),
            is_first: stored.is_first,
            output: stored.output.clone().unwrap_or_default(),
            phases: stored.phases.clone(),
            route,
        }
    }
}

impl ChangeReason {
    /// Of a run of which so many results are of the current container.
    pub fn of_run(run: u32, here: u32) -> Self {
        match run.saturating_sub(here) {
            0 => Self::Results(run),
            before => Self::Continued { here, before },
        }
    }

    /// In words, of a verdict that it led to: `3 failures in a row`, `the container is not running`.
    pub fn in_words(self, to: Verdict) -> String {
        match (self, to) {
            (Self::Results(1), Verdict::Success) => "1 success".to_owned(),
            (Self::Results(1), Verdict::Failure | Verdict::Unknown) => "1 failure".to_owned(),
            (Self::Results(count), Verdict::Success) => format!("{count} successes in a row"),
            (Self::Results(count), Verdict::Failure | Verdict::Unknown) => {
                format!("{count} failures in a row")
            }
            (Self::Continued { here, before }, to) => {
                format!("{}, after {before} at earlier containers", Self::Results(here).in_words(to))
            }
            (Self::Started, _) => "the container started".to_owned(),
            (Self::Adopted, _) => "the container was running before criprobe started".to_owned(),
            (Self::NotRunning, _) => "the container is not running".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use proptest::prelude::*;

    use super::*;

    fn attempt(output: &str) -> AttemptRecord {
        AttemptRecord {
            at: UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
            result: AttemptResult::Failure,
            duration: Duration::from_micros(31_004),
            lag: None,
            exit_code: Some(-1),
            status: None,
            container_attempt: Some(7),
            is_first: false,
            output: output.into(),
            phases: None,
            route: None,
        }
    }

    fn limited(attempts: u16, output_bytes: u16) -> History {
        History { limits: HistoryLimits { attempts, output_bytes }, ..History::default() }
    }

    fn after(attempts: impl IntoIterator<Item = AttemptRecord>) -> History {
        let mut history = History::default();
        attempts.into_iter().for_each(|attempt| drop(history.attempted(&attempt)));
        history
    }

    #[test]
    fn an_attempt_comes_back_as_it_went() {
        let http = AttemptRecord { exit_code: None, status: Some(503), ..attempt("busy") };
        let silent = AttemptRecord { exit_code: None, container_attempt: None, ..attempt("") };
        let records = [attempt("no"), http, silent];
        let history = after(records.clone());
        for (kept, record) in history.attempts().zip(&records) {
            let (was, is) =
                ((record.at, record.result, record.duration), (kept.at, kept.result, kept.duration));
            assert_eq!(is, was);
            assert_eq!((kept.exit_code, kept.status), (record.exit_code, record.status));
            assert_eq!(kept.container_attempt, record.container_attempt);
            assert_eq!(kept.output, record.output);
        }
        assert_eq!(history.attempts().len(), 3);
    }

    #[test]
    fn what_an_attempt_said_is_cut_between_characters() {
        let said = |output: &str| after([attempt(output)]).attempts().next().unwrap().output;
        let text = format!("{}\u{20ac}", "a".repeat(OUTPUT_KEPT - 1));
        assert_eq!(&*said(&text), "a".repeat(OUTPUT_KEPT - 3) + "…");
        assert_eq!(&*said(&"a".repeat(OUTPUT_KEPT)), "a".repeat(OUTPUT_KEPT));
        let layers =
            format!("failed to exec in container: failed to start exec \"{}\": ", "5".repeat(OUTPUT_KEPT));
        assert_eq!(
            &*said(&format!("{layers}stat /bin/nothere: no such file")),
            "stat /bin/nothere: no such file"
        );
    }

    #[test]
    fn the_oldest_go_first() {
        let history = after((0..100).map(|n| attempt(&n.to_string())));
        let kept: Vec<_> = history.attempts().map(|attempt| attempt.output.to_string()).collect();
        let newest: Vec<_> = (100 - 32..100).map(|n| n.to_string()).collect();
        assert_eq!(kept, newest);
    }

    #[test]
    fn attempts_take_little_room() {
        assert_eq!(size_of::<Stored>(), 48);
        assert!(size_of::<VerdictChange>() <= 32);
        assert_eq!(History::default().attempts.capacity() + History::default().changes.capacity(), 0);
        let history = after(["the same", "else", "the same"].map(attempt));
        let outputs: Vec<_> = history.attempts.iter().filter_map(|stored| stored.output.as_ref()).collect();
        assert!(Arc::ptr_eq(outputs[0], outputs[2]), "what was said before is not kept twice");
        let mut full = after(vec![attempt(""); 100]);
        for n in 0..100 {
            full.note_verdict(
                Some([Verdict::Success, Verdict::Failure][n % 2]),
                ChangeReason::Started,
                UNIX_EPOCH,
            );
        }
        assert!(full.attempts.capacity() <= 32 && full.changes.capacity() <= CHANGES_KEPT);
    }

    #[test]
    fn what_stood_before_a_restart_is_where_the_first_change_comes_from() {
        let mut history = History::restored(Some(Verdict::Success));
        history.note_verdict(Some(Verdict::Success), ChangeReason::Results(1), UNIX_EPOCH);
        assert_eq!(history.changes().len(), 0);
        history.note_verdict(Some(Verdict::Failure), ChangeReason::NotRunning, UNIX_EPOCH);
        let changes: Vec<_> = history.changes().map(|change| (change.from, change.to)).collect();
        assert_eq!(changes, [(Verdict::Success, Verdict::Failure)]);
    }

    #[test]
    fn what_must_be_forgotten_is_that_of_the_oldest_and_never_of_the_newest() {
        let mut history = after(["a", "b", "", "a", "c"].map(attempt));
        let said = |history: &History| -> Vec<_> { history.attempts().map(|kept| kept.output).collect() };
        let one = text_size("a");
        assert_eq!(history.output_bytes(), 3 * one, "each counts once");
        history.forget(3 * one);
        assert_eq!(said(&history).join(" "), "a b  a c", "there is room");
        history.forget(2 * one);
        assert_eq!(said(&history).join(" "), "\u{2026} \u{2026}  a c", "what another has frees nothing");
        history.forget(0);
        assert_eq!(said(&history).join(" "), "\u{2026} \u{2026}  \u{2026} c");
        assert_eq!(history.output_bytes(), one);
    }

    #[test]
    fn limits_hold_for_what_comes_and_trim_what_is_there() {
        let said = |history: &History| -> Vec<_> {
            history.attempts().map(|kept| kept.output.to_string()).collect()
        };
        let mut history = limited(3, 4);
        for text in ["a", "bbbbbb", "cccc\u{20ac}", "bbbbxx", "d"] {
            history.attempted(&attempt(text));
        }
        assert_eq!(said(&history), ["cccc", "bbbb", "d"]);
        history.limit(HistoryLimits { attempts: 500, output_bytes: 10_240 });
        for _ in 0..600 {
            history.attempted(&attempt(&"x".repeat(11_000)));
        }
        assert_eq!((history.attempts().len(), history.output_bytes()), (500, text_size(&"x".repeat(10_240))));
        assert!(history.room() < 500 + STEP, "{}", history.room());
        history.limit(HistoryLimits { attempts: 2, output_bytes: 5 });
        assert_eq!((said(&history), history.room()), (vec!["xxxxx".to_owned(); 2], 2));
        assert_eq!(history.output_bytes(), text_size("xxxxx"));
        history.limit(HistoryLimits { attempts: 2, output_bytes: 0 });
        history.attempted(&attempt("said"));
        assert_eq!((said(&history), history.output_bytes()), (vec![String::new(); 2], 0));
        history.trim(0);
        assert_eq!(history.attempts().len(), 1, "the newest stays");
    }

    #[test]
    fn of_the_newest_the_beginning_stays_however_much_is_kept_of_each() {
        let mut history = limited(9, 10_000);
        history.attempted(&attempt(&"y".repeat(9_000)));
        history.attempted(&attempt(&"x".repeat(9_000)));
        history.forget(0);
        let kept: Vec<_> = history.attempts().map(|kept| kept.output.len()).collect();
        assert_eq!((kept, history.output_bytes()), (vec![3, OUTPUT_KEPT], OUTPUT_KEPT + TEXT_OVERHEAD));
    }

    #[test]
    fn acts_are_kept_bounded_and_are_forgotten_after_what_attempts_said() {
        let mut history = after(["a", "b"].map(attempt));
        for n in 0..ACTS_KEPT + 2 {
            history.acted(&format!("{n}{}", "x".repeat(OUTPUT_KEPT)), UNIX_EPOCH);
        }
        let first = |history: &History| history.acts().first().map(|act| act.text[..1].to_owned());
        let of_acts = ACTS_KEPT * (OUTPUT_KEPT + TEXT_OVERHEAD);
        let attempts = 2 * text_size("a");
        assert_eq!((history.acts().len(), first(&history).as_deref()), (ACTS_KEPT, Some("2")));
        assert_eq!(history.output_bytes(), of_acts + attempts);
        history.forget(of_acts + text_size("b"));
        assert_eq!(
            (history.acts().len(), &*history.attempts().next().unwrap().output),
            (ACTS_KEPT, "\u{2026}")
        );
        history.forget(of_acts);
        assert_eq!((history.acts().len(), first(&history).as_deref()), (ACTS_KEPT - 1, Some("3")));
        history.forget(0);
        assert_eq!((history.acts().len(), history.output_bytes()), (0, text_size("b")));
    }

    #[test]
    fn only_what_differs_from_what_stood_is_a_change() {
        let mut history = History::default();
        let (success, failure) = (Some(Verdict::Success), Some(Verdict::Failure));
        for (to, why) in [
            (None, ChangeReason::Adopted),
            (Some(Verdict::Unknown), ChangeReason::Started),
            (success, ChangeReason::Started),
            (success, ChangeReason::Results(1)),
            (failure, ChangeReason::NotRunning),
            (None, ChangeReason::Adopted),
            (failure, ChangeReason::Results(3)),
        ] {
            history.note_verdict(to, why, UNIX_EPOCH);
        }
        let reported: Vec<_> = history
            .changes()
            .map(|change| format!("{} to {}: {}", change.from, change.to, change.why.in_words(change.to)))
            .collect();
        assert_eq!(
            reported,
            [
                "unknown to success: the container started",
                "success to failure: the container is not running",
                "failure to unknown: the container was running before criprobe started",
                "unknown to failure: 3 failures in a row",
            ]
        );
    }

    proptest! {
        #[test]
        fn what_the_texts_take_is_counted_right(
            steps in prop::collection::vec((0_usize..6, prop::option::weighted(0.1, 0_usize..200), prop::option::weighted(0.1, (1_u16..40, 0_u16..400))), 0..200),
        ) {
            let texts = ["", "a", "b", "\u{2026}", "a longer one", &"x".repeat(300)];
            let mut history = History::default();
            for (text, forget, limits) in steps {
                history.attempted(&attempt(texts[text]));
                if let Some((attempts, output_bytes)) = limits {
                    history.limit(HistoryLimits { attempts, output_bytes });
                    prop_assert!(history.attempts().len() <= attempts.into());
                }
                if let Some(most) = forget {
                    history.forget(most);
                }
                let mut distinct: Vec<&Arc<str>> = Vec::new();
                for text in history.attempts.iter().filter_map(|stored| stored.output.as_ref()) {
                    let is_known = distinct.iter().any(|known| Arc::ptr_eq(known, text));
                    if !is_known && !Arc::ptr_eq(text, &FORGOTTEN) {
                        distinct.push(text);
                    }
                }
                prop_assert_eq!(history.output_bytes(), distinct.into_iter().map(|text| text_size(text)).sum::<usize>());
            }
        }

        #[test]
        fn changes_make_a_chain_and_are_bounded(verdicts in prop::collection::vec(0_usize..4, 0..200)) {
            let mut history = History::default();
            for verdict in verdicts {
                let to = [None, Some(Verdict::Success), Some(Verdict::Failure), Some(Verdict::Unknown)][verdict];
                history.note_verdict(to, ChangeReason::Started, UNIX_EPOCH);
            }
            let changes: Vec<_> = history.changes().collect();
            prop_assert!(changes.len() <= CHANGES_KEPT);
            prop_assert!(changes.iter().all(|change| change.from != change.to));
            prop_assert!(changes.windows(2).all(|pair| pair[0].to == pair[1].from));
        }
    }
}
