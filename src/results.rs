//! The state that results of attempts add up to: results in; the verdict after thresholds, the run, the counts, the
//! last attempt and the history out. Pure: never does IO, never reads a clock, knows nothing about schedules.

pub(crate) mod durations;
pub(crate) mod errors;
pub(crate) mod event;
pub(crate) mod exec_route;
pub(crate) mod history;
pub(crate) mod latency;
pub(crate) mod layers;
pub(crate) mod phases;
pub(crate) mod text;

use std::{borrow::Cow, fmt, sync::Arc, time::Duration, time::SystemTime};

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::ids::ProbeKind;
use durations::DurationHistogram;
use errors::Errors;
use history::{ChangeReason, History, HistoryLimits, OUTPUT_KEPT, text_size};
use latency::Latency;

/// What one probe's attempts have shown so far.
///
/// The verdict is one entry of the kubelet's results cache: it may be absent, which is not the same as unknown.
/// Run, last attempt and history belong to the probe and outlive its containers; verdict and counts are the
/// container's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Results {
    verdict: Option<Verdict>,
    since: SystemTime,
    run: Run,
    /// How much of the run is of the current container.
    run_here: u32,
    counts: Counts,
    last: Option<AttemptRecord>,
    /// The newest attempts of the current container, where they were errors.
    errors: Option<Errors>,
    /// The beginning of what the failure before them said, [`OUTPUT_KEPT`] bytes.
    hidden: Option<Arc<str>>,
    tally: Tally,
    /// When the last attempt began that was no success.
    unsuccessful_at: Option<SystemTime>,
    /// Of the attempts of the current container that were made since criprobe started.
    durations: Option<Box<latency::LatencySketch>>,
    /// Shared with its readers; copied if it grows while it is being read.
    history: Arc<History>,
}

impl Results {
    /// Those of a probe that was never attempted and has no container yet.
    pub fn new(at: SystemTime) -> Self {
        Self {
            verdict: None,
            since: at,
            run: Run::default(),
            run_here: 0,
            counts: Counts::default(),
            last: None,
            errors: None,
            hidden: None,
            tally: Tally::default(),
            unsuccessful_at: None,
            durations: None,
            history: Arc::default(),
        }
    }

    /// Those of a probe that goes on after a restart: nothing is lost but its history, of which there is only the last
    /// attempt, how long attempts took, and what errors hide. `errors` count only if the last attempt was one.
    pub fn restored(
        verdict: Option<Verdict>,
        since: SystemTime,
        (run, run_here, counts): (Run, u32, Counts),
        (last, errors): (Option<AttemptRecord>, Option<Errors>),
    ) -> Self {
        let mut history = History::restored(verdict);
        let unsuccessful_at =
            last.as_ref().filter(|last| last.result != AttemptResult::Success).map(|last| last.at);
        last.iter().for_each(|last| drop(history.attempted(last)));
        let is_error = last.as_ref().is_some_and(|last| last.result == AttemptResult::Error);
        let errors = errors.filter(|_| is_error && counts.error > 0);
        let history = Arc::new(history);
        let here = match run.verdict {
            Verdict::Success => counts.success + counts.warning,
            Verdict::Failure | Verdict::Unknown => counts.failure,
        };
        let run_here = u32::try_from(here).unwrap_or(u32::MAX).min(run_here);
        Self {
            verdict,
            since,
            run,
            run_here,
            counts,
            last,
            errors,
            unsuccessful_at,
            history,
            ..Self::new(since)
        }
    }

    /// Starts on another container: its verdict is absent until it is set, its counts are zero. The run goes on
    /// (docs/kubelet-prober.md 3.7, step 4).
    pub fn start_container(&mut self, at: SystemTime) {
        self.verdict = None;
        self.since = at;
        self.run_here = 0;
        self.counts = Counts::default();
        self.durations = None;
        (self.errors, self.hidden) = (None, None);
    }

    /// Sets the verdict and returns whether that changed it; an absent one differs from every other
    /// (docs/kubelet-prober.md 4).
    pub fn set(&mut self, verdict: Verdict, why: ChangeReason, at: SystemTime) -> bool {
        let is_changed = self.verdict != Some(verdict);
        if is_changed {
            self.verdict = Some(verdict);
            self.since = at;
            self.note_verdict(why, at);
        }
        is_changed
    }

