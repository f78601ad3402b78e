//! Any story at all: a runtime whose truth is known, calls through the relay and past it, and everything that reports
//! on them late, out of order, or not at all. In the end the model holds exactly the truth.
//!
//! What is kept as in life: taps report in order, events report in order with the moment of their arrival, one list is
//! under way at a time, and ids are never used twice.

use std::collections::{BTreeMap, VecDeque};

use proptest::{prelude::*, sample::Index};

use super::{super::super::pod::PodNetwork, *};

/// One step of a story. The indices choose among what there is at that moment.
#[derive(Clone, Debug)]
enum Step {
    RunPod {
        relayed: bool,
    },
    KillPause(Index),
    StopPod {
        of: Index,
        relayed: bool,
    },
    RemovePod {
        of: Index,
        relayed: bool,
    },
    Create {
        of: Index,
        relayed: bool,
    },
    Start {
        of: Index,
        relayed: bool,
    },
    Exit {
        of: Index,
        code: i32,
    },
    Pause {
        of: Index,
        is_paused: bool,
    },
    Stop {
        of: Index,
        relayed: bool,
    },
    /// A relayed stop does not do what it was to do; its end is an error, or passes unseen.
    FailToStop {
        of: Index,
        is_pod: bool,
        is_lost: bool,
    },
    Remove {
        of: Index,
        relayed: bool,
    },
    /// The oldest observation of a tap arrives.
    TapArrives,
    /// The oldest event arrives, or is lost.
    EventArrives {
        is_lost: bool,
    },
    SendList,
    AnswerList,
    ListArrives {
        is_lost: bool,
    },
    /// The model's wishes are sent.
    SendLookups,
    AnswerLookup(Index),
    LookupArrives {
        which: Index,
        is_lost: bool,
    },
}

#[derive(Clone, Debug, PartialEq)]
struct TrueContainer {
    sandbox: String,
    state: ContainerState,
    is_paused: bool,
}

/// A lookup under way.
#[derive(Debug)]
struct Asked {
    lookup: Lookup,
    sent: Instant,
    answer: Option<Option<Fact>>,
}

/// The lists under way: sent, and, once the runtime handled them, what they say.
#[derive(Debug)]
struct List {
    sent: Instant,
    answer: Option<[Fact; 3]>,
}

struct World {
    rig: Rig,
    tick: u64,
    pods: BTreeMap<String, bool>,
    containers: BTreeMap<String, TrueContainer>,
    made: u32,
    taps: VecDeque<(Fact, Instant)>,
    events: VecDeque<Fact>,
    list: Option<List>,
    asked: Vec<Asked>,
    /// What a consumer of the changes knows.
    reported: BTreeMap<String, (ContainerState, bool, bool)>,
    /// The stops of each container and pod that it takes to be under way, or to have succeeded.
    stops: BTreeMap<String, u32>,
    /// Containers whose removal was observed: they never come back.
    buried: BTreeSet<String>,
}

impl World {
    fn new() -> Self {
        Self {
            rig: Rig::new(),
            tick: 0,
            pods: BTreeMap::new(),
            containers: BTreeMap::new(),
            made: 0,
            taps: VecDeque::new(),
            events: VecDeque::new(),
            list: None,
            asked: Vec::new(),
            reported: BTreeMap::new(),
            stops: BTreeMap::new(),
            buried: BTreeSet::new(),
        }
    }

    fn now(&self) -> Instant {
        self.rig.at(self.tick)
    }

    fn fresh(&mut self, kind: &str) -> String {
        self.made += 1;
        // No id is the beginning of another one.
        format!("{kind}{}.", self.made)
    }

