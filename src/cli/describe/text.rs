//! A description for people: views in, lines out. Escapes whatever would steer a terminal; no line is wider than the page.

mod attempts;
mod pod;

use std::time::{Duration, SystemTime};

use super::{
    super::{
        events::message,
        exits, phases, pods,
        probes::{MOST_WORDS, explanation, phase_paint, state_paint, verdict_paint},
        reason::one_line,
        screen::{MARGIN, Paint, Screen, fit},
        span::{age, configured, measured, moment},
        table::{Cell, Column, Table, Tight},
        trace::command,
        wrap::{entry, indented, words},
    },
    acts, definition, strip,
};
use crate::{
    clock,
    report::view::{
        ActNoteView, AttemptView, ChangeView, ContainerView, ErrorsView, EventType, EventView, LatencyView,
        PodView, ProbeDetailView, ProbePhase, ProbeView, Run, Time, Verdict,
    },
};

/// What is written on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    pub(super) screen: Screen,
    /// Whether all is shown, however long.
    pub(super) is_whole: bool,
    pub(super) now: SystemTime,
}

/// 10 rows of a table: the newest, unless the page is whole.
const ROWS: usize = 10;

/// 20 lines of an output: the first, unless the page is whole.
const OUTPUT_LINES: usize = 20;

/// 12 columns before each value.
const INDENT: usize = 12;

impl Page {
    /// A container and its events, without its probes and theirs.
    pub(super) fn container(self, pod: &PodView, container: &ContainerView, of_it: &[EventView]) -> String {
        let name = format!("{}/{}/{}", pod.namespace, pod.pod, container.container);
        let since = container.started_at.map(|at| format!(", started {} ago", age(at.0, self.now)));
        let yes = |is_so| if is_so { ("yes", Paint::Good) } else { ("no", Paint::Doubtful) };
        let (started, ready, pod_ready) = (yes(container.started), yes(container.ready), yes(pod.ready));
        let reason = one_line(&pod.reason);
        let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
        let probes = pods::probes(&container.probes);
        let mut text = String::new();
        self.value(&mut text, "container", &name, Paint::Plain);
        self.value(&mut text, "id", &container.container_id, Paint::Plain);
        self.value(&mut text, "image", &container.image, Paint::Plain);
        let state = format!("{}{}", pods::state(container), since.unwrap_or_default());
        self.value(&mut text, "state", &state, Paint::Plain);
        self.exit(&mut text, container);
        if let Some(act) = &container.act {
            self.value(&mut text, "act", &act.in_words(), Paint::Doubtful);
        }
        self.value(&mut text, "started", started.0, started.1);
        self.value(&mut text, "ready", ready.0, ready.1);
        self.value(&mut text, "restarts", &container.restarts.to_string(), Paint::Plain);
        self.value(&mut text, "pod ready", &format!("{}{reason}", pod_ready.0), pod_ready.1);
        let off = if pod.probes_off { format!("; {}", pods::TURNED_OFF) } else { String::new() };
        let probes = format!("{}{off}", if probes.is_empty() { "none" } else { &probes });
        self.value(&mut text, "probes", &probes, Paint::Plain);
        for problem in &pod.problems {
            self.value(&mut text, "problem", problem, Paint::Doubtful);
        }
        let exits = |exits: &[_], page: Page| exits::table(exits, (page.is_whole, page.now));
        self.table(&mut text, "earlier exits", &container.exits, exits);
        self.table(&mut text, "events", of_it, events);
        text
    }

    /// How a container of this name ended last, and where its log is.
    fn exit(self, text: &mut String, container: &ContainerView) {
        if let Some(last) = exits::last(container, self.now) {
            let code = container.exit_code.or_else(|| container.exits.last()?.exit_code);
            self.value(text, "last exit", &last, exits::paint(code));
        }
        if let Some(message) = &container.exit_message {
            self.value(text, "message", &one_line(message), Paint::Plain);
        }
        if let Some(path) = &container.log_path {
            self.value(text, "log", path, Paint::Plain);
        }
    }

