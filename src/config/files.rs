//! The files of the configuration: finds and reads them in order. Never blocks on a file that is not a regular file,
//! never reads more than the bounds below, never validates the content.

use std::{
    ffi::OsStr,
    fs::{self, File, FileType, Metadata, OpenOptions},
    io::{self, Read},
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::{fs::OFlags, process::geteuid};

use super::{MAX_FILE, raw::Raw};
use crate::document::{self, SyntaxError};

/// The file that is read if no other is named; it need not exist.
pub(crate) const DEFAULT_FILE: &str = "/etc/criprobe/config.yaml";

/// The folder beside it whose files are read after it.
pub(crate) const FOLDER: &str = "conf.d";

/// The extension that a file in the folder must have to be read.
const EXTENSION: &str = "yaml";

/// At most 100 files of the folder are read; more are an error.
pub(crate) const MAX_FILES: usize = 100;

/// At most 10,000 entries of the folder are examined, whatever their names; more are an error.
const MAX_ENTRIES: usize = 10_000;

/// 4 MiB: the limit for all files together; more is an error.
const MAX_TOTAL: usize = 4 << 20;

/// The result of reading.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The existing files in order; later ones take precedence over earlier ones.
    pub(super) raws: Vec<Raw>,
    /// Ignored files that were possibly meant to be read, one line each.
    pub(super) notes: Vec<String>,
    /// Files whose text no message may show, and why.
    pub(super) concealed: Vec<(PathBuf, String)>,
}

/// The folder beside a file.
pub(crate) fn folder_beside(file: &Path) -> PathBuf {
    file.with_file_name(FOLDER)
}

/// Reads the named file, or else [`DEFAULT_FILE`] if it exists, and then the files of the folder beside it, in the byte
/// order of their names. A file that cannot be read is reported by its [`Raw`].
pub(super) fn read(file: Option<&Path>) -> Found {
    read_as(file, geteuid().as_raw())
}

/// As [`read`], by that user.
fn read_as(file: Option<&Path>, us: u32) -> Found {
    let path = file.unwrap_or(Path::new(DEFAULT_FILE));
    let mut reader = Reader { found: Found::default(), left: MAX_TOTAL, us, foreign_folder: None };
    match open(path) {
        Err(error) if file.is_none() && error.kind() == io::ErrorKind::NotFound => {}
        Ok(Opened::Other(what)) => {
            reader.fail(path, format!("cannot read the configuration: it is {what}, not a regular file"));
        }
        Ok(Opened::Regular(file)) => reader.add(path, Ok(file)),
        Err(error) => reader.add(path, Err(error)),
    }
    reader.folder(&folder_beside(path));
    reader.found
}

struct Reader {
    found: Found,
    /// How many bytes may still be read.
    left: usize,
    /// The user that this process runs as.
    us: u32,
    /// Why the folder's entries may be another user's doing.
    foreign_folder: Option<String>,
}