    /// Removes the verdict, which is not a change; setting the same one later is a change again
    /// (docs/kubelet-prober.md 4).
    pub fn remove(&mut self, why: ChangeReason, at: SystemTime) {
        if self.verdict.take().is_some() {
            self.since = at;
        }
        self.note_verdict(why, at);
    }

    fn note_verdict(&mut self, why: ChangeReason, at: SystemTime) {
        Arc::make_mut(&mut self.history).note_verdict(self.verdict, why, at);
    }

    /// Keeps an attempt as the last one and in the history; counts it if it was one of the current container.
    pub fn record(&mut self, mut attempt: AttemptRecord, is_of_current_container: bool) {
        attempt.is_first = is_of_current_container && self.counts.total() == 0;
        let kept = Arc::make_mut(&mut self.history).attempted(&attempt);
        if let Some(same) = kept.filter(|kept| *kept == attempt.output) {
            attempt.output = same;
        }
        if is_of_current_container {
            self.counts.add(attempt.result);
            self.note_errors(&attempt);
            // An error is an attempt that was not made.
            if attempt.result != AttemptResult::Error {
                match &mut self.durations {
                    Some(durations) => durations.note(attempt.duration),
                    None => self.durations = Some(Box::new(latency::LatencySketch::of(attempt.duration))),
                }
            }
        }
        self.tally.add(&attempt);
        if attempt.result != AttemptResult::Success {
            self.unsuccessful_at = Some(attempt.at);
        }
        self.last = Some(attempt);
    }

    /// Counts errors in a row, and keeps what the failure before them said.
    fn note_errors(&mut self, attempt: &AttemptRecord) {
        if attempt.result != AttemptResult::Error {
            (self.errors, self.hidden) = (None, None);
            return;
        }
        if self.errors.is_none() {
            let failed =
                self.last.as_ref().filter(|last| last.result == AttemptResult::Failure && !attempt.is_first);
            let words = failed.map(|last| words(last.result, last.exit_code, &last.output));
            self.hidden = words.map(|words| brief(&words, OUTPUT_KEPT).into());
        }
        self.errors = Some(Errors::and(self.errors, attempt.at));
    }

    /// Keeps so much of attempts from now on, and forgets what exceeds it.
    pub fn limit(&mut self, limits: HistoryLimits) {
        if self.history.limits() != limits {
            let is_shared = self.is_last_shared();
            Arc::make_mut(&mut self.history).limit(limits);
            if is_shared {
                self.share_last();
            }
        }
    }

    /// For how many attempts there is room in the history, used or not.
    pub fn attempts_room(&self) -> usize {
        self.history.room()
    }

    /// Forgets the oldest attempts beyond so many; the newest stays.
    pub fn trim(&mut self, most: usize) {
        if self.history.room() > most {
            Arc::make_mut(&mut self.history).trim(most);
        }
    }

    /// Keeps in the history that something was done to the container because of this, or what that printed.
    pub fn note_act(&mut self, text: &text::BoundedText, at: SystemTime) {
        Arc::make_mut(&mut self.history).acted(text, at);
    }

    /// What remembered outputs take, in bytes: that of the last attempt, what it hides, and those in the history.
    pub fn output_bytes(&self) -> usize {
        let longer = self.last.as_ref().filter(|last| !last.output.is_empty() && !self.is_last_shared());
        let hidden = self.hidden.as_ref().map_or(0, |words| text_size(words));
        self.history.output_bytes() + longer.map_or(0, |last| text_size(&last.output)) + hidden
    }

    /// Whether the history has the same text of the last attempt.
    fn is_last_shared(&self) -> bool {
        let in_history = self.history.newest_output().zip(self.last.as_ref());
        in_history.is_some_and(|(kept, last)| Arc::ptr_eq(kept, &last.output))
    }

    /// Forgets of the last attempt's output what is not in the history, or, where that has nothing of it, all but the
    /// beginning.
    fn share_last(&mut self) {
        let Some(last) = &mut self.last else { return };
        if let Some(kept) = self.history.newest_output() {
            last.output = Arc::clone(kept);
        } else if last.output.len() > OUTPUT_KEPT {
            last.output = brief(&last.output, OUTPUT_KEPT).into();
        }
    }

