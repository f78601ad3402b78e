//! `criprobe pause`, `resume` and `trigger`: what an operator does with probes.

mod trigger;

use std::{str::FromStr, time::Duration};

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Value, json};

use super::{
    Context, Error, Exit,
    format::{self, Format},
    nothing,
    progress::Progress,
    reason::{one_line, plain},
    row::Row,
    screen::{Paint, Screen, fit, print},
    span::{age, measured},
};
use crate::{
    clock,
    ids::ProbeType,
    report::{
        filter::duration,
        view::{AttemptResult, CommandedView, PauseView, Time, TriggeredView},
    },
};

/// Flags of `pause`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = PAUSE)]
pub(super) struct PauseArgs {
    /// NAMESPACE/POD/CONTAINER/TYPE or POD_UID/CONTAINER/TYPE; all probes of NAMESPACE/POD/CONTAINER or NAMESPACE/POD;
    /// write %2F for a slash within a name
    #[arg(value_name = "PROBE|CONTAINER|POD")]
    subject: Subject,
    /// Resume after this time [default: only 'criprobe resume' ends the pause]
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    length: Option<Duration>,
    /// Why, in one line: shown wherever the pause is shown
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
}

/// Flags of `resume`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = RESUME)]
pub(super) struct ResumeArgs {
    /// As for 'criprobe pause'
    #[arg(value_name = "PROBE|CONTAINER|POD")]
    subject: Subject,
}

/// Flags of `trigger`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = TRIGGER)]
pub(super) struct TriggerArgs {
    /// As for 'criprobe pause'
    #[arg(value_name = "PROBE|CONTAINER|POD")]
    subject: Subject,
}

const PAUSE: &str = "\
Examples:
  criprobe pause default/web/app/liveness
  criprobe pause default/web --for 10m --reason 'kernel upgrade'
  criprobe pods                                 shows what is paused

The verdict and the counts of the probe stay. An attempt in flight still ends, but changes nothing.
The pause also applies to later containers of this name, and survives a restart of criprobe. For a
container or a pod, it applies to all valid probes that it has now. Pausing a probe again replaces
the time and the reason.";

const RESUME: &str = "\
Examples:
  criprobe resume default/web/app/liveness
  criprobe resume default/web

The next attempt is due at once. A probe that was not paused is named, and stays as it is.";

const TRIGGER: &str = "\
Examples:
  criprobe trigger default/web/app/readiness
  criprobe trigger default/web                  all its probes

Waits for the attempt, and prints its result and the verdict after it. The attempt counts like any
other, and the period starts again with it. A probe that is paused, held or waiting cannot be
triggered. 'criprobe run --probe' makes an attempt in these cases, too, but it does not count.
Of a container or a pod, all valid probes are triggered; those that cannot be now are named.

Exit codes: 0 success or warning, 1 failure, 2 wrong usage or no such probe, 3 the daemon is not
reachable, 4 the attempt ended with an error, or was not made. Of several attempts: 1 if one failed,
else 4 if one ended with an error or none was made.";

/// What to pause. Names are decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Subject(Vec<String>);

impl FromStr for Subject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split('/').map(|part| percent_decode_str(part).decode_utf8().map(String::from));
        let parts: Result<Vec<_>, _> = parts.collect();
        parts
            .ok()
            .filter(|parts| matches!(parts.len(), 2..=4) && parts.iter().all(|part| !part.is_empty()))
            .map(Self)
            .ok_or_else(|| {
                "write NAMESPACE/POD, NAMESPACE/POD/CONTAINER, NAMESPACE/POD/CONTAINER/TYPE or POD_UID/CONTAINER/TYPE"
                    .to_owned()
            })
    }
}

impl Subject {
    /// Where the API may have it: first what is likelier.
    fn paths(&self) -> Vec<String> {
        let names = self.0.iter().map(|name| format!("/{}", utf8_percent_encode(name, NON_ALPHANUMERIC)));
        let names: String = names.collect();
        let collections: &[_] = match self.0.len() {
            2 => &["pods"],
            3 if self.is_probe() => &["probes", "containers"],
            3 => &["containers"],
            _ => &["probes"],
        };
        collections.iter().map(|collection| format!("/v1/{collection}{names}")).collect()
    }

