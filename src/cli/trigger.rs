//! `criprobe trigger`: the next attempt of a probe is made now, and counts.

use super::{
    Context, Error, Exit,
    probe_name::{ProbeName, act},
};

/// Flags of the verb.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct TriggerArgs {
    /// NAMESPACE/POD/CONTAINER/TYPE, or POD_UID/CONTAINER/TYPE; write %2F for a slash within a name
    #[arg(value_name = "PROBE")]
    probe: ProbeName,
}

const EXAMPLES: &str = "\
Examples:
  criprobe trigger default/web/app/readiness

The attempt counts like any other, and the period starts again with it. A probe that is paused, held
or waiting cannot be triggered: the exit code is 1, with the reason. 'criprobe run --probe' makes an
attempt in these cases, too, but it does not count.";

impl TriggerArgs {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, Error> {
        act(context, &self.probe, "trigger").await
    }
}
