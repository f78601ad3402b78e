//! `criprobe top`: what runs now, and what the commands of the last minutes cost, by pod and by command.

use std::{cmp::Reverse, time::Duration};

use super::{
    Context, Error, Exit, banner,
    format::{self, Format},
    live::{
        self,
        content::{Content, Layout},
    },
    nothing::known,
    screen::{Paint, print},
    select::{Names, SelectPods},
    span::{configured, measured},
    table::{Cell, Column, Table, Tight},
    trace::command,
    wrap::words,
};
use crate::{
    clock,
    report::{
        filter::duration,
        top::{TopFilter, window},
        view::{CallInFlightView, CostView, ExecMode, Seconds, TopView},
    },
};

/// Flags of the verb.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    select: SelectPods,
    /// Sum the execs that ended in this time: 30s to 10m [default: 5m]
    #[arg(long, value_name = "DURATION", value_parser = since)]
    since: Option<Duration>,
    /// Order of pods and commands [default: total]
    #[arg(long, value_enum, value_name = "KEY")]
    sort: Option<CostSort>,
    /// Show only the sums by pod, or only those by command
    #[arg(long, value_enum, value_name = "WHAT")]
    by: Option<By>,
    /// Print once and exit, on a terminal, too
    #[arg(long)]
    once: bool,
}

/// What comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CostSort {
    /// The longest time of all calls together
    Total,
    /// The most calls
    Calls,
    /// The most failures
    Failures,
    /// The slowest of a hundred calls
    P99,
}

/// What is summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum By {
    /// All commands of a pod
    Pod,
    /// Each command
    Command,
}

const EXAMPLES: &str = "\
Examples:
  criprobe top                              live: calls in flight, and what costs most
  criprobe top shop --sort failures         only namespace shop, what fails most first
  criprobe top --once --by command -o wide  once, whole commands
  criprobe top -o json | jq '.commands[] | select(.p99Seconds > 1)'

Above are the calls that clients have in flight, and criprobe's own exec probes, oldest first. Below
are the commands that ended in the last minutes, summed by pod and by command. WHO is 'probe' for
criprobe's own probes and for those of clients that were recognised by their rhythm, which takes a few
calls; it is 'people' for everything else. The column ROUTE is shown if probes used exec sessions:
'session' for these, 'sync' for ExecSync; a command with both has a row for each. FAILED counts exit
codes other than 0, errors, and calls without an answer. MOSTLY is where most of the time went: queue (until the runtime took the command up),
start (until its process ran), run (the command itself), drain (until the answer: mostly another process
held the output open); it is known on containerd only, and of ExecSync.

The CPU time of the runtime is that of its systemd unit, with its shims, whatever they did. Per ExecSync it is
an upper bound. It is left out where the runtime has no unit of its own.

A live view is left with q. Arrows, PgUp, PgDn, g and G scroll, s changes the order, f shows only what
failed. Without a terminal, and with -o json or yaml, it is printed once.";

fn since(text: &str) -> Result<Duration, String> {
    duration(text).and_then(window)
}

impl TopArgs {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, Error> {
        let names = self.select.names()?;
        let Names { namespace, pod, .. } = names.clone();
        let path = format!("/v1/top{}", TopFilter { since: self.since, namespace, pod }.to_query());
        let is_table = matches!(context.format, Format::Table | Format::Wide);
        let question = async || Ok(Top { view: context.client.get(&path).await?, by: self.by });
        if is_table && !self.once && context.screen.height.is_some() {
            return live::show(context, question, self.sort, false).await;
        }
        let mut top: Top = question().await?;
        top.arrange(self.sort.unwrap_or(Top::SORT));
        if top.is_empty() && !names.is_empty() {
            known(context, &names, false).await?;
        }
        let text = match context.format {
            Format::Json => format::json(&top.view),
            Format::Yaml => format::yaml(&top.view),
            Format::Table | Format::Wide => {
                let is_wide = context.format == Format::Wide;
                let layout =
                    Layout { screen: context.screen, is_wide, only_failed: false, at: clock::wall() };
                let (summary, paint) = top.summary();
                let lines = top.lay_out(layout).1;
                banner::text(context).await
                    + &context.screen.paint(&summary, paint)
                    + "\n\n"
                    + &lines.join("\n")
                    + "\n"
            }
        };
        print(&text)?;
        Ok(Exit::Fine)
    }
}

/// The daemon's answer, and what is to be shown of it.
struct Top {
    view: TopView,
    by: Option<By>,
}

impl Top {
    fn is_empty(&self) -> bool {
        self.view.in_flight.calls.is_empty() && self.view.pods.is_empty()
    }
}

