//! `criprobe run`: one attempt on a container, now, and how it went. Changes nothing and is recorded nowhere.

use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser};
use serde_json::{Value, json};

use super::{
    Context, Error, Exit,
    format::{self, Format},
    progress::Progress,
    reason::plain,
    screen::{Paint, Screen, print},
    span::measured,
    url::ProbeUrl,
    wrap::indented,
};
use crate::{
    duration::GoDuration,
    ids::{ProbeKind, ProbeType},
    report::{
        filter::duration,
        printable::printable,
        view::{AttemptResult, RunView},
    },
};

/// Flags of the verb.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = USAGE)]
#[command(group(clap::ArgGroup::new("trial").required(true)))]
pub(super) struct RunArgs {
    /// NAMESPACE/POD/CONTAINER, or a container's ID or its first characters; write %2F for a slash inside a name
    #[arg(value_name = "CONTAINER")]
    container: String,
    /// Run the container's own probe of this type: startup, readiness, liveness
    #[arg(long, value_name = "TYPE", group = "trial", value_parser = kind)]
    probe: Option<ProbeKind>,
    /// Run the command after --
    #[arg(long, group = "trial", requires = "command")]
    exec: bool,
    /// Send a GET request: http://:8080/healthz, https://:8443/x, or /healthz for port 80; a host must be in
    /// prober.allowHosts
    #[arg(long, value_name = "URL", group = "trial")]
    http_get: Option<ProbeUrl>,
    /// Connect to this port: a number, or a name that the container declares
    #[arg(long, value_name = "PORT", group = "trial")]
    tcp: Option<String>,
    /// Query the gRPC health service on this port
    #[arg(long, value_name = "PORT", group = "trial", allow_negative_numbers = true, value_parser = grpc_port)]
    grpc: Option<i64>,
    /// How long one try may take [default: 1s; with --probe, the probe's timeout]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
    /// How the command is run [default: the probe's execMode, or else prober.execMode]
    #[arg(long, value_name = "MODE", value_parser = exec_modes(), conflicts_with_all = ["http_get", "tcp", "grpc"])]
    exec_mode: Option<String>,
    /// A header of the request, 'NAME: VALUE'; can be given several times
    #[arg(long = "header", value_name = "HEADER", conflicts_with_all = ["probe", "exec", "tcp", "grpc"], value_parser = header)]
    headers: Vec<(String, String)>,
    /// The service to query [default: the server as a whole]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["probe", "exec", "http_get", "tcp"])]
    service: Option<String>,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD", conflicts_with_all = ["probe", "http_get", "tcp", "grpc"])]
    command: Vec<String>,
}

const USAGE: &str = "criprobe run CONTAINER (--probe TYPE | --exec -- CMD... | --http-get URL | --tcp PORT | --grpc PORT) [OPTIONS]";

const EXAMPLES: &str = "\
Examples:
  criprobe run default/web/app --probe liveness
  criprobe run default/web/app --exec -- cat /tmp/healthy
  criprobe run default/web/app --probe liveness --exec-mode session
  criprobe run default/web/app --http-get http://:8080/healthz --header 'Host: shop.example'
  criprobe run default/web/app --tcp 5432 --timeout 250ms
  criprobe run 3f2a91 --grpc 9000 --service shop.Cart

The attempt is evaluated like a probe's: an error is tried three times. Nothing is recorded, and no
verdict changes. With --exec-mode session, the first run of a command in a container goes by ExecSync;
its session is opened meanwhile, and stays for 150 s.

Exit codes: 0 success or warning, 1 failure, 2 wrong usage, 3 the daemon is not reachable, 4 it could
not be tried: the attempt ended with an error, or is not possible now.";

impl RunArgs {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, Error> {
        let progress = Progress::start("waiting for the attempt");
        let ran = context.client.post_and_wait("/v1/run", &self.request()).await;
        drop(progress);
        let ran: RunView = ran.map_err(Error::not_tried)?;
        print(&match context.format {
            Format::Json => format::json(&ran),
            Format::Yaml => format::yaml(&ran),
            Format::Table | Format::Wide => text(&ran, context.screen),
        })?;
        Ok(Exit::of_attempt(ran.result))
    }

