//! `criprobe pods -w`: what a pod is in a list that is watched.

use std::time::{Duration, SystemTime};

use super::{failing, has_failing, state, table, wide};
use crate::{
    cli::{
        live::item::{self, Item, Sort},
        reason::plain,
        screen::Paint,
        table::Table,
    },
    report::view::{ContainerView, PodView},
};

impl Item for PodView {
    const NOUN: &'static str = "pods";
    const SORTS: &'static [Sort] = &[Sort::State, Sort::Name, Sort::Since];

    fn key(&self) -> &str {
        &self.sandbox_id
    }

    fn name(&self) -> String {
        format!("{}/{}", self.namespace, self.pod)
    }

    fn is_failed(&self) -> bool {
        self.rank() < 3
    }

    fn rank(&self) -> u8 {
        let is_invalid = |one: &ContainerView| !one.failing_probes.is_empty();
        match self.ready {
            false => 0,
            true if self.containers.iter().any(has_failing) => 1,
            true if !self.problems.is_empty() || self.containers.iter().any(is_invalid) => 2,
            true => 3,
        }
    }

    /// When its newest container started.
    fn since(&self) -> Option<SystemTime> {
        self.containers.iter().filter_map(|container| Some(container.started_at?.0)).max()
    }

    fn duration(&self) -> Option<Duration> {
        None
    }

    /// `not ready, app running, log exited 137`.
    fn state(&self) -> String {
        let ready = if self.ready { "ready" } else { "not ready" };
        let containers = self.containers.iter().map(|one| format!(", {} {}", one.container, state(one)));
        format!("{ready}{}", containers.collect::<String>())
    }

    /// The reasons hold ages, which change with every look.
    fn has_changed(&self, before: &Self) -> bool {
        let failing = |pod: &Self| {
            let containers = pod.containers.iter().flat_map(|container| {
                let probes = container.failing_probes.iter();
                probes.map(|probe| (container.container.clone(), probe.kind.clone(), probe.phase))
            });
            containers.collect::<Vec<_>>()
        };
        Item::state(self) != Item::state(before)
            || failing(self) != failing(before)
            || self.problems != before.problems
    }

    fn reason(&self) -> String {
        let reasons = Some(plain(&self.reason)).filter(|reason| !reason.is_empty()).into_iter();
        let reasons = reasons.chain(failing(self));
        reasons.chain(self.problems.iter().cloned()).collect::<Vec<_>>().join("; ")
    }

    fn table(items: &[&Self], now: SystemTime, is_wide: bool) -> Table {
        let items = items.iter().copied();
        if is_wide { wide(items, now) } else { table(items, now) }
    }

    fn summary(items: &[Self]) -> (String, Paint) {
        let count = |rank| items.iter().filter(|item| item.rank() == rank).count();
        let counts = [
            (count(0), "not ready"),
            (count(1), "ready with a failing probe"),
            (count(2), "ready with a wrong definition"),
            (count(3), "ok"),
        ];
        item::summary(Self::NOUN, items.len(), &counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cli::live::changes::{Change, Known},
        report::view::{FailingProbeView, ProbePhase, sample},
    };

    #[test]
    fn a_pod_has_changed_when_its_state_has_or_what_fails_and_not_when_time_has_passed() {
        let mut known = Known::default();
        let line = |change: &Change<'_, PodView>| change.line(sample::at(0));
        let mut pod = sample::pod();
        let mut changes = |pod: &PodView| known.changes(std::slice::from_ref(pod), line);
        assert!(changes(&pod).contains("not ready, app running, log exited 137 OOMKilled: log: exited"));
        pod.reason = pod.reason.replace("10s ago", "11s ago");
        assert_eq!(changes(&pod), "");
        let failing = |reason: &str| FailingProbeView {
            kind: "liveness".to_owned(),
            phase: ProbePhase::Probing,
            since: sample::at(0),
            reason: reason.to_owned(),
        };
        pod.containers[0].failing_probes = vec![failing("liveness probe fails since 10:00:00Z (1s): no")];
        assert!(changes(&pod).ends_with("; app: liveness probe fails since 10:00:00Z (1s): no"));
        pod.containers[0].failing_probes =
            vec![failing("liveness probe fails since 10:00:00Z (2s): 17 of them")];
        assert_eq!(changes(&pod), "");
        pod.containers[0].failing_probes.clear();
        assert!(!changes(&pod).is_empty());
    }
}
