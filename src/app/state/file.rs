//! The state file: bytes to a disk and back, safely for root in any folder. Blocks; never logs, never makes decisions.
//!
//! A file that is not a regular file, or that others own or can write to, is not read. A new file is written beside the
//! old one, without following prepared names or links, and replaces it once it is on the disk: there is always a
//! complete file. The process that holds the folder's lock is the only one that uses the file.

use std::{
    fs::{DirBuilder, File},
    io::{self, Read, Write},
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt, MetadataExt},
    },
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use rustix::{
    fs::{
        Access, AtFlags, FlockOperation, Mode, OFlags, accessat, flock, fstat, fsync, open, openat, renameat,
        unlinkat,
    },
    io::Errno,
    process::geteuid,
};
use thiserror::Error;

use crate::prober::{
    Saved,
    state::{MAX_BYTES, SavedError},
};

/// The state of probes.
const PROBES: &str = "probes.json";

/// The record of acts.
const ACTS: &str = "acts.json";

/// The bits by which others than the owner may write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A file in a folder that may not be there.
#[derive(Debug)]
pub(super) struct StateFile {
    folder: PathBuf,
    lock: Mutex<Lock>,
}

/// The lock of the folder.
#[derive(Debug, Default)]
enum Lock {
    /// Not to be had yet.
    #[default]
    None,
    Held(HeldLock),
    /// Left to another daemon for good.
    GivenUp,
}

/// A folder whose lock is held, open for as long as it is.
#[derive(Debug)]
struct HeldLock(OwnedFd);

impl Drop for HeldLock {
    fn drop(&mut self) {
        // Closing is not enough: the lock is shared with every copy of the descriptor, such as that of a child that has
        // not run its own program yet. Where unlocking fails there is no lock.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Why the state cannot be used or kept.
#[derive(Debug, Error)]
pub(super) enum StateError {
    #[error("cannot use the folder {0}")]
    Folder(PathBuf, #[source] io::Error),
    #[error(
        "another criprobe keeps its state in {0}: set another folder for this one (`state`, or CRIPROBE_STATE)"
    )]
    InUse(PathBuf),
    #[error("cannot write in {0}")]
    Write(PathBuf, #[source] io::Error),
    #[error("cannot read {0}")]
    Read(PathBuf, #[source] io::Error),
    #[error("{0} is not a regular file")]
    NotAFile(PathBuf),
    #[error("{0} is owned by another user, or others can write to it")]
    NotOurs(PathBuf),
    #[error("cannot use {0}")]
    Content(PathBuf, #[source] SavedError),
}

impl StateFile {
    /// That of a folder. Touches nothing yet.
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), lock: Mutex::default() }
    }

    /// The file.
    pub(super) fn path(&self) -> PathBuf {
        self.folder.join(PROBES)
    }

    /// Makes the folder (0700) if only itself is missing, takes its lock, and sees whether it can be written in.
    pub(super) fn prepare(&self) -> Result<(), StateError> {
        let folder = self.open_or_make()?;
        self.lock(&folder)?;
        let wanted = Access::WRITE_OK | Access::EXEC_OK;
        accessat(&folder, ".", wanted, AtFlags::EACCESS).map_err(|errno| self.write_error(errno))
    }

    /// What was saved; nothing if there is no file.
    pub(super) fn load(&self) -> Result<Saved, StateError> {
        let Some(text) = self.read(PROBES, MAX_BYTES)? else { return Ok(Saved::default()) };
        Saved::from_json(&text).map_err(|error| StateError::Content(self.path(), error))
    }

    /// Puts this in the file's place, whole and on the disk when it returns.
    pub(super) fn save(&self, text: &[u8]) -> Result<(), StateError> {
        self.write(PROBES, text)
    }

    /// The record of acts, of so many bytes and one more at most; nothing if there is none. Only of a folder that is ours:
    /// another daemon may still be acting.
    pub(super) fn load_acts(&self, most: usize) -> Result<Option<Vec<u8>>, StateError> {
        self.prepare()?;
        self.read(ACTS, most)
    }

    /// Puts this in the place of the record of acts, whole and on the disk when it returns.
    pub(super) fn save_acts(&self, text: &[u8]) -> Result<(), StateError> {
        self.write(ACTS, text)
    }

    fn write(&self, name: &str, text: &[u8]) -> Result<(), StateError> {
        let folder = self.open_or_make()?;
        self.lock(&folder)?;
        let next = next(name);
        replace(&folder, name, &next, text).map_err(|error| {
            // A half of it is of no use; if it cannot be removed, the next one replaces it.
            let _ = unlinkat(&folder, next, AtFlags::empty());
            StateError::Write(self.folder.clone(), error)
        })
    }

    /// Leaves the folder to the daemon that uses it, for good: an attempt that is still under way takes no lock, and
    /// none that comes writes anything.
    pub(super) fn give_up(&self) {
        *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = Lock::GivenUp;
    }

    /// Takes the folder's lock, unless it is held already; never waits for it. The kernel gives it back when we end,
    /// however we do. It is the folder's own, so that nothing more lies in there, and of the folder that the path names
    /// now: one that was removed and created again has a new one.
    fn lock(&self, folder: &OwnedFd) -> Result<(), StateError> {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let identity = |folder: &OwnedFd| fstat(folder).map(|stat| (stat.st_dev, stat.st_ino));
        let now = identity(folder).map_err(|errno| self.folder_error(errno))?;
        match &*lock {
            Lock::GivenUp => return Err(StateError::InUse(self.folder.clone())),
            Lock::Held(HeldLock(held)) if identity(held) == Ok(now) => return Ok(()),
            Lock::Held(_) | Lock::None => {}
        }
        match flock(folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let held =
                    folder.try_clone().map_err(|error| StateError::Folder(self.folder.clone(), error))?;
                *lock = Lock::Held(HeldLock(held));
                Ok(())
            }
            Err(Errno::WOULDBLOCK) => Err(StateError::InUse(self.folder.clone())),
            // A file system without locks, as some on a network are: the state is kept there all the same.
            Err(_) => Ok(()),
        }
    }

