//! Binds a Unix socket at a path safely: never with a wider mode than requested, never in place of a live socket or
//! another file, never where others could replace it. Or takes one that the service manager has bound.
//!
//! The socket is bound in a folder that only we can enter, gets its mode and owner there, and is then renamed into
//! place, so that no client can connect while its mode is still wrong. All operations on its file use descriptors,
//! relative to the folder that was open when the socket was bound, so no link is followed.

pub(crate) mod folder;
pub(crate) mod tcp;
mod turn;

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{
            fs::{FileTypeExt, MetadataExt},
            net::UnixListener,
        },
    },
    path::{Path, PathBuf},
    process,
    sync::Arc,
    thread,
    time::Duration,
};

use rustix::{
    fs::{
        AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid, chmod, chmodat, chownat, fstat, mkdirat, openat,
        renameat, statat, unlinkat,
    },
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with},
    process::geteuid,
};
use thiserror::Error;

pub(crate) use self::folder::Exposed;
use self::{
    folder::{Folder, FolderError},
    turn::Turn,
};
use crate::peer::Peer;

/// 107 bytes: the size of `sockaddr_un`'s path without its closing zero. A longer path cannot be bound or connected to.
pub(crate) const MAX_PATH: usize = 107;

/// 50 ms between two checks whether the process that holds the socket has ended.
const HOLDER_LOOK: Duration = Duration::from_millis(50);

/// 20 checks, so 1 s: how long a process that holds the socket may take to end, such as one that was just killed. After
/// that, the start is refused.
const HOLDER_LOOKS: u32 = 20;

/// The access to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// Permission bits.
    pub mode: u32,
    /// Owner; `None` does not change it.
    pub uid: Option<u32>,
    /// Group; `None` does not change it.
    pub gid: Option<u32>,
}

impl Access {
    /// Only the owner: 0600.
    pub(crate) const PRIVATE: Self = Self { mode: 0o600, uid: None, gid: None };

    /// The mode, owner and group of another socket; `None` while there is none.
    pub(crate) fn like(socket: &Path) -> Option<Self> {
        let meta = fs::metadata(socket).ok()?;
        meta.file_type().is_socket().then(|| Self {
            mode: meta.mode() & 0o777,
            uid: Some(meta.uid()),
            gid: Some(meta.gid()),
        })
    }

    /// Sets this access on an open file whose mode `set_mode` changes: first a narrow mode, then the group, then the
    /// requested mode. The owner comes last, as only an owner may change a mode; for the same reason, a file of another
    /// owner is ours first. A file that has this access already is not touched: clients may be connecting.
    fn grant(self, file: &OwnedFd, set_mode: impl Fn(u32) -> io::Result<()>) -> io::Result<()> {
        let is = fstat(file)?;
        if self.is_of(&is) {
            return Ok(());
        }
        let chown = |uid: Option<u32>, gid: Option<u32>| {
            chownat(file, "", uid.map(Uid::from_raw), gid.map(Gid::from_raw), AtFlags::EMPTY_PATH)
        };
        if is.st_uid != geteuid().as_raw() {
            chown(Some(geteuid().as_raw()), None)?;
        }
        set_mode(0o600)?;
        chown(None, self.gid)?;
        set_mode(self.mode)?;
        Ok(chown(self.uid, None)?)
    }

    fn is_of(self, file: &Stat) -> bool {
        file.st_mode & 0o777 == self.mode
            && self.uid.is_none_or(|uid| uid == file.st_uid)
            && self.gid.is_none_or(|gid| gid == file.st_gid)
    }

    /// Whether all but the owner who can open a file also could with this access.
    fn includes(self, file: &Stat) -> bool {
        let mode = file.st_mode & 0o666;
        mode & !self.mode == 0 && (mode & 0o060 == 0 || self.gid.is_none_or(|gid| gid == file.st_gid))
    }
}

