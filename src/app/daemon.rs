//! The daemon: starts the stages in order, connects them, and stops them in reverse order.

mod handing_over;

use std::{
    io,
    net::TcpListener as StdTcpListener,
    os::{fd::OwnedFd, unix::net::UnixListener as StdListener},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use nix::unistd::gethostname;
use tokio::{
    net::{TcpListener, UnixListener},
    sync::{Semaphore, watch},
    task::spawn_blocking,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    bindings::{Bindings, StartError, remove},
    informing, logging, manifests, outages,
    passing::Passing,
    planning,
    probing::{Probing, ProbingDeps},
    recording::Recording,
    records,
    reload::{self, InForce, Reloading},
    state::{self, State},
};
use crate::{
    act::recipe::RecipeStore,
    clock,
    config::Loaded,
    exits::ExitsHandle,
    handler::exec::{Exec, session::Sessions},
    inventory::{self, InventorySources},
    listen::{Access, SocketFile},
    manager::PassedSocket,
    observed::ObservedHandle,
    phases::PhasesHandle,
    record_file::RecordFile,
    relay::{self, ClientSocket, Relay, RelayEnded, RelayHandle, gate::Gate},
    report::{
        Sources,
        api::{self, Listeners},
        costs::CostsHandle,
        in_flight::CallsInFlight,
        rights::HttpRights,
        stages::{LISTS_AT_ONCE, Stages},
        view::{HttpView, RecordKind},
    },
    runtime::{Runtime, link, link::Link, usage::RuntimeUsage},
    stage::{TaskEnd, Tasks},
    tap,
};

/// 3 s: how long the end waits for the state to be written. A disk that takes longer loses what happened since it was
/// written last.
const LAST_SAVE: Duration = Duration::from_secs(3);

/// 1 s: how long the end waits for the last records to be written to a file. A disk that takes longer loses them.
const LAST_RECORDS: Duration = Duration::from_secs(1);

/// What the service manager shows during a drain.
pub(super) const DRAINING: &str = "draining: calls in flight end";

/// A running daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    relay: Relay,
    relayed: RelayHandle,
    phases: PhasesHandle,
    /// The files of the clients' socket and of the API's, as far as they end with the daemon.
    sockets: Vec<SocketFile>,
    sources: Sources,
    is_draining: Arc<AtomicBool>,
    /// Ends the stage that acts before all others: the next daemon goes on with what it leaves.
    act_stop: CancellationToken,
    /// Ends the prober and, once it has said what is to be saved, what saves it.
    probing_stop: CancellationToken,
    api: Api,
    /// Resolves when the state has been written for the last time.
    saved: TaskEnd,
    /// The files that attempts and calls are written to.
    records: [RecordFile; 2],
    tasks: Tasks,
}

/// The API, which has a thread of its own.
#[derive(Debug)]
struct Api {
    stop: CancellationToken,
    ended: TaskEnd,
}

