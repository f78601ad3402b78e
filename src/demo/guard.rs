//! A shell that outlives this process: when this process ends, for whatever reason, the shell kills the remaining
//! process groups and removes their folder. Group ids in, nothing out; does nothing while this process lives.
//!
//! This binds a child's life to ours without `unsafe`: the guard reads from a pipe whose other end only we hold, so the
//! pipe ends when we do.

use std::{
    io::{self, Write as _},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Mutex, PoisonError},
};

use rustix::process::Pid;

use std::os::unix::process::CommandExt as _;

/// Keeps a list of groups (`+ GROUP` adds, `- GROUP` removes), and acts at the end of its input. `$1` is the folder.
const SCRIPT: &str = r#"
groups=' '
while read -r change group; do
    case $change in
        +) groups="$groups$group " ;;
        -) groups="${groups%% "$group" *} ${groups#* "$group" }" ;;
    esac
done
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
rm -rf -- "$1"
"#;

/// The guard of one embedded runtime.
#[derive(Debug)]
pub(super) struct Guard {
    shell: Child,
    orders: Mutex<Option<ChildStdin>>,
}

impl Guard {
    /// Starts the shell, in a process group of its own so that a terminal's Ctrl-C passes it by.
    ///
    /// # Errors
    /// When there is no `sh`, or no process can be started.
    pub(super) fn start(folder: &Path) -> io::Result<Self> {
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT, "criprobe-demo-guard"])
            .arg(folder)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let orders = Mutex::new(shell.stdin.take());
        Ok(Self { shell, orders })
    }

    /// Puts a group under the guard. To be called as soon as its leader exists.
    pub(super) fn add(&self, group: Pid) {
        self.order('+', group);
    }

    /// Takes a group out. To be called before its leader is reaped: after that its number may be another's.
    pub(super) fn remove(&self, group: Pid) {
        self.order('-', group);
    }

    fn order(&self, change: char, group: Pid) {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(pipe) = orders.as_mut() else { return };
        let line = format!("{change} {}\n", group.as_raw_nonzero());
        if let Err(error) = pipe.write_all(line.as_bytes()) {
            tracing::warn!(%error, "embedded runtime lost its guard: a crash would leave processes behind");
            *orders = None;
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        *self.orders.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        // What is left for it to do takes milliseconds, and is done before we go on.
        if let Err(error) = self.shell.wait() {
            tracing::warn!(%error, "embedded runtime's guard could not be waited for");
        }
    }
}