/// Why a socket could not be bound. Each message says what to do.
#[derive(Debug, Error)]
pub(crate) enum ListenError {
    /// The operator's path is too long for the kernel.
    #[error("the socket path {0} is longer than {MAX_PATH} bytes: choose a shorter one")]
    TooLong(PathBuf),
    /// Another process listens there.
    #[error("{path} is in use by {holder}: stop it first, or choose another socket")]
    InUse {
        /// The socket.
        path: PathBuf,
        /// Its pid and command.
        holder: String,
    },
    /// Another kind of file has that name.
    #[error("{0} exists and is not a socket: remove it, or choose another path")]
    NotASocket(PathBuf),
    /// The path is that of the runtime's own socket.
    #[error("{0} is the runtime's own socket: choose another one for criprobe")]
    IsRuntime(PathBuf),
    /// Another instance has been starting on this socket for 2 s.
    #[error("{0} is locked by another process that is starting: stop it first, or choose another socket")]
    Locked(PathBuf),
    /// Others could replace the socket.
    #[error("{path}: {source}")]
    Exposed {
        /// The socket.
        path: PathBuf,
        /// Where, and what to do.
        source: Exposed,
    },
    /// The service manager passed a socket whose file is gone.
    #[error("the service manager listens on {0}, but that file is gone: restart its socket unit")]
    Gone(PathBuf),
    /// The file system returned an error.
    #[error("cannot create the socket {path}")]
    Io {
        /// The socket.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}

/// A listening socket whose file is ours.
#[derive(Debug)]
pub(crate) struct Bound {
    /// Non-blocking, ready for tokio.
    pub listener: UnixListener,
    pub file: SocketFile,
}

/// The file of a socket that we created; another process may have replaced it since. Keeps its folder open.
#[derive(Clone, Debug)]
pub(crate) struct SocketFile {
    place: Arc<Place>,
    identity: Identity,
}

/// Why the file of a socket was not removed.
#[derive(Debug, Error)]
pub(crate) enum LeftBehind {
    /// Another file has its name, or none.
    #[error("another process has replaced it")]
    NotOurs,
    /// The file system returned an error.
    #[error("cannot remove it: {0}")]
    Io(io::Error),
}

/// A path in an open folder.
#[derive(Debug)]
struct Place {
    folder: Folder,
    name: OsString,
    /// The same path as it was given, for messages and for connecting.
    path: PathBuf,
}

/// Device and inode.
type Identity = (u64, u64);

impl SocketFile {
    /// Where it was bound.
    pub(crate) fn path(&self) -> &Path {
        &self.place.path
    }

    /// Changes the access of the file if it is still ours, for example to the mode of a runtime's socket that appeared
    /// later.
    ///
    /// # Errors
    /// The file system returns an error.
    pub(crate) fn regrant(&self, access: Access) -> io::Result<()> {
        match open_socket(&self.place.folder, &self.place.name) {
            Ok(file) if identity_of(&file)? == self.identity => {
                access.grant(&file, |mode| set_mode(&file, mode))
            }
            Ok(_) | Err(Errno::NOENT | Errno::NOTSOCK) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Removes the file.
    ///
    /// # Errors
    /// The file is no longer ours, or the file system returns an error.
    pub(crate) fn unlink(&self) -> Result<(), LeftBehind> {
        let there = identity_at(&self.place.folder, &self.place.name);
        let removed = match there {
            Ok(there) if there != self.identity => return Err(LeftBehind::NotOurs),
            Ok(_) => unlinkat(&self.place.folder, &self.place.name, AtFlags::empty()),
            Err(errno) => Err(errno),
        };
        match removed {
            Ok(()) => Ok(()),
            Err(Errno::NOENT) => Err(LeftBehind::NotOurs),
            Err(errno) => Err(LeftBehind::Io(errno.into())),
        }
    }
}

/// Binds a socket at `path` with `access`. Replaces a stale file, but never a live socket, a file of another kind, or
/// the socket of the runtime. Creates the parent folder (0755) if it is missing. Waits up to a second for a process
/// that holds the socket to end.
///
/// # Errors
/// [`ListenError`] says why the socket cannot be bound.
pub(crate) fn bind(path: &Path, access: Access, runtime: Option<&Path>) -> Result<Bound, ListenError> {
    let place = Arc::new(Place::open(path)?);
    for _ in 0..HOLDER_LOOKS {
        match take(&place, access, runtime) {
            Err(ListenError::InUse { .. }) => thread::sleep(HOLDER_LOOK),
            done => return done,
        }
    }
    take(&place, access, runtime)
}

/// Takes a socket that the service manager has bound and passed: its file gets `access`, if that is known. If it cannot have
/// it, as on a read-only file system, and is no wider, it stays as it is.
///
/// # Errors
/// [`ListenError`] says why it cannot be used.
pub(crate) fn adopt(
    listener: UnixListener,
    path: &Path,
    access: Option<Access>,
    runtime: &Path,
) -> Result<Bound, ListenError> {
    let place = Arc::new(Place::open(path)?);
    if is_same_file(path, runtime) {
        return Err(ListenError::IsRuntime(path.to_owned()));
    }
    let file = match open_socket(&place.folder, &place.name) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Err(ListenError::Gone(path.to_owned())),
        Err(Errno::NOTSOCK) => return Err(ListenError::NotASocket(path.to_owned())),
        Err(errno) => return Err(place.io_error(errno.into())),
    };
    let prepared = (|| {
        if let Some(access) = access
            && let Err(error) = access.grant(&file, |mode| set_mode(&file, mode))
        {
            if !access.includes(&fstat(&file)?) {
                return Err(error);
            }
            tracing::warn!(path = %path.display(), %error, "cannot copy the mode and owner of the runtime's socket");
        }
        listener.set_nonblocking(true)?;
        identity_of(&file)
    })();
    let identity = prepared.map_err(|error| place.io_error(error))?;
    Ok(Bound { listener, file: SocketFile { place, identity } })
}

fn take(place: &Arc<Place>, access: Access, runtime: Option<&Path>) -> Result<Bound, ListenError> {
    let _turn = Turn::take(place)?;
    place.check_vacant(runtime)?;
    let (listener, identity) = place.bind_hidden(access).map_err(|error| place.io_error(error))?;
    let file = SocketFile { place: Arc::clone(place), identity };
    // A link that was dangling before may now lead to us.
    if runtime.is_some_and(|runtime| is_same_file(&place.path, runtime)) {
        // The file that remains is a socket on which no process listens: the next start replaces it.
        let _ = file.unlink();
        return Err(ListenError::IsRuntime(place.path.clone()));
    }
    Ok(Bound { listener, file })
}

impl Place {
    fn open(path: &Path) -> Result<Self, ListenError> {
        if path.as_os_str().len() > MAX_PATH {
            return Err(ListenError::TooLong(path.to_owned()));
        }
        let io_error = |source| ListenError::Io { path: path.to_owned(), source };
        let absolute = std::path::absolute(path).map_err(io_error)?;
        let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
            return Err(ListenError::NotASocket(path.to_owned()));
        };
        match Folder::open_or_make(parent) {
            Ok(folder) => Ok(Self { folder, name: name.to_owned(), path: path.to_owned() }),
            Err(FolderError::Io(error)) => Err(io_error(error)),
            Err(FolderError::Exposed(source)) => Err(ListenError::Exposed { path: path.to_owned(), source }),
        }
    }

    fn io_error(&self, source: io::Error) -> ListenError {
        ListenError::Io { path: self.path.clone(), source }
    }

    /// Whether the name can be used: no file, or a socket on which no process listens.
    fn check_vacant(&self, runtime: Option<&Path>) -> Result<(), ListenError> {
        let Ok(stat) = statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) else { return Ok(()) };
        if runtime.is_some_and(|runtime| is_same_file(&self.path, runtime)) {
            return Err(ListenError::IsRuntime(self.path.clone()));
        }
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            return Err(ListenError::NotASocket(self.path.clone()));
        }
        match self.holder() {
            Ok(None) => Ok(()),
            Ok(Some(holder)) => Err(ListenError::InUse { path: self.path.clone(), holder }),
            Err(error) => Err(self.io_error(error)),
        }
    }

