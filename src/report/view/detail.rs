//! One probe in detail in the API: the fields of the list, its definition, its history, its events.

use serde::{Deserialize, Serialize};

use super::{AttemptView, EventView, ProbeActsView, ProbeView, Seconds, Time, Verdict};

/// One probe in full.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeDetailView {
    /// What the list shows of it.
    #[serde(flatten)]
    pub probe: ProbeView,
    /// Who makes its attempts, and how, of a client's own; absent of all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientView>,
    /// Its definition, with all defaults; null where that is wrong, or one too many, or a client's.
    pub definition: Option<DefinitionView>,
    /// What its verdict of failure does, and what was done last; absent of a probe that only reports, unless something was
    /// done to its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acts: Option<ProbeActsView>,
    /// What was done to its containers because of it, oldest first, up to 8; absent if there was nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acted: Vec<ActNoteView>,
    /// The newest attempts, oldest first, as many as `history.attempts` says, by default 32; also those at former containers.
    pub history: Vec<AttemptView>,
    /// The newest changes of the verdict, oldest first, up to 32.
    pub changes: Vec<ChangeView>,
    /// Those of its events that are kept, oldest first.
    pub events: Vec<EventView>,
}

/// The client whose probe is observed, and what it runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientView {
    /// The kernel's name of its process, 15 bytes: it stays when the client restarts, its pid does not.
    pub comm: String,
    /// Its user.
    pub uid: u32,
    /// What it has run.
    pub command: Vec<String>,
    /// How long that may take; 0 is without end.
    pub timeout_seconds: Seconds,
}

/// A definition: the keys of a Kubernetes `Probe` and ours, none left out. Durations are numbers of seconds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DefinitionView {
    /// What an attempt does.
    #[serde(flatten)]
    pub handler: HandlerView,
    /// From the start of the container to the first attempt.
    pub initial_delay_seconds: Seconds,
    /// The limit of one attempt.
    pub timeout_seconds: Seconds,
    /// The limit that it would have without `prober.maxTimeout`: Docker's default, of a HEALTHCHECK; absent elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_before_cap_seconds: Option<Seconds>,
    /// From one attempt to the next.
    pub period_seconds: Seconds,
    /// Successes in a row that make the verdict success.
    pub success_threshold: u32,
    /// Failures in a row that make the verdict failure.
    pub failure_threshold: u32,
    /// Overrides the pod's where a failure ends the container; null where it does not.
    pub termination_grace_period_seconds: Option<Seconds>,
    /// What a verdict of failure asks for: `report`, `stop`, `kill`, `restart`.
    pub on_failure: String,
    /// What runs in the container before that; null where nothing does.
    pub on_failure_command: Option<FailureCommandView>,
    /// How long after the container's start failures do not count, until its first success; null where they do.
    pub start_period_seconds: Option<Seconds>,
    /// From one attempt to the next meanwhile.
    pub start_interval_seconds: Option<Seconds>,
    /// How its command is run: `sync`, `session`; absent where the setting `prober.execMode` decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec_mode: Option<String>,
}

/// A command that runs in the container before its probe's failure ends it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailureCommandView {
    /// As defined: no `$(VAR)` is expanded.
    pub command: Vec<String>,
    /// Its limit.
    pub timeout_seconds: Seconds,
}

/// One of Kubernetes' four handlers, under its key there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HandlerView {
    /// A command in the container.
    Exec {
        /// As defined: no `$(VAR)` is expanded.
        command: Vec<String>,
    },
    /// A request over HTTP.
    #[serde(rename_all = "camelCase")]
    HttpGet {
        /// As defined.
        path: String,
        /// A number, or a name that the container declares.
        port: PortView,
        /// Instead of the pod's address; null where it is that.
        host: Option<String>,
        /// `HTTP`, `HTTPS`.
        scheme: String,
        /// In the order in which they are sent.
        http_headers: Vec<HeaderView>,
    },
    /// A TCP connection.
    TcpSocket {
        /// A number, or a name that the container declares.
        port: PortView,
        /// Instead of the pod's address; null where it is that.
        host: Option<String>,
    },
    /// A question to the gRPC health service.
    Grpc {
        /// Where to.
        port: u16,
        /// What is asked about; empty for the server as a whole.
        service: String,
    },
}

/// A port as a definition names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PortView {
    /// By number.
    Number(u16),
    /// By name.
    Name(String),
}

/// A header of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HeaderView {
    /// As defined.
    pub name: String,
    /// As defined.
    pub value: String,
}

/// Something that was done to a container because of a probe, or what that printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActNoteView {
    /// When.
    pub at: Time,
    /// In words, up to 256 bytes: `stop after liveness failure`.
    pub text: String,
}

/// A change of the verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeView {
    /// When.
    pub at: Time,
    /// The verdict before.
    pub from: Verdict,
    /// The verdict since.
    pub to: Verdict,
    /// Why, in words: `3 failures in a row`.
    pub why: String,
}