    /// A probe in full.
    pub(super) fn probe(self, detail: &ProbeDetailView, container: Option<&ContainerView>) -> String {
        let mut text = self.head(detail);
        if let Some(container) = container {
            self.exit(&mut text, container);
        }
        self.strip(&mut text, &detail.history);
        self.acts(&mut text, detail);
        let attempts = attempts::with_acts(&detail.history, &detail.acted);
        self.table(&mut text, "attempts", &attempts, attempts::table);
        self.table(&mut text, "changes of the verdict", &detail.changes, changes);
        self.output(&mut text, detail.probe.last.as_ref());
        self.table(&mut text, "events", &detail.events, events);
        text
    }

    fn head(
        self,
        ProbeDetailView { probe, client, definition, changes, history, .. }: &ProbeDetailView,
    ) -> String {
        let mut text = String::new();
        let mut line = |name, value: &str, paint| self.value(&mut text, name, value, paint);
        line("probe", &probe.id, Paint::Plain);
        line("key", &probe.key, Paint::Plain);
        let container = format!("{}, attempt {}", probe.container_id, probe.attempt);
        line("container", if probe.container_id.is_empty() { "none" } else { &container }, Paint::Plain);
        line("source", &probe.source, Paint::Plain);
        if !probe.shadowed.is_empty() {
            line("shadows", &probe.shadowed.join(", "), Paint::Plain);
        }
        if let Some(likely) = &probe.likely_type {
            line("likely", &format!("the pod's {likely} probe"), Paint::Plain);
        }
        match (definition, client) {
            (Some(definition), _) => {
                for (name, value) in definition::lines(definition, probe) {
                    line(name, &value, Paint::Plain);
                }
            }
            (None, Some(client)) => {
                line("handler", &format!("exec {}", command(&client.command)), Paint::Plain);
                let timeout = match client.timeout_seconds.0 {
                    timeout if timeout.is_zero() => "without a timeout".to_owned(),
                    timeout => format!("timeout {}", configured(timeout)),
                };
                let client = format!("{}, user {}; {timeout}", client.comm, client.uid);
                line("client", &client, Paint::Plain);
            }
            (None, None) => line(
                "handler",
                if probe.handler.is_empty() { "unknown" } else { &probe.handler },
                Paint::Plain,
            ),
        }
        let since = format!(
            "{} for {}, since {}",
            probe.state.as_str(),
            age(probe.since.0, self.now),
            moment(probe.since.0, self.now)
        );
        line("state", &since, state_paint(probe));
        let why = explanation(probe);
        let why = if self.is_whole { why } else { fit(&why, MOST_WORDS) };
        if !why.is_empty() {
            line("reason", &why, Paint::Plain);
        }
        line("phase", probe.phase.as_str(), phase_paint(probe.phase));
        line(
            "next",
            &self.next(probe, definition.as_ref().map(|defined| defined.period_seconds.0)),
            Paint::Plain,
        );
        line("run", &run(probe, changes.last()), Paint::Plain);
        let counts = probe.counts;
        let counts = [
            (counts.success, "success"),
            (counts.warning, "warning"),
            (counts.failure, "failure"),
            (counts.error, "error"),
        ];
        line("counts", &counts.map(|(count, name)| format!("{count} {name}")).join(", "), Paint::Plain);
        if let Some(latency) = &probe.latency {
            let of_client = client.as_ref().map(|client| client.timeout_seconds.0);
            let timeout = definition.as_ref().map(|defined| defined.timeout_seconds.0).or(of_client);
            let timeout = timeout.filter(|timeout| !timeout.is_zero());
            line("latency", &self::latency(latency, timeout), latency_paint(latency));
        }
        if let Some(lag) = probe.last.as_ref().and_then(|last| last.lag_seconds) {
            line(
                "lag",
                &format!("the last attempt started {} after it was due", measured(lag.0)),
                Paint::Plain,
            );
        }
        if let Some(routes) = probe.last.as_ref().and_then(|last| attempts::routes(last, history)) {
            line("exec route", &routes, Paint::Plain);
        }
        if let Some(phases) = probe.last.as_ref().and_then(|last| last.phases.as_ref()) {
            line("phases", &phases::words(phases), Paint::Plain);
        }
        // Of a newer attempt that was as slow it may not be known; then an older one would explain the wrong thing.
        let known =
            probe.last.iter().chain(history.iter().rev()).find(|made| phases::of_slow(made).is_some());
        let is_newest = |slow: &AttemptView| {
            history
                .iter()
                .all(|made| made.at.0 <= slow.at.0 || made.duration_seconds <= slow.duration_seconds)
        };
        if let Some(slow) = known.filter(|slow| is_newest(slow))
            && let Some(culprit) = phases::of_slow(slow)
        {
            line("slow", &format!("at {}: {culprit}", moment(slow.at.0, self.now)), Paint::Plain);
        }
        text
    }

