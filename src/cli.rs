//! The command line: arguments in, an exit code out. A client of the API, never of the core. The daemon's arguments are
//! passed on as plain values.

mod access;
mod act;
mod allowlist;
mod banner;
mod check;
mod client;
mod completion;
mod config;
mod demo;
mod describe;
mod endpoint;
mod error;
pub(crate) mod events;
mod exit;
mod exits;
mod format;
mod help;
pub(crate) mod live;
mod node;
mod nothing;
mod phases;
mod pods;
mod presence;
pub(crate) mod probes;
pub(crate) mod progress;
mod reason;
mod row;
mod run;
pub(crate) mod screen;
mod select;
mod serve;
mod span;
mod status;
pub(crate) mod table;
mod top;
pub(crate) mod trace;
mod url;
mod usage;
mod version;
mod wait;
pub(crate) mod wrap;

use std::{env, ffi::OsString, io::Write, process::ExitCode};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, error::ErrorKind};

use act::{PauseArgs, ResumeArgs, TriggerArgs};
use check::CheckArgs;
use client::Client;
use completion::CompletionArgs;
use endpoint::Endpoint;
use error::Error;
use format::Format;
use screen::Screen;

pub use check::Check;
pub use completion::{Completion, complete};
pub use demo::DemoArgs;
pub use exit::Exit;
pub use serve::ServeArgs;

/// The parsed command.
#[derive(Debug)]
pub enum Command {
    /// Run the daemon.
    Serve(ServeArgs),
    /// Run the demo.
    Demo(DemoArgs),
    /// Check files.
    Check(Check),
    /// Print a script for a shell.
    Completion(Completion),
    /// Ask a daemon.
    Ask(Request),
}

/// A request to a daemon, ready to be sent.
#[derive(Debug)]
pub struct Request {
    verb: Question,
    common: Common,
}

/// A CRI proxy that probes containers and shows every call to the container runtime.
#[derive(Debug, Parser)]
#[command(name = "criprobe", version, after_help = EXAMPLES)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    verb: Verb,
}

const EXAMPLES: &str = "\
Start here:
  criprobe demo                         try everything; needs neither root nor containerd
  criprobe serve                        run the daemon in front of containerd; then connect:
  crictl --runtime-endpoint unix:///run/criprobe/criprobe.sock pods
  criprobe probes -w                    watch the probes
  criprobe trace --method 'Exec*'       watch the commands that clients run in containers
  criprobe top                          watch what runs now, and what execs cost
  criprobe run default/web/app --http-get http://:8080/healthz
  criprobe node switch                  point this node's kubelet and crictl at the daemon
  criprobe check deploy/                show the probes that these manifests would produce

'criprobe help VERB' shows the options of a verb, with examples. Exit codes: 0 success, 1 a probe is
failing, something is degraded (status), an attempt failed, a file is wrong, a wait timed out, or the daemon failed or refused the
request, 2 wrong usage, or a name or filter that matches nothing, 3 the daemon is not reachable,
4 an attempt could not be made, 78 the configuration is wrong.";

/// What every verb takes that asks a daemon, before or after it. `serve` takes `--api`, too: there it listens. What a
/// verb refuses of these, [`command`] hides.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Options of every verb that queries the daemon")]
struct Common {
    /// The daemon's API socket, as a URL or a path; 'criprobe serve' reads the variable, too [env: CRIPROBE_API] [default: unix:///run/criprobe/api.sock]
    #[arg(long, global = true, value_name = "URL")]
    api: Option<String>,
    /// Output format [default: table]
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the daemon: relay calls to the runtime, run probes, report
    Serve(ServeArgs),
    /// Run a demo on an embedded runtime, or on a real one
    Demo(DemoArgs),
    /// Check manifests, configurations and files for crictl; show errors and the resulting probes
    Check(CheckArgs),
    /// Print a script that completes command lines in a shell
    Completion(CompletionArgs),
    #[command(flatten)]
    Question(Question),
}

#[derive(Debug, Subcommand)]
enum Question {
    /// Show the state of the daemon: runtime, connections, inventory, probes, configuration
    Status(status::StatusArgs),
    /// List pods with their containers, and whether they are started and ready
    Pods(pods::PodsArgs),
    /// List probes, or watch them
    Probes(probes::ProbesArgs),
    /// Show a pod, a container with its probes, or a probe in detail: exits, definition, history, last output
    Describe(describe::DescribeArgs),
    /// Show calls as they end, one line per call
    Trace(Box<trace::TraceArgs>),
    /// Show what runs now, and what execs cost by pod and command
    Top(top::TopArgs),
    /// Show events: failed attempts, verdicts, invalid definitions
    Events(events::EventsArgs),
    /// Make one attempt on a container now, with its own probe or with a new one
    Run(run::RunArgs),
    /// Pause a probe, or all of a container or pod: no attempts are made, and verdicts stay
    Pause(PauseArgs),
    /// Resume what is paused
    Resume(ResumeArgs),
    /// Make the next attempt of a probe now, and show its result
    Trigger(TriggerArgs),
    /// Wait until pods are ready, started or healthy
    Wait(wait::WaitArgs),
    /// Print this node's probe commands as an exception list for Falco or Tetragon
    Allowlist(allowlist::AllowlistArgs),
    /// Point this node's kubelet and crictl at criprobe, or back; show who is connected
    Node(node::NodeArgs),
    /// Show the configuration in effect and where it comes from, or the commented defaults
    Config(config::ConfigArgs),
    /// Show the versions of this program and of the daemon
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
/// The exit code, if help or an error message has already been printed.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, ExitCode> {
    read(arguments.into_iter().collect()).map_err(|refused| refused.report().into())
}