impl Content for Top {
    type Sort = CostSort;
    const SORT: CostSort = CostSort::Total;

    fn next(sort: CostSort) -> CostSort {
        match sort {
            CostSort::Total => CostSort::Calls,
            CostSort::Calls => CostSort::Failures,
            CostSort::Failures => CostSort::P99,
            CostSort::P99 => CostSort::Total,
        }
    }

    fn name(sort: CostSort) -> &'static str {
        match sort {
            CostSort::Total => "total",
            CostSort::Calls => "calls",
            CostSort::Failures => "failures",
            CostSort::P99 => "p99",
        }
    }

    fn arrange(&mut self, by: CostSort) {
        let key = |cost: &CostView| {
            let first = match by {
                CostSort::Total => 0,
                CostSort::Calls => cost.calls,
                CostSort::Failures => cost.failures,
                CostSort::P99 => cost.p99_seconds.0.as_micros().try_into().unwrap_or(u64::MAX),
            };
            Reverse((first, cost.total_seconds))
        };
        self.view.pods.sort_by_key(key);
        self.view.commands.sort_by_key(key);
    }

    /// `2 in flight; 151 execs in 5m: 3 failed, 7.50s in all; runtime 0.31 cores, at most 616ms per exec`.
    fn summary(&self) -> (String, Paint) {
        let TopView { window_seconds, in_flight, pods, others, runtime_cpu, .. } = &self.view;
        let all = || pods.iter().chain(&others.pods);
        let (calls, failures): (u64, u64) =
            (all().map(|cost| cost.calls).sum(), all().map(|cost| cost.failures).sum());
        let total: Duration = all().map(|cost| cost.total_seconds.0).sum();
        let by_session: u64 = all().filter(|cost| is_session(cost)).map(|cost| cost.calls).sum();
        let noun = if calls == 1 { "exec" } else { "execs" };
        let mut words =
            format!("{} in flight; {calls} {noun} in {}", in_flight.total, configured(window_seconds.0));
        if by_session > 0 {
            words += &format!(", {by_session} by sessions");
        }
        if calls > 0 {
            words += &format!(": {failures} failed, {} in all", measured(total));
        }
        if let Some(cpu) = runtime_cpu {
            words += &format!("; runtime {:.2} cores", cpu.cores);
            if let Some(Seconds(each)) = cpu.seconds_per_exec {
                words += &format!(", at most {} per exec", measured(each));
            }
        }
        (words, Paint::Plain)
    }

    fn lay_out(&self, layout: Layout) -> (Option<String>, Vec<String>) {
        let TopView { in_flight, pods, commands, others, .. } = &self.view;
        let mut lines = Vec::new();
        let mut section = |title: &str, table: Option<Table>| {
            if !lines.is_empty() {
                lines.push(String::new());
            }
            let title = words(title, layout.limit().unwrap_or(usize::MAX), usize::MAX);
            lines.extend(title.iter().map(|line| layout.screen.paint(line, Paint::Good)));
            match table {
                Some(table) => lines.extend(table.render(layout.screen, layout.limit())),
                None => lines.push("none".to_owned()),
            }
        };
        let streams = match in_flight.event_streams {
            0 => String::new(),
            1 => ", besides 1 stream of events".to_owned(),
            count => format!(", besides {count} streams of events"),
        };
        let hidden = in_flight.total.saturating_sub(in_flight.calls.len() as u64);
        let oldest = if hidden > 0 { format!(" (the oldest of {})", in_flight.total) } else { String::new() };
        let table = (!in_flight.calls.is_empty()).then(|| calls(&in_flight.calls));
        section(&format!("Calls in flight{oldest}{streams}"), table);
        let chosen = |costs: &[CostView]| -> Vec<CostView> {
            costs.iter().filter(|cost| !layout.only_failed || cost.failures > 0).cloned().collect()
        };
        let all = [pods, &others.pods, commands, &others.commands].into_iter().flatten();
        let costs = Costs { has_routes: all.into_iter().any(is_session) };
        if self.by != Some(By::Command) {
            let rows = chosen(pods);
            let table = (!rows.is_empty()).then(|| costs.by_pod(&rows, &chosen(&others.pods)));
            section("Execs by pod", table);
        }
        if self.by != Some(By::Pod) {
            let rows = chosen(commands);
            let table = (!rows.is_empty()).then(|| costs.by_command(&rows, &chosen(&others.commands)));
            section("Execs by command", table);
        }
        (None, lines)
    }
}

