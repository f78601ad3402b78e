//! Any order of events, sensible or not, ends in a legal state.

use super::*;

/// What may happen to a worker, in any order, sensible or not.
#[derive(Clone, Debug)]
enum Happening {
    Seen(u8, ContainerState),
    Started(bool),
    Stopping(bool),
    Acting(bool),
    Paused(bool),
    RuntimeAnswers,
    Triggered,
    Spread(u32),
    Due,
    SlotFreed,
    Finished(Option<AttemptResult>),
    Passed(u32),
}

fn happening() -> impl Strategy<Value = Happening> {
    let state = prop_oneof![
        1 => Just(ContainerState::Created),
        6 => Just(ContainerState::Running),
        1 => Just(EXITED),
        1 => Just(ContainerState::Unknown),
    ];
    let result = prop_oneof![
        Just(AttemptResult::Success),
        Just(AttemptResult::Warning),
        Just(AttemptResult::Failure),
        Just(AttemptResult::Error),
    ];
    prop_oneof![
        2 => (0u8..3, state).prop_map(|(id, state)| Happening::Seen(id, state)),
        1 => any::<bool>().prop_map(Happening::Started),
        1 => any::<bool>().prop_map(Happening::Stopping),
        1 => prop::bool::weighted(0.3).prop_map(Happening::Acting),
        1 => any::<bool>().prop_map(Happening::Paused),
        1 => Just(Happening::RuntimeAnswers),
        1 => Just(Happening::Triggered),
        1 => (0u32..10).prop_map(Happening::Spread),
        6 => Just(Happening::Due),
        6 => Just(Happening::SlotFreed),
        6 => prop::option::weighted(0.95, result).prop_map(Happening::Finished),
        4 => (0u32..15).prop_map(Happening::Passed),
    ]
}

proptest! {
    #[test]
    fn any_order_of_events_keeps_the_rules(
        kind in prop::sample::select(ProbeKind::ALL.as_slice()),
        (success, failure) in (1u32..4, 1u32..4),
        delay in 0u32..3,
        start in start::period(),
        happenings in prop::collection::vec(happening(), 1..200),
    ) {
        let spec = spec(kind, success, failure);
        let mut rig = Rig::new(ProbeSpec { initial_delay: delay * SECOND, start, ..spec });
        let mut in_flight = false;
        let mut is_forgiven = false;
        // The results that count, since a verdict ended the work last.
        let mut results: Vec<Verdict> = Vec::new();
        // What an act needs: failures in a row since something happened that may have mended the container.
        let (mut fresh, mut is_fresh) = (0, false);
        let (mut is_acted_on, mut container) = (false, None);
        for happening in happenings {
            let before = rig.worker.results().verdict();
            let is_stale = match &happening {
                Happening::Seen(id, _) if container != Some(*id) => {
                    container = Some(*id);
                    is_acted_on = false;
                    true
                }
                Happening::Seen(_, state) => *state != ContainerState::Running && !is_acted_on,
                Happening::Acting(begins) if kind != ProbeKind::Readiness => {
                    let is_given_up = is_acted_on && !begins;
                    is_acted_on = *begins;
                    is_given_up
                }
                Happening::RuntimeAnswers => true,
                Happening::Paused(false) => rig.worker.is_paused,
                _ => false,
            };
            if is_stale {
                (fresh, is_fresh) = (0, false);
            }
            let mut result = None;
            let event = match happening {
                Happening::Seen(id, state) => seen(&format!("c{id}"), state),
                Happening::Started(is_started) => WorkerEvent::Started(is_started),
                Happening::Stopping(is_stopping) => WorkerEvent::Stopping(is_stopping.then_some(Stopping::Pod)),
                Happening::Acting(is_acted_on) => WorkerEvent::Acting(is_acted_on),
                Happening::Paused(is_paused) => WorkerEvent::Paused(is_paused),
                Happening::RuntimeAnswers => WorkerEvent::RuntimeAnswers(SECOND),
                Happening::Triggered => WorkerEvent::Triggered(Duration::ZERO),
                Happening::Spread(seconds) => WorkerEvent::Spread(seconds * SECOND),
                Happening::Due => WorkerEvent::Due,
                Happening::SlotFreed => WorkerEvent::SlotFreed,
                Happening::Finished(_) if !in_flight => continue,
                Happening::Finished(ended) => {
                    in_flight = false;
                    result = ended;
                    WorkerEvent::Finished(ended.map(outcome))
                }
                Happening::Passed(seconds) => {
                    rig.pass(seconds * SECOND);
                    continue;
                }
            };
            let is_finished = matches!(event, WorkerEvent::Finished(_));
            let is_seen = matches!(event, WorkerEvent::Seen(_));
            let actions = rig.on(event);
            for action in &actions {
                if *action == Action::StartAttempt {
                    prop_assert!(!in_flight, "two attempts at once");
                    prop_assert_eq!(rig.block(), None, "an attempt in spite of a check");
                    prop_assert!(!is_acted_on, "an attempt in spite of an act");
                    in_flight = true;
                    is_fresh = true;
                    is_forgiven = rig.worker.is_starting(rig.now.at);
                }
            }
            let after = rig.worker.results().verdict();
            let is_disregarded = rig.worker.is_paused || is_acted_on;
            if let Some(verdict) = result.and_then(AttemptResult::verdict).filter(|_| !is_disregarded)
                && (!is_forgiven || verdict == Verdict::Success)
            {
                results.push(verdict);
                fresh = if verdict == Verdict::Failure { fresh + u32::from(is_fresh) } else { 0 };
            }
            if actions.iter().any(|action| matches!(action, Action::Demand { .. })) {
                prop_assert!(is_finished && is_fresh && !is_disregarded, "a demand out of nothing");
                prop_assert!(kind != ProbeKind::Readiness, "readiness never acts");
                prop_assert!(fresh >= failure, "a demand after {fresh} fresh failures of {failure}");
                prop_assert_eq!(after, Some(Verdict::Failure));
            }
            if after != before {
                prop_assert!(is_finished || is_seen, "a verdict out of nothing");
            }
            if is_finished && after != before {
                prop_assert!(!is_disregarded, "a verdict in spite of a pause or an act");
                let verdict = result.and_then(AttemptResult::verdict);
                prop_assert!(verdict.is_some(), "an error changed a verdict");
                let threshold = if verdict == Some(Verdict::Success) { success } else { failure } as usize;
                prop_assert_eq!(after, verdict);
                prop_assert!(results.len() >= threshold, "a verdict before its threshold");
                prop_assert!(results.iter().rev().take(threshold).all(|one| Some(*one) == verdict));
            }
            if rig.worker.results().run().count == 0 {
                results.clear();
            }
            let is_idle = !in_flight && !rig.worker.is_queued;
            let deadline = rig.worker.deadline();
            prop_assert!(is_idle || deadline.is_none(), "due while it is at work");
            match rig.block() {
                None => prop_assert_eq!(deadline.is_some(), is_idle),
                Some(Block::Delayed(until)) => prop_assert_eq!(deadline, is_idle.then_some(until)),
                Some(_) => prop_assert_eq!(deadline, None),
            }
        }
    }
}
