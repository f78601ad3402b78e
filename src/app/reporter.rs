//! Answers the questions of the API: asks each stage for what it knows and puts it together. Holds nothing itself.

use std::{
    path::Path,
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Instant, SystemTime},
};

use tokio::sync::{mpsc, oneshot, watch};

use super::{
    configuration, logging, pods,
    reload::ConfigHealth,
    state::{StateHealth, Store},
    tasks::Restarts,
};
use crate::{
    clock,
    config::Config,
    ids::ProbeType,
    inventory::{self, Health},
    observed::Observed,
    prober::{ContainerStatus, Operator, ProbeStatus},
    relay::{output::Output, registry::Registry},
    report::{
        Query, Shown, Sources, ask,
        journal::Journal,
        metrics::Metrics,
        name::ProbeName,
        observed,
        view::{
            BlindView, CallsView, ConfigView, ConfigurationView, ConnectionsView, EventView, InventoryView,
            LateView, LogView, PodView, ProbeDetailView, ProbeView, ProbesView, RuntimeState, RuntimeView,
            Seconds, StateFileView, StatusView, WaitingView,
        },
    },
    runtime::{link::Link, turns::Backlog},
};

/// 100 blind connections are listed, the oldest first; the numbers count all of them.
const MAX_BLIND: usize = 100;

/// Whom to ask.
pub(super) struct Reporter {
    /// What the daemon was started with.
    pub(super) started: Config,
    /// The configuration that is in force by now.
    pub(super) configured: watch::Receiver<ConfigHealth>,
    /// Set when the end begins.
    pub(super) is_draining: Arc<AtomicBool>,
    pub(super) started_at: SystemTime,
    /// The same on the monotonic clock, which nobody sets.
    pub(super) began: Instant,
    pub(super) registry: Registry,
    pub(super) output: Output,
    pub(super) link: watch::Receiver<Link>,
    pub(super) health: watch::Receiver<Health>,
    /// The images that the runtime was asked about in vain so far.
    pub(super) images: watch::Receiver<Backlog>,
    pub(super) calls: Arc<AtomicU64>,
    pub(super) prober: Query<Vec<ProbeStatus>>,
    pub(super) containers: Query<Vec<ContainerStatus>>,
    pub(super) inventory: Query<Vec<Arc<inventory::view::PodView>>>,
    pub(super) observed: Observed,
    pub(super) store: Option<Arc<Store>>,
    pub(super) restarts: Restarts,
}

/// Its ends of the API's questions.
pub(super) struct Questions {
    pub(super) status: mpsc::Receiver<oneshot::Sender<StatusView>>,
    pub(super) probes: mpsc::Receiver<oneshot::Sender<Vec<ProbeView>>>,
    pub(super) probe: mpsc::Receiver<(ProbeName, oneshot::Sender<Option<ProbeDetailView>>)>,
    pub(super) pods: mpsc::Receiver<oneshot::Sender<Vec<PodView>>>,
    pub(super) configuration: mpsc::Receiver<oneshot::Sender<ConfigurationView>>,
}

impl Questions {
    /// Both ends of all questions; so many of each kind may wait for an answer.
    pub(super) fn channels(
        waiting: usize,
        trace: Journal<dyn Shown>,
        events: Journal<EventView>,
        metrics: Metrics,
        operator: Operator,
    ) -> (Sources, Self) {
        let (status, status_end) = mpsc::channel(waiting);
        let (probes, probes_end) = mpsc::channel(waiting);
        let (probe, probe_end) = mpsc::channel(waiting);
        let (pods, pods_end) = mpsc::channel(waiting);
        let (configuration, configuration_end) = mpsc::channel(waiting);
        let questions = Self {
            status: status_end,
            probes: probes_end,
            probe: probe_end,
            pods: pods_end,
            configuration: configuration_end,
        };
        (Sources { status, probes, probe, pods, configuration, trace, events, metrics, operator }, questions)
    }
}