    /// Forgets outputs until they take `most` bytes, or nothing is left but the beginning of the last one: first what
    /// exceeds that beginning, then what errors hide, then the outputs in the history, the oldest first, then its acts.
    pub fn forget(&mut self, most: usize) {
        if self.output_bytes() <= most {
            return;
        }
        self.share_last();
        if self.output_bytes() > most {
            self.hidden = None;
        }
        if self.history.output_bytes() > most {
            Arc::make_mut(&mut self.history).forget(most);
            self.share_last();
        }
    }

    /// Prolongs the run by one, or starts another (docs/kubelet-prober.md 3.7, step 13); returns its length.
    pub fn prolong_run(&mut self, verdict: Verdict) -> u32 {
        if self.run.verdict == verdict {
            self.run.count = self.run.count.saturating_add(1);
            self.run_here = self.run_here.saturating_add(1);
        } else {
            self.run = Run { verdict, count: 1 };
            self.run_here = 1;
        }
        self.run.count
    }

    /// Sets the run's length to zero; of what it was stays (docs/kubelet-prober.md 3.7, step 16).
    pub fn reset_run(&mut self) {
        self.run.count = 0;
        self.run_here = 0;
    }

    /// The same where attempts go on: what is shown goes on, too.
    pub fn restart_run(&mut self) {
        self.run.count = 0;
    }

    /// The verdict, or none where the kubelet's cache would have no entry.
    pub fn verdict(&self) -> Option<Verdict> {
        self.verdict
    }

    /// When the verdict last changed.
    pub fn since(&self) -> SystemTime {
        self.since
    }

    /// The results in a row.
    pub fn run(&self) -> Run {
        self.run
    }

    /// The results in a row of the current container alone, also where a verdict ended their run: what is shown. The verdict
    /// goes by [`Self::run`].
    pub fn run_here(&self) -> Run {
        Run { count: self.run_here, ..self.run }
    }

    /// The attempts of the current container.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The last attempt, also one of a former container.
    pub fn last(&self) -> Option<&AttemptRecord> {
        self.last.as_ref()
    }

    /// The newest attempts of the current container, where they were errors.
    pub fn errors(&self) -> Option<Errors> {
        self.errors
    }

    /// What the failure said that these errors hide, if one came before them.
    pub fn hidden(&self) -> Option<&Arc<str>> {
        self.hidden.as_ref()
    }

    /// The attempts so far, also those of former containers.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// When the last attempt began that was no success, also one of a former container.
    pub fn unsuccessful_at(&self) -> Option<SystemTime> {
        self.unsuccessful_at
    }

    /// How long the attempts of the current container took that were made since criprobe started; none if there are none.
    pub fn latency(&self) -> Option<Latency> {
        self.durations.as_ref().map(|durations| durations.latency())
    }

    /// The last attempts and changes of verdict, also those of former containers.
    pub fn history(&self) -> &Arc<History> {
        &self.history
    }
}

/// What a probe's attempts add up to since it came to be, over all its containers, as the kubelet counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How long those took that ended as hoped, with a doubt or without.
    pub successes: DurationHistogram,
    /// How many failed.
    pub failures: u64,
    /// How many could not be made.
    pub errors: u64,
}

impl Tally {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.successes.count() + self.failures + self.errors
    }

    fn add(&mut self, attempt: &AttemptRecord) {
        match attempt.result.verdict() {
            Some(Verdict::Success) => self.successes.note(attempt.duration),
            Some(Verdict::Failure | Verdict::Unknown) => self.failures += 1,
            None => self.errors += 1,
        }
    }
}

/// What a probe says of its container, after thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is well.
    Success,
    /// It is not.
    Failure,
    /// It is not known yet.
    Unknown,
}

impl Verdict {
    /// The verdict before the first threshold is reached (docs/kubelet-prober.md 1).
    pub fn initial(kind: ProbeKind) -> Self {
        match kind {
            ProbeKind::Liveness => Self::Success,
            ProbeKind::Readiness => Self::Failure,
            ProbeKind::Startup => Self::Unknown,
        }
    }

