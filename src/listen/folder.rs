//! The folder of a socket, or of a file of records: takes a path, returns the folder's descriptor. Refuses a folder in
//! which others could replace what is in it. Creates missing folders, never changes existing ones.
//!
//! The path is walked step by step. Links are read here and not by the kernel, so every folder that determines where
//! the path leads is checked. Code that holds the descriptor then works relative to it, and no path is resolved again.

use std::{
    ffi::{OsStr, OsString},
    fmt, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{FileType, Gid, Mode, OFlags, Stat, Uid, fstat, mkdirat, open, openat, readlinkat},
    io::Errno,
    process::{getegid, geteuid},
};
use thiserror::Error;

/// 40 links on the way, as many as the kernel follows; more are an error.
const MAX_LINKS: usize = 40;

/// A folder in which only we, root, and the group of root can create, rename and remove files.
#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

/// Why a folder cannot hold a socket.
#[derive(Debug)]
pub(crate) enum FolderError {
    /// Others could replace the socket.
    Exposed(Exposed),
    /// It cannot be opened or created.
    Io(io::Error),
}

/// A folder on the way, or a link, that others can change. Says what to do, of a socket.
#[derive(Debug, Error)]
pub(crate) enum Exposed {
    /// Others can write to it.
    #[error("others can write to {0}{bits}, and could replace the socket: use a folder that only {Trusted} can write to, or run chmod go-w {0}", bits = Bits(*.1))]
    Writable(PathBuf, u32),
    /// The same for a sticky folder, which is intended for all users.
    #[error("others can write to {0}{bits}, and could replace the socket: use a folder that only {Trusted} can write to", bits = Bits(*.1))]
    Sticky(PathBuf, u32),
    /// Another user owns it.
    #[error(
        "{0} is owned by uid {1}, who could replace the socket: use a folder that only {Trusted} can write to"
    )]
    Owned(PathBuf, u32),
}

impl Folder {
    /// Opens the folder. Creates it (0755), and the folders above it, if they are missing.
    pub(crate) fn open_or_make(path: &Path) -> Result<Self, FolderError> {
        let mut walk = Walk::from_root()?;
        let mut rest = steps(path);
        let mut links = 0;
        while let Some(step) = rest.pop() {
            let next = walk.look(&step)?;
            let stat = fstat(&next)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => walk.enter(next, &stat, &step)?,
                FileType::Symlink => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Errno::LOOP.into());
                    }
                    walk.check_link(&stat, &step)?;
                    let target = readlinkat(&next, "", Vec::new())?;
                    let target = Path::new(OsStr::from_bytes(target.as_bytes()));
                    if target.is_absolute() {
                        walk = Walk::from_root()?;
                    }
                    rest.extend(steps(target));
                }
                _ => return Err(Errno::NOTDIR.into()),
            }
        }
        match walk.shared {
            None => Ok(Self(walk.folder)),
            Some(mode) => Err(Exposed::Sticky(walk.path, mode).into()),
        }
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// An open folder on the way.
struct Walk {
    folder: OwnedFd,
    /// For messages only.
    path: PathBuf,
    /// The permission bits of a sticky folder that others can write to: they can add files, but not rename ours.
    shared: Option<u32>,
}

impl Walk {
    fn from_root() -> Result<Self, FolderError> {
        let folder = open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let stat = fstat(&folder)?;
        let mut walk = Self { folder: folder.try_clone()?, path: PathBuf::from("/"), shared: None };
        walk.enter(folder, &stat, OsStr::new(""))?;
        Ok(walk)
    }

    /// Opens the entry of this name without following it; creates a folder if there is no entry.
    fn look(&self, name: &OsStr) -> Result<OwnedFd, FolderError> {
        let look =
            || openat(&self.folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        match look() {
            Err(Errno::NOENT) => {}
            found => return Ok(found?),
        }
        match mkdirat(&self.folder, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => Ok(look()?),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Continues in this folder if no untrusted user can change where the path leads from there.
    fn enter(&mut self, folder: OwnedFd, stat: &Stat, name: &OsStr) -> Result<(), FolderError> {
        if name == ".." {
            self.path.pop();
        } else {
            self.path.push(name);
        }
        if !is_trusted_user(stat.st_uid) {
            return Err(Exposed::Owned(self.path.clone(), stat.st_uid).into());
        }
        let mode = stat.st_mode & 0o7777;
        let bits = Mode::from_raw_mode(mode);
        let is_open =
            bits.contains(Mode::WOTH) || bits.contains(Mode::WGRP) && !is_trusted_group(stat.st_gid);
        if is_open && !bits.contains(Mode::SVTX) {
            return Err(Exposed::Writable(self.path.clone(), mode).into());
        }
        self.shared = is_open.then_some(mode);
        self.folder = folder;
        Ok(())
    }

    /// Where others can add files, a link is as trusted as its owner.
    fn check_link(&self, stat: &Stat, name: &OsStr) -> Result<(), FolderError> {
        if self.shared.is_none() || is_trusted_user(stat.st_uid) {
            return Ok(());
        }
        Err(Exposed::Owned(self.path.join(name), stat.st_uid).into())
    }
}

/// The steps of a path, last one first.
fn steps(path: &Path) -> Vec<OsString> {
    let steps = path.components().filter_map(|step| match step {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    });
    let mut steps: Vec<_> = steps.collect();
    steps.reverse();
    steps
}

fn is_trusted_user(uid: u32) -> bool {
    Uid::from_raw(uid).is_root() || uid == geteuid().as_raw()
}

/// A user other than root may share a folder with their own group, as some systems set it up for each user.
fn is_trusted_group(gid: u32) -> bool {
    Gid::from_raw(gid).is_root() || !geteuid().is_root() && gid == getegid().as_raw()
}

/// The trusted users, for messages.
struct Trusted;

impl fmt::Display for Trusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match geteuid() {
            root if root.is_root() => f.write_str("root"),
            user => write!(f, "root and uid {user}"),
        }
    }
}

/// Permission bits, in brackets.
struct Bits(u32);

impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " (mode {:04o})", self.0)
    }
}

