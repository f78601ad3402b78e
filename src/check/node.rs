//! Which of the files that are checked make up the configuration of one node, and in which order a node reads them.
//! Names and shapes in, sets of files out. Never does IO.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    path::{Path, PathBuf},
};

use super::{Read, kind, kind::Shape};
use crate::{
    config::files::{self, DEFAULT_FILE, FOLDER, MAX_FILES},
    report::view::{Finding, Grade},
};

/// The name of a node's main file.
fn main_file() -> &'static OsStr {
    Path::new(DEFAULT_FILE).file_name().unwrap_or_default()
}

/// Whether it is called as a node's main file.
pub(crate) fn is_main(path: &Path) -> bool {
    path.file_name() == Some(main_file())
}

/// Whether it is called as the folder of a node's other files.
pub(crate) fn is_folder(path: &Path) -> bool {
    path.file_name() == Some(OsStr::new(FOLDER))
}

pub(crate) use files::{folder_beside, is_wanted};

/// The configurations of nodes among the files.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// The files that one node reads together, in its order: at least two, or one in the default folder.
    pub(super) sets: Vec<Vec<usize>>,
    /// Files in the folders of these nodes that no node reads.
    pub(super) unread: BTreeSet<usize>,
    /// The first file of each folder that is one too many for a node.
    pub(super) too_many: BTreeSet<usize>,
}

/// What a file is in the folder of a node, in the order in which a node reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// The main file, or one that was named as well as it.
    Main,
    InFolder,
    /// A configuration that is beside the main file, or one with a wrong extension in the folder.
    Beside,
}

/// Groups the files by the folder of the node that they are for. A folder is a node's if it has a configuration, or a main
/// file in which nothing is set, or if it is the default one.
pub(super) fn of(files: &[Read<'_>]) -> Nodes {
    let mut folders: BTreeMap<PathBuf, Vec<(Part, usize)>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (number, file) in files.iter().enumerate() {
        if let Some((folder, part)) = place(file).filter(|_| seen.insert(&*file.input.name)) {
            folders.entry(folder).or_default().push((part, number));
        }
    }
    let mut nodes = Nodes::default();
    for (folder, mut parts) in folders {
        let is_read = |part: Part| part != Part::Beside;
        let is_default = Path::new(DEFAULT_FILE).parent() == Some(&folder);
        let shows_it = |(part, number): &(Part, usize)| {
            is_read(*part) && is_configuration(&files[*number])
                || *part == Part::Main && is_empty(&files[*number])
        };
        if !is_default && !parts.iter().any(shows_it) {
            continue;
        }
        // Files of the folder come in the order of their names, others as they were given.
        parts.sort_by_key(|(part, number)| {
            (*part, (*part == Part::InFolder).then(|| files[*number].input.name.as_bytes()))
        });
        let in_folder = parts.iter().filter(|(part, _)| *part == Part::InFolder);
        nodes.too_many.extend(in_folder.map(|(_, number)| *number).nth(MAX_FILES));
        nodes.unread.extend(parts.iter().filter(|(part, _)| !is_read(*part)).map(|(_, number)| *number));
        let set: Vec<_> =
            parts.into_iter().filter(|(part, _)| is_read(*part)).map(|(_, number)| number).collect();
        if set.len() > 1 || is_default && !set.is_empty() {
            nodes.sets.push(set);
        }
    }
    nodes
}

/// The folder of the node that a file may belong to, and what it is there.
fn place(file: &Read<'_>) -> Option<(PathBuf, Part)> {
    let path = Path::new(&file.input.name);
    // `conf.d` and `./conf.d` are one folder.
    let path = path.strip_prefix(".").unwrap_or(path);
    let folder = path.parent()?;
    if is_folder(folder) {
        let part = if is_wanted(path) { Part::InFolder } else { Part::Beside };
        let is_meant = part == Part::InFolder || is_configuration(file);
        return is_meant.then(|| (folder.parent().map(Path::to_owned).unwrap_or_default(), part));
    }
    if is_main(path) {
        return Some((folder.to_owned(), Part::Main));
    }
    let part = if file.input.is_named { Part::Main } else { Part::Beside };
    is_configuration(file).then(|| (folder.to_owned(), part))
}

fn is_configuration(file: &Read<'_>) -> bool {
    file.nodes().any(|node| kind::of(node) == Shape::Configuration)
}

/// A file as packages install it: all settings are comments.
fn is_empty(file: &Read<'_>) -> bool {
    file.stream.as_ref().is_ok_and(|stream| stream.documents.is_empty())
}

/// The warning about a configuration where no node looks for it.
pub(super) fn unread() -> Finding {
    let message = "a node does not read this file: only config.yaml and conf.d/*.yaml".to_owned();
    Finding { severity: Grade::Warning, line: None, column: None, message }
}

/// The error about a folder that no node reads to its end.
pub(super) fn too_many() -> Finding {
    let message = format!("more than {MAX_FILES} files in conf.d: a node refuses them; combine their rules");
    Finding { severity: Grade::Error, line: None, column: None, message }
}
