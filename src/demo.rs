//! The embedded runtime: a CRI server whose containers are plain child processes, each in its own scratch folder. For
//! `criprobe demo` and for tests, which can make it fail on request.
//!
//! **It isolates nothing.** A container's commands run as the user who started criprobe, on the machine's own file
//! system, network and process list. Any process that can open its socket can run commands as that user, so the socket
//! is 0600, and the streaming server, on a loopback port, takes only tokens that were given out there. It reports this itself: its version ends with `-demo`, and `Status(verbose)` says so.
//!
//! It removes everything that it creates: `shutdown` ends all processes and waits for them, and dropping it kills them.
//! If the whole process dies, by whatever signal, a shell beside it (`guard`) kills the processes and removes their
//! folders.
//!
//! ```text
//! server (socket, faults) -> service, containerd, images, content -> sandboxes, containers, exec, usage -> node (state, tasks) -> process
//! streaming (loopback port, tokens) -> streamed (one WebSocket) -> exec
//! ```

use std::{
    env,
    ffi::OsString,
    fs, io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

mod connection;
mod containerd;
mod containers;
mod content;
mod envelope;
mod events;
mod exec;
#[cfg_attr(not(feature = "faults"), path = "demo/no_faults.rs")]
mod faults;
mod filters;
mod guard;
mod ids;
mod images;
mod log;
mod methods;
mod node;
mod place;
pub mod pods;
mod process;
mod restore;
mod sandboxes;
mod server;
mod service;
mod state;
mod streamed;
mod streaming;
mod tokens;
mod usage;
mod verbose;
mod view;

#[cfg(feature = "faults")]
pub use faults::{FaultKind, Faults, InjectedFault, ReceivedCall};
pub use verbose::EnvValues;

use crate::{clock, ids::ContainerId};

/// The runtime's name, as Version reports it, unless it poses as containerd.
pub const RUNTIME_NAME: &str = "criprobe-demo";

/// Its version.
pub const RUNTIME_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-demo");

/// What every user should know, as `Status(verbose)` reports it.
pub const ISOLATES_NOTHING: &str = "criprobe's embedded runtime isolates nothing: its containers are plain processes \
    of this machine, run as the user who started criprobe";

/// PATH for containers where criprobe itself has none.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How to start the embedded runtime.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens; its folder is created if it is missing.
    pub socket: PathBuf,
    /// Where the containers' scratch folders go; created if it is missing, and then removed at the end.
    pub dir: PathBuf,
    /// How verbose statuses show values of environment variables.
    pub env_values: EnvValues,
    /// Whether it poses as containerd: Version says so, and it has containerd's services for events and tasks.
    pub poses_as_containerd: bool,
    /// How long a pull takes. There is nothing to fetch; by default, none takes any time.
    pub pull: Duration,
}

impl Options {
    /// Everything else as containerd does it.
    pub fn new(socket: impl Into<PathBuf>, dir: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
            dir: dir.into(),
            env_values: EnvValues::default(),
            poses_as_containerd: false,
            pull: Duration::ZERO,
        }
    }
}

/// The running embedded runtime.
pub struct EmbeddedRuntime {
    node: Arc<node::Node>,
    images: images::Images,
    faults: faults::Faults,
    socket: PathBuf,
    serving: Option<server::Serving>,
    /// Goes last: its folders have to be empty by then.
    _made: NewFolders,
}

