//! What the ExecSync calls of the last minutes cost: calls and attempts that ended in; sums by command out. Never does IO.
//!
//! Pods choose how many different commands they run, so each has a share: the commands beyond it are summed per pod.

use std::{
    collections::{HashMap, VecDeque},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{
    journal::{Crowd, group},
    view::mode,
};
use crate::{
    clock,
    inventory::TracedCall,
    prober::made::MadeAttempt,
    results::{
        AttemptResult,
        latency::{bucket, quantile},
        phases::{Phase, Phases, PhasesSlot, Split},
    },
    spec::{ExecMode, Handler},
    tap::{
        CallEnd, Code,
        cri::{CriRequest, CriResponse},
    },
};

/// 30 s: calls are summed by their ends in slots of this length. So the costs of a window are those of up to 30 s more.
const SLOT: Duration = Duration::from_secs(30);

/// 20 slots before the current one: 10 minutes.
const SLOTS: u64 = 20;

/// The longest window of which costs are known.
pub(crate) const LONGEST: Duration = SLOT.saturating_mul(SLOTS as u32);

/// The shortest window.
pub(crate) const SHORTEST: Duration = SLOT;

/// 64 commands of a pod have sums of their own: ten containers have three probes each, of which each may have taken both routes.
/// Further ones are summed.
const MOST_OF_POD: usize = 64;

/// 1,024 sums in all, in 5 MiB if each of them has calls all the time. One more folds one of the namespace that has most, and
/// there of the pod that has most, into that pod's sum of other commands; and such a sum, where pods have nothing else,
/// into that of all other pods.
const MOST: usize = 1_024;

/// 1 KiB: commands that do not differ in their beginning are one.
const LONGEST_COMMAND: usize = 1_024;

/// 1 s: when the phases of an attempt are known, or never will be.
const PHASES_KNOWN: Duration = Duration::from_secs(1);

/// 1,024 attempts wait for their phases. One more means that the oldest has none.
const MOST_WAITING: usize = 1_024;

/// Whose calls are summed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CostKey {
    /// Empty where that is not known, and in the sum of all other pods.
    pub namespace: Arc<str>,
    pub pod: Arc<str>,
    /// Their route; calls of clients are ExecSync.
    pub route: ExecMode,
    pub commands: Commands,
}

/// Which commands of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Commands {
    /// One of its own.
    One {
        container: Arc<str>,
        /// Its words.
        command: Box<[Box<str>]>,
        /// The kernel's name of the process that called; none for a probe of ours.
        caller: Option<Box<str>>,
    },
    /// All others.
    Others {
        /// Whether they were of probes.
        is_probe: bool,
    },
}

/// A call or an attempt that ended.
#[derive(Clone, Copy, Debug)]
struct Ended {
    took: Duration,
    is_failed: bool,
    is_probe: bool,
}

/// The sum of some calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct CostSum {
    pub calls: u64,
    pub failures: u64,
    pub total: Duration,
    /// How many took how long, by bucket, in order; those without any are left out.
    buckets: Vec<(u8, u32)>,
    longest: Duration,
    pub phases: PhaseSums,
}

/// The phases of some calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PhaseSums {
    /// Of how many.
    pub calls: u64,
    pub queue: Duration,
    pub start: Duration,
    pub run: Duration,
    pub drain: Duration,
}

/// What the calls of a key cost.
#[derive(Clone, Debug)]
pub(crate) struct Cost {
    pub key: Arc<CostKey>,
    pub is_probe: bool,
    pub sum: CostSum,
}

/// A handle on the costs; clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct CostsHandle(Arc<Mutex<Costs>>);