impl Daemon {
    /// Starts everything; the clients' socket accepts when this returns. That is the one that the service manager passed,
    /// or one of its own. It goes on with the connections of one of `handovers`. The configuration is read again only with
    /// `reloading`. This process began at `began`. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// A socket cannot be made.
    pub(super) fn start(
        loaded: Loaded,
        reloading: Option<Reloading>,
        passed: Option<PassedSocket>,
        handovers: Vec<OwnedFd>,
        began: Instant,
    ) -> Result<Self, StartError> {
        let started_at = clock::wall();
        let (started, mut tasks) = (loaded.config.clone(), Tasks::default());
        let lent = Access::like(&started.runtime);
        let node = hostname();
        let bindings = Bindings::new(&started, lent, passed, !handovers.is_empty(), &node)?;
        let sockets = bindings.files();
        let Bindings { clients, is_kept, api, http, unserved } = bindings;

        let gate = Gate::default();
        let recipes = RecipeStore::new(started.policy.acting.is_enabled);
        let has_output = Arc::new(AtomicBool::new(started.trace.has_output));
        let room = tap::Room::new(recipes.switch(), has_output.clone());
        let accepting = ClientSocket { listener: clients.listener, is_kept };
        let (handover, left_at) = handing_over::taken_over(handovers, room, &started.runtime);
        let (relay, relayed, observations) =
            relay::spawn_resumed(accepting, started.runtime.clone(), gate.clone(), handover)?;
        tracing::info!(listen = %clients.file.path().display(), runtime = %started.runtime.display(), "relaying");
        handing_over::log_again(left_at, began);

        let phases = PhasesHandle::spawn(&mut tasks);
        let sessions = Sessions::default();
        let recording = Recording::new(&started, &relayed, &phases, &sessions, started_at);
        let Recording { trace, attempts, events, redactor, .. } = &recording;
        let observed = ObservedHandle::default();
        let InForce { policies, prober: settings, acts: act_settings, health: config } = reload::spawn(
            loaded,
            started_at,
            reloading,
            (observed.clone(), recipes.clone(), attempts.clone()),
            (trace.clone(), has_output),
            (recording.metrics.config.clone(), events.clone()),
            &mut tasks,
        );

        let runtime = Runtime::new(&started.runtime);
        let (link, runtime_events) = link::spawn(&runtime, gate, phases.news(), &mut tasks);
        outages::spawn(link.clone(), events.clone(), &mut tasks);
        let files = [(RecordKind::Attempts, attempts.clone()), (RecordKind::Calls, trace.file.clone())];
        records::spawn(files, events.clone(), &mut tasks);
        if lent.is_none() {
            tasks.spawn(borrow_access(link.clone(), started.runtime.clone(), clients.file.clone()));
        }

        manifests::spawn(observed.clone(), &mut tasks);
        let sources = InventorySources {
            observations,
            relay: relayed.clone(),
            runtime: runtime.clone(),
            link: link.clone(),
            events: runtime_events,
            stops: inventory::Stops::default(),
        };
        let exits = ExitsHandle::new(started_at);
        let (costs, in_flight) = (CostsHandle::default(), CallsInFlight::default());
        let usage = RuntimeUsage::spawn(started.runtime.clone(), link.clone(), &mut tasks);
        let passing = Passing {
            observed: observed.clone(),
            recipes: recipes.clone(),
            calls: recording.calls.clone(),
            trace: trace.clone(),
            phases: phases.clone(),
            costs: costs.clone(),
            in_flight: in_flight.clone(),
            sessions: sessions.clone(),
            exits: exits.clone(),
            events: events.clone(),
        };
        let (inventory, changes) = inventory::spawn(sources, passing, &mut tasks);

        let probing_stop = tasks.stop().child_token();
        let State { load, saves, health: state, saved, ledger } =
            state::spawn(started.state.as_deref(), redactor.clone(), probing_stop.clone(), &mut tasks);
        let (kept, commands, execs) = (sessions.clone(), runtime.commands(), phases.clone());
        let owner = clients.file.path().display().to_string();
        tasks.spawn(
            tasks.supervise("exec sessions", async move || kept.keep(&commands, &execs, &owner).await),
        );
        let probing = ProbingDeps {
            recording: &recording,
            inventory: &inventory,
            runtime: &runtime,
            exec: Exec::new(runtime.commands()).with_phases(phases.clone()).with_sessions(sessions.clone()),
            settings,
            act_settings,
            load,
            saves,
            ledger,
            stop: probing_stop.clone(),
            recipes,
            costs: &costs,
            exits: &exits,
        };
        let Probing { prober, act, act_stop } = probing.spawn(&mut tasks);
        let planning = planning::Deps {
            changes,
            inventory: inventory.clone(),
            policies,
            link: link.clone(),
            runtime,
            prober: prober.clone(),
            journal: events.clone(),
        };
        let images = planning::spawn(planning, &mut tasks);

        let is_draining = Arc::new(AtomicBool::new(false));
        let informing = informing::Deps {
            link: link.clone(),
            config: config.clone(),
            relay: relayed.clone(),
            is_draining: is_draining.clone(),
            unserved,
        };
        informing::spawn(informing, &mut tasks);
        let stages = Stages {
            relay: relayed.clone(),
            link,
            inventory,
            images,
            prober: prober.clone(),
            act,
            exits,
            observed,
            costs,
            in_flight,
            usage,
            config,
            state,
            attempts: attempts.clone(),
            trace: trace.file.clone(),
            restarts: tasks.restarts(),
            log_lines_dropped: logging::dropped(),
            metrics: recording.metrics,
            http: http.as_ref().map(|(_, rights)| HttpView {
                address: rights.address.to_string(),
                page: rights.serve_page(),
            }),
            started,
            started_at,
            began,
            is_draining: is_draining.clone(),
            lists: Semaphore::new(LISTS_AT_ONCE),
        };
        let Recording { trace, attempts, events, redactor, .. } = recording;
        let records = [attempts, trace.file];
        let snapshots = Arc::new(stages);
        let sources = Sources { snapshots, trace: trace.journal, events, prober, redactor, node };
        let api = Api::spawn((api.map(|bound| bound.listener), http), sources.clone(), &mut tasks)?;
        Ok(Self {
            relay,
            relayed,
            phases,
            sockets,
            sources,
            is_draining,
            act_stop,
            probing_stop,
            api,
            saved,
            records,
            tasks,
        })
    }

