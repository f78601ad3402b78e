//! `criprobe pause`: no attempts of a probe until it is resumed.

use super::{
    Context, Error, Exit,
    probe_name::{ProbeName, act},
};

/// Flags of the verb.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct PauseArgs {
    /// NAMESPACE/POD/CONTAINER/TYPE, or POD_UID/CONTAINER/TYPE; write %2F for a slash within a name
    #[arg(value_name = "PROBE")]
    probe: ProbeName,
}

const EXAMPLES: &str = "\
Examples:
  criprobe pause default/web/app/liveness
  criprobe probes | grep paused

The verdict and the counts of the probe stay. An attempt in flight still ends, but changes nothing.
The pause also applies to later containers of this name, until 'criprobe resume'.";

impl PauseArgs {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, Error> {
        act(context, &self.probe, "pause").await
    }
}
