//! `criprobe status`: the daemon as a whole, in two columns.

use std::time::SystemTime;

use super::{
    Context, Error, Exit, banner,
    format::{self, Format},
    pods,
    reason::plain,
    screen::{Paint, Screen, print, width_of},
    span::{age, coarse, configured},
    wrap::entry,
};
use crate::{
    clock,
    report::view::{
        ActsView, HttpView, LateView, ProbesView, RecordFileView, RuntimeState, StageRestartView, StatusView,
        UnprovenView, WaitingView, degraded,
    },
};

/// Flags of the verb.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct StatusArgs {}

const EXAMPLES: &str = "\
Examples:
  criprobe status
  criprobe status -o json | jq .runtime.state
  criprobe status > /dev/null && echo ok          in a script
  criprobe status --api /run/try/api.sock

The exit code is 1, with the reasons on standard error, while something is degraded: the runtime is
away, refuses Version, or has left lists or statuses unanswered for long; a connection is blind, or
new ones have to wait; probes are late; acts, the state, or the files of calls and attempts cannot be
written; the configuration files are wrong. Failing probes do not count: see 'criprobe probes --check'.

A connection is blind if criprobe cannot decode its calls. Its bytes are still relayed unchanged.";

/// 10 blind connections are listed; `-o wide` lists them all.
const BLIND_LISTED: usize = 10;

/// 5 errors of the configuration are listed; `-o wide` lists them all.
const ERRORS_LISTED: usize = 5;

impl StatusArgs {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, Error> {
        let status: StatusView = context.client.get("/v1/status").await?;
        print(&match context.format {
            Format::Json => format::json(&status),
            Format::Yaml => format::yaml(&status),
            Format::Table => text(&status, context.screen, clock::wall(), Some(context.screen.width)),
            Format::Wide => text(&status, context.screen, clock::wall(), None),
        })?;
        let reasons = degraded::reasons(&status);
        if reasons.is_empty() {
            return Ok(Exit::Fine);
        }
        Ok(Exit::Failed.because(&format!("degraded: {}", reasons.join("; "))))
    }
}

fn text(status: &StatusView, screen: Screen, now: SystemTime, limit: Option<usize>) -> String {
    let mut lines = vec![
        ("criprobe", version(status), Paint::Plain),
        ("listen", status.listen.clone(), Paint::Plain),
        ("api", status.api.clone(), Paint::Plain),
    ];
    lines.extend(status.http.as_ref().map(|served| ("http", http(served), Paint::Plain)));
    lines.extend([runtime(status, now), ("events", status.runtime.event_source.clone(), Paint::Plain)]);
    lines.extend(connections(status, now, limit.map_or(usize::MAX, |_| BLIND_LISTED)));
    let calls = status.calls;
    lines.push(("calls", format!("{} in flight, {} ended", calls.in_flight, calls.total), Paint::Plain));
    let gaps = if status.gaps == 0 { Paint::Plain } else { Paint::Doubtful };
    lines.push(("gaps", status.gaps.to_string(), gaps));
    lines.push(("inventory", inventory(status, now), Paint::Plain));
    let waiting = [
        (status.inventory.waiting, "for the status of containers or pods"),
        (status.inventory.waiting_images, "for names or HEALTHCHECK of images"),
    ];
    lines.extend(waiting.into_iter().filter_map(|(waiting, what)| Some(waits(waiting?, what))));
    let failing = if pods::is_any_failing(&status.probes) { Paint::Bad } else { Paint::Plain };
    lines.push(("probes", probes(&status.probes), failing));
    lines.extend(status.probes.late.map(late));
    lines.extend(status.probes.enforced_without_result.as_ref().map(without_result));
    lines.extend(acts(&status.acts));
    lines.push(state(status, now));
    let files = [("attempts", &status.attempts), ("trace", &status.trace)];
    lines.extend(files.into_iter().filter_map(|(name, file)| Some(record_file(name, file.as_ref()?))));
    lines.extend(status.stages.iter().map(|stage| ("  failed", restarted(stage, now), Paint::Doubtful)));
    lines.extend(log(status));
    lines.extend(config(status, now, limit.map_or(usize::MAX, |_| ERRORS_LISTED)));

    let indent = lines.iter().map(|(name, ..)| width_of(name)).max().unwrap_or_default() + 2;
    let screen = Screen { width: limit.unwrap_or(usize::MAX), ..screen };
    let banner = banner::of(&status.runtime, screen, now);
    let entries = lines.iter().flat_map(|(name, value, paint)| entry(screen, (name, indent), value, *paint));
    banner.into_iter().chain(entries).map(|line| line + "\n").collect()
}

