//! The command line: arguments in, an exit code out. A client of the API, never of the core; what the daemon is
//! started with is handed on as plain values.

mod access;
mod client;
mod demo;
mod endpoint;
mod error;
pub(crate) mod events;
mod exit;
mod format;
pub(crate) mod probes;
pub(crate) mod screen;
mod select;
mod serve;
mod span;
mod status;
pub(crate) mod table;
pub(crate) mod trace;
mod version;
pub(crate) mod watch;

use std::{ffi::OsString, process::ExitCode};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, error::ErrorKind};

use client::Client;
use endpoint::Endpoint;
use error::Error;
use format::Format;
use screen::Screen;

pub use demo::DemoArgs;
pub use exit::Exit;
pub use serve::ServeArgs;

/// What was asked for.
#[derive(Debug)]
pub enum Command {
    /// Run the daemon.
    Serve(ServeArgs),
    /// Run the demo.
    Demo(DemoArgs),
    /// Ask a daemon.
    Ask(Request),
}

/// A question to a daemon, ready to be asked.
#[derive(Debug)]
pub struct Request {
    verb: Question,
    common: Common,
}

/// Watches pods come up, probes them, and shows every call that passes to the container runtime.
#[derive(Debug, Parser)]
#[command(name = "criprobe", version, disable_help_subcommand = true, after_help = EXAMPLES, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    verb: Verb,
}

const EXAMPLES: &str = "\
Start here:
  criprobe demo                         see it all work: no root, no containerd needed
  criprobe serve                        stand before containerd; then point a client at it:
  crictl --runtime-endpoint unix:///run/criprobe/criprobe.sock pods
  criprobe probes -w                    watch the probes
  criprobe trace --method 'Exec*'       watch who runs what in which container

'criprobe VERB --help' tells more of each. Exit: 0 fine, 1 a probe is failing or the daemon failed,
2 usage, 3 daemon not reachable, 78 bad configuration.";

/// What every verb takes, before or after it.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Options of every verb")]
struct Common {
    /// The daemon's API socket; a bare path is taken, too [default: unix:///run/criprobe/api.sock]
    #[arg(long, global = true, value_name = "URL", env = "CRIPROBE_API", hide_env_values = true)]
    api: Option<String>,
    /// How to print
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT", default_value_t = Format::Table)]
    output: Format,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the daemon: relay a client's calls to the runtime, watch, probe, report
    Serve(ServeArgs),
    /// Show everything at once on an embedded runtime, or on a given one
    Demo(DemoArgs),
    #[command(flatten)]
    Question(Question),
}

#[derive(Debug, Subcommand)]
enum Question {
    /// Show how the daemon is: runtime, connections, inventory, probes, configuration
    Status(status::StatusArgs),
    /// List probes, or watch them
    Probes(probes::ProbesArgs),
    /// Show calls as they end, one line each
    Trace(trace::TraceArgs),
    /// Show what happened: attempts that failed, verdicts
    Events(events::EventsArgs),
    /// Show this program's version, and the daemon's where it is reachable
    Version(version::VersionArgs),
}

/// Everything that a verb needs to ask and to print.
struct Context {
    client: Client,
    format: Format,
    screen: Screen,
}

/// Reads the arguments.
///
/// # Errors
/// The exit code, when all is said already: help was printed, or one line on what is wrong.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, ExitCode> {
    let matches = Cli::command().try_get_matches_from(arguments);
    match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(Cli { verb: Verb::Serve(mut arguments), common }) => {
            arguments.api = common.api.filter(|api| !api.is_empty());
            Ok(Command::Serve(arguments))
        }
        Ok(Cli { verb: Verb::Demo(arguments), .. }) => Ok(Command::Demo(arguments)),
        Ok(Cli { verb: Verb::Question(verb), common }) => Ok(Command::Ask(Request { verb, common })),
        Err(error) => Err(refuse(&error).into()),
    }
}

impl Request {
    /// Asks, prints, and says how it went.
    pub fn run(self) -> ExitCode {
        let asked = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::Output)
            .and_then(|runtime| runtime.block_on(self.ask()));
        asked.unwrap_or_else(|error| error.tell()).into()
    }

    async fn ask(self) -> Result<Exit, Error> {
        let endpoint = self.common.api.as_deref().filter(|api| !api.is_empty());
        let endpoint = endpoint.map_or_else(|| Ok(Endpoint::default()), str::parse).map_err(Error::Usage)?;
        let context = Context {
            client: Client::new(endpoint),
            format: self.common.output,
            screen: Screen::of_stdout(),
        };
        match self.verb {
            Question::Status(arguments) => arguments.run(&context).await,
            Question::Probes(arguments) => arguments.run(&context).await,
            Question::Trace(arguments) => arguments.run(&context).await,
            Question::Events(arguments) => arguments.run(&context).await,
            Question::Version(arguments) => arguments.run(&context).await,
        }
    }
}

/// Prints help where it was asked for; else one line on what is wrong with the arguments, and where to read on.
fn refuse(error: &clap::Error) -> Exit {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Nobody reads it: nothing to do about that.
            let _ = error.print();
            Exit::Fine
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            Exit::Usage
        }
        _ => Error::Usage(one_line(&error.render().to_string())).tell(),
    }
}

/// clap's paragraphs as one line: what is wrong, its hints, and where help is.
fn one_line(rendered: &str) -> String {
    let mut line = String::new();
    let mut help = "criprobe --help".to_owned();
    for part in rendered.lines().map(str::trim).filter(|part| !part.is_empty()) {
        if let Some(usage) = part.strip_prefix("Usage: ") {
            let mut words =
                usage.split(' ').take_while(|word| word.starts_with(|c: char| c.is_ascii_lowercase()));
            if let (Some(program), Some(verb)) = (words.next(), words.next()) {
                help = format!("{program} {verb} --help");
            }
            break;
        }
        if part.starts_with("For more information") {
            break;
        }
        let part = part.strip_prefix("error: ").unwrap_or(part);
        match line.chars().last() {
            None => {}
            Some(':') => line.push(' '),
            Some(_) => line.push_str("; "),
        }
        line.push_str(part.strip_prefix("tip: ").unwrap_or(part));
    }
    format!("{line}; see '{help}'")
}

#[cfg(test)]
mod tests;