impl From<Exposed> for FolderError {
    fn from(error: Exposed) -> Self {
        Self::Exposed(error)
    }
}

impl From<io::Error> for FolderError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Errno> for FolderError {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink},
    };

    use super::*;

    fn refusal(path: &Path) -> Option<String> {
        match Folder::open_or_make(path) {
            Ok(_) => None,
            Err(FolderError::Exposed(exposed)) => Some(exposed.to_string()),
            Err(FolderError::Io(error)) => Some(error.to_string()),
        }
    }

    #[test]
    fn what_is_missing_is_made_and_links_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        assert_eq!(refusal(&path("a/b")), None);
        assert_eq!(fs::metadata(path("a/b")).unwrap().mode() & 0o777 & !0o755, 0);
        symlink(path("a"), path("absolute")).unwrap();
        symlink("absolute/../a/./b", path("relative")).unwrap();
        for name in ["absolute/c", "relative/d"] {
            assert_eq!(refusal(&path(name)), None, "{name}");
        }
        assert!(path("a/c").is_dir() && path("a/b/d").is_dir());
    }

    #[test]
    fn what_is_no_folder_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("file"), "").unwrap();
        symlink("loop", path("loop")).unwrap();
        for (name, expected) in
            [("file/a", "Not a directory"), ("file", "Not a directory"), ("loop", "Too many levels")]
        {
            let reported = refusal(&path(name)).unwrap_or_default();
            assert!(reported.starts_with(expected), "{name}: {reported}");
        }
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused_on_the_way_too_unless_it_is_sticky_there() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("shared/inner");
        fs::create_dir_all(&inner).unwrap();
        let shared = dir.path().join("shared");
        symlink(&shared, dir.path().join("link")).unwrap();
        for (mode, on_the_way, itself) in [
            (0o755, true, true),
            (0o700, true, true),
            (0o757, false, false),
            (0o777, false, false),
            (0o1777, true, false),
            (0o1757, true, false),
        ] {
            fs::set_permissions(&shared, Permissions::from_mode(mode)).unwrap();
            for (path, is_good) in [
                (inner.clone(), on_the_way),
                (dir.path().join("link/inner"), on_the_way),
                (inner.join("../inner"), on_the_way),
                (shared.clone(), itself),
                (dir.path().join("link"), itself),
                (inner.join(".."), itself),
            ] {
                let reported = refusal(&path);
                assert_eq!(reported.is_none(), is_good, "{mode:o} {}: {reported:?}", path.display());
                let Some(reported) = reported else { continue };
                let shared = shared.display();
                assert!(
                    reported.starts_with(&format!("others can write to {shared} (mode {mode:04o}), ")),
                    "{reported}"
                );
                assert_eq!(
                    reported.ends_with(&format!(", or run chmod go-w {shared}")),
                    mode < 0o1000,
                    "{reported}"
                );
            }
        }
    }

    // Only root can give files away.
    #[test]
    fn a_folder_of_another_user_and_his_link_in_a_sticky_folder_are_refused() {
        if !geteuid().is_root() {
            eprintln!("left out: only root can give files away");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (theirs, shared) = (dir.path().join("theirs"), dir.path().join("shared"));
        let ours = dir.path().join("ours");
        for folder in [&theirs, &shared, &ours] {
            fs::create_dir(folder).unwrap();
        }
        chown(&theirs, Some(12345), None).unwrap();
        fs::create_dir(theirs.join("inner")).unwrap();
        fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
        symlink(&ours, shared.join("link")).unwrap();
        assert_eq!(refusal(&shared.join("link")), None, "root's own link");
        std::os::unix::fs::lchown(shared.join("link"), Some(12345), None).unwrap();
        for (path, blamed) in [
            (theirs.clone(), theirs.clone()),
            (theirs.join("inner"), theirs.clone()),
            (shared.join("link"), shared.join("link")),
        ] {
            let reported = refusal(&path).unwrap_or_default();
            let expected = format!(
                "{} is owned by uid 12345, who could replace the socket: use a folder that only root can write to",
                blamed.display()
            );
            assert_eq!(reported, expected);
        }
        chown(&ours, None, Some(12345)).unwrap();
        fs::set_permissions(&ours, Permissions::from_mode(0o770)).unwrap();
        assert!(refusal(&ours).is_some(), "a group that is not root's");
        chown(&ours, None, Some(0)).unwrap();
        assert_eq!(refusal(&ours), None, "root's group");
    }
}
