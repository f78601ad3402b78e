//! The state of the whole daemon in the API.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{ActsView, PeerView, ProbePhase, Seconds, Time, Verdict};

/// The daemon as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusView {
    /// criprobe's own.
    pub version: String,
    /// The daemon's.
    pub pid: u32,
    /// When it started.
    pub started_at: Time,
    /// How long it has been up.
    pub uptime_seconds: Seconds,
    /// Whether it is ending: calls in flight may still end.
    #[serde(default)]
    pub draining: bool,
    /// Where clients reach it: `unix:///run/criprobe/criprobe.sock`.
    pub listen: String,
    /// Where its API is.
    pub api: String,
    /// What is served over TCP; absent if nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpView>,
    /// What is behind it.
    pub runtime: RuntimeView,
    /// Clients' connections.
    pub connections: ConnectionsView,
    /// Clients' calls.
    pub calls: CallsView,
    /// How often something passed unseen, since the start; each was answered with a resync.
    pub gaps: u64,
    /// What is known of the node.
    pub inventory: InventoryView,
    /// How the probes stand.
    pub probes: ProbesView,
    /// What is done to containers whose probes fail.
    #[serde(default)]
    pub acts: ActsView,
    /// What outlives the daemon.
    #[serde(default)]
    pub state: StateFileView,
    /// The file that attempts are written to; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<RecordFileView>,
    /// The file that calls are written to; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<RecordFileView>,
    /// Stages that failed and were started again since the start, by name; absent where none was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageRestartView>,
    /// The log.
    #[serde(default)]
    pub log: LogView,
    /// The configuration in effect.
    pub config: ConfigView,
}

/// What is served over TCP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpView {
    /// Where: `127.0.0.1:9090`.
    pub address: String,
    /// Whether the page and the reading API are, besides metrics and health.
    pub page: bool,
}

/// A stage that panicked and was started again: a defect of criprobe's, to be reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StageRestartView {
    /// `inventory`, `plan`, `prober` and so on.
    pub stage: String,
    /// How often, since the start of the daemon.
    pub restarts: u64,
    /// When it last happened.
    pub last_at: Time,
    /// Why, with the place in the source: at most about 700 bytes.
    pub reason: String,
}

/// The log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LogView {
    /// Lines that were dropped since the start, as standard error was not read fast enough.
    pub dropped: u64,
}

/// The runtime behind the relay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeView {
    /// Where it is reached: `unix:///run/containerd/containerd.sock`.
    pub endpoint: String,
    /// As it calls itself; empty until it was first reached.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Whether it answers.
    pub state: RuntimeState,
    /// Since when it does or does not.
    pub since: Time,
    /// Why not, in words; of one that answers, how it refuses to say who it is.
    pub reason: String,
    /// Where its events come from: `containerd`, `cri`, `none`.
    pub event_source: String,
}

/// Whether the runtime answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeState {
    /// It does.
    Ok,
    /// It does not.
    Away,
}

/// Clients' connections.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionsView {
    /// Open now.
    pub open: u64,
    /// Accepted since the start.
    pub total: u64,
    /// Of those that are open: the ones whose calls cannot be seen.
    pub blind: Vec<BlindView>,
    /// Since when new ones wait, as there are 1,024 or clients' share of file descriptors is used up; null while they are
    /// accepted.
    #[serde(default)]
    pub accepting_paused_since: Option<Time>,
}

/// A connection whose bytes pass, but whose calls cannot be seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlindView {
    /// Numbers the connections of this run, from 1.
    pub id: u64,
    /// Who is at the other end.
    pub peer: PeerView,
    /// Since when.
    pub since: Time,
    /// What could not be understood.
    pub reason: String,
}

/// Clients' calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallsView {
    /// Under way now.
    pub in_flight: u64,
    /// Ended since the start.
    pub total: u64,
}

/// What is known of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InventoryView {
    /// Sandboxes.
    pub pods: u64,
    /// Containers in any state.
    pub containers: u64,
    /// Of these, the running ones.
    pub running: u64,
    /// When the runtime's lists were last taken in; null before the first time.
    pub last_resync_at: Option<Time>,
    /// How often they were, since the start.
    pub resyncs: u64,
    /// Whether these lists cannot be read although the runtime answers: new pods may be missing. Absent if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lists_fail: bool,
    /// Containers and pods whose status the runtime has not reported yet; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WaitingView>,
    /// Images whose names or HEALTHCHECK the runtime has not reported yet; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_images: Option<WaitingView>,
}

