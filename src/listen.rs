//! Binds a Unix socket at a path, safely: never wider than asked for, never in place of something that lives.
//!
//! The socket is bound in a folder that only we can enter, gets its mode and owner there, and is then renamed into
//! place, so that nobody can connect at a moment when its mode is still wrong.

use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions, TryLockError},
    io,
    os::unix::{
        fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    process, thread,
    time::Duration,
};

use rustix::fs::OFlags;
use thiserror::Error;

use crate::peer::Peer;

/// 107 bytes: what `sockaddr_un` holds beside its closing zero. A longer path cannot be bound or connected to.
pub const MAX_PATH: usize = 107;

/// 2 s: how long another instance that starts at the same socket is waited for; it needs milliseconds.
const TURN: Duration = Duration::from_secs(2);

/// 20 ms between two looks whether it has its socket.
const TURN_LOOK: Duration = Duration::from_millis(20);

/// Who may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Permission bits.
    pub mode: u32,
    /// Owner; `None` leaves it ours.
    pub uid: Option<u32>,
    /// Group; `None` leaves it ours.
    pub gid: Option<u32>,
}

impl Access {
    /// Only the owner: 0600.
    pub const PRIVATE: Self = Self { mode: 0o600, uid: None, gid: None };

    /// The mode, owner and group of another socket; `None` while there is none.
    pub fn like(socket: &Path) -> Option<Self> {
        let meta = fs::metadata(socket).ok()?;
        meta.file_type().is_socket().then(|| Self {
            mode: meta.mode() & 0o777,
            uid: Some(meta.uid()),
            gid: Some(meta.gid()),
        })
    }

    /// Gives a socket file this access: first narrow, then the owner, then the mode that was asked for.
    fn grant(self, path: &Path) -> io::Result<()> {
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        chown(path, self.uid, self.gid)?;
        fs::set_permissions(path, Permissions::from_mode(self.mode))
    }
}

/// Why a socket could not be bound. Each says what to do.
#[derive(Debug, Error)]
pub enum ListenError {
    /// The operator's path is too long for the kernel.
    #[error("the socket path {0} is longer than {MAX_PATH} bytes: choose a shorter one")]
    TooLong(PathBuf),
    /// Another process answers there.
    #[error("{path} is in use by {holder}: stop it first, or choose another socket")]
    InUse {
        /// The socket.
        path: PathBuf,
        /// Its pid and command.
        holder: String,
    },
    /// Something else has that name.
    #[error("{0} exists and is no socket: remove it, or choose another path")]
    NotASocket(PathBuf),
    /// The runtime's own socket was given as ours.
    #[error("{0} is the runtime's own socket: criprobe needs a socket of its own")]
    IsRuntime(PathBuf),
    /// Another instance has been starting at this socket for 2 s.
    #[error("{0} is locked by another process that starts here: end it first, or choose another socket")]
    Locked(PathBuf),
    /// The file system refused.
    #[error("cannot make the socket {path}")]
    Io {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// A listening socket whose file is ours.
#[derive(Debug)]
pub struct Bound {
    /// Non-blocking, ready for tokio.
    pub listener: UnixListener,
    /// Its file.
    pub file: SocketFile,
}

/// The file of a socket that we made; somebody else may have replaced it since.
#[derive(Clone, Debug)]
pub struct SocketFile {
    /// Where it stands.
    pub path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    /// Gives the file another access, if it is still ours: a runtime's socket that came later lends its mode.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn regrant(&self, access: Access) -> io::Result<()> {
        if self.is_ours() { access.grant(&self.path) } else { Ok(()) }
    }

    /// Removes the file, if it is still ours. Says whether it did.
    pub fn unlink(&self) -> bool {
        self.is_ours() && fs::remove_file(&self.path).is_ok()
    }

    fn is_ours(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|meta| identity(&meta) == self.identity)
    }
}

