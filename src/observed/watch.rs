//! The probes of clients on this node: containers that come and go, and calls that begin and end, in; observed probes
//! out. Pure: never does IO, never reads a clock, never logs.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    attempt::Attempt,
    chain,
    group::Group,
    likely::{LONGEST_COMMAND, Written},
    manifests::{Manifests, PodText, ReadText, Source},
    probe::Probe,
    room,
    status::{ObservedStatus, SilentProbe},
};
use crate::{
    ids::{ContainerId, PodUid, ProbeKind, ProbeType},
    inventory::{
        Change, TracedCall,
        pod::{Container, ContainerState},
    },
    results::phases::PhasesSlot,
    tap::{
        Call,
        cri::{CriRequest, ExecCommand},
    },
};

/// 32 commands of a container are followed. One more replaces the one that was not called for longest, of those that
/// no rhythm was found in, and of these one that was called only once; if there is none it is not followed.
const MOST_GROUPS: usize = 32;

/// 2,048 commands are followed in all, in 1 MiB; in 50 MiB where all are as long, as often called and as erring as
/// they can be. One more replaces one of the namespace that has most, and there of the pod that has most, unless that is
/// its own: so commands of one pod, however many, leave room for those of others. Finding that pod takes a look at each
/// container with commands, which is little beside a call to the runtime. Replaced first is, as above, a command without
/// a rhythm; one with a rhythm is replaced only by one of another pod.
const MOST_GROUPS_IN_ALL: usize = 2048;

/// 20 min: a command without a rhythm that was not called for that long is forgotten; the slowest rhythm returned
/// twice meanwhile.
const SILENT: Duration = Duration::from_secs(2 * chain::LONGEST as u64);

/// 1 min from one search for silent commands to the next.
const SWEPT_EVERY: Duration = Duration::from_secs(60);

/// All that clients do.
#[derive(Debug, Default)]
pub(super) struct Watch {
    containers: HashMap<ContainerId, Watched>,
    /// What their pods were written with.
    manifests: Manifests,
    /// The groups of all containers.
    groups: usize,
    /// Groups that made room for others while there were as many as may be, since the start.
    displaced: u64,
    is_off: bool,
    swept_at: Option<Instant>,
}

/// A container that has not exited.
#[derive(Debug)]
struct Watched {
    view: Arc<Container>,
    groups: Vec<Group>,
    /// A client stops it or its pod: its probes end on purpose.
    is_stopping: bool,
}

/// Which command is replaced before which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Replaced {
    has_rhythm: bool,
    is_repeated: bool,
    called_at: Instant,
}

/// A static pod whose manifest would show what its observed probes are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StaticPod {
    pub uid: PodUid,
    pub namespace: Arc<str>,
    /// Its name: that of its manifest, with the node's after it.
    pub name: Arc<str>,
}

impl Watch {
    /// A container came, changed, or went.
    pub(super) fn changed(&mut self, change: &Change) {
        match change {
            Change::Container(view) if matches!(view.state, ContainerState::Exited { .. }) => {
                self.forget(&view.id);
            }
            Change::Container(view) => {
                if let Some(watched) = self.containers.get_mut(&view.id) {
                    watched.view = Arc::clone(view);
                } else {
                    let watched = Watched { view: Arc::clone(view), groups: Vec::new(), is_stopping: false };
                    self.containers.insert(view.id.clone(), watched);
                }
            }
            Change::ContainerGone(id) => self.forget(id),
            Change::Listed(all) => {
                let gone: Vec<_> = self.containers.keys().filter(|id| !all.contains(*id)).cloned().collect();
                gone.iter().for_each(|id| self.forget(id));
            }
            Change::ContainerStopping(id) => self.note_stopping(|view| view.id == *id, true),
            Change::ContainerStopFailed(id) => self.note_stopping(|view| view.id == *id, false),
            Change::PodStopping(id) => self.note_stopping(|view| view.pod.sandbox_id == *id, true),
            Change::PodStopFailed(id) => self.note_stopping(|view| view.pod.sandbox_id == *id, false),
            Change::StopsListed(_) | Change::RuntimeAnswers => {}
        }
    }

    /// Observes from now on, or forgets what was observed. The containers are known meanwhile, too.
    pub(super) fn enable(&mut self, is_on: bool) {
        self.is_off = !is_on;
        if self.is_off {
            self.groups = 0;
            self.manifests = Manifests::default();
            self.containers.values_mut().for_each(|watched| watched.groups = Vec::new());
        }
    }

