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
    sync::{mpsc, oneshot, watch},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    images::Images,
    manifests, planning,
    reload::{self, Outlets, Reloading},
    reporter::{Questions, Reporter},
    settings,
    state::Store,
    tasks::{TaskEnded, Tasks},
};
use crate::{
    clock,
    config::{Config, Loaded},
    inventory::{self, Health, TracedCall},
    listen::{self, Access, ListenError, SocketFile},
    observed::Observed,
    prober::{self, Channels, Input, Operator, Saved},
    relay::{Relay, gate::Gate, output, registry::Registry},
    report::{Sources, api, convert, journal::Journal, metrics::Metrics, view::EventView},
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

/// 500 events are kept for `events`; each is at most about 10 KiB.
const EVENTS_KEPT: usize = 500;

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
                socket.file.unlink();
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

        let mut tasks = Tasks::default();
        let stop = CancellationToken::new();
        let runtime = Runtime::new(&config.runtime);
        let (event_queue, events) = events::queue();
        let link = watch::Sender::new(Link::default());
        let link_now = link.subscribe();
        tasks.spawn("link", link::keep(runtime.clone(), gate, event_queue, link));
        if lent.is_none() {
            let lender = borrow_access(link_now.clone(), config.runtime.clone(), socket.file.clone());
            tasks.spawn_once("access", lender);
        }

        let trace = Journal::new(CALLS_KEPT);
        let calls = Arc::new(AtomicU64::new(0));
        let calls_now = Arc::clone(&calls);
        let observed = Observed::default();
        tasks.spawn("manifests", manifests::read(observed.clone(), manifests::FOLDER.into()));
        let begun = {
            let observed = observed.clone();
            move |call: &Call| observed.begun(call)
        };
        let record = {
            let (trace, observed) = (trace.clone(), observed.clone());
            move |call: TracedCall| {
                observed.ended(&call);
                trace.push(convert::for_journal(call));
                calls.fetch_add(1, Ordering::Relaxed);
            }
        };
        let (change_sender, changes) = mpsc::channel(CHANGES);
        let health = watch::Sender::new(Health::default());
        let health_now = health.subscribe();
        let (inventory_questions, inventory_queries) = mpsc::channel(QUESTIONS);
        let sources = inventory::Sources {
            observations,
            connections: registry.clone(),
            runtime: runtime.clone(),
            link: link_now.clone(),
            events,
            queries: inventory_queries,
        };
        tasks.spawn("inventory", inventory::run(sources, change_sender, health, begun, record));

        let (input_sender, inputs) = mpsc::channel(CHANGES);
        let journal = Journal::new(EVENTS_KEPT);
        tasks.spawn_once("listed", tell_listed(health_now.clone(), input_sender.clone()));
        let policy = watch::Sender::new(settings::policy(&config));
        let planning = planning::run(
            changes,
            policy.subscribe(),
            observed.clone(),
            Images::new(runtime.clone()),
            input_sender.clone(),
            journal.clone(),
        );
        tasks.spawn("plan", planning);
        let (prober_questions, queries) = mpsc::channel(QUESTIONS);
        let (container_questions, containers) = mpsc::channel(QUESTIONS);
        let (saves, (save_done, saved)) = (watch::Sender::default(), oneshot::channel());
        let store = config.state.as_deref().map(Store::new);
        if let Some(store) = store.clone() {
            tasks.spawn("state", store.keep(saves.subscribe(), save_done));
        }
        let seed = started_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        let prober_settings = watch::Sender::new(settings::prober(&config, seed));
        let settings = prober_settings.subscribe();
        let operator = Operator::new(input_sender, runtime.channel(), settings.clone());
        let channels = Channels { settings, inputs, queries, containers, saves, stop: stop.clone() };
        let report_event = {
            let journal = journal.clone();
            move |event: ProbeEvent| report(&journal, event)
        };
        let (commands, loading, stopped) = (runtime.channel(), store.clone(), stop.clone());
        tasks.spawn("prober", async move {
            let restored = match loading {
                Some(store) => tokio::select! {
                    restored = store.load() => restored,
                    () = stopped.cancelled() => return,
                },
                None => Saved::default(),
            };
            prober::run(restored, channels, commands, report_event).await;
        });

        let metrics = Metrics::new(env!("CARGO_PKG_VERSION"));
        metrics.config.started(started_at);
        let health = watch::Sender::new(reload::health(loaded.clone(), started_at));
        let configured = health.subscribe();
        if let Some(reloading) = reloading {
            let (journal, metrics) = (journal.clone(), metrics.config.clone());
            let outlets = Outlets { policy, prober: prober_settings, seed, health, metrics, journal };
            tasks.spawn("reload", reload::run(reloading, loaded, outlets));
        }
        let (sources, questions) = Questions::channels(QUESTIONS, trace, journal, metrics, operator);
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
            calls: calls_now,
            prober: prober_questions,
            containers: container_questions,
            inventory: inventory_questions,
            observed,
            store,
            started: config,
        };
        tasks.spawn("reporter", reporter.run(questions));
        let api_listener = UnixListener::from_std(api_socket.listener)?;
        let (stop_api, (answer_done, answered)) = (CancellationToken::new(), oneshot::channel::<()>());
        let api = api::serve(api_listener, sources.clone(), stop_api.clone().cancelled_owned());
        tasks.spawn("api", async move {
            // Dropped when the task ends, however it does.
            let _done = answer_done;
            api.await;
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

    /// Returns when a background task is gone that the rest cannot do without. Safe to be dropped and called again.
    pub async fn failed(&mut self) -> TaskEnded {
        self.tasks.failed().await
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
        if !socket.unlink() {
            tracing::warn!(path = %socket.path.display(), "left the socket file: it is no longer ours");
        }
        api_socket.unlink();
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

/// Tells the prober when the runtime was listed for the first time.
async fn tell_listed(mut health: watch::Receiver<Health>, inputs: mpsc::Sender<Input>) {
    if health.wait_for(|health| health.last_resync.is_some()).await.is_ok() {
        // A prober that is gone needs to know no more.
        let _ = inputs.send(Input::Listed).await;
    }
}

/// Puts a probe's event into the journal; changes of verdict into the log, too.
fn report(journal: &Journal<EventView>, event: ProbeEvent) {
    if event.reason == "VerdictChanged" {
        let (pod, namespace) = (&*event.pod, &*event.namespace);
        match event.severity {
            Severity::Warning => tracing::warn!(namespace, pod, message = %event.message),
            Severity::Normal => tracing::info!(namespace, pod, message = %event.message),
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