    /// The body of `POST /v1/run`.
    fn request(self) -> Value {
        let mut request = json!({"container": self.container});
        if let Some(kind) = self.probe {
            request["probe"] = kind.as_str().into();
        }
        if self.exec {
            request["exec"] = json!({"command": self.command});
        }
        if let Some(url) = self.http_get {
            let headers: Vec<_> =
                self.headers.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
            request["httpGet"] = json!({
                "scheme": url.scheme, "port": port(&url.port), "path": url.path, "httpHeaders": headers,
            });
            if let Some(host) = url.host {
                request["httpGet"]["host"] = host.into();
            }
        }
        if let Some(name) = self.tcp {
            request["tcpSocket"] = json!({"port": port(&name)});
        }
        if let Some(port) = self.grpc {
            request["grpc"] = json!({"port": port, "service": self.service.unwrap_or_default()});
        }
        if let Some(timeout) = self.timeout {
            request["timeout"] = GoDuration(timeout).to_string().into();
        }
        if let Some(mode) = self.exec_mode {
            request["execMode"] = mode.into();
        }
        request
    }
}

/// What `--exec-mode` takes, each with its help.
fn exec_modes() -> PossibleValuesParser {
    PossibleValuesParser::new([
        PossibleValue::new("sync").help("The runtime starts it, by an ExecSync"),
        PossibleValue::new("session")
            .help("A shell that criprobe keeps in the container runs it, where it can"),
    ])
}

/// A port by number, because a grpc probe cannot name one. The daemon reports one that is out of range.
fn grpc_port(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| "not a port number: a grpc probe cannot use a port by name".to_owned())
}

/// The type of a probe that we could run.
fn kind(text: &str) -> Result<ProbeKind, String> {
    match text.parse() {
        Ok(ProbeType::Observed(_)) => Err("a client runs this probe, criprobe only watches it".to_owned()),
        Ok(ProbeType::Kind(_)) | Err(_) => text.parse(),
    }
}

/// A port as Kubernetes writes it: a number, or a name in quotes.
fn port(text: &str) -> Value {
    text.parse::<i64>().map_or_else(|_| text.into(), Into::into)
}

/// Name and value around the first colon; blanks before the value are dropped.
fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write 'NAME: VALUE'")?;
    Ok((name.to_owned(), value.trim_start().to_owned()))
}

