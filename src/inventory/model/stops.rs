//! The stops that clients began. In: their begins and ends, and later reports of the runtime. Out: stops that are over
//! although their target still runs. Pure.
//!
//! begun --answered with an error, cancelled, reset--> failed
//!       --answered well, or the end was lost--> over --reported to run--> failed
//!                                                    --reported not to run, or gone--> forgotten

mod places;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    time::Instant,
};

use places::Places;

use super::super::{
    fact::{CallId, Lost, Target},
    pod::OpenStops,
};
use crate::ids::ConnId;

/// 16,384 containers and pods may have stops, where one that two connections stop counts twice: 256 connections can stop
/// 64 each. Beyond that, the connection that has most of them loses one: what it stopped is probed, until a list shows that
/// it has ended.
const KNOWN: usize = 16_384;

/// 1,024 more may have stops although the inventory does not know them: clients can name any number of them. Before the
/// first lists, these are the stops that are in progress. Beyond that, the same connection loses one, which matters only if
/// it becomes known later.
const UNKNOWN: usize = 1_024;

/// 4 stops of one container or pod are recorded for each connection; clients make one at a time. If all of these fail, it
/// is probed although there may be more.
const CALLS: usize = 4;

/// Before all other calls.
const FIRST: CallId = CallId { conn: ConnId(0), stream: 0 };

/// The stops in progress, and those that are over without further reports.
#[derive(Debug, Default)]
pub(crate) struct Stops {
    calls: BTreeMap<CallId, Stop>,
    by_target: BTreeSet<(Target, CallId)>,
    known: Places,
    unknown: Places,
    /// Stops of known targets for which there was no room.
    left_out: u64,
}

#[derive(Debug)]
struct Stop {
    target: Target,
    /// When the last call for it ended, if none is in progress: reports after that moment decide.
    over: Option<Instant>,
    /// Whether the inventory knows its target, or knew it.
    is_known: bool,
    /// Whether later stages have received it.
    is_reported: bool,
}

/// What follows from the begin of a stop.
#[derive(Debug, Default)]
pub(super) struct Begun {
    /// The stops that later stages have to receive: of this target.
    pub(super) news: usize,
    /// The targets of reported stops that made room, once for each such stop.
    pub(super) left_out: Vec<Target>,
}

impl Stops {
    /// A stop began, of a target that the inventory knows or not.
    pub(super) fn begun(&mut self, call: CallId, target: Target, is_known: bool) -> Begun {
        let mut begun = Begun::default();
        let others: Vec<_> = self.by_target.range(of_connection(&target, call.conn)).collect();
        let known = others.first().and_then(|(_, other)| self.calls.get(other)).map(|stop| stop.is_known);
        let is_known = known.unwrap_or(is_known);
        let has_room = match others.len() {
            0 => self.make_room(call.conn, is_known, &mut begun),
            calls => calls < CALLS,
        };
        if has_room && !self.calls.contains_key(&call) {
            self.places(is_known).take(call.conn, target.clone());
            self.by_target.insert((target.clone(), call));
            self.calls.insert(call, Stop { target, over: None, is_known, is_reported: is_known });
            begun.news = usize::from(is_known);
        }
        begun
    }

    /// The inventory knows this target from now on.
    pub(super) fn recognised(&mut self, target: &Target) -> Begun {
        let mut begun = Begun::default();
        if self.unknown.taken() == 0 {
            return begun;
        }
        for call in self.of(target) {
            let Some(stop) = self.calls.get(&call).filter(|stop| !stop.is_known) else { continue };
            let is_reported = stop.is_reported;
            self.unknown.give(call.conn, target);
            if !self.known.has(call.conn, target) && !self.make_room(call.conn, true, &mut begun) {
                begun
                    .left_out
                    .extend(self.remove(call).filter(|stop| stop.is_reported).map(|stop| stop.target));
                continue;
            }
            self.known.take(call.conn, target.clone());
            begun.news += usize::from(!is_reported);
            if let Some(stop) = self.calls.get_mut(&call) {
                (stop.is_known, stop.is_reported) = (true, true);
            }
        }
        begun
    }

    /// A stop failed. Returns its target, if later stages have received it.
    pub(super) fn failed(&mut self, call: CallId) -> Option<Target> {
        self.remove(call).filter(|stop| stop.is_reported).map(|stop| stop.target)
    }

