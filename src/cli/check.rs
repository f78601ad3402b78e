//! `criprobe check`: files in, the probes that would result and what is wrong with them out. Asks no daemon.

mod files;
mod text;

use std::path::PathBuf;

use super::{
    Error, Exit,
    format::{self, Format},
    screen::{Screen, print},
};
use crate::{
    check::{self, CheckInput},
    report::view::CheckView,
};

/// Flags of the verb.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CheckArgs {
    /// Files, or folders for all *.yaml, *.yml and *.json in and below them; - is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// A configuration, or a folder of them, that the node is to have: shows what its rules would change; may be
    /// given several times
    #[arg(long, value_name = "FILE")]
    rules: Vec<PathBuf>,
    /// The namespace of what names none
    #[arg(short, long, value_name = "NS", default_value = "default")]
    namespace: String,
    /// Exit 1 also where there are only warnings
    #[arg(long)]
    strict: bool,
}

const EXAMPLES: &str = "\
Examples:
  criprobe check deploy/                      manifests in a folder
  helm template shop | criprobe check -       what a chart comes to
  criprobe check /etc/criprobe/config.yaml    a configuration
  criprobe check pod.json container.json      what crictl is given
  criprobe check --rules conf.d/ deploy/      what rules would change

With --rules, + is a probe that comes, - one that goes, ! one that is invalid by them.

Each file is taken for what its shape says: manifests of Kubernetes (several in one file, lists, any
kind with a pod template), a pod or a container for crictl, or a configuration of criprobe. Probes
that a manifest gives to the kubelet are checked, too, and listed with the source 'kubelet'. Without
--rules, a node with the default configuration is meant. No daemon is needed.

Exit: 0 nothing is wrong, 1 there is an error, 2 usage, or a file that cannot be read.";

/// 64 MiB of stack: what the deepest documents need, many times over, also in builds that are not optimised.
const STACK: usize = 64 << 20;

/// The verb with all that it was given.
#[derive(Debug)]
pub struct Check {
    pub(super) arguments: CheckArgs,
    pub(super) output: Option<Format>,
}

impl Check {
    /// Checks, prints, and says how it went.
    pub fn run(self) -> Exit {
        let screen = Screen::of_stdout();
        self.checked(screen).unwrap_or_else(|error| error.report())
    }

    fn checked(self, screen: Screen) -> Result<Exit, Error> {
        let CheckArgs { files, rules, namespace, strict } = self.arguments;
        let rules = files::rules(&rules).map_err(Error::Usage)?;
        let files::Found { inputs, unreadable } = files::find(&files).map_err(Error::Usage)?;
        let view = in_thread(inputs, rules, namespace)?;
        print(&match self.output.unwrap_or(Format::Table) {
            Format::Json => format::json(&view),
            Format::Yaml => format::yaml(&view),
            Format::Table => text::Page { screen, is_wide: false }.view(&view),
            Format::Wide => text::Page { screen, is_wide: true }.view(&view),
        })?;
        let exit = if view.errors > 0 || strict && view.warnings > 0 { Exit::Failed } else { Exit::Fine };
        Ok(unreadable.iter().fold(exit, |_, reason| Exit::Usage.because(reason)))
    }
}

/// Documents nest, and so do the calls that read them: they get a stack of a known size.
fn in_thread(files: Vec<CheckInput>, rules: Vec<CheckInput>, namespace: String) -> Result<CheckView, Error> {
    let thread = std::thread::Builder::new().name("check".to_owned()).stack_size(STACK);
    let thread = thread.spawn(move || check::check(&files, &rules, &namespace)).map_err(Error::Output)?;
    thread.join().map_err(|_| Error::Refused("an error of criprobe's own".to_owned()))
}
