//! Starts the prober and the stage that acts on its verdicts, and connects them.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{attempt_log, event_log::EventLog, recording::Recording};
use crate::{
    act::{self, ActHandle, ActSettings, ledger::LedgerFile, recipe::RecipeStore},
    exits::ExitsHandle,
    handler::exec::Exec,
    inventory::InventoryHandle,
    prober::{self, ProberHandle, ProberSettings, Saved},
    report::costs::CostsHandle,
    results::event::ProbeEvent,
    runtime::Runtime,
    stage::Tasks,
};

/// What the prober and the stage that acts on its verdicts need.
pub(super) struct ProbingDeps<'a> {
    pub(super) recording: &'a Recording,
    pub(super) inventory: &'a InventoryHandle,
    pub(super) runtime: &'a Runtime,
    pub(super) exec: Exec,
    pub(super) settings: watch::Receiver<ProberSettings>,
    pub(super) act_settings: watch::Receiver<ActSettings>,
    pub(super) load: BoxFuture<'static, Saved>,
    pub(super) saves: watch::Sender<Arc<Saved>>,
    pub(super) ledger: LedgerFile,
    /// Ends the prober.
    pub(super) stop: CancellationToken,
    pub(super) recipes: RecipeStore,
    pub(super) costs: &'a CostsHandle,
    pub(super) exits: &'a ExitsHandle,
}

/// The two stages.
pub(super) struct Probing {
    pub(super) prober: ProberHandle,
    pub(super) act: ActHandle,
    /// Ends the stage that acts.
    pub(super) act_stop: CancellationToken,
}

impl ProbingDeps<'_> {
    /// Starts both, and connects them.
    pub(super) fn spawn(self, tasks: &mut Tasks) -> Probing {
        let Self {
            recording,
            inventory,
            runtime,
            exec,
            settings,
            act_settings,
            load,
            saves,
            ledger,
            stop,
            recipes,
            costs,
            exits,
        } = self;
        let log = Arc::new(Mutex::new(EventLog::new(recording.events.clone())));
        let (replayed, probers_log) = (inventory.clone(), log.clone());
        let (demand_queue, demands) = act::demands();
        let prober = prober::Deps {
            settings: settings.clone(),
            exec,
            load,
            saves,
            stop,
            replay: Box::new(move || replayed.replay()),
            on_event: move |event| report_event(&probers_log, event),
            on_attempt: attempt_log::into(
                recording.attempts.clone(),
                recording.redactor.clone(),
                costs.clone(),
            ),
            on_demand: move |demand| demand_queue.push(demand),
        };
        let prober = prober::spawn(prober, tasks);
        let (act_stop, acted_on) = (tasks.stop().child_token(), exits.clone());
        let act = act::Deps {
            settings: act_settings,
            probing: settings,
            runtime: runtime.clone(),
            prober: prober.clone(),
            demands,
            recipes,
            ledger,
            stop: act_stop.clone(),
            counts: recording.acts.clone(),
            on_event: move |event| report_event(&log, event),
            on_end_claimed: Box::new(move |container, is_ours| acted_on.note_act(container, is_ours)),
        };
        let act = act::spawn(act, tasks);
        Probing { prober, act, act_stop }
    }
}

/// Writes an event to the journal and the log. Held for one event.
fn report_event(log: &Mutex<EventLog>, event: ProbeEvent) {
    log.lock().unwrap_or_else(PoisonError::into_inner).report(event);
}
