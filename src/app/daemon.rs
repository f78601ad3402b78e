//! The daemon: starts the stages in their order, wires them, and ends them in the opposite order.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, SystemTime},
};

use thiserror::Error;
use tokio::{
    net::UnixListener,
    sync::{Notify, mpsc, oneshot, watch},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    images::Images,
    logging, manifests, planning,
    reload::{self, Outlets, Reloading},
    reporter::{Questions, Reporter},
    settings,
    state::Store,
    tasks::{Tasks, supervise},
    verdict_log::VerdictLog,
};
use crate::{
    clock,
    config::{Config, Loaded},
    inventory::{self, Health, TracedCall},
    listen::{self, Access, ListenError, SocketFile},
    observed::Observed,
    prober::{self, Channels, Operator, Saved},
    relay::{Relay, RelayEnded, gate::Gate, output, registry::Registry},
    report::{
        Sources, api, convert,
        journal::{Bounds, Journal},
        metrics::{Metrics, ProcessCounts},
        view::EventView,
    },
    results::event::{ProbeEvent, Severity},
    runtime::{Runtime, events, link, link::Link},
    tap::Call,
};

/// 1,024 changes may be on their way to the prober; above that the inventory waits, and the taps' queue takes it.
const CHANGES: usize = 1024;

/// 16 questions may wait for an answer; above that the askers wait.
const QUESTIONS: usize = 16;

/// 1,000 calls are kept for `trace --last`.
const CALLS_KEPT: usize = 1000;

/// 500 events are kept for `events`.
const EVENTS_KEPT: usize = 500;

/// 2 MiB: what these events take together. A usual one takes 300 bytes, one with all the output that a probe may have
/// 11 KiB: of such ones 190 are kept, and the oldest make room.
const EVENTS_BYTES: usize = 2 << 20;

/// 256 events: how far a follower may fall behind, which takes 3 MiB at most. One further behind loses the oldest, and
/// learns how many.
const EVENTS_BACKLOG: usize = 256;

/// 4 threads relay at most: what a node's clients could use at once.
const MAX_RELAY_THREADS: usize = 4;

/// 3 s: how long the end waits for the state to be written. A disk that takes longer loses what happened since it was
/// written last.
const LAST_SAVE: Duration = Duration::from_secs(3);

/// Why the daemon did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// A socket could not be made.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The kernel refused something that it never refuses.
    #[error("cannot start")]
    Io(#[from] io::Error),
}

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    relay: Relay,
    socket: SocketFile,
    api_socket: SocketFile,
    sources: Sources,
    is_draining: Arc<AtomicBool>,
    /// Ends the API's task.
    stop_api: CancellationToken,
    /// Closed when the API's task has ended.
    answered: oneshot::Receiver<()>,
    /// Ends the prober's task, and with that the state's.
    stop: CancellationToken,
    /// Closed when the state was written for the last time.
    saved: oneshot::Receiver<()>,
    tasks: Tasks,
}

impl Daemon {
    /// Starts everything; the clients' socket accepts when this returns. The configuration is kept in line with what is
    /// written only with what that takes. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// A socket cannot be made.
    pub fn start(loaded: Loaded, reloading: Option<Reloading>) -> Result<Self, StartError> {
        let (started_at, began) = (clock::wall(), clock::now());
        let config = loaded.config.clone();
        let api_access = api_access(&config);
        let lent = Access::like(&config.runtime);
        let socket = listen::bind(&config.listen, lent.unwrap_or(Access::PRIVATE), Some(&config.runtime))?;
        let api_socket =
            listen::bind(&config.api.listen, api_access, Some(&config.runtime)).inspect_err(|_| {
                // The start has failed already, and the next one replaces what is left.
                let _ = socket.file.unlink();
            })?;

        let (gate, registry) = (Gate::default(), Registry::default());
        let (taps, observations) = output::channel(output::MAX_EVENTS);
        let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_RELAY_THREADS);
        let relay = Relay::start(
            socket.listener,
            config.runtime.clone(),
            threads,
            gate.clone(),
            taps.clone(),
            registry.clone(),
        )?;
        tracing::info!(listen = %config.listen.display(), runtime = %config.runtime.display(), "relaying");

        let counts =
            ProcessCounts { log_lines_dropped: logging::dropped(), accept_pauses: registry.accept_pauses() };
        let metrics = Metrics::with(env!("CARGO_PKG_VERSION"), counts);
        metrics.config.started(started_at);
        let mut tasks = Tasks::new(metrics.stages.clone());
        let (restarts, stop) = (tasks.restarts(), CancellationToken::new());
        let runtime = Runtime::new(&config.runtime);
        let (event_queue, events) = events::queue();
        let link = watch::Sender::new(Link::default());
        let link_now = link.subscribe();
        let keeping = (runtime.clone(), gate, event_queue, link);
        tasks.spawn(supervise("link", restarts.clone(), stop.clone(), async move || {
            let (runtime, gate, events, link) = keeping.clone();
            link::keep(runtime, gate, events, link).await;
        }));
        if lent.is_none() {
            tasks.spawn(borrow_access(link_now.clone(), config.runtime.clone(), socket.file.clone()));
        }