impl CostsHandle {
    /// A call ended, and these are its phases, if they are known. `is_probe`: it is known to be one of a client's probe.
    pub(crate) fn call_ended(&self, call: &TracedCall, phases: Option<Phases>, is_probe: bool) {
        let ended = &call.ended;
        let CriRequest::ExecSync(command) = &ended.call.request else { return };
        let is_well = ended.end == CallEnd::Complete
            && ended.code == Some(Code::OK)
            && match &ended.response {
                CriResponse::Exec(result) => result.exit_code == 0,
                CriResponse::Skipped
                | CriResponse::Undecoded
                | CriResponse::Sandbox(_)
                | CriResponse::Container(_) => true,
            };
        let pod = call.pod.as_deref();
        let key = CostKey {
            namespace: pod.map(|pod| pod.namespace.clone()).unwrap_or_default(),
            pod: pod.map(|pod| pod.name.clone()).unwrap_or_default(),
            route: ExecMode::Sync,
            commands: Commands::One {
                container: call.container.clone().unwrap_or_default(),
                command: beginning(command.arguments()),
                caller: Some(ended.call.origin.peer.comm.as_str().into()),
            },
        };
        let took = ended.at.saturating_duration_since(ended.call.began);
        let mut costs = self.costs();
        let (key, slot) = costs.note(key, Ended { took, is_failed: !is_well, is_probe }, clock::now());
        if let Some(phases) = phases {
            costs.note_phases(&key, slot, phases);
        }
    }

    /// An attempt of ours ended.
    pub(crate) fn attempt_made(&self, made: &MadeAttempt) {
        let Handler::Exec { command } = &made.spec.handler else { return };
        let pod = &made.view.pod;
        let key = CostKey {
            namespace: pod.namespace.clone(),
            pod: pod.name.clone(),
            route: made.record.route.map(mode).unwrap_or_default(),
            commands: Commands::One {
                container: made.view.name.clone(),
                command: beginning(command.iter().map(String::as_str)),
                caller: None,
            },
        };
        let is_failed = made.record.result != AttemptResult::Success;
        let (now, mut costs) = (clock::now(), self.costs());
        let ended = Ended { took: made.record.duration, is_failed, is_probe: true };
        let (key, slot) = costs.note(key, ended, now);
        if let Some(phases) = &made.record.phases {
            costs.wait(Waiting { since: now, key, slot, phases: phases.clone() });
        }
    }

    /// What the calls of the last minutes cost, in no order; and the time in which they ended.
    pub(crate) fn all(&self, within: Duration) -> (Vec<Cost>, Duration) {
        self.costs().all(within, clock::now())
    }

    fn costs(&self) -> MutexGuard<'_, Costs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The words of a command, up to [`LONGEST_COMMAND`].
pub(crate) fn beginning<'a>(words: impl Iterator<Item = &'a str>) -> Box<[Box<str>]> {
    let mut room = LONGEST_COMMAND;
    let mut kept = Vec::new();
    for word in words {
        let end = word.floor_char_boundary(room);
        kept.push(Box::from(&word[..end]));
        if end < word.len() {
            break;
        }
        // What a word takes besides its text counts, too: it may be empty.
        room = room.saturating_sub(end + size_of::<Box<str>>());
        if room == 0 {
            break;
        }
    }
    kept.into()
}

#[derive(Debug, Default)]
struct Costs {
    /// When the first call was noted: slots are counted from then on.
    origin: Option<Instant>,
    entries: HashMap<Arc<CostKey>, Entry>,
    /// Their numbers by namespace and pod, but for the sum of all other pods.
    crowd: Crowd,
    by_number: HashMap<u64, Arc<CostKey>>,
    numbered: u64,
    /// The slot in which those without calls were last forgotten.
    swept: u64,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug, Default)]
struct Entry {
    number: u64,
    /// Whether any of its calls was known to be a probe's: the others are, too. A rhythm is found only after some calls.
    is_probe: bool,
    /// With their numbers, oldest first; only those with calls.
    slots: VecDeque<(u64, CostSum)>,
}

/// An attempt whose phases are not known yet.
#[derive(Debug)]
struct Waiting {
    since: Instant,
    key: Arc<CostKey>,
    slot: u64,
    phases: PhasesSlot,
}

impl Costs {
    /// Notes a call. Returns where: its key, or that of other commands, and the slot.
    fn note(&mut self, key: CostKey, ended: Ended, now: Instant) -> (Arc<CostKey>, u64) {
        let slot = self.slot(now);
        self.sweep(slot);
        self.resolve(now);
        let key = self.admitted(key, ended.is_probe);
        let entry = self.entry(&key);
        entry.is_probe |= ended.is_probe;
        entry.at(slot).add(&CostSum::of(ended.took, ended.is_failed));
        while self.entries.len() > MOST {
            let Some(number) = self.crowd.pop(false) else { break };
            self.fold(number);
        }
        (key, slot)
    }

