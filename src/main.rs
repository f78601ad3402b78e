//! The command `criprobe`: arguments in, an exit code out.

use std::process::ExitCode;

use criprobe::{
    app,
    cli::{self, Command},
};

fn main() -> ExitCode {
    if let Some(exit) = cli::complete() {
        return exit;
    }
    match cli::parse(std::env::args_os()) {
        Ok(Command::Ask(request)) => request.run(),
        Ok(Command::Check(check)) => check.run().into(),
        Ok(Command::Completion(completion)) => completion.run().into(),
        Ok(Command::Serve(args)) => app::serve(args).into(),
        Ok(Command::Demo(args)) => app::demo(args).into(),
        Err(exit) => exit,
    }
}