    /// A stop succeeded.
    pub(super) fn done(&mut self, call: CallId, at: Instant) {
        if let Some(stop) = self.calls.get_mut(&call) {
            stop.over = Some(at);
        }
    }

    /// The ends of calls were not seen. Returns whether stops were among them.
    pub(super) fn lost(&mut self, lost: Lost, at: Instant) -> bool {
        let calls = match lost {
            Lost::Connection(conn) => connection(conn),
            Lost::Any => FIRST..=CallId { conn: ConnId(u64::MAX), stream: u32::MAX },
        };
        let open = self.calls.range_mut(calls).filter(|(_, stop)| stop.over.is_none());
        open.map(|(_, stop)| stop.over = Some(at)).count() > 0
    }

    /// All of them: from now on, all count as received by later stages.
    pub(super) fn open(&mut self) -> OpenStops {
        let mut open = OpenStops::default();
        for stop in self.calls.values_mut() {
            stop.is_reported = true;
            *match &stop.target {
                Target::Container(id) => open.containers.entry(id.clone()).or_default(),
                Target::Sandbox(id) => open.pods.entry(id.clone()).or_default(),
            } += 1;
        }
        open
    }

    /// The target of stops was removed.
    pub(super) fn forget(&mut self, target: &Target) {
        for call in self.of(target) {
            self.remove(call);
        }
    }

    /// The runtime reported the state at `sent`, of one target or of all: whether a target runs, if that is decided.
    /// Returns the targets that still run although their stop is over, once for each such stop that was reported.
    pub(super) fn settle(
        &mut self,
        sent: Instant,
        of: Option<&Target>,
        runs: impl Fn(&Target) -> Option<bool>,
    ) -> Vec<Target> {
        let calls = match of {
            Some(target) => self.of(target),
            None => self.calls.keys().copied().collect(),
        };
        let is_over = |stop: &&Stop| stop.over.is_some_and(|over| over < sent);
        let mut failed = Vec::new();
        for call in calls {
            let Some(runs) = self.calls.get(&call).filter(is_over).and_then(|stop| runs(&stop.target)) else {
                continue;
            };
            let stop = self.remove(call).filter(|stop| runs && stop.is_reported);
            failed.extend(stop.map(|stop| stop.target));
        }
        failed
    }

    /// How many stops of known targets found no room since the last call.
    pub(super) fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }

    /// Whether there is room for another target of this connection, also if another connection has to make it.
    fn make_room(&mut self, conn: ConnId, is_known: bool, begun: &mut Begun) -> bool {
        let most = if is_known { KNOWN } else { UNKNOWN };
        let places = self.places(is_known);
        if places.taken() < most {
            return true;
        }
        let largest = places.largest_beside(conn);
        self.left_out += u64::from(is_known);
        let Some((conn, target)) = largest else { return false };
        let calls: Vec<_> =
            self.by_target.range(of_connection(&target, conn)).map(|(_, call)| *call).collect();
        for call in calls {
            begun.left_out.extend(self.failed(call));
        }
        true
    }

    fn remove(&mut self, call: CallId) -> Option<Stop> {
        let stop = self.calls.remove(&call)?;
        self.by_target.remove(&(stop.target.clone(), call));
        if self.by_target.range(of_connection(&stop.target, call.conn)).next().is_none() {
            self.places(stop.is_known).give(call.conn, &stop.target);
        }
        Some(stop)
    }

    fn of(&self, target: &Target) -> Vec<CallId> {
        let calls = self.by_target.range((target.clone(), FIRST)..);
        calls.take_while(|(other, _)| other == target).map(|(_, call)| *call).collect()
    }

    fn places(&mut self, is_known: bool) -> &mut Places {
        if is_known { &mut self.known } else { &mut self.unknown }
    }
}

/// All calls of a connection.
fn connection(conn: ConnId) -> RangeInclusive<CallId> {
    CallId { conn, stream: 0 }..=CallId { conn, stream: u32::MAX }
}

/// All calls of a connection for a target.
fn of_connection(target: &Target, conn: ConnId) -> RangeInclusive<(Target, CallId)> {
    let (first, last) = connection(conn).into_inner();
    (target.clone(), first)..=(target.clone(), last)
}