impl EmbeddedRuntime {
    /// Starts it on the current tokio runtime, which needs its IO and time drivers. When this returns, clients can
    /// connect.
    ///
    /// # Errors
    /// When somebody listens on the socket already, when something else is in its place, when folders cannot be made,
    /// or when there is no `sh`.
    pub fn start(options: Options) -> io::Result<Self> {
        let Options { socket, dir, env_values, poses_as_containerd, pull } = options;
        let mut made = NewFolders::default();
        for folder in [socket.parent(), Some(dir.as_path())].into_iter().flatten() {
            made.make(folder)?;
        }
        let dir = fs::canonicalize(dir)?;
        let folder = dir.join(format!("run-{:.8}", ids::fresh()));
        made.make(&folder)?;
        let guard = Arc::new(guard::Guard::start(&folder)?);
        let search_path = env::var_os("PATH").unwrap_or_else(|| OsString::from(DEFAULT_PATH));
        let node = node::Node::new(folder, search_path, env_values, poses_as_containerd, guard);
        let (images, faults) = (images::Images::new(dir, pull), faults::Faults::default());
        let mut runtime = Self { node, images, faults, socket, serving: None, _made: made };
        runtime.serve_again(Duration::ZERO)?;
        Ok(runtime)
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Adds an image with this config, as its registry would have it, or gives it another one. It has the id that
    /// containers of an image of this name report, whatever the config.
    pub fn add_image(&self, name: &str, config: &[u8]) {
        self.images.add(name, config);
    }

    /// Gives an image that was added one more name, as if it had been pulled by that name, too.
    pub fn tag_image(&self, name: &str, tag: &str) {
        self.images.tag(name, tag);
    }

    /// Freezes the processes of a container, or has them run on, as `ctr tasks pause` and `resume` do. Returns whether that
    /// changed anything. CRI has no such call, and only a runtime that poses as containerd reports it.
    pub fn set_paused(&self, id: &ContainerId, is_paused: bool) -> bool {
        self.node.set_paused(id, is_paused)
    }

    /// Injects faults, and shows the calls that came.
    #[cfg(feature = "faults")]
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    /// Stops listening, ends every connection and removes the socket file; the containers go on, as with a runtime
    /// that is restarted. Returns when the last connection is gone.
    pub async fn stop_serving(&mut self) {
        self.node.end_subscriptions();
        if let Some(serving) = self.serving.take() {
            serving.cut();
            remove_file(&self.socket);
            serving.stop().await;
        }
    }

    /// Listens again after `stop_serving`. For `warm_up` it answers every call as containerd does while it starts:
    /// Unknown, `server is not initialized yet`.
    ///
    /// # Errors
    /// As `start`; nothing changes then.
    pub fn serve_again(&mut self, warm_up: Duration) -> io::Result<()> {
        if self.serving.is_none() {
            let runtime = service::Runtime(self.node.clone());
            let open_at = clock::now() + warm_up;
            let (images, faults) = (self.images.clone(), self.faults.clone());
            self.serving = Some(server::Serving::start(&self.socket, runtime, images, faults, open_at)?);
        }
        Ok(())
    }

    /// Ends everything: kills every process and waits for its end, stops serving, removes what was made.
    pub async fn shutdown(mut self) {
        self.node.kill_all();
        self.stop_serving().await;
        self.node.all_ended().await;
    }
}

impl Drop for EmbeddedRuntime {
    fn drop(&mut self) {
        self.node.kill_all();
        if let Some(serving) = self.serving.take() {
            serving.cut();
            remove_file(&self.socket);
        }
        remove_folder(&self.node.folder);
    }
}

/// The folders that did not exist before, outermost first. Removed at the end, those of them that are empty then.
#[derive(Default)]
struct NewFolders(Vec<PathBuf>);

impl NewFolders {
    /// Creates a folder and its parents if they are missing, open to us alone.
    fn make(&mut self, folder: &Path) -> io::Result<()> {
        if folder.as_os_str().is_empty() || folder.is_dir() {
            return Ok(());
        }
        if let Some(parent) = folder.parent() {
            self.make(parent)?;
        }
        fs::DirBuilder::new().mode(0o700).create(folder)?;
        self.0.push(folder.to_owned());
        Ok(())
    }
}

impl Drop for NewFolders {
    fn drop(&mut self) {
        for folder in self.0.iter().rev() {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// The wall clock's time as CRI has it: nanoseconds since the epoch.
fn wall_nanos() -> i64 {
    let since = clock::wall().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

fn remove_file(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::debug!(%error, path = %path.display(), "socket file was not removed");
    }
}

fn remove_folder(path: &Path) {
    // A process that was killed just now may still be making its last file, so it is tried again.
    let is_removed = (0..3).any(|_| fs::remove_dir_all(path).is_ok());
    if !is_removed {
        tracing::warn!(path = %path.display(), "folder of the embedded runtime was not removed");
    }
}

#[cfg(test)]
mod tests;
