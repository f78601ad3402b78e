//! Budgets, fairness and bounds of what begins.

use proptest::prelude::*;

use super::*;
use crate::clock;

const SETTINGS: GuardSettings = GuardSettings { max_per_minute: 6, max_concurrent: 1 };

fn ask(container: &str, pod: &str, namespace: &str) -> Ask {
    let place = (pod.into(), "app".into());
    Ask { place, container: container.into(), namespace: namespace.into() }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Begins and ends what is next; its id.
fn act(guard: &mut Guard, now: Instant) -> Option<String> {
    let container = guard.next(now)?;
    guard.begin(&container, now);
    guard.release(&container, now);
    Some(container.to_string())
}

fn reasons(guard: &Guard, now: Instant) -> Vec<(String, String)> {
    let mut reasons: Vec<_> =
        guard.withheld(now).map(|(ask, reason)| (ask.container.to_string(), reason)).collect();
    reasons.sort();
    reasons
}

#[test]
fn twenty_demands_at_once_are_met_one_at_a_time_and_six_a_minute() {
    let start = clock::now();
    let mut guard = Guard::new(SETTINGS, [], start);
    for number in 0..20 {
        guard.ask(ask(&format!("c{number:02}"), &format!("p{number}"), "shop"), start);
    }
    assert!(reasons(&guard, start).is_empty(), "one may be tried");
    let first = guard.next(start).unwrap();
    guard.begin(&first, start);
    guard.ask(ask("c00", "p0", "shop"), start);
    assert_eq!((guard.next(start), guard.in_progress(), guard.last_minute(start)), (None, 1, 1));
    let withheld = reasons(&guard, start);
    assert_eq!(withheld.len(), 19, "not the one that is acted on");
    assert!(withheld.iter().all(|(_, reason)| reason == "another act is in progress (act.maxConcurrent)"));
    assert_eq!(guard.deadline(start), Some(start + STALE), "its end has no time");
    guard.release(&first, start);
    assert_eq!(guard.deadline(start), Some(start));
    for number in 1..6 {
        assert_eq!(act(&mut guard, start + seconds(number)), Some(format!("c0{number}")), "the oldest first");
    }
    let full = start + seconds(59);
    assert_eq!(guard.next(full), None);
    let reason = ("c06".to_owned(), "6 acts in the last minute (act.maxPerMinute)".to_owned());
    assert_eq!((reasons(&guard, full).len(), &reasons(&guard, full)[0]), (14, &reason));
    let free = start + seconds(60);
    assert_eq!(guard.deadline(full), Some(free));
    assert_eq!(act(&mut guard, free), Some("c06".to_owned()));
    assert_eq!(act(&mut guard, free), None);
    assert_eq!(guard.deadline(free), Some(start + seconds(61)));
}

#[test]
fn acts_before_our_start_count_in_the_minute() {
    let start = clock::now();
    let mut guard = Guard::new(SETTINGS, [5, 70, 10, 20, 30, 40, 50].map(seconds), start);
    guard.ask(ask("a", "p", "shop"), start);
    assert_eq!((guard.last_minute(start), guard.next(start)), (6, None));
    assert_eq!(guard.deadline(start), Some(start + seconds(10)));
    assert_eq!(act(&mut guard, start + seconds(10)), Some("a".to_owned()));
}

#[test]
fn other_budgets_apply_at_once_and_none_allows_nothing() {
    let start = clock::now();
    let mut guard = Guard::new(GuardSettings { max_per_minute: 0, max_concurrent: 1 }, [], start);
    guard.ask(ask("a", "p", "shop"), start);
    assert_eq!(guard.next(start), None);
    assert_eq!(guard.deadline(start), Some(start + STALE));
    guard.set(GuardSettings { max_per_minute: 2, max_concurrent: 2 });
    guard.ask(ask("b", "p", "shop"), start);
    guard.ask(ask("c", "p", "shop"), start);
    for _ in 0..2 {
        let container = guard.next(start).unwrap();
        guard.begin(&container, start);
    }
    guard.set(GuardSettings { max_per_minute: 9, max_concurrent: 2 });
    let reason = "2 acts are in progress (act.maxConcurrent)".to_owned();
    assert_eq!(reasons(&guard, start), [("c".to_owned(), reason)]);
}

#[test]
fn the_namespace_and_then_the_pod_with_the_fewest_acts_comes_first() {
    let start = clock::now();
    let mut guard = Guard::new(GuardSettings { max_per_minute: 99, max_concurrent: 1 }, [], start);
    for (container, pod, namespace) in [
        ("a1", "p1", "loud"),
        ("a2", "p1", "loud"),
        ("a3", "p1", "loud"),
        ("a4", "p2", "loud"),
        ("b1", "p3", "quiet"),
        ("b2", "p3", "quiet"),
    ] {
        guard.ask(ask(container, pod, namespace), start);
    }
    let order: Vec<_> = std::iter::from_fn(|| act(&mut guard, start)).collect();
    assert_eq!(order, ["a1", "b1", "a4", "b2", "a2", "a3"]);
    let later = start + RECENT;
    guard.ask(ask("b3", "p3", "quiet"), later - seconds(1));
    guard.ask(ask("a5", "p1", "loud"), later - seconds(1));
    assert_eq!(guard.next(later - seconds(1)), Some("b3".into()), "2 acts against 4");
    guard.withdraw(&"b3".into());
    guard.ask(ask("b4", "p3", "quiet"), later);
    assert_eq!(guard.next(later), Some("a5".into()), "all that is forgotten: the oldest");
}

#[test]
fn what_is_deferred_lets_others_pass_until_its_time() {
    let start = clock::now();
    let mut guard = Guard::new(SETTINGS, [], start);
    guard.ask(ask("a", "p", "shop"), start);
    guard.ask(ask("b", "p", "shop"), start);
    guard.defer(&"a".into(), "the probe is paused".to_owned(), start + seconds(5));
    assert_eq!(reasons(&guard, start), [("a".to_owned(), "the probe is paused".to_owned())]);
    assert_eq!(act(&mut guard, start), Some("b".to_owned()));
    assert_eq!((guard.next(start), guard.deadline(start)), (None, Some(start + seconds(5))));
    assert_eq!(guard.next(start + seconds(5)), Some("a".into()));
    guard.withdraw(&"a".into());
    assert_eq!((guard.next(start + seconds(5)), guard.deadline(start)), (None, None));
}

#[test]
fn a_demand_that_is_not_repeated_is_dropped() {
    let start = clock::now();
    let mut guard = Guard::new(SETTINGS, [], start);
    guard.ask(ask("a", "p", "shop"), start);
    guard.ask(ask("b", "p", "shop"), start);
    guard.ask(ask("b", "p", "shop"), start + seconds(1));
    assert_eq!(guard.next(start + STALE), Some("b".into()));
    assert_eq!(guard.next(start + STALE + seconds(1)), None);
}

#[test]
fn no_namespace_keeps_the_others_demands_out() {
    let start = clock::now();
    let mut guard = Guard::new(SETTINGS, [], start);
    for number in 0..MOST_WAITING + 10 {
        guard.ask(ask(&format!("c{number}"), "p", "loud"), start);
    }
    assert_eq!(guard.waiting.len(), MOST_WAITING);
    for number in 0..MOST_WAITING {
        guard.ask(ask(&format!("d{number}"), "q", "quiet"), start);
    }
    let quiet = guard.waiting.values().filter(|waiting| &*waiting.ask.namespace == "quiet").count();
    assert_eq!((guard.waiting.len(), quiet), (MOST_WAITING, MOST_WAITING / 2));
    assert!(guard.waiting.contains_key("c0"), "the oldest stay");
}

#[test]
fn what_is_remembered_is_bounded() {
    let start = clock::now();
    let mut guard = Guard::new(GuardSettings { max_per_minute: 5000, max_concurrent: 1 }, [], start);
    for number in 0..3000 {
        guard.ask(ask("c", "p", "shop"), start + Duration::from_millis(number));
        act(&mut guard, start + Duration::from_millis(number)).unwrap();
    }
    assert_eq!(guard.begun.len(), 3000, "the last minute");
    guard.ask(ask("c", "p", "shop"), start + seconds(64));
    assert_eq!(guard.begun.len(), MOST_REMEMBERED);
}

/// What may happen.
#[derive(Clone, Debug)]
enum Step {
    Ask(u8),
    Try,
    Defer(u8),
    End(u8),
    Withdraw(u8),
    Wait(u16),
    Set(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0u8..12).prop_map(Step::Ask),
        4 => Just(Step::Try),
        1 => (0u8..12).prop_map(Step::Defer),
        2 => (0u8..12).prop_map(Step::End),
        1 => (0u8..12).prop_map(Step::Withdraw),
        2 => (0u16..40_000).prop_map(Step::Wait),
        1 => (1usize..5, 1usize..4).prop_map(|(minute, at_once)| Step::Set(minute, at_once)),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #[test]
    fn the_budget_is_kept_and_what_it_allows_is_handed_out(steps in steps()) {
        let mut now = clock::now();
        let mut settings = GuardSettings { max_per_minute: 3, max_concurrent: 2 };
        let mut guard = Guard::new(settings, [], now);
        let (mut begins, mut running, mut waiting) = (Vec::new(), HashSet::new(), HashMap::new());
        for step in steps {
            let id = |number: u8| ContainerId::from(format!("c{number}"));
            match step {
                Step::Ask(number) => {
                    let namespace = format!("n{}", number % 3);
                    guard.ask(ask(&id(number).to_string(), &format!("p{}", number % 5), &namespace), now);
                    if !running.contains(&id(number)) {
                        waiting.entry(id(number)).or_insert((now, now)).0 = now;
                    }
                }
                Step::Try => {
                    waiting.retain(|_, (repeated, _)| now - *repeated < STALE);
                    let recent = begins.iter().filter(|begun| now - **begun < MINUTE).count();
                    let is_free = recent < settings.max_per_minute && running.len() < settings.max_concurrent;
                    let is_asked = waiting.values().any(|(_, until)| *until <= now);
                    let next = guard.next(now);
                    prop_assert_eq!(next.is_some(), is_free && is_asked);
                    prop_assert_eq!(guard.deadline(now) == Some(now), next.is_some());
                    let withheld = waiting.len() - guard.withheld(now).count();
                    prop_assert_eq!(withheld > 0, next.is_some(), "every other one has a reason");
                    if let Some(container) = next {
                        guard.begin(&container, now);
                        prop_assert!(waiting.remove(&container).is_some_and(|(_, until)| until <= now));
                        prop_assert!(running.insert(container));
                        begins.push(now);
                    }
                }
                Step::Defer(number) => {
                    let until = now + seconds(20);
                    guard.defer(&id(number), "later".to_owned(), until);
                    if let Some((_, deferred)) = waiting.get_mut(&id(number)) {
                        *deferred = until;
                    }
                }
                Step::End(number) => {
                    guard.release(&id(number), now);
                    running.remove(&id(number));
                }
                Step::Withdraw(number) => {
                    guard.withdraw(&id(number));
                    waiting.remove(&id(number));
                }
                Step::Wait(millis) => now += Duration::from_millis(millis.into()),
                Step::Set(max_per_minute, max_concurrent) => {
                    settings = GuardSettings { max_per_minute, max_concurrent };
                    guard.set(settings);
                }
            }
            prop_assert_eq!(guard.in_progress(), running.len());
        }
    }

    #[test]
    fn never_more_begin_within_any_minute_than_allowed(
        waits in prop::collection::vec(0u64..20_000, 1..200),
        max_per_minute in 1usize..8,
    ) {
        let start = clock::now();
        let (mut now, mut begins) = (start, Vec::new());
        let mut guard = Guard::new(GuardSettings { max_per_minute, max_concurrent: 1 }, [], start);
        for wait in waits {
            now += Duration::from_millis(wait);
            guard.ask(ask("c", "p", "shop"), now);
            if act(&mut guard, now).is_some() {
                begins.push(now);
            }
        }
        for window in begins.windows(max_per_minute + 1) {
            prop_assert!(window[max_per_minute] - window[0] >= MINUTE);
        }
        prop_assert!(!begins.is_empty());
    }
}