/// Binds a socket at `path` with `access`, in place of a stale file, never of a live one, a foreign one, or the
/// socket of the runtime that we stand before. The parent folder is made (0755) where it lacks.
///
/// # Errors
/// [`ListenError`] says what stands in the way.
pub fn bind(path: &Path, access: Access, runtime: Option<&Path>) -> Result<Bound, ListenError> {
    if path.as_os_str().len() > MAX_PATH {
        return Err(ListenError::TooLong(path.to_owned()));
    }
    let io_error = |source| ListenError::Io { path: path.to_owned(), source };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("/"));
    DirBuilder::new().mode(0o755).recursive(true).create(parent).map_err(io_error)?;
    let _turn = Turn::take(parent, path)?;
    check_vacant(path, runtime)?;
    let listener = bind_hidden(parent, path, access).map_err(io_error)?;
    let meta = fs::symlink_metadata(path).map_err(io_error)?;
    let file = SocketFile { path: path.to_owned(), identity: identity(&meta) };
    // A link that led nowhere before may lead to us now.
    if runtime.is_some_and(|runtime| is_same_file(path, runtime)) {
        file.unlink();
        return Err(ListenError::IsRuntime(path.to_owned()));
    }
    Ok(Bound { listener, file })
}

/// Two instances that start at once take turns, by a lock on a file that only their user can open: the folder itself
/// may be open to everyone, and so to anyone's lock.
struct Turn {
    path: PathBuf,
    _lock: File,
}

impl Turn {
    fn take(parent: &Path, socket: &Path) -> Result<Self, ListenError> {
        let io_error = |source| ListenError::Io { path: socket.to_owned(), source };
        let name = socket.file_name().unwrap_or_default().to_string_lossy();
        let path = parent.join(format!(".{name}.lock"));
        let mut options = OpenOptions::new();
        options.write(true).create(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits() as i32);
        for _ in 0..TURN.as_millis() / TURN_LOOK.as_millis() {
            let lock = options.open(&path).map_err(io_error)?;
            match lock.try_lock() {
                // Whoever had it last has removed its file: the lock is worth something only on the one that stands there.
                Ok(()) if is_open_at(&lock, &path) => return Ok(Self { path, _lock: lock }),
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => thread::sleep(TURN_LOOK),
                Err(TryLockError::Error(error)) => return Err(io_error(error)),
            }
        }
        Err(ListenError::Locked(path))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // One that cannot be removed harms nobody: the lock goes with the file's end.
        let _ = fs::remove_file(&self.path);
    }
}

fn is_open_at(file: &File, path: &Path) -> bool {
    matches!((file.metadata(), fs::symlink_metadata(path)), (Ok(a), Ok(b)) if identity(&a) == identity(&b))
}

/// Whether the path may be taken: nothing there, or a socket on which nobody listens.
fn check_vacant(path: &Path, runtime: Option<&Path>) -> Result<(), ListenError> {
    let Ok(meta) = fs::symlink_metadata(path) else { return Ok(()) };
    if runtime.is_some_and(|runtime| is_same_file(path, runtime)) {
        return Err(ListenError::IsRuntime(path.to_owned()));
    }
    if !meta.file_type().is_socket() {
        return Err(ListenError::NotASocket(path.to_owned()));
    }
    match UnixStream::connect(path) {
        Err(refused) if refused.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(source) => Err(ListenError::Io { path: path.to_owned(), source }),
        Ok(live) => Err(ListenError::InUse { path: path.to_owned(), holder: holder(&live) }),
    }
}

/// Who listens at the other end: a listening socket keeps the credentials of the process that made it listen.
fn holder(live: &UnixStream) -> String {
    match Peer::of(live) {
        Ok(peer) => format!("pid {} ({})", peer.pid, peer.comm),
        Err(_) => "another process".to_owned(),
    }
}

fn bind_hidden(parent: &Path, path: &Path, access: Access) -> io::Result<UnixListener> {
    let hidden = parent.join(format!(".cp{}", process::id()));
    match fs::remove_dir_all(&hidden) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => DirBuilder::new().mode(0o700).create(&hidden)?,
    }
    let inner = hidden.join("s");
    let bound = UnixListener::bind(&inner).and_then(|listener| {
        access.grant(&inner)?;
        listener.set_nonblocking(true)?;
        fs::rename(&inner, path)?;
        Ok(listener)
    });
    let removed = fs::remove_dir_all(&hidden);
    bound.and_then(|listener| removed.map(|()| listener))
}

fn is_same_file(a: &Path, b: &Path) -> bool {
    matches!((fs::metadata(a), fs::metadata(b)), (Ok(a), Ok(b)) if identity(&a) == identity(&b))
}