fn version(status: &StatusView) -> String {
    let draining = if status.draining { ", draining" } else { "" };
    format!("{}, pid {}, up {}{draining}", status.version, status.pid, coarse(status.uptime_seconds.0))
}

/// `http://127.0.0.1:9090 (page, reading API, metrics, health)`.
fn http(served: &HttpView) -> String {
    let what = if served.page { "page, reading API, metrics, health" } else { "only metrics and health" };
    format!("http://{} ({what})", served.address)
}

fn runtime(status: &StatusView, now: SystemTime) -> (&'static str, String, Paint) {
    let runtime = &status.runtime;
    let (name, version) = (&runtime.name, &runtime.version);
    let name = if name.is_empty() { String::new() } else { format!("{name} {version} at ") };
    let since = age(runtime.since.0, now);
    let (state, paint) = match runtime.state {
        RuntimeState::Ok if runtime.reason.is_empty() => (format!("ok for {since}"), Paint::Good),
        RuntimeState::Ok => (format!("ok for {since} ({})", runtime.reason), Paint::Doubtful),
        RuntimeState::Away if runtime.reason.is_empty() => (format!("away for {since}"), Paint::Bad),
        RuntimeState::Away => (format!("away for {since} ({})", runtime.reason), Paint::Bad),
    };
    ("runtime", format!("{name}{}, {state}", runtime.endpoint), paint)
}

/// A file that records are written to.
fn record_file(name: &'static str, file: &RecordFileView) -> (&'static str, String, Paint) {
    let dropped = if file.dropped > 0 { format!(", {} dropped", file.dropped) } else { String::new() };
    let path = plain(&file.file);
    let text = match &*file.trouble {
        "" => format!("{} written{dropped}; in {path}", file.written),
        trouble => format!("cannot write to {path}: {}; {} written{dropped}", plain(trouble), file.written),
    };
    let paint = match (file.trouble.is_empty(), file.dropped) {
        (true, 0) => Paint::Plain,
        (true, _) => Paint::Doubtful,
        (false, _) => Paint::Bad,
    };
    (name, text, paint)
}

fn connections(
    status: &StatusView,
    now: SystemTime,
    listed: usize,
) -> impl Iterator<Item = (&'static str, String, Paint)> {
    let connections = &status.connections;
    let blind = connections.blind.len();
    let (tail, paint) = match blind {
        0 => (String::new(), Paint::Plain),
        _ => (format!(", {blind} of the open connections blind:"), Paint::Doubtful),
    };
    let (paused, paint) = match connections.accepting_paused_since {
        None => (String::new(), paint),
        Some(since) => {
            let since = age(since.0, now);
            (
                format!(
                    "; new ones have been waiting for {since}: too many connections, or out of file descriptors (LimitNOFILE)"
                ),
                Paint::Bad,
            )
        }
    };
    let head = format!("{} open, {} accepted{paused}{tail}", connections.open, connections.total);
    let each = connections.blind.iter().take(listed).map(move |blind| {
        let (peer, since) = (&blind.peer, age(blind.since.0, now));
        let text = format!("{} {}[{}] for {since}: {}", blind.id, peer.comm, peer.pid, blind.reason);
        ("  blind", text, Paint::Doubtful)
    });
    let more = blind.checked_sub(listed).filter(|&more| more > 0);
    let more = more.map(|more| ("  blind", format!("… and {more} more: -o wide"), Paint::Doubtful));
    std::iter::once(("connections", head, paint)).chain(each).chain(more)
}

fn inventory(status: &StatusView, now: SystemTime) -> String {
    let inventory = &status.inventory;
    let listed = match inventory.last_resync_at {
        Some(at) => {
            let times = if inventory.resyncs == 1 {
                "once".to_owned()
            } else {
                format!("{} times", inventory.resyncs)
            };
            format!("listed {} ago, {times}", age(at.0, now))
        }
        None => "not listed yet".to_owned(),
    };
    let (pods, containers) = (counted(inventory.pods, "pod"), counted(inventory.containers, "container"));
    format!("{pods}, {containers} ({} running); {listed}", inventory.running)
}

/// `1 pod`, `2 pods`.
fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// What the runtime has not answered yet.
fn waits(waiting: WaitingView, what: &str) -> (&'static str, String, Paint) {
    let longest = coarse(waiting.longest_seconds.0);
    ("  waiting", format!("{what}: {}, the longest for {longest}", waiting.count), Paint::Doubtful)
}