    /// The process that listens there, if any: a listening socket keeps the credentials of the process that called
    /// listen(2). Never waits for a process that does not accept.
    fn holder(&self) -> io::Result<Option<String>> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match connect(&socket, &SocketAddrUnix::new(&self.path)?) {
            Ok(()) => {}
            Err(Errno::CONNREFUSED | Errno::NOENT) => return Ok(None),
            Err(Errno::AGAIN) => return Ok(Some("a process that accepts no connections".to_owned())),
            Err(errno) => return Err(errno.into()),
        }
        Ok(Some(match Peer::of(&socket) {
            // It holds the socket for a unit, and is not to be stopped itself.
            Ok(peer) if peer.pid == 1 && peer.comm == "systemd" => "a socket unit of systemd".to_owned(),
            Ok(peer) => format!("pid {} ({})", peer.pid, peer.comm),
            Err(_) => "another process".to_owned(),
        }))
    }

    /// Binds in a private folder, and renames the socket into place once its access is correct.
    fn bind_hidden(&self, access: Access) -> io::Result<(UnixListener, Identity)> {
        let hidden = Hidden::make(self)?;
        // There is no bind relative to a descriptor. Everyone who could change the path is trusted, and the result is
        // checked by opening the socket at its expected place.
        let listener = UnixListener::bind(self.path.with_file_name(&hidden.name).join(Hidden::SOCKET))?;
        let file = open_socket(&hidden.folder, OsStr::new(Hidden::SOCKET))?;
        // By its name, which only we can change there: this needs no /proc.
        access.grant(&file, |mode| {
            let mode = Mode::from_raw_mode(mode);
            Ok(chmodat(&hidden.folder, Hidden::SOCKET, mode, AtFlags::empty())?)
        })?;
        listener.set_nonblocking(true)?;
        renameat(&hidden.folder, Hidden::SOCKET, &self.folder, &self.name)?;
        Ok((listener, identity_of(&file)?))
    }
}

