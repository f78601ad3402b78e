//! The flags and the end that the benches have in common: a result in; Markdown in a file, and the exit code, out.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};

use crate::process;

/// Flags of each bench beside its own.
#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Also writes the result as Markdown
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
    /// Exits with 1 if a figure is missed or could not be measured
    #[arg(long)]
    pub(crate) check: bool,
    /// The program under test
    #[arg(long, value_name = "FILE", default_value_os_t = process::built_binary())]
    pub(crate) criprobe: PathBuf,
    /// Given by cargo, means nothing
    #[arg(long, hide = true)]
    bench: bool,
}

impl Flags {
    /// Writes the Markdown, if asked for; returns whether every figure that had to be reached was, as far as that was asked for.
    pub(crate) fn conclude(&self, markdown: &str, is_good: bool) -> Result<bool> {
        if let Some(file) = &self.markdown {
            fs::write(file, markdown).with_context(|| format!("write {}", file.display()))?;
        }
        Ok(is_good || !self.check)
    }
}

/// How a bench ends.
pub(crate) fn exit_code(ran: Result<bool>) -> ExitCode {
    match ran {
        Ok(is_good) => ExitCode::from(u8::from(!is_good)),
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
