//! Finds and reads the files that are to be checked: names in, bytes out, never more than the bounds below.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use crate::check::{BOUNDS, CheckInput, node};

/// 10,000 files: the most that are checked at once. More are an error.
const MAX_FILES: usize = 10_000;

/// 64 MiB: the most that all files may hold together. More is an error.
const MAX_TOTAL: usize = 64 << 20;

/// 32 levels of folders: how deep they are looked through. What is deeper is an error.
const MAX_FOLDERS: usize = 32;

/// What the files of a folder are called that are checked.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// The files, and why some could not be read.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) inputs: Vec<CheckInput>,
    pub(super) unreadable: Vec<String>,
}

/// Reads files, and those in and below folders in the order of their names; `-` is standard input. Hidden ones are passed
/// over in folders, and links to folders are not followed there. With a node's main file come those that the node reads
/// after it.
///
/// # Errors
/// There are too many, or they hold too much.
pub(super) fn find(names: &[PathBuf]) -> Result<Found, String> {
    let mut finder = Finder { found: Found::default(), left: MAX_TOTAL };
    for name in names {
        if name.as_os_str() == "-" {
            finder.add("-".to_owned(), true, Ok(io::stdin().lock()))?;
        } else if name.is_dir() {
            let before = finder.found.inputs.len() + finder.found.unreadable.len();
            finder.folder(name, 0)?;
            if finder.found.inputs.len() + finder.found.unreadable.len() == before {
                let reason = format!("{}: contains no *.yaml, *.yml or *.json files", name.display());
                finder.found.unreadable.push(reason);
            }
        } else {
            finder.add(name.display().to_string(), true, File::open(name))?;
            finder.folder_beside(name, names)?;
        }
    }
    Ok(finder.found)
}

/// Reads files of rules. Of a node's folder, those that the node would read: `config.yaml`, then `conf.d/*.yaml`; of
/// another one the `*.yaml` that are in it.
///
/// # Errors
/// One file cannot be read: without it, the result would be wrong.
pub(super) fn rules(names: &[PathBuf]) -> Result<Vec<CheckInput>, String> {
    let mut finder = Finder { found: Found::default(), left: MAX_TOTAL };
    for name in names {
        if name.is_dir() {
            for path in rules_of(name).map_err(|error| format!("--rules: {}", unreadable(name, &error)))? {
                finder.add(path.display().to_string(), true, File::open(path))?;
            }
        } else {
            finder.add(name.display().to_string(), true, File::open(name))?;
        }
    }
    match finder.found.unreadable.first() {
        Some(reason) => Err(format!("--rules: {reason}")),
        None => Ok(finder.found.inputs),
    }
}

/// The files of rules in a folder, in the order in which a node reads them.
fn rules_of(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let all = entries(folder)?;
    let is_nodes = all
        .iter()
        .any(|path| node::is_main(path) && path.is_file() || node::is_folder(path) && path.is_dir());
    let (mut main, mut others) = (Vec::new(), Vec::new());
    for path in all {
        if is_nodes && node::is_main(&path) {
            main.push(path);
        } else if is_nodes && node::is_folder(&path) && path.is_dir() {
            others = entries(&path)?;
        } else if !is_nodes {
            others.push(path);
        }
    }
    main.extend(others.into_iter().filter(|path| node::is_wanted(path)));
    main.retain(|path| path.is_file());
    Ok(main)
}

struct Finder {
    found: Found,
    /// How many bytes may still be read.
    left: usize,
}

impl Finder {
    /// What a node reads after a main file that was named, unless it was named, too.
    fn folder_beside(&mut self, main: &Path, names: &[PathBuf]) -> Result<(), String> {
        let folder = node::folder_beside(main);
        if !node::is_main(main) || !folder.is_dir() {
            return Ok(());
        }
        let others = match entries(&folder) {
            Ok(others) => others,
            Err(error) => {
                self.found.unreadable.push(unreadable(&folder, &error));
                return Ok(());
            }
        };
        let is_new = |path: &Path| !names.iter().any(|name| path.starts_with(name));
        for path in others.iter().filter(|path| node::is_wanted(path) && path.is_file() && is_new(path)) {
            self.add(path.display().to_string(), false, File::open(path))?;
        }
        Ok(())
    }

    fn folder(&mut self, folder: &Path, depth: usize) -> Result<(), String> {
        if depth > MAX_FOLDERS {
            return Err(format!("{}: more than {MAX_FOLDERS} folders deep", folder.display()));
        }
        let entries = match entries(folder) {
            Ok(entries) => entries,
            Err(error) => {
                self.found.unreadable.push(unreadable(folder, &error));
                return Ok(());
            }
        };
        for path in entries.iter().filter(|path| !is_hidden(path)) {
            if path.is_dir() && !path.is_symlink() {
                self.folder(path, depth + 1)?;
            } else if path.is_file() && has_extension(path, &EXTENSIONS) {
                self.add(path.display().to_string(), false, File::open(path))?;
            }
        }
        Ok(())
    }

    fn add(&mut self, name: String, is_named: bool, file: io::Result<impl Read>) -> Result<(), String> {
        if self.found.inputs.len() >= MAX_FILES {
            return Err(format!("more than {MAX_FILES} files: check fewer at a time"));
        }
        let mut bytes = Vec::new();
        // One byte more than is allowed shows that there are too many.
        let read = file.and_then(|file| file.take(BOUNDS.bytes as u64 + 1).read_to_end(&mut bytes));
        match read {
            Err(error) => self.found.unreadable.push(unreadable(Path::new(&name), &error)),
            Ok(size) => {
                let left = self.left.checked_sub(size);
                let too_much =
                    || format!("more than {} MiB in all: check fewer files at a time", MAX_TOTAL >> 20);
                self.left = left.ok_or_else(too_much)?;
                self.found.inputs.push(CheckInput { name, bytes, is_named });
            }
        }
        Ok(())
    }
}

/// What is in a folder, in the order of the names.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = entries.collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn unreadable(path: &Path, error: &io::Error) -> String {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => "the file does not exist".to_owned(),
        _ => error.to_string(),
    };
    format!("cannot read {}: {reason}", path.display())
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| extensions.iter().any(|one| extension.eq_ignore_ascii_case(one)))
}
