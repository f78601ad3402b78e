//! A file of a node's configuration: read whole, replaced in one step, with a backup beside it. What others could have
//! exchanged, or what another file also is, is refused. A file that changed since it was read is never replaced.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStringExt, fs::MetadataExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{
        Access, AtFlags, FlockOperation, Gid, Mode, OFlags, RenameFlags, Uid, XattrFlags, accessat, fchmod,
        fchown, fgetxattr, flistxattr, flock, fsetxattr, linkat, openat, readlinkat, renameat, renameat_with,
        statat, unlinkat,
    },
    io::Errno,
    process::geteuid,
};

use super::edit::MAX_BYTES;
use crate::document::{self, SyntaxError};

/// What the name of a backup ends with. A kubelet reads only `*.conf` of a folder of drop-ins.
const BACKUP: &str = ".criprobe-backup";

/// What the name of a new content ends with, until it is in its place.
const NEW: &str = ".criprobe-new";

/// 64 KiB: how much of the names, or of one value, of a file's extended attributes is read: the most that Linux gives.
const MAX_ATTRIBUTE: usize = 64 << 10;

/// 100: how often what others write in the very moment is exchanged for something newer of theirs. Beyond that, the newest
/// stays beside the file.
const MAX_EXCHANGES: usize = 100;

/// Why a file cannot be read or replaced: what is wrong, and what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// Replacing it would replace the link.
    #[error("{0} is a symbolic link to {1}: change that file instead, by hand or with what made the link")]
    Link(PathBuf, PathBuf),
    /// A folder, a device, a pipe.
    #[error("{0} is not a regular file")]
    NotRegular(PathBuf),
    /// Its other name would keep the old content.
    #[error(
        "{0} has another name (hard link): replacing it would part the two; remove the other name, or change it by hand"
    )]
    OtherName(PathBuf),
    /// It belongs to someone else, and we are not root.
    #[error("{0} belongs to uid {1}: run this as root")]
    NotOurs(PathBuf, u32),
    /// Others can exchange what is in the folder.
    #[error("others can write to {0}, the folder of the file: run chmod go-w {0}")]
    Exposed(PathBuf),
    /// It is too long.
    #[error("{0} has more than {limit} KiB", limit = MAX_BYTES >> 10)]
    TooLong(PathBuf),
    /// It is no text.
    #[error("{0}: {1}")]
    NoText(PathBuf, SyntaxError),
    /// Someone else writes it, too.
    #[error("{0} was changed by someone else in the meantime: nothing was replaced; run the command again")]
    Changed(PathBuf),
    /// The system refuses.
    #[error("cannot {1} {0}: {2}{hint}", hint = hint(.2))]
    Io(PathBuf, &'static str, #[source] io::Error),
}

/// A file that was read, and is locked against other runs of criprobe.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    path: PathBuf,
    folder: OwnedFd,
    file: File,
    text: String,
    /// What the path leads to, if it is a symbolic link.
    link: Option<PathBuf>,
}

/// What becomes of the file that is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backup {
    /// It becomes the backup.
    Make,
    /// It is gone, and a backup that is there stays.
    Keep,
}

/// A new content that is on the disk beside the file, and not yet in its place. Dropped, it is removed.
#[derive(Debug)]
pub(crate) struct Staged<'a> {
    file: &'a ConfigFile,
    name: OsString,
    /// Whatever else has its name by now is not ours.
    new: File,
}