    /// When the next attempt is due; if none is, the phase says why.
    fn next(self, probe: &ProbeView, defined: Option<Duration>) -> String {
        let Some(at) = probe.next_at else {
            return match probe.phase {
                ProbePhase::Invalid => "never".to_owned(),
                _ => "not due".to_owned(),
            };
        };
        let when = match at.0.duration_since(self.now) {
            Ok(ahead) => format!("in {}", measured(ahead)),
            Err(_) => "now".to_owned(),
        };
        let spaced = probe.period_seconds.map(|period| period.0).filter(|&period| Some(period) != defined);
        let spaced = spaced.map(|period| format!(", then every {}", configured(period))).unwrap_or_default();
        format!("{when}, at {}{spaced}", moment(at.0, self.now))
    }

    /// `NAME  VALUE`; a long value continues on the next lines.
    fn value(self, text: &mut String, name: &str, value: &str, paint: Paint) {
        for line in entry(self.screen, (name, INDENT), value, paint) {
            text.push_str(&line);
            text.push('\n');
        }
    }

    /// When something was, in a table: in full if everything is shown.
    fn moment(self, at: Time) -> Cell {
        if self.is_whole { clock::rfc3339(at.0).into() } else { moment(at.0, self.now).into() }
    }

    /// The newest attempts that fit, a sign each.
    fn strip(self, text: &mut String, history: &[AttemptView]) {
        if history.is_empty() {
            return;
        }
        let room = self.screen.width.saturating_sub(INDENT);
        let shown = strip::newest(history, room);
        let strip = strip::strip(shown, self.screen);
        let count = if shown.len() == 1 { "  1 attempt" } else { "  oldest first" };
        let count = if strip::width(shown) + count.len() <= room { count } else { "" };
        text.push_str(&format!("{:INDENT$}{strip}{}\n", "history", self.screen.paint(count, Paint::Faint)));
    }

    /// A table of the newest records with a heading; empty if there are none.
    fn table<T>(self, text: &mut String, title: &str, records: &[T], table: impl Fn(&[T], Page) -> Table) {
        if records.is_empty() {
            return;
        }
        let shown = if self.is_whole { records.len() } else { records.len().min(ROWS) };
        let newest = &records[records.len() - shown..];
        let of = if shown < records.len() {
            format!(", the last {shown} of {}", records.len())
        } else {
            String::new()
        };
        let title = words(&format!("{title}{of}"), self.screen.width, usize::MAX).join("\n");
        text.push_str(&format!("\n{title}\n"));
        let width = self.screen.width.saturating_sub(MARGIN.len());
        for line in table(newest, self).render(self.screen, Some(width)) {
            text.push_str(&format!("{MARGIN}{line}\n"));
        }
    }

    /// What the verdict does to the container, and what was done; nothing of a probe that only reports.
    fn acts(self, text: &mut String, detail: &ProbeDetailView) {
        let Some(acts) = &detail.acts else { return };
        text.push_str("\nacts\n");
        for (name, value, paint) in acts::lines(acts, detail.probe.act.as_ref(), self.now) {
            self.value(text, &format!("{MARGIN}{name}"), &value, paint);
        }
        let command = acts.last.as_ref().and_then(|last| last.command.as_ref());
        command.iter().for_each(|command| self.lines(text, &command.output));
    }

    fn output(self, text: &mut String, last: Option<&AttemptView>) {
        let Some(last) = last.filter(|last| !last.words().is_empty()) else { return };
        text.push_str(&format!("\nlast output, {}\n", last.result.as_str()));
        // Blanks before the first line are a part of it.
        let (words, has_said) = (last.words(), !last.output.trim().is_empty());
        self.lines(text, if has_said { &last.output } else { &words });
    }