    /// `success`, `failure`, `unknown`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How one attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttemptResult {
    /// As hoped.
    Success,
    /// As hoped, with a doubt: counts as a success.
    Warning,
    /// The container failed it.
    Failure,
    /// It could not be made: says nothing about the container, and changes nothing.
    Error,
}

impl AttemptResult {
    /// `success`, `warning`, `failure`, `error`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Warning => "warning",
            Self::Failure => "failure",
            Self::Error => "error",
        }
    }

    /// What it says of the container; an error says nothing (docs/kubelet-prober.md 5).
    pub fn verdict(self) -> Option<Verdict> {
        match self {
            Self::Success | Self::Warning => Some(Verdict::Success),
            Self::Failure => Some(Verdict::Failure),
            Self::Error => None,
        }
    }
}

impl fmt::Display for AttemptResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Equal results in a row; errors neither prolong nor break it. An untouched one is no success, `count` 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Success or failure, never unknown.
    #[serde(rename = "result", deserialize_with = "known")]
    pub verdict: Verdict,
    /// How many; 0 after a verdict that ended the run.
    pub count: u32,
}

impl Default for Run {
    fn default() -> Self {
        Self { verdict: Verdict::Success, count: 0 }
    }
}

/// Reads a verdict that cannot be unknown.
fn known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Verdict, D::Error> {
    match Verdict::deserialize(deserializer)? {
        Verdict::Unknown => Err(de::Error::custom("a run is of success or of failure")),
        verdict @ (Verdict::Success | Verdict::Failure) => Ok(verdict),
    }
}

/// How many attempts of the current container ended how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Successes.
    pub success: u64,
    /// Successes with a doubt.
    pub warning: u64,
    /// Failures.
    pub failure: u64,
    /// Attempts that said nothing.
    pub error: u64,
}

impl Counts {
    fn add(&mut self, result: AttemptResult) {
        match result {
            AttemptResult::Success => self.success += 1,
            AttemptResult::Warning => self.warning += 1,
            AttemptResult::Failure => self.failure += 1,
            AttemptResult::Error => self.error += 1,
        }
    }

    /// All of them.
    pub fn total(self) -> u64 {
        self.success + self.warning + self.failure + self.error
    }
}

/// One attempt, as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptRecord {
    /// When it began.
    pub at: SystemTime,
    /// How it ended.
    pub result: AttemptResult,
    /// How long it took, with the tries that an error costs.
    pub duration: Duration,
    /// How long it waited for a worker after it was due; not known of a client's attempt, not kept in a history.
    pub lag: Option<Duration>,
    /// Of the command, where there was one and it ended.
    pub exit_code: Option<i32>,
    /// Of the HTTP response, where there was one.
    pub status: Option<u16>,
    /// Counts the containers of the name: the one that it was made at, where that is known.
    pub container_attempt: Option<u32>,
    /// Whether it was the first at its container; set when it is recorded.
    pub is_first: bool,
    /// The beginning of what it said, at most [`text::TEXT_LIMIT`] bytes of it.
    pub output: Arc<str>,
    /// Where its time went: of a command that a runtime ran which reports that.
    pub phases: Option<phases::PhasesSlot>,
    /// The route of its command; not known of a client's attempt, and not saved.
    pub route: Option<exec_route::ExecRoute>,
}

/// What an attempt said, without blanks around it; of a failure that said nothing, its exit code: `exit code 1, no output`.
pub(crate) fn words(result: AttemptResult, exit_code: Option<i32>, output: &str) -> Cow<'_, str> {
    match (output.trim(), exit_code) {
        ("", Some(code)) if result == AttemptResult::Failure => format!("exit code {code}, no output").into(),
        (output, _) => output.into(),
    }
}

/// A text of at most `bytes` bytes: a long one loses first what a runtime puts before the reason, and then its end, for
/// which there is a sign where there is room.
fn brief(text: &str, bytes: usize) -> Cow<'_, str> {
    if text.len() <= bytes {
        return text.into();
    }
    let text = layers::plain(text);
    if text.len() <= bytes {
        return text.into();
    }
    let cut = if bytes < FEW { "" } else { CUT };
    format!("{}{cut}", &text[..text.floor_char_boundary(bytes - cut.len())]).into()
}

/// 64 bytes: of less, each is worth more than a sign.
const FEW: usize = 64;