impl ConfigFile {
    /// Reads a file, also through a symbolic link; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read, or is not a plain file of text.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>, FileError> {
        let failed = |what| move |error: Errno| FileError::Io(path.to_owned(), what, error.into());
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(FileError::NotRegular(path.to_owned()));
        };
        let folder = match openat(rustix::fs::CWD, folder, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.map_err(failed("open the folder of"))?,
        };
        // A pipe would otherwise be waited for.
        let flags = OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = |flags| openat(&folder, name, flags, Mode::empty());
        let (opened, link) = match open(flags | OFlags::NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => {
                let target = readlinkat(&folder, name, Vec::new()).map_err(failed("read"))?;
                (open(flags), Some(PathBuf::from(OsString::from_vec(target.into_bytes()))))
            }
            opened => (opened, None),
        };
        let file = File::from(opened.map_err(failed("read"))?);
        let failed = |error| FileError::Io(path.to_owned(), "read", error);
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(FileError::NotRegular(path.to_owned()));
        }
        let bytes = read(&file).map_err(failed)?;
        if bytes.len() > MAX_BYTES {
            return Err(FileError::TooLong(path.to_owned()));
        }
        let text = document::decode(&bytes).map_err(|error| FileError::NoText(path.to_owned(), error))?;
        Ok(Some(Self { path: path.to_owned(), folder, text: text.to_owned(), file, link }))
    }

    /// Its backup, if there is one.
    ///
    /// # Errors
    /// It cannot be read, or is not a plain file of text.
    pub(crate) fn backup(&self) -> Result<Option<Self>, FileError> {
        let backup = Self::open(&self.backup_path())?;
        backup.as_ref().map_or(Ok(()), Self::check_link)?;
        Ok(backup)
    }

    /// Where its backup is.
    pub(crate) fn backup_path(&self) -> PathBuf {
        self.path.with_file_name(self.backup_name())
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What was read.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether we may replace it.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check(&self) -> Result<(), FileError> {
        self.check_link()?;
        let failed = |error| self.failed("read", error);
        let meta = self.file.metadata().map_err(failed)?;
        let user = geteuid();
        if !user.is_root() && meta.uid() != user.as_raw() {
            return Err(FileError::NotOurs(self.path.clone(), meta.uid()));
        }
        // Our names of the file itself are left from a run that was cut off.
        let own = [self.backup_name(), self.new_name()]
            .into_iter()
            .filter(|name| self.has_name(name).is_ok_and(|is| is));
        if meta.nlink() > 1 + own.count() as u64 {
            return Err(FileError::OtherName(self.path.clone()));
        }
        let folder = rustix::fs::fstat(&self.folder).map_err(|error| failed(error.into()))?;
        let is_shared = folder.st_mode & 0o002 != 0 || folder.st_mode & 0o020 != 0 && folder.st_gid != 0;
        let is_foreign = folder.st_uid != 0 && folder.st_uid != user.as_raw();
        if is_shared || is_foreign {
            let folder = self.path.parent().unwrap_or(Path::new("/"));
            return Err(FileError::Exposed(folder.to_owned()));
        }
        let may_write = |name| accessat(&self.folder, name, Access::WRITE_OK, AtFlags::EACCESS);
        may_write(OsStr::new(".")).map_err(|error| self.failed("write to the folder of", error.into()))?;
        match may_write(self.name()) {
            // It is replaced, and not written to.
            Ok(()) | Err(Errno::ACCESS) => {}
            Err(error) => return Err(self.failed("replace", error.into())),
        }
        match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Err(FileError::Changed(self.path.clone())),
            locked => locked.map_err(|error| self.failed("lock", error.into())),
        }
    }

    /// Writes a new content beside the file, with its mode, owner and extended attributes.
    ///
    /// # Errors
    /// It cannot be written, or must not be replaced.
    pub(crate) fn stage(&self, text: &str) -> Result<Staged<'_>, FileError> {
        self.check()?;
        let name = self.new_name();
        let failed = |error| self.failed("write a file beside", error);
        // Left by a run that was cut off: none other can be here, as the file is locked.
        let _ = unlinkat(&self.folder, &name, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let new = openat(&self.folder, &name, flags, Mode::RUSR | Mode::WUSR);
        let new = File::from(new.map_err(|error| failed(error.into()))?);
        let staged = Staged { file: self, name, new };
        (&staged.new).write_all(text.as_bytes()).map_err(failed)?;
        self.copy_attributes(&staged.new).map_err(failed)?;
        staged.new.sync_all().map_err(failed)?;
        Ok(staged)
    }

    fn copy_attributes(&self, new: &File) -> io::Result<()> {
        let meta = self.file.metadata()?;
        let made = new.metadata()?;
        if (made.uid(), made.gid()) != (meta.uid(), meta.gid()) {
            fchown(new, Some(Uid::from_raw(meta.uid())), Some(Gid::from_raw(meta.gid())))?;
        }
        fchmod(new, Mode::from_raw_mode(meta.mode()))?;
        // The label of SELinux is one.
        let mut names = vec![0; MAX_ATTRIBUTE];
        let length = match flistxattr(&self.file, &mut names[..]) {
            Err(Errno::OPNOTSUPP) => 0,
            listed => listed?,
        };
        let mut value = vec![0; MAX_ATTRIBUTE];
        for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let length = fgetxattr(&self.file, name, &mut value[..])?;
            fsetxattr(new, name, &value[..length], XattrFlags::empty())?;
        }
        Ok(())
    }

    /// Makes the backup the file again: the very file that it was.
    ///
    /// # Errors
    /// The file has changed since it was read, or the system refuses.
    pub(crate) fn restore(&self) -> Result<(), FileError> {
        self.check()?;
        // Left by a run that was cut off.
        let _ = unlinkat(&self.folder, self.new_name(), AtFlags::empty());
        self.replace_by(&self.backup_name(), "restore the backup of")
    }

    /// Removes the backup, if there is one.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn remove_backup(&self) -> Result<(), FileError> {
        match unlinkat(&self.folder, self.backup_name(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(self.failed("remove the backup of", error.into())),
        }
    }

    /// Puts the file of this name, which it then has no longer, in the place of this one.
    fn replace_by(&self, name: &OsStr, what: &'static str) -> Result<(), FileError> {
        self.unchanged(self.name())?;
        let failed = |error: Errno| self.failed(what, error.into());
        let exchange = || renameat_with(&self.folder, name, &self.folder, self.name(), RenameFlags::EXCHANGE);
        let hold =
            || openat(&self.folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        let mut put = File::from(hold().map_err(failed)?);
        match exchange() {
            // Not of this file system: what others write between the two calls here is lost.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                renameat(&self.folder, name, &self.folder, self.name()).map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
            Ok(()) if self.unchanged(name).is_ok() => {
                // What is left of it has a name of ours, and is no obstacle.
                let _ = unlinkat(&self.folder, name, AtFlags::empty());
            }
            // Others have replaced it just before. The newest of theirs goes back: what comes out then is what was put in.
            Ok(()) => {
                for _ in 0..MAX_EXCHANGES {
                    let theirs = File::from(hold().map_err(failed)?);
                    exchange().map_err(failed)?;
                    if is_named(&put, &self.folder, name).map_err(|error| self.failed(what, error))? {
                        break;
                    }
                    put = theirs;
                }
                return Err(FileError::Changed(self.path.clone()));
            }
        }
        self.settle();
        Ok(())
    }

    /// Whether what has this name is the file that was read, with the same content.
    fn unchanged(&self, name: &OsStr) -> Result<(), FileError> {
        let failed = |error| self.failed("read", error);
        if !self.has_name(name).map_err(failed)? || read(&self.file).map_err(failed)? != self.text.as_bytes()
        {
            return Err(FileError::Changed(self.path.clone()));
        }
        Ok(())
    }

    fn has_name(&self, name: &OsStr) -> io::Result<bool> {
        is_named(&self.file, &self.folder, name)
    }

    fn check_link(&self) -> Result<(), FileError> {
        let refuse = |target: &PathBuf| FileError::Link(self.path.clone(), target.clone());
        self.link.as_ref().map(refuse).map_or(Ok(()), Err)
    }

    /// Waits until the folder is on the disk. If that fails, the change is there all the same, and only a crash could undo
    /// it.
    fn settle(&self) {
        let _ = rustix::fs::fsync(&self.folder);
    }

    fn name(&self) -> &OsStr {
        self.path.file_name().expect("a file was opened by its name")
    }

    fn backup_name(&self) -> OsString {
        let mut name = self.name().to_owned();
        name.push(BACKUP);
        name
    }

    /// The hidden name of a new content.
    fn new_name(&self) -> OsString {
        let mut name = OsString::from(".");
        name.push(self.name());
        name.push(NEW);
        name
    }

    fn failed(&self, what: &'static str, error: io::Error) -> FileError {
        FileError::Io(self.path.clone(), what, error)
    }
}

