//! What the prober's task is asked: questions in; commands done and answers out. Those who ask the same within a short time
//! share an answer, but one that was asked for after a command shows what was done. Pure but for the answers it sends.

use std::{sync::Arc, time::Instant};

use tokio::sync::oneshot;

use super::{
    CommandRefusal, ContainerStatus, Listed, Moment, ProbeCommand, ProbeStatus, Question,
    command::TriggerEnd, roster::Roster, status::ProbeCounts,
};
use crate::{ids::ProbeKey, stage::SharedAnswer};

/// 32 triggers are waited for at once; another one is refused, and nothing is triggered.
const TRIGGERS_AT_ONCE: usize = 32;

/// 8 of them in one namespace: attempts that do not end there leave room for others.
const TRIGGERS_OF_NAMESPACE: usize = 8;

/// 4 of them of one probe. All of its waiters get the same attempt.
const TRIGGERS_OF_PROBE: usize = 4;

/// A caller that waits for an attempt that was triggered.
#[derive(Debug)]
struct Waiter {
    key: ProbeKey,
    namespace: Arc<str>,
    since: Instant,
    end: oneshot::Sender<TriggerEnd>,
}

/// The questions that wait, by what they ask for.
#[derive(Debug, Default)]
pub(super) struct Answers {
    counts: SharedAnswer<ProbeCounts>,
    probes: SharedAnswer<Vec<ProbeStatus>>,
    containers: SharedAnswer<Vec<ContainerStatus>>,
    plans: SharedAnswer<Vec<Listed>>,
    triggered: Vec<Waiter>,
}

impl Answers {
    /// Whether another question may be taken, whatever it asks for.
    pub(super) fn has_room(&self) -> bool {
        let Self { counts, probes, containers, plans, triggered: _ } = self;
        counts.has_room() && probes.has_room() && containers.has_room() && plans.has_room()
    }

    /// Takes a question. A command is done at once.
    pub(super) fn take(&mut self, question: Question, roster: &mut Roster, now: Moment) {
        match question {
            Question::Counts(asker) => self.counts.ask(asker),
            Question::Probes(asker) => self.probes.ask(asker),
            Question::Containers(asker) => self.containers.ask(asker),
            Question::Plans(asker) => self.plans.ask(asker),
            Question::Command { key, command, answer } => {
                let done = roster.command(&key, command, now);
                if done.is_ok() {
                    self.outdate();
                }
                // The operator may have left.
                let _ = answer.send(done);
            }
            Question::Trigger { key, answer } => {
                let _ = answer.send(self.trigger(key, roster, now));
            }
            Question::Standing { key, container, answer } => {
                let _ = answer.send(roster.standing(&key, &container));
            }
        }
    }

    /// Triggers an attempt, and returns where its end is reported.
    fn trigger(
        &mut self,
        key: ProbeKey,
        roster: &mut Roster,
        now: Moment,
    ) -> Result<oneshot::Receiver<TriggerEnd>, CommandRefusal> {
        self.triggered.retain(|waiter| !waiter.end.is_closed());
        let namespace = roster.namespace(&key).ok_or(CommandRefusal::Unknown)?.clone();
        if let Some(reason) = self.crowd(&key, &namespace) {
            return Err(CommandRefusal::NotNow(reason));
        }
        roster.command(&key, ProbeCommand::Trigger, now)?;
        let (end, ended) = oneshot::channel();
        self.triggered.push(Waiter { key, namespace, since: now.at, end });
        Ok(ended)
    }

    /// Why no other client may wait for an attempt of this probe.
    fn crowd(&self, key: &ProbeKey, namespace: &Arc<str>) -> Option<String> {
        let count =
            |is_meant: &dyn Fn(&Waiter) -> bool| self.triggered.iter().filter(|it| is_meant(it)).count();
        let of_probe = (count(&|waiter| waiter.key == *key), TRIGGERS_OF_PROBE, " of this probe");
        let of_namespace =
            (count(&|waiter| waiter.namespace == *namespace), TRIGGERS_OF_NAMESPACE, " in this namespace");
        let of_all = (self.triggered.len(), TRIGGERS_AT_ONCE, "");
        let (_, most, whose) =
            [of_probe, of_namespace, of_all].into_iter().find(|(has, most, _)| has >= most)?;
        Some(format!("{most} clients already wait for attempts{whose} that they triggered"))
    }