fn calls(calls: &[CallInFlightView]) -> Table {
    let mut table = Table::new(vec![
        Column { name: "NAMESPACE/POD/CONTAINER", tight: Tight::Shrinks },
        Column { name: "AGE", tight: Tight::Stays },
        Column { name: "METHOD", tight: Tight::Stays },
        Column { name: "WHO", tight: Tight::GoesNext },
        Column { name: "CALLER", tight: Tight::GoesFirst },
        Column { name: "COMMAND", tight: Tight::Shrinks },
    ]);
    for call in calls {
        let is_exec = call.method == "ExecSync";
        table.row(vec![
            place(&call.namespace, &call.pod, &call.container).into(),
            measured(call.age_seconds.0).into(),
            call.method.clone().into(),
            if is_exec { who(call.is_probe) } else { "-".into() },
            format!("{}[{}]", call.caller.comm, call.caller.pid).into(),
            call.exec.as_ref().map(|exec| command(&exec.command)).unwrap_or_default().into(),
        ]);
    }
    table
}

/// What things cost, as tables.
struct Costs {
    /// Whether any of it went by sessions: then there is a column for the route.
    has_routes: bool,
}

impl Costs {
    fn columns(&self) -> impl Iterator<Item = Column> {
        let route = self.has_routes.then_some(Column { name: "ROUTE", tight: Tight::Stays });
        let who = Column { name: "WHO", tight: Tight::Stays };
        [who].into_iter().chain(route).chain([
            Column { name: "CALLS", tight: Tight::Stays },
            Column { name: "FAILED", tight: Tight::GoesLast },
            Column { name: "TOTAL", tight: Tight::Stays },
            Column { name: "P50", tight: Tight::GoesNext },
            Column { name: "P99", tight: Tight::GoesLast },
            Column { name: "MOSTLY", tight: Tight::GoesFirst },
        ])
    }

    fn cells(&self, cost: &CostView) -> impl Iterator<Item = Cell> {
        let route = self.has_routes.then(|| cost.exec_route.as_str().into());
        let failed = if cost.failures > 0 { Paint::Bad } else { Paint::Plain };
        [who(cost.is_probe)].into_iter().chain(route).chain([
            cost.calls.to_string().into(),
            Cell::new(&cost.failures.to_string(), failed),
            measured(cost.total_seconds.0).into(),
            measured(cost.p50_seconds.0).into(),
            measured(cost.p99_seconds.0).into(),
            mostly(cost).into(),
        ])
    }

    fn by_pod(&self, rows: &[CostView], others: &[CostView]) -> Table {
        let name = [Column { name: "NAMESPACE/POD", tight: Tight::Shrinks }];
        let mut table = Table::new(name.into_iter().chain(self.columns()).collect());
        let mut add =
            |name: String, cost| table.row(std::iter::once(name.into()).chain(self.cells(cost)).collect());
        rows.iter().for_each(|cost| add(place(&cost.namespace, &cost.pod, ""), cost));
        others.iter().for_each(|cost| add("(other pods)".to_owned(), cost));
        table
    }

    fn by_command(&self, rows: &[CostView], others: &[CostView]) -> Table {
        let name = [Column { name: "NAMESPACE/POD/CONTAINER", tight: Tight::Shrinks }];
        let last = [Column { name: "COMMAND", tight: Tight::Shrinks }];
        let mut table = Table::new(name.into_iter().chain(self.columns()).chain(last).collect());
        let mut add = |name: String, words: Option<&Vec<String>>, cost| {
            let words = words.filter(|words| !words.is_empty());
            let words = words.map_or_else(|| "(other commands)".to_owned(), |words| command(words));
            let cells = std::iter::once(name.into()).chain(self.cells(cost)).chain([words.into()]);
            table.row(cells.collect());
        };
        for cost in rows {
            let container = cost.container.as_deref().unwrap_or_default();
            add(place(&cost.namespace, &cost.pod, container), cost.command.as_ref(), cost);
        }
        others.iter().for_each(|cost| add("(others)".to_owned(), None, cost));
        table
    }
}

fn is_session(cost: &CostView) -> bool {
    cost.exec_route == ExecMode::Session
}

fn who(is_probe: bool) -> Cell {
    if is_probe { "probe".into() } else { Cell::new("people", Paint::Doubtful) }
}

/// `default/web/app`, as far as it is known.
fn place(namespace: &str, pod: &str, container: &str) -> String {
    match (pod, container) {
        ("", "") => "-".to_owned(),
        (_, "") => format!("{namespace}/{pod}"),
        _ => format!("{namespace}/{pod}/{container}"),
    }
}