impl Staged<'_> {
    /// Puts the new content in the place of the old one.
    ///
    /// # Errors
    /// The file has changed since it was read, or the system refuses. Then the file is as it was.
    pub(crate) fn commit(self, backup: Backup) -> Result<(), FileError> {
        let file = self.file;
        file.unchanged(file.name())?;
        if backup == Backup::Make {
            file.remove_backup()?;
            match linkat(&file.folder, file.name(), &file.folder, file.backup_name(), AtFlags::empty()) {
                // It was replaced while it got the other name.
                Err(Errno::NOENT) => return Err(FileError::Changed(file.path.clone())),
                linked => linked.map_err(|error| file.failed("make a backup of", error.into()))?,
            }
        }
        let replaced = file.replace_by(&self.name, "replace");
        if replaced.is_err() && backup == Backup::Make {
            let _ = file.remove_backup();
        }
        replaced
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if is_named(&self.new, &self.file.folder, &self.name).is_ok_and(|is| is) {
            let _ = unlinkat(&self.file.folder, &self.name, AtFlags::empty());
        }
    }
}

/// Whether an open file has this name in a folder.
fn is_named(file: &File, folder: &OwnedFd, name: &OsStr) -> io::Result<bool> {
    let ours = file.metadata()?;
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) => Ok(there.st_ino == ours.ino() && there.st_dev == ours.dev()),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What else there is to know about an error.
fn hint(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::PERM) => "; see 'lsattr' whether the file or its folder is immutable",
        Some(Errno::ROFS) => "; mount it writable first",
        _ => "",
    }
}

