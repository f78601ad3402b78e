//! The attempts of all probes together, for whoever asks what probing costs. Attempts in, durations by closed sets of
//! names out. Pure.

use std::collections::BTreeMap;

use crate::{
    ids::ProbeKind,
    results::{AttemptRecord, AttemptResult, durations::DurationHistogram, exec_route::ExecRoute},
};

/// The attempts that ended since the prober started. 48 histograms of durations at most, and 3 of lags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttemptTotals {
    /// How long they took, by type, handler (`exec`, `httpGet`, `tcpSocket`, `grpc`) and result.
    pub durations: BTreeMap<(ProbeKind, &'static str, AttemptResult), DurationHistogram>,
    /// How long after they were due they began, by type.
    pub lags: BTreeMap<ProbeKind, DurationHistogram>,
    /// How many commands took which route: 19 at most. An attempt whose command did not reach the runtime is not among them.
    pub routes: BTreeMap<ExecRoute, u64>,
}

impl AttemptTotals {
    pub(super) fn note(&mut self, kind: ProbeKind, handler: &'static str, attempt: &AttemptRecord) {
        self.durations.entry((kind, handler, attempt.result)).or_default().note(attempt.duration);
        if let Some(lag) = attempt.lag {
            self.lags.entry(kind).or_default().note(lag);
        }
        if let Some(route) = attempt.route {
            *self.routes.entry(route).or_default() += 1;
        }
    }
}