/// A line with the result and its details, and below it the complete output, indented so that it never looks like a line
/// of ours.
fn text(ran: &RunView, screen: Screen) -> String {
    let paint = match ran.result {
        AttemptResult::Success => Paint::Good,
        AttemptResult::Warning | AttemptResult::Error => Paint::Doubtful,
        AttemptResult::Failure => Paint::Bad,
    };
    let mut line = format!(
        "{} in {}: {} of {}",
        screen.paint(ran.result.as_str(), paint),
        measured(ran.duration_seconds.0),
        ran.handler,
        printable(&ran.container.id)
    );
    if let Some(code) = ran.exit_code {
        line += &format!(", exit code {code}");
        if ran.result == AttemptResult::Failure && ran.output.trim().is_empty() {
            line += ", no output";
        }
    }
    if let Some(status) = ran.status {
        line += &format!(", status {status}");
    }
    if let Some(route) = ran.route.in_words().filter(|_| ran.route.is_about_sessions()) {
        line += &format!(", exec route: {route}");
    }
    if ran.tries > 1 {
        line += &format!(", {} tries", ran.tries);
    }
    let output = plain(ran.output.trim_end());
    let mut lines = vec![line];
    if !output.is_empty() {
        lines.push("output:".to_owned());
        lines.extend(indented(&output, screen.width));
    }
    lines.push(String::new());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::report::view::{ExecRouteView, sample};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        run: RunArgs,
    }

    fn request(line: &str) -> Result<Value, String> {
        let words = line.split(' ').map(|word| word.replace('_', " "));
        let parsed = Line::try_parse_from(["run".to_owned()].into_iter().chain(words));
        parsed.map(|line| line.run.request()).map_err(|error| error.to_string())
    }

    #[test]
    fn each_form_becomes_the_body_that_the_api_takes() {
        for (line, body) in [
            ("a/b/c --probe liveness", json!({"container": "a/b/c", "probe": "liveness"})),
            (
                "a/b/c --probe liveness --exec-mode session",
                json!({"container": "a/b/c", "probe": "liveness", "execMode": "session"}),
            ),
            (
                "c --exec --exec-mode sync -- true",
                json!({"container": "c", "exec": {"command": ["true"]}, "execMode": "sync"}),
            ),
            ("c --exec -- cat -n /x", json!({"container": "c", "exec": {"command": ["cat", "-n", "/x"]}})),
            (
                "c --http-get https://:web/x --header Host:_h --header Accept: --timeout 250ms",
                json!({"container": "c", "timeout": "250ms", "httpGet": {"scheme": "HTTPS", "port": "web", "path": "/x",
                    "httpHeaders": [{"name": "Host", "value": "h"}, {"name": "Accept", "value": ""}]}}),
            ),
            (
                "c --http-get /x",
                json!({"container": "c",
                    "httpGet": {"scheme": "HTTP", "port": 80, "path": "/x", "httpHeaders": []}}),
            ),
            ("c --tcp 5432", json!({"container": "c", "tcpSocket": {"port": 5432}})),
            (
                "c --tcp db --timeout 2s",
                json!({"container": "c", "tcpSocket": {"port": "db"}, "timeout": "2s"}),
            ),
            ("c --grpc 9 --service s", json!({"container": "c", "grpc": {"port": 9, "service": "s"}})),
            ("c --grpc -1", json!({"container": "c", "grpc": {"port": -1, "service": ""}})),
        ] {
            assert_eq!(request(line), Ok(body), "{line}");
        }
    }

    #[test]
    fn exactly_one_thing_is_tried_and_flags_stand_with_what_they_belong_to() {
        for (line, reported) in [
            ("c", "required arguments were not provided"),
            ("c --tcp 1 --grpc 2", "cannot be used with"),
            ("c --probe live", "unknown probe type \"live\": one of startup, readiness, liveness"),
            ("c --probe observed-1", "a client runs this probe, criprobe only watches it"),
            ("c --exec", "required arguments were not provided"),
            ("c -- true", "required arguments were not provided"),
            ("c --tcp 1 -- true", "cannot be used with"),
            ("c --tcp 1 --header a:_b", "cannot be used with"),
            ("c --exec --service x -- true", "cannot be used with"),
            ("c --http-get /x --header a", "write 'NAME: VALUE'"),
            ("c --http-get host/", "the scheme is missing before the host"),
            ("c --probe liveness --exec-mode stream", "[possible values: sync, session]"),
            ("c --tcp 1 --exec-mode sync", "cannot be used with"),
            ("c --tcp 1 --timeout soon", "not a duration"),
        ] {
            let error = request(line).unwrap_err();
            assert!(error.contains(reported), "{line}: {error}");
        }
    }

    #[test]
    fn what_it_found_looks_like_this() {
        let status = RunView {
            result: AttemptResult::Warning,
            exit_code: None,
            status: Some(302),
            handler: "httpGet".to_owned(),
            route: ExecRouteView::default(),
            output: "Probe terminated redirects, Response body: \u{1b}[2J\nline 2\n".to_owned(),
            ..sample::run()
        };
        let forged = RunView {
            result: AttemptResult::Failure,
            exit_code: Some(1),
            output: format!("no\n\nsuccess in 1ms: exec of default/web/app\r\n{}success in", " ".repeat(98)),
            ..sample::run()
        };
        let erred = RunView {
            result: AttemptResult::Error,
            exit_code: None,
            tries: 3,
            output: "rpc error: code = NotFound desc = no such container".to_owned(),
            ..sample::run()
        };
        let silent = RunView { output: String::new(), ..sample::run() };
        let route = sample::session_detail().history[0].route.clone();
        let first = RunView { route, ..silent.clone() };
        let failed = RunView {
            result: AttemptResult::Failure,
            exit_code: Some(1),
            output: "\n".to_owned(),
            ..sample::run()
        };
        let shown = [sample::run(), status, forged, erred, silent, failed, first]
            .map(|ran| text(&ran, Screen::plain(100)) + "\n");
        insta::assert_snapshot!("run", shown.concat());
    }
}
