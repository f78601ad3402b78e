//! `criprobe completion`: a script for a shell, and what that script asks for: words that a command line may go on with.

mod live;

use std::{env, process::ExitCode};

use clap::ValueEnum;
use clap_complete::{CompleteEnv, env::Shells};

use super::{Error, Exit, screen::print};

/// The variable by which a script asks: no setting of ours begins like that, so that it means nothing to the daemon.
const VARIABLE: &str = "_CRIPROBE_COMPLETE";

/// Flags of the verb.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CompletionArgs {
    /// For which shell
    #[arg(value_name = "SHELL", value_enum)]
    shell: Shell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

const EXAMPLES: &str = "\
Examples:
  source <(criprobe completion bash)            in ~/.bashrc
  criprobe completion bash > /usr/share/bash-completion/completions/criprobe
  source <(criprobe completion zsh)             in ~/.zshrc, after compinit
  criprobe completion fish | source             in ~/.config/fish/config.fish

Completes verbs, flags and their values, and the namespaces, pods, containers and probes that the
daemon knows at that moment. Without a daemon, these are left out.";

/// The verb with all that it was given.
#[derive(Debug)]
pub struct Completion {
    pub(super) arguments: CompletionArgs,
}

impl Completion {
    /// Prints the script, and returns the exit code.
    pub fn run(self) -> Exit {
        let name = match self.arguments.shell {
            Shell::Bash => "bash",
            Shell::Zsh => "zsh",
            Shell::Fish => "fish",
        };
        let mut script = Vec::new();
        let written = match Shells::builtins().completer(name) {
            Some(shell) => {
                shell.write_registration(VARIABLE, "criprobe", "criprobe", "criprobe", &mut script)
            }
            None => Ok(()),
        };
        let printed = written.and_then(|()| print(&String::from_utf8_lossy(&script)));
        printed.map_or_else(|error| Error::Output(error).report(), |()| Exit::Fine)
    }
}

/// Answers a shell's script, if one asks; otherwise none. Prints nothing but words to go on with: an error on the terminal
/// would disturb who types.
pub fn complete() -> Option<ExitCode> {
    env::var_os(VARIABLE).filter(|shell| !shell.is_empty())?;
    let words = env::args_os();
    if words.len() == 0 {
        return Some(ExitCode::FAILURE);
    }
    let directory = env::current_dir().ok();
    let engine = CompleteEnv::with_factory(|| live::with_live_values(super::command())).var(VARIABLE);
    let answered = engine.try_complete(words, directory.as_deref());
    Some(if answered.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