        let trace = Journal::new(Bounds::records(CALLS_KEPT));
        let calls = Arc::new(AtomicU64::new(0));
        let observed = Observed::default();
        let manifests_of = observed.clone();
        tasks.spawn(supervise("manifests", restarts.clone(), stop.clone(), async move || {
            manifests::read(manifests_of.clone(), manifests::FOLDER.into()).await;
        }));
        let (change_sender, mut changes) = mpsc::channel(CHANGES);
        let health = watch::Sender::new(Health::default());
        let health_now = health.subscribe();
        let (inventory_questions, inventory_queries) = mpsc::channel(QUESTIONS);
        let replay = Arc::new(Notify::new());
        let mut sources = inventory::Sources {
            observations,
            connections: registry.clone(),
            runtime: runtime.clone(),
            link: link_now.clone(),
            events,
            queries: inventory_queries,
            replay: replay.clone(),
        };
        let (calls_ended, calls_of, trace_of) = (calls.clone(), observed.clone(), trace.clone());
        tasks.spawn(supervise("inventory", restarts.clone(), stop.clone(), async move || {
            let record = |call: TracedCall| {
                calls_of.ended(&call);
                trace_of.push(convert::for_journal(call));
                calls_ended.fetch_add(1, Ordering::Relaxed);
            };
            let begun = |call: &Call| calls_of.begun(call);
            inventory::run(&mut sources, &change_sender, &health, begun, record).await;
        }));

        let (input_sender, inputs) = mpsc::channel(CHANGES);
        let journal = Journal::new(Bounds {
            records: EVENTS_KEPT,
            bytes: EVENTS_BYTES,
            backlog: EVENTS_BACKLOG,
            size: EventView::size,
        });
        let policy = watch::Sender::new(settings::policy(&config));
        let mut policies = policy.subscribe();
        let planned = (observed.clone(), input_sender.clone(), journal.clone(), runtime.clone());
        let mut has_planned = Replay::new(&replay);
        tasks.spawn(supervise("plan", restarts.clone(), stop.clone(), async move || {
            has_planned.again();
            let (observed, inputs, journal, runtime) = &planned;
            let images = Images::new(runtime.clone());
            planning::run(&mut changes, &mut policies, observed, images, inputs, journal).await;
        }));
        let (prober_questions, queries) = mpsc::channel(QUESTIONS);
        let (container_questions, containers) = mpsc::channel(QUESTIONS);
        let (saves, (save_done, saved)) = (watch::Sender::default(), oneshot::channel());
        let store = config.state.as_deref().map(Store::new);
        if let Some(store) = store.clone() {
            let (restarts, stop, mut saves) = (restarts.clone(), stop.clone(), saves.subscribe());
            tasks.spawn(async move {
                supervise("state", restarts, stop, async move || store.keep(&mut saves).await).await;
                drop::<oneshot::Sender<()>>(save_done);
            });
        }
        let seed = started_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        let prober_settings = watch::Sender::new(settings::prober(&config, seed));
        let settings = prober_settings.subscribe();
        let commands = runtime.commands();
        let operator = Operator::new(input_sender, commands.clone(), settings.clone());
        let mut channels = Channels { settings, inputs, queries, containers, saves, stop: stop.clone() };
        let (mut loading, reported) = (store.clone(), journal.clone());
        let mut has_probed = Replay::new(&replay);
        let mut verdict_log = VerdictLog::default();
        tasks.spawn(supervise("prober", restarts.clone(), stop.clone(), async move || {
            has_probed.again();
            let restored = match loading.take() {
                Some(store) => tokio::select! {
                    restored = store.load() => restored,
                    () = channels.stop.cancelled() => return,
                },
                // What was to be saved last: a prober that panicked goes on from there, as after a restart.
                None => Saved::clone(&channels.saves.borrow()),
            };
            let report_event = |event: ProbeEvent| report(&reported, &mut verdict_log, event);
            prober::run(restored, &mut channels, commands.clone(), report_event).await;
        }));