fn probes(probes: &ProbesView) -> String {
    let observed = match (probes.observed, probes.observed_displaced) {
        (0, 0) => String::new(),
        (count, 0) => format!("; {count} observed"),
        (count, displaced) => format!("; {count} observed, {} displaced", counted(displaced, "command")),
    };
    if probes.total == 0 {
        return format!("none{observed}");
    }
    let states = probes.states.iter().map(|(state, count)| format!("{count} {}", state.as_str()));
    let phases = probes.phases.iter().map(|(phase, count)| format!("{count} {}", phase.as_str()));
    let untried = match probes.cannot_try {
        0 => String::new(),
        count => format!("; {count} {}", pods::CANNOT_TRY),
    };
    let join = |counts: Vec<String>| counts.join(", ");
    format!("{}: {}; {}{untried}{observed}", probes.total, join(states.collect()), join(phases.collect()))
}

/// Probes that wait for a place for too long.
fn late(late: LateView) -> (&'static str, String, Paint) {
    let longest = coarse(late.longest_seconds.0);
    let text =
        format!("{} waiting for a place for more than two periods, the longest for {longest}", late.count);
    ("  late", text, Paint::Doubtful)
}

/// Probes that an enforced rule asks for and that have not said anything yet.
fn without_result(unproven: &UnprovenView) -> (&'static str, String, Paint) {
    let longest = coarse(unproven.longest_seconds.0);
    let more = unproven.count.saturating_sub(unproven.probes.len() as u64);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let what = counted(unproven.count, "probe");
    let text = format!(
        "{what} of enforced rules without any result, the oldest for {longest}: {}{more}",
        unproven.probes.join(", ")
    );
    ("  unproven", text, Paint::Doubtful)
}

/// What is done to containers whose probes fail.
fn acts(acts: &ActsView) -> impl Iterator<Item = (&'static str, String, Paint)> {
    let going_on = format!(
        "{} of {} in the last minute, {} of {} in progress, {} withheld",
        acts.last_minute, acts.max_per_minute, acts.in_progress, acts.max_concurrent, acts.withheld
    );
    let (text, paint) = match (acts.enabled, acts.dry_run) {
        (false, _) if acts.in_progress == 0 => {
            ("not enabled (act.enabled): failures are only reported".to_owned(), Paint::Plain)
        }
        (false, _) => (format!("not enabled any more (act.enabled); {going_on}"), Paint::Plain),
        (true, true) => (format!("dry run (act.dryRun); {going_on}"), Paint::Plain),
        (true, false) => (going_on, if acts.withheld == 0 { Paint::Plain } else { Paint::Doubtful }),
    };
    let trouble = (!acts.trouble.is_empty()).then(|| ("  trouble", acts.trouble.clone(), Paint::Bad));
    std::iter::once(("acts", text, paint)).chain(trouble)
}

/// The state file.
fn state(status: &StatusView, now: SystemTime) -> (&'static str, String, Paint) {
    let state = &status.state;
    if state.file.is_empty() {
        return ("state", "not kept: after a restart, probes start again".to_owned(), Paint::Plain);
    }
    let saved = match state.saved_at {
        Some(at) => format!("saved {} ago", age(at.0, now)),
        None => "not saved since the start".to_owned(),
    };
    let (text, paint) = match &*state.trouble {
        "" => (format!("{}, {saved}", state.file), Paint::Plain),
        // It names the file, or its folder.
        trouble => (format!("{trouble}; {saved}"), Paint::Doubtful),
    };
    ("state", text, paint)
}

/// A stage that failed, and how often.
fn restarted(stage: &StageRestartView, now: SystemTime) -> String {
    let times = if stage.restarts == 1 { "once".to_owned() } else { format!("{} times", stage.restarts) };
    let since = age(stage.last_at.0, now);
    format!("{} was restarted {times}, last {since} ago: {}", stage.stage, stage.reason)
}

/// Dropped log lines, if there are any.
fn log(status: &StatusView) -> Option<(&'static str, String, Paint)> {
    let text = |dropped| format!("dropped lines: {dropped}; standard error is not read fast enough");
    (status.log.dropped > 0).then(|| ("log", text(status.log.dropped), Paint::Doubtful))
}

