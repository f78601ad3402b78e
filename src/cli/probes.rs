//! `criprobe probes`: probes as a table or for machines.

mod watch;

use std::time::SystemTime;

use super::{
    Context, Error, Exit, banner,
    describe::definition,
    format::{self, Format},
    live::LiveArgs,
    nothing,
    reason::one_line,
    screen::{Paint, fit, print},
    select::{Names, Select},
    span::{age, configured, measured},
    table::{Cell, Column, Table, Tight},
};
use crate::{
    clock,
    report::{
        filter::{Glob, ProbeFilter, Since, kind, since},
        printable::printable,
        view::{AttemptResult, AttemptView, LatencyView, ProbePhase, ProbeView, Run, Verdict},
    },
};

/// Flags of the verb.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ProbesArgs {
    #[command(flatten)]
    select: Select,
    /// Only this type: startup, readiness, liveness, observed-N
    #[arg(long = "type", value_name = "TYPE", value_parser = kind)]
    kind: Option<Glob>,
    /// Only probes that changed or did not succeed since then: 10m, 14:05 (UTC), 2026-11-20T14:05:00Z
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = since)]
    since: Option<Since>,
    #[command(flatten)]
    live: LiveArgs,
    /// Exit with 1 if a listed probe has the verdict failure, cannot be tried or is invalid, a pod's annotations are wrong,
    /// or the runtime is away, and print why; what a client stops on purpose does not count
    #[arg(long, conflicts_with = "watch")]
    check: bool,
}

const EXAMPLES: &str = "\
Examples:
  criprobe probes                                 all probes
  criprobe probes -w                              live, what fails first
  criprobe probes shop -w --failed                live, only what fails in namespace shop
  criprobe probes shop/web-0 --check && echo ok   in a script
  criprobe probes --since 10m                     what changed or went wrong lately
  criprobe probes -o json | jq '.[] | select(.state == \"failure\") | .id'

STATE is the verdict after thresholds. PHASE is what the probe is doing: waiting (no running
container, a paused one, start delay, startup gate), probing, held (the verdict is final until a new
container starts), paused (by 'criprobe pause'), invalid, stopped. RUN counts equal results in a
row, LAST is the newest attempt, AGE the time since the last change. A narrow terminal shows fewer
columns, -o wide shows more. An attempt that ends with an error changes no verdict: after as many in
a row as failures make a verdict, the probe counts as failing, and the line below says since when it
cannot be tried.

A live list is left with q. Arrows, PgUp, PgDn, g and G scroll, f switches between all probes and
those that fail or are invalid, s changes the order. It waits for a daemon that restarts, and shows
the last data meanwhile. Without a terminal, -w prints one line per change.

observed-N is a probe that a client runs itself. criprobe recognises it by its rhythm and only
watches it. Its state is its last result, because the client's thresholds are not known.";

impl ProbesArgs {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, Error> {
        let names = self.select.names()?;
        let Names { namespace, pod, container } = names.clone();
        let is_filtered = !names.is_empty() || self.kind.is_some();
        // What is wrong with a pod's annotations may be why it has no such probe.
        let is_of_pods = self.kind.is_none() && self.since.is_none();
        let filter = ProbeFilter { namespace, pod, container, kind: self.kind, since: self.since };
        let path = format!("/v1/probes{}", filter.to_query());
        if self.live.watch {
            return self.live.watch::<ProbeView>(context, &path).await;
        }
        let mut probes: Vec<ProbeView> = context.client.get(&path).await?;
        let is_known =
            if probes.is_empty() { nothing::known(context, &names, self.check).await } else { Ok(()) };
        let is_asked = is_of_pods && is_known.is_ok() && (self.check || probes.is_empty());
        let problems = if is_asked { names.problems(context).await? } else { Vec::new() };
        self.live.choose(&mut probes);
        let is_data = matches!(context.format, Format::Json | Format::Yaml);
        let mut text = banner::text(context).await;
        if is_known.is_ok() || is_data {
            text += &render(&probes, context, clock::wall());
            for problem in problems.iter().filter(|_| !self.check && !is_data) {
                text += &format!("{}\n", context.screen.legible(printable(problem).into_owned()));
            }
        }
        print(&text)?;
        is_known?;
        if !self.check {
            return Ok(Exit::Fine);
        }
        let checked = check(&probes, &problems, is_filtered, clock::wall());
        Ok(match banner::words(context).await {
            Some(away) if checked != Exit::Usage => Exit::Failed.because(&away),
            Some(_) | None => checked,
        })
    }
}

