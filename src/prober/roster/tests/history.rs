//! How much is kept of attempts: by default, by a rule, after a reload, and on the whole node.

use super::*;
use crate::{prober::outputs::Outputs, results::history::HistoryLimits};

/// A probe in a pod of its own that is to keep this.
fn input_of(pod: usize, history: HistoryRule) -> Input {
    let view = Arc::new(container(&format!("p{pod}"), &format!("c{pod}"), 0));
    Input::Container { view, probes: vec![Planned { history, ..planned(spec(Liveness)) }] }
}

/// Makes so many attempts of each probe, each of which says something else.
fn attempts(rig: &mut Rig, count: usize) {
    for number in 0..count {
        for job in rig.roster.advance(rig.now) {
            let output = format!("{number:02}{}", "x".repeat(98)).into();
            let said = crate::prober::attempt::AttemptOutcome { output, ..outcome(AttemptResult::Failure) };
            rig.roster.finish(&job.key, Some(said), rig.now);
        }
        rig.pass(10 * SECOND);
    }
}

/// How many attempts are kept of each probe, and how much of what the oldest said.
fn kept(rig: &Rig) -> Vec<(usize, usize)> {
    let statuses = rig.roster.statuses(rig.now).into_iter();
    let history = |status: ProbeStatus| {
        let mut attempts = status.history.attempts();
        (attempts.len(), attempts.next().map_or(0, |oldest| oldest.output.len()))
    };
    statuses.map(history).collect()
}

#[test]
fn a_rule_decides_before_the_setting_and_a_reload_trims_at_once() {
    let mut rig = Rig::new(8);
    let rule = |attempts| HistoryRule { attempts, output_bytes: None };
    for (pod, history) in [rule(None), rule(Some(5))].into_iter().enumerate() {
        rig.accept(input_of(pod, history));
    }
    attempts(&mut rig, 40);
    assert_eq!(kept(&rig), [(32, 100), (5, 100)]);
    let history = HistoryLimits { attempts: 7, output_bytes: 3 };
    rig.roster.set_limits(&ProberSettings { history, ..ProberSettings::default() }, rig.now);
    assert_eq!(kept(&rig), [(7, 3), (5, 3)]);
    assert_eq!(rig.status(Liveness).last.map(|last| last.output.len()), Some(3), "and of the last one");
    rig.accept(input_of(1, rule(None)));
    attempts(&mut rig, 9);
    assert_eq!(kept(&rig), [(7, 3), (7, 3)], "the rule was changed");
    rig.accept(input_of(0, HistoryRule { attempts: Some(2), output_bytes: Some(9) }));
    attempts(&mut rig, 1);
    assert_eq!(kept(&rig), [(2, 3), (7, 3)]);
    attempts(&mut rig, 1);
    assert_eq!(kept(&rig), [(2, 9), (7, 3)], "what was cut stays so");
    assert_eq!(rig.status(Liveness).last.map(|last| last.output.len()), Some(100));
}

#[test]
fn all_probes_together_keep_so_many_attempts_whatever_each_of_them_may() {
    let now = Moment::now();
    let history = HistoryLimits { attempts: 1_000, output_bytes: 0 };
    let settings = ProberSettings { history, workers: 512, ..ProberSettings::default() };
    let mut rig = Rig { roster: Roster::new(&settings, now), now };
    rig.roster.memory.attempts = Outputs::new(1_000, 4);
    const PROBES: usize = 20;
    (0..PROBES).for_each(|pod| rig.accept(input_of(pod, HistoryRule::default())));
    attempts(&mut rig, 100);
    let kept: Vec<_> = kept(&rig).into_iter().map(|(attempts, _)| attempts).collect();
    assert!(kept.iter().sum::<usize>() <= 1_000, "{kept:?}");
    assert!(kept.iter().all(|attempts| (32..=50).contains(attempts)), "each has its share: {kept:?}");
    (1..PROBES).for_each(|pod| rig.accept(Input::ContainerGone(format!("c{pod}").into())));
    attempts(&mut rig, 1_000);
    assert_eq!(self::kept(&rig)[0].0, 1_000, "there is room again");
}

#[test]
fn each_attempt_is_passed_on_once_with_what_came_of_it() {
    let mut rig = Rig::new(8);
    rig.accept(input_of(0, HistoryRule { attempts: None, output_bytes: Some(4) }));
    attempts(&mut rig, 3);
    let made = rig.roster.take_attempts();
    let said: Vec<_> = made.iter().map(|made| (&*made.record.output, made.state)).collect();
    let (before, after) = (Verdict::Success, Verdict::Failure);
    assert_eq!(said, [("00xx", before), ("01xx", before), ("02xx", after)]);
    assert_eq!(&*made[0].view.pod.name, "p0");
    assert!(rig.roster.take_attempts().is_empty());
    let jobs = rig.roster.advance(rig.now);
    rig.roster.finish(&jobs[0].key, None, rig.now);
    assert!(rig.roster.take_attempts().is_empty(), "one that was given up is none");
}
