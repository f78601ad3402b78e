//! The file of records and the one before it: whole lines in, safely for root. Blocks; never logs.
//!
//! Only a regular file of ours is written to, in a folder that others cannot change; no link is followed. When it has half
//! of what both may take, it is renamed and takes the place of the one before it. Some of the disk is left to others.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Write},
    os::fd::{AsFd, BorrowedFd},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::{
    fs::{
        AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, StatVfsMountFlags, fchmod, flock, fstat,
        fstatvfs, openat, renameat, stat, statat, unlinkat,
    },
    io::Errno,
    process::geteuid,
};
use thiserror::Error;

use crate::{
    clock,
    listen::folder::{Exposed, Folder, FolderError},
};

/// 5 % of the disk, or 100 MiB of a larger one, are left free: others must not fail because of our records. Nothing is
/// written while there is less, and again when there is twice as much.
const LEFT_FREE: (u64, u64) = (20, 100 << 20);

/// 1 s: how often the file is looked for, as it and its folder may be removed or renamed.
const LOOK: Duration = Duration::from_secs(1);

/// The bits by which others than the owner may write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Why records cannot be written, and what to do. Whoever shows it names the file.
#[derive(Debug, Error)]
pub(super) enum RecordError {
    #[error("others can write to the folder {0} (mode {1:04o}): use a folder that only root can write to")]
    Exposed(PathBuf, u32),
    #[error("the folder {0} is owned by uid {1}: use a folder that only root can write to")]
    Owned(PathBuf, u32),
    #[error("cannot use its folder: {}", refused(.0))]
    Folder(#[source] io::Error),
    #[error("it is not a regular file: remove it, or name another")]
    NotAFile,
    #[error("it is a symbolic link: remove it, or name the file that it points to")]
    Link,
    #[error("it is deleted again and again while it is written: end what does that, or name another")]
    Deleted,
    #[error("it is owned by another user, or others can write to it: remove it, or name another")]
    NotOurs,
    #[error("it holds something else, or is a hard link: name a file that criprobe alone writes")]
    Foreign,
    #[error("another criprobe writes it: name another file")]
    InUse,
    #[error("cannot open it: {}", refused(.0))]
    Open(#[source] io::Error),
    #[error("cannot rename it to make room: {}", refused(.0))]
    Rename(#[source] io::Error),
    #[error("cannot write to it: {}", refused(.0))]
    Write(#[source] io::Error),
    #[error(
        "the disk is nearly full, and {0} KiB are left free for others: free some space, or name another file"
    )]
    Full(u64),
}

/// What the system refused, and what to do.
fn refused(error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            "name a file on a writable file system, or allow its folder with ReadWritePaths= in the unit"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free some space, or name another file",
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "a part of the path is a file, not a folder: name another file"
        }
        _ => "make it writable, or name another file",
    };
    format!("{error}; {advice}")
}

/// Writes to one file at a time.
#[derive(Debug, Default)]
pub(super) struct RecordWriter {
    open: Option<OpenRecords>,
    /// Whether too little of the disk was free.
    is_full: bool,
    /// How many files were deleted by others while they were open.
    pub(super) deleted: u64,
}

/// 3: how often a file may be deleted while lines are written to it, before that is an error.
const MOST_DELETED: u64 = 3;

impl RecordWriter {
    /// Writes whole lines, of which the file and the one before it keep the newest that fit in `most` bytes. Returns how
    /// many bytes are done with, also where that fails; they end with a line.
    pub(super) fn write(&mut self, path: &Path, most: u64, lines: &[u8]) -> (usize, Result<(), RecordError>) {
        let (mut done, deleted) = (0, self.deleted);
        while done < lines.len() {
            if self.deleted > deleted + MOST_DELETED {
                self.open = None;
                return (done, Err(RecordError::Deleted));
            }
            match self.write_some(path, most / 2, &lines[done..]) {
                Ok(some) => done += some,
                Err(error) => {
                    self.open = None;
                    return (done, Err(error));
                }
            }
        }
        (done, Ok(()))
    }

    /// Opens the file as for a line, without writing one: shows what is wrong while there is nothing to write.
    pub(super) fn check(&mut self, path: &Path, most: u64) -> Result<(), RecordError> {
        let checked = self.opened(path, most / 2).and_then(|(open, was_full)| open.room_for(0, was_full));
        self.is_full = matches!(checked, Err(RecordError::Full(_)));
        if checked.is_err() {
            self.open = None;
        }
        checked
    }