    fn step(&mut self, step: &Step) {
        self.tick += 1;
        match *step {
            Step::RunPod { relayed } => {
                let id = self.fresh("s");
                self.pods.insert(id.clone(), true);
                self.relay(relayed, run(&id));
                self.events.extend([Fact::Mentioned(id.clone()), Fact::Mentioned(id)]);
            }
            Step::KillPause(of) => {
                if let Some(id) = pick(&self.pods, of)
                    && self.pods.insert(id.clone(), false) == Some(true)
                {
                    self.events.push_back(Fact::SandboxExited(id.as_str().into()));
                }
            }
            Step::StopPod { of, relayed } => {
                if let Some(id) = pick(&self.pods, of) {
                    self.made += 1;
                    let call = self.made;
                    self.relay(relayed, stop_pod(call, &id));
                    self.stop_pod(&id);
                    self.tick += 1;
                    self.relay(relayed, Fact::StopDone(super::call(call)));
                    self.relay(relayed, Fact::SandboxStopped(id.as_str().into()));
                }
            }
            Step::RemovePod { of, relayed } => {
                if let Some(id) = pick(&self.pods, of) {
                    self.stop_pod(&id);
                    let its: Vec<_> = self.containers_of(&id);
                    its.iter().for_each(|container| self.remove(container));
                    self.pods.remove(&id);
                    self.events.push_back(Fact::SandboxRemoved(id.as_str().into()));
                    self.tick += 1;
                    self.relay(relayed, Fact::SandboxRemoved(id.as_str().into()));
                }
            }
            Step::Create { of, relayed } => {
                if let Some(sandbox) = pick(&self.pods, of).filter(|id| self.pods[id]) {
                    let id = self.fresh("c");
                    let state = ContainerState::Created;
                    self.containers.insert(
                        id.clone(),
                        TrueContainer { sandbox: sandbox.clone(), state, is_paused: false },
                    );
                    self.events.push_back(Fact::Mentioned(id.clone()));
                    self.tick += 1;
                    self.relay(relayed, create(&id, &sandbox));
                }
            }
            Step::Start { of, relayed } => {
                if let Some(id) = pick(&self.containers, of)
                    && self.state(&id) == ContainerState::Created
                    && self.pods[&self.containers[&id].sandbox]
                {
                    self.set(&id, ContainerState::Running);
                    self.events.push_back(started(&id));
                    self.relay(relayed, started(&id));
                }
            }
            Step::Exit { of, code } => {
                if let Some(id) = pick(&self.containers, of) {
                    self.end(&id, code);
                }
            }
            Step::Pause { of, is_paused } => {
                if let Some(id) = pick(&self.containers, of)
                    && self.state(&id) == ContainerState::Running
                {
                    self.containers.get_mut(&id).unwrap().is_paused = is_paused;
                    self.events.push_back(if is_paused { paused(&id) } else { resumed(&id) });
                }
            }
            Step::Stop { of, relayed } => {
                if let Some(id) = pick(&self.containers, of) {
                    self.made += 1;
                    let call = self.made;
                    self.relay(relayed, stop(call, &id));
                    self.end(&id, 137);
                    self.tick += 1;
                    self.relay(relayed, Fact::StopDone(super::call(call)));
                    self.relay(relayed, Fact::ContainerStopped(id.as_str().into()));
                }
            }
            Step::FailToStop { of, is_pod, is_lost } => {
                self.made += 1;
                let call = self.made;
                let pod = pick(&self.pods, of).filter(|_| is_pod).map(|id| stop_pod(call, &id));
                let container = pick(&self.containers, of).filter(|_| !is_pod).map(|id| stop(call, &id));
                if let Some(begun) = pod.or(container) {
                    self.relay(true, begun);
                    self.tick += 1;
                    let lost = Fact::EndsLost(Lost::Any);
                    self.relay(true, if is_lost { lost } else { Fact::StopFailed(super::call(call)) });
                }
            }
            Step::Remove { of, relayed } => {
                if let Some(id) = pick(&self.containers, of) {
                    self.end(&id, 137);
                    self.remove(&id);
                    self.tick += 1;
                    self.relay(relayed, Fact::ContainerRemoved(id.as_str().into()));
                }
            }
            Step::TapArrives => {
                if let Some((fact, at)) = self.taps.pop_front() {
                    self.learn(fact, at);
                }
            }
            Step::EventArrives { is_lost } => {
                if let Some(fact) = self.events.pop_front().filter(|_| !is_lost) {
                    self.learn(self.as_known(fact), self.now());
                }
            }
            Step::SendList => {
                if self.list.is_none() {
                    self.list = Some(List { sent: self.now(), answer: None });
                }
            }
            Step::AnswerList => {
                let answer = [self.sandboxes_now(), self.containers_now(), self.paused_now()];
                if let Some(list) = &mut self.list {
                    list.answer.get_or_insert(answer);
                }
            }
            Step::ListArrives { is_lost } => {
                if self.list.as_ref().is_some_and(|list| is_lost || list.answer.is_some())
                    && let Some(list) = self.list.take()
                {
                    for fact in list.answer.into_iter().flatten().filter(|_| !is_lost) {
                        self.learn(fact, list.sent);
                    }
                }
            }
            Step::SendLookups => {
                let sent = self.now();
                let lookups = self.rig.model.take_lookups();
                self.asked.extend(lookups.into_iter().map(|(lookup, _)| Asked {
                    lookup,
                    sent,
                    answer: None,
                }));
            }
            Step::AnswerLookup(which) => {
                if !self.asked.is_empty() {
                    let index = which.index(self.asked.len());
                    let answer = self.answer(&self.asked[index].lookup);
                    self.asked[index].answer.get_or_insert(answer);
                }
            }
            Step::LookupArrives { which, is_lost } => {
                if !self.asked.is_empty() {
                    let index = which.index(self.asked.len());
                    if self.asked[index].answer.is_some() {
                        let Asked { sent, answer, .. } = self.asked.swap_remove(index);
                        if let Some(fact) = answer.flatten().filter(|_| !is_lost) {
                            self.learn(fact, sent);
                        }
                    }
                }
            }
        }
    }

