//! What runs now, and what the commands of the last minutes cost, in the API.

use serde::{Deserialize, Serialize};

use super::{ExecMode, ExecView, PeerView, Phase, Seconds, Time};

/// Calls in flight, and what commands in containers cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopView {
    /// When this was put together.
    pub at: Time,
    /// The costs are those of so many seconds before.
    pub window_seconds: Seconds,
    /// What runs now.
    pub in_flight: InFlightView,
    /// By pod, the longest total first; at most 100, of which half are shared among namespaces. A pod has a row for probes,
    /// one for everything else, and one for probes whose commands went by sessions.
    pub pods: Vec<CostView>,
    /// By command, the longest total first; at most 100, of which half are shared among namespaces and pods.
    pub commands: Vec<CostView>,
    /// The sums of further rows.
    pub others: OthersView,
    /// What the runtime cost meanwhile; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_cpu: Option<RuntimeCpuView>,
}

/// Calls that have begun and not ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InFlightView {
    /// How many there are; streams of events, and what else waits for events, are not among them.
    pub total: u64,
    /// Open streams of events, and calls that wait for one, which usually stay open for as long as their clients run.
    pub event_streams: u64,
    /// The oldest of them, oldest first; at most 100, of which half are shared among namespaces and pods.
    pub calls: Vec<CallInFlightView>,
}

/// One call that has not ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallInFlightView {
    /// The `id` that the record of the call will have; absent of attempts of criprobe's own, which have none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// When it began.
    pub began: Time,
    /// For how long it has been in flight.
    pub age_seconds: Seconds,
    /// `ExecSync`; of criprobe's own attempts also where a session is tried first.
    pub method: String,
    /// Who called; criprobe itself for its own probes.
    pub caller: PeerView,
    /// Of the pod that it is about; empty where it is about none, or that is not known.
    pub namespace: String,
    /// That pod's name.
    pub pod: String,
    /// The container that it is about.
    pub container: String,
    /// What is run, of ExecSync and Exec; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecView>,
    /// Whether it is known to be a probe's: one of ours, or a client's that was recognised.
    pub is_probe: bool,
}

/// What the ExecSync calls of a pod, or of a command, cost; or the same commands by sessions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CostView {
    /// Of the pod; empty in sums of several pods, or where it is not known.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// Of commands only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Of commands only; empty in sums of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Whether these are calls of probes: ours, or a client's that was recognised.
    pub is_probe: bool,
    /// Their route: `sync`, or `session` of criprobe's own probes.
    #[serde(default)]
    pub exec_route: ExecMode,
    /// How many calls ended.
    pub calls: u64,
    /// Of these, the ones with an exit code other than 0, an error, or no answer.
    pub failures: u64,
    /// How long they took together.
    pub total_seconds: Seconds,
    /// Half of them took no longer.
    pub p50_seconds: Seconds,
    /// 99 of 100 took no longer.
    pub p99_seconds: Seconds,
    /// Where their time went, of those where that is known; absent if it is of none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases: Option<CostPhasesView>,
}

/// The phases of several calls, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CostPhasesView {
    /// Of how many calls.
    pub calls: u64,
    /// Until the runtime took the commands up.
    pub queue_seconds: Seconds,
    /// Until their processes ran.
    pub start_seconds: Seconds,
    /// Until their processes ended.
    pub run_seconds: Seconds,
    /// Until the runtime answered.
    pub drain_seconds: Seconds,
}

/// What has no row of its own: at most one sum of probes, one of everything else, and one of sessions each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OthersView {
    /// Of pods.
    pub pods: Vec<CostView>,
    /// Of commands.
    pub commands: Vec<CostView>,
}

/// The CPU time of the runtime's cgroup: of everything that the runtime and its shims did.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeCpuView {
    /// On average.
    pub cores: f64,
    /// The same per ExecSync call: an upper bound of what one costs; absent where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_per_exec: Option<Seconds>,
}

impl CostPhasesView {
    /// The phase that took longest in all, if any took time.
    pub fn longest(&self) -> Option<(Phase, Seconds)> {
        let phases = [
            (Phase::Queue, self.queue_seconds),
            (Phase::Start, self.start_seconds),
            (Phase::Run, self.run_seconds),
            (Phase::Drain, self.drain_seconds),
        ];
        phases.into_iter().filter(|(_, took)| !took.0.is_zero()).max_by_key(|(_, took)| *took)
    }

    /// What they add up to.
    pub fn total(&self) -> Seconds {
        Seconds(self.queue_seconds.0 + self.start_seconds.0 + self.run_seconds.0 + self.drain_seconds.0)
    }
}
