//! Metrics: what the process counts itself, and how all numbers become text. `report::exposed` adds what the stages know.
//!
//! To add a metric: a line in `families` and in docs/metrics.md, and the value here or in `report::exposed`.

pub(crate) mod calls;
pub(crate) mod exposition;
pub(crate) mod families;
pub(crate) mod negotiation;
pub(crate) mod process;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::SystemTime,
};

pub use self::{calls::CallCounts, exposition::Format};
use self::{
    exposition::{Exposition, Labels, Value},
    families::{
        ACCEPT_PAUSES, ACTS, ACTS_WITHHELD, BUILD, CALL_DURATION, CALLS, CONFIG_LOADED, CONFIG_RELOADS,
        CONFIG_SUCCESSFUL, CONNECTIONS_BLINDED, EXEC_PHASE, EXEC_SESSIONS, EXEC_SESSIONS_CLOSED,
        EXEC_SESSIONS_ENDED, EXEC_SESSIONS_FAILED, EXEC_SESSIONS_OPENED, LOG_LINES_DROPPED,
    },
};
use crate::{
    act::counts::ActCounts,
    count::Count,
    handler::exec::session::{SessionCounts, Sessions},
    phases::PhasesHandle,
};

/// What the process counts itself. Cheap to clone; all clones count together.
#[derive(Clone, Debug)]
pub struct Metrics {
    version: &'static str,
    counts: ProcessCounts,
    /// Of the configuration.
    pub config: ConfigMetrics,
}

/// How reading the configuration went.
#[derive(Clone, Debug, Default)]
pub struct ConfigMetrics(Arc<ConfigCounts>);

#[derive(Debug, Default)]
struct ConfigCounts {
    is_last_successful: AtomicBool,
    /// Milliseconds since 1970.
    last_success: AtomicU64,
    successes: AtomicU64,
    failures: AtomicU64,
}

/// Counts of the process, kept where they arise.
#[derive(Clone, Debug, Default)]
pub struct ProcessCounts {
    /// Lines of the log that were dropped.
    pub log_lines_dropped: Count,
    /// Times that accepting clients paused for want of connections or descriptors.
    pub accept_pauses: Count,
    /// Connections that went blind while calls were open.
    pub connections_blinded: Count,
    /// Acts on containers, and those that are withheld.
    pub acts: ActCounts,
    /// Calls of clients.
    pub calls: CallCounts,
    /// Where the time of commands went.
    pub phases: PhasesHandle,
    /// Exec sessions.
    pub(crate) sessions: Sessions,
}

impl Metrics {
    /// Of a daemon of this version.
    pub fn new(version: &'static str, counts: ProcessCounts) -> Self {
        Self { version, counts, config: ConfigMetrics::default() }
    }

    /// Writes all of them.
    pub(crate) fn write(&self, text: &mut Exposition) {
        self.counts.write(text);
        self.config.write(text);
        text.family(&BUILD, [(Labels::of(&BUILD, &[self.version]), Value::Number(1.0))]);
    }
}

impl ProcessCounts {
    fn write(&self, text: &mut Exposition) {
        text.number(&LOG_LINES_DROPPED, self.log_lines_dropped.get());
        text.number(&ACCEPT_PAUSES, self.accept_pauses.get());
        text.number(&CONNECTIONS_BLINDED, self.connections_blinded.get());
        let acts = self.acts.all().map(|(labels, count)| (Labels::of(&ACTS, &labels), Value::count(count)));
        text.family(&ACTS, acts);
        text.number(&ACTS_WITHHELD, self.acts.withheld_now());
        let calls = self.calls.all();
        text.family(
            &CALLS,
            calls.iter().map(|(method, code, durations)| {
                (Labels::of(&CALLS, &[method, code]), Value::count(durations.count()))
            }),
        );
        // Those of one method with different codes are equal here, and are added.
        text.family(
            &CALL_DURATION,
            calls.into_iter().map(|(method, _, durations)| {
                (Labels::of(&CALL_DURATION, &[method]), Value::Durations(durations))
            }),
        );
        let phases = self.phases.durations().into_iter().map(|((caller, phase), durations)| {
            (Labels::of(&EXEC_PHASE, &[caller.as_str(), phase.as_str()]), Value::Durations(durations))
        });
        text.family(&EXEC_PHASE, phases);
        write_sessions(text, self.sessions.counts());
    }
}