/// Questions that the runtime has not answered yet. What they are about is not probed, or not by what an image says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingView {
    /// How many.
    pub count: u64,
    /// Since when the oldest of them waits.
    pub since: Time,
    /// How long that is.
    pub longest_seconds: Seconds,
}

/// How the probes stand. A state or phase that no probe is in may be left out.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbesView {
    /// All of ours.
    pub total: u64,
    /// By verdict.
    pub states: BTreeMap<Verdict, u64>,
    /// By what they are doing.
    pub phases: BTreeMap<ProbePhase, u64>,
    /// Clients' own, which the other numbers leave out; absent if there are none.
    #[serde(default, skip_serializing_if = "is_none")]
    pub observed: u64,
    /// Clients' commands that are no longer watched for a rhythm, as others needed the room; absent if there are none.
    #[serde(default, skip_serializing_if = "is_none")]
    pub observed_displaced: u64,
    /// Those whose newest attempts were errors, as many as failures would make a verdict; absent if there are none.
    #[serde(default, skip_serializing_if = "is_none")]
    pub cannot_try: u64,
    /// Those that wait for a place for too long; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<LateView>,
    /// Those of enforced rules that have not had a result yet, although their containers run; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforced_without_result: Option<UnprovenView>,
}

/// Probes of enforced rules, at running containers, that had neither a success nor a failure at any container yet: they are
/// invalid, wait for something, or all their attempts are errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnprovenView {
    /// How many.
    pub count: u64,
    /// How long the oldest of them has been there.
    pub longest_seconds: Seconds,
    /// Their ids, at most 3.
    pub probes: Vec<String>,
}

/// Probes that have waited for a place for more than two of their periods: their verdicts are older than they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LateView {
    /// How many.
    pub count: u64,
    /// How long the one has waited that has waited longest.
    pub longest_seconds: Seconds,
}

/// The file that keeps verdicts, runs and pauses over a restart; all empty of a daemon that keeps none.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StateFileView {
    /// Where it is: `/var/lib/criprobe/probes.json`.
    pub file: String,
    /// When it was last written; null if it was not since the start.
    pub saved_at: Option<Time>,
    /// Why it cannot be read or written, in words; empty if it can.
    pub trouble: String,
}

/// A file that records are written to, a line each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordFileView {
    /// Where it is.
    pub file: String,
    /// Lines that were written since the start.
    pub written: u64,
    /// Lines that were not, as the disk was too slow or in trouble.
    pub dropped: u64,
    /// Why nothing can be written now, and what to do, in words that do not name the file; empty if it can.
    pub trouble: String,
}

/// Which records a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// Calls of clients.
    Calls,
    /// Attempts of our own probes.
    Attempts,
}

/// The configuration in effect, as far as it explains what one sees.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigView {
    /// The files that were read, in order; none where all is by default, flag or environment.
    pub files: Vec<String>,
    /// Attempts of all kinds at a time.
    pub workers: u32,
    /// Attempts of exec at a time.
    pub exec_workers: u32,
    /// From the timeout of an exec to its cancellation.
    pub exec_grace_seconds: Seconds,
    /// `sync`, `session`, `never`: how the commands of exec probes are run.
    #[serde(default)]
    pub exec_mode: String,
    /// When what is in effect was read.
    #[serde(default)]
    pub loaded_at: Option<Time>,
    /// What is wrong with what is written now, a line each: until it is right, what was read before stays in effect. At
    /// most 100, and a line that counts the others.
    #[serde(default)]
    pub errors: Vec<String>,
    /// What was changed since the start and comes into force with the next one, a line each:
    /// `listen: changed in /etc/criprobe/config.yaml:1:9, needs a restart`.
    #[serde(default)]
    pub needs_restart: Vec<String>,
}

/// What one check of `/readyz` found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadyzCheck {
    /// All is well.
    Ok,
    /// It may need attention, but what criprobe is for is done.
    Doubtful(String),
    /// It is not ready, and why.
    Failed(String),
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

