//! The source of the configuration: the overrides from the start, kept so that the files can be read again with them.

use std::path::{self, Path, PathBuf};

use nix::unistd::Group;

use crate::config::{self, ConfigErrors, Loaded, Overrides, files};

/// The file that was named, if any, and what takes precedence over all files.
#[derive(Clone, Debug)]
pub(crate) struct ConfigSource {
    file: Option<PathBuf>,
    overrides: Overrides,
}

/// What is read: one file, and all files of a folder whose names end in `.yaml`. Neither need exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Roots {
    pub(super) file: PathBuf,
    pub(super) folder: PathBuf,
}

impl ConfigSource {
    /// With what the command line and the environment say.
    pub(super) fn new(file: Option<PathBuf>, overrides: Overrides) -> Self {
        Self { file, overrides }
    }

    /// What is read, whether it exists or not.
    pub(super) fn roots(&self) -> Roots {
        let file = self.file.as_deref().unwrap_or(Path::new(files::DEFAULT_FILE));
        // Only a working folder that is gone makes this fail, and then nothing is read from it either.
        let file = path::absolute(file).unwrap_or_else(|_| file.to_owned());
        let folder = files::folder_beside(&file);
        Roots { file, folder }
    }

    /// Reads the files. Blocks.
    ///
    /// # Errors
    /// Everything that is wrong at once.
    pub(super) fn load(&self) -> Result<Loaded, ConfigErrors> {
        config::load(self.file.as_deref(), &self.overrides, &group_id)
    }
}

/// The id of a group of this machine.
fn group_id(name: &str) -> Result<Option<u32>, String> {
    let group = Group::from_name(name).map_err(|error| format!("cannot look up groups: {error}"))?;
    Ok(group.map(|group| group.gid.as_raw()))
}