    /// Lets the model learn something, and sees that it breaks no rule.
    fn learn(&mut self, fact: Fact, at: Instant) {
        let text = format!("{fact:?} as of {:?}", at - self.rig.start);
        let known = |world: &Self| -> BTreeMap<String, ContainerState> {
            world.rig.model.containers.iter().map(|(id, known)| (id.to_string(), known.state)).collect()
        };
        let before = known(self);
        let sandboxes_before: Vec<_> = self.rig.model.sandboxes.keys().cloned().collect();
        if let Fact::ContainerRemoved(id) = &fact {
            self.buried.insert(id.to_string());
        }
        self.rig.model.apply(fact, at);
        let after = known(self);
        for (id, state) in &before {
            if self.containers.contains_key(id) {
                let now = after.get(id).unwrap_or_else(|| panic!("{id} exists and was removed by {text}"));
                assert!(!is_back(*state, *now), "{id} went from {state:?} to {now:?} by {text}");
            }
        }
        for id in sandboxes_before.iter().filter(|id| self.pods.contains_key(id.as_str())) {
            assert!(self.rig.model.sandboxes.contains_key(id), "{id} exists and was removed by {text}");
        }
        for id in after.keys() {
            assert!(!self.buried.contains(id), "{id} was seen to be removed and came back by {text}");
        }
        self.hear();
    }