    /// Closes the file.
    pub(super) fn close(&mut self) {
        self.open = None;
    }

    /// Closes a file that is no longer what its path leads to.
    fn begin_again(&mut self) {
        self.deleted += u64::from(self.open.take().is_some_and(|open| open.is_deleted()));
    }

    /// The file at this path, and whether its disk was full before.
    fn opened(&mut self, path: &Path, half: u64) -> Result<(&mut OpenRecords, bool), RecordError> {
        let now = clock::now();
        if self.open.as_ref().is_some_and(|open| open.path != path) {
            self.open = None;
        }
        if self.open.as_mut().is_some_and(|open| !open.is_there(now)) {
            self.begin_again();
        }
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(OpenRecords::at(path, half, now)?),
        };
        Ok((open, self.is_full))
    }

    /// Writes as many lines as the file has room for, or makes room.
    fn write_some(&mut self, path: &Path, half: u64, lines: &[u8]) -> Result<usize, RecordError> {
        let (open, was_full) = self.opened(path, half)?;
        let some = fitting(lines, half.saturating_sub(open.size));
        if some == 0 && open.size > 0 {
            // One that was moved away meanwhile is begun again, not renamed.
            if open.is_same() {
                open.rotate(half)?;
            } else {
                self.begin_again();
            }
            return Ok(0);
        }
        // One that does not fit even an empty file is written alone.
        let first = || lines.iter().position(|byte| *byte == b'\n').map_or(lines.len(), |end| end + 1);
        let some = if some == 0 { first() } else { some };
        let written = open.room_for(some as u64, was_full).and_then(|()| open.append(&lines[..some]));
        let written = written.map(|()| !open.is_deleted());
        self.is_full = matches!(written, Err(RecordError::Full(_)));
        // That file has no name any more, so it cannot be read: the same lines go into the next one.
        if !written? {
            self.begin_again();
            return Ok(0);
        }
        Ok(some)
    }
}

/// How many bytes of these lines fit: none, or whole lines.
fn fitting(lines: &[u8], room: u64) -> usize {
    let room = usize::try_from(room).unwrap_or(usize::MAX).min(lines.len());
    lines[..room].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)
}

#[derive(Debug)]
struct OpenRecords {
    path: PathBuf,
    folder: Folder,
    name: OsString,
    file: File,
    size: u64,
    /// When it was looked for.
    seen: Instant,
}

impl OpenRecords {
    /// Opens the file, and makes it (0600) and its folders (0755) if they are missing.
    fn at(path: &Path, half: u64, now: Instant) -> Result<Self, RecordError> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(RecordError::NotAFile);
        };
        let folder = Folder::open_or_make(parent).map_err(|error| match error {
            FolderError::Exposed(Exposed::Writable(folder, mode) | Exposed::Sticky(folder, mode)) => {
                RecordError::Exposed(folder, mode)
            }
            FolderError::Exposed(Exposed::Owned(folder, uid)) => RecordError::Owned(folder, uid),
            FolderError::Io(error) => RecordError::Folder(error),
        })?;
        let (file, size) = open(folder.as_fd(), name)?;
        let former = former(name);
        let before = statat(&folder, &former, AtFlags::SYMLINK_NOFOLLOW);
        if before.is_ok_and(|before| size_of(&before) > half) {
            // It is of a time when more was allowed.
            unlinkat(&folder, &former, AtFlags::empty())
                .map_err(|errno| RecordError::Rename(errno.into()))?;
        }
        let (path, name) = (path.to_owned(), name.to_owned());
        Ok(Self { path, folder, name, file, size, seen: now })
    }

    /// Whether it is still what its path leads to.
    fn is_there(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.seen) < LOOK {
            return true;
        }
        self.seen = now;
        self.is_same()
    }

    /// Whether it has no name any more. Some file systems count no names: there it is asked for by its own.
    fn is_deleted(&self) -> bool {
        fstat(&self.file).is_ok_and(|stat| stat.st_nlink == 0) && !self.is_same()
    }

    fn is_same(&self) -> bool {
        let is_same = |one: Result<Stat, Errno>, other: Result<Stat, Errno>| match (one, other) {
            (Ok(one), Ok(other)) => (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino),
            (Err(_), _) | (_, Err(_)) => false,
        };
        let there = statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        let parent = self.path.parent().unwrap_or(Path::new("/"));
        is_same(fstat(&self.file), there) && is_same(fstat(&self.folder), stat(parent))
    }

    /// Makes this the one before it, and begins another.
    fn rotate(&mut self, half: u64) -> Result<(), RecordError> {
        let (folder, former) = (&self.folder, former(&self.name));
        // One that is too large is of a time when more was allowed.
        let moved = match self.size > half {
            true => unlinkat(folder, &self.name, AtFlags::empty()),
            false => renameat(folder, &self.name, folder, &former),
        };
        moved.map_err(|errno| RecordError::Rename(errno.into()))?;
        (self.file, self.size) = open(self.folder.as_fd(), &self.name)?;
        Ok(())
    }

    /// Whether so much can be written and enough of the disk is left; `was_full`: it was not before.
    fn room_for(&self, bytes: u64, was_full: bool) -> Result<(), RecordError> {
        let disk = fstatvfs(&self.file).map_err(|errno| RecordError::Write(errno.into()))?;
        if disk.f_flag.contains(StatVfsMountFlags::RDONLY) {
            return Err(RecordError::Write(Errno::ROFS.into()));
        }
        let (part, most) = LEFT_FREE;
        let left_free = (disk.f_blocks.saturating_mul(disk.f_frsize) / part).min(most);
        let wanted = left_free * if was_full { 2 } else { 1 };
        if disk.f_bavail.saturating_mul(disk.f_frsize) < wanted.saturating_add(bytes) {
            return Err(RecordError::Full(left_free >> 10));
        }
        Ok(())
    }

    /// Writes all of it, or nothing as far as that can be had.
    fn append(&mut self, lines: &[u8]) -> Result<(), RecordError> {
        if let Err(error) = self.file.write_all(lines) {
            // If a part of a line cannot be removed, it is ended when the file is opened again.
            let _ = self.file.set_len(self.size);
            return Err(RecordError::Write(error));
        }
        self.size += lines.len() as u64;
        Ok(())
    }
}

