//! `criprobe pods -w`: what a pod is in a list that is watched.

use std::time::{Duration, SystemTime};

use super::{is_any_failing, state, table, wide};
use crate::{
    cli::{
        live::item::{self, Item},
        screen::Paint,
        table::Table,
    },
    report::view::PodView,
};

impl Item for PodView {
    const NOUN: &'static str = "pods";

    fn key(&self) -> &str {
        &self.sandbox_id
    }

    fn name(&self) -> String {
        format!("{}/{}", self.namespace, self.pod)
    }

    fn is_failed(&self) -> bool {
        self.rank() < 2
    }

    fn rank(&self) -> u8 {
        let is_failing = self.containers.iter().any(|container| is_any_failing(&container.probes));
        match (self.ready, is_failing) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => 2,
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

    fn reason(&self) -> String {
        self.reason.clone()
    }

    fn table(items: &[&Self], now: SystemTime, is_wide: bool) -> Table {
        let items = items.iter().copied();
        if is_wide { wide(items, now) } else { table(items, now) }
    }

    fn summary(items: &[Self]) -> (String, Paint) {
        let count = |rank| items.iter().filter(|item| item.rank() == rank).count();
        let counts = [(count(0), "not ready"), (count(1), "ready with a failing probe"), (count(2), "ok")];
        item::summary(Self::NOUN, items.len(), &counts)
    }
}
