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

It counts as any other attempt, and the period begins anew with it. A probe that is paused, held or
waits cannot be triggered: exit 1 and the reason. 'criprobe run --probe' tries it all the same, and
counts nothing.";

impl TriggerArgs {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, Error> {
        act(context, &self.probe, "trigger").await
    }
}
