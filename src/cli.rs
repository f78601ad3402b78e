//! The command line: arguments in, an exit code out. A client of the API, never of the core; what the daemon is
//! started with is handed on as plain values.

mod access;
mod act;
mod check;
mod client;
mod config;
mod demo;
mod describe;
mod endpoint;
mod error;
pub(crate) mod events;
mod exit;
mod format;
mod pods;
mod probe_name;
pub(crate) mod probes;
mod reason;
mod run;
pub(crate) mod screen;
mod select;
mod serve;
mod span;
mod status;
pub(crate) mod table;
pub(crate) mod trace;
mod url;
mod version;

use std::{env, ffi::OsString, process::ExitCode};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, error::ErrorKind};

use act::ActArgs;
use check::CheckArgs;
use client::Client;
use endpoint::Endpoint;
use error::Error;
use format::Format;
use screen::Screen;

pub use check::Check;
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
    /// Check files.
    Check(Check),
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
#[command(name = "criprobe", version, after_help = EXAMPLES, max_term_width = 100)]
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
  criprobe run default/web/app --http-get http://:8080/healthz
  criprobe check deploy/                see offline what probes manifests come to

'criprobe help VERB' tells more of each. Exit: 0 fine, 1 a probe is failing, a file is wrong, or the
daemon failed, 2 usage, 3 daemon not reachable, 78 bad configuration.";

/// What every verb takes that asks a daemon, before or after it. `serve` takes `--api`, too: there it listens. What a
/// verb refuses of these, [`command`] hides.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Options of every verb that asks a daemon")]
struct Common {
    /// The daemon's API socket; a bare path is taken, too; the variable moves the daemon's own, too [env: CRIPROBE_API] [default: unix:///run/criprobe/api.sock]
    #[arg(long, global = true, value_name = "URL")]
    api: Option<String>,
    /// How to print [default: table]
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the daemon: relay a client's calls to the runtime, watch, probe, report
    Serve(ServeArgs),
    /// Show everything at once on an embedded runtime, or on a given one
    Demo(DemoArgs),
    /// Check configurations, manifests and crictl's files: the probes that would result, and what is wrong
    Check(CheckArgs),
    #[command(flatten)]
    Question(Question),
}

#[derive(Debug, Subcommand)]
enum Question {
    /// Show how the daemon is: runtime, connections, inventory, probes, configuration
    Status(status::StatusArgs),
    /// List pods with their containers: running, started, ready
    Pods(pods::PodsArgs),
    /// List probes, or watch them
    Probes(probes::ProbesArgs),
    /// Show all of one probe, or of one container's: definition, history, last output
    Describe(describe::DescribeArgs),
    /// Show calls as they end, one line each
    Trace(trace::TraceArgs),
    /// Show what happened: attempts that failed, verdicts
    Events(events::EventsArgs),
    /// Try something on a container once, now, as a probe would; or try its own probe
    Run(run::RunArgs),
    /// Stop the attempts of a probe; its verdict stays
    #[command(after_help = act::PAUSE)]
    Pause(ActArgs),
    /// Let a paused probe go on
    #[command(after_help = act::RESUME)]
    Resume(ActArgs),
    /// Let a probe make its next attempt now
    #[command(after_help = act::TRIGGER)]
    Trigger(ActArgs),
    /// Show the configuration: the commented defaults, or what is in force and where it comes from
    Config(config::ConfigArgs),
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
    read(arguments.into_iter().collect()).map_err(|refused| refused.report().into())
}

/// Why arguments are no command.
enum Refused {
    /// Help was asked for, or should have been.
    Help(clap::Error),
    /// They are wrong: one line.
    Usage(String),
}

/// All verbs and flags. Those that ask no daemon show no flag in their help that they refuse: they are told why there.
fn command() -> clap::Command {
    let cli = Cli::command();
    let common = |id: &str| {
        let flag = cli.get_arguments().find(|flag| flag.get_id() == id);
        flag.cloned().expect("all verbs have --api and -o")
    };
    let hidden = |id| common(id).hide(true);
    let api = common("api").help_heading(None).help(serve::API);
    let serve_only = [api, hidden("output")];
    let demo_only = [hidden("api"), hidden("output")];
    cli.mut_subcommand("serve", |serve| serve.args(serve_only))
        .mut_subcommand("demo", |demo| demo.args(demo_only))
}

