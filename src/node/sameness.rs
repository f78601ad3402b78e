//! Whether two sockets lead to the same runtime: asks both for their version and their pods. Changes nothing there.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use tonic::Status;

use super::is_same_file;
use crate::runtime::{Runtime, Version};

/// 3: how often both are asked for their pods, which come and go between two questions.
const TRIES: usize = 3;

/// How it is known that the runtime is the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proof {
    /// The runtime.
    pub(crate) version: Version,
    /// Pods that both show. Their IDs are random: none could be in two runtimes.
    pub(crate) shared: usize,
}

/// Why it is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Difference {
    /// criprobe's socket, or what is behind it.
    #[error(
        "criprobe does not answer at {0}: {reason}: start it, or see 'systemctl status criprobe'",
        reason = .1.message().replace("the runtime's socket", "the socket")
    )]
    Relay(PathBuf, Box<Status>),
    /// The runtime's own socket.
    #[error("the runtime of {0} does not answer at {1}: {reason}", reason = .2.message())]
    Used(&'static str, PathBuf, Box<Status>),
    /// Name or version differ.
    #[error(
        "criprobe relays to {relayed}, but {who} uses {used} at {path}: set 'runtime: unix://{path}' in criprobe's configuration, and restart criprobe"
    )]
    Version {
        /// Who uses the other.
        who: &'static str,
        /// What is behind criprobe.
        relayed: String,
        /// What is used.
        used: String,
        /// Where that is.
        path: String,
    },
    /// Neither the file of the socket nor a pod is the same.
    #[error(
        "criprobe relays to {behind}, and nothing shows that this is the runtime of {who} at {path}: set 'runtime: unix://{path}' in criprobe's configuration, and restart criprobe"
    )]
    Unproven {
        /// Who uses the other.
        who: &'static str,
        /// What is behind criprobe.
        behind: String,
        /// What is used.
        path: String,
    },
    /// The same file, or a copy of it, and yet other pods.
    #[error(
        "criprobe shows other pods than the runtime of {0} at {1}: it relays to another runtime; see 'criprobe status'"
    )]
    OtherPods(&'static str, PathBuf),
}

/// Makes a call through criprobe's socket.
///
/// # Errors
/// It is not answered.
pub(crate) async fn answers(relay: &Path) -> Result<Version, Difference> {
    let of_relay = |status| Difference::Relay(relay.to_owned(), Box::new(status));
    Runtime::new(relay).version().await.map_err(of_relay)
}

/// Compares what `relay` leads to, whose own runtime is at `behind`, with the runtime at `used`, which `who` uses.
///
/// # Errors
/// One does not answer, or they differ, or nothing shows that they are the same.
pub(crate) async fn compare(
    relay: &Path,
    behind: &Path,
    (who, used): (&'static str, &Path),
) -> Result<Proof, Difference> {
    let of_relay = |status| Difference::Relay(relay.to_owned(), Box::new(status));
    let of_used = |status| Difference::Used(who, used.to_owned(), Box::new(status));
    let (relayed, direct) = (Runtime::new(relay), Runtime::new(used));
    let version = answers(relay).await?;
    let used_version = direct.version().await.map_err(of_used)?;
    if version != used_version {
        let shown = |version: &Version| format!("{} {}", version.name, version.version);
        return Err(Difference::Version {
            who,
            relayed: shown(&version),
            used: shown(&used_version),
            path: used.display().to_string(),
        });
    }
    for _ in 0..TRIES {
        let ids = |list: Vec<crate::runtime::lists::SandboxItem>| {
            list.into_iter().map(|sandbox| sandbox.brief.id).collect::<HashSet<_>>()
        };
        let through = ids(relayed.sandboxes().await.map_err(of_relay)?);
        let past = ids(direct.sandboxes().await.map_err(of_used)?);
        let shared = through.intersection(&past).count();
        match (shared, through.is_empty() && past.is_empty()) {
            (0, false) => {}
            (0, true) if is_same_file(behind, used) => return Ok(Proof { version, shared }),
            (0, true) => {
                let (behind, path) = (behind.display().to_string(), used.display().to_string());
                return Err(Difference::Unproven { who, behind, path });
            }
            _ => return Ok(Proof { version, shared }),
        }
    }
    Err(Difference::OtherPods(who, used.to_owned()))
}
