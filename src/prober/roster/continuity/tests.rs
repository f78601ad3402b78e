//! Probes over a restart, through the text that they are saved as.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use proptest::prelude::*;

use super::*;
use crate::{
    ids::ProbeKind,
    inventory::pod::{Container, ContainerState},
    prober::{
        Input, PauseTerms, ProbeCommand, ProbeStatus, ProberSettings,
        attempt::AttemptOutcome,
        fixtures::{container, outcome, planned, spec},
        status::ProbePhase,
    },
    results::{AttemptResult, Run, Verdict},
    spec::{ProbeSpec, StartPeriod},
};

use AttemptResult::{Error, Failure, Success, Warning};
use ProbeKind::{Liveness, Readiness, Startup};

const SECOND: Duration = Duration::from_secs(1);

/// One container `app` of the pod `web` with its probes, and a clock that only the test moves.
struct Rig {
    roster: Roster,
    now: Moment,
    view: Container,
    specs: Vec<ProbeSpec>,
}

impl Rig {
    fn new(specs: &[ProbeSpec]) -> Self {
        let now = Moment::now();
        let view = Container { started_at: Some(now.wall), ..container("web", "c1", 0) };
        let roster = Roster::new(&ProberSettings::default(), now);
        let mut rig = Self { roster, now, view, specs: specs.to_vec() };
        rig.show();
        rig
    }

    /// Shows the roster the container as it is.
    fn show(&mut self) {
        let probes = self.specs.iter().cloned().map(planned).collect();
        self.roster.accept(Input::Container { view: Arc::new(self.view.clone()), probes }, self.now);
    }

    /// Another roster, which knows only what this one had saved.
    fn restart(&mut self) {
        self.away(|_| ());
    }

    /// The same, with something that happens meanwhile.
    fn away(&mut self, meanwhile: impl FnOnce(&mut Self)) {
        let text = self.roster.save(self.now).to_json();
        self.pass(20 * SECOND);
        meanwhile(self);
        self.roster = Roster::new(&ProberSettings::default(), self.now);
        self.roster.restore(Saved::from_json(&text).unwrap());
        self.show();
        let all = [self.view.id.clone()].into_iter().collect();
        self.roster.accept(Input::Listed(Arc::new(all)), self.now);
    }

    fn replace(&mut self, id: &str) {
        self.view =
            Container { started_at: Some(self.now.wall), ..container("web", id, self.view.attempt + 1) };
    }

    fn pass(&mut self, time: Duration) {
        self.now = Moment { at: self.now.at + time, wall: self.now.wall + time };
    }

    /// The next attempt of whatever probe, should one come within its period and the spreading over it.
    fn attempt(&mut self, result: AttemptResult) -> Option<ProbeKind> {
        for _ in 0..30 {
            let jobs = self.roster.advance(self.now);
            if let [job] = &jobs[..] {
                self.roster.finish(&job.key, Some(outcome(result)), self.now);
                return Some(job.key.kind);
            }
            assert!(jobs.is_empty(), "one at a time");
            self.pass(SECOND);
        }
        None
    }

    fn attempts(&mut self, results: &[AttemptResult]) {
        for result in results {
            self.attempt(*result);
        }
    }

    fn command(&mut self, kind: ProbeKind, command: ProbeCommand) {
        // Some tests command what cannot be done.
        let _ = self.roster.command(&key(kind), command, self.now);
    }

    fn status(&self, kind: ProbeKind) -> ProbeStatus {
        self.roster.statuses(self.now).into_iter().find(|status| status.key.kind == kind).unwrap()
    }

    /// What a restart must not change, and what was reported of it.
    fn shown(&mut self, kind: ProbeKind) -> impl PartialEq + std::fmt::Debug + use<> {
        let reported: Vec<_> =
            self.roster.take_events().into_iter().map(|event| (event.reason, event.message)).collect();
        let status = self.status(kind);
        (status.state, status.phase, status.run, status.counts, reported)
    }
}