    /// What a consumer makes of the changes.
    fn hear(&mut self) {
        for change in self.rig.model.take_changes() {
            match change {
                Change::Container(view) => {
                    if let Some((before, ..)) = self.reported.get(view.id.as_str()) {
                        assert!(!is_back(*before, view.state), "{} was reported to go back", view.id);
                    }
                    assert!(view.state != ContainerState::Running || view.started_at.is_some());
                    let known = (view.state, view.is_paused, view.pod.is_ready);
                    self.reported.insert(view.id.to_string(), known);
                }
                Change::ContainerGone(id) => {
                    assert!(
                        self.reported.remove(id.as_str()).is_some(),
                        "{id} is gone and was never reported"
                    );
                }
                Change::Listed(all) => {
                    assert!(self.reported.keys().all(|id| all.contains(id.as_str())), "{all:?} are not all");
                }
                Change::ContainerStopping(id) => *self.stops.entry(id.to_string()).or_default() += 1,
                Change::PodStopping(id) => *self.stops.entry(id.to_string()).or_default() += 1,
                Change::ContainerStopFailed(id) => self.stop_failed(id.as_str()),
                Change::PodStopFailed(id) => self.stop_failed(id.as_str()),
                Change::RuntimeAnswers => {}
                Change::StopsListed(open) => {
                    let containers = open.containers.iter().map(|(id, count)| (id.as_str(), *count));
                    let pods = open.pods.iter().map(|(id, count)| (id.as_str(), *count));
                    for (id, count) in containers.chain(pods) {
                        assert!(self.stops.get(id) >= Some(&count), "{count} stops of {id} are open");
                    }
                }
            }
        }
    }

    fn stop_failed(&mut self, id: &str) {
        let stops = self.stops.get_mut(id).filter(|stops| **stops > 0);
        *stops.unwrap_or_else(|| panic!("a stop of {id} failed that never began")) -= 1;
    }

    /// Everything that is under way arrives, and then the runtime is asked until nothing is left to ask.
    fn settle(&mut self) {
        while !self.taps.is_empty() || !self.events.is_empty() {
            self.step(&Step::TapArrives);
            self.step(&Step::EventArrives { is_lost: false });
        }
        for is_lost in [true, false] {
            self.step(&Step::SendList);
            self.step(&Step::AnswerList);
            self.step(&Step::ListArrives { is_lost });
        }
        for _ in 0..20 {
            self.step(&Step::SendLookups);
            let wants_list = self.asked.iter().any(|asked| asked.lookup == Lookup::List);
            for asked in std::mem::take(&mut self.asked) {
                let answer = asked.answer.unwrap_or_else(|| self.answer(&asked.lookup));
                if let Some(fact) = answer {
                    self.learn(fact, asked.sent);
                }
            }
            if wants_list {
                self.step(&Step::SendList);
                self.step(&Step::AnswerList);
                self.step(&Step::ListArrives { is_lost: false });
            }
        }
        assert_eq!(self.rig.lookups(), [""; 0], "something is asked for ever");
    }

    /// A consumer that lost everything gets everything again.
    fn report_again(&mut self) {
        self.reported.clear();
        self.rig.model.report_all();
        self.hear();
    }

    /// The model, its census and its consumer hold the truth.
    fn check(&self) {
        let truth: BTreeMap<_, _> = self
            .containers
            .iter()
            .map(|(id, one)| (id.clone(), (one.state, one.is_paused, self.pods[&one.sandbox])))
            .collect();
        assert_eq!(self.reported, truth, "what was reported is not the truth");
        let running = self.containers.iter().filter(|(_, one)| one.state == ContainerState::Running);
        let ready = self.pods.iter().filter(|(_, is_ready)| **is_ready);
        for id in running.map(|(id, _)| id).chain(ready.map(|(id, _)| id)) {
            assert_eq!(self.stops.get(id).copied().unwrap_or_default(), 0, "{id} goes on, and is not probed");
        }
        let pods: BTreeMap<_, _> = self
            .rig
            .model
            .sandboxes
            .iter()
            .map(|(id, known)| (id.to_string(), known.view.is_ready))
            .collect();
        assert_eq!(pods, self.pods);
        for (id, sandbox) in &self.rig.model.sandboxes {
            assert!(!sandbox.lacks_address(), "{id} has no address");
        }
        assert_eq!(self.rig.model.containers.len(), self.containers.len());
    }