impl ProbesView {
    /// Counts probes by state and phase.
    pub fn count(probes: impl IntoIterator<Item = (Verdict, ProbePhase)>) -> Self {
        Self::sum(probes.into_iter().map(|of| (of, 1)))
    }

    /// Adds up counts by state and phase.
    pub fn sum(counts: impl IntoIterator<Item = ((Verdict, ProbePhase), u64)>) -> Self {
        let mut sum = Self::default();
        for ((state, phase), count) in counts {
            sum.total += count;
            *sum.states.entry(state).or_default() += count;
            *sum.phases.entry(phase).or_default() += count;
        }
        sum
    }

    fn check(&self) -> ReadyzCheck {
        let doubtful = |late: LateView| {
            let longest = late.longest_seconds.0.as_secs();
            ReadyzCheck::Doubtful(format!(
                "{} waiting for a place for more than two periods, the longest for {longest}s",
                late.count
            ))
        };
        self.late.map_or(ReadyzCheck::Ok, doubtful)
    }
}

/// 30 s: an answer that takes longer is worth a look.
const LONG_WAIT: Duration = Duration::from_secs(30);

impl InventoryView {
    fn check(&self) -> ReadyzCheck {
        let waiting = [
            (self.waiting, "waiting for the status of containers or pods"),
            (self.waiting_images, IMAGES_WAIT),
        ];
        let texts = waiting.into_iter().filter_map(|(waiting, what)| {
            let waiting = waiting.filter(|waiting| waiting.longest_seconds.0 > LONG_WAIT)?;
            Some(format!(
                "{what}: {}, the longest for {}s",
                waiting.count,
                waiting.longest_seconds.0.as_secs()
            ))
        });
        let texts: Vec<_> = texts.collect();
        if texts.is_empty() { ReadyzCheck::Ok } else { ReadyzCheck::Doubtful(texts.join("; ")) }
    }
}

/// What is said of images that wait.
const IMAGES_WAIT: &str = "waiting for names or HEALTHCHECK of images";

impl LateView {
    /// Of those that wait too long, for how long each; none if there are none.
    pub fn of(waits: impl IntoIterator<Item = Duration>) -> Option<Self> {
        let mut late: Option<Self> = None;
        for waited in waits {
            let view = late.get_or_insert(Self { count: 0, longest_seconds: Seconds::default() });
            view.count += 1;
            view.longest_seconds = view.longest_seconds.max(Seconds(waited));
        }
        late
    }
}

/// What is wrong where the runtime answers, but not this.
const LISTS_FAIL: &str = "the runtime's lists cannot be read, so pods may be missing: the log says why";

impl StatusView {
    /// What readiness depends on, and what else is worth a look.
    ///
    /// A configuration that is wrong never makes the daemon unready: it continues with the previous one. Taking it
    /// out of service for a typing error would cause an outage.
    pub fn checks(&self) -> [(&'static str, ReadyzCheck); 6] {
        let shutdown = match self.draining {
            true => ReadyzCheck::Failed("the daemon is draining: it stops soon".to_owned()),
            false => ReadyzCheck::Ok,
        };
        let runtime = match self.runtime.state {
            RuntimeState::Ok if self.runtime.reason.is_empty() => ReadyzCheck::Ok,
            RuntimeState::Ok => ReadyzCheck::Doubtful(self.runtime.reason.clone()),
            RuntimeState::Away if self.runtime.reason.is_empty() => {
                ReadyzCheck::Failed("the runtime is away".to_owned())
            }
            RuntimeState::Away => {
                ReadyzCheck::Failed(format!("the runtime is away: {}", self.runtime.reason))
            }
        };
        let inventory = match self.inventory.last_resync_at {
            Some(_) if self.inventory.lists_fail => ReadyzCheck::Doubtful(LISTS_FAIL.to_owned()),
            Some(_) => self.inventory.check(),
            None => {
                ReadyzCheck::Failed("the runtime's pods and containers have not been listed yet".to_owned())
            }
        };
        [
            ("shutdown", shutdown),
            ("runtime", runtime),
            ("inventory", inventory),
            ("probes", self.probes.check()),
            ("acts", self.acts.check()),
            ("config", self.config.check()),
        ]
    }
}

impl RecordKind {
    /// The records in words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Attempts => "attempts",
        }
    }

    /// `calls are not written to FILE (trace.file): WHY`; none if they are.
    pub fn problem(self, file: &RecordFileView) -> Option<String> {
        let setting = match self {
            Self::Calls => "trace.file",
            Self::Attempts => "attempts.file",
        };
        let RecordFileView { file, trouble, .. } = file;
        (!trouble.is_empty())
            .then(|| format!("{} are not written to {file} ({setting}): {trouble}", self.as_str()))
    }
}