    /// A call began.
    pub(super) fn begun(&mut self, call: &Call) {
        let CriRequest::ExecSync(command) = &call.request else { return };
        let Some(watched) = self.containers.get_mut(command.container()) else { return };
        if let Some(group) = watched.group(call, command) {
            watched.groups[group].begun(call.began);
        }
    }

    /// A call ended. If a probe was found whose meaning a manifest would show that was not read yet, returns where that
    /// is. Never reads it: this is the inventory's own task.
    pub(super) fn ended(&mut self, traced: &TracedCall, phases: Option<PhasesSlot>) -> Option<Source> {
        if self.is_off {
            return None;
        }
        let call = &traced.ended.call;
        let (CriRequest::ExecSync(command), Some(id)) = (&call.request, &traced.container_id) else {
            return None;
        };
        let attempt = Attempt::of(traced, phases)?;
        self.sweep(call.began);
        let known = self.containers.get(id)?.group(call, command);
        let group = known.or_else(|| self.add(id, call, command))?;
        let watched = self.containers.get_mut(id)?;
        watched.groups[group].ended(attempt);
        let mut is_news = false;
        while let Some(attempts) = watched.groups[group].found() {
            watched.found(group, attempts);
            is_news = true;
        }
        if is_news { self.manifests.want(&watched.view.pod, traced.ended.at) } else { None }
    }

    /// Whether there is a rhythm in calls of this kind.
    pub(super) fn has_rhythm(&self, traced: &TracedCall) -> bool {
        let call = &traced.ended.call;
        let (CriRequest::ExecSync(command), Some(id)) = (&call.request, &traced.container_id) else {
            return false;
        };
        let watched = self.containers.get(id);
        watched.is_some_and(|watched| {
            watched.group(call, command).is_some_and(|group| !watched.groups[group].probes.is_empty())
        })
    }

    /// The containers in which commands are followed, in no order.
    pub(super) fn observed(&self) -> Vec<Arc<Container>> {
        let observed = self.containers.values().filter(|watched| !watched.groups.is_empty());
        observed.map(|watched| Arc::clone(&watched.view)).collect()
    }

    /// The observed probes of a container as they are now, in no order.
    pub(super) fn probes(&mut self, id: &ContainerId, now: Instant) -> Vec<ObservedStatus> {
        let Some(watched) = self.containers.get_mut(id) else { return Vec::new() };
        let (mut found, manifests) = (Vec::new(), &self.manifests);
        let name = (&watched.view.pod.uid, &*watched.view.name);
        for group in &mut watched.groups {
            group.expire(now);
            let (comm, uid, command) = (&group.comm, group.uid, &group.command);
            for probe in &mut group.probes {
                let likely = manifests.likely(name, command, probe.rhythm.period());
                found.push(ObservedStatus::of(&watched.view, (comm, uid), command, probe, likely, now));
            }
        }
        found
    }

    /// The probes of a container that fell silent: they ended, have not returned, and the container still runs and is not
    /// being stopped.
    pub(super) fn silent(&mut self, id: &ContainerId, now: Instant) -> Vec<SilentProbe> {
        let Some(watched) = self.containers.get_mut(id) else { return Vec::new() };
        if watched.view.state != ContainerState::Running || watched.is_stopping {
            return Vec::new();
        }
        let name = (&watched.view.pod.uid, &*watched.view.name);
        let mut silent = Vec::new();
        for group in &mut watched.groups {
            group.expire(now);
            for silence in &group.silences {
                let likely = self.manifests.likely(name, &group.command, silence.period);
                if likely != Some(ProbeKind::Startup) {
                    let (container, comm) = (Arc::clone(&watched.view), group.comm.clone());
                    let kind = ProbeType::Observed(silence.number);
                    silent.push(SilentProbe { container, kind, comm });
                }
            }
        }
        silent
    }

    /// How many observed probes there are now.
    pub(super) fn count(&mut self, now: Instant) -> usize {
        let groups = self.containers.values_mut().flat_map(|watched| &mut watched.groups);
        groups
            .map(|group| {
                group.expire(now);
                group.probes.len()
            })
            .sum()
    }

    /// How many commands made room for others' while as many were followed as may be.
    pub(super) fn displaced(&self) -> u64 {
        self.displaced
    }

    /// The pod whose annotation is to be read next.
    pub(super) fn next_text(&mut self, now: Instant) -> Option<PodText> {
        self.manifests.next_text(now)
    }

    /// A pod's annotation was read.
    pub(super) fn learn_text(&mut self, read: ReadText) {
        self.manifests.learn_text(read);
    }

