//! What was found, as tables and figures.

use std::time::Duration;

use crate::{
    accounts::Used,
    course::{Found, Idle, MODEST, MOST, Window},
    figure::{Figure, Limit},
    probing::Way,
    table::Table,
};

/// 1.5 ms: the most CPU time of an attempt by a session.
const EACH: f64 = 1.5;

/// 50 ms: the most lag of 99 of 100 attempts.
const LAG: f64 = 50.0;

/// 99 % of what is asked for is kept; windows do not begin with a period.
const KEPT: f64 = 99.0;

/// How many times cheaper than ExecSync a session is at least.
const CHEAPER: f64 = 15.0;

/// How many ExecSyncs the opening of a session costs at most.
const OPENING: f64 = 2.0;

/// 16 MiB: what 1,000 idle sessions take less than.
const MEMORY: f64 = 16.0;

/// What the machine does without attempts.
pub(crate) fn idle(idle: Option<&Idle>) -> String {
    let Some(Idle { without, with }) = idle else { return String::new() };
    let second = |used: &Used, time: Duration| millis(time) / used.took.as_secs_f64();
    format!(
        "Without attempts, a second takes {:.1} ms of CPU time of the machine, of which containerd and its shims take {:.1}; \
         with criprobe beside them, criprobe takes {:.1} and they {:.1}.",
        second(without, without.machine),
        second(without, without.shares.total()),
        second(with, with.shares.criprobe),
        second(with, with.shares.total() - with.shares.criprobe),
    )
}

/// CPU time by process.
pub(crate) fn costs(found: &Found) -> Table<10> {
    let row = |window: &Window| {
        let shares = window.used.shares;
        let each = |used: Duration| format!("{:.2}", millis(window.each(used)));
        [
            window.way.title().to_owned(),
            window.asked.to_string(),
            format!("{:.1}", window.rate()),
            each(shares.containerd),
            each(shares.shims),
            each(shares.runtime),
            each(shares.containers),
            each(shares.criprobe),
            each(shares.total()),
            beyond_idle(found, window).map_or_else(|| "-".to_owned(), each),
        ]
    };
    Table {
        title: "CPU time of an attempt, in ms".to_owned(),
        head: [
            "",
            "asked/s",
            "made/s",
            "containerd",
            "shims",
            "runtime",
            "container",
            "criprobe",
            "together",
            "machine",
        ],
        rows: found.windows.iter().map(row).collect(),
    }
}

/// Lag and duration.
pub(crate) fn times(found: &Found) -> Table<9> {
    let row = |window: &Window| {
        let attempts = &window.attempts;
        let time = |time: Option<Duration>| {
            time.map_or_else(|| "-".to_owned(), |time| format!("{:.1}", millis(time)))
        };
        [
            window.way.title().to_owned(),
            window.asked.to_string(),
            attempts.count().to_string(),
            attempts.by_session().to_string(),
            attempts.unsuccessful.to_string(),
            time(attempts.lag(50)),
            time(attempts.lag(99)),
            time(attempts.duration(50)),
            time(attempts.duration(99)),
        ]
    };
    Table {
        title: "Attempts, how late they began and how long they took, in ms".to_owned(),
        head: [
            "",
            "asked/s",
            "attempts",
            "by session",
            "no success",
            "lag p50",
            "lag p99",
            "took p50",
            "took p99",
        ],
        rows: found.windows.iter().map(row).collect(),
    }
}

/// What has to be reached.
pub(crate) fn figures(found: &Found) -> Vec<Figure> {
    let (sync, session) = (found.each(Way::SyncRunc), found.each(Way::SessionRunc));
    let most = found.window(Way::SessionRunc, MOST);
    let figure = |name: String, limit, found, unit| Figure { name, limit, found, unit };
    let mut figures = Vec::new();
    for asked in [MODEST, 100.0, MOST] {
        let window = found.window(Way::SessionRunc, asked);
        let each = window.map(|window| millis(window.each(window.used.shares.total())));
        figures.push(figure(
            format!("CPU time of an attempt by a session, at {asked} a second"),
            Limit::AtMost(EACH),
            each,
            " ms",
        ));
    }
    figures.extend([
        figure(
            format!("attempts by sessions, of {MOST} a second that are asked for"),
            Limit::AtLeast(KEPT),
            most.map(|most| most.attempts.by_session() as f64 / most.used.took.as_secs_f64() / MOST * 100.0),
            " %",
        ),
        figure(
            "their lag, p99".into(),
            Limit::AtMost(LAG),
            most.and_then(|most| most.attempts.lag(99)).map(millis),
            " ms",
        ),
        figure(
            format!(
                "ExecSync with runc costs as much as so many attempts by a session, both at {MODEST} a second"
            ),
            Limit::AtLeast(CHEAPER),
            ratio(sync, session),
            "",
        ),
        figure(
            "opening a session, in ExecSyncs".into(),
            Limit::AtMost(OPENING),
            ratio(found.opening.map(|opening| opening.opening), sync),
            "",
        ),
        figure(
            "that, in CPU time".into(),
            Limit::Open,
            found.opening.map(|opening| millis(opening.opening)),
            " ms",
        ),
        figure(
            "closing it, in CPU time".into(),
            Limit::Open,
            found.opening.map(|opening| millis(opening.closing)),
            " ms",
        ),
        figure(
            "memory that 1,000 idle sessions take in criprobe".into(),
            Limit::Below(MEMORY),
            found.memory.map(|memory| memory.of_thousand()[0]),
            " MiB",
        ),
        figure(
            "in containerd and its shims".into(),
            Limit::Open,
            found.memory.map(|memory| memory.of_thousand()[1]),
            " MiB",
        ),
    ]);
    for window in &found.windows {
        figures.push(figure(
            format!(
                "the machine's busy time that is in no account, {} at {}",
                window.way.title(),
                window.asked
            ),
            Limit::Open,
            beyond_idle(found, window).map(|machine| {
                (machine.as_secs_f64() / window.used.shares.total().as_secs_f64() - 1.0) * 100.0
            }),
            " %",
        ));
    }
    figures
}

/// What the machine was busy in a window, less what it is when nothing is attempted.
fn beyond_idle(found: &Found, window: &Window) -> Option<Duration> {
    let idle = found.idle?.without;
    let share = window.used.took.as_secs_f64() / idle.took.as_secs_f64();
    Some(window.used.machine.saturating_sub(idle.machine.mul_f64(share)))
}

fn ratio(of: Option<Duration>, to: Option<Duration>) -> Option<f64> {
    Some(of?.as_secs_f64() / to?.as_secs_f64())
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