/// Reports failing and invalid probes and wrong annotations for `--check`, one line each. A filter that matches no probe checks
/// nothing, which is a mistake; a node without any probe is fine.
fn check(probes: &[ProbeView], problems: &[String], is_filtered: bool, now: SystemTime) -> Exit {
    if probes.is_empty() && problems.is_empty() {
        let exit = if is_filtered { Exit::Usage } else { Exit::Fine };
        return exit.because(&"nothing was checked: no probe matches");
    }
    let faults = probes.iter().filter_map(|probe| fault(probe, now));
    let faults = faults.chain(problems.iter().map(|problem| fit(problem, MOST_WORDS)));
    faults.fold(Exit::Fine, |_, fault| Exit::Failed.because(&fault))
}

/// `default/web/app/liveness: failure for 3m20s: the container exited with code 1`; `default/web/app/liveness: success for 1h,
/// but not known now: cannot be tried since ...`.
fn fault(probe: &ProbeView, now: SystemTime) -> Option<String> {
    let what = if probe.phase == ProbePhase::Invalid && !probe.stopped_by_client {
        "invalid".to_owned()
    } else if probe.is_failing() {
        let unknown = if probe.state == Verdict::Failure { "" } else { ", but not known now" };
        format!("{} for {}{unknown}", probe.state.as_str(), age(probe.since.0, now))
    } else {
        return None;
    };
    let why = explanation(probe);
    let why = if why.is_empty() { String::new() } else { format!(": {}", fit(&why, MOST_WORDS)) };
    Some(format!("{}: {what}{why}", probe.id))
}

/// 300 columns of why a probe fails: the rest is in `criprobe describe`.
pub(super) const MOST_WORDS: usize = 300;

fn render(probes: &[ProbeView], context: &Context, now: SystemTime) -> String {
    match context.format {
        Format::Json => format::json(&probes),
        Format::Yaml => format::yaml(&probes),
        Format::Table | Format::Wide if probes.is_empty() => "no probes\n".to_owned(),
        Format::Table => lines(&table(probes, now).render(context.screen, Some(context.screen.width))),
        Format::Wide => lines(&wide(probes, now).render(context.screen, None)),
    }
}

fn lines(lines: &[String]) -> String {
    lines.join("\n") + "\n"
}

/// What fits a terminal: a row a probe, and a line below those that need explaining.
pub(crate) fn table<'a>(probes: impl IntoIterator<Item = &'a ProbeView>, now: SystemTime) -> Table {
    let mut table = Table::new(COLUMNS.to_vec());
    for probe in probes {
        table.row(cells(probe, now));
        if needs_explaining(probe) {
            table.note(Cell::new(&explanation(probe), Paint::Faint));
        }
    }
    table
}

/// The same of one pod, which is not named.
pub(super) fn of_pod(probes: &[ProbeView], now: SystemTime) -> Table {
    let mut table = Table::new(COLUMNS[1..].to_vec());
    for probe in probes {
        table.row(cells(probe, now).split_off(1));
        if needs_explaining(probe) {
            table.note(Cell::new(&explanation(probe), Paint::Faint));
        }
    }
    table
}

