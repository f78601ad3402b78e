//! The command `criprobe`: arguments in, an exit code out.

use std::process::ExitCode;

use criprobe::cli::{self, Command, Exit};

fn main() -> ExitCode {
    let command = match cli::parse(std::env::args_os()) {
        Ok(command) => command,
        Err(exit) => return exit,
    };
    match command {
        Command::Ask(request) => request.run(),
        // The lead's place: `app::serve(arguments)` and `app::demo(arguments)`.
        Command::Serve(_) | Command::Demo(_) => Exit::Failed.because(&"this build has no daemon").into(),
    }
}
