//! `criprobe pause`, `resume` and `trigger`: what an operator does with one probe.

use super::{
    Context, Error, Exit,
    format::{self, Format},
    probe_name::ProbeName,
    reason::plain,
    screen::print,
};
use crate::report::{printable::printable, view::ProbeView};

/// Flags of these verbs.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ActArgs {
    /// NAMESPACE/POD/CONTAINER/TYPE, or POD_UID/CONTAINER/TYPE; write %2F for a slash within a name
    #[arg(value_name = "PROBE")]
    probe: ProbeName,
}

pub(super) const PAUSE: &str = "\
Examples:
  criprobe pause default/web/app/liveness
  criprobe probes | grep paused

The verdict and the counts of the probe stay. An attempt in flight still ends, but changes nothing.
The pause also applies to later containers of this name, until 'criprobe resume'.";

pub(super) const RESUME: &str = "\
Examples:
  criprobe resume default/web/app/liveness

The next attempt is due at once. Resuming a probe that is not paused has no effect.";

pub(super) const TRIGGER: &str = "\
Examples:
  criprobe trigger default/web/app/readiness

The attempt counts like any other, and the period starts again with it. A probe that is paused, held
or waiting cannot be triggered: the exit code is 1, with the reason. 'criprobe run --probe' makes an
attempt in these cases, too, but it does not count.";

impl ActArgs {
    /// Sends a command for the probe, and prints the probe's new state in one line.
    pub(super) async fn run(self, context: &Context, command: &str) -> Result<Exit, Error> {
        let probe: ProbeView = context.client.post(&format!("{}/{command}", self.probe.path())).await?;
        print(&match context.format {
            Format::Json => format::json(&probe),
            Format::Yaml => format::yaml(&probe),
            Format::Table | Format::Wide => line(&probe),
        })?;
        Ok(Exit::Fine)
    }
}

/// `default/web/app/liveness: probing, success`, and the reason if there is one.
fn line(probe: &ProbeView) -> String {
    let (phase, state) = (probe.phase.as_str(), probe.state.as_str());
    let reason = if probe.reason.is_empty() { String::new() } else { format!(" ({})", plain(&probe.reason)) };
    format!("{}: {phase}, {state}{}\n", printable(&probe.id), printable(&reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::view::{ProbePhase, sample};

    #[test]
    fn how_a_probe_is_then_takes_a_line() {
        assert_eq!(line(&sample::probe()), "default/web/app/liveness: probing, success\n");
        let reason = "paused by an operator since 2026-11-20T10:00:00.000Z".to_owned();
        let paused = ProbeView { phase: ProbePhase::Paused, reason, ..sample::probe() };
        assert_eq!(
            line(&paused),
            "default/web/app/liveness: paused, success (paused by an operator since 2026-11-20T10:00:00.000Z)\n"
        );
        let nasty = ProbeView { id: "\u{1b}".to_owned(), reason: "a\nb".to_owned(), ..sample::probe() };
        assert_eq!(line(&nasty), "\\u{1b}: probing, success (a\\nb)\n");
    }
}