        let health = watch::Sender::new(reload::health(loaded, started_at));
        let configured = health.subscribe();
        if let Some(reloading) = reloading {
            let (journal, metrics) = (journal.clone(), metrics.config.clone());
            let outlets = Outlets { policy, prober: prober_settings, seed, health, metrics, journal };
            tasks.spawn(supervise("reload", restarts.clone(), stop.clone(), async move || {
                let in_force = outlets.health.borrow().loaded.clone();
                reload::run(reloading.clone(), Arc::unwrap_or_clone(in_force), outlets.clone()).await;
            }));
        }
        let (sources, mut questions) = Questions::channels(QUESTIONS, trace, journal, metrics, operator);
        let is_draining = Arc::new(AtomicBool::new(false));
        let reporter = Reporter {
            configured,
            is_draining: is_draining.clone(),
            started_at,
            began,
            registry,
            output: taps,
            link: link_now,
            health: health_now,
            calls,
            prober: prober_questions,
            containers: container_questions,
            inventory: inventory_questions,
            observed,
            store,
            restarts: restarts.clone(),
            started: config,
        };
        tasks.spawn(supervise("reporter", restarts.clone(), stop.clone(), async move || {
            reporter.run(&mut questions).await;
        }));
        let (stop_api, (answer_done, answered)) = (CancellationToken::new(), oneshot::channel::<()>());
        let (listener, asked, stopping) = (api_socket.listener, sources.clone(), stop_api.clone());
        tasks.spawn(async move {
            supervise("api", restarts, stopping.clone(), async move || {
                match listener.try_clone().and_then(UnixListener::from_std) {
                    Ok(listener) => {
                        api::serve(listener, asked.clone(), stopping.clone().cancelled_owned()).await;
                    }
                    Err(error) => tracing::error!(%error, "cannot serve the API"),
                }
            })
            .await;
            drop(answer_done);
        });
        Ok(Self {
            relay,
            socket: socket.file,
            api_socket: api_socket.file,
            sources,
            is_draining,
            stop_api,
            answered,
            stop,
            saved,
            tasks,
        })
    }

    /// What it can be asked.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Returns when the relay has failed, which is what everything else is there for. Safe to be dropped and called
    /// again.
    pub async fn failed(&mut self) -> RelayEnded {
        self.relay.ended().await
    }

    /// Ends everything: calls in flight first, then the sockets' files, the API's answers under way, and the rest; the
    /// state is written last.
    pub async fn drain(self) {
        let Self {
            relay,
            socket,
            api_socket,
            is_draining,
            stop_api,
            answered,
            stop,
            saved,
            tasks,
            sources: _,
        } = self;
        is_draining.store(true, Ordering::Relaxed);
        relay.drain().await;
        remove(&socket);
        remove(&api_socket);
        stop_api.cancel();
        // Its task bounds that. While it answers, those whom it asks have to be there.
        let _ = answered.await;
        stop.cancel();
        if timeout(LAST_SAVE, saved).await.is_err() {
            tracing::warn!("the disk hangs: what happened since the state was last saved is lost");
        }
        tasks.shutdown().await;
    }
}

/// Has everything reported again to a stage that was started again, and so has lost what it was told.
struct Replay {
    requests: Arc<Notify>,
    has_started: bool,
}

impl Replay {
    fn new(requests: &Arc<Notify>) -> Self {
        Self { requests: requests.clone(), has_started: false }
    }

    /// The stage starts. The first time there is nothing to report again.
    fn again(&mut self) {
        if std::mem::replace(&mut self.has_started, true) {
            self.requests.notify_one();
        }
    }
}

/// Removes a socket's file; where that fails, the next start replaces it.
fn remove(socket: &SocketFile) {
    if let Err(reason) = socket.unlink() {
        tracing::warn!(path = %socket.path().display(), %reason, "left the socket file");
    }
}

/// Puts a probe's event into the journal; changes of verdict, and probes that are one too many, into the log, too, as far
/// as the pod has lines left.
fn report(journal: &Journal<EventView>, log: &mut VerdictLog, event: ProbeEvent) {
    if matches!(event.reason, "VerdictChanged" | "InvalidProbe")
        && let Some(passed_over) = log.admit(&event.pod_uid, clock::now())
    {
        let (pod, namespace) = (&*event.pod, &*event.namespace);
        let passed_over = (passed_over > 0).then_some(passed_over);
        match event.severity {
            Severity::Warning => tracing::warn!(namespace, pod, passed_over, message = %event.message),
            Severity::Normal => tracing::info!(namespace, pod, passed_over, message = %event.message),
        }
    }
    journal.push(EventView::from(event));
}

/// A runtime's socket that came after ours lends it its mode, owner and group.
async fn borrow_access(mut link: watch::Receiver<Link>, runtime: PathBuf, socket: SocketFile) {
    if link.wait_for(|link| link.is_up).await.is_err() {
        return;
    }
    if let Some(access) = Access::like(&runtime)
        && let Err(error) = socket.regrant(access)
    {
        tracing::warn!(%error, "cannot give our socket the mode of the runtime's");
    }
}

/// Who may use the API: root, or root and a group.
fn api_access(config: &Config) -> Access {
    config.api.group.map_or(Access::PRIVATE, |gid| Access { mode: 0o660, uid: None, gid: Some(gid) })
}
