//! The worker against a second one that is slow and obvious: it walks through the whole table of
//! docs/kubelet-prober.md 3.7 each second, as the kubelet's does at each tick, and keeps its verdicts in a cache by
//! container.

use std::collections::HashMap;

use super::*;

/// What there is to be seen in one second.
#[derive(Clone, Copy, Debug)]
struct World {
    container: Option<Container>,
    is_started: bool,
    now: i64,
}

#[derive(Clone, Copy, Debug)]
struct Container {
    id: u8,
    state: ContainerState,
    started_at: i64,
}

/// The kubelet's worker, in its own terms.
#[derive(Default)]
struct Model {
    /// Ours: whether its failures are acted on, as a kubelet does.
    acts: bool,
    /// Ours: failures in a row while this container ran.
    fresh: u32,
    /// When the manager began.
    began: i64,
    remembered: Option<u8>,
    has_run: bool,
    on_hold: bool,
    last_result: Option<Verdict>,
    result_run: u32,
    cache: HashMap<u8, Verdict>,
    /// Ours: whether this container had a success.
    has_succeeded: bool,
    /// When the next attempt is to be made, while nothing stood in its way since the last one.
    next: Option<i64>,
}

impl Model {
    /// One second; returns whether it called the prober.
    fn step(&mut self, spec: &ProbeSpec, world: World, result: AttemptResult) -> bool {
        if self.is_blocked(spec, world) {
            self.next = None;
            return false;
        }
        if self.next.is_some_and(|next| world.now < next) {
            return false;
        }
        self.probe(spec, world, result);
        let start = spec.start.filter(|_| self.is_starting(spec, world));
        let beat = start.map_or(spec.period, |start| start.interval);
        self.next = Some(world.now + i64::try_from(beat.as_secs()).unwrap());
        true
    }

    fn is_starting(&self, spec: &ProbeSpec, World { container, now, .. }: World) -> bool {
        let (Some(start), Some(container)) = (spec.start, container) else { return false };
        !self.has_succeeded && now - container.started_at < i64::try_from(start.length.as_secs()).unwrap()
    }

    /// The steps up to the call of the prober; returns whether one of them ends it.
    fn is_blocked(&mut self, spec: &ProbeSpec, world: World) -> bool {
        // 1 and 2 do not exist in CRI. 3:
        let Some(container) = world.container else { return true };
        // 4
        if self.remembered != Some(container.id) {
            if let Some(old) = self.remembered {
                self.cache.remove(&old);
            }
            self.remembered = Some(container.id);
            self.has_run = false;
            self.on_hold = false;
            self.fresh = 0;
            self.has_succeeded = false;
            self.next = None;
        }
        // 3.8. Ours: only a container that runs is seeded.
        if !self.has_run && container.state == ContainerState::Running {
            self.has_run = true;
            if container.started_at < self.began - 10 {
                self.cache.remove(&container.id);
            } else {
                let initial = match spec.kind {
                    ProbeKind::Liveness => Verdict::Success,
                    ProbeKind::Readiness => Verdict::Failure,
                    ProbeKind::Startup => Verdict::Unknown,
                };
                self.cache.insert(container.id, initial);
            }
        }
        // 5
        if self.on_hold {
            return true;
        }
        // 6; 3.9 needs a restart policy. 7 needs a deletion.
        if container.state != ContainerState::Running {
            self.cache.insert(container.id, Verdict::Failure);
            self.fresh = 0;
            return true;
        }
        // 8
        if world.now - container.started_at < i64::try_from(spec.initial_delay.as_secs()).unwrap() {
            return true;
        }
        // 9
        if world.is_started && spec.kind == ProbeKind::Startup {
            return true;
        }
        // 10
        !world.is_started && spec.kind != ProbeKind::Startup
    }

    /// The call of the prober, and what it leads to.
    fn probe(&mut self, spec: &ProbeSpec, world: World, result: AttemptResult) {
        let Some(container) = world.container else { return };
        let is_forgiven = self.is_starting(spec, world);
        // 11
        let result = match result {
            AttemptResult::Error => return,
            AttemptResult::Success | AttemptResult::Warning => Verdict::Success,
            AttemptResult::Failure => Verdict::Failure,
        };
        self.has_succeeded |= result == Verdict::Success;
        // Ours.
        if is_forgiven && result == Verdict::Failure {
            return;
        }
        // 13
        if self.last_result.unwrap_or(Verdict::Success) == result {
            self.result_run += 1;
        } else {
            self.last_result = Some(result);
            self.result_run = 1;
        }
        // Ours: an act waits for as many failures on this container, which the run may be ahead of.
        self.fresh = if result == Verdict::Failure { self.fresh + 1 } else { 0 };
        let is_acted_on = |model: &Self| {
            let is_failing = model.cache.get(&container.id) == Some(&Verdict::Failure);
            model.acts
                && is_failing
                && model.fresh >= spec.failure_threshold
                && spec.kind != ProbeKind::Readiness
        };
        // 14
        if result == Verdict::Failure && self.result_run < spec.failure_threshold {
            if self.fresh == spec.failure_threshold && is_acted_on(self) {
                self.on_hold = true;
                self.result_run = 0;
            }
            return;
        }
        if result == Verdict::Success && self.result_run < spec.success_threshold {
            return;
        }
        // 15
        self.cache.insert(container.id, result);
        // 16. Ours: held by a failure only while it is acted on.
        if (spec.kind == ProbeKind::Liveness && result == Verdict::Failure) || spec.kind == ProbeKind::Startup
        {
            self.on_hold = result == Verdict::Success || is_acted_on(self);
            self.result_run = 0;
        }
    }
}