fn identity(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_new_socket_is_private_and_its_file_goes_when_asked() {
        let dir = scratch();
        let path = dir.path().join("run/criprobe.sock");
        let bound = bind(&path, Access::PRIVATE, None).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert!(UnixStream::connect(&path).is_ok());
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no hidden folder is left");
        assert!(bound.file.unlink());
        assert!(!path.exists());
    }

    #[test]
    fn the_runtimes_mode_is_copied() {
        let dir = scratch();
        let runtime = dir.path().join("runtime.sock");
        let _listening = UnixListener::bind(&runtime).unwrap();
        fs::set_permissions(&runtime, Permissions::from_mode(0o660)).unwrap();
        let path = dir.path().join("criprobe.sock");
        bind(&path, Access::like(&runtime).unwrap(), Some(&runtime)).unwrap();
        assert_eq!(mode(&path), 0o660);
    }

    #[test]
    fn a_stale_socket_is_replaced() {
        let dir = scratch();
        let path = dir.path().join("s");
        drop(UnixListener::bind(&path).unwrap());
        let _bound = bind(&path, Access::PRIVATE, None).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
    }

    #[test]
    fn a_second_instance_is_refused_with_the_firsts_pid_and_its_file_stays() {
        let dir = scratch();
        let path = dir.path().join("s");
        let first = bind(&path, Access::PRIVATE, None).unwrap();
        let error = bind(&path, Access::PRIVATE, None).unwrap_err().to_string();
        assert!(error.contains(&format!("pid {}", process::id())), "{error}");
        assert!(first.file.is_ours());
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let dir = scratch();
        let path = dir.path().join("s");
        fs::write(&path, "precious").unwrap();
        assert!(matches!(bind(&path, Access::PRIVATE, None), Err(ListenError::NotASocket(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[test]
    fn the_runtimes_own_socket_is_refused_by_whatever_name() {
        let dir = scratch();
        let runtime = dir.path().join("runtime.sock");
        let _listening = UnixListener::bind(&runtime).unwrap();
        let alias = dir.path().join("alias.sock");
        std::os::unix::fs::symlink(&runtime, &alias).unwrap();
        assert!(matches!(bind(&alias, Access::PRIVATE, Some(&runtime)), Err(ListenError::IsRuntime(_))));
        assert!(matches!(bind(&runtime, Access::PRIVATE, Some(&runtime)), Err(ListenError::IsRuntime(_))));
    }

    #[test]
    fn a_runtime_that_is_a_link_to_what_is_bound_is_refused() {
        let dir = scratch();
        let path = dir.path().join("s");
        let runtime = dir.path().join("runtime.sock");
        std::os::unix::fs::symlink(&path, &runtime).unwrap();
        assert!(matches!(bind(&path, Access::PRIVATE, Some(&runtime)), Err(ListenError::IsRuntime(_))));
        assert!(!path.exists());
    }

    #[test]
    fn a_lock_on_the_folder_keeps_nobody_out() {
        let dir = scratch();
        let everyones = File::open(dir.path()).unwrap();
        everyones.lock().unwrap();
        assert!(bind(&dir.path().join("s"), Access::PRIVATE, None).is_ok());
    }

    #[test]
    fn an_instance_that_starts_for_ever_is_given_up_on() {
        let dir = scratch();
        let path = dir.path().join("s");
        let turn = Turn::take(dir.path(), &path).unwrap();
        assert!(matches!(bind(&path, Access::PRIVATE, None), Err(ListenError::Locked(_))));
        drop(turn);
        assert!(bind(&path, Access::PRIVATE, None).is_ok());
    }

    #[test]
    fn of_many_that_start_at_once_one_gets_the_socket() {
        let dir = scratch();
        let path = dir.path().join("s");
        let bound: Vec<_> = thread::scope(|scope| {
            let starts: Vec<_> = (0..8).map(|_| scope.spawn(|| bind(&path, Access::PRIVATE, None))).collect();
            starts.into_iter().map(|start| start.join().unwrap()).collect()
        });
        assert_eq!(bound.iter().filter(|bound| bound.is_ok()).count(), 1, "{bound:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_path_that_the_kernel_cannot_hold_is_refused_in_words() {
        let path = PathBuf::from(format!("/tmp/{}", "x".repeat(MAX_PATH)));
        assert!(bind(&path, Access::PRIVATE, None).unwrap_err().to_string().contains("107 bytes"));
    }

    #[test]
    fn a_file_that_another_put_there_is_not_removed() {
        let dir = scratch();
        let path = dir.path().join("s");
        let bound = bind(&path, Access::PRIVATE, None).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another's").unwrap();
        assert!(!bound.file.unlink());
        assert!(path.exists());
    }
}
