//! What the prober's task is asked: questions in; commands done and answers out. Those who ask the same within a short time
//! share an answer, but one that was asked for after a command shows what was done. Pure but for the answers it sends.

use std::time::Instant;

use super::{ContainerStatus, Listed, Moment, ProbeStatus, Question, roster::Roster, status::ProbeCounts};
use crate::stage::SharedAnswer;

/// The questions that wait, by what they ask for.
#[derive(Debug, Default)]
pub(super) struct Answers {
    counts: SharedAnswer<ProbeCounts>,
    probes: SharedAnswer<Vec<ProbeStatus>>,
    containers: SharedAnswer<Vec<ContainerStatus>>,
    plans: SharedAnswer<Vec<Listed>>,
}

impl Answers {
    /// Whether another question may be taken, whatever it asks for.
    pub(super) fn has_room(&self) -> bool {
        let Self { counts, probes, containers, plans } = self;
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
                    self.counts.outdate();
                    self.probes.outdate();
                    self.containers.outdate();
                }
                // The operator may have left.
                let _ = answer.send(done);
            }
            Question::Standing { key, container, answer } => {
                let _ = answer.send(roster.standing(&key, &container));
            }
        }
    }

    /// Answers what may be answered now; `now` reads the time.
    pub(super) fn give(&mut self, roster: &Roster, now: impl Fn() -> Moment) {
        let at = || now().at;
        self.counts.answer(|| roster.counts(now()), at);
        self.probes.answer(|| roster.statuses(now()), at);
        self.containers.answer(|| roster.containers(now()), at);
        self.plans.answer(|| roster.plans(), at);
    }

    /// When [`Self::give`] is to be called next, at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let Self { counts, probes, containers, plans } = self;
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
            Input, ProbeCommand, ProberSettings,
            fixtures::{container, planned, spec},
            status::ProbePhase,
        },
        results::Verdict,
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
        let pause = Question::Command { key, command: ProbeCommand::Pause, answer };
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
