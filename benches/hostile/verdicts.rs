//! The figures that a hostile pod must not spoil: what the course found in, names, limits and values out. Pure.

use std::time::Duration;

use crate::{
    caller::Calls,
    course::{Course, Found, MEMORY_GROWN},
    figure::{Figure, Limit},
    schedule::{Judged, Window},
};

/// 1 s, the period of well-behaved probes.
const PERIOD: Duration = Duration::from_secs(1);

/// All figures; an hour's worth of attempts is one if that was asked for.
pub(crate) fn figures(course: &Course, is_long: bool) -> Vec<Figure> {
    let mut figures = of_probes(course);
    figures.extend(of_relay(course));
    figures.extend(of_daemon(course));
    figures.extend(of_hostile(course, is_long));
    figures.extend(of_rest(course));
    figures
}

fn of_probes(course: &Course) -> Vec<Figure> {
    let (quiet, loud) = (windows(&course.without), windows(&course.with));
    // No hostile pod was there before the end of the first of them.
    let Some(calm) = quiet.first() else { return Vec::new() };
    let without = Judged::of(&course.attempts, PERIOD, *calm, &quiet);
    let with = Judged::of(&course.attempts, PERIOD, *calm, &loud);
    let counted = |place: fn(&Found) -> u64| course.with.iter().map(place).sum::<u64>() as f64;
    let (all, bad) = (counted(|found| found.counted.0), counted(|found| found.counted.1));
    vec![
        figure("well-behaved: due attempts lost", Limit::Below(0.1), with.lost(), " %"),
        figure("the same without the hostile pod", Limit::Open, without.lost(), " %"),
        figure("well-behaved: start lag, p99", Limit::AtMost(100.0), with.lag(99), " ms"),
        figure("the same without the hostile pod", Limit::Open, without.lag(99), " ms"),
        figure("well-behaved: longest start lag", Limit::Open, with.lag(100), " ms"),
        figure(
            "well-behaved: attempts that did not succeed",
            Limit::Below(0.1),
            (all > 0.0).then(|| bad * 100.0 / all),
            " %",
        ),
        open("well-behaved: attempts due", with.due as f64, ""),
    ]
}

fn of_relay(course: &Course) -> Vec<Figure> {
    let p99 = |founds: &[Found]| median(founds.iter().filter_map(|found| found.relayed.percentile(99)));
    let longest =
        |founds: &[Found]| founds.iter().filter_map(|found| found.relayed.longest()).reduce(f64::max);
    let relayed = ratios(course, |found| &found.relayed);
    let direct = ratios(course, |found| &found.direct);
    // Of the client whose calls are relayed: next to nothing else passes the relay.
    let waited = |founds: &[Found]| {
        let calls: usize = founds.iter().map(|found| found.relayed.count()).sum();
        let waited: Duration = founds.iter().map(|found| found.waited).sum();
        (calls > 0).then(|| waited.as_secs_f64() * 1e6 / calls as f64)
    };
    let both = || course.without.iter().chain(&course.with);
    let failed: usize = both().map(|found| found.relayed.failed).sum();
    let calls: usize = both().map(|found| found.relayed.count()).sum();
    vec![
        figure(
            "relayed ExecSync: p99, ratio to that without the pod",
            Limit::AtMost(1.5),
            median(relayed.iter().copied()),
            "",
        ),
        figure("the same, least of a round", Limit::Open, relayed.first().copied(), ""),
        figure("the same, most of a round", Limit::Open, relayed.last().copied(), ""),
        figure("relayed ExecSync: p99", Limit::Open, p99(&course.with), " us"),
        figure("the same without the hostile pod", Limit::Open, p99(&course.without), " us"),
        figure(
            "ExecSync past criprobe: p99, the same ratio",
            Limit::Open,
            median(direct.iter().copied()),
            "",
        ),
        figure("the same, least of a round", Limit::Open, direct.first().copied(), ""),
        figure("the same, most of a round", Limit::Open, direct.last().copied(), ""),
        figure("relay threads: wait for a processor, of a call", Limit::Open, waited(&course.with), " us"),
        figure("the same without the hostile pod", Limit::Open, waited(&course.without), " us"),
        figure("relayed ExecSync: longest", Limit::Open, longest(&course.with).map(|us| us / 1e3), " ms"),
        figure(
            "the same without the hostile pod",
            Limit::Open,
            longest(&course.without).map(|us| us / 1e3),
            " ms",
        ),
        figure("relayed calls that failed", Limit::AtMost(0.0), Some(failed as f64), ""),
        open("relayed calls", calls as f64, ""),
    ]
}