    /// What it can be asked.
    pub(super) fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Returns when the relay has failed, which is what everything else is there for. Safe to be dropped and called
    /// again.
    pub(super) async fn failed(&mut self) -> RelayEnded {
        self.relay.ended().await
    }

    /// Ends everything: calls in flight first, then the sockets' files, the API's answers under way, and the rest; the
    /// state is written last.
    pub(super) async fn drain(self) {
        let Self { relay, sockets, is_draining, act_stop, mut api, mut saved, records, tasks, .. } = self;
        is_draining.store(true, Ordering::Relaxed);
        act_stop.cancel();
        relay.drain().await;
        sockets.iter().for_each(remove);
        api.stop.cancel();
        // Its task bounds that. While it answers, the stages that it asks have to run.
        api.ended.wait().await;
        tasks.stop().cancel();
        if timeout(LAST_SAVE, saved.wait()).await.is_err() {
            tracing::warn!("the disk does not respond: changes since the last save of the state are lost");
        }
        tasks.shutdown().await;
        // An error is a panic of ours, and the end goes on.
        let _ = spawn_blocking(move || records.iter().for_each(|file| file.flush(LAST_RECORDS))).await;
    }
}

impl Api {
    /// On a thread of its own: whatever clients ask for, and however often, it takes no CPU time of the two threads of the
    /// stages but what a stage spends on its answers.
    fn spawn(
        (socket, http): (Option<StdListener>, Option<(StdTcpListener, HttpRights)>),
        sources: Sources,
        tasks: &mut Tasks,
    ) -> io::Result<Self> {
        let listeners = move || {
            let http = http.as_ref().map(|(listener, rights)| {
                Ok::<_, io::Error>((TcpListener::from_std(listener.try_clone()?)?, rights.clone()))
            });
            let socket = socket.as_ref().map(|listener| UnixListener::from_std(listener.try_clone()?));
            Ok::<_, io::Error>(Listeners { socket: socket.transpose()?, http: http.transpose()? })
        };
        let stop = CancellationToken::new();
        let stopping = stop.clone();
        let serving = tasks.supervise_until("api", stop.clone(), async move || match listeners() {
            Ok(listeners) => {
                api::serve(listeners, sources.clone(), stopping.clone().cancelled_owned()).await;
            }
            Err(error) => tracing::error!(%error, "cannot serve the API"),
        });
        let ended = tasks.spawn_thread("api", serving)?;
        Ok(Self { stop, ended })
    }
}

/// The node's name; empty if it has none.
fn hostname() -> Arc<str> {
    gethostname().unwrap_or_default().to_string_lossy().into()
}

/// A runtime's socket that came after ours lends it its mode, owner and group.
async fn borrow_access(mut link: watch::Receiver<Link>, runtime: PathBuf, socket: SocketFile) {
    if link.wait_for(|link| link.is_up).await.is_err() {
        return;
    }
    if let Some(access) = Access::like(&runtime)
        && let Err(error) = socket.regrant(access)
    {
        tracing::warn!(%error, "cannot copy the mode and owner of the runtime's socket");
    }
}