/// Why arguments are no command.
enum Refused {
    /// Help was requested, or is shown because no verb was given.
    Help(clap::Error),
    /// They are wrong: one line.
    Usage(String),
}

/// All verbs and flags. Verbs that need no daemon hide the flags that they do not support; using one is an error that
/// says why.
pub fn command() -> clap::Command {
    let cli = Cli::command();
    let common = |id: &str| {
        let flag = cli.get_arguments().find(|flag| flag.get_id() == id);
        flag.cloned().expect("all verbs have --api and -o")
    };
    let hidden = |id| common(id).hide(true);
    let api = common("api").help_heading(None).help(serve::API);
    let serve_only = [api, hidden("output")];
    let neither = [hidden("api"), hidden("output")];
    cli.mut_subcommand("serve", |serve| serve.args(serve_only))
        .mut_subcommand("demo", |demo| demo.args(neither.clone()))
        .mut_subcommand("completion", |completion| completion.args(neither))
}

fn read(arguments: Vec<OsString>) -> Result<Command, Refused> {
    let command = command();
    let verb = verb_among(&arguments, &command);
    let verb = verb.as_deref();
    let help = verb.map_or_else(|| "criprobe --help".to_owned(), |verb| format!("criprobe {verb} --help"));
    let refused = |reason: &str| Err(Refused::Usage(format!("{reason}; see '{help}'")));
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let lacks_dashes = verb == Some("run") && has("--exec") && !has("--");
    let matches = help::marked(command.clone()).term_width(help_width()).try_get_matches_from(arguments);
    match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(Cli { verb: Verb::Serve(_), common: Common { output: Some(_), .. } }) => {
            refused("'serve' does not support -o: choose the log format with --log-format")
        }
        Ok(Cli { verb: Verb::Demo(_), common: Common { output: Some(_), .. } }) => {
            refused("'demo' does not support -o: query its daemon from another terminal")
        }
        Ok(Cli { verb: Verb::Demo(_), common: Common { api: Some(_), .. } }) => refused(
            "'demo' does not support --api, as it creates its own API socket: choose the folder with --dir",
        ),
        Ok(Cli { verb: Verb::Check(_), common: Common { api: Some(_), .. } }) => {
            refused("'check' does not support --api, as it needs no daemon")
        }
        Ok(Cli {
            verb: Verb::Completion(_),
            common: Common { api: Some(_), .. } | Common { output: Some(_), .. },
        }) => refused("'completion' supports neither --api nor -o: it prints a script"),
        Ok(Cli { verb: Verb::Completion(arguments), .. }) => {
            Ok(Command::Completion(Completion { arguments }))
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
            ErrorKind::UnknownArgument | ErrorKind::MissingRequiredArgument if lacks_dashes => {
                refused("write the command after '--': criprobe run CONTAINER --exec -- CMD...")
            }
            _ if usage::is_of_verb(&error, &command, verb) => {
                let reason = usage::describe(&error, &command, None);
                Err(Refused::Usage(format!("{reason}; see 'criprobe --help'")))
            }
            _ => refused(&usage::describe(&error, &command, verb)),
        },
    }
}

/// 100 columns of a help text at most: longer lines are hard to read.
const MAX_HELP_WIDTH: usize = 100;

fn help_width() -> usize {
    Screen::of_stdout().width.min(MAX_HELP_WIDTH)
}

/// The verb among the arguments, if there is one.
fn verb_among(arguments: &[OsString], command: &clap::Command) -> Option<String> {
    let mut words = arguments.iter().skip(1).filter_map(|word| word.to_str());
    words.find(|word| command.get_subcommands().any(|verb| verb.get_name() == *word)).map(str::to_owned)
}

impl Request {
    /// Sends the request, prints the result, and returns the exit code.
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
            Question::Top(arguments) => arguments.run(&context).await,
            Question::Events(arguments) => arguments.run(&context).await,
            Question::Run(arguments) => arguments.run(&context).await,
            Question::Pause(arguments) => arguments.run(&context).await,
            Question::Resume(arguments) => arguments.run(&context).await,
            Question::Trigger(arguments) => arguments.run(&context).await,
            Question::Wait(arguments) => arguments.run(&context).await,
            Question::Allowlist(arguments) => arguments.run(&context).await,
            Question::Node(arguments) => arguments.run(&context).await,
            Question::Config(arguments) => arguments.run(&context).await,
            Question::Version(arguments) => arguments.run(&context).await,
        }
    }
}

impl Refused {
    /// Prints help if it was requested; otherwise one line with the error and a pointer to the help.
    fn report(&self) -> Exit {
        match self {
            Self::Usage(reason) => Error::Usage(reason.clone()).report(),
            Self::Help(help) => {
                let ended = |text: &str| help::ended(text, &command(), help_width());
                // The reader is gone: nothing to do about that.
                let _ = match help.kind() {
                    ErrorKind::DisplayHelp | ErrorKind::DisplayVersion if Screen::of_stdout().is_coloured => {
                        screen::print(&ended(&help.render().ansi().to_string()))
                    }
                    ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                        screen::print(&ended(&help.render().to_string()))
                    }
                    _ => std::io::stderr().write_all(ended(&help.render().to_string()).as_bytes()),
                };
                match help.kind() {
                    ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::Fine,
                    _ => Exit::Usage,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