fn read(mut file: &File) -> io::Result<Vec<u8>> {
    io::Seek::rewind(&mut file)?;
    let mut bytes = Vec::new();
    // One byte more than is allowed shows that there are too many.
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::PermissionsExt,
        sync::atomic::{AtomicBool, AtomicUsize, Ordering},
        thread,
    };

    use super::*;

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        fs::write(&path, text).unwrap();
        (dir, path)
    }

    fn names(dir: &tempfile::TempDir) -> Vec<String> {
        let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_with_its_mode_and_comes_back_as_the_same_file() {
        let (dir, path) = file("old");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let former = fs::metadata(&path).unwrap();
        ConfigFile::open(&path).unwrap().unwrap().stage("new").unwrap().commit(Backup::Make).unwrap();
        assert_eq!(names(&dir), ["config.yaml", "config.yaml.criprobe-backup"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        let now = fs::metadata(&path).unwrap();
        assert_eq!((now.mode(), now.uid(), now.gid()), (former.mode(), former.uid(), former.gid()));
        ConfigFile::open(&path).unwrap().unwrap().restore().unwrap();
        assert_eq!(
            (names(&dir), fs::metadata(&path).unwrap().ino()),
            (vec!["config.yaml".to_owned()], former.ino())
        );
    }

    #[test]
    fn what_was_changed_since_it_was_read_is_not_replaced() {
        type Writer = fn(&Path);
        let writers: [Writer; 3] = [
            |path| fs::write(path, "changed").unwrap(),
            |path| {
                fs::write(path.with_extension("new"), "old").unwrap();
                fs::rename(path.with_extension("new"), path).unwrap();
            },
            |path| fs::remove_file(path).unwrap(),
        ];
        for (number, change) in writers.into_iter().enumerate() {
            let (dir, path) = file("old");
            let read = ConfigFile::open(&path).unwrap().unwrap();
            let staged = read.stage("new").unwrap();
            change(&path);
            let before = fs::read(&path).ok();
            staged.commit(Backup::Make).unwrap_err();
            assert_eq!(
                (fs::read(&path).ok(), names(&dir).len()),
                (before.clone(), usize::from(before.is_some())),
                "{number}"
            );
        }
    }

    #[test]
    fn a_writer_that_never_rests_loses_nothing() {
        let (dir, path) = file("0");
        let (is_over, written) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let next = written.load(Ordering::Relaxed) + 1;
                    fs::write(dir.path().join("theirs"), next.to_string()).unwrap();
                    fs::rename(dir.path().join("theirs"), &path).unwrap();
                    written.store(next, Ordering::Relaxed);
                }
            });
            let replace = || {
                let read = ConfigFile::open(&path).unwrap().unwrap();
                match read.stage("ours").and_then(|staged| staged.commit(Backup::Make)) {
                    Ok(()) => None,
                    Err(FileError::Changed(_)) => {
                        let least = written.load(Ordering::Relaxed);
                        let theirs = fs::read_to_string(&path).unwrap();
                        let is_there = theirs.parse().is_ok_and(|theirs: usize| theirs >= least);
                        (!is_there).then(|| format!("{theirs} and not {least}"))
                    }
                    Err(error) => Some(error.to_string()),
                }
            };
            let wrong = (0..100).find_map(|_| replace());
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(wrong, None);
        });
    }

    #[test]
    fn two_at_a_time_do_not_replace_one_file() {
        let (_dir, path) = file("old");
        let (one, other) =
            (ConfigFile::open(&path).unwrap().unwrap(), ConfigFile::open(&path).unwrap().unwrap());
        let staged = one.stage("one").unwrap();
        assert!(matches!(other.stage("other"), Err(FileError::Changed(_))));
        staged.commit(Backup::Make).unwrap();
    }

    #[test]
    fn a_backup_that_is_the_file_itself_is_left_from_a_crash_and_no_obstacle() {
        let (dir, path) = file("old");
        fs::hard_link(&path, dir.path().join("config.yaml.criprobe-backup")).unwrap();
        ConfigFile::open(&path).unwrap().unwrap().stage("new").unwrap().commit(Backup::Make).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("config.yaml.criprobe-backup")).unwrap(), "old");
        fs::hard_link(&path, dir.path().join("other")).unwrap();
        assert!(matches!(ConfigFile::open(&path).unwrap().unwrap().check(), Err(FileError::OtherName(_))));
    }
}
