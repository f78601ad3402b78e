//! The folder for a demo's sockets and containers: a new temporary folder, or the one that the user named. Removed at
//! the end if the demo created it.

use std::{
    env, fs,
    hash::{BuildHasher, Hasher, RandomState},
    io,
    os::unix::{fs::DirBuilderExt, net::UnixStream},
    path::{Path, PathBuf},
};

use crate::config::socket::MAX_PATH;

/// Names of the sockets in it, the longest first.
const SOCKETS: [&str; 3] = ["criprobe.sock", "runtime.sock", "api.sock"];

/// What the daemon keeps its state in. It is always new, so that a folder that the user named keeps what it had.
const STATE: &str = "state-";

/// 93 bytes: what a folder's path may have, so that the sockets in it can be bound.
const MAX_FOLDER: usize = MAX_PATH - "/criprobe.sock".len();

/// A folder; removed with all that is in it when it is dropped, if we made it.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    /// For the daemon's state, below it; removed in any case.
    pub(super) state: PathBuf,
    is_ours: bool,
}

/// Why a folder cannot be used, and what to do.
#[derive(Debug, thiserror::Error)]
pub(super) enum FolderError {
    #[error("--dir: {0} is not a folder: name a folder, or a path that does not exist yet")]
    NotAFolder(PathBuf),
    #[error(
        "--dir: the path has {0} bytes, which is too long for the sockets in it: use at most {MAX_FOLDER} bytes"
    )]
    TooLong(usize),
    #[error("--dir: {0} is in use by another demo: stop that demo first, or name another folder")]
    InUse(PathBuf),
    #[error("--dir: {0:?} is not UTF-8: name another folder")]
    NotText(PathBuf),
    #[error("cannot create the folder {path}")]
    Io { path: PathBuf, source: io::Error },
}

impl FolderError {
    /// Whether another `--dir` would do.
    pub(super) fn is_usage(&self) -> bool {
        !matches!(self, Self::Io { .. })
    }
}

impl Folder {
    /// The folder that the user gave, which may exist already; otherwise a new one with an unpredictable name.
    pub(super) fn make(named: Option<PathBuf>) -> Result<Self, FolderError> {
        let Some(named) = named else { return Self::temporary(&env::temp_dir()) };
        let path = std::path::absolute(&named).map_err(|source| FolderError::Io { path: named, source })?;
        check(&path)?;
        match fs::metadata(&path) {
            Ok(found) if !found.is_dir() => Err(FolderError::NotAFolder(path)),
            Ok(_) if SOCKETS.iter().any(|name| UnixStream::connect(path.join(name)).is_ok()) => {
                Err(FolderError::InUse(path))
            }
            Ok(_) => Self::with_state(path, false),
            Err(_) => Self::create(path, true),
        }
    }

    /// A new folder with a name that cannot be foreseen: below a folder that all may write to, one that can be would
    /// be another's trap.
    fn temporary(parent: &Path) -> Result<Self, FolderError> {
        let path = parent.join(unforeseeable("criprobe-demo-"));
        check(&path)?;
        Self::create(path, false)
    }

    /// Fails where something is there already.
    fn create(path: PathBuf, with_parents: bool) -> Result<Self, FolderError> {
        let io_error = |source| FolderError::Io { path: path.clone(), source };
        if let Some(parent) = path.parent().filter(|_| with_parents) {
            fs::DirBuilder::new().mode(0o700).recursive(true).create(parent).map_err(io_error)?;
        }
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(io_error)?;
        Self::with_state(path, true)
    }

    fn with_state(path: PathBuf, is_ours: bool) -> Result<Self, FolderError> {
        let state = path.join(unforeseeable(STATE));
        let folder = Self { path, state, is_ours };
        match fs::DirBuilder::new().mode(0o700).create(&folder.state) {
            Ok(()) => Ok(folder),
            Err(source) => Err(FolderError::Io { path: folder.state.clone(), source }),
        }
    }
}

fn unforeseeable(prefix: &str) -> String {
    format!("{prefix}{:016x}", RandomState::new().build_hasher().finish())
}

fn check(path: &Path) -> Result<(), FolderError> {
    match path.to_str() {
        None => Err(FolderError::NotText(path.to_owned())),
        Some(text) if text.len() > MAX_FOLDER => Err(FolderError::TooLong(text.len())),
        Some(_) => Ok(()),
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let ours = if self.is_ours { &self.path } else { &self.state };
        if let Err(error) = fs::remove_dir_all(ours) {
            tracing::error!(%error, path = %ours.display(), "cannot remove the demo's folder");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::PermissionsExt, net::UnixListener};

    use super::*;

    #[test]
    fn our_own_is_new_private_unforeseeable_and_goes() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (Folder::temporary(dir.path()).unwrap(), Folder::temporary(dir.path()).unwrap());
        assert_ne!(one.path, other.path);
        assert_eq!(fs::metadata(&one.path).unwrap().permissions().mode() & 0o777, 0o700);
        let taken = Folder::create(one.path.clone(), false);
        assert!(
            matches!(taken, Err(FolderError::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists)
        );
        let path = one.path.clone();
        drop(one);
        assert!(!path.exists());
    }

    #[test]
    fn one_that_is_named_may_be_there_and_then_stays() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "precious").unwrap();
        let folder = Folder::make(Some(dir.path().into())).unwrap();
        assert_eq!(fs::metadata(&folder.state).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(folder.state.join("acts.json"), "{}").unwrap();
        drop(folder);
        let left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["file"]);
        let below = dir.path().join("a/b");
        drop(Folder::make(Some(below.clone())).unwrap());
        assert!(!below.exists());
    }

    #[test]
    fn what_cannot_be_used_is_told_with_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "precious").unwrap();
        let _listening = UnixListener::bind(dir.path().join("criprobe.sock")).unwrap();
        for (path, reported) in [
            (file, "is not a folder: name a folder"),
            (dir.path().to_owned(), "is in use by another demo: stop that demo first"),
            (format!("/tmp/{}", "x".repeat(89)).into(), "the path has 94 bytes, which is too long"),
        ] {
            let error = Folder::make(Some(path)).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(reported), "{error}");
        }
    }
}