    fn read(&self, name: &str, most: usize) -> Result<Option<Vec<u8>>, StateError> {
        let path = self.folder.join(name);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match open(&path, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            // What NOFOLLOW makes of a link.
            Err(Errno::LOOP) => return Err(StateError::NotAFile(path)),
            Err(Errno::NOTDIR) => return Err(StateError::Folder(self.folder.clone(), Errno::NOTDIR.into())),
            Err(errno) => return Err(StateError::Read(path, errno.into())),
        };
        let meta = match file.metadata() {
            Ok(meta) => meta,
            Err(error) => return Err(StateError::Read(path, error)),
        };
        if !meta.is_file() {
            return Err(StateError::NotAFile(path));
        }
        if meta.uid() != geteuid().as_raw() || meta.mode() & WRITABLE_BY_OTHERS != 0 {
            return Err(StateError::NotOurs(path));
        }
        let mut text = Vec::new();
        // One byte more shows that it is too large.
        match file.take(most as u64 + 1).read_to_end(&mut text) {
            Ok(_) => Ok(Some(text)),
            Err(error) => Err(StateError::Read(path, error)),
        }
    }

    fn open_or_make(&self) -> Result<OwnedFd, StateError> {
        match DirBuilder::new().mode(0o700).create(&self.folder) {
            Ok(()) => {}
            Err(exists) if exists.kind() == io::ErrorKind::AlreadyExists => {}
            // It may be there all the same, where nothing can be created: opening it shows that.
            Err(refused) if self.folder.is_dir() => drop(refused),
            Err(refused) => return Err(StateError::Folder(self.folder.clone(), refused)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        open(&self.folder, flags, Mode::empty()).map_err(|errno| self.folder_error(errno))
    }

    fn folder_error(&self, errno: Errno) -> StateError {
        StateError::Folder(self.folder.clone(), errno.into())
    }

    fn write_error(&self, errno: Errno) -> StateError {
        StateError::Write(self.folder.clone(), errno.into())
    }
}

/// Where the next version of a file is written. Left over only by a crash, and then replaced.
fn next(name: &str) -> String {
    format!(".{name}.next")
}

fn replace(folder: &OwnedFd, name: &str, next: &str, text: &[u8]) -> io::Result<()> {
    match unlinkat(folder, next, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(folder, next, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(text)?;
    file.sync_all()?;
    renameat(folder, next, folder, name)?;
    Ok(fsync(folder)?)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::{PermissionsExt, symlink},
    };

    use tempfile::TempDir;

    use super::*;

    const EMPTY: &[u8] = b"{\"version\":1,\"probes\":[]}";

    fn folder() -> (TempDir, StateFile) {
        let dir = tempfile::tempdir().unwrap();
        let file = StateFile::new(&dir.path().join("state"));
        (dir, file)
    }

    #[test]
    fn no_file_is_no_state_and_what_is_saved_is_loaded() {
        let (_dir, file) = folder();
        assert_eq!(file.load().unwrap(), Saved::default(), "not even a folder");
        file.prepare().unwrap();
        assert_eq!(file.load().unwrap(), Saved::default());
        file.save(b"{\"version\":1,\"probes\":[{\"pod\":\"p\",\"container\":\"c\",\"type\":\"startup\"}]}")
            .unwrap();
        assert_eq!(file.load().unwrap().probes.len(), 1);
        file.save(EMPTY).unwrap();
        assert_eq!(file.load().unwrap().probes.len(), 0);
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&file.folder), mode(&file.path())), (0o700, 0o600));
        assert_eq!(fs::read_dir(&file.folder).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_folder_is_one_daemons_and_the_next_ones_when_that_is_gone() {
        let (dir, first) = folder();
        first.prepare().unwrap();
        first.prepare().unwrap();
        let second = StateFile::new(&first.folder);
        for refused in [second.prepare(), second.save(EMPTY)] {
            let reported = refused.unwrap_err().to_string();
            assert!(reported.starts_with("another criprobe keeps its state in "), "{reported}");
        }
        assert!(!first.path().exists(), "nothing was written");
        drop(first);
        second.save(EMPTY).unwrap();
        fs::rename(&second.folder, dir.path().join("moved")).unwrap();
        let third = StateFile::new(&second.folder);
        third.prepare().unwrap();
        assert!(matches!(second.save(EMPTY), Err(StateError::InUse(_))), "another folder is there now");
        drop(third);
        second.save(EMPTY).unwrap();
        assert!(matches!(StateFile::new(&second.folder).prepare(), Err(StateError::InUse(_))));
    }

    #[test]
    fn what_stands_in_the_way_of_the_next_one_is_replaced_and_never_followed() {
        let (dir, file) = folder();
        file.prepare().unwrap();
        let precious = dir.path().join("precious");
        fs::write(&precious, "keep").unwrap();
        for name in [next(PROBES).as_str(), PROBES] {
            symlink(&precious, file.folder.join(name)).unwrap();
            file.save(EMPTY).unwrap();
            assert!(fs::symlink_metadata(file.path()).unwrap().is_file(), "{name}");
            assert_eq!(fs::read_to_string(&precious).unwrap(), "keep", "{name}");
            fs::remove_file(file.path()).unwrap();
        }
    }

    #[test]
    fn a_file_that_may_not_be_ours_is_not_read() {
        let (dir, file) = folder();
        let path = file.path();
        let refused = || file.load().map_err(|error| error.to_string()).unwrap_err();
        file.save(EMPTY).unwrap();
        for mode in [0o620, 0o602] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert!(refused().contains("another user"), "{}", refused());
        }
        let elsewhere = dir.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        symlink(&elsewhere, &path).unwrap();
        assert!(refused().ends_with("is not a regular file"), "{}", refused());
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(refused().ends_with("is not a regular file"), "{}", refused());
    }

    #[test]
    fn what_is_no_state_is_an_error_that_names_the_file() {
        let (_dir, file) = folder();
        file.save(b"{").unwrap();
        assert!(matches!(file.load(), Err(StateError::Content(..))));
        fs::write(file.path(), vec![b' '; MAX_BYTES + 1]).unwrap();
        assert!(matches!(file.load(), Err(StateError::Content(_, SavedError::TooLarge))));
    }

    #[test]
    fn a_folder_without_a_parent_is_not_made_and_a_file_is_no_folder() {
        let (dir, _) = folder();
        let orphan = StateFile::new(&dir.path().join("a/b"));
        assert!(matches!(orphan.prepare(), Err(StateError::Folder(..))));
        assert!(matches!(orphan.save(EMPTY), Err(StateError::Folder(..))));
        let plain = dir.path().join("plain");
        fs::write(&plain, "").unwrap();
        let file = StateFile::new(&plain);
        let reported: Vec<_> =
            [file.prepare().unwrap_err(), file.load().map(drop).unwrap_err(), file.save(EMPTY).unwrap_err()]
                .map(|error| format!("{error:?}"))
                .into();
        assert!(matches!(file.load(), Err(StateError::Folder(..))), "{reported:?}");
        assert!(
            reported.iter().all(|text| *text == reported[0]),
            "one trouble is reported once: {reported:?}"
        );
    }
}
