//! `criprobe node`: points the node's kubelet and crictl at criprobe, or back, and shows who points where. Restarts nothing.

mod change;
mod status;

use std::path::{Path, PathBuf};

use super::{Context, Error, Exit};
use crate::{
    config::socket,
    node::{CRICTL, Root, file::ConfigFile, kubelet::Places},
    report::printable::printable,
};

/// What is to be done.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct NodeArgs {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    node: NodeOptions,
}

/// Where things are on the node.
#[derive(Clone, Debug, clap::Args)]
struct NodeOptions {
    /// criprobe's socket for clients [default: unix:///run/criprobe/criprobe.sock]
    #[arg(long, global = true, value_name = "URL", value_parser = endpoint)]
    endpoint: Option<String>,
    /// The kubelet's configuration file [default: that of the running kubelet or its unit, or /var/lib/kubelet/config.yaml]
    #[arg(long, global = true, value_name = "FILE")]
    kubelet_config: Option<PathBuf>,
    /// The kubelet's folder of drop-ins [default: that of the running kubelet or its unit]
    #[arg(long, global = true, value_name = "DIR")]
    kubelet_config_dir: Option<PathBuf>,
    /// Where the node's / is mounted: all other paths of the node, and of its sockets, are below it
    #[arg(long, global = true, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum What {
    /// Point the kubelet and crictl at criprobe's socket, once it is certain that the same runtime is behind it
    Switch {
        /// Show what would be changed, and check that it could be
        #[arg(long)]
        dry_run: bool,
    },
    /// Show where the kubelet and crictl point, and who is connected to criprobe and to the runtime now
    Status {
        /// Exit with 1 unless this is so
        #[arg(long, value_enum, value_name = "WHAT")]
        check: Option<Check>,
    },
    /// Point the kubelet and crictl back at the runtime
    Revert {
        /// Show what would be changed
        #[arg(long)]
        dry_run: bool,
        /// Where they should point if there is no backup: the runtime's socket
        #[arg(long, value_name = "URL", value_parser = endpoint)]
        to: Option<String>,
    },
}

/// What a script may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Check {
    /// Neither the kubelet nor crictl points at criprobe, and no client is connected to it
    Unused,
    /// A call through criprobe's socket is answered by the runtime
    Answering,
}

const EXAMPLES: &str = "\
Examples:
  criprobe node status
  criprobe node switch --dry-run                show the lines that would change
  criprobe node switch                          then: systemctl restart kubelet
  criprobe node revert                          needs no running criprobe
  criprobe node status --check unused           in a script: is it safe to remove criprobe?

'switch' changes containerRuntimeEndpoint in the kubelet's configuration, or in the drop-in that
sets it, and runtime-endpoint in /etc/crictl.yaml: one line each. The former file stays beside it
as FILE.criprobe-backup. Before that, it compares the version and the pods of the runtime behind
criprobe with those of the runtime that the kubelet uses. 'revert' puts the backup in place, or, if
the file has changed since, changes only that line back. Either changes all files or none.

No kubelet is restarted: the command for that is printed. If the kubelet gets its endpoint from a
flag, nothing is changed, and the file and line of the flag are named.

Exit codes: 0 done, 1 it cannot be done, or what --check asks is not so, 2 wrong usage, 3 the daemon
is not reachable.";

/// Where criprobe's clients connect by default.
const ENDPOINT: &str = "unix:///run/criprobe/criprobe.sock";

/// What makes a kubelet read its configuration. We only say so.
const RESTART: &str = "systemctl restart kubelet";

/// The node's files, as the options say.
struct Site {
    root: Root,
    places: Places,
    /// criprobe's socket, as it is to be written.
    endpoint: String,
}

impl NodeArgs {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, Error> {
        let site = Site {
            root: Root(std::path::absolute(self.node.root).map_err(Error::Output)?),
            places: Places { config: self.node.kubelet_config, config_dir: self.node.kubelet_config_dir },
            endpoint: self.node.endpoint.unwrap_or_else(|| ENDPOINT.to_owned()),
        };
        match self.what {
            What::Status { check } => status::show(&site, context, check).await,
            What::Switch { dry_run } => change::switch(&site, context, dry_run).await,
            What::Revert { dry_run, to } => change::revert(&site, context, to.as_deref(), dry_run),
        }
    }
}

impl Site {
    /// criprobe's socket.
    fn socket(&self) -> PathBuf {
        self.root.socket(&self.endpoint).expect("an endpoint is a Unix socket: it was parsed as one")
    }

    fn crictl(&self) -> Result<Option<ConfigFile>, Error> {
        ConfigFile::open(&self.root.at(Path::new(CRICTL))).map_err(failed)
    }
}

/// Paths, flags and what a runtime answers may hold anything.
fn failed(error: impl std::fmt::Display) -> Error {
    Error::Declined(printable(&error.to_string()).into_owned())
}

/// An endpoint in the form in which it is written into files.
fn endpoint(text: &str) -> Result<String, String> {
    let path = socket::parse(text).map_err(|error| error.to_string())?;
    Ok(format!("unix://{}", path.display()))
}
