//! The task that reloads the configuration: changes of files and requests in. If the files are valid, the settings go
//! to the stages; otherwise all errors are reported and nothing changes.

mod current;
mod debounce;
mod survey;
mod watch;

use std::{
    iter,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use tokio::{
    sync::{Notify, watch as values},
    task::spawn_blocking,
    time::{self, MissedTickBehavior, timeout},
};

use self::{
    current::{Cause, Current, News, Step},
    debounce::Debounce,
    watch::Watch,
};
use super::{logging::Threshold, settings, source::ConfigSource, trace_log::CallSink};
use crate::{
    act::{ActSettings, recipe::RecipeStore},
    clock,
    config::{Config, Loaded, LogLevel, health::ConfigHealth},
    manager::{self, Notice},
    observed::ObservedHandle,
    prober::ProberSettings,
    record_file::RecordFile,
    report::{
        journal::Journal,
        metrics::ConfigMetrics,
        view::{EventType, EventView},
    },
    spec::policy::Policy,
    stage::Tasks,
};

/// 10 s: between two polls of the files, for what inotify does not report: where there is none, on network file
/// systems, or when its queue overflows.
const LOOK: Duration = Duration::from_secs(10);

/// 10 s: how long a disk may take to give the files before that is reported. The reading goes on, and nothing else
/// waits.
const SLOW_DISK: Duration = Duration::from_secs(10);

/// What is needed to read the configuration again.
#[derive(Clone)]
pub(super) struct Reloading {
    /// Where it comes from.
    pub(super) source: ConfigSource,
    /// From which level on is logged.
    pub(super) threshold: Threshold,
    /// Notified when an operator wants it to be read.
    pub(super) requests: Arc<Notify>,
}

/// Where the settings go.
pub(super) struct Outlets {
    policy: values::Sender<Arc<Policy>>,
    prober: values::Sender<ProberSettings>,
    acts: values::Sender<ActSettings>,
    observed: ObservedHandle,
    recipes: RecipeStore,
    attempts: RecordFile,
    /// Where calls go, and whether what their commands print does, too.
    trace: CallSink,
    has_output: Arc<AtomicBool>,
    health: values::Sender<ConfigHealth>,
    metrics: ConfigMetrics,
    journal: Journal<EventView>,
    /// The prober's, which never changes.
    seed: u64,
}

/// What the stages follow of the configuration in effect.
pub(super) struct InForce {
    pub(super) policies: values::Receiver<Arc<Policy>>,
    pub(super) prober: values::Receiver<ProberSettings>,
    pub(super) acts: values::Receiver<ActSettings>,
    pub(super) health: values::Receiver<ConfigHealth>,
}

/// Starts the task that keeps the configuration in effect; without `reloading` it stays as it is.
pub(super) fn spawn(
    loaded: Loaded,
    at: SystemTime,
    reloading: Option<Reloading>,
    (observed, recipes, attempts): (ObservedHandle, RecipeStore, RecordFile),
    (trace, has_output): (CallSink, Arc<AtomicBool>),
    (metrics, journal): (ConfigMetrics, Journal<EventView>),
    tasks: &mut Tasks,
) -> InForce {
    metrics.started(at);
    observed.enable(loaded.config.is_observing);
    let seed = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let outlets = Outlets {
        policy: values::Sender::new(settings::policy(&loaded.config)),
        prober: values::Sender::new(settings::prober(&loaded.config, seed)),
        acts: values::Sender::new(settings::act(&loaded.config)),
        observed,
        recipes,
        attempts,
        trace,
        has_output,
        health: values::Sender::new(Current::new(loaded, at).health().clone()),
        metrics,
        journal,
        seed,
    };
    let in_force = InForce {
        policies: outlets.policy.subscribe(),
        prober: outlets.prober.subscribe(),
        acts: outlets.acts.subscribe(),
        health: outlets.health.subscribe(),
    };
    if let Some(reloading) = reloading {
        let outlets = Arc::new(outlets);
        tasks.spawn(tasks.supervise("reload", async move || {
            let in_force = outlets.health.borrow().loaded.clone();
            run(reloading.clone(), Arc::unwrap_or_clone(in_force), outlets.clone()).await;
        }));
    }
    in_force
}

/// Goes on until it is dropped. `started` is what the daemon was started with.
async fn run(reloading: Reloading, started: Loaded, outlets: Arc<Outlets>) {
    let changed = Arc::new(Notify::new());
    let level = started.config.log.level;
    let current = Current::new(started, outlets.health.borrow().loaded_at);
    let watch = Watch::new(reloading.source.roots(), changed.clone());
    let Reloading { source, threshold, requests } = reloading;
    let mut task = Task { source, threshold, level, watch: Some(watch), changed, current, outlets };
    let mut debounce = Debounce::default();
    let mut looks = time::interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    task.read(Cause::Start).await;
    loop {
        let cause = tokio::select! {
            () = requests.notified() => Cause::Request,
            () = task.changed.notified() => {
                debounce.on_change(clock::now());
                continue;
            }
            () = clock::until(debounce.deadline()) => Cause::Change,
            _ = looks.tick() => {
                if task.look().await {
                    debounce.on_change(clock::now());
                }
                continue;
            }
        };
        debounce.clear();
        manager::send(vec![Notice::Reloading]).await;
        task.read(cause).await;
        manager::send(vec![Notice::Ready]).await;
    }
}

struct Task {
    source: ConfigSource,
    threshold: Threshold,
    level: LogLevel,
    /// Gone while it is on a thread that may block.
    watch: Option<Watch>,
    changed: Arc<Notify>,
    current: Current,
    outlets: Arc<Outlets>,
}

impl Task {
    /// Whether anything differs from the last look.
    async fn look(&mut self) -> bool {
        // One that failed in some way has missed something.
        self.at_the_disk(Watch::look).await.unwrap_or(true)
    }

    /// Reads the files, and brings what they say into force.
    async fn read(&mut self, cause: Cause) {
        let source = self.source.clone();
        // Watched first, read then: what is written meanwhile is another change.
        let read = self.at_the_disk(move |watch| {
            watch.look();
            source.load()
        });
        let Some(read) = read.await else { return };
        let at = clock::wall();
        let step = self.current.on_read(read, cause, at);
        self.outlets.health.send_replace(self.current.health().clone());
        self.perform(step, at);
    }

    /// Does what blocks, one at a time, on a thread of its own. None if it panicked.
    async fn at_the_disk<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Watch) -> T + Send + 'static,
    ) -> Option<T> {
        let fresh = || Watch::new(self.source.roots(), self.changed.clone());
        let mut watch = self.watch.take().unwrap_or_else(fresh);
        let mut work = spawn_blocking(move || {
            let done = work(&mut watch);
            (watch, done)
        });
        let ended = match timeout(SLOW_DISK, &mut work).await {
            Ok(ended) => ended,
            Err(_elapsed) => {
                tracing::warn!("the disk does not respond: the configuration is read as soon as it does");
                work.await
            }
        };
        match ended {
            Ok((watch, done)) => {
                self.watch = Some(watch);
                Some(done)
            }
            Err(error) => {
                tracing::error!(%error, "cannot check the configuration for changes");
                None
            }
        }
    }

    fn perform(&mut self, Step { apply, news, counts_as }: Step, at: SystemTime) {
        if let Some(loaded) = apply {
            self.apply(&loaded.config);
        }
        match counts_as {
            Some(true) => {
                self.outlets.metrics.reloaded(at);
                // Also where nothing changed, the names of images are asked for again.
                self.outlets.policy.send_modify(|_| {});
            }
            Some(false) => self.outlets.metrics.refused(),
            None => {}
        }
        if let Some(news) = news {
            self.report(&news, at);
        }
    }

    /// All that can change while the daemon runs. A stage whose settings are the same is left alone.
    fn apply(&mut self, config: &Config) {
        let Outlets { policy, prober, acts, observed, recipes, attempts, trace, has_output, seed, .. } =
            &*self.outlets;
        // First: what is written from now on is redacted by the new patterns.
        trace.redactor.set(config.trace.redact.clone());
        policy.send_if_modified(|in_force| replace(in_force, settings::policy(config)));
        prober.send_if_modified(|in_force| replace(in_force, settings::prober(config, *seed)));
        acts.send_if_modified(|in_force| replace(in_force, settings::act(config)));
        observed.enable(config.is_observing);
        recipes.enable(config.policy.acting.is_enabled);
        attempts.set(settings::attempts(config));
        trace.file.set(settings::trace(config));
        has_output.store(config.trace.has_output, Ordering::Relaxed);
        if replace(&mut self.level, config.log.level) {
            self.threshold.set(config.log.level);
        }
    }

    fn report(&self, news: &News, at: SystemTime) {
        let files = self.current.health().files().join(", ");
        let (kind, reason, message) = match news {
            News::Loaded { changes, warnings } => {
                tracing::info!(files, changes = %changes, "configuration is in effect");
                for warning in warnings {
                    tracing::warn!("{warning}");
                }
                let kind = if warnings.is_empty() { EventType::Normal } else { EventType::Warning };
                let first = format!("the configuration was reloaded: {changes}");
                let lines = iter::once(&*first).chain(warnings.iter().map(String::as_str));
                (kind, "ConfigurationReloaded", lines.collect::<Vec<_>>().join("; "))
            }
            News::Refused { errors } => {
                for error in errors {
                    tracing::warn!(error, "configuration is wrong: the previous one stays in effect");
                }
                let reasons = errors.join("; ");
                (
                    EventType::Warning,
                    EventView::CONFIGURATION_REFUSED,
                    format!("the previous configuration stays in effect: {reasons}"),
                )
            }
        };
        self.outlets.journal.push(EventView::of_node(kind, reason, message, at.into()));
    }
}

/// Replaces a value, and returns whether the new one differs.
fn replace<T: PartialEq>(place: &mut T, value: T) -> bool {
    let differs = *place != value;
    *place = value;
    differs
}
