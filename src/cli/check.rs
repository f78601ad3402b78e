//! `criprobe check`: files in; the resulting probes and the errors out. Needs no daemon.

mod files;
mod text;

use std::path::PathBuf;

use super::{
    Error, Exit,
    format::{self, Format},
    progress::Progress,
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
    /// Files, or folders: all *.yaml, *.yml and *.json files in and below them; - is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// A configuration file, or a folder as a node reads it (config.yaml, conf.d/*.yaml; else *.yaml): shows what its
    /// rules would change; can be given several times
    #[arg(long, value_name = "FILE")]
    rules: Vec<PathBuf>,
    /// The namespace of objects that name none
    #[arg(short, long, value_name = "NS", default_value = "default")]
    namespace: String,
    /// Exit with 1 also if there are only warnings
    #[arg(long)]
    strict: bool,
}

const EXAMPLES: &str = "\
Examples:
  criprobe check deploy/                      the manifests in a folder
  helm template shop | criprobe check -       the output of a chart
  criprobe check /etc/criprobe                a node's configuration, all files together
  criprobe check pod.json container.json      a pod and a container for crictl
  criprobe check --rules conf.d/ deploy/      what these rules would change

With --rules, + marks a probe that the rules add, - one that they remove, ! one that they make
invalid.

A file can hold Kubernetes manifests (several in one file, lists, any kind with a pod template), a
pod or a container for crictl, or a criprobe configuration; its content decides. Probes that a
manifest gives to the kubelet are also checked, and listed with the source 'kubelet'. Without
--rules, the default configuration applies to manifests. Configurations in one folder are checked
together where a node would read them together: config.yaml, then conf.d/*.yaml, which a config.yaml
brings along. So are those of one folder that are named on the command line. No daemon is needed.

Exit codes: 0 no errors, 1 errors, 2 wrong usage, or a file that cannot be read.";

/// 64 MiB of stack: several times what the deepest documents need, also in unoptimised builds.
const STACK: usize = 64 << 20;

/// The verb with all that it was given.
#[derive(Debug)]
pub struct Check {
    pub(super) arguments: CheckArgs,
    pub(super) output: Option<Format>,
}

impl Check {
    /// Checks, prints the result, and returns the exit code.
    pub fn run(self) -> Exit {
        let screen = Screen::of_stdout();
        self.checked(screen).unwrap_or_else(|error| error.report())
    }

    fn checked(self, screen: Screen) -> Result<Exit, Error> {
        let CheckArgs { files, rules, namespace, strict } = self.arguments;
        let progress = Progress::start("checking files");
        let rules = files::rules(&rules).map_err(Error::Usage)?;
        let files::Found { inputs, unreadable } = files::find(&files).map_err(Error::Usage)?;
        let view = in_thread(inputs, rules, namespace)?;
        drop(progress);
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
    thread.join().map_err(|_| Error::Refused("an internal error of criprobe".to_owned()))
}