fn of_daemon(course: &Course) -> Vec<Figure> {
    let most = |founds: &[Found], of: fn(&Found) -> f64| founds.iter().map(of).reduce(f64::max);
    let cores = |founds: &[Found]| median(founds.iter().map(|found| found.cores));
    vec![
        figure("memory, most", Limit::AtMost(64.0), most(&course.with, |found| found.peak), " MiB"),
        figure(
            "the same without the hostile pod",
            Limit::Open,
            most(&course.without, |found| found.peak),
            " MiB",
        ),
        figure("CPU", Limit::Open, cores(&course.with), " cores"),
        figure("the same without the hostile pod", Limit::Open, cores(&course.without), " cores"),
    ]
}

/// A hostile pod that does nothing would reach all figures: that it did its worst is one, too.
fn of_hostile(course: &Course, is_long: bool) -> Vec<Figure> {
    let (tricks, met) = (course.tricks.0 as f64, course.tricks.1.len() as f64);
    let stayed: f64 = course.with.iter().map(|found| found.window.length().as_secs_f64()).sum();
    let rate = course.hostile as f64 / stayed;
    let hours = course.hostile_in_all as f64 / (rate * 3600.0);
    let limit = if is_long { Limit::AtLeast(1.0) } else { Limit::Open };
    vec![
        figure("hostile: probes attempted, or listed as invalid", Limit::AtLeast(tricks), Some(met), ""),
        open("hostile: attempts a second of one pod", rate, ""),
        open("hostile: attempts of all pods", course.hostile_in_all as f64, ""),
        figure(
            "hostile: the same, as time of one pod at that rate",
            limit,
            Some(hours).filter(|hours| hours.is_finite()),
            " h",
        ),
        open("hostile: pods that came and went", course.pods as f64, ""),
    ]
}

fn of_rest(course: &Course) -> Vec<Figure> {
    let (before, after) = (course.before, course.after);
    let grown = after.memory - course.halfway.memory;
    let none = Limit::AtMost(0.0);
    let more = |before: usize, after: usize| Some(after as f64 - before as f64);
    vec![
        figure("left over: descriptors", none, more(before.descriptors, after.descriptors), ""),
        figure("left over: threads", none, more(before.threads, after.threads), ""),
        figure("left over: connections and commands", none, Some(course.open as f64), ""),
        figure("left over: probes listed", none, Some(course.listed as f64), ""),
        figure(
            "memory: grown in the second half of the attempts",
            Limit::AtMost(MEMORY_GROWN),
            Some(grown),
            " MiB",
        ),
        open("memory: more than before the first hostile pod", after.memory - before.memory, " MiB"),
        open("before: descriptors", before.descriptors as f64, ""),
        open("before: memory", before.memory, " MiB"),
        figure(
            "nothing left over after",
            Limit::Open,
            course.quiet_after.map(|after| after.as_secs_f64()),
            " s",
        ),
    ]
}

/// The p99 of some calls with the hostile pod over that without it, of each round, sorted. The two windows of a round
/// follow each other, so that slow changes of the machine's speed affect both.
fn ratios(course: &Course, of: fn(&Found) -> &Calls) -> Vec<f64> {
    let rounds = course.without.iter().zip(&course.with);
    let mut ratios: Vec<f64> = rounds
        .filter_map(|(without, with)| Some(of(with).percentile(99)? / of(without).percentile(99)?))
        .collect();
    ratios.sort_by(f64::total_cmp);
    ratios
}

fn windows(founds: &[Found]) -> Vec<Window> {
    founds.iter().map(|found| found.window).collect()
}

fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2)?;
    let lower = values.get(values.len().saturating_sub(1) / 2)?;
    Some((lower + upper) / 2.0)
}

fn open(name: &str, found: f64, unit: &'static str) -> Figure {
    figure(name, Limit::Open, Some(found), unit)
}

fn figure(name: &str, limit: Limit, found: Option<f64>, unit: &'static str) -> Figure {
    Figure { name: name.to_owned(), limit, found, unit }
}