/// What happens at the beginning of a second.
#[derive(Clone, Debug)]
enum Change {
    Nothing,
    /// Another container, made or running, that started so many seconds ago.
    Replaced(bool, i64),
    /// The one that is there begins to run.
    Starts,
    Exits,
    IsLost,
    IsFound,
    Started(bool),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        12 => Just(Change::Nothing),
        2 => (any::<bool>(), prop_oneof![4 => Just(0i64), 1 => 0i64..30]).prop_map(|(made, age)| Change::Replaced(made, age)),
        2 => Just(Change::Starts),
        1 => Just(Change::Exits),
        1 => Just(Change::IsLost),
        2 => Just(Change::IsFound),
        3 => any::<bool>().prop_map(Change::Started),
    ]
}

impl World {
    fn change(&mut self, change: &Change) {
        use ContainerState::{Created, Running, Unknown};
        match (change, &mut self.container) {
            (Change::Replaced(is_made, age), container) => {
                let id = container.map_or(0, |container| container.id + 1);
                let state = if *is_made { Created } else { Running };
                *container = Some(Container { id, state, started_at: self.now - age });
            }
            (Change::Starts, Some(container)) if container.state == Created => {
                container.state = Running;
                container.started_at = self.now;
            }
            (Change::Exits, Some(container)) if container.state == Running => container.state = EXITED,
            (Change::IsLost, Some(container)) if container.state == Running => container.state = Unknown,
            (Change::IsFound, Some(container)) if container.state == Unknown => container.state = Running,
            (Change::Started(is_started), _) => self.is_started = *is_started,
            _ => {}
        }
    }
}

proptest! {
    #[test]
    fn it_decides_as_the_table_does(
        kind in prop::sample::select(ProbeKind::ALL.as_slice()),
        (success, failure) in (1u32..4, 1u32..4),
        (delay, period) in (0u32..4, 1u32..4),
        start in super::start::period(),
        acts: bool,
        seconds in prop::collection::vec((change(), prop::sample::select(&[
            AttemptResult::Success, AttemptResult::Success, AttemptResult::Success, AttemptResult::Warning,
            AttemptResult::Failure, AttemptResult::Failure, AttemptResult::Failure, AttemptResult::Error,
        ])), 1..120),
    ) {
        let (initial_delay, period) = (delay * SECOND, period * SECOND);
        let spec = ProbeSpec { initial_delay, period, start, ..spec(kind, success, failure) };
        // Containers of before our beginning are met in the first seconds.
        let whole = SystemTime::UNIX_EPOCH + 1_700_000_000 * SECOND;
        let mut rig = Rig::new(spec.clone());
        rig.now.wall = whole;
        rig.worker = Worker::new(Arc::new(spec.clone()), rig.now, false, rig.now);
        let wall = |second: i64| {
            let whole = whole + Duration::from_secs(u64::try_from(second.max(0)).unwrap());
            whole - Duration::from_secs(u64::try_from((-second).max(0)).unwrap())
        };
        rig.acts = acts;
        let mut model = Model { acts, ..Model::default() };
        let mut world = World { container: None, is_started: kind != ProbeKind::Startup, now: 0 };
        for (change, result) in seconds {
            world.change(&change);
            rig.on(WorkerEvent::Started(world.is_started));
            if let Some(Container { id, state, started_at }) = world.container {
                let started_at = (state != ContainerState::Created).then(|| wall(started_at));
                let id = ContainerId::from(format!("c{id}"));
                rig.on(WorkerEvent::Seen(Seen { id, attempt: 0, state, is_paused: false, created_at: None, started_at }));
            }
            let is_due = rig.worker.deadline().is_some_and(|deadline| deadline <= rig.now.at);
            if is_due {
                rig.attempt(result);
            }
            let is_attempted = model.step(&spec, world, result);
            prop_assert_eq!(is_due, is_attempted, "second {}: {:?}", world.now, world);
            let verdict = world.container.and_then(|container| model.cache.get(&container.id).copied());
            prop_assert_eq!(rig.worker.results().verdict(), verdict, "second {}: {:?}", world.now, world);
            prop_assert_eq!(rig.worker.results().run().count, model.result_run);
            prop_assert_eq!(rig.block() == Some(Block::Held), model.on_hold, "second {}: {:?}", world.now, world);
            world.now += 1;
            rig.pass(SECOND);
        }
    }
}
