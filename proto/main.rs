//! Compiles the .proto files of this folder and writes `descriptors.bin` beside them. Its test checks that the file is up to
//! date.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use protox::Compiler;

fn main() -> Result<()> {
    let path = descriptors();
    fs::write(&path, compile()?).with_context(|| format!("write {}", path.display()))
}

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn descriptors() -> PathBuf {
    folder().join("descriptors.bin")
}

/// The descriptors of all .proto files, ordered by file name. Comments and positions are left out.
fn compile() -> Result<Vec<u8>> {
    let mut files = fs::read_dir(folder())?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "proto"));
    files.sort();
    let mut compiler = Compiler::new([folder()])?;
    compiler.include_imports(true).open_files(files)?;
    Ok(compiler.encode_file_descriptor_set())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptors_are_those_of_the_proto_files() {
        let written = fs::read(descriptors()).unwrap_or_default();
        assert!(written == compile().unwrap(), "proto/descriptors.bin is out of date: run `make proto`");
    }
}
