//! Writes the man pages: `cargo run --example man -- FOLDER`. A page for criprobe and one for each verb, from the help texts.
//! No part of the binary.

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use clap::Command;
use clap_mangen::Man;

fn main() -> Result<(), Box<dyn Error>> {
    let folder: PathBuf = env::args_os().nth(1).ok_or("name a folder: man FOLDER")?.into();
    write_all(&folder)
}

/// Writes all pages into a folder, which is created if it is missing.
pub(crate) fn write_all(folder: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(folder)?;
    let mut command = criprobe::cli::command();
    command.build();
    let verbs: Vec<_> = command.get_subcommands().filter(|verb| verb.get_name() != "help").cloned().collect();
    for verb in verbs {
        let name = format!("criprobe-{}", verb.get_name());
        // The page's own name has a dash; what is to be typed has a space.
        let usage = format!("criprobe {}", verb.get_name());
        write(folder, &name, verb.display_name(&name).bin_name(usage))?;
    }
    write(folder, "criprobe", command)
}

fn write(folder: &Path, name: &str, command: Command) -> Result<(), Box<dyn Error>> {
    // Static names are what clap asks for; the program ends soon.
    let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
    let page = Man::new(command.name(name)).section("8").manual("criprobe");
    let mut text = Vec::new();
    page.render(&mut text)?;
    Ok(fs::write(folder.join(format!("{name}.8")), text)?)
}