/// Replaces the end of a text that was too long.
const CUT: &str = "\u{2026}";

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use serde::Deserialize;

    use super::{text::TEXT_LIMIT, *};

    /// One row of `tests/data/prober/results.json`: what is done to an untouched one, and what that returns.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Row {
        id: String,
        rule: String,
        ops: Vec<String>,
    }

    fn verdict(name: &str) -> Verdict {
        let all = [Verdict::Success, Verdict::Failure, Verdict::Unknown];
        all.into_iter().find(|verdict| verdict.as_str() == name).expect("a verdict")
    }

    #[test]
    fn a_verdict_is_told_only_when_it_changes() {
        let rows: Vec<Row> = serde_json::from_str(include_str!("../tests/data/prober/results.json")).unwrap();
        for Row { id, rule, ops } in rows {
            let mut results = Results::new(UNIX_EPOCH);
            for op in ops {
                let reported = format!("{id}: {rule}: {op}");
                match op.split([' ', ':']).filter(|word| !word.is_empty()).collect::<Vec<_>>()[..] {
                    ["set", name, "changed"] => {
                        assert!(results.set(verdict(name), ChangeReason::Started, UNIX_EPOCH), "{reported}");
                    }
                    ["set", name, "same"] => {
                        assert!(!results.set(verdict(name), ChangeReason::Started, UNIX_EPOCH), "{reported}");
                    }
                    ["get", "none"] => assert_eq!(results.verdict(), None, "{reported}"),
                    ["get", name] => assert_eq!(results.verdict(), Some(verdict(name)), "{reported}"),
                    ["remove"] => results.remove(ChangeReason::Adopted, UNIX_EPOCH),
                    ["container"] => results.start_container(UNIX_EPOCH),
                    _ => panic!("no such step: {reported}"),
                }
            }
        }
    }

    #[test]
    fn since_is_the_time_of_the_last_change() {
        let later = UNIX_EPOCH + Duration::from_secs(5);
        let mut results = Results::new(UNIX_EPOCH);
        results.set(Verdict::Success, ChangeReason::Results(1), UNIX_EPOCH);
        results.set(Verdict::Success, ChangeReason::Results(1), later);
        assert_eq!(results.since(), UNIX_EPOCH);
        results.set(Verdict::Failure, ChangeReason::Results(1), later);
        assert_eq!(results.since(), later);
    }

    #[test]
    fn a_run_counts_equal_results_in_a_row() {
        let mut results = Results::new(UNIX_EPOCH);
        let lengths: Vec<u32> = [Verdict::Success, Verdict::Success, Verdict::Failure, Verdict::Failure]
            .map(|verdict| results.prolong_run(verdict))
            .into();
        assert_eq!(lengths, [1, 2, 1, 2]);
        results.reset_run();
        assert_eq!(results.prolong_run(Verdict::Failure), 1);
    }

    #[test]
    fn outputs_that_take_too_much_are_forgotten_down_to_the_beginning_of_the_last_one() {
        let attempt = |output: String| AttemptRecord {
            at: UNIX_EPOCH,
            result: AttemptResult::Failure,
            duration: Duration::ZERO,
            lag: None,
            exit_code: None,
            status: None,
            container_attempt: None,
            is_first: false,
            output: output.into(),
            phases: None,
            route: None,
        };
        let mut results = Results::new(UNIX_EPOCH);
        results.record(attempt("a".repeat(100)), true);
        results.record(attempt("b".repeat(TEXT_LIMIT)), true);
        let (first, last, beginning) = (100 + 32, TEXT_LIMIT + 32, OUTPUT_KEPT + 32);
        let size =
            |results: &Results| (results.output_bytes(), results.last().map_or(0, |last| last.output.len()));
        assert_eq!(size(&results), (first + last + beginning, TEXT_LIMIT));
        results.forget(first + last + beginning);
        assert_eq!(size(&results).1, TEXT_LIMIT, "there is room");
        results.forget(first + beginning);
        assert_eq!(size(&results), (first + beginning, OUTPUT_KEPT));
        results.forget(0);
        assert_eq!(size(&results), (beginning, OUTPUT_KEPT));
        results.record(attempt("c".to_owned()), true);
        assert_eq!(size(&results), (beginning + 1 + 32, 1), "a short one is kept once");
    }
}