    fn note_phases(&mut self, key: &Arc<CostKey>, slot: u64, phases: Phases) {
        let slots = self.entries.get_mut(key).map(|entry| &mut entry.slots);
        if let Some((_, sum)) = slots.and_then(|slots| slots.iter_mut().rev().find(|(at, _)| *at == slot)) {
            sum.phases.note(phases);
        }
    }

    fn wait(&mut self, waiting: Waiting) {
        if self.waiting.len() >= MOST_WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back(waiting);
    }

    /// Notes the phases that are known by now.
    fn resolve(&mut self, now: Instant) {
        while let Some(waiting) = self.waiting.front() {
            if now.saturating_duration_since(waiting.since) < PHASES_KNOWN {
                break;
            }
            let Some(waiting) = self.waiting.pop_front() else { break };
            if let Some(phases) = waiting.phases.get().and_then(Split::phases) {
                self.note_phases(&waiting.key, waiting.slot, phases);
            }
        }
    }

    /// The key of a command, or that of other commands if its pod has as many as it may.
    fn admitted(&self, key: CostKey, is_probe: bool) -> Arc<CostKey> {
        if let Some((known, _)) = self.entries.get_key_value(&key) {
            return known.clone();
        }
        match self.crowd.surplus(&path(&key), MOST_OF_POD - 1) {
            Some(_) => Arc::new(CostKey { commands: Commands::Others { is_probe }, ..key }),
            None => Arc::new(key),
        }
    }

    fn entry(&mut self, key: &Arc<CostKey>) -> &mut Entry {
        if !self.entries.contains_key(key) && !key.is_of_other_pods() {
            self.numbered += 1;
            self.crowd.push(&path(key), self.numbered, 0);
            self.by_number.insert(self.numbered, key.clone());
        }
        let number = self.numbered;
        self.entries.entry(key.clone()).or_insert_with(|| Entry { number, ..Entry::default() })
    }

    /// Adds the sum of this number to the next wider one.
    fn fold(&mut self, number: u64) {
        let Some(key) = self.by_number.remove(&number) else { return };
        let Some(entry) = self.entries.remove(&key) else { return };
        let commands = Commands::Others { is_probe: entry.is_probe };
        let wider = match &key.commands {
            Commands::One { .. } => CostKey { commands, ..CostKey::clone(&key) },
            Commands::Others { .. } => {
                CostKey { namespace: "".into(), pod: "".into(), route: key.route, commands }
            }
        };
        let others = self.entry(&Arc::new(wider));
        others.is_probe = entry.is_probe;
        for (slot, sum) in entry.slots {
            others.at(slot).add(&sum);
        }
    }

    /// Forgets what is too old, once a slot.
    fn sweep(&mut self, now: u64) {
        if mem::replace(&mut self.swept, now) == now {
            return;
        }
        let (crowd, by_number) = (&mut self.crowd, &mut self.by_number);
        self.entries.retain(|key, entry| {
            entry.slots.retain(|(slot, _)| slot + SLOTS >= now);
            if entry.slots.is_empty() && !key.is_of_other_pods() {
                crowd.remove(&path(key), entry.number);
                by_number.remove(&entry.number);
            }
            !entry.slots.is_empty()
        });
    }

    fn all(&mut self, within: Duration, now: Instant) -> (Vec<Cost>, Duration) {
        let slot = self.slot(now);
        self.sweep(slot);
        self.resolve(now);
        let slots = within.as_secs().div_ceil(SLOT.as_secs()).clamp(1, SLOTS);
        let entries = self.entries.iter().map(|(key, entry)| {
            let mut sum = CostSum::default();
            let recent = entry.slots.iter().filter(|(at, _)| at + slots >= slot);
            recent.for_each(|(_, some)| sum.add(some));
            Cost { key: key.clone(), is_probe: entry.is_probe, sum }
        });
        let costs = entries.filter(|cost| cost.sum.calls > 0).collect();
        let before = SLOT * u32::try_from(slot.saturating_sub(slots)).unwrap_or(u32::MAX);
        let counted = self.origin.map_or(Duration::ZERO, |origin| now.saturating_duration_since(origin));
        (costs, counted.saturating_sub(before))
    }