fn key(kind: ProbeKind) -> ProbeKey {
    ProbeKey { pod: "web".into(), container: "app".into(), kind }
}

#[test]
fn a_start_period_counts_from_the_containers_start_and_its_first_success_is_remembered() {
    let start = Some(StartPeriod { length: 45 * SECOND, interval: 5 * SECOND });
    let probe = ProbeSpec { start, failure_threshold: 1, ..spec(Liveness) };
    let mut rig = Rig::new(std::slice::from_ref(&probe));
    rig.attempts(&[Failure, Failure]);
    rig.restart();
    rig.attempt(Failure);
    assert_eq!(rig.status(Liveness).state, Verdict::Success, "25 s and more after the start");
    assert!(
        rig.status(Liveness).reason.starts_with("start period of 45s"),
        "{}",
        rig.status(Liveness).reason
    );
    rig.pass(20 * SECOND);
    rig.attempt(Failure);
    assert_eq!(rig.status(Liveness).state, Verdict::Failure, "the restart did not prolong it");

    let mut rig = Rig::new(&[probe]);
    rig.attempt(Success);
    rig.restart();
    rig.attempt(Failure);
    assert_eq!(rig.status(Liveness).state, Verdict::Failure, "it had succeeded before");
}

#[test]
fn a_run_goes_on_and_the_verdict_and_its_time_stay() {
    let mut rig = Rig::new(&[spec(Liveness)]);
    for result in [Success, Failure, Failure] {
        assert_eq!(rig.attempt(result), Some(Liveness));
    }
    let before = rig.status(Liveness);
    rig.roster.take_events();
    rig.restart();
    let after = rig.status(Liveness);
    assert_eq!((after.state, after.since), (Verdict::Success, before.since));
    assert_eq!((after.run, after.counts), (Run { verdict: Verdict::Failure, count: 2 }, before.counts));
    assert!(rig.roster.take_events().is_empty(), "nothing happened");
    rig.attempt(Failure);
    assert_eq!(
        (rig.status(Liveness).state, rig.status(Liveness).phase),
        (Verdict::Failure, ProbePhase::Probing)
    );
    rig.restart();
    assert_eq!(rig.status(Liveness).state, Verdict::Failure);
    assert_eq!(rig.attempt(Success), Some(Liveness), "it goes on");
    assert_eq!(rig.status(Liveness).state, Verdict::Success);
}

#[test]
fn a_container_that_has_started_lets_readiness_go_on_and_startup_rest() {
    let mut rig = Rig::new(&[spec(Startup), spec(Readiness)]);
    assert_eq!([rig.attempt(Success), rig.attempt(Success)], [Some(Startup), Some(Readiness)]);
    rig.restart();
    assert_eq!(rig.status(Startup).phase, ProbePhase::Held);
    assert_eq!(
        (rig.status(Readiness).state, rig.status(Readiness).phase),
        (Verdict::Success, ProbePhase::Probing)
    );
    assert_eq!(rig.attempt(Success), Some(Readiness));
}

#[test]
fn what_was_replaced_meanwhile_starts_anew_in_whatever_order_the_two_are_met() {
    for former_is_met_first in [false, true] {
        let mut rig = Rig::new(&[spec(Liveness)]);
        rig.attempts(&[Success, Failure, Failure]);
        rig.away(|rig| {
            if former_is_met_first {
                rig.view.state = ContainerState::Exited { exit_code: Some(1) };
            } else {
                rig.replace("c2");
            }
        });
        if former_is_met_first {
            rig.replace("c2");
            rig.show();
        }
        let status = rig.status(Liveness);
        assert_eq!((status.state, status.run.count, status.counts.total()), (Verdict::Success, 0, 0));
    }
}