fn write_sessions(text: &mut Exposition, counts: SessionCounts) {
    let SessionCounts { open, opened, failed, ended, closed } = counts;
    text.number(&EXEC_SESSIONS, open);
    text.number(&EXEC_SESSIONS_OPENED, opened);
    text.number(&EXEC_SESSIONS_FAILED, failed);
    text.number(&EXEC_SESSIONS_ENDED, ended);
    text.number(&EXEC_SESSIONS_CLOSED, closed);
}

impl ConfigMetrics {
    fn write(&self, text: &mut Exposition) {
        let ConfigCounts { is_last_successful, last_success, successes, failures } = &*self.0;
        text.number(&CONFIG_SUCCESSFUL, is_last_successful.load(Ordering::Relaxed));
        text.number(&CONFIG_LOADED, last_success.load(Ordering::Relaxed) as f64 / 1000.0);
        let results = [("success", successes), ("failure", failures)].map(|(result, count)| {
            (Labels::of(&CONFIG_RELOADS, &[result]), Value::count(count.load(Ordering::Relaxed)))
        });
        text.family(&CONFIG_RELOADS, results);
    }

    /// The files were read at the start, without an error.
    pub fn started(&self, at: SystemTime) {
        self.0.is_last_successful.store(true, Ordering::Relaxed);
        let millis = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
        self.0.last_success.store(u64::try_from(millis).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The files were read again without an error.
    pub fn reloaded(&self, at: SystemTime) {
        self.started(at);
        self.0.successes.fetch_add(1, Ordering::Relaxed);
    }

    /// The files were read again, and are wrong.
    pub fn refused(&self) {
        self.0.is_last_successful.store(false, Ordering::Relaxed);
        self.0.failures.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{act::counts::ActResult, spec::OnFailure};

    fn text(metrics: &Metrics) -> String {
        let mut text = Exposition::new(Format::OpenMetrics);
        metrics.write(&mut text);
        text.finish()
    }

    #[test]
    fn they_look_like_this() {
        let metrics = Metrics::new("1.2.3", ProcessCounts::default());
        let at = |millis| SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
        metrics.config.started(at(1_763_740_800_000));
        insta::assert_snapshot!("metrics_at_the_start", text(&metrics));
        metrics.config.reloaded(at(1_763_740_860_250));
        metrics.config.refused();
        metrics.config.refused();
        insta::assert_snapshot!("metrics_after_a_bad_reload", text(&metrics.clone()));
    }

    #[test]
    fn each_count_of_sessions_is_the_metric_of_its_name() {
        let mut text = Exposition::new(Format::OpenMetrics);
        write_sessions(&mut text, SessionCounts { open: 1, opened: 9, failed: 2, ended: 3, closed: 5 });
        let text = text.finish();
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                "criprobe_exec_sessions 1",
                "criprobe_exec_sessions_opened_total 9",
                "criprobe_exec_sessions_failed_total 2",
                "criprobe_exec_sessions_ended_total 3",
                "criprobe_exec_sessions_closed_total 5",
            ]
        );
    }

    #[test]
    fn acts_are_counted_by_action_and_result() {
        let acts = ActCounts::default();
        let counts = ProcessCounts { acts: acts.clone(), ..ProcessCounts::default() };
        let metrics = Metrics::new("1.2.3", counts);
        acts.ended(OnFailure::Restart, ActResult::GivenUp);
        acts.withheld(3);
        let text = text(&metrics);
        for line in [
            r#"criprobe_acts_total{action="restart",result="given_up"} 1"#,
            r#"criprobe_acts_total{action="stop",result="dry_run"} 0"#,
            "criprobe_acts_withheld 3",
        ] {
            assert!(text.lines().any(|each| each == line), "{line}:\n{text}");
        }
    }
}