    /// Has later questions answered with what is so now.
    fn outdate(&mut self) {
        self.counts.outdate();
        self.probes.outdate();
        self.containers.outdate();
    }

    /// Answers what may be answered now; `now` reads the time.
    pub(super) fn give(&mut self, roster: &Roster, now: impl Fn() -> Moment) {
        let at = || now().at;
        self.counts.answer(|| roster.counts(now()), at);
        self.probes.answer(|| roster.statuses(now()), at);
        self.containers.answer(|| roster.containers(now()), at);
        self.plans.answer(|| roster.plans(), at);
        let mut has_ended = false;
        for waiter in std::mem::take(&mut self.triggered) {
            match roster.triggered(&waiter.key, waiter.since, now()) {
                Some(end) => has_ended |= waiter.end.send(end).is_ok(),
                None if waiter.end.is_closed() => {}
                None => self.triggered.push(waiter),
            }
        }
        if has_ended {
            self.outdate();
        }
    }

    /// When [`Self::give`] is to be called next, at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let Self { counts, probes, containers, plans, triggered: _ } = self;
        [counts.deadline(), probes.deadline(), containers.deadline(), plans.deadline()]
            .into_iter()
            .flatten()
            .min()
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, collections::BTreeMap, sync::Arc, time::Duration};

    use tokio::sync::oneshot;

    use super::*;
    use crate::{
        ids::{ProbeKey, ProbeKind},
        prober::{
            Input, PauseTerms, ProberSettings,
            fixtures::{container, outcome, planned, spec},
            status::ProbePhase,
        },
        results::{AttemptResult, Verdict},
        spec::plan::{Invalid, Planned},
    };

    /// A prober whose every look at the clock takes a millisecond.
    struct Rig {
        answers: Answers,
        roster: Roster,
        now: Cell<Moment>,
    }

    impl Rig {
        fn new(pods: usize) -> Self {
            let now = Moment::now();
            let mut roster = Roster::new(&ProberSettings::default(), now);
            for pod in 0..pods {
                let mut probes = vec![planned(spec(ProbeKind::Liveness))];
                if pod == 0 {
                    let invalid = Invalid { reason: "wrong".to_owned(), handler: None };
                    let kind = ProbeKind::Readiness;
                    probes.push(Planned { kind, spec: Err(invalid), ..planned(spec(kind)) });
                }
                let view = Arc::new(container(&format!("p{pod}"), &format!("c{pod}"), 0));
                roster.accept(Input::Container { view, probes }, now);
            }
            Self { answers: Answers::default(), roster, now: Cell::new(now) }
        }

        fn pass(&self, time: Duration) -> Moment {
            let now = self.now.get();
            self.now.set(Moment { at: now.at + time, ..now });
            self.now.get()
        }

        fn give(&mut self) {
            let mut answers = std::mem::take(&mut self.answers);
            answers.give(&self.roster, || self.pass(Duration::from_millis(1)));
            self.answers = answers;
        }

        fn ask<T>(&mut self, question: fn(oneshot::Sender<T>) -> Question) -> oneshot::Receiver<T> {
            let (asker, answer) = oneshot::channel();
            self.answers.take(question(asker), &mut self.roster, self.now.get());
            self.give();
            answer
        }
    }

    #[test]
    fn row_20_those_who_ask_share_an_answer_and_what_is_asked_after_a_command_shows_it() {
        let mut rig = Rig::new(1);
        let first = rig.ask(Question::Probes).try_recv().unwrap();
        for _ in 0..5 {
            assert!(Arc::ptr_eq(&first, &rig.ask(Question::Probes).try_recv().unwrap()));
        }
        let key = ProbeKey { pod: "p0".into(), container: "app".into(), kind: ProbeKind::Liveness };
        let (answer, mut done) = oneshot::channel();
        let pause = Question::Command { key, command: ProbeCommand::Pause(PauseTerms::default()), answer };
        rig.answers.take(pause, &mut rig.roster, rig.now.get());
        assert_eq!(done.try_recv(), Ok(Ok(())), "a command is done at once");
        let mut waits = rig.ask(Question::Probes);
        assert!(waits.try_recv().is_err(), "an older answer is of no use");
        let deadline = rig.answers.deadline().unwrap();
        rig.pass(deadline.saturating_duration_since(rig.now.get().at));
        rig.give();
        let probes = waits.try_recv().unwrap();
        assert!(probes.iter().any(|probe| probe.phase == ProbePhase::Paused), "{probes:?}");
    }

    #[test]
    fn who_triggers_waits_for_the_end_of_that_attempt_and_not_too_many_wait() {
        let mut rig = Rig::new(1);
        let key = ProbeKey { pod: "p0".into(), container: "app".into(), kind: ProbeKind::Liveness };
        let trigger = |rig: &mut Rig| {
            let (answer, mut done) = oneshot::channel();
            let question = Question::Trigger { key: key.clone(), answer };
            rig.answers.take(question, &mut rig.roster, rig.now.get());
            done.try_recv().unwrap()
        };
        let mut waits: Vec<_> = (0..TRIGGERS_OF_PROBE).map(|_| trigger(&mut rig).unwrap()).collect();
        let refused = trigger(&mut rig).unwrap_err().to_string();
        assert!(refused.contains("4 clients already wait for attempts of this probe"), "{refused}");
        rig.give();
        assert_eq!(rig.answers.triggered.len(), TRIGGERS_OF_PROBE, "nothing has ended");
        drop(waits.pop());
        waits.push(trigger(&mut rig).unwrap());
        drop(waits.pop());
        rig.give();
        assert_eq!(rig.answers.triggered.len(), TRIGGERS_OF_PROBE - 1, "who left waits no more");
        assert_eq!(rig.roster.advance(rig.now.get()).len(), 1);
        rig.roster.finish(&key, Some(outcome(AttemptResult::Failure)), rig.now.get());
        rig.give();
        for mut wait in waits {
            let TriggerEnd::Made(made) = wait.try_recv().unwrap() else { panic!() };
            assert_eq!(made.result, AttemptResult::Failure);
        }
        assert!(rig.answers.triggered.is_empty());
    }

    #[test]
    fn those_who_wait_for_one_probe_or_one_namespace_leave_room_for_others() {
        let mut rig = Rig::new(0);
        let key =
            |pod: &str| ProbeKey { pod: pod.into(), container: "app".into(), kind: ProbeKind::Liveness };
        for namespace in 0..5 {
            for pod in 0..4 {
                let uid = format!("{namespace}-{pod}");
                let mut view = container(&uid, &uid, 0);
                Arc::make_mut(&mut view.pod).namespace = format!("n{namespace}").into();
                let probes = vec![planned(spec(ProbeKind::Liveness))];
                rig.roster.accept(Input::Container { view: Arc::new(view), probes }, rig.now.get());
            }
        }
        let mut waits = Vec::new();
        let mut trigger = |uid: &str| {
            let (answer, mut done) = oneshot::channel();
            let question = Question::Trigger { key: key(uid), answer };
            rig.answers.take(question, &mut rig.roster, rig.now.get());
            done.try_recv().unwrap().map(|wait| waits.push(wait)).map_err(|refusal| refusal.to_string())
        };
        let full = |refused: Result<(), String>, whose: &str| {
            let reason = refused.unwrap_err();
            assert!(reason.contains(&format!("clients already wait for attempts{whose} that")), "{reason}");
        };
        for namespace in 0..4 {
            for pod in 0..2 {
                let uid = format!("{namespace}-{pod}");
                for _ in 0..TRIGGERS_OF_PROBE {
                    trigger(&uid).unwrap();
                }
                full(trigger(&uid), " of this probe");
            }
            full(trigger(&format!("{namespace}-2")), " in this namespace");
        }
        full(trigger("4-0"), "");
        assert_eq!(trigger("4-9").unwrap_err(), CommandRefusal::Unknown.to_string());
    }

    #[test]
    fn the_counts_are_those_of_the_probes() {
        let mut rig = Rig::new(3);
        let mut counted: BTreeMap<(Verdict, ProbePhase), u64> = BTreeMap::new();
        for probe in rig.ask(Question::Probes).try_recv().unwrap().iter() {
            *counted.entry((probe.state, probe.phase)).or_default() += 1;
        }
        let counts = rig.ask(Question::Counts).try_recv().unwrap();
        assert_eq!(counts.by_state, counted);
        assert_eq!(counts.by_state.values().sum::<u64>(), 4);
        assert!(counts.by_state.contains_key(&(Verdict::Unknown, ProbePhase::Invalid)));
    }
}
