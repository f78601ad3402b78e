//! Where what happens is recorded and counted: the configuration in; the journals, files, metrics and counts that the stages
//! write to out.

use std::time::SystemTime;

use super::{
    logging, settings,
    trace_log::{self, CallSink},
};
use crate::{
    act::counts::ActCounts,
    config::Config,
    handler::exec::session::Sessions,
    phases::PhasesHandle,
    record_file::{self, RecordFile},
    redact::Redactor,
    relay::RelayHandle,
    report::{
        JournaledCall,
        journal::{Journal, JournalBounds},
        metrics::{CallCounts, Metrics, ProcessCounts},
        repeats::REPEATS,
        view::{CallView, EventView},
    },
};

/// What is kept of calls for `trace --last`: 1,000, and 8 MiB of them; above that, the oldest make room. Calls whose commands
/// have 4 KiB take 6 MiB together. A follower may fall 1,024 behind.
const CALLS: JournalBounds<dyn JournaledCall> = JournalBounds {
    records: CallView::KEPT,
    bytes: 8 << 20,
    groups: None,
    backlog: 1_024,
    size: JournaledCall::size,
    repeats: None,
};

/// What is kept of events: 500, and 2 MiB of them; above that, those of the pod that has most make room. Those that repeat
/// each other are one, and 20 of a reason of a container or probe are kept, see [`REPEATS`]. A usual one takes
/// 300 bytes, one with all the output that a probe may have 11 KiB: of such ones 190 are kept. A follower may fall 256
/// behind, which takes 3 MiB at most; one further behind loses the oldest, and learns how many.
const EVENTS: JournalBounds<EventView> = JournalBounds {
    records: EventView::KEPT,
    bytes: 2 << 20,
    groups: Some(EventView::groups),
    backlog: 256,
    size: EventView::size,
    repeats: Some(REPEATS),
};

/// Where what happens is recorded and counted.
pub(super) struct Recording {
    pub(super) calls: CallCounts,
    pub(super) acts: ActCounts,
    pub(super) metrics: Metrics,
    pub(super) events: Journal<EventView>,
    pub(super) redactor: Redactor,
    pub(super) trace: CallSink,
    pub(super) attempts: RecordFile,
}

impl Recording {
    /// Begins to record; the first event is that of the start.
    pub(super) fn new(
        started: &Config,
        relayed: &RelayHandle,
        phases: &PhasesHandle,
        sessions: &Sessions,
        at: SystemTime,
    ) -> Self {
        let (calls, acts) = (CallCounts::default(), ActCounts::default());
        let counts = ProcessCounts {
            acts: acts.clone(),
            log_lines_dropped: logging::dropped(),
            accept_pauses: relayed.connections.accept_pauses(),
            connections_blinded: relayed.connections.blinded_in_calls(),
            calls: calls.clone(),
            phases: phases.clone(),
            sessions: sessions.clone(),
        };
        let redactor = Redactor::new(started.trace.redact.clone());
        logging::redact(redactor.clone(), started.log.format);
        let file = RecordFile::new("calls", trace_log::QUEUE, settings::trace(started));
        let events = Journal::new(EVENTS);
        events.push(EventView::daemon_started(env!("CARGO_PKG_VERSION"), at.into()));
        Self {
            calls,
            acts,
            metrics: Metrics::new(env!("CARGO_PKG_VERSION"), counts),
            events,
            trace: CallSink { journal: Journal::new(CALLS), file, redactor: redactor.clone() },
            redactor,
            attempts: RecordFile::new("attempts", record_file::QUEUE, settings::attempts(started)),
        }
    }
}