/// A folder beside the socket that only we can enter; removed when dropped.
struct Hidden<'a> {
    place: &'a Place,
    name: String,
    folder: OwnedFd,
}

impl<'a> Hidden<'a> {
    /// The socket in it.
    const SOCKET: &'static str = "s";

    fn make(place: &'a Place) -> io::Result<Self> {
        let name = format!(".cp{}", process::id());
        // Left over from a process with this pid that was killed.
        Self::remove(place, &name)?;
        mkdirat(&place.folder, &name, Mode::RWXU)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = openat(&place.folder, &name, flags, Mode::empty())?;
        Ok(Self { place, name, folder })
    }

    fn remove(place: &Place, name: &str) -> io::Result<()> {
        let gone = |removed| match removed {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(io::Error::from(errno)),
        };
        let socket = Path::new(name).join(Self::SOCKET);
        gone(unlinkat(&place.folder, &socket, AtFlags::empty()))?;
        gone(unlinkat(&place.folder, name, AtFlags::REMOVEDIR))
    }
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        // An empty folder does no harm, and the next process with this pid removes it.
        let _ = Self::remove(self.place, &self.name);
    }
}

/// Opens a socket's file only to change its access; never follows a link.
fn open_socket(folder: &impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let file = openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    match FileType::from_raw_mode(fstat(&file)?.st_mode) {
        FileType::Socket => Ok(file),
        _ => Err(Errno::NOTSOCK),
    }
}

/// Sets the mode of the open file itself. Linux changes the mode of an O_PATH descriptor only through this name.
fn set_mode(file: &OwnedFd, mode: u32) -> io::Result<()> {
    Ok(chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), Mode::from_raw_mode(mode))?)
}