    /// Whether it is a probe by its id, or what looks like the key of one.
    fn is_probe(&self) -> bool {
        let is_key = || self.0.last().is_some_and(|name| name.parse::<ProbeType>().is_ok());
        self.0.len() == 4 || self.0.len() == 3 && is_key()
    }

    /// Sends a command for it, and prints each probe's new state in one line.
    async fn command(self, context: &Context, command: &str, body: &Value) -> Result<Exit, Error> {
        let answer = match self.send(context, command, body).await {
            Err(unknown @ Error::Usage(_)) => {
                return Err(nothing::with_events(context, &self.0, unknown).await);
            }
            answer => answer?,
        };
        let read = match answer {
            Value::Array(_) => serde_json::from_value(answer.clone()),
            _ => serde_json::from_value(answer.clone()).map(|probe: CommandedView| vec![probe]),
        };
        let probes: Vec<CommandedView> = read.map_err(|error| context.client.foreign(&error.to_string()))?;
        print(&match (context.format, &*probes) {
            (Format::Json, [probe]) if !answer.is_array() => format::json(probe),
            (Format::Yaml, [probe]) if !answer.is_array() => format::yaml(probe),
            (Format::Json, _) => format::json(&probes),
            (Format::Yaml, _) => format::yaml(&probes),
            (Format::Table | Format::Wide, _) => {
                probes.iter().map(|probe| line(probe, command == "resume", context.screen)).collect()
            }
        })?;
        Ok(Exit::Fine)
    }

    async fn send(&self, context: &Context, command: &str, body: &Value) -> Result<Value, Error> {
        let mut answer = Err(None);
        for path in self.paths() {
            match context.client.post(&format!("{path}/{command}"), body).await {
                Ok(probes) => {
                    answer = Ok(probes);
                    break;
                }
                // Nothing has this name as one thing; it may as another. If not, the first is what was probably meant.
                Err(unknown @ Error::Usage(_)) => {
                    answer = answer.map_err(|first| first.or(Some(unknown)));
                }
                Err(error) => return Err(error),
            }
        }
        answer.map_err(|error| error.expect("there is at least one path"))
    }
}

impl PauseArgs {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, Error> {
        let mut body = json!({"reason": self.reason});
        if let Some(length) = self.length {
            body["forSeconds"] = length.as_secs_f64().into();
        }
        self.subject.command(context, "pause", &body).await
    }
}

impl ResumeArgs {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, Error> {
        self.subject.command(context, "resume", &Value::Null).await
    }
}

impl TriggerArgs {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, Error> {
        if !self.subject.is_probe() {
            return trigger::all(self.subject, context).await;
        }
        let progress = Progress::start("waiting for the attempt");
        let triggered = self.subject.trigger(context).await;
        drop(progress);
        let triggered = match triggered {
            // It may be a container whose name is that of a type.
            Err(Error::Usage(_)) if self.subject.0.len() == 3 => {
                return trigger::all(self.subject, context).await;
            }
            Err(unknown @ Error::Usage(_)) => {
                return Err(nothing::with_events(context, &self.subject.0, unknown).await);
            }
            triggered => triggered.map_err(Error::not_tried)?,
        };
        print(&match context.format {
            Format::Json => format::json(&triggered),
            Format::Yaml => format::yaml(&triggered),
            Format::Table | Format::Wide => result(&triggered, clock::wall().into(), context.screen),
        })?;
        Ok(Exit::of_attempt(triggered.triggered.result))
    }
}

impl Exit {
    /// That of a single attempt.
    pub(super) fn of_attempt(result: AttemptResult) -> Self {
        match result {
            AttemptResult::Success | AttemptResult::Warning => Self::Fine,
            AttemptResult::Failure => Self::Failed,
            AttemptResult::Error => Self::NotTried,
        }
    }
}

/// `default/web/app/liveness: probing, success`, and the reason if there is one; of one that should be resumed, whether it was
/// paused.
fn line(CommandedView { probe, was_paused }: &CommandedView, is_resumed: bool, screen: Screen) -> String {
    let was = if is_resumed && *was_paused == Some(false) { "was not paused; " } else { "" };
    let (phase, state) = (probe.phase.as_str(), probe.state.as_str());
    let reason = if probe.reason.is_empty() { String::new() } else { format!("({})", plain(&probe.reason)) };
    let mut row = Row::new(screen, false);
    row.column(&format!("{}:", probe.id), 0, Paint::Plain);
    row.column(&format!("{was}{phase}, {state}"), 0, Paint::Plain);
    row.column(&reason, 0, Paint::Plain);
    row.finish() + "\n"
}