    fn slot(&mut self, now: Instant) -> u64 {
        let origin = *self.origin.get_or_insert(now);
        now.saturating_duration_since(origin).as_secs() / SLOT.as_secs()
    }
}

impl CostKey {
    /// Whether it is the sum of all pods that have no room for one of their own.
    fn is_of_other_pods(&self) -> bool {
        self.pod.is_empty() && matches!(self.commands, Commands::Others { .. })
    }
}

/// The groups of a key: its namespace, its pod.
fn path(key: &CostKey) -> [u64; 2] {
    [group(&key.namespace), group((&key.namespace, &key.pod))]
}

impl Entry {
    /// The sum of a slot. Calls are noted in the order of their ends, but for those that are folded.
    fn at(&mut self, slot: u64) -> &mut CostSum {
        let at = self.slots.partition_point(|(known, _)| *known < slot);
        if self.slots.get(at).is_none_or(|(known, _)| *known != slot) {
            self.slots.insert(at, (slot, CostSum::default()));
        }
        &mut self.slots[at].1
    }
}

impl CostSum {
    /// Of one call.
    pub(crate) fn of(took: Duration, is_failed: bool) -> Self {
        let bucket = u8::try_from(bucket(took)).unwrap_or(u8::MAX);
        Self {
            calls: 1,
            failures: u64::from(is_failed),
            total: took,
            buckets: vec![(bucket, 1)],
            longest: took,
            phases: PhaseSums::default(),
        }
    }

    /// All of the others, too.
    pub(crate) fn add(&mut self, other: &Self) {
        self.longest = self.longest.max(other.longest);
        self.calls += other.calls;
        self.failures += other.failures;
        self.total = self.total.saturating_add(other.total);
        for &(bucket, count) in &other.buckets {
            match self.buckets.binary_search_by_key(&bucket, |&(bucket, _)| bucket) {
                Ok(at) => self.buckets[at].1 = self.buckets[at].1.saturating_add(count),
                Err(at) => self.buckets.insert(at, (bucket, count)),
            }
        }
        self.phases.add(&other.phases);
    }

    /// What so many of a hundred did not exceed; at most 19 % too long.
    pub(crate) fn quantile(&self, percent: u64) -> Duration {
        let counts = self.buckets.iter().map(|&(bucket, count)| (bucket, u64::from(count)));
        quantile(counts, percent).min(self.longest)
    }
}

impl PhaseSums {
    fn note(&mut self, phases: Phases) {
        self.calls += 1;
        for (phase, took) in phases.each() {
            let sum = match phase {
                Phase::Queue => &mut self.queue,
                Phase::Start => &mut self.start,
                Phase::Run => &mut self.run,
                Phase::Drain => &mut self.drain,
            };
            *sum = sum.saturating_add(took);
        }
    }

    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.queue = self.queue.saturating_add(other.queue);
        self.start = self.start.saturating_add(other.start);
        self.run = self.run.saturating_add(other.run);
        self.drain = self.drain.saturating_add(other.drain);
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::{
        ids::{ProbeKey, ProbeKind},
        prober::fixtures,
        results::{
            AttemptRecord, Verdict,
            exec_route::{ExecRoute, WhySync},
        },
        spec::ProbeSpec,
    };

    fn key(namespace: &str, pod: &str, command: &str, caller: Option<&str>) -> CostKey {
        let command = beginning(command.split(' '));
        let commands = Commands::One { container: "app".into(), command, caller: caller.map(Into::into) };
        CostKey { namespace: namespace.into(), pod: pod.into(), route: ExecMode::Sync, commands }
    }

    fn took(millis: u64) -> Ended {
        Ended { took: Duration::from_millis(millis), is_failed: false, is_probe: false }
    }

    /// Namespace, pod and command of each, with its calls, ordered.
    fn shown(costs: &mut Costs, within: u64, now: Instant) -> Vec<String> {
        let (all, _) = costs.all(Duration::from_secs(within), now);
        let mut shown: Vec<_> = all
            .iter()
            .map(|cost| {
                let commands = match &cost.key.commands {
                    Commands::One { command, .. } => command.join(" "),
                    Commands::Others { .. } => "others".to_owned(),
                };
                let probe = if cost.is_probe { " probe" } else { "" };
                format!("{}/{} {commands}{probe} {}", cost.key.namespace, cost.key.pod, cost.sum.calls)
            })
            .collect();
        shown.sort();
        shown
    }

