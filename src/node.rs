//! A node's kubelet and crictl: where each takes its runtime's socket from, and how that is changed. Never restarts anything,
//! never asks the daemon, never prints.

pub(crate) mod apply;
pub(crate) mod edit;
pub(crate) mod file;
mod flags;
pub(crate) mod kubelet;
pub(crate) mod peers;
pub(crate) mod plan;
pub(crate) mod sameness;

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::config::socket;

/// crictl's configuration.
pub(crate) const CRICTL: &str = "/etc/crictl.yaml";

/// Where the files of the node are: below `/`, or below the folder where it is mounted.
#[derive(Clone, Debug)]
pub(crate) struct Root(pub(crate) PathBuf);

impl Root {
    /// Where a path of the node is for us.
    pub(crate) fn at(&self, path: &Path) -> PathBuf {
        if path.starts_with(&self.0) {
            return path.to_owned();
        }
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The socket's file of an endpoint, if it is a Unix socket. /var/run is the old name of /run.
    pub(crate) fn socket(&self, endpoint: &str) -> Option<PathBuf> {
        let path = socket::parse(endpoint).ok()?;
        let path =
            path.strip_prefix("/var/run").map_or_else(|_| path.clone(), |rest| Path::new("/run").join(rest));
        Some(self.at(&path))
    }

    /// Whether two endpoints name one socket: by their paths, or as the paths lead to one file.
    pub(crate) fn is_same_socket(&self, one: &str, other: &str) -> bool {
        match (self.socket(one), self.socket(other)) {
            (Some(one), Some(other)) => one == other || is_same_file(&one, &other),
            _ => one == other,
        }
    }
}

/// Whether both exist and are one file.
pub(crate) fn is_same_file(one: &Path, other: &Path) -> bool {
    let id = |path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino()));
    matches!((id(one), id(other)), (Ok(one), Ok(other)) if one == other)
}