/// 200 columns of an output: the rest is in `criprobe describe`.
const MOST_OUTPUT: usize = 200;

/// `default/web/app/liveness: failure in 12ms: HTTP probe failed with statuscode: 503; verdict failure for 3m20s`.
fn result(TriggeredView { probe, triggered: attempt }: &TriggeredView, now: Time, screen: Screen) -> String {
    let took = measured(attempt.duration_seconds.0);
    let paint = super::probes::attempt_paint(attempt.result);
    let output = one_line(attempt.output.trim());
    let code = attempt.exit_code.filter(|&code| code != 0).map(|code| format!(", exit code {code}"));
    let route = attempt.route.in_words().filter(|_| attempt.route.is_about_sessions());
    let route = route.map(|route| format!(", exec route: {route}")).unwrap_or_default();
    let (code, end) = match (code, &*output) {
        (Some(code), "") => (code, ", no output;"),
        (None, "") => (String::new(), ";"),
        (code, _) => (code.unwrap_or_default(), ":"),
    };
    let output = if output.is_empty() { output } else { format!("{};", fit(&output, MOST_OUTPUT)) };
    let mut row = Row::new(screen, false);
    row.column(&format!("{}:", probe.id), 0, Paint::Plain);
    row.column(attempt.result.as_str(), 0, paint);
    row.column(&format!("in {took}{route}{code}{end}"), 0, Paint::Plain);
    row.column(&output, 0, Paint::Plain);
    row.column("verdict", 0, Paint::Plain);
    row.column(probe.state.as_str(), 0, super::probes::verdict_paint(probe.state));
    row.column(&format!("for {}", age(probe.since.0, now.0)), 0, Paint::Plain);
    row.finish() + "\n"
}

