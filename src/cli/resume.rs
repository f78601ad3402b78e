//! `criprobe resume`: a paused probe goes on.

use super::{
    Context, Error, Exit,
    probe_name::{ProbeName, act},
};

/// Flags of the verb.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ResumeArgs {
    /// NAMESPACE/POD/CONTAINER/TYPE, or POD_UID/CONTAINER/TYPE; write %2F for a slash within a name
    #[arg(value_name = "PROBE")]
    probe: ProbeName,
}

const EXAMPLES: &str = "\
Examples:
  criprobe resume default/web/app/liveness

The next attempt is due at once. Resuming a probe that is not paused has no effect.";

impl ResumeArgs {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, Error> {
        act(context, &self.probe, "resume").await
    }
}