    /// The static pods whose manifests are wanted.
    pub(super) fn static_pods(&self) -> Vec<StaticPod> {
        let pods = self.manifests.awaited_files().map(|pod| StaticPod {
            uid: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
        });
        pods.collect()
    }

    /// What the manifest of a static pod says; none if it cannot be found or read.
    pub(super) fn learn_file(&mut self, pod: &PodUid, written: Option<Arc<Written>>) {
        self.manifests.learn_file(pod, written);
    }

    /// Follows a command that was not called before, where there is or can be room.
    fn add(&mut self, id: &ContainerId, call: &Call, command: &ExecCommand) -> Option<usize> {
        if command.weight() > LONGEST_COMMAND {
            return None;
        }
        let watched = self.containers.get_mut(id)?;
        if watched.groups.len() >= MOST_GROUPS {
            let (_, replaced) = watched.replaceable().filter(|(rank, _)| !rank.has_rhythm)?;
            watched.groups.swap_remove(replaced);
            self.groups -= 1;
        } else if self.groups >= MOST_GROUPS_IN_ALL {
            self.displace(id)?;
        }
        let groups = &mut self.containers.get_mut(id)?.groups;
        groups.push(Group::new(call, command));
        self.groups += 1;
        Some(groups.len() - 1)
    }

    /// Makes room for one command of a container.
    fn displace(&mut self, id: &ContainerId) -> Option<()> {
        let asking = Arc::clone(&self.containers.get(id)?.view.pod);
        let held = self.containers.values().filter(|watched| !watched.groups.is_empty());
        let held = held.map(|watched| (&*watched.view.pod, watched.groups.len()));
        let uid = room::giving_up(held, &asking).clone();
        let of_pod = self.containers.values_mut().filter(|watched| watched.view.pod.uid == uid);
        let replaceable = of_pod.filter_map(|watched| Some((watched.replaceable()?, watched)));
        let replaceable = replaceable.filter(|((rank, _), _)| uid != asking.uid || !rank.has_rhythm);
        let ((_, replaced), watched) = replaceable.min_by_key(|((rank, _), _)| *rank)?;
        watched.groups.swap_remove(replaced);
        self.groups -= 1;
        self.displaced += 1;
        Some(())
    }

    fn note_stopping(&mut self, is_meant: impl Fn(&Container) -> bool, is_stopping: bool) {
        for watched in self.containers.values_mut().filter(|watched| is_meant(&watched.view)) {
            watched.is_stopping = is_stopping;
        }
    }

    fn forget(&mut self, id: &ContainerId) {
        self.groups -= self.containers.remove(id).map_or(0, |watched| watched.groups.len());
    }

    fn sweep(&mut self, now: Instant) {
        if self.swept_at.is_some_and(|before| now.saturating_duration_since(before) < SWEPT_EVERY) {
            return;
        }
        self.swept_at = Some(now);
        for watched in self.containers.values_mut() {
            watched.groups.retain_mut(|group| {
                group.expire(now);
                let is_kept = !group.probes.is_empty() || !group.silences.is_empty();
                is_kept || now.saturating_duration_since(group.called_at) <= SILENT
            });
        }
        self.groups = self.containers.values().map(|watched| watched.groups.len()).sum();
        let pods: HashSet<_> = self.containers.values().map(|watched| &watched.view.pod.uid).collect();
        self.manifests.sweep(|pod| pods.contains(pod), SILENT, now);
    }
}

impl Watched {
    fn group(&self, call: &Call, command: &ExecCommand) -> Option<usize> {
        self.groups.iter().position(|group| group.is_of(&call.origin.peer, command))
    }

    /// The command that is the first to be replaced.
    fn replaceable(&self) -> Option<(Replaced, usize)> {
        let ranks = self.groups.iter().map(|group| Replaced {
            has_rhythm: !group.probes.is_empty(),
            is_repeated: group.calls > 1,
            called_at: group.called_at,
        });
        ranks.zip(0..).min()
    }

    /// A rhythm was found: its probe has the lowest number that is free.
    fn found(&mut self, group: usize, attempts: Vec<Attempt>) {
        let taken =
            |number| self.groups.iter().flat_map(|group| &group.probes).any(|probe| probe.number == number);
        let number = (1..).find(|&number| !taken(number)).expect("few numbers are taken");
        if let Some(probe) = Probe::new(number, attempts) {
            self.groups[group].returned(probe.rhythm.period());
            self.groups[group].probes.push(probe);
        }
    }
}

#[cfg(test)]
mod tests;
