//! Answers queries from the stages: assembles views from what each of them reports. Has no state of its own.

use std::{
    path::Path,
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Instant, SystemTime},
};

use tokio::{
    sync::{Semaphore, watch},
    task::yield_now,
};

use super::{
    Snapshot, Snapshots,
    acts::{self, ActLimits},
    configuration, convert,
    costs::CostsHandle,
    in_flight::CallsInFlight,
    live::{LiveFacts, LiveProbe},
    metrics::{Format, Metrics},
    name::ProbeName,
    observed,
    pods::{self, Beside},
    problems,
    top::{self, Now, TopFilter},
    view::{
        BlindView, CallsView, ConfigView, ConfigurationView, ConnectionsView, HttpView, InventoryView,
        LateView, LogView, PodView, ProbeDetailView, ProbeView, ProbesView, RecordFileView, RuntimeState,
        RuntimeView, Seconds, StageRestartView, StateFileView, StatusView, TopView, UnprovenView,
        WaitingView, probe_id,
    },
};
use crate::{
    act::ActHandle,
    clock,
    config::{Config, health::ConfigHealth},
    count::Count,
    exits::ExitsHandle,
    ids::{ProbeKey, ProbeType},
    inventory::InventoryHandle,
    observed::{ObservedHandle, ObservedStatus},
    prober::{ProbeCounts, ProbeStatus, ProberHandle, status::Unproven},
    record_file::{RecordFile, RecordStatus},
    relay::RelayHandle,
    runtime::{link::Link, turns::Backlog, usage::RuntimeUsage},
    stage::{Restarts, StageRestarts},
};

/// 100 blind connections are listed, the oldest first; the numbers count all of them.
const MAX_BLIND: usize = 100;

/// 4 lists are put together at once; others who ask for one wait. With all connections of the API at once, they would take
/// much memory, and no other question would have its turn soon.
pub(crate) const LISTS_AT_ONCE: usize = 4;

/// 64 probes are put into a list at once; then other tasks have their turn.
const PROBES_AT_ONCE: usize = 64;

/// A probe in a list of all.
enum Listed<'a> {
    Ours(&'a ProbeStatus),
    Client(&'a ObservedStatus),
}

/// Who answers: the handles of the stages, and what is known of the daemon itself.
#[derive(Debug)]
pub(crate) struct Stages {
    pub relay: RelayHandle,
    /// The link to the runtime.
    pub link: watch::Receiver<Link>,
    pub inventory: InventoryHandle,
    /// The images that the runtime was asked about in vain so far.
    pub images: watch::Receiver<Backlog>,
    pub prober: ProberHandle,
    pub act: ActHandle,
    /// The exits of containers.
    pub exits: ExitsHandle,
    /// The probes of clients.
    pub observed: ObservedHandle,
    /// What commands cost.
    pub costs: CostsHandle,
    /// The calls of clients that have not ended.
    pub in_flight: CallsInFlight,
    /// The CPU time of the runtime.
    pub usage: RuntimeUsage,
    /// The configuration in effect.
    pub config: watch::Receiver<ConfigHealth>,
    /// The state file.
    pub state: watch::Receiver<StateFileView>,
    /// The file that attempts are written to.
    pub attempts: RecordFile,
    /// The file that calls are written to.
    pub trace: RecordFile,
    /// Stages that panicked.
    pub restarts: Restarts,
    /// Lines of the log that were dropped.
    pub log_lines_dropped: Count,
    /// What the process counts itself.
    pub metrics: Metrics,
    /// What is served over TCP.
    pub http: Option<HttpView>,
    /// What the daemon was started with.
    pub started: Config,
    /// When it was started.
    pub started_at: SystemTime,
    /// The same on the monotonic clock, which cannot be set.
    pub began: Instant,
    /// Set when the end begins.
    pub is_draining: Arc<AtomicBool>,
    /// The right to put a list together: [`LISTS_AT_ONCE`].
    pub lists: Semaphore,
}

impl Snapshots for Stages {
    fn status(&self) -> Snapshot<'_, StatusView> {
        Box::pin(async { Ok(self.status_of(&*self.prober.counts().await?)) })
    }

    fn probes(&self) -> Snapshot<'_, Vec<ProbeView>> {
        Box::pin(async {
            let _turn = self.lists.acquire().await;
            Ok(self.all(&self.prober.probes().await?, |view, _| view).await)
        })
    }

    fn live(&self) -> Snapshot<'_, LiveFacts> {
        Box::pin(async {
            let turn = self.lists.acquire().await;
            let shape = |view, probe: Listed<'_>| {
                let (history, spec, client) = match probe {
                    Listed::Ours(probe) => (&probe.history, probe.spec.clone(), None),
                    Listed::Client(probe) => (probe.results.history(), None, Some(observed::client(probe))),
                };
                LiveProbe { view, history: history.clone(), spec, client }
            };
            let probes = self.all(&self.prober.probes().await?, shape).await;
            drop(turn);
            Ok(LiveFacts { probes, pods: self.pods().await? })
        })
    }

    fn probe(&self, name: ProbeName) -> Snapshot<'_, Option<ProbeDetailView>> {
        Box::pin(async move {
            if matches!(name.kind(), ProbeType::Observed(_)) {
                return Ok(self.observed(&name));
            }
            let known = self.prober.probes().await?;
            let named = known.iter().filter(|probe| name.is_of(probe));
            Ok(named.max_by_key(|probe| age(probe.created_at)).map(|probe| self.detail(probe)))
        })
    }

    fn pods(&self) -> Snapshot<'_, Vec<PodView>> {
        Box::pin(async {
            let _turn = self.lists.acquire().await;
            let (sandboxes, containers) = tokio::try_join!(self.inventory.pods(), self.prober.containers())?;
            let now = clock::wall();
            let acts = self.act.status();
            let mut views =
                pods::views(&sandboxes, &containers, Beside { acts: &acts, exits: &self.exits, now });
            let loaded = self.config.borrow().loaded.clone();
            problems::fill(&mut views, &sandboxes, &containers, &loaded.config.policy, now).await;
            Ok(views)
        })
    }

    fn runtime(&self) -> RuntimeView {
        self.runtime_now()
    }

    fn top(&self, filter: TopFilter) -> Snapshot<'_, TopView> {
        Box::pin(async move {
            let _turn = self.lists.acquire().await;
            let (containers, pods) = tokio::try_join!(self.prober.containers(), self.inventory.pods())?;
            let now = Now { at: clock::now(), wall: clock::wall() };
            let within = filter.within();
            Ok(top::view(
                &filter,
                self.costs.all(within),
                top::InFlight { calls: &self.in_flight.all(), containers: &containers, pods: &pods },
                self.usage.cores(within, now.at),
                now,
            ))
        })
    }

    fn configuration(&self) -> Snapshot<'_, ConfigurationView> {
        Box::pin(async {
            // Not borrowed meanwhile: a reload would have to wait.
            let loaded = self.config.borrow().loaded.clone();
            Ok(configuration::view(&loaded))
        })
    }

    fn metrics(&self, format: Format) -> Snapshot<'_, String> {
        Box::pin(async move { Ok(self.expose(format).await) })
    }
}

