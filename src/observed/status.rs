//! The current state of one observed probe, in the terms in which it is shown. Pure: never formats JSON or tables.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::probe::Probe;
use crate::{
    ids::{ProbeKind, ProbeType},
    inventory::pod::Container,
    results::{AttemptResult, Results},
    tap::cri::ExecCommand,
};

/// A probe of a client's own.
#[derive(Clone, Debug)]
pub struct ObservedStatus {
    /// The container that it looks at, with its pod.
    pub container: Arc<Container>,
    /// `observed-N`.
    pub kind: ProbeType,
    /// What it is in the client's pod, where that can be known.
    pub likely: Option<ProbeKind>,
    /// The kernel's name of the client's process.
    pub comm: Box<str>,
    /// Its user.
    pub uid: u32,
    /// What it runs, as the runtime is asked to: expanded.
    pub command: Vec<String>,
    /// How long that may take; zero is without end.
    pub timeout: Duration,
    /// From one attempt to the next, as it was measured.
    pub period: Duration,
    /// From now to when the next attempt is expected.
    pub next_in: Duration,
    /// What its attempts found. The state is that of the last one that said anything.
    pub results: Results,
}

/// A probe of a client's own that ended while its container runs on.
#[derive(Clone, Debug)]
pub(crate) struct SilentProbe {
    /// The container that it looked at, with its pod.
    pub container: Arc<Container>,
    /// `observed-N`, as it was listed.
    pub kind: ProbeType,
    /// The kernel's name of the client's process.
    pub comm: Box<str>,
}

impl ObservedStatus {
    pub(super) fn of(
        view: &Arc<Container>,
        (comm, uid): (&str, u32),
        command: &ExecCommand,
        probe: &mut Probe,
        likely: Option<ProbeKind>,
        now: Instant,
    ) -> Self {
        let period = probe.rhythm.period();
        let next = probe.rhythm.next();
        // One that is late may come now; those after it stand where they stood.
        let late = now.saturating_duration_since(next).as_secs_f64();
        let ticks = (late / period.as_secs_f64()).ceil();
        let next = next + period.mul_f64(if ticks.is_finite() { ticks } else { 0.0 });
        Self {
            container: Arc::clone(view),
            kind: ProbeType::Observed(probe.number),
            likely,
            comm: comm.into(),
            uid,
            command: command.arguments().map(str::to_owned).collect(),
            timeout: Duration::from_secs(u64::try_from(command.timeout_seconds()).unwrap_or(0)),
            period,
            next_in: next.saturating_duration_since(now),
            results: probe.results(now).clone(),
        }
    }

    /// Why the last attempt was an error; empty if it was none.
    pub fn reason(&self) -> &str {
        match self.results.last() {
            Some(last) if last.result == AttemptResult::Error => &last.output,
            _ => "",
        }
    }
}