fn read(arguments: Vec<OsString>) -> Result<Command, Refused> {
    let help = help_for(&arguments);
    let refused = |reason: &str| Err(Refused::Usage(format!("{reason}; see '{help}'")));
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let lacks_dashes = has("--exec") && !has("--");
    let matches = command().try_get_matches_from(arguments);
    match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(Cli { verb: Verb::Serve(_), common: Common { output: Some(_), .. } }) => {
            refused("-o is for verbs that print records: 'serve' logs, choose its form with --log-format")
        }
        Ok(Cli { verb: Verb::Demo(_), common: Common { output: Some(_), .. } }) => {
            refused("-o is for verbs that print records: ask the demo's daemon from another terminal")
        }
        Ok(Cli { verb: Verb::Demo(_), common: Common { api: Some(_), .. } }) => {
            refused("the demo makes an API socket of its own: choose its folder with --dir")
        }
        Ok(Cli { verb: Verb::Check(_), common: Common { api: Some(_), .. } }) => {
            refused("'check' asks no daemon: leave out --api")
        }
        Ok(Cli { verb: Verb::Check(arguments), common }) => {
            Ok(Command::Check(Check { arguments, output: common.output }))
        }
        Ok(Cli { verb: Verb::Serve(mut arguments), common }) => {
            arguments.api = common.api;
            Ok(Command::Serve(arguments))
        }
        Ok(Cli { verb: Verb::Demo(arguments), .. }) => Ok(Command::Demo(arguments)),
        Ok(Cli { verb: Verb::Question(verb), common }) => Ok(Command::Ask(Request { verb, common })),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Err(Refused::Help(error)),
            ErrorKind::UnknownArgument if lacks_dashes => {
                refused("a command stands after two dashes: criprobe run CONTAINER --exec -- CMD...")
            }
            _ => refused(&one_line(&error.render().to_string())),
        },
    }
}

/// Where to read on: the help of the verb that stands among the arguments, if there is one.
fn help_for(arguments: &[OsString]) -> String {
    let command = command();
    let verb = arguments.iter().skip(1).filter_map(|word| word.to_str()).find(|word| {
        let mut verbs = command.get_subcommands();
        verbs.any(|verb| verb.get_name() == *word)
    });
    verb.map_or_else(|| "criprobe --help".to_owned(), |verb| format!("criprobe {verb} --help"))
}

impl Request {
    /// Asks, prints, and says how it went.
    pub fn run(self) -> ExitCode {
        let asked = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::Output)
            .and_then(|runtime| runtime.block_on(self.ask()));
        asked.unwrap_or_else(|error| error.report()).into()
    }

    async fn ask(self) -> Result<Exit, Error> {
        let endpoint = Endpoint::choose(self.common.api.as_deref(), env::var("CRIPROBE_API").ok().as_deref());
        let endpoint = endpoint.map_err(Error::Usage)?;
        let context = Context {
            client: Client::new(endpoint),
            format: self.common.output.unwrap_or(Format::Table),
            screen: Screen::of_stdout(),
        };
        match self.verb {
            Question::Status(arguments) => arguments.run(&context).await,
            Question::Pods(arguments) => arguments.run(&context).await,
            Question::Probes(arguments) => arguments.run(&context).await,
            Question::Describe(arguments) => arguments.run(&context).await,
            Question::Trace(arguments) => arguments.run(&context).await,
            Question::Events(arguments) => arguments.run(&context).await,
            Question::Run(arguments) => arguments.run(&context).await,
            Question::Pause(arguments) => arguments.run(&context, "pause").await,
            Question::Resume(arguments) => arguments.run(&context, "resume").await,
            Question::Trigger(arguments) => arguments.run(&context, "trigger").await,
            Question::Config(arguments) => arguments.run(&context).await,
            Question::Version(arguments) => arguments.run(&context).await,
        }
    }
}

impl Refused {
    /// Prints help where it was asked for; else one line on what is wrong, and where to read on.
    fn report(&self) -> Exit {
        match self {
            Self::Usage(reason) => Error::Usage(reason.clone()).report(),
            Self::Help(help) => {
                // Nobody reads it: nothing to do about that.
                let _ = help.print();
                match help.kind() {
                    ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::Fine,
                    _ => Exit::Usage,
                }
            }
        }
    }
}

/// clap's paragraphs as one line: what is wrong, and its hints.
fn one_line(rendered: &str) -> String {
    let mut line = String::new();
    let parts = rendered.lines().map(str::trim).filter(|part| !part.is_empty());
    for part in
        parts.take_while(|part| !part.starts_with("Usage: ") && !part.starts_with("For more information"))
    {
        let part = part.strip_prefix("error: ").unwrap_or(part);
        match line.chars().last() {
            None => {}
            Some(':') => line.push(' '),
            Some(_) => line.push_str("; "),
        }
        line.push_str(part.strip_prefix("tip: ").unwrap_or(part));
    }
    line
}

#[cfg(test)]
mod tests;