/// `start 67%` of the total time; `unknown 56%` where more of it belongs to calls whose phases are not known; nothing where
/// none are.
fn mostly(cost: &CostView) -> String {
    let Some(phases) = &cost.phases else { return String::new() };
    let (Some((phase, took)), total) = (phases.longest(), cost.total_seconds.0) else { return String::new() };
    let unknown = total.saturating_sub(phases.total().0);
    let (name, took) = if unknown > took.0 { ("unknown", unknown) } else { (phase.as_str(), took.0) };
    let share = 100.0 * took.as_secs_f64() / total.as_secs_f64().max(took.as_secs_f64());
    format!("{name} {share:.0}%")
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::{
        cli::screen::{Screen, width_of},
        report::view::sample,
    };

    fn top() -> Top {
        Top { view: sample::top(), by: None }
    }

    fn layout(screen: Screen, is_wide: bool) -> Layout {
        Layout { screen, is_wide, only_failed: false, at: SystemTime::UNIX_EPOCH }
    }

    #[test]
    fn it_looks_like_this() {
        for width in [40, 80, 200] {
            let lines = top().lay_out(layout(Screen::plain(width), false)).1;
            insta::assert_snapshot!(format!("top_{width}"), lines.join("\n"));
        }
        let lines = top().lay_out(layout(Screen::pipe(), true)).1;
        insta::assert_snapshot!("top_wide", lines.join("\n"));
        let top = Top { view: sample::top_with_sessions(), by: None };
        for (name, screen, is_wide) in
            [("top_sessions_80", Screen::plain(80), false), ("top_sessions_wide", Screen::pipe(), true)]
        {
            let lines = top.lay_out(layout(screen, is_wide)).1;
            insta::assert_snapshot!(name, top.summary().0 + "\n\n" + &lines.join("\n"));
        }
    }

    #[test]
    fn it_fits_every_screen_and_holds_nothing_that_steers() {
        for width in 20..130 {
            let with_sessions = Top { view: sample::top_with_sessions(), by: None };
            let lines = [top(), with_sessions].map(|top| top.lay_out(layout(Screen::plain(width), false)).1);
            for line in lines.concat() {
                assert!(width_of(&line) <= width, "{width}: {line}");
                assert!(!line.contains('\u{1b}'));
            }
        }
    }

    #[test]
    fn the_summary_counts_all_rows_and_what_has_none() {
        let mut top = top();
        let words = "2 in flight; 151 execs in 5m: 3 failed, 7.50s in all; runtime 0.31 cores, at most 616ms per exec";
        assert_eq!(top.summary().0, words);
        top.view.others.pods = vec![CostView { calls: 49, ..CostView::default() }];
        assert!(top.summary().0.contains("; 200 execs in 5m: 3 failed"));
        (top.view.pods, top.view.others.pods, top.view.runtime_cpu) = Default::default();
        assert_eq!(top.summary().0, "2 in flight; 0 execs in 5m");
    }

    #[test]
    fn rows_are_in_the_order_that_is_wanted_and_only_those_that_failed_if_that_is() {
        let mut top = top();
        let mut pods = |sort| {
            top.arrange(sort);
            top.view
                .pods
                .iter()
                .map(|row| (row.pod.chars().take(3).collect(), row.is_probe))
                .collect::<Vec<(String, _)>>()
        };
        let (web, dns, person) =
            (("web".to_owned(), true), ("dns".to_owned(), true), ("web".to_owned(), false));
        assert_eq!(pods(CostSort::Total), [web.clone(), dns.clone(), person.clone()]);
        assert_eq!(pods(CostSort::P99), [person, web.clone(), dns.clone()]);
        assert_eq!(pods(CostSort::Calls)[..2], [web, dns]);
        let mut sort = Top::SORT;
        let names: Vec<_> = (0..4)
            .map(|_| {
                sort = Top::next(sort);
                Top::name(sort)
            })
            .collect();
        assert_eq!(names, ["calls", "failures", "p99", "total"]);
        let failed = Layout { only_failed: true, ..layout(Screen::plain(200), false) };
        let text = top.lay_out(failed).1.join("\n");
        assert!(!text.contains("resolver") && text.contains("cat /tmp/healthy"), "{text}");
    }

    #[test]
    fn only_one_kind_of_sums_is_shown_where_that_is_wanted_and_nothing_says_so() {
        let shown = |top: Top| top.lay_out(layout(Screen::plain(100), false)).1.join("\n");
        let pods = shown(Top { by: Some(By::Pod), ..top() });
        assert!(pods.contains("Execs by pod") && !pods.contains("by command"));
        let commands = shown(Top { by: Some(By::Command), ..top() });
        assert!(!commands.contains("Execs by pod") && commands.contains("by command"));
        let mut empty = top();
        (empty.view.pods, empty.view.commands, empty.view.in_flight.calls) = Default::default();
        assert_eq!(shown(empty).matches("none").count(), 3);
    }
}