impl Stages {
    /// All probes, ours and clients' own, in a shape of their views and histories: those of older containers before those
    /// of newer ones.
    async fn all<T>(&self, ours: &[ProbeStatus], shape: impl Fn(ProbeView, Listed<'_>) -> T) -> Vec<T> {
        let (wall, acts, away) = (clock::wall(), self.act.status(), self.away());
        let setting = self.config.borrow().loaded.config.act.restart_on_exit;
        let mut all = Vec::with_capacity(ours.len());
        for some in ours.chunks(PROBES_AT_ONCE) {
            all.extend(some.iter().map(|probe| {
                let mut view = ProbeView::from(probe);
                acts::show(&mut view, (&probe.key, probe.acting, probe.exited), &acts, setting);
                (age(probe.created_at), shape(view, Listed::Ours(probe)))
            }));
            yield_now().await;
        }
        for some in self.observed.probes().chunks(PROBES_AT_ONCE) {
            all.extend(some.iter().map(|probe| {
                let view = observed::view(probe, away, wall);
                (age(probe.container.created_at), shape(view, Listed::Client(probe)))
            }));
            yield_now().await;
        }
        all.sort_by_key(|&(age, _)| age);
        all.into_iter().map(|(_, view)| view).collect()
    }

    fn detail(&self, probe: &ProbeStatus) -> ProbeDetailView {
        let mut view = ProbeDetailView::from(probe);
        let limits = ActLimits::of(&self.config.borrow().loaded.config);
        let of = (&probe.key, probe.acting, probe.exited);
        acts::describe(&mut view, of, &self.act.status(), limits);
        view
    }

    fn observed(&self, name: &ProbeName) -> Option<ProbeDetailView> {
        let there = self.observed.probes_in(|container| name.is_in(container)).into_iter();
        let named = there.filter(|probe| name.is_of_observed(probe));
        let newest = named.max_by_key(|probe| age(probe.container.created_at));
        newest.map(|probe| observed::detail(&probe, self.away(), clock::wall()))
    }

    fn status_of(&self, probes: &ProbeCounts) -> StatusView {
        let health = self.inventory.health();
        // No value is borrowed while another is: a guard within the expression below would live until its end, and one who
        // wants to write between two guards of this thread would stop it, and all who ask, for good.
        let limits = ActLimits::of(&self.config.borrow().loaded.config);
        let waiting_images = waiting(*self.images.borrow());
        let state = self.state.borrow().clone();
        StatusView {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: process::id(),
            started_at: self.started_at.into(),
            uptime_seconds: Seconds(clock::now().saturating_duration_since(self.began)),
            draining: self.is_draining.load(Ordering::Relaxed),
            listen: url(&self.started.listen),
            api: url(&self.started.api.listen),
            http: self.http.clone(),
            runtime: self.runtime_now(),
            connections: self.connections(),
            calls: CallsView { in_flight: self.relay.connections.calls() as u64, total: health.calls },
            gaps: health.gaps.max(u64::from(self.relay.dropped_observations() > 0)),
            inventory: InventoryView {
                pods: health.census.pods as u64,
                containers: health.census.containers as u64,
                running: health.census.running as u64,
                last_resync_at: health.last_resync.map(Into::into),
                resyncs: health.resyncs,
                lists_fail: health.lists_fail && self.link.borrow().is_up,
                waiting: waiting(health.waiting),
                waiting_images,
            },
            probes: ProbesView {
                observed: self.observed.count() as u64,
                observed_displaced: self.observed.displaced(),
                cannot_try: probes.untried,
                late: LateView::of(probes.late.iter().copied()),
                enforced_without_result: unproven(&probes.unproven),
                ..ProbesView::sum(probes.by_state.iter().map(|(of, count)| (*of, *count)))
            },
            acts: acts::node(&self.act.status(), limits),
            state,
            attempts: self.attempts.status().map(Into::into),
            trace: self.trace.status().map(Into::into),
            stages: self.restarts.all().into_iter().map(Into::into).collect(),
            log: LogView { dropped: self.log_lines_dropped.get() },
            config: self.config(),
        }
    }

    /// Since when the runtime is away, if it is.
    fn away(&self) -> Option<SystemTime> {
        let link = self.link.borrow();
        (!link.is_up).then_some(link.since)
    }

    fn runtime_now(&self) -> RuntimeView {
        let link = self.link.borrow();
        RuntimeView {
            endpoint: url(&self.started.runtime),
            name: link.version.name.clone(),
            version: link.version.version.clone(),
            state: if link.is_up { RuntimeState::Ok } else { RuntimeState::Away },
            since: link.since.into(),
            reason: link.trouble.text.clone(),
            event_source: link.source.as_str().to_owned(),
        }
    }

    fn config(&self) -> ConfigView {
        let health = self.config.borrow();
        let prober = &health.loaded.config.prober;
        ConfigView {
            files: health.files(),
            workers: prober.workers.get() as u32,
            exec_workers: prober.exec_workers.get() as u32,
            exec_grace_seconds: Seconds(prober.exec_grace),
            exec_mode: prober.exec_mode.as_str().to_owned(),
            loaded_at: Some(health.loaded_at.into()),
            errors: health.errors.clone(),
            needs_restart: health.needs_restart.clone(),
        }
    }

    fn connections(&self) -> ConnectionsView {
        let connections = &self.relay.connections;
        let open = connections.snapshot();
        let blind: Vec<BlindView> =
            open.iter().filter_map(|connection| convert::blind(connection)).take(MAX_BLIND).collect();
        ConnectionsView {
            open: open.len() as u64,
            total: connections.total(),
            blind,
            accepting_paused_since: connections.accepting_paused_since().map(Into::into),
        }
    }
}

/// Probes of enforced rules without any result, if there are any.
fn unproven(unproven: &Unproven) -> Option<UnprovenView> {
    let (longest, ..) = unproven.oldest.first()?;
    let id = |(_, namespace, pod, key): &(_, Arc<str>, Arc<str>, ProbeKey)| {
        probe_id(namespace, pod, &key.container, key.kind.as_str())
    };
    let probes = unproven.oldest.iter().map(id).collect();
    Some(UnprovenView { count: unproven.count, longest_seconds: Seconds(*longest), probes })
}

/// What waits for an answer, if anything does.
fn waiting(Backlog { count, since }: Backlog) -> Option<WaitingView> {
    let waited = clock::now().saturating_duration_since(since?);
    let wall = clock::wall();
    let since = wall.checked_sub(waited).unwrap_or(wall).into();
    Some(WaitingView { count: count as u64, since, longest_seconds: Seconds(waited) })
}

impl From<StageRestarts> for StageRestartView {
    fn from(restarts: StageRestarts) -> Self {
        Self {
            stage: restarts.stage.to_owned(),
            restarts: restarts.count,
            last_at: restarts.last_at.into(),
            reason: restarts.reason,
        }
    }
}

impl From<RecordStatus> for RecordFileView {
    fn from(status: RecordStatus) -> Self {
        let RecordStatus { path, written, dropped, trouble, deleted: _ } = status;
        Self { file: path.display().to_string(), written, dropped, trouble }
    }
}

/// Orders by the time of creation. What the runtime has not reported the age of was created just now.
fn age(created_at: Option<SystemTime>) -> (bool, Option<SystemTime>) {
    (created_at.is_none(), created_at)
}

fn url(path: &Path) -> String {
    format!("unix://{}", path.display())
}