/// `paused until 10:10:00Z by an operator: kernel upgrade`; with the date where the pause does not end within a day.
pub(super) fn pause_words(pause: &PauseView, now: Time) -> String {
    let until = pause.until.map(|until| {
        let is_soon = until.0.duration_since(now.0).is_ok_and(|left| left < Duration::from_secs(24 * 3600));
        format!(" until {}", clock::short(until.0, if is_soon { until.0 } else { now.0 }))
    });
    let reason = if pause.reason.is_empty() { String::new() } else { format!(": {}", pause.reason) };
    format!("paused{} by an operator{reason}", until.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::screen::width_of;
    use crate::report::view::{AttemptView, ProbePhase, ProbeView, Verdict, sample};

    #[test]
    fn how_a_probe_is_then_takes_a_line() {
        let line = |probe: &ProbeView| {
            super::line(&CommandedView { probe: probe.clone(), was_paused: Some(true) }, true, Screen::pipe())
        };
        assert_eq!(line(&sample::probe()), "default/web/app/liveness: probing, success\n");
        let never = CommandedView { probe: sample::probe(), was_paused: Some(false) };
        assert_eq!(
            super::line(&never, true, Screen::pipe()),
            "default/web/app/liveness: was not paused; probing, success\n"
        );
        assert_eq!(
            super::line(&never, false, Screen::pipe()),
            line(&sample::probe()),
            "a pause need not replace another"
        );
        let reason = "paused by an operator since 2026-11-20T10:00:00.000Z".to_owned();
        let paused = ProbeView { phase: ProbePhase::Paused, reason, ..sample::probe() };
        assert_eq!(
            line(&paused),
            "default/web/app/liveness: paused, success (paused by an operator since 2026-11-20T10:00:00.000Z)\n"
        );
        let nasty = ProbeView { id: "\u{1b}".to_owned(), reason: "a\nb".to_owned(), ..sample::probe() };
        assert_eq!(line(&nasty), "\\u{1b}: probing, success (a\\nb)\n");
    }

    #[test]
    fn a_triggered_attempt_is_shown_with_the_verdict_after_it() {
        let probe = ProbeView { state: Verdict::Failure, ..sample::probe() };
        let attempt = AttemptView {
            result: AttemptResult::Failure,
            status: Some(503),
            exit_code: None,
            output: "HTTP probe failed with statuscode: 503\n\u{1b}[2J".into(),
            ..sample::probe().last.unwrap()
        };
        let shown = |attempt: &AttemptView| {
            let triggered = TriggeredView { probe: probe.clone(), triggered: attempt.clone() };
            let json: TriggeredView = serde_json::from_str(&format::json(&triggered)).unwrap();
            assert_eq!(json, triggered, "no field hides another");
            result(&triggered, sample::at(125_000), Screen::pipe())
        };
        assert_eq!(
            shown(&attempt),
            "default/web/app/liveness: failure in 31ms: HTTP probe failed with statuscode: 503 ⏎ \\u{1b}[2J; \
             verdict failure for 2m5s\n"
        );
        let silent = AttemptView { output: "".into(), status: None, exit_code: Some(1), ..attempt.clone() };
        let verdict = "; verdict failure for 2m5s\n";
        let line = "default/web/app/liveness: failure in 31ms, exit code 1, no output";
        assert_eq!(shown(&silent), format!("{line}{verdict}"));
        let route = sample::session_detail().history[0].route.clone();
        let first = AttemptView { route, ..silent };
        let line = line.replace("31ms,", "31ms, exec route: sync (first attempt),");
        assert_eq!(shown(&first), format!("{line}{verdict}"));
        let endless = AttemptView { output: "x".repeat(10_000).into(), exit_code: Some(3), ..attempt };
        let shown = shown(&endless);
        assert!(shown.starts_with("default/web/app/liveness: failure in 31ms, exit code 3: xxx"), "{shown}");
        assert!(shown.len() < 300, "{shown}");
    }

    #[test]
    fn a_result_goes_on_below_on_a_narrow_terminal() {
        let attempt = AttemptView {
            result: AttemptResult::Failure,
            status: Some(503),
            exit_code: None,
            output: "HTTP probe failed with statuscode: 503".into(),
            ..sample::probe().last.unwrap()
        };
        let triggered = TriggeredView { probe: sample::probe(), triggered: attempt };
        assert_eq!(
            result(&triggered, sample::at(125_000), Screen::plain(60)),
            "default/web/app/liveness: failure in 31ms:\n  \u{2514} HTTP probe failed with statuscode: 503; verdict success\n    \
             for 2m5s\n"
        );
        for width in 20..130 {
            let shown = result(&triggered, sample::at(125_000), Screen::plain(width));
            assert!(shown.lines().all(|line| width_of(line) <= width), "{width}:\n{shown}");
        }
    }

    #[test]
    fn what_is_written_may_be_a_pod_a_container_or_a_probe() {
        for (text, paths) in [
            ("default/web", vec!["/v1/pods/default/web"]),
            ("default/web/app", vec!["/v1/containers/default/web/app"]),
            ("uid/app/liveness", vec!["/v1/probes/uid/app/liveness", "/v1/containers/uid/app/liveness"]),
            ("a%2Fb/web/app/startup", vec!["/v1/probes/a%2Fb/web/app/startup"]),
            ("a/b?c=d/e#f/50%25 off", vec!["/v1/probes/a/b%3Fc%3Dd/e%23f/50%25%20off"]),
        ] {
            assert_eq!(text.parse::<Subject>().unwrap().paths(), paths, "{text}");
        }
        for text in ["", "web", "a/b/c/d/e", "a//b", "%ff/b"] {
            assert!(text.parse::<Subject>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_end_of_a_pause_has_a_date_where_it_is_not_soon() {
        let pause = |until: Option<u64>, reason: &str| PauseView {
            since: sample::at(0),
            until: until.map(sample::at),
            reason: reason.to_owned(),
        };
        for (pause, words) in [
            (pause(None, ""), "paused by an operator"),
            (pause(Some(600_250), "deploy"), "paused until 10:10:00Z by an operator: deploy"),
            (pause(Some(90_000_000), ""), "paused until 2026-11-21T11:00:00Z by an operator"),
        ] {
            assert_eq!(pause_words(&pause, sample::at(0)), words);
        }
    }
}