const COLUMNS: [Column; 9] = [
    Column { name: "NAMESPACE/POD", tight: Tight::Shrinks },
    Column { name: "CONTAINER", tight: Tight::Shrinks },
    Column { name: "TYPE", tight: Tight::Stays },
    Column { name: "HANDLER", tight: Tight::GoesFirst },
    Column { name: "STATE", tight: Tight::Stays },
    Column { name: "PHASE", tight: Tight::GoesNext },
    Column { name: "RUN", tight: Tight::GoesNext },
    Column { name: "LAST", tight: Tight::GoesLast },
    Column { name: "AGE", tight: Tight::Stays },
];

/// All of it, a row a probe.
fn wide<'a>(probes: impl IntoIterator<Item = &'a ProbeView>, now: SystemTime) -> Table {
    let more = [
        "SOURCE",
        "PERIOD",
        "ON-FAILURE",
        "ATTEMPT",
        "CONTAINER-ID",
        "COUNTS",
        "LATENCY",
        "REASON",
        "OUTPUT",
    ];
    let more = more.map(|name| Column { name, tight: Tight::Stays });
    let mut table = Table::new(COLUMNS.into_iter().chain(more).collect());
    for probe in probes {
        let mut row = cells(probe, now);
        let counts = &probe.counts;
        row.extend([
            Cell::from(&*probe.source),
            probe.period_seconds.map(|period| configured(period.0)).unwrap_or_default().into(),
            on_failure(probe).into(),
            probe.attempt.to_string().into(),
            (&*probe.container_id).into(),
            format!("{}/{}/{}/{}", counts.success, counts.warning, counts.failure, counts.error).into(),
            probe.latency.map(|latency| latency_cell(&latency)).unwrap_or_else(|| "".into()),
            one_line(&probe.reason).into(),
            last_output(probe).into(),
        ]);
        table.row(row);
    }
    table
}

/// `p50 12ms p99 340ms`; with a mark where that is near the timeout or over it.
fn latency_cell(latency: &LatencyView) -> Cell {
    let (p50, p99) = (measured(latency.p50_seconds.0), measured(latency.p99_seconds.0));
    match latency.beside_timeout() {
        None => format!("p50 {p50} p99 {p99}").into(),
        Some(word) => Cell::new(&format!("p50 {p50} p99 {p99} ({word} the timeout)"), Paint::Doubtful),
    }
}

/// What a failure does; where less than is asked for, why.
fn on_failure(probe: &ProbeView) -> String {
    let asked = probe.on_failure_asked.as_ref().zip(probe.act_refusal.as_ref());
    asked.map_or_else(|| probe.on_failure.clone(), |(asked, reason)| definition::refused(asked, reason))
}

fn cells(probe: &ProbeView, now: SystemTime) -> Vec<Cell> {
    let run = match probe.run {
        None | Some(Run { count: 0, .. }) => String::new(),
        Some(Run { count, verdict }) if verdict == probe.state => count.to_string(),
        Some(Run { count, verdict }) => format!("{} {count}", verdict.as_str()),
    };
    vec![
        format!("{}/{}", probe.namespace, probe.pod).into(),
        (&*probe.container).into(),
        kind_of(probe).into(),
        (&*probe.handler).into(),
        Cell::new(probe.state.as_str(), state_paint(probe)),
        Cell::new(probe.phase.as_str(), phase_paint(probe.phase)),
        run.into(),
        probe.last.as_ref().map_or_else(|| "".into(), last),
        age(probe.since.0, now).into(),
    ]
}

/// `liveness`; for a client's own probe also its likely type: `observed-1 (liveness?)`.
fn kind_of(probe: &ProbeView) -> String {
    match &probe.likely_type {
        Some(likely) => format!("{} ({likely}?)", probe.kind),
        None => probe.kind.clone(),
    }
}

fn last(last: &AttemptView) -> Cell {
    let paint = attempt_paint(last.result);
    Cell::new(&format!("{} {}", last.result.as_str(), measured(last.duration_seconds.0)), paint)
}

