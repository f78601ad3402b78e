//! What people want to know of a container's life, in words. Pure. Never escapes a message: the code that shows it does.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::Exit;
use crate::{
    duration::coarse,
    ids,
    inventory::pod::{Container, ContainerEnd},
    results::event::{EventType, bounded},
};

/// 10 s: an end that is noticed later than this says how long ago it was, as after an outage of the runtime.
const LATE: Duration = Duration::from_secs(10);

/// Something that happened to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerEvent {
    /// When it was noticed, as of other events.
    pub at: SystemTime,
    /// Whether it is bad news.
    pub severity: EventType,
    pub reason: ContainerEventReason,
    /// In words, unescaped.
    pub message: String,
    /// The container.
    pub view: Arc<Container>,
}

/// What happened, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContainerEventReason {
    /// It runs.
    Started,
    /// It ended.
    Exited,
    /// The kernel killed it because its memory was used up.
    OomKilled,
    /// It takes the place of another container of its name.
    Replaced,
}

impl ContainerEventReason {
    /// `Started`, `Exited`, `OOMKilled`, `Replaced`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Started => "Started",
            Self::Exited => "Exited",
            Self::OomKilled => ContainerEnd::OOM_KILLED,
            Self::Replaced => "Replaced",
        }
    }
}

/// Who stops a container, on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopper {
    /// A client stops it or its pod.
    Client,
    /// An act of ours.
    Act,
}

/// The end of a container.
#[derive(Clone, Copy, Debug)]
pub(super) struct Death<'a> {
    pub(super) exit: &'a Exit,
    /// What the runtime says of it.
    pub(super) end: &'a ContainerEnd,
    pub(super) by: Option<Stopper>,
}

impl ContainerEvent {
    pub(super) fn started(view: &Arc<Container>, now: SystemTime) -> Self {
        let message = match view.attempt {
            0 => format!("Container {} started", view.name),
            attempt => format!("Container {} started, attempt {attempt}", view.name),
        };
        Self::new(view, now, EventType::Normal, ContainerEventReason::Started, message)
    }

    pub(super) fn replaced(view: &Arc<Container>, now: SystemTime) -> Self {
        let id = ids::short(view.id.as_str());
        let message =
            format!("Container {} was replaced by a new one, attempt {}, ID {id}", view.name, view.attempt);
        Self::new(view, now, EventType::Normal, ContainerEventReason::Replaced, message)
    }

    pub(super) fn ended(view: &Arc<Container>, death: &Death<'_>, now: SystemTime) -> Self {
        let (severity, reason) = death.grade();
        Self::new(view, now, severity, reason, death.in_words(&view.name, now))
    }

    fn new(
        view: &Arc<Container>,
        at: SystemTime,
        severity: EventType,
        reason: ContainerEventReason,
        message: String,
    ) -> Self {
        Self { at, severity, reason, message: bounded(message), view: Arc::clone(view) }
    }
}

impl Death<'_> {
    fn is_oom(&self) -> bool {
        // A runtime also reports it of a container that lost a child process, long before it was stopped.
        self.end.is_oom_killed() && self.by.is_none()
    }

    fn grade(&self) -> (EventType, ContainerEventReason) {
        if self.is_oom() {
            return (EventType::Warning, ContainerEventReason::OomKilled);
        }
        // Without an exit code, nothing is known to be wrong.
        let is_well = matches!(self.exit.exit_code, Some(0) | None) || self.by.is_some();
        let severity = if is_well { EventType::Normal } else { EventType::Warning };
        (severity, ContainerEventReason::Exited)
    }

    /// `Container app exited with code 3 after 1m20s`, and why; also how long ago, where that was noticed late.
    fn in_words(&self, name: &str, now: SystemTime) -> String {
        let Exit { started_at, finished_at, exit_code, .. } = self.exit;
        let ran = started_at.zip(*finished_at).and_then(|(from, to)| to.duration_since(from).ok());
        let after = ran.map(|ran| format!(" after {}", lasted(ran))).unwrap_or_default();
        let mut message = match exit_code {
            Some(code) if self.is_oom() => {
                format!("Container {name} was OOM-killed{after}, exit code {code}")
            }
            None if self.is_oom() => format!("Container {name} was OOM-killed{after}"),
            Some(code) => format!("Container {name} exited with code {code}{after}"),
            None => format!("Container {name} ended{after}, and the runtime reports no exit code"),
        };
        if let Some(reason) = self.end.telling().filter(|_| !self.is_oom()) {
            message += &format!(" ({reason})");
        }
        let late = finished_at.and_then(|at| now.duration_since(at).ok()).filter(|late| *late >= LATE);
        message += &late.map(|late| format!(", {} ago", coarse(late))).unwrap_or_default();
        match self.by {
            Some(Stopper::Client) => message += ": a client stopped it",
            Some(Stopper::Act) => message += ": criprobe stopped it",
            None => {}
        }
        let said = self.end.message.trim();
        if !said.is_empty() {
            message += &format!(": {said}");
        }
        message
    }
}

/// `1m20s`.
fn lasted(ran: Duration) -> String {
    if ran < Duration::from_secs(1) { "less than 1s".to_owned() } else { coarse(ran) }
}
