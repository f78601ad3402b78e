//! `criprobe probes -w`: what a probe is in a list that is watched.

use std::time::{Duration, SystemTime};

use super::{explanation, table, wide};
use crate::{
    cli::{
        live::item::{self, Item, Sort},
        screen::Paint,
        table::Table,
    },
    report::view::{ProbePhase, ProbeView, Verdict},
};

impl Item for ProbeView {
    const NOUN: &'static str = "probes";
    const SORTS: &'static [Sort] = &[Sort::State, Sort::Name, Sort::Since, Sort::Duration];

    fn key(&self) -> &str {
        &self.key
    }

    fn name(&self) -> String {
        self.id.clone()
    }

    fn is_failed(&self) -> bool {
        self.rank() < 2
    }

    fn rank(&self) -> u8 {
        match (self.state, self.phase) {
            _ if self.is_failing() => 0,
            (_, ProbePhase::Invalid) => 1,
            (Verdict::Unknown | Verdict::Failure, _) => 2,
            (Verdict::Success, ProbePhase::Paused) => 3,
            (Verdict::Success, _) => 4,
        }
    }

    fn since(&self) -> Option<SystemTime> {
        Some(self.since.0)
    }

    fn duration(&self) -> Option<Duration> {
        self.last.as_ref().map(|last| last.duration_seconds.0)
    }

    fn state(&self) -> String {
        let last = self.last.as_ref().map(|last| format!(", last {}", last.result.as_str()));
        format!("{} {}{}", self.state.as_str(), self.phase.as_str(), last.unwrap_or_default())
    }

    fn has_changed(&self, before: &Self) -> bool {
        let step = |probe: &Self| probe.act.as_ref().map(|act| act.step);
        Item::state(self) != Item::state(before) || step(self) != step(before)
    }

    fn reason(&self) -> String {
        explanation(self)
    }

    fn table(items: &[&Self], now: SystemTime, is_wide: bool) -> Table {
        let items = items.iter().copied();
        if is_wide { wide(items, now) } else { table(items, now) }
    }

    fn summary(items: &[Self]) -> (String, Paint) {
        let count = |ranks: &[u8]| items.iter().filter(|item| ranks.contains(&item.rank())).count();
        let counts = [
            (count(&[0]), "failing"),
            (count(&[1]), "invalid"),
            (count(&[2]), "unknown"),
            (count(&[3]), "paused"),
        ];
        item::summary(Self::NOUN, items.len(), &[&counts[..], &[(count(&[4]), "ok")]].concat())
    }
}