pub(super) fn attempt_paint(result: AttemptResult) -> Paint {
    match result {
        AttemptResult::Success => Paint::Plain,
        AttemptResult::Warning | AttemptResult::Error => Paint::Doubtful,
        AttemptResult::Failure => Paint::Bad,
    }
}

/// Whether the row alone leaves a person wondering: a bad verdict, a wrong definition, no work, an act on its container,
/// an attempt that went wrong or is late.
fn needs_explaining(probe: &ProbeView) -> bool {
    let is_bad = probe.state == Verdict::Failure
        || matches!(
            probe.phase,
            ProbePhase::Invalid | ProbePhase::Waiting | ProbePhase::Paused | ProbePhase::Stopped
        )
        || probe.act.is_some()
        || probe.phase == ProbePhase::Probing
        || probe.last.as_ref().is_some_and(|last| last.result != AttemptResult::Success);
    is_bad && !explanation(probe).is_empty()
}

/// The reason, and the output of the last attempt.
pub(super) fn explanation(probe: &ProbeView) -> String {
    let reason = one_line(&probe.reason);
    // The output of a successful attempt explains nothing.
    let is_telling = probe.last.as_ref().is_some_and(|last| last.result != AttemptResult::Success);
    let output = if is_telling { last_output(probe) } else { String::new() };
    match (&*reason, &*output) {
        (_, "") => reason,
        ("", _) => output,
        (reason, output) if reason.contains(output) => reason.to_owned(),
        (reason, output) if probe.act.is_some() => format!("{reason}; {output}"),
        // Behind words of an operator, say.
        (reason, output) if probe.phase == ProbePhase::Paused => format!("{reason}; last attempt: {output}"),
        (reason, output) => format!("{reason}: {output}"),
    }
}

fn last_output(probe: &ProbeView) -> String {
    probe.last.as_ref().map(|last| one_line(&last.words())).unwrap_or_default()
}

/// That of its verdict; doubtful where that is not known any more.
pub(super) fn state_paint(probe: &ProbeView) -> Paint {
    match probe.state {
        Verdict::Success if probe.cannot_try() => Paint::Doubtful,
        state => verdict_paint(state),
    }
}

pub(super) fn verdict_paint(state: Verdict) -> Paint {
    match state {
        Verdict::Success => Paint::Good,
        Verdict::Failure => Paint::Bad,
        Verdict::Unknown => Paint::Doubtful,
    }
}

