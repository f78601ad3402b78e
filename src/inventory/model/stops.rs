//! The stops that clients began. In: their begins and ends, and later reports of the runtime. Out: stops that are over
//! although their target still runs. Pure.
//!
//! begun --answered with an error, cancelled, reset--> failed
//!       --answered well, or the end was lost--> over --reported to run--> failed
//!                                                    --reported not to run, or gone--> forgotten

use std::{collections::BTreeMap, time::Instant};

use super::super::{
    fact::{CallId, Lost, Target},
    pod::OpenStops,
};

/// 16,384 stops are tracked at once. Further ones are not recorded: their targets are probed until they have ended.
const MOST: usize = 16_384;

/// The stops in progress, and those that are over without further reports.
#[derive(Debug, Default)]
pub(crate) struct Stops(BTreeMap<CallId, Stop>);

#[derive(Debug)]
struct Stop {
    target: Target,
    /// When the last call for it ended, if none is in progress: reports after that moment decide.
    over: Option<Instant>,
}

impl Stops {
    /// A stop began. Returns whether it is tracked.
    pub(super) fn begun(&mut self, call: CallId, target: Target) -> bool {
        let has_room = self.0.len() < MOST;
        if has_room {
            self.0.insert(call, Stop { target, over: None });
        }
        has_room
    }

    /// A stop failed. Returns its target, if its begin was seen.
    pub(super) fn failed(&mut self, call: CallId) -> Option<Target> {
        self.0.remove(&call).map(|stop| stop.target)
    }

    /// A stop succeeded.
    pub(super) fn done(&mut self, call: CallId, at: Instant) {
        if let Some(stop) = self.0.get_mut(&call) {
            stop.over = Some(at);
        }
    }

    /// The ends of calls were not seen. Returns whether stops were among them.
    pub(super) fn lost(&mut self, lost: Lost, at: Instant) -> bool {
        let is_lost = |call: &CallId| match lost {
            Lost::Connection(conn) => call.conn == conn,
            Lost::Any => true,
        };
        let open = self.0.iter_mut().filter(|(call, stop)| stop.over.is_none() && is_lost(call));
        open.map(|(_, stop)| stop.over = Some(at)).count() > 0
    }

    /// All of them.
    pub(super) fn open(&self) -> OpenStops {
        let mut open = OpenStops::default();
        for Stop { target, .. } in self.0.values() {
            *match target {
                Target::Container(id) => open.containers.entry(id.clone()).or_default(),
                Target::Sandbox(id) => open.pods.entry(id.clone()).or_default(),
            } += 1;
        }
        open
    }

    /// The target of stops was removed.
    pub(super) fn forget(&mut self, target: &Target) {
        self.0.retain(|_, stop| stop.target != *target);
    }

    /// The runtime reported the state at `sent`: whether a target runs, if that is decided. Returns the targets that
    /// still run although their stop is over, once for each such stop.
    pub(super) fn settle(&mut self, sent: Instant, runs: impl Fn(&Target) -> Option<bool>) -> Vec<Target> {
        let is_over = |stop: &Stop| stop.over.is_some_and(|over| over < sent);
        let decided = self.0.extract_if(.., |_, stop| is_over(stop) && runs(&stop.target).is_some());
        decided.map(|(_, stop)| stop.target).filter(|target| runs(target) == Some(true)).collect()
    }
}