/// The files in effect and when they were read, errors in the current files, and settings that need a restart.
fn config(
    status: &StatusView,
    now: SystemTime,
    listed: usize,
) -> impl Iterator<Item = (&'static str, String, Paint)> {
    let config = &status.config;
    let files = match (config.loaded_at, &*config.files) {
        (_, []) => "no file".to_owned(),
        (None, files) => files.join(", "),
        (Some(at), files) => format!("{}, read {} ago", files.join(", "), age(at.0, now)),
    };
    let (trouble, paint) = match config.errors.len() {
        0 => ("", Paint::Plain),
        _ => (", still in effect: the current files are wrong", Paint::Bad),
    };
    let head = std::iter::once(("configuration", format!("{files}{trouble}"), paint));
    let errors = config.errors.iter().take(listed).map(|error| ("  wrong", error.clone(), Paint::Bad));
    let more = config.errors.len().checked_sub(listed).filter(|&more| more > 0);
    let more = more.map(|more| ("  wrong", format!("… and {more} more: -o wide"), Paint::Bad));
    let restart = config.needs_restart.iter().map(|line| ("  pending", line.clone(), Paint::Doubtful));
    let mode = match &*config.exec_mode {
        "" | "sync" => String::new(),
        mode => format!(" (execMode {mode})"),
    };
    let workers = format!(
        "{}, {} of them for exec{mode}; an exec attempt ends at most {} after its timeout",
        config.workers,
        config.exec_workers,
        configured(config.exec_grace_seconds.0)
    );
    head.chain(errors).chain(more).chain(restart).chain([("workers", workers, Paint::Plain)])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::report::view::{ConnectionsView, StateFileView, sample};

    #[test]
    fn it_looks_like_this() {
        let now = sample::at(125_000).0;
        for width in [40, 80, 140] {
            let shown = text(&sample::status(), Screen::plain(width), now, Some(width));
            insta::assert_snapshot!(format!("status_{width}"), shown);
        }
        let workers = "64, 16 of them for exec; an exec attempt ends";
        assert!(text(&sample::status(), Screen::plain(140), now, None).contains(workers));
        for mode in ["session", "never"] {
            let mut other = sample::status();
            other.config.exec_mode = mode.to_owned();
            let workers = format!("64, 16 of them for exec (execMode {mode}); an exec attempt ends");
            assert!(text(&other, Screen::plain(140), now, None).contains(&workers));
        }
        let mut away = sample::status();
        away.draining = true;
        away.runtime.state = RuntimeState::Away;
        away.runtime.reason = "connect: no such file".to_owned();
        away.runtime.name = String::new();
        away.connections.blind = vec![away.connections.blind[0].clone(); 12];
        away.inventory.resyncs = 1;
        away.connections.accepting_paused_since = Some(sample::at(120_000));
        away.log.dropped = 12;
        away.acts = ActsView::default();
        away.state.saved_at = None;
        away.state.trouble = "cannot write in /var/lib/criprobe: Read-only file system".to_owned();
        assert!(inventory(&away, now).ends_with("listed 1m5s ago, once"));
        away.inventory.last_resync_at = None;
        let longest_seconds = Duration::from_secs(95).into();
        let waiting = WaitingView { count: 200, since: sample::at(30_000), longest_seconds };
        away.inventory.waiting = Some(waiting);
        away.inventory.waiting_images = Some(WaitingView { count: 1, ..waiting });
        let late = LateView { count: 3, longest_seconds: Duration::from_secs(75).into() };
        away.probes =
            ProbesView { observed: 2, observed_displaced: 40, late: Some(late), ..ProbesView::default() };
        away.config.files = Vec::new();
        away.config.errors = (1..8).map(|line| format!("c.yaml:{line}:1: unknown key \"x{line}\"")).collect();
        away.config.needs_restart = vec!["listen: changed in c.yaml:9:9, needs a restart".to_owned()];
        insta::assert_snapshot!("status_away", text(&away, Screen::plain(60), now, Some(60)));
        away.acts = sample::acts();
        away.stages = vec![StageRestartView {
            stage: "prober".to_owned(),
            restarts: 2,
            last_at: sample::at(120_000),
            reason: "panicked at src/prober.rs:1:1: no such thing".to_owned(),
        }];
        away.acts.trouble = "acts cannot be recorded: No space left on device".to_owned();
        let shown = text(&away, Screen::plain(60), now, None);
        assert!(shown.contains("  trouble      acts cannot be recorded: No space left on device\n"));
        away.acts.dry_run = true;
        assert!(text(&away, Screen::plain(60), now, None).contains("dry run (act.dryRun); 6 of 6 in the"));
        away.acts.enabled = false;
        assert!(
            text(&away, Screen::plain(60), now, None).contains("not enabled any more (act.enabled); 6 of")
        );
        let failed =
            "prober was restarted 2 times, last 5s ago: panicked at src/prober.rs:1:1: no such thing";
        assert!(text(&away, Screen::plain(60), now, None).contains(failed));
        away.connections = ConnectionsView::default();
        away.state = StateFileView::default();
        assert!(
            text(&away, Screen::plain(60), now, None)
                .contains("not kept: after a restart, probes start again\n")
        );
        for width in 20..130 {
            for line in text(&away, Screen::plain(width), now, Some(width)).lines() {
                assert!(width_of(line) <= width, "{width}: {line}");
            }
        }
    }
}
