//! What a probe is: the valid, defaulted, bounded definition, and how it is made from user input. Pure: no IO, no
//! clock, no logging.

pub mod acting;
pub(crate) mod annotation;
pub(crate) mod definition;
pub(crate) mod expand;
pub mod healthcheck;
#[allow(dead_code)]
pub(crate) mod hook;
pub(crate) mod identity;
pub(crate) mod image;
pub(crate) mod need;
pub mod plan;
pub(crate) mod planner;
pub mod policy;
pub(crate) mod ports;
pub(crate) mod problems;
pub(crate) mod raw;
pub(crate) mod rule;
pub(crate) mod run;
pub mod validate;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::ProbeKind;

/// One probe's definition. One that exists is valid: Kubernetes' defaults are filled in and its rules hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSpec {
    /// Startup, readiness or liveness.
    pub kind: ProbeKind,
    /// What an attempt does.
    pub handler: Handler,
    /// From the start of the container to the first attempt.
    pub initial_delay: Duration,
    /// The limit of one attempt.
    pub timeout: Duration,
    /// The timeout before it was capped by the operator's maximum; `None` if it was not.
    pub timeout_before_cap: Option<Duration>,
    /// From one attempt to the next; at least 100 ms.
    pub period: Duration,
    /// Successes in a row that make the verdict success; at least 1, and exactly 1 for liveness and startup.
    pub success_threshold: u32,
    /// Failures in a row that make the verdict failure; at least 1.
    pub failure_threshold: u32,
    /// Overrides the pod's grace period when this probe's failure ends the container.
    pub termination_grace: Option<Duration>,
    /// What a verdict of failure may do, where acting is enabled.
    pub on_failure: OnFailure,
    /// What is run in the container before that.
    pub on_failure_command: Option<FailureCommand>,
    /// The time in which failures are forgiven. Kubernetes has none.
    pub start: Option<StartPeriod>,
    /// Whether a command is run as it is written, `$(VAR)` and `$$` included. In Kubernetes it is not.
    pub is_literal: bool,
    /// Which ports of the node's own network its attempts may go to.
    pub reach: Reach,
    /// Which way its command goes into the container; `None` where only the operator's setting says.
    pub exec_mode: Option<ExecMode>,
}

impl ProbeSpec {
    /// Whether two definitions make one probe: they differ in nothing but what its source may ask for, and which way its
    /// command goes. A probe that moves from an annotation to a rule, or back, goes on where it was.
    pub fn is_same_probe(&self, other: &Self) -> bool {
        *self == Self { reach: self.reach, exec_mode: self.exec_mode, ..other.clone() }
    }
}

/// From the start of a container: until its first success, and for `length` at most, failures do not count, and
/// attempts come at an interval of their own. Docker's `--start-period` and `--start-interval`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartPeriod {
    /// More than nothing.
    pub length: Duration,
    /// From one attempt to the next meanwhile; at least 100 ms.
    pub interval: Duration,
}

/// How the command of an exec probe is run: what its definition asks for, and which route it took in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExecMode {
    /// By one ExecSync for each attempt.
    #[default]
    Sync,
    /// By a shell that one Exec keeps in the container; by ExecSync where that cannot be.
    Session,
}

impl ExecMode {
    /// In the order in which they are listed.
    pub const ALL: [Self; 2] = [Self::Sync, Self::Session];

    /// `sync`, `session`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Session => "session",
        }
    }
}

/// The setting `prober.execMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ExecModeSetting {
    /// By ExecSync, unless the definition asks for a session.
    #[default]
    Sync,
    /// By a session, unless the definition asks for ExecSync.
    Session,
    /// By ExecSync, whatever the definition asks for.
    Never,
}

impl ExecModeSetting {
    /// In the order in which they are listed.
    pub const ALL: [Self; 3] = [Self::Sync, Self::Session, Self::Never];

    /// `sync`, `session`, `never`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Session => "session",
            Self::Never => "never",
        }
    }
}

/// Which ports an attempt may go to that is made on a pod in the node's own network: it could be any service's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reach {
    /// Those that the container declares: what a pod's author may ask for.
    #[default]
    Declared,
    /// All: what the operator wrote in a rule.
    Any,
}

/// What one attempt does: exactly one of Kubernetes' four handlers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handler {
    /// Runs a command in the container.
    Exec {
        /// At least one element, as written; see [`ProbeSpec::is_literal`].
        command: Vec<String>,
    },
    /// Asks over HTTP.
    HttpGet(HttpGet),
    /// Opens a TCP connection.
    TcpSocket {
        /// Instead of the pod's address.
        host: Option<String>,
        /// Where to.
        port: PortRef,
    },
    /// Asks the gRPC health service.
    Grpc {
        /// Where to.
        port: u16,
        /// The service to ask about; empty for the server as a whole.
        service: String,
    },
}

impl Handler {
    /// Its key in a Kubernetes probe, with our short form for people: `exec`, `httpGet`, `tcpSocket`, `grpc`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Exec { .. } => "exec",
            Self::HttpGet(_) => "httpGet",
            Self::TcpSocket { .. } => "tcpSocket",
            Self::Grpc { .. } => "grpc",
        }
    }
}

/// A Kubernetes `HTTPGetAction`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpGet {
    /// `http` or `https`.
    pub scheme: Scheme,
    /// Instead of the pod's address.
    pub host: Option<String>,
    /// Where to.
    pub port: PortRef,
    /// As written, not yet a URL.
    pub path: String,
    /// As written, in order.
    pub headers: Vec<(String, String)>,
}

/// The scheme of an HTTP probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Plain.
    Http,
    /// TLS, without verification.
    Https,
}

/// A port by number, or by the name that the container declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortRef {
    /// 1 to 65535.
    Number(u16),
    /// Resolved against the container's declared ports at each attempt.
    Name(String),
}

/// A command that runs in the container before its probe's failure ends it: for what is lost with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureCommand {
    /// At least one element, as written; expanded like that of an exec probe.
    pub command: Vec<String>,
    /// Its limit, after which the act goes on.
    pub timeout: Duration,
}

/// What a verdict of failure may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// Report it, and nothing else.
    #[default]
    Report,
    /// Stop the container: preStop hook, then SIGTERM, then SIGKILL after the grace period.
    Stop,
    /// Stop the container without hook and grace period.
    Kill,
    /// Stop the container, then create and start it again.
    Restart,
}

impl OnFailure {
    /// In the order in which they are listed.
    pub const ALL: [Self; 4] = [Self::Report, Self::Stop, Self::Kill, Self::Restart];

    /// `report`, `stop`, `kill`, `restart`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Stop => "stop",
            Self::Kill => "kill",
            Self::Restart => "restart",
        }
    }
}
