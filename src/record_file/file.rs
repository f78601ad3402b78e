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
        AtFlags, FileType, Mode, OFlags, Stat, StatVfs, fchmod, fstat, fstatvfs, openat, renameat, stat,
        statat, unlinkat,
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

/// Why records cannot be written.
#[derive(Debug, Error)]
pub(super) enum RecordError {
    #[error("others can write to {0} (mode {1:04o}): use a folder that only root can write to")]
    Exposed(PathBuf, u32),
    #[error("{0} is owned by uid {1}: use a folder that only root can write to")]
    Owned(PathBuf, u32),
    #[error("cannot use the folder of {0}: {1}")]
    Folder(PathBuf, #[source] io::Error),
    #[error("{0} is not a regular file: remove it, or name another")]
    NotAFile(PathBuf),
    #[error("{0} is owned by another user, or others can write to it: remove it, or name another")]
    NotOurs(PathBuf),
    #[error("{0} holds something else, or is a hard link: name a file that criprobe alone writes")]
    Foreign(PathBuf),
    #[error("cannot open {0}: {1}")]
    Open(PathBuf, #[source] io::Error),
    #[error("cannot rename {0} to make room: {1}")]
    Rename(PathBuf, #[source] io::Error),
    #[error("cannot write to {0}: {1}")]
    Write(PathBuf, #[source] io::Error),
    #[error("the disk of {0} is nearly full: {1} KiB are left free for others")]
    Full(PathBuf, u64),
}

/// Writes to one file at a time.
#[derive(Debug, Default)]
pub(super) struct RecordWriter {
    open: Option<OpenRecords>,
    /// Whether too little of the disk was free.
    is_full: bool,
}

impl RecordWriter {
    /// Writes whole lines, of which the file and the one before it keep the newest that fit in `most` bytes. Returns how
    /// many bytes are done with, also where that fails; they end with a line.
    pub(super) fn write(&mut self, path: &Path, most: u64, lines: &[u8]) -> (usize, Result<(), RecordError>) {
        let mut done = 0;
        while done < lines.len() {
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

    /// Closes the file.
    pub(super) fn close(&mut self) {
        self.open = None;
    }

    /// Writes as many lines as the file has room for, or makes room.
    fn write_some(&mut self, path: &Path, half: u64, lines: &[u8]) -> Result<usize, RecordError> {
        let now = clock::now();
        if self.open.as_mut().is_some_and(|open| open.path != path || !open.is_there(now)) {
            self.open = None;
        }
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(OpenRecords::at(path, half, now)?),
        };
        let some = fitting(lines, half.saturating_sub(open.size));
        if some == 0 && open.size > 0 {
            // One that was moved away meanwhile is begun again, not renamed.
            if open.is_same() {
                open.rotate(half)?;
            } else {
                self.open = None;
            }
            return Ok(0);
        }
        // One that does not fit even an empty file is written alone.
        let first = || lines.iter().position(|byte| *byte == b'\n').map_or(lines.len(), |end| end + 1);
        let some = if some == 0 { first() } else { some };
        self.is_full = open.is_disk_full(some as u64, self.is_full)?;
        if self.is_full {
            return Err(RecordError::Full(path.to_owned(), open.left_free()? >> 10));
        }
        open.append(&lines[..some])?;
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
            return Err(RecordError::NotAFile(path.to_owned()));
        };
        let folder = Folder::open_or_make(parent).map_err(|error| match error {
            FolderError::Exposed(Exposed::Writable(folder, mode) | Exposed::Sticky(folder, mode)) => {
                RecordError::Exposed(folder, mode)
            }
            FolderError::Exposed(Exposed::Owned(folder, uid)) => RecordError::Owned(folder, uid),
            FolderError::Io(error) => RecordError::Folder(path.to_owned(), error),
        })?;
        let (file, size) = open(folder.as_fd(), path, name)?;
        let former = former(name);
        let before = statat(&folder, &former, AtFlags::SYMLINK_NOFOLLOW);
        if before.is_ok_and(|before| size_of(&before) > half) {
            // It is of a time when more was allowed.
            unlinkat(&folder, &former, AtFlags::empty())
                .map_err(|errno| RecordError::Rename(path.to_owned(), errno.into()))?;
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
        moved.map_err(|errno| RecordError::Rename(self.path.clone(), errno.into()))?;
        (self.file, self.size) = open(self.folder.as_fd(), &self.path, &self.name)?;
        Ok(())
    }

    /// Whether too little of the disk would be left; `was_full`: it was before.
    fn is_disk_full(&self, bytes: u64, was_full: bool) -> Result<bool, RecordError> {
        let disk = self.disk()?;
        let wanted = self.left_free()? * if was_full { 2 } else { 1 };
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize) < wanted.saturating_add(bytes))
    }

    fn left_free(&self) -> Result<u64, RecordError> {
        let (disk, (part, most)) = (self.disk()?, LEFT_FREE);
        Ok((disk.f_blocks.saturating_mul(disk.f_frsize) / part).min(most))
    }

    fn disk(&self) -> Result<StatVfs, RecordError> {
        fstatvfs(&self.file).map_err(|errno| self.write_error(errno.into()))
    }

    /// Writes all of it, or nothing as far as that can be had.
    fn append(&mut self, lines: &[u8]) -> Result<(), RecordError> {
        if let Err(error) = self.file.write_all(lines) {
            // If a part of a line cannot be removed, it is ended when the file is opened again.
            let _ = self.file.set_len(self.size);
            return Err(self.write_error(error));
        }
        self.size += lines.len() as u64;
        Ok(())
    }

    fn write_error(&self, error: io::Error) -> RecordError {
        RecordError::Write(self.path.clone(), error)
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

/// Opens a file, or makes it; ends the last line of what is there.
fn open(folder: BorrowedFd<'_>, path: &Path, name: &OsStr) -> Result<(File, u64), RecordError> {
    let failed = |error| RecordError::Open(path.to_owned(), error);
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
        Err(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => return Err(RecordError::NotAFile(path.to_owned())),
        Err(errno) => return Err(failed(errno.into())),
    };
    let stat = fstat(&file).map_err(|errno| failed(errno.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(RecordError::NotAFile(path.to_owned()));
    }
    if stat.st_uid != geteuid().as_raw() || stat.st_mode & WRITABLE_BY_OTHERS != 0 {
        return Err(RecordError::NotOurs(path.to_owned()));
    }
    let mut first = [b'{'];
    if size_of(&stat) > 0 {
        file.read_exact_at(&mut first, 0).map_err(failed)?;
    }
    // A file of somebody else's that was named by mistake must not be damaged.
    if first != [b'{'] || stat.st_nlink > 1 {
        return Err(RecordError::Foreign(path.to_owned()));
    }
    if stat.st_mode & 0o077 != 0 {
        fchmod(&file, Mode::RUSR | Mode::WUSR).map_err(|errno| failed(errno.into()))?;
    }
    let (mut size, mut last) = (size_of(&stat), [b'\n']);
    if size > 0 {
        file.read_exact_at(&mut last, size - 1).map_err(failed)?;
    }
    if last != [b'\n'] {
        (&file).write_all(b"\n").map_err(failed)?;
        size += 1;
    }
    Ok((file, size))
}