    #[test]
    fn calls_are_summed_by_command_and_caller_and_only_those_of_the_window() {
        let (mut costs, start) = (Costs::default(), clock::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        costs.note(key("a", "web", "true", None), Ended { is_probe: true, ..took(10) }, at(0));
        costs.note(key("a", "web", "true", Some("crictl")), took(20), at(100));
        let failed = Ended { is_failed: true, ..took(400) };
        costs.note(key("a", "web", "true", Some("crictl")), failed, at(130));
        assert_eq!(shown(&mut costs, 300, at(140)), ["a/web true 2", "a/web true probe 1"]);
        assert_eq!(shown(&mut costs, 60, at(140)), ["a/web true 2"]);
        assert_eq!(shown(&mut costs, 30, at(170)), ["a/web true 1"]);
        let (all, counted) = costs.all(LONGEST, at(140));
        assert_eq!(counted, Duration::from_secs(140));
        assert_eq!(costs.all(Duration::from_secs(60), at(140)).1, Duration::from_secs(80));
        let people = all.iter().find(|cost| !cost.is_probe).unwrap();
        assert_eq!((people.sum.failures, people.sum.total), (1, Duration::from_millis(420)));
        assert_eq!(people.sum.quantile(99), Duration::from_millis(400));
        assert!((20..=23).contains(&people.sum.quantile(50).as_millis()));
        assert_eq!(shown(&mut costs, 600, at(2_000)), [""; 0]);
        assert!(costs.entries.is_empty() && costs.by_number.is_empty() && costs.crowd.pop(false).is_none());
    }

    #[test]
    fn an_attempt_is_summed_with_those_that_went_its_way() {
        let handle = CostsHandle::default();
        let fallback = ExecRoute::Fallback(WhySync::NoShell);
        let routes = [Some(ExecRoute::Session), Some(ExecRoute::Sync), Some(fallback), None];
        for route in routes {
            let command = vec!["true".to_owned()];
            let spec =
                ProbeSpec { handler: Handler::Exec { command }, ..fixtures::spec(ProbeKind::Liveness) };
            let record = AttemptRecord {
                at: SystemTime::UNIX_EPOCH,
                result: AttemptResult::Success,
                duration: Duration::from_millis(2),
                exit_code: Some(0),
                status: None,
                lag: None,
                container_attempt: None,
                is_first: false,
                output: "".into(),
                phases: None,
                route,
            };
            handle.attempt_made(&MadeAttempt {
                key: ProbeKey { pod: "u1".into(), container: "app".into(), kind: ProbeKind::Liveness },
                view: Arc::new(fixtures::container("web", "c1", 0)),
                spec: Arc::new(spec),
                record,
                state: Verdict::Success,
            });
        }
        let mut sums: Vec<_> = handle
            .all(LONGEST)
            .0
            .iter()
            .map(|cost| (cost.key.route, cost.is_probe, cost.sum.calls))
            .collect();
        sums.sort();
        assert_eq!(sums, [(ExecMode::Sync, true, 3), (ExecMode::Session, true, 1)]);
    }

    #[test]
    fn what_went_by_sessions_is_summed_apart_wherever_it_ends_up() {
        let (mut costs, now) = (Costs::default(), clock::now());
        let made = |pod: &str, number: u64, route| {
            (
                CostKey { route, ..key("a", pod, &format!("true {number}"), None) },
                Ended { is_probe: true, ..took(1) },
            )
        };
        for (pods, commands) in [(1, 2 * MOST_OF_POD as u64), (MOST as u64, 1)] {
            for (pod, number) in (0..pods).flat_map(|pod| (0..commands).map(move |number| (pod, number))) {
                for route in [ExecMode::Sync, ExecMode::Session, ExecMode::Session] {
                    let (key, ended) = made(&format!("web-{pods}-{pod}"), number, route);
                    costs.note(key, ended, now);
                }
            }
            let (all, _) = costs.all(LONGEST, now);
            let of = |route| -> u64 {
                all.iter().filter(|cost| cost.key.route == route).map(|cost| cost.sum.calls).sum()
            };
            assert_eq!(of(ExecMode::Session), 2 * of(ExecMode::Sync), "{pods} pods");
            let others = all.iter().filter(|cost| matches!(cost.key.commands, Commands::Others { .. }));
            let routes: Vec<_> = others.map(|cost| cost.key.route).collect();
            assert!(ExecMode::ALL.iter().all(|route| routes.contains(route)), "{pods} pods: {routes:?}");
        }
    }

    #[test]
    fn one_call_that_is_known_to_be_a_probes_makes_all_of_its_kind_probes() {
        let (mut costs, now) = (Costs::default(), clock::now());
        for is_probe in [false, true, false] {
            costs.note(key("a", "web", "true", Some("kubelet")), Ended { is_probe, ..took(1) }, now);
        }
        assert_eq!(shown(&mut costs, 300, now), ["a/web true probe 3"]);
    }

    #[test]
    fn phases_are_added_to_the_slot_of_their_call_when_they_are_known() {
        let (mut costs, now) = (Costs::default(), clock::now());
        let (key, slot) = costs.note(key("a", "web", "true", None), took(10), now);
        let millis = |millis| Some(Duration::from_millis(millis));
        let phases =
            Phases { queue: Duration::from_millis(1), start: millis(2), run: millis(3), drain: None };
        for known in [true, false] {
            let slots = PhasesSlot::default();
            costs.wait(Waiting { since: now, key: key.clone(), slot, phases: slots.clone() });
            if known {
                slots.set(Split::Known(phases));
            }
        }
        assert_eq!(costs.all(LONGEST, now).0[0].sum.phases.calls, 0);
        let sums = costs.all(LONGEST, now + PHASES_KNOWN).0[0].sum.phases;
        assert_eq!((sums.calls, sums.run, sums.drain), (1, Duration::from_millis(3), Duration::ZERO));
    }

    #[test]
    fn a_pod_that_runs_ever_new_commands_has_its_share_and_takes_no_room_of_others() {
        let (mut costs, now) = (Costs::default(), clock::now());
        costs.note(key("a", "web", "true", None), Ended { is_probe: true, ..took(10) }, now);
        for number in 0..10_000 {
            costs.note(key("b", "evil", &format!("echo {number}"), Some("crictl")), took(1), now);
        }
        let shown = shown(&mut costs, 300, now);
        assert_eq!(shown.len(), 1 + MOST_OF_POD + 1);
        assert!(shown.contains(&"a/web true probe 1".to_owned()));
        assert!(shown.contains(&format!("b/evil others {}", 10_000 - MOST_OF_POD)), "{shown:?}");
    }

    #[test]
    fn ever_new_pods_of_a_namespace_take_no_room_of_other_namespaces_and_no_call_is_lost() {
        let (mut costs, now) = (Costs::default(), clock::now());
        for number in 0..10 {
            costs.note(key("a", &format!("web-{number}"), "true", None), took(10), now);
        }
        for number in 0..5_000 {
            costs.note(key("b", &format!("job-{number}"), "true", None), took(1), now);
        }
        assert!(costs.entries.len() <= MOST);
        let (all, _) = costs.all(LONGEST, now);
        assert_eq!(all.iter().filter(|cost| *cost.key.namespace == *"a").count(), 10);
        assert_eq!(all.iter().map(|cost| cost.sum.calls).sum::<u64>(), 5_010);
        assert!(all.iter().any(|cost| cost.key.is_of_other_pods()));
    }

    #[test]
    fn a_command_is_kept_up_to_its_bound_whatever_it_is_made_of() {
        let size = |words: &[Box<str>]| words.iter().map(|word| word.len() + 16).sum::<usize>();
        let long = "ü".repeat(5_000);
        assert!(size(&beginning([&*long, "x"].into_iter())) <= LONGEST_COMMAND + 16);
        assert!(size(&beginning(std::iter::repeat_n("", 5_000))) <= LONGEST_COMMAND + 16);
        assert_eq!(*beginning(["sh", "-c"].into_iter()), ["sh".into(), "-c".into()]);
    }
}