#[test]
fn a_former_container_that_is_met_first_costs_the_current_one_nothing() {
    let mut rig = Rig::new(&[spec(Liveness)]);
    rig.replace("c2");
    rig.show();
    rig.attempts(&[Success, Failure, Failure]);
    let current = rig.view.clone();
    rig.away(|rig| {
        rig.view =
            Container { state: ContainerState::Exited { exit_code: Some(1) }, ..container("web", "c1", 0) };
    });
    assert_eq!(rig.roster.save(rig.now).probes[0].checkpoint.as_ref().unwrap().container.as_str(), "c2");
    rig.view = current;
    rig.show();
    let status = rig.status(Liveness);
    assert_eq!((status.state, status.run.count), (Verdict::Success, 2));
}

#[test]
fn a_probe_that_is_defined_otherwise_now_starts_anew() {
    let mut rig = Rig::new(&[spec(Liveness)]);
    rig.attempt(Failure);
    rig.away(|rig| rig.specs[0].failure_threshold = 2);
    assert_eq!((rig.status(Liveness).run.count, rig.status(Liveness).state), (0, Verdict::Unknown));
}

#[test]
fn a_container_that_ended_meanwhile_is_news() {
    let mut rig = Rig::new(&[spec(Readiness)]);
    rig.attempt(Success);
    rig.roster.take_events();
    rig.away(|rig| rig.view.state = ContainerState::Exited { exit_code: Some(1) });
    assert_eq!(rig.status(Readiness).state, Verdict::Failure);
    let reported: Vec<_> = rig.roster.take_events().into_iter().map(|event| event.reason.as_str()).collect();
    assert_eq!(reported, ["VerdictChanged"]);
}

#[test]
fn the_start_delay_still_counts_from_the_start() {
    let mut rig = Rig::new(&[ProbeSpec { initial_delay: 60 * SECOND, ..spec(Liveness) }]);
    rig.pass(10 * SECOND);
    rig.restart();
    assert_eq!(rig.attempt(Success), None, "20 s were away, 30 s have passed here");
    let status = rig.status(Liveness);
    assert_eq!(
        (status.state, status.phase),
        (Verdict::Success, ProbePhase::Probing),
        "its first verdict stays"
    );
}

#[test]
fn a_pause_binds_to_the_key_whatever_the_container() {
    let mut rig = Rig::new(&[spec(Liveness)]);
    rig.command(Liveness, ProbeCommand::Pause(PauseTerms::default()));
    rig.away(|rig| rig.replace("c2"));
    assert_eq!(rig.status(Liveness).phase, ProbePhase::Paused);
    assert_eq!(rig.attempt(Success), None);
    rig.restart();
    rig.command(Liveness, ProbeCommand::Resume);
    rig.restart();
    assert_eq!(rig.attempt(Success), Some(Liveness), "its end is kept, too");
}

#[test]
fn a_pause_keeps_its_end_and_its_reason_over_a_restart_and_ends_in_time() {
    let mut rig = Rig::new(&[spec(Liveness), spec(Readiness)]);
    let terms = |seconds: u32| PauseTerms { length: Some(seconds * SECOND), reason: "deploy".into() };
    for job in rig.roster.advance(rig.now) {
        rig.roster.finish(&job.key, Some(outcome(Success)), rig.now);
    }
    rig.command(Liveness, ProbeCommand::Pause(terms(30)));
    rig.command(Readiness, ProbeCommand::Pause(terms(10)));
    let pause = rig.status(Liveness).pause;
    rig.restart();
    assert_eq!(rig.status(Liveness).pause, pause);
    rig.roster.take_events();
    assert_eq!(rig.attempt(Success), Some(Readiness), "its end came during the restart");
    let (phase, messages) = (rig.status(Liveness).phase, |rig: &mut Rig| -> Vec<_> {
        rig.roster.take_events().into_iter().map(|event| event.message).collect()
    });
    assert_eq!(phase, ProbePhase::Paused);
    assert_eq!(messages(&mut rig), ["readiness of app is resumed: the pause is over"]);
    rig.pass(10 * SECOND);
    drop(rig.roster.advance(rig.now));
    assert_eq!((rig.status(Liveness).phase, rig.status(Liveness).pause), (ProbePhase::Probing, None));
    assert_eq!(messages(&mut rig), ["liveness of app is resumed: the pause is over"]);
}