/// The name of the file before this one.
fn former(name: &OsStr) -> OsString {
    let mut former = name.to_owned();
    former.push(".1");
    former
}

fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or_default()
}

/// How the records of calls and of attempts begin.
const BEGINNINGS: [&[u8]; 2] = [b"{\"id\":\"", b"{\"at\":\""];

/// Opens a file, or makes it, for ourselves alone; ends the last line of what is there.
fn open(folder: BorrowedFd<'_>, name: &OsStr) -> Result<(File, u64), RecordError> {
    // Without waiting, as it may be a pipe.
    let flags = OFlags::RDWR
        | OFlags::APPEND
        | OFlags::CREATE
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::NOCTTY
        | OFlags::CLOEXEC;
    let file = match openat(folder, name, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => File::from(file),
        // Links in the path of its folder have been followed or refused by now.
        Err(Errno::LOOP) => return Err(RecordError::Link),
        Err(Errno::ISDIR | Errno::NXIO) => return Err(RecordError::NotAFile),
        Err(errno) => return Err(RecordError::Open(errno.into())),
    };
    let stat = fstat(&file).map_err(|errno| RecordError::Open(errno.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(RecordError::NotAFile);
    }
    if stat.st_uid != geteuid().as_raw() || stat.st_mode & WRITABLE_BY_OTHERS != 0 {
        return Err(RecordError::NotOurs);
    }
    let mut first = [0; 7];
    let read = file.read_at(&mut first, 0).map_err(RecordError::Open)?;
    // A file of others that was named by mistake must not be damaged. The first line of ours may have been cut by a full disk.
    if !BEGINNINGS.iter().any(|beginning| beginning.starts_with(&first[..read])) || stat.st_nlink > 1 {
        return Err(RecordError::Foreign);
    }
    // Two that write would each take what the other has written for room. Where a disk has no locks, this cannot be known.
    if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        return Err(RecordError::InUse);
    }
    let stat = fstat(&file).map_err(|errno| RecordError::Open(errno.into()))?;
    if stat.st_mode & 0o077 != 0 {
        fchmod(&file, Mode::RUSR | Mode::WUSR).map_err(|errno| RecordError::Open(errno.into()))?;
    }
    let (mut size, mut last) = (size_of(&stat), [b'\n']);
    if size > 0 {
        file.read_exact_at(&mut last, size - 1).map_err(RecordError::Open)?;
    }
    if last != [b'\n'] {
        (&file).write_all(b"\n").map_err(RecordError::Open)?;
        size += 1;
    }
    Ok((file, size))
}
