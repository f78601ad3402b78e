//! `criprobe version`: the versions of this program and of the daemon.

use serde::Serialize;

use super::{
    Context, Error, Exit,
    format::{self, Format},
    screen::print,
};
use crate::report::{printable::printable, view::StatusView};

/// Flags of the verb.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct VersionArgs {}

const EXAMPLES: &str = "\
Examples:
  criprobe version
  criprobe version -o json | jq -r .client.version

The exit code is 0 even if the daemon is not reachable.";

/// Both versions.
#[derive(Debug, Serialize)]
struct Versions {
    client: ClientVersion,
    /// Null if it is not reachable.
    daemon: Option<DaemonVersion>,
}

#[derive(Debug, Serialize)]
struct ClientVersion {
    version: &'static str,
}

#[derive(Debug, Serialize)]
struct DaemonVersion {
    version: String,
    pid: u32,
    runtime: RuntimeVersion,
}

#[derive(Debug, Serialize)]
struct RuntimeVersion {
    name: String,
    version: String,
}

impl VersionArgs {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, Error> {
        let daemon = context.client.get::<StatusView>("/v1/status").await.map(|status| DaemonVersion {
            version: status.version,
            pid: status.pid,
            runtime: RuntimeVersion { name: status.runtime.name, version: status.runtime.version },
        });
        print(&render(daemon, context.format))?;
        Ok(Exit::Fine)
    }
}

fn render(daemon: Result<DaemonVersion, Error>, format: Format) -> String {
    let client = ClientVersion { version: env!("CARGO_PKG_VERSION") };
    match (format, daemon) {
        (Format::Json, daemon) => format::json(&Versions { client, daemon: daemon.ok() }),
        (Format::Yaml, daemon) => format::yaml(&Versions { client, daemon: daemon.ok() }),
        (Format::Table | Format::Wide, Ok(DaemonVersion { version, pid, runtime })) => {
            let runtime = format!("{} {}", printable(&runtime.name), printable(&runtime.version));
            let (version, runtime) = (printable(&version), runtime.trim());
            let runtime = if runtime.is_empty() { "not reached yet" } else { runtime };
            format!("client   {}\ndaemon   {version}, pid {pid}\nruntime  {runtime}\n", client.version)
        }
        (Format::Table | Format::Wide, Err(error)) => {
            format!("client   {}\ndaemon   none: {}\n", client.version, printable(&error.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::endpoint::Endpoint;

    #[test]
    fn it_looks_like_this() {
        let daemon = |name: &str| {
            let runtime = RuntimeVersion { name: name.to_owned(), version: "2.0.1".to_owned() };
            Ok(DaemonVersion { version: "0.1.0".to_owned(), pid: 7, runtime })
        };
        let gone = || Err(Error::Ended(Endpoint::default()));
        insta::assert_snapshot!("version", render(daemon("containerd"), Format::Table));
        insta::assert_snapshot!("version_alone", render(gone(), Format::Table));
        insta::assert_snapshot!("version_json", render(daemon("containerd"), Format::Json));
        insta::assert_snapshot!("version_alone_json", render(gone(), Format::Json));
    }
}