#[test]
fn a_probe_that_is_resumed_after_a_restart_makes_an_attempt_at_once() {
    let mut rig = Rig::new(&[ProbeSpec { period: 300 * SECOND, ..spec(Liveness) }]);
    rig.attempt(Success);
    rig.command(Liveness, ProbeCommand::Pause(PauseTerms::default()));
    rig.restart();
    rig.command(Liveness, ProbeCommand::Resume);
    assert_eq!(rig.roster.advance(rig.now).len(), 1, "not within its period, as others after a restart");
}

#[test]
fn what_never_shows_up_is_saved_again_until_it_is_forgotten() {
    let mut rig = Rig::new(&[spec(Liveness), spec(Readiness)]);
    rig.command(Readiness, ProbeCommand::Pause(PauseTerms::default()));
    rig.attempt(Success);
    let saved = rig.roster.save(rig.now);
    let mut later = Roster::new(&ProberSettings::default(), rig.now);
    later.restore(saved.clone());
    let sorted = |saved: &Saved| String::from_utf8(saved.to_json()).unwrap();
    assert_eq!(sorted(&later.save(rig.now)), sorted(&saved));
    later.accept(Input::Listed(Arc::default()), rig.now);
    rig.pass(299 * SECOND);
    assert_eq!(later.save(rig.now).probes.len(), 2);
    rig.pass(SECOND);
    assert_eq!(later.save(rig.now).probes, []);
}

#[test]
fn a_clock_that_was_set_back_makes_nothing_stand_since_a_time_to_come() {
    let mut rig = Rig::new(&[spec(Liveness)]);
    rig.attempt(Success);
    rig.away(|rig| rig.now.wall = SystemTime::UNIX_EPOCH + SECOND);
    let status = rig.status(Liveness);
    assert_eq!((status.since, status.run.count), (rig.now.wall, 1));
}

#[test]
fn the_last_attempt_is_still_known_and_its_output_as_far_as_it_is_saved() {
    let mut rig = Rig::new(&[spec(Liveness)]);
    let jobs = rig.roster.advance(rig.now);
    let failed = AttemptOutcome { output: "no".repeat(200).into(), exit_code: Some(3), ..outcome(Failure) };
    rig.roster.finish(&jobs[0].key, Some(failed), rig.now);
    let before = rig.status(Liveness);
    rig.restart();
    let (after, last) = (rig.status(Liveness), rig.status(Liveness).last.unwrap());
    let was = before.last.unwrap();
    assert_eq!((last.at, last.result, last.exit_code), (was.at, Failure, Some(3)));
    assert_eq!((&*last.output, last.lag), (&*"no".repeat(128), None));
    assert_eq!((after.unsuccessful_at, after.history.attempts().len()), (before.unsuccessful_at, 1));
    assert_eq!(after.latency, None, "that begins again");
    rig.away(|rig| rig.replace("c2"));
    assert_eq!(rig.status(Liveness).last, None, "of another container nothing is known");
}

/// When attempts come in this time, to the second.
fn attempts_within(rig: &mut Rig, time: Duration) -> Vec<u64> {
    let began = rig.now.at;
    let mut came = Vec::new();
    while rig.now.at - began < time {
        for job in rig.roster.advance(rig.now) {
            came.push((rig.now.at - began).as_secs());
            rig.roster.finish(&job.key, Some(outcome(Success)), rig.now);
        }
        rig.pass(SECOND);
    }
    came
}

