//! Metrics of criprobe itself: counts of the stages in, OpenMetrics text out. Each group of metrics is a struct that a
//! stage receives and updates; the registry is only read on request.
//!
//! To add a group: a struct here, a call of its `register` in [`Metrics::new`], a field of [`Metrics`].

use std::{
    fmt::{self, Write},
    sync::{Arc, atomic::AtomicU64},
    time::SystemTime,
};

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, info::Info},
    registry::Registry,
};

use crate::{act::counts::ActCounts, stage::RestartCounts};

/// What the text is, for the one who asked.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics. Cheap to clone; all clones count together.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    /// Of the configuration.
    pub config: ConfigMetrics,
}

/// How reading the configuration went.
#[derive(Clone, Debug, Default)]
pub struct ConfigMetrics {
    last_successful: Gauge,
    last_success: Gauge<f64, AtomicU64>,
    reloads: Family<ReloadLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReloadLabels {
    result: ReloadResult,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ReloadResult {
    Success,
    Failure,
}

/// Counts of the process, kept where they arise.
#[derive(Clone, Debug, Default)]
pub struct ProcessCounts {
    /// Lines of the log that were dropped.
    pub log_lines_dropped: Counter,
    /// Times that accepting clients paused for want of connections or descriptors.
    pub accept_pauses: Counter,
    /// Connections that went blind while calls were open.
    pub connections_blinded: Counter,
    /// Stages that panicked and were started again.
    pub stage_restarts: RestartCounts,
    /// Acts on containers, and those that are withheld.
    pub acts: ActCounts,
}

impl ProcessCounts {
    fn register(self, registry: &mut Registry) {
        registry.register(
            "log_lines_dropped",
            "Log lines that were dropped because standard error was not read fast enough",
            self.log_lines_dropped,
        );
        registry.register(
            "accept_pauses",
            "Times that new clients had to wait because there were too many or the clients' share of file descriptors was used up",
            self.accept_pauses,
        );
        registry.register(
            "connections_blinded",
            "Client connections that went blind while calls were open",
            self.connections_blinded,
        );
        registry.sub_registry_with_prefix("stage").register(
            "restarts",
            "Stages that panicked and were restarted, by stage",
            self.stage_restarts,
        );
        let (acts, withheld) = self.acts.metrics();
        registry.register("acts", "Acts on containers that ended, by action and result", acts);
        registry.register("acts_withheld", "Acts that are asked for and withheld now", withheld);
    }
}

impl Metrics {
    /// Of a daemon of this version.
    pub fn new(version: &'static str) -> Self {
        Self::with(version, ProcessCounts::default())
    }

    /// Of a daemon of this version, with what the process counts elsewhere.
    pub fn with(version: &'static str, counts: ProcessCounts) -> Self {
        let mut registry = Registry::with_prefix("criprobe");
        registry.register("build", "Build information", Info::new([("version", version)]));
        counts.register(&mut registry);
        let config = ConfigMetrics::default();
        config.register(registry.sub_registry_with_prefix("config"));
        Self { registry: Arc::new(registry), config }
    }

    /// All of them as text, in OpenMetrics' format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        text::encode(&mut text, &self.registry).expect("writing to a string never fails");
        text
    }
}

impl ConfigMetrics {
    fn register(&self, registry: &mut Registry) {
        registry.register(
            "last_reload_successful",
            "1 if the configuration files are in effect, 0 if they are wrong and the previous configuration stays in effect",
            self.last_successful.clone(),
        );
        registry.register(
            "last_reload_success_timestamp_seconds",
            "When the configuration was last read without an error",
            self.last_success.clone(),
        );
        registry.register("reloads", "Reloads of the configuration, by result", self.reloads.clone());
        for result in [ReloadResult::Success, ReloadResult::Failure] {
            self.of(result);
        }
    }

    /// The files were read at the start, without an error.
    pub fn started(&self, at: SystemTime) {
        self.last_successful.set(1);
        self.last_success.set(seconds(at));
    }

    /// The files were read again without an error.
    pub fn reloaded(&self, at: SystemTime) {
        self.started(at);
        self.of(ReloadResult::Success).inc();
    }

    /// The files were read again, and are wrong.
    pub fn refused(&self) {
        self.last_successful.set(0);
        self.of(ReloadResult::Failure).inc();
    }

    fn of(&self, result: ReloadResult) -> Counter {
        self.reloads.get_or_create_owned(&ReloadLabels { result })
    }
}

impl EncodeLabelValue for ReloadResult {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        encoder.write_str(match self {
            Self::Success => "success",
            Self::Failure => "failure",
        })
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Since 1970, to the millisecond.
fn seconds(at: SystemTime) -> f64 {
    let millis = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
    millis as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{act::counts::ActResult, spec::OnFailure};

    /// The samples of a family come in no order.
    fn steady(metrics: &Metrics) -> String {
        let text = metrics.text();
        let mut lines: Vec<_> = text.lines().collect();
        for run in lines.chunk_by_mut(|a, b| a.starts_with('#') == b.starts_with('#')) {
            if !run[0].starts_with('#') {
                run.sort_unstable();
            }
        }
        lines.join("\n") + "\n"
    }

    #[test]
    fn they_look_like_this() {
        let metrics = Metrics::new("1.2.3");
        let at = |millis| SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
        metrics.config.started(at(1_763_740_800_000));
        insta::assert_snapshot!("metrics_at_the_start", steady(&metrics));
        metrics.config.reloaded(at(1_763_740_860_250));
        metrics.config.refused();
        metrics.config.refused();
        insta::assert_snapshot!("metrics_after_a_bad_reload", steady(&metrics.clone()));
    }

    #[test]
    fn acts_are_counted_by_action_and_result() {
        let acts = ActCounts::default();
        let counts = ProcessCounts { acts: acts.clone(), ..ProcessCounts::default() };
        let metrics = Metrics::with("1.2.3", counts);
        acts.ended(OnFailure::Restart, ActResult::GivenUp);
        acts.withheld(3);
        let text = metrics.text();
        for line in [
            r#"criprobe_acts_total{action="restart",result="given_up"} 1"#,
            r#"criprobe_acts_total{action="stop",result="dry_run"} 0"#,
            "criprobe_acts_withheld 3",
        ] {
            assert!(text.lines().any(|each| each == line), "{line}:\n{text}");
        }
    }
}