    /// The first lines of an output.
    fn lines(self, text: &mut String, output: &str) {
        if output.trim().is_empty() {
            return;
        }
        let lines = indented(output, self.screen.width);
        let shown = if self.is_whole { lines.len() } else { lines.len().min(OUTPUT_LINES) };
        let more = lines.len() - shown;
        let more =
            (more > 0).then(|| fit(&format!("{MARGIN}… {more} more lines: -o wide"), self.screen.width));
        for line in lines.into_iter().take(shown).chain(more) {
            text.push_str(&self.screen.legible(line));
            text.push('\n');
        }
    }
}

/// `p50 12ms, p99 840ms of a timeout of 1s (near), 120 attempts`.
fn latency(latency: &LatencyView, timeout: Option<Duration>) -> String {
    let (p50, p99) = (measured(latency.p50_seconds.0), measured(latency.p99_seconds.0));
    let timeout = timeout.map(|timeout| format!(" of a timeout of {}", configured(timeout)));
    let attempts = if latency.attempts == 1 { "attempt" } else { "attempts" };
    let near = latency.beside_timeout().map(|word| format!(" ({word})")).unwrap_or_default();
    format!("p50 {p50}, p99 {p99}{}{near}, {} {attempts}", timeout.unwrap_or_default(), latency.attempts)
}

fn latency_paint(latency: &LatencyView) -> Paint {
    if latency.near_timeout { Paint::Doubtful } else { Paint::Plain }
}

/// Why the verdict of a probe turns whose container has ended by itself.
const NOT_RUNNING: &str = "the container is not running";

/// `66 successes in a row, then 5 errors`.
fn run(probe: &ProbeView, newest: Option<&ChangeView>) -> String {
    let run = results_in_a_row(probe, newest);
    match (probe.errors, probe.run) {
        (None | Some(ErrorsView { count: 0, .. }), _) => run,
        (Some(ErrorsView { count: 1, .. }), Some(_)) => format!("{run}, then 1 error"),
        (Some(ErrorsView { count, .. }), Some(_)) => format!("{run}, then {count} errors"),
        (Some(ErrorsView { count: 1, .. }), None) => "none yet, only 1 error".to_owned(),
        (Some(ErrorsView { count, .. }), None) => format!("none yet, only {count} errors"),
    }
}

fn results_in_a_row(probe: &ProbeView, newest: Option<&ChangeView>) -> String {
    match probe.run {
        None => "none yet".to_owned(),
        Some(Run { count: 0, .. }) if newest.is_some_and(|change| change.why == NOT_RUNNING) => {
            "ended with the container".to_owned()
        }
        Some(Run { count: 0, .. }) => "ended by the verdict".to_owned(),
        Some(Run { count: 1, verdict }) => format!("1 {}", verdict.as_str()),
        Some(Run { count, verdict: Verdict::Success }) => format!("{count} successes in a row"),
        Some(Run { count, .. }) => format!("{count} failures in a row"),
    }
}

fn changes(changes: &[ChangeView], page: Page) -> Table {
    let mut table = table(["AT", "FROM", "TO", "WHY"]);
    for change in changes {
        table.row(vec![
            page.moment(change.at),
            Cell::new(change.from.as_str(), verdict_paint(change.from)),
            Cell::new(change.to.as_str(), verdict_paint(change.to)),
            (&*change.why).into(),
        ]);
    }
    table
}

fn events(events: &[EventView], page: Page) -> Table {
    let column = |name, tight| Column { name, tight };
    let mut table = Table::new(vec![
        column("AT", Tight::Stays),
        column("TYPE", Tight::Stays),
        column("REASON", Tight::Stays),
        column("MESSAGE", Tight::Wraps),
    ]);
    for event in events {
        table.row(event_cells(event, page).into());
    }
    table
}

fn event_cells(event: &EventView, page: Page) -> [Cell; 4] {
    let paint = match event.kind {
        EventType::Normal => Paint::Plain,
        EventType::Warning => Paint::Doubtful,
    };
    [
        page.moment(event.at),
        Cell::new(event.kind.as_str(), paint),
        (&*event.reason).into(),
        message(event).into(),
    ]
}