    fn relay(&mut self, relayed: bool, fact: Fact) {
        if relayed {
            self.taps.push_back((fact, self.now()));
        }
    }

    /// An event is of a sandbox where the model knows one by that id, as in life.
    fn as_known(&self, fact: Fact) -> Fact {
        let is_sandbox = |id: &str| self.rig.model.is_sandbox(id);
        match fact {
            Fact::SandboxExited(id) if !is_sandbox(id.as_str()) => exited(id.as_str(), 0),
            Fact::SandboxRemoved(id) if !is_sandbox(id.as_str()) => {
                Fact::ContainerRemoved(id.as_str().into())
            }
            fact => fact,
        }
    }

    fn state(&self, id: &str) -> ContainerState {
        self.containers[id].state
    }

    fn set(&mut self, id: &str, state: ContainerState) {
        let container = self.containers.get_mut(id).unwrap();
        (container.state, container.is_paused) = (state, false);
    }

    fn end(&mut self, id: &str, code: i32) {
        if self.state(id) == ContainerState::Running {
            self.set(id, ContainerState::Exited { exit_code: Some(code) });
            self.events.push_back(exited(id, code));
        }
    }

    fn remove(&mut self, id: &str) {
        self.containers.remove(id);
        self.events.push_back(Fact::ContainerRemoved(id.into()));
    }

    fn containers_of(&self, sandbox: &str) -> Vec<String> {
        let of_it = self.containers.iter().filter(|(_, one)| one.sandbox == sandbox);
        of_it.map(|(id, _)| id.clone()).collect()
    }

    fn stop_pod(&mut self, id: &str) {
        for container in self.containers_of(id) {
            self.end(&container, 137);
        }
        if self.pods.insert(id.to_owned(), false) == Some(true) {
            self.events.push_back(Fact::SandboxExited(id.into()));
        }
    }

    fn sandboxes_now(&self) -> Fact {
        Fact::SandboxesListed(
            self.pods.iter().map(|(id, is_ready)| sandbox_item(id, *is_ready).into()).collect(),
        )
    }

    fn containers_now(&self) -> Fact {
        let items = self.containers.iter().map(|(id, one)| item(id, &one.sandbox, listed(one.state)).into());
        Fact::ContainersListed(items.collect())
    }

    fn paused_now(&self) -> Fact {
        let paused = self.containers.iter().filter(|(_, one)| one.is_paused);
        Fact::PausedListed(Some(paused.map(|(id, _)| id.clone()).collect()))
    }

    /// What the runtime says now; nothing where the answer is a list, or of no use.
    fn answer(&self, lookup: &Lookup) -> Option<Fact> {
        let sandbox = |id: &str| {
            let is_ready = *self.pods.get(id)?;
            Some(sandbox_status(id, is_ready, if is_ready { "10.0.0.1" } else { "" }))
        };
        let container = |id: &str| {
            let state = self.containers.get(id)?.state;
            let (started_at, exit_code) = match state {
                ContainerState::Created | ContainerState::Unknown => (0, 0),
                ContainerState::Running => (5, 0),
                ContainerState::Exited { exit_code } => (5, exit_code.unwrap_or_default()),
            };
            Some(status(id, listed(state), started_at, exit_code))
        };
        match lookup {
            Lookup::List => None,
            Lookup::Sandbox(id) => sandbox(id.as_str()).or(Some(Fact::NotFound(id.to_string()))),
            Lookup::Container(id) | Lookup::ContainerAgain(id) => {
                container(id.as_str()).or(Some(Fact::NotFound(id.to_string())))
            }
            Lookup::Unexplained(id) | Lookup::Named(id) => container(id).or_else(|| sandbox(id)),
        }
    }
}

fn pick<T>(all: &BTreeMap<String, T>, index: Index) -> Option<String> {
    (!all.is_empty()).then(|| all.keys().nth(index.index(all.len())).unwrap().clone())
}