impl Reporter {
    /// Answers until nobody can ask any more.
    pub(super) async fn run(&self, questions: &mut Questions) {
        loop {
            tokio::select! {
                Some(question) = questions.status.recv() => {
                    // A question that nobody waits for any more needs no answer; nor does one that nobody can answer.
                    if let Ok(known) = ask(&self.prober, "prober").await {
                        let _ = question.send(self.status(&known));
                    }
                }
                Some(question) = questions.probes.recv() => {
                    if let Ok(known) = ask(&self.prober, "prober").await {
                        let _ = question.send(self.all(&known));
                    }
                }
                Some((name, question)) = questions.probe.recv() => {
                    if matches!(name.kind(), ProbeType::Observed(_)) {
                        let _ = question.send(self.observed(&name));
                    } else if let Ok(known) = ask(&self.prober, "prober").await {
                        let _ = question.send(newest(&by_age(known), &name).map(ProbeDetailView::from));
                    }
                }
                Some(question) = questions.pods.recv() => {
                    let asked = tokio::join!(ask(&self.inventory, "inventory"), ask(&self.containers, "prober"));
                    if let (Ok(sandboxes), Ok(containers)) = asked {
                        let _ = question.send(pods::views(sandboxes, containers));
                    }
                }
                Some(question) = questions.configuration.recv() => {
                    let _ = question.send(configuration::view(&self.configured.borrow().loaded));
                }
                else => return,
            }
        }
    }

    /// All probes, ours and clients' own: those of older containers before those of newer ones.
    fn all(&self, ours: &[ProbeStatus]) -> Vec<ProbeView> {
        let wall = clock::wall();
        let ours = ours.iter().map(|probe| (age(probe.created_at), ProbeView::from(probe)));
        let observed = self.observed.probes().into_iter();
        let observed = observed.map(|probe| (age(probe.container.created_at), observed::view(&probe, wall)));
        let mut all: Vec<_> = ours.chain(observed).collect();
        all.sort_by_key(|&(age, _)| age);
        all.into_iter().map(|(_, view)| view).collect()
    }

    fn observed(&self, name: &ProbeName) -> Option<ProbeDetailView> {
        let named = self.observed.probes().into_iter().filter(|probe| name.is_of_observed(probe));
        let newest = named.max_by_key(|probe| age(probe.container.created_at));
        newest.map(|probe| observed::detail(&probe, clock::wall()))
    }

    fn status(&self, probes: &[ProbeStatus]) -> StatusView {
        let health = *self.health.borrow();
        StatusView {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: process::id(),
            started_at: self.started_at.into(),
            uptime_seconds: Seconds(clock::now().saturating_duration_since(self.began)),
            draining: self.is_draining.load(Ordering::Relaxed),
            listen: url(&self.started.listen),
            api: url(&self.started.api.listen),
            runtime: self.runtime(),
            connections: self.connections(),
            calls: CallsView {
                in_flight: self.registry.calls() as u64,
                total: self.calls.load(Ordering::Relaxed),
            },
            gaps: health.gaps.max(u64::from(self.output.dropped() > 0)),
            inventory: InventoryView {
                pods: health.census.pods as u64,
                containers: health.census.containers as u64,
                running: health.census.running as u64,
                last_resync_at: health.last_resync.map(Into::into),
                resyncs: health.resyncs,
                waiting: waiting(health.waiting),
                waiting_images: waiting(*self.images.borrow()),
            },
            probes: ProbesView {
                observed: self.observed.probes().len() as u64,
                late: LateView::of(probes.iter().filter_map(|probe| probe.late)),
                ..ProbesView::count(probes.iter().map(|probe| (probe.state.into(), probe.phase.into())))
            },
            state: self.state(),
            stages: self.restarts.views(),
            log: LogView { dropped: logging::dropped().get() },
            config: self.configuration(),
        }
    }

