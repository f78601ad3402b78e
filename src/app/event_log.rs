//! Writes probes' events to the journal and, within the limits of their pods, to the log.

use super::log_share::LogShare;
use crate::{
    clock,
    report::{journal::Journal, view::EventView},
    results::event::{EventReason, EventType, ProbeEvent},
};

/// Where probes' events go.
#[derive(Debug)]
pub(super) struct EventLog {
    journal: Journal<EventView>,
    verdicts: LogShare,
    /// Of its own: refused probes of a pod take no lines from verdicts.
    refusals: LogShare,
    /// Of its own: no verdict of any pod hides what was done to a container.
    acts: LogShare,
}

impl EventLog {
    /// Into this journal.
    pub(super) fn new(journal: Journal<EventView>) -> Self {
        Self {
            journal,
            verdicts: LogShare::default(),
            refusals: LogShare::default(),
            acts: LogShare::default(),
        }
    }

    /// Changes of verdicts, probes that are one too many, and acts are logged, too. Of the second only those are events that
    /// are logged: each is listed with its reason as well, and they must not push out the events of others.
    pub(super) fn report(&mut self, event: ProbeEvent) {
        let share = match event.reason {
            EventReason::VerdictChanged => Some(&mut self.verdicts),
            EventReason::InvalidProbe => Some(&mut self.refusals),
            EventReason::Killing
            | EventReason::Restarted
            | EventReason::ActWithheld
            | EventReason::ActFailed
            | EventReason::ActGivenUp
            | EventReason::WouldAct => Some(&mut self.acts),
            // Operators' commands are logged where they come in.
            EventReason::Paused | EventReason::Resumed => None,
            // What a command of the container prints belongs into its history, not into the log of the node.
            EventReason::Unhealthy
            | EventReason::ProbeWarning
            | EventReason::TriedAgain
            | EventReason::FailedPreStopHook
            | EventReason::FailureCommand
            // The planner reports and logs these itself.
            | EventReason::InvalidAnnotation => None,
        };
        let admitted = share.map(|share| share.admit(&event.pod_uid, &event.namespace, clock::now()));
        match admitted {
            Some(Some(passed_over)) => log(&event, passed_over),
            Some(None) if event.reason == EventReason::InvalidProbe => return,
            Some(None) | None => {}
        }
        self.journal.push(EventView::from(event));
    }
}

fn log(event: &ProbeEvent, passed_over: u64) {
    let (pod, namespace) = (&*event.pod, &*event.namespace);
    let passed_over = (passed_over > 0).then_some(passed_over);
    match event.severity {
        EventType::Warning => tracing::warn!(namespace, pod, passed_over, message = %event.message),
        EventType::Normal => tracing::info!(namespace, pod, passed_over, message = %event.message),
    }
}
