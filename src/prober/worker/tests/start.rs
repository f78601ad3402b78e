//! The start period: failures are forgiven until the first success, and attempts have an interval of their own.

use super::*;
use crate::spec::StartPeriod;

/// None, or one of some seconds.
pub(super) fn period() -> impl Strategy<Value = Option<StartPeriod>> {
    prop::option::of((1u32..20, 1u32..4)).prop_map(|start| {
        start.map(|(length, interval)| StartPeriod { length: length * SECOND, interval: interval * SECOND })
    })
}

/// Liveness every 10 s, failing after 2, with 30 s to start in which it is tried every 4 s.
fn starting() -> ProbeSpec {
    let start = Some(StartPeriod { length: 30 * SECOND, interval: 4 * SECOND });
    ProbeSpec { start, ..spec(ProbeKind::Liveness, 1, 2) }
}

impl Rig {
    /// A running container that started so long ago.
    fn started(spec: ProbeSpec, ago: Duration) -> Self {
        let mut rig = Self::new(spec);
        rig.see("c1", ago);
        rig
    }

    fn see(&mut self, id: &str, ago: Duration) {
        let started_at = Some(self.now.wall - ago);
        let (id, state) = (id.into(), ContainerState::Running);
        self.on(WorkerEvent::Seen(Seen {
            id,
            attempt: 0,
            state,
            is_paused: false,
            created_at: None,
            started_at,
        }));
    }

    /// Seconds until the next attempt.
    fn wait(&self) -> u64 {
        let due = self.worker.deadline().expect("an attempt is due");
        due.saturating_duration_since(self.now.at).as_secs()
    }
}

#[test]
fn failures_do_not_count_until_the_period_is_over_and_come_at_its_interval() {
    let mut rig = Rig::started(starting(), Duration::ZERO);
    let began = rig.now.at;
    for number in 0..8 {
        assert!(rig.worker.is_starting(rig.now.at), "attempt {number}");
        rig.attempt(AttemptResult::Failure);
        assert_eq!((rig.verdict(), rig.wait()), ('S', 4), "attempt {number}");
        assert_eq!(rig.worker.results().run().count, 0);
    }
    assert_eq!(rig.worker.results().counts().failure, 8, "they are shown");
    rig.attempt(AttemptResult::Failure);
    assert_eq!((rig.now.at - began, rig.wait()), (32 * SECOND, 10), "and now the period is over");
    assert_eq!((rig.verdict(), rig.worker.results().run().count), ('S', 1));
    rig.attempt(AttemptResult::Failure);
    assert_eq!((rig.verdict(), rig.worker.is_failing()), ('F', true));
}

#[test]
fn the_first_success_ends_it() {
    for success in [AttemptResult::Success, AttemptResult::Warning] {
        let mut rig = Rig::started(starting(), Duration::ZERO);
        rig.attempt(AttemptResult::Failure);
        rig.attempt(success);
        assert_eq!((rig.worker.is_starting(rig.now.at), rig.wait()), (false, 10));
        rig.attempt(AttemptResult::Failure);
        rig.attempt(AttemptResult::Failure);
        assert_eq!(rig.verdict(), 'F', "24 s after the start");
    }
}

#[test]
fn an_error_is_neither_a_failure_nor_the_first_success() {
    let mut rig = Rig::started(starting(), Duration::ZERO);
    rig.attempt(AttemptResult::Error);
    assert_eq!((rig.worker.is_starting(rig.now.at), rig.wait()), (true, 4));
}

#[test]
fn an_attempt_that_began_in_time_is_forgiven_however_late_it_ends() {
    let mut rig = Rig::started(starting(), 29 * SECOND);
    assert!(rig.start());
    rig.pass(5 * SECOND);
    rig.on(WorkerEvent::Finished(Some(outcome(AttemptResult::Failure))));
    assert_eq!(rig.worker.results().run().count, 0);
    assert_eq!(rig.wait(), 5, "and the next comes a period after it was due");
}

#[test]
fn it_counts_from_the_start_of_the_container_whenever_we_meet_that() {
    for (ago, left) in [(0, true), (29, true), (30, false), (3000, false)] {
        let rig = Rig::started(starting(), ago * SECOND);
        assert_eq!(rig.worker.is_starting(rig.now.at), left, "{ago} s");
    }
    let mut rig = Rig::new(starting());
    rig.on(seen("c1", ContainerState::Created));
    rig.pass(100 * SECOND);
    assert!(!rig.worker.is_starting(rig.now.at), "one that does not run does not start");
    rig.on(seen("c1", ContainerState::Running));
    assert!(rig.worker.is_starting(rig.now.at));
    rig.see("c1", 40 * SECOND);
    assert!(!rig.worker.is_starting(rig.now.at), "a start that is reported late ends it");
}

#[test]
fn each_container_starts_anew() {
    let mut rig = Rig::started(starting(), Duration::ZERO);
    rig.attempt(AttemptResult::Success);
    rig.see("c2", Duration::ZERO);
    rig.attempt(AttemptResult::Failure);
    rig.attempt(AttemptResult::Failure);
    assert_eq!((rig.verdict(), rig.worker.is_starting(rig.now.at)), ('S', true));
}

#[test]
fn a_runtime_that_does_not_answer_is_spaced_out_from_the_interval() {
    let mut rig = Rig::started(starting(), Duration::ZERO);
    assert!(rig.start());
    rig.on(WorkerEvent::Finished(Some(AttemptOutcome {
        is_unanswered: true,
        ..outcome(AttemptResult::Error)
    })));
    assert_eq!(rig.wait(), 8);
}
