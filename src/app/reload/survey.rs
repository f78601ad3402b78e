//! The parts of the file system that determine the configuration: the paths to read in; folders to watch, names whose
//! change matters, and stamps to compare out. Follows links one by one, because each of them may be replaced. Reads no
//! files.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ffi::{OsStr, OsString},
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
};

use crate::app::source::Roots;

/// 40 links are followed on the way to one file, as the kernel does; what lies behind more cannot be read either.
const MAX_LINKS: usize = 40;

/// 1,024 files of the folder are looked at, the first by name; changes of others show in the folder itself.
const MAX_FILES: usize = 1024;

/// One look at the file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Survey {
    /// The folders that hold something that counts, by their real paths: to be watched.
    folders: BTreeMap<PathBuf, Stamp>,
    /// What counts in them, whether it is there or not: files, links, folders on the way.
    names: BTreeMap<PathBuf, Option<Stamp>>,
    /// The real path of the folder whose every new file counts, if it exists.
    folder: Option<PathBuf>,
}

/// Distinguishes two states of a file without reading it. A folder's own times say nothing here, only which one it
/// is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    /// Size, and seconds and nanoseconds of the last changes of content and of anything.
    content: Option<(u64, [i64; 4])>,
}

impl Survey {
    /// Looks at all that decides about what these paths hold.
    pub(super) fn of(roots: &Roots) -> Self {
        let mut survey = Self::default();
        survey.walk(&roots.file);
        survey.folder = survey.walk(&roots.folder);
        if let Some(folder) = survey.folder.clone() {
            survey.enter(&folder);
            let files: BTreeSet<_> = entries(&folder).into_iter().filter(|name| is_read(name)).collect();
            for name in files.into_iter().take(MAX_FILES) {
                survey.walk(&folder.join(name));
            }
        }
        survey
    }

    /// The folders to watch, and which one each is.
    pub(super) fn folders(&self) -> &BTreeMap<PathBuf, Stamp> {
        &self.folders
    }

    /// Whether a change of this path may change what is read.
    pub(super) fn concerns(&self, path: &Path) -> bool {
        let is_new_file = || path.parent() == self.folder.as_deref() && path.file_name().is_some_and(is_read);
        self.names.contains_key(path)
            || self.folders.contains_key(path)
            || (self.folder.is_some() && is_new_file())
    }

    /// Goes to a path from the root on, and notes each place where it may turn out otherwise the next time. Returns the
    /// real path of what is there.
    fn walk(&mut self, path: &Path) -> Option<PathBuf> {
        let mut place = PathBuf::from("/");
        let mut ahead: VecDeque<OsString> = names(path);
        let mut links = 0;
        while let Some(name) = ahead.pop_front() {
            if name == ".." {
                place.pop();
                continue;
            }
            let next = place.join(&name);
            let Ok(found) = fs::symlink_metadata(&next) else {
                self.note(&place, next, None);
                return None;
            };
            if found.is_symlink() {
                links += 1;
                self.note(&place, next.clone(), Some(&found));
                let target = fs::read_link(&next).ok().filter(|_| links <= MAX_LINKS)?;
                if target.is_absolute() {
                    place = PathBuf::from("/");
                }
                for name in names(&target).into_iter().rev() {
                    ahead.push_front(name);
                }
            } else {
                if ahead.is_empty() {
                    self.note(&place, next.clone(), Some(&found));
                }
                place = next;
            }
        }
        Some(place)
    }

    fn note(&mut self, folder: &Path, path: PathBuf, found: Option<&Metadata>) {
        self.enter(folder);
        self.names.insert(path, found.map(Stamp::of));
    }

    fn enter(&mut self, folder: &Path) {
        if let Ok(found) = fs::metadata(folder) {
            self.folders.insert(folder.to_owned(), Stamp::of(&found));
        }
    }
}

impl Stamp {
    fn of(found: &Metadata) -> Self {
        let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
        let content = (!found.is_dir()).then_some((found.size(), times));
        Self { device: found.dev(), inode: found.ino(), content }
    }
}

/// Whether a file of the folder is read: hidden ones never are.
fn is_read(name: &OsStr) -> bool {
    let is_hidden = name.as_encoded_bytes().starts_with(b".");
    !is_hidden && Path::new(name).extension().is_some_and(|extension| extension == "yaml")
}

fn entries(folder: &Path) -> Vec<OsString> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect()
}

fn names(path: &Path) -> VecDeque<OsString> {
    let name = |component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(name).collect()
}

#[cfg(test)]
mod tests;