    fn runtime(&self) -> RuntimeView {
        let link = self.link.borrow();
        RuntimeView {
            endpoint: url(&self.started.runtime),
            name: link.version.name.clone(),
            version: link.version.version.clone(),
            state: if link.is_up { RuntimeState::Ok } else { RuntimeState::Away },
            since: link.since.into(),
            reason: trouble(&link.trouble, &self.started.runtime),
            event_source: link.source.as_str().to_owned(),
        }
    }

    fn state(&self) -> StateFileView {
        let Some(store) = &self.store else { return StateFileView::default() };
        let StateHealth { saved_at, trouble } = store.health().borrow().clone();
        let file = store.path().display().to_string();
        StateFileView { file, saved_at: saved_at.map(Into::into), trouble }
    }

    fn configuration(&self) -> ConfigView {
        let health = self.configured.borrow();
        let prober = &health.loaded.config.prober;
        ConfigView {
            files: health.files(),
            workers: prober.workers.get() as u32,
            exec_workers: prober.exec_workers.get() as u32,
            exec_grace_seconds: Seconds(prober.exec_grace),
            loaded_at: Some(health.loaded_at.into()),
            errors: health.errors.clone(),
            needs_restart: health.needs_restart.clone(),
        }
    }

    fn connections(&self) -> ConnectionsView {
        let open = self.registry.snapshot();
        let blind: Vec<BlindView> =
            open.iter().filter_map(|connection| (&**connection).into()).take(MAX_BLIND).collect();
        ConnectionsView {
            open: open.len() as u64,
            total: self.registry.total(),
            blind,
            accepting_paused_since: self.registry.accepting_paused_since().map(Into::into),
        }
    }
}

/// What waits for an answer, if anything does.
fn waiting(Backlog { count, since }: Backlog) -> Option<WaitingView> {
    let waited = clock::now().saturating_duration_since(since?);
    let wall = clock::wall();
    let since = wall.checked_sub(waited).unwrap_or(wall).into();
    Some(WaitingView { count: count as u64, since, longest_seconds: Seconds(waited) })
}

/// The probes, those of older pods before those of newer ones of the same name.
fn by_age(mut known: Vec<ProbeStatus>) -> Vec<ProbeStatus> {
    known.sort_by_key(|probe| age(probe.created_at));
    known
}

/// Orders what was made at that time. What the runtime has not told the age of was made just now.
fn age(created_at: Option<SystemTime>) -> (bool, Option<SystemTime>) {
    (created_at.is_none(), created_at)
}

fn newest<'a>(by_age: &'a [ProbeStatus], name: &ProbeName) -> Option<&'a ProbeStatus> {
    by_age.iter().rev().find(|probe| name.is_of(probe))
}

/// Why the runtime does not answer: what the system says of its socket in words, anything else as it is.
fn trouble(told: &str, socket: &Path) -> String {
    let socket = socket.display();
    match told {
        _ if told.contains("(os error 2)") => format!("the runtime's socket {socket} is not there"),
        _ if told.contains("(os error 111)") => format!("nobody listens on the runtime's socket {socket}"),
        _ if told.contains("(os error 13)") => format!("criprobe may not open the runtime's socket {socket}"),
        _ => told.to_owned(),
    }
}

fn url(path: &Path) -> String {
    format!("unix://{}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_the_runtimes_socket_is_told_in_words() {
        let told =
            |kind: i32| trouble(&std::io::Error::from_raw_os_error(kind).to_string(), Path::new("/r.sock"));
        assert_eq!(told(2), "the runtime's socket /r.sock is not there");
        assert_eq!(told(111), "nobody listens on the runtime's socket /r.sock");
        assert_eq!(told(13), "criprobe may not open the runtime's socket /r.sock");
        assert_eq!(trouble("it ended a connection", Path::new("/r.sock")), "it ended a connection");
    }
}