/// Whether two paths are the same, or lead to the same file.
pub(crate) fn is_same_place(a: &Path, b: &Path) -> bool {
    a == b || is_same_file(a, b)
}

fn is_same_file(a: &Path, b: &Path) -> bool {
    let identity = |meta: &fs::Metadata| (meta.dev(), meta.ino());
    matches!((fs::metadata(a), fs::metadata(b)), (Ok(a), Ok(b)) if identity(&a) == identity(&b))
}

fn identity_of(file: &impl AsFd) -> io::Result<Identity> {
    Ok(identity(&fstat(file)?))
}

fn identity_at(folder: &Folder, name: impl AsRef<OsStr>) -> Result<Identity, Errno> {
    statat(folder, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW).map(|stat| identity(&stat))
}

fn identity(stat: &Stat) -> Identity {
    (stat.st_dev, stat.st_ino)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{File, Permissions},
        os::unix::{
            fs::{PermissionsExt as _, symlink},
            net::UnixStream,
        },
    };

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
        bound.file.unlink().unwrap();
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
    fn a_passed_socket_gets_its_access_and_keeps_its_file() {
        let dir = scratch();
        let (path, runtime) = (dir.path().join("criprobe.sock"), dir.path().join("runtime.sock"));
        let listener = UnixListener::bind(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let before = fs::metadata(&path).unwrap().ino();
        let again = || listener.try_clone().unwrap();
        let adopted = adopt(again(), &path, None, &runtime).unwrap();
        assert_eq!((mode(&path), fs::metadata(&path).unwrap().ino()), (0o600, before));
        adopted.file.regrant(Access { mode: 0o660, uid: None, gid: None }).unwrap();
        assert_eq!(mode(&path), 0o660, "once the runtime's is known");
        adopt(again(), &path, Some(Access { mode: 0o640, uid: None, gid: None }), &runtime).unwrap();
        assert_eq!(mode(&path), 0o640);

        symlink(&path, &runtime).unwrap();
        assert!(matches!(adopt(again(), &path, None, &runtime), Err(ListenError::IsRuntime(_))));
        fs::remove_file(&path).unwrap();
        assert!(matches!(adopt(again(), &path, None, Path::new("/r")), Err(ListenError::Gone(_))));
        fs::write(&path, "").unwrap();
        assert!(matches!(adopt(again(), &path, None, Path::new("/r")), Err(ListenError::NotASocket(_))));
        fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(adopt(again(), &path, None, Path::new("/r")), Err(ListenError::Exposed { .. })));
    }

    #[test]
    fn access_that_is_right_is_left_alone_and_a_file_that_cannot_have_it_may_be_no_wider() {
        let dir = scratch();
        let path = dir.path().join("s");
        let _listener = UnixListener::bind(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let file = rustix::fs::open(&path, OFlags::PATH, Mode::empty()).unwrap();
        let read_only = |_| Err(Errno::ROFS.into());
        let access = |mode| Access { mode, uid: None, gid: None };
        access(0o640).grant(&file, read_only).unwrap();
        assert!(access(0o660).grant(&file, read_only).is_err());

        let mut stat = fstat(&file).unwrap();
        let runtimes = Access { mode: 0o660, uid: Some(0), gid: Some(5) };
        for (mode, gid, includes) in [
            (0o600, 0, true),
            (0o700, 0, true),
            (0o660, 5, true),
            (0o620, 5, true),
            (0o660, 0, false),
            (0o755, 5, false),
            (0o666, 5, false),
        ] {
            (stat.st_mode, stat.st_gid) = (mode, gid);
            assert_eq!(runtimes.includes(&stat), includes, "{mode:o} {gid}");
        }
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
        assert!(UnixStream::connect(&path).is_ok());
        first.file.unlink().unwrap();
    }

    #[test]
    fn a_holder_that_is_just_ending_is_waited_for() {
        let dir = scratch();
        let path = dir.path().join("s");
        let first = bind(&path, Access::PRIVATE, None).unwrap();
        let ending = thread::spawn(move || {
            thread::sleep(4 * HOLDER_LOOK);
            drop(first);
        });
        let _second = bind(&path, Access::PRIVATE, None).unwrap();
        ending.join().unwrap();
        assert!(UnixStream::connect(&path).is_ok());
    }

    #[test]
    fn a_holder_that_accepts_nothing_does_not_hold_up_the_refusal() {
        let dir = scratch();
        let path = dir.path().join("s");
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&socket, 0).unwrap();
        let _waits = UnixStream::connect(&path).unwrap();
        let error = bind(&path, Access::PRIVATE, None).unwrap_err().to_string();
        assert!(error.contains("in use by a process that accepts no connections"), "{error}");
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
        symlink(&runtime, &alias).unwrap();
        assert!(matches!(bind(&alias, Access::PRIVATE, Some(&runtime)), Err(ListenError::IsRuntime(_))));
        assert!(matches!(bind(&runtime, Access::PRIVATE, Some(&runtime)), Err(ListenError::IsRuntime(_))));
    }

    #[test]
    fn a_runtime_that_is_a_link_to_what_is_bound_is_refused() {
        let dir = scratch();
        let path = dir.path().join("s");
        let runtime = dir.path().join("runtime.sock");
        symlink(&path, &runtime).unwrap();
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
        let place = Place::open(&path).unwrap();
        let turn = Turn::take(&place).unwrap();
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
        assert!(matches!(bound.file.unlink(), Err(LeftBehind::NotOurs)));
        assert_eq!(fs::read_to_string(&path).unwrap(), "another's");
        bound.file.regrant(Access { mode: 0o666, ..Access::PRIVATE }).unwrap();
        fs::remove_file(&path).unwrap();
        bound.file.regrant(Access { mode: 0o666, ..Access::PRIVATE }).unwrap();
        assert!(matches!(bound.file.unlink(), Err(LeftBehind::NotOurs)));
    }

    #[test]
    fn a_link_in_the_sockets_place_is_never_followed() {
        let dir = scratch();
        let path = dir.path().join("s");
        let bound = bind(&path, Access::PRIVATE, None).unwrap();
        let precious = dir.path().join("precious");
        fs::write(&precious, "").unwrap();
        fs::set_permissions(&precious, Permissions::from_mode(0o600)).unwrap();
        let elsewhere = dir.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        for target in [&precious, &elsewhere] {
            symlink(target, &path).unwrap();
            bound.file.regrant(Access { mode: 0o666, ..Access::PRIVATE }).unwrap();
            assert_eq!((mode(&precious), mode(&elsewhere)), (0o600, 0o600), "a link to it, but not it");
            assert!(matches!(bound.file.unlink(), Err(LeftBehind::NotOurs)));
            fs::remove_file(&path).unwrap();
        }
        fs::rename(&elsewhere, &path).unwrap();
        bound.file.regrant(Access { mode: 0o666, ..Access::PRIVATE }).unwrap();
        assert_eq!(mode(&path), 0o666);
    }

    #[test]
    fn a_folder_that_is_moved_takes_its_socket_with_it() {
        let dir = scratch();
        let (folder, moved) = (dir.path().join("run"), dir.path().join("moved"));
        let bound = bind(&folder.join("s"), Access::PRIVATE, None).unwrap();
        fs::rename(&folder, &moved).unwrap();
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("s"), "another's").unwrap();
        bound.file.unlink().unwrap();
        assert!(!moved.join("s").exists() && folder.join("s").exists());
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused_with_what_to_do() {
        let dir = scratch();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).unwrap();
        let path = dir.path().join("s");
        let error = bind(&path, Access::PRIVATE, None).unwrap_err().to_string();
        let expected =
            format!("{}: others can write to {} (mode 1777), ", path.display(), dir.path().display());
        assert!(error.starts_with(&expected), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
    }
}