impl Reader {
    fn folder(&mut self, folder: &Path) {
        let names = match names(folder) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return self.fail(folder, format!("cannot read the folder: {error}")),
        };
        if names.len() >= MAX_ENTRIES {
            return self.fail(folder, format!("more than {MAX_ENTRIES} entries: is that the right folder?"));
        }
        self.foreign_folder = self.note_access(folder, fs::metadata(folder));
        let mut read = 0;
        for path in names {
            if !is_wanted(&path) {
                self.found.notes.extend(is_nearly_wanted(&path).then(|| {
                    format!("{} is not read: its name does not end in .{EXTENSION}", path.display())
                }));
                continue;
            }
            let opened = match open(&path) {
                Ok(Opened::Regular(file)) => Ok(file),
                Ok(Opened::Other(what)) => {
                    self.found.notes.push(format!("{} is not read: it is {what}", path.display()));
                    continue;
                }
                Err(error) => Err(error),
            };
            if read == MAX_FILES {
                return self.fail(folder, format!("more than {MAX_FILES} files: combine their rules"));
            }
            read += 1;
            self.add(&path, opened);
        }
    }

    fn add(&mut self, path: &Path, opened: io::Result<File>) {
        if let Ok(file) = &opened {
            let why = self.note_access(path, file.metadata());
            let why = why.or_else(|| self.foreign_link(path)).or_else(|| self.foreign_folder.clone());
            self.found.concealed.extend(why.map(|why| (path.to_owned(), why)));
        }
        let raw = match opened.and_then(bytes) {
            Err(error) => Raw::unreadable(path, format!("cannot read the configuration: {error}")),
            Ok((_, size)) if size > MAX_FILE => {
                Raw::unreadable(path, SyntaxError::TooLong { size, limit: MAX_FILE }.reason())
            }
            Ok((_, size)) if size > self.left => {
                Raw::unreadable(path, format!("more than {MAX_TOTAL} bytes in all files up to this one"))
            }
            Ok((bytes, size)) => {
                self.left -= size;
                match document::decode(&bytes) {
                    Ok(text) => Raw::read(text, path),
                    Err(error) => Raw::malformed(path, &error),
                }
            }
        };
        self.found.raws.push(raw);
    }

    /// Notes if others could change a file or folder: rules run commands in every container, so that they could, too.
    /// Returns who, unless it is only root, its group and the user that this process runs as.
    fn note_access(&mut self, path: &Path, meta: io::Result<Metadata>) -> Option<String> {
        let meta = meta.ok()?;
        let shown = path.display();
        let (note, why) = if self.is_foreign(&meta) {
            let owner = meta.uid();
            let note = format!(
                "{shown} belongs to user {owner}, who could then run commands in every container: chown root"
            );
            (note, format!("it belongs to user {owner}"))
        } else if meta.mode() & 0o002 != 0 || (meta.mode() & 0o020 != 0 && meta.gid() != 0) {
            let mode = meta.mode() & 0o7777;
            let note = format!(
                "{shown} can be written by others (mode {mode:04o}), who could then run commands in every container: \
                 chmod go-w"
            );
            (note, "others can write it".to_owned())
        } else {
            return None;
        };
        self.found.notes.push(note);
        Some(if meta.is_dir() { "others can write to its folder".to_owned() } else { why })
    }

    /// Why the text of a file may not be that of the configuration: whoever makes a link to a file that only root can
    /// read must not learn from our messages what is in it.
    fn foreign_link(&self, path: &Path) -> Option<String> {
        let is_foreign = fs::symlink_metadata(path).is_ok_and(|meta| self.is_foreign(&meta));
        // The parent of a bare file name is the empty path, which exists nowhere.
        let absolute = std::path::absolute(path).ok();
        let home =
            absolute.as_deref().and_then(Path::parent).and_then(|folder| fs::canonicalize(folder).ok());
        let is_at_home =
            fs::canonicalize(path).is_ok_and(|file| home.is_some_and(|home| file.starts_with(home)));
        (is_foreign || !is_at_home).then(|| "it is a link to another folder, or another user's".to_owned())
    }

    fn is_foreign(&self, meta: &Metadata) -> bool {
        meta.uid() != 0 && meta.uid() != self.us
    }

    fn fail(&mut self, path: &Path, reason: String) {
        self.found.raws.push(Raw::unreadable(path, reason));
    }
}

/// What a path refers to.
enum Opened {
    Regular(File),
    /// Anything else, with a description.
    Other(&'static str),
}

/// Opens regular files only: a named pipe would block, and merely opening a device can have effects.
fn open(path: &Path) -> io::Result<Opened> {
    if let Some(what) = other(fs::metadata(path)?.file_type()) {
        return Ok(Opened::Other(what));
    }
    // The file may have been replaced since.
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    Ok(other(file.metadata()?.file_type()).map_or(Opened::Regular(file), Opened::Other))
}

/// Describes a file that is not a regular file.
fn other(kind: FileType) -> Option<&'static str> {
    match kind {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a folder"),
        kind if kind.is_fifo() => Some("a named pipe"),
        kind if kind.is_socket() => Some("a socket"),
        _ => Some("a device"),
    }
}

/// The content of a file, up to just beyond the bound, and its size.
fn bytes(file: File) -> io::Result<(Vec<u8>, usize)> {
    let size = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    file.take(MAX_FILE as u64 + 1).read_to_end(&mut bytes)?;
    let size = size.max(bytes.len());
    Ok((bytes, size))
}

/// All entries of a folder in the byte order of their names, up to the bound.
fn names(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.take(MAX_ENTRIES);
    let mut names = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// Hidden files are never read: editors, package managers and the kubelet's ConfigMaps keep internal files under such
/// names.
fn is_hidden(path: &Path) -> bool {
    path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Whether a file in the folder is read, by its name.
pub(crate) fn is_wanted(path: &Path) -> bool {
    !is_hidden(path) && path.extension().is_some_and(|extension| extension == EXTENSION)
}

/// Whether a user could expect a file of this name to be read.
fn is_nearly_wanted(path: &Path) -> bool {
    let extension = path.extension().map(OsStr::to_ascii_lowercase);
    !is_hidden(path)
        && extension.is_some_and(|extension| ["yml", "yaml", "json"].iter().any(|one| extension == *one))
}

#[cfg(test)]
mod tests;