/// The last column gives way.
fn table<const N: usize>(names: [&'static str; N]) -> Table {
    let tight = |at| if at + 1 == N { Tight::Shrinks } else { Tight::Stays };
    Table::new((0..N).map(|at| Column { name: names[at], tight: tight(at) }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cli::screen::width_of,
        report::view::{DefinitionView, sample},
    };

    fn page(width: usize, is_whole: bool) -> Page {
        Page { screen: Screen::plain(width), is_whole, now: sample::at(125_000).0 }
    }

    fn long() -> ProbeDetailView {
        let mut detail = sample::detail();
        let attempt = AttemptView { output: "x".repeat(256).into(), ..detail.history[5].clone() };
        detail.history = vec![attempt.clone(); 32];
        detail.probe.last = Some(AttemptView {
            output: ("漢 long line\t".repeat(300) + &"\n".repeat(30) + "end").into(),
            ..attempt
        });
        detail.probe.phase = ProbePhase::Probing;
        detail.probe.next_at = Some(sample::at(131_500));
        detail.events = vec![sample::event(); 12];
        detail
    }

    /// Its container is replaced every other attempt.
    fn looping() -> ProbeDetailView {
        let mut detail = sample::detail();
        for (attempt, number) in detail.history.iter_mut().zip(0_u32..) {
            attempt.container_attempt = Some(number / 2);
            attempt.first_of_container = number % 2 == 0;
        }
        detail
    }

    #[test]
    fn it_looks_like_this() {
        for width in [40, 80, 140] {
            let page = page(width, false);
            insta::assert_snapshot!(format!("describe_{width}"), page.probe(&sample::detail(), None));
            let pod = sample::pod();
            insta::assert_snapshot!(
                format!("describe_container_{width}"),
                page.container(&pod, &pod.containers[1], &sample::pod_detail().events[1..])
            );
            insta::assert_snapshot!(format!("describe_pod_{width}"), page.pod(&sample::pod_detail()));
        }
        for width in [40, 80, 140] {
            let text = page(width, false).probe(&sample::session_detail(), None);
            insta::assert_snapshot!(format!("describe_session_{width}"), text);
        }
        let whole = page(usize::MAX, true).probe(&sample::session_detail(), None);
        insta::assert_snapshot!("describe_session_wide", whole);
        insta::assert_snapshot!("describe_invalid", page(100, false).probe(&sample::invalid_detail(), None));
        insta::assert_snapshot!(
            "describe_observed",
            page(100, false).probe(&sample::observed_detail(), None)
        );
        let untried = ProbeDetailView { probe: sample::untried_probe(), ..sample::detail() };
        insta::assert_snapshot!("describe_untried", page(100, false).probe(&untried, None));
        insta::assert_snapshot!("describe_acting", page(80, false).probe(&sample::acting_detail(), None));
        insta::assert_snapshot!(
            "describe_acting_wide",
            page(usize::MAX, true).probe(&sample::acting_detail(), None)
        );
        insta::assert_snapshot!("describe_long", page(100, false).probe(&long(), None));
        insta::assert_snapshot!("describe_wide", page(usize::MAX, true).probe(&sample::detail(), None));
        let exited = Some(&sample::pod().containers[1]).cloned();
        insta::assert_snapshot!("describe_looping", page(100, false).probe(&looping(), exited.as_ref()));
    }

    #[test]
    fn the_mode_is_shown_of_a_definition_that_says_it() {
        let shown = |mode: Option<&str>| {
            let definition = sample::detail().definition.expect("the sample has one");
            let definition = Some(DefinitionView { exec_mode: mode.map(str::to_owned), ..definition });
            page(80, false).probe(&ProbeDetailView { definition, ..sample::detail() }, None)
        };
        for mode in ["sync", "session"] {
            let line = format!("exec mode   {mode}");
            assert!(shown(Some(mode)).lines().any(|one| one == line), "{}", shown(Some(mode)));
        }
        assert!(!shown(None).contains("exec mode"));
    }

    #[test]
    fn it_fits_and_holds_nothing_that_steers() {
        let pod = sample::pod();
        for width in 20..130 {
            let page = page(width, false);
            let (plain, session) = (sample::detail(), sample::session_detail());
            let all = [plain, session, long(), sample::invalid_detail(), sample::acting_detail()]
                .map(|detail| page.probe(&detail, Some(&pod.containers[1])));
            let pods = page.container(&pod, &pod.containers[1], &[]) + &page.pod(&sample::pod_detail());
            let all = all.concat() + &pods + &page.probe(&looping(), None);
            for line in all.lines() {
                assert!(width_of(line) <= width, "{width}: {line}");
                assert!(!line.contains(['\u{1b}', '\t']), "{line}");
            }
        }
    }
}