#[test]
fn a_probe_that_would_not_be_tried_for_long_after_a_restart_is_tried_once_and_then_keeps_its_beat() {
    let probe = |period: u32| ProbeSpec { period: period * SECOND, ..spec(Liveness) };
    let mut rig = Rig::new(&[probe(3_600)]);
    rig.attempt(Success);
    rig.restart();
    let came = attempts_within(&mut rig, 2 * 3_600 * SECOND);
    assert_eq!(came.len(), 3, "{came:?}");
    assert!(came[0] <= 10 && came[1] > 20 && came[1] < 3_600 && came[2] - came[1] == 3_600, "{came:?}");
    // A new container of a long period is not restored: its first attempt comes at once, and then its beat.
    rig.replace("c2");
    rig.show();
    assert_eq!(attempts_within(&mut rig, 3_600 * SECOND), [0]);
    let mut short = Rig::new(&[probe(20)]);
    short.attempt(Success);
    short.restart();
    let came = attempts_within(&mut short, 60 * SECOND);
    assert!(came.len() == 3 && came.windows(2).all(|pair| pair[1] - pair[0] == 20), "{came:?}");
}

#[test]
fn an_operators_trigger_and_a_pause_put_an_early_attempt_out_of_question() {
    let mut rig = Rig::new(&[ProbeSpec { period: 3_600 * SECOND, ..spec(Liveness) }]);
    rig.attempt(Success);
    rig.restart();
    assert!(rig.roster.advance(rig.now).is_empty());
    rig.command(Liveness, ProbeCommand::Trigger);
    assert_eq!(attempts_within(&mut rig, 3_700 * SECOND), [0, 3_600], "the beat counts from it");
}

#[derive(Clone, Debug)]
enum Step {
    Attempt(AttemptResult),
    Command(ProbeCommand),
    Replaced,
    Ended,
}

fn steps(lasting: bool) -> impl Strategy<Value = Vec<Step>> {
    let result = prop_oneof![3 => Just(Success), 1 => Just(Warning), 4 => Just(Failure), 1 => Just(Error)];
    let others = if lasting { 0 } else { 1 };
    let step = prop_oneof![
        12 => result.prop_map(Step::Attempt),
        1 => Just(Step::Command(ProbeCommand::Pause(PauseTerms::default()))),
        2 => Just(Step::Command(ProbeCommand::Resume)),
        others => Just(Step::Replaced),
        others => Just(Step::Ended),
    ];
    proptest::collection::vec(step, 0..12)
}

impl Rig {
    fn step(&mut self, kind: ProbeKind, step: &Step) {
        match step {
            Step::Attempt(result) => drop(self.attempt(*result)),
            Step::Command(command) => self.command(kind, command.clone()),
            Step::Replaced => {
                self.replace(&format!("c{}", self.view.attempt + 2));
                self.show();
            }
            Step::Ended => {
                self.view.state = ContainerState::Exited { exit_code: Some(1) };
                self.show();
            }
        }
    }
}

proptest! {
    #[test]
    fn a_probe_of_a_container_that_runs_on_goes_on_as_if_there_had_been_no_restart(
        kind in prop_oneof![Just(Startup), Just(Readiness), Just(Liveness)],
        successes in 1u32..4, failures in 1u32..4, before in steps(true), after in steps(false),
    ) {
        let success_threshold = if kind == Readiness { successes } else { 1 };
        let spec = ProbeSpec { success_threshold, failure_threshold: failures, ..spec(kind) };
        let (mut stayed, mut restarted) = (Rig::new(std::slice::from_ref(&spec)), Rig::new(&[spec]));
        for step in &before {
            stayed.step(kind, step);
            restarted.step(kind, step);
        }
        prop_assert_eq!(stayed.shown(kind), restarted.shown(kind));
        restarted.restart();
        prop_assert_eq!(stayed.shown(kind), restarted.shown(kind), "at the restart");
        for step in &after {
            stayed.step(kind, step);
            restarted.step(kind, step);
            prop_assert_eq!(stayed.shown(kind), restarted.shown(kind), "{:?}", step);
        }
    }
}