pub(super) fn phase_paint(phase: ProbePhase) -> Paint {
    match phase {
        ProbePhase::Probing => Paint::Plain,
        ProbePhase::Waiting | ProbePhase::Stopped => Paint::Faint,
        ProbePhase::Held | ProbePhase::Paused => Paint::Doubtful,
        ProbePhase::Invalid => Paint::Bad,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cli::{client::Client, endpoint::Endpoint, screen::Screen},
        report::view::{ErrorsView, sample},
    };

    fn probes() -> Vec<ProbeView> {
        let acting = ProbeView { pod: "acting".to_owned(), ..sample::acting_detail().probe };
        vec![
            sample::failing_probe(),
            sample::untried_probe(),
            sample::probe(),
            acting,
            sample::invalid_probe(),
        ]
    }

    fn shown(format: Format, width: usize) -> String {
        let client = Client::new(Endpoint::default());
        let context = Context { client, format, screen: Screen::plain(width) };
        render(&probes(), &context, sample::at(125_000).0)
    }

    #[tokio::test]
    async fn tables_look_like_this() {
        for width in [20, 40, 80, 140] {
            insta::assert_snapshot!(format!("probes_{width}"), shown(Format::Table, width));
        }
        insta::assert_snapshot!("probes_wide", shown(Format::Wide, 60));
        insta::assert_snapshot!("probes_yaml", shown(Format::Yaml, 60));
    }

    #[tokio::test]
    async fn tables_fit_and_hold_nothing_that_steers() {
        for width in 20..130 {
            for line in shown(Format::Table, width).lines() {
                assert!(crate::cli::screen::width_of(line) <= width, "{width}: {line}");
                assert!(!line.contains('\u{1b}'));
            }
        }
    }

    #[tokio::test]
    async fn json_is_an_array_of_probes() {
        let back: Vec<ProbeView> = serde_json::from_str(&shown(Format::Json, 100)).unwrap();
        assert_eq!(back, probes());
    }

    #[test]
    fn a_check_fails_on_what_an_operator_calls_failing() {
        let now = sample::at(125_000).0;
        let check = |probes: &[ProbeView]| check(probes, &[], true, now);
        assert_eq!(super::check(&[], &[], false, now), Exit::Fine);
        let problems = ["default/web: unknown type".to_owned()];
        assert_eq!(super::check(&[], &problems, true, now), Exit::Failed);
        assert_eq!(super::check(&[sample::probe()], &problems, false, now), Exit::Failed);
        assert_eq!(check(&[]), Exit::Usage);
        assert_eq!(check(&[sample::probe()]), Exit::Fine);
        assert_eq!(check(&[sample::probe(), sample::invalid_probe()]), Exit::Failed);
        assert_eq!(check(&probes()), Exit::Failed);
        for phase in [ProbePhase::Waiting, ProbePhase::Held, ProbePhase::Paused] {
            let probe = ProbeView { phase, ..sample::failing_probe() };
            assert_eq!(check(std::slice::from_ref(&probe)), Exit::Failed, "{phase:?}");
            let on_purpose = ProbeView { stopped_by_client: true, ..probe };
            assert_eq!(check(&[on_purpose]), Exit::Fine, "{phase:?}");
        }
        let stopped = ProbeView { phase: ProbePhase::Stopped, ..sample::failing_probe() };
        assert_eq!(check(&[stopped]), Exit::Fine);
        assert_eq!(check(&[sample::untried_probe()]), Exit::Failed);
        let few = ErrorsView { cannot_try: false, ..sample::untried_probe().errors.unwrap() };
        assert_eq!(check(&[ProbeView { errors: Some(few), ..sample::untried_probe() }]), Exit::Fine);
        let stopped = ProbeView { phase: ProbePhase::Stopped, ..sample::untried_probe() };
        assert_eq!(check(&[stopped]), Exit::Fine);
        let invalid = ProbeView { stopped_by_client: true, ..sample::invalid_probe() };
        assert_eq!(check(&[invalid]), Exit::Fine);
    }

    #[test]
    fn a_check_says_which_and_why_in_a_line_each() {
        let exited = ProbeView {
            phase: ProbePhase::Waiting,
            reason: "the container exited with code 137".to_owned(),
            last: None,
            ..sample::failing_probe()
        };
        let mut silent = sample::failing_probe();
        silent.reason = String::new();
        silent.last.as_mut().unwrap().output = " \n".into();
        let faults = [
            exited,
            sample::failing_probe(),
            sample::invalid_probe(),
            sample::probe(),
            sample::untried_probe(),
            silent,
        ];
        let faults = faults.iter().filter_map(|probe| fault(probe, sample::at(125_000).0));
        insta::assert_snapshot!("probes_check", faults.collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn why_a_probe_does_nothing_is_always_told() {
        for (phase, reason) in [
            (ProbePhase::Waiting, "the startup probe has not succeeded yet"),
            (ProbePhase::Paused, "paused by an operator since 2026-11-20T10:00:00.000Z"),
            (ProbePhase::Probing, "has waited for a place for more than two periods"),
        ] {
            let probe = ProbeView { phase, reason: reason.to_owned(), ..sample::probe() };
            let lines = table(&[probe], sample::at(125_000).0).render(Screen::plain(100), Some(100));
            assert_eq!(lines[2], format!("  └ {reason}"));
        }
    }
}