impl ActsView {
    fn check(&self) -> ReadyzCheck {
        match &*self.trouble {
            "" => ReadyzCheck::Ok,
            trouble => ReadyzCheck::Doubtful(trouble.to_owned()),
        }
    }
}

impl ConfigView {
    fn check(&self) -> ReadyzCheck {
        match (&*self.errors, &*self.needs_restart) {
            ([], []) => ReadyzCheck::Ok,
            ([], [first]) => ReadyzCheck::Doubtful(first.clone()),
            ([], [first, rest @ ..]) => ReadyzCheck::Doubtful(format!("{first}; and {} more", rest.len())),
            ([only], _) => {
                ReadyzCheck::Doubtful(format!("{only}; the previous configuration stays in effect"))
            }
            ([first, rest @ ..], _) => ReadyzCheck::Doubtful(format!(
                "{first}; and {} more: the previous configuration stays in effect",
                rest.len()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_that_is_wrong_is_told_and_is_no_failure() {
        let lines =
            |count: usize| (1..=count).map(|line| format!("c.yaml:{line}:1: wrong")).collect::<Vec<_>>();
        for (errors, needs_restart, expected) in [
            (0, 0, None),
            (1, 1, Some("c.yaml:1:1: wrong; the previous configuration stays in effect")),
            (3, 0, Some("c.yaml:1:1: wrong; and 2 more: the previous configuration stays in effect")),
            (0, 1, Some("c.yaml:1:1: wrong")),
            (0, 2, Some("c.yaml:1:1: wrong; and 1 more")),
        ] {
            let view = ConfigView {
                errors: lines(errors),
                needs_restart: lines(needs_restart),
                ..ConfigView::default()
            };
            let expected =
                expected.map_or(ReadyzCheck::Ok, |reported| ReadyzCheck::Doubtful(reported.to_owned()));
            assert_eq!(view.check(), expected);
        }
    }

    #[test]
    fn probes_that_wait_too_long_are_doubtful_and_no_failure() {
        assert_eq!((LateView::of([]), ProbesView::default().check()), (None, ReadyzCheck::Ok));
        let late = LateView::of([3, 12, 7].map(Duration::from_secs));
        let view = ProbesView { late, ..ProbesView::default() };
        assert_eq!(
            serde_json::to_value(&view).unwrap()["late"],
            serde_json::json!({"count": 3, "longestSeconds": 12.0})
        );
        let reported = "3 waiting for a place for more than two periods, the longest for 12s";
        assert_eq!(view.check(), ReadyzCheck::Doubtful(reported.to_owned()));
    }

    #[test]
    fn acts_that_cannot_be_recorded_are_doubtful_and_no_failure() {
        assert_eq!(ActsView::default().check(), ReadyzCheck::Ok);
        let trouble = "acts cannot be recorded: No space left on device".to_owned();
        let reported = ReadyzCheck::Doubtful(trouble.clone());
        assert_eq!(ActsView { trouble, ..ActsView::default() }.check(), reported);
    }

    #[test]
    fn probes_are_counted_by_state_and_by_phase() {
        let counted = ProbesView::count([
            (Verdict::Success, ProbePhase::Probing),
            (Verdict::Failure, ProbePhase::Held),
            (Verdict::Success, ProbePhase::Waiting),
        ]);
        assert_eq!(
            serde_json::to_string(&counted).unwrap(),
            r#"{"total":3,"states":{"success":2,"failure":1},"phases":{"waiting":1,"probing":1,"held":1}}"#
        );
    }
}