fn listed(state: ContainerState) -> cri::ContainerState {
    match state {
        ContainerState::Created => cri::ContainerState::ContainerCreated,
        ContainerState::Running => cri::ContainerState::ContainerRunning,
        ContainerState::Exited { .. } => cri::ContainerState::ContainerExited,
        ContainerState::Unknown => cri::ContainerState::ContainerUnknown,
    }
}

/// Whether a life went back. An end that was only concluded may be taken back.
fn is_back(before: ContainerState, now: ContainerState) -> bool {
    order(now) < order(before) && before != ContainerState::Exited { exit_code: None }
}

fn order(state: ContainerState) -> u8 {
    match state {
        ContainerState::Unknown | ContainerState::Created => 0,
        ContainerState::Running => 1,
        ContainerState::Exited { exit_code: None } => 2,
        ContainerState::Exited { exit_code: Some(_) } => 3,
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let of = any::<Index>;
    let relayed = any::<bool>;
    let step = prop_oneof![
        2 => relayed().prop_map(|relayed| Step::RunPod { relayed }),
        1 => of().prop_map(Step::KillPause),
        1 => (of(), relayed()).prop_map(|(of, relayed)| Step::StopPod { of, relayed }),
        1 => (of(), relayed()).prop_map(|(of, relayed)| Step::RemovePod { of, relayed }),
        4 => (of(), relayed()).prop_map(|(of, relayed)| Step::Create { of, relayed }),
        4 => (of(), relayed()).prop_map(|(of, relayed)| Step::Start { of, relayed }),
        2 => (of(), 0..4).prop_map(|(of, code)| Step::Exit { of, code }),
        3 => (of(), relayed()).prop_map(|(of, is_paused)| Step::Pause { of, is_paused }),
        1 => (of(), relayed()).prop_map(|(of, relayed)| Step::Stop { of, relayed }),
        2 => (of(), relayed(), relayed())
            .prop_map(|(of, is_pod, is_lost)| Step::FailToStop { of, is_pod, is_lost }),
        2 => (of(), relayed()).prop_map(|(of, relayed)| Step::Remove { of, relayed }),
        8 => Just(Step::TapArrives),
        8 => prop::bool::weighted(0.2).prop_map(|is_lost| Step::EventArrives { is_lost }),
        3 => Just(Step::SendList),
        3 => Just(Step::AnswerList),
        3 => prop::bool::weighted(0.2).prop_map(|is_lost| Step::ListArrives { is_lost }),
        4 => Just(Step::SendLookups),
        6 => of().prop_map(Step::AnswerLookup),
        6 => (of(), prop::bool::weighted(0.2))
            .prop_map(|(which, is_lost)| Step::LookupArrives { which, is_lost }),
    ];
    prop::collection::vec(step, 0..120)
}

proptest! {
    #[test]
    fn whatever_came_late_or_not_at_all_a_last_complete_list_leaves_exactly_the_truth(steps in steps()) {
        let mut world = World::new();
        steps.iter().for_each(|step| world.step(step));
        world.settle();
        world.check();
        world.report_again();
        world.check();
        for sandbox in world.rig.model.sandboxes.values() {
            prop_assert!(sandbox.view.network != PodNetwork::Host);
        }
    }
}

proptest! {
    #[test]
    fn an_id_is_found_by_its_beginning_as_if_all_were_looked_at(
        ids in prop::collection::btree_set("[ab]{0,4}", 0..12),
        named in "[ab]{0,5}",
    ) {
        let known: BTreeMap<ContainerId, ()> = ids.iter().map(|id| (id.as_str().into(), ())).collect();
        let like_it: Vec<_> = ids.iter().filter(|id| !named.is_empty() && id.starts_with(&named)).collect();
        let expected = match like_it[..] {
            [one] if !ids.contains(&named) => one,
            _ => &named,
        };
        prop_assert_eq!(full(&known, &named), ContainerId::from(expected.as_str()));
    }
}
