//! One event in the API, with the kubelet's reasons and messages.

use serde::{Deserialize, Serialize};

use super::Time;
use crate::{
    report::journal::{JournalGroups, group},
    results::event::EventType,
};

/// Something that happened to a container, or to criprobe itself: then all that names a container is empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventView {
    /// When; of one that repeats others, when the newest of them happened.
    pub at: Time,
    /// When the first of them happened; absent of one that repeats none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_at: Option<Time>,
    /// How often it has happened; absent if that is once.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub count: u64,
    /// Kubernetes' two types.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// One word, the kubelet's if it has one: `Unhealthy`, `ProbeWarning`, `Killing`.
    pub reason: String,
    /// A sentence, the kubelet's if it has one: `Liveness probe failed: ...`.
    pub message: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's uid.
    pub pod_uid: String,
    /// The container's name.
    pub container: String,
    /// The container's id; empty while there is none.
    pub container_id: String,
    /// The type of the probe that it is about; empty where it is about none.
    pub probe: String,
}

/// 8 KiB of the message of an event about criprobe itself; a longer one is cut, and is in the log and in the status.
const MAX_MESSAGE: usize = 8 << 10;

fn once() -> u64 {
    1
}

fn is_once(count: &u64) -> bool {
    *count == once()
}

impl EventView {
    /// 500 events are kept at most.
    pub(crate) const KEPT: usize = 500;

    /// The reason of the event that the daemon started: there are none from before.
    pub(crate) const DAEMON_STARTED: &str = "CriprobeStarted";

    /// The reason of the event that a new configuration is wrong.
    pub(crate) const CONFIGURATION_REFUSED: &str = "ConfigurationRefused";

    /// The reasons of the events that an outage of the runtime begins and ends.
    pub(crate) const RUNTIME: [&str; 2] = ["RuntimeAway", "RuntimeBack"];

    /// Whether it is one of these.
    pub(crate) fn is_of_runtime(&self) -> bool {
        self.namespace.is_empty() && self.pod.is_empty() && Self::RUNTIME.contains(&&*self.reason)
    }

    /// That the daemon started at this time.
    pub(crate) fn daemon_started(version: &str, at: Time) -> Self {
        let message = format!("criprobe {version} started; earlier events are not kept");
        Self::of_node(EventType::Normal, Self::DAEMON_STARTED, message, at)
    }

    /// An event about criprobe itself or the runtime.
    pub(crate) fn of_node(kind: EventType, reason: &str, mut message: String, at: Time) -> Self {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        let none = String::new;
        Self {
            at,
            first_at: None,
            count: 1,
            kind,
            reason: reason.to_owned(),
            message,
            namespace: none(),
            pod: none(),
            pod_uid: none(),
            container: none(),
            container_id: none(),
            probe: none(),
        }
    }

    /// Whose it is: its namespace's, its pod's, that of its reason among those of a probe.
    pub fn groups(&self) -> JournalGroups {
        let pod = (&self.namespace, &self.pod_uid);
        [group(&self.namespace), group(pod), group((pod, &self.container, &self.probe, &self.reason))]
    }

    /// What it takes, in bytes.
    pub fn size(&self) -> usize {
        let texts = [
            &self.reason,
            &self.message,
            &self.namespace,
            &self.pod,
            &self.pod_uid,
            &self.container,
            &self.container_id,
            &self.probe,
        ];
        size_of::<Self>() + texts.into_iter().map(String::len).sum::<usize>()
    }
}
