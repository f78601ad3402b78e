//! Opens a session: one Exec of a shell, its stream, and the proof that commands will run as ExecSync runs them.

use std::time::Duration;

use tokio::time;
use tonic::{Code, Status, transport::Channel};

use super::{
    book::Unopened,
    capture::Capture,
    script::{self, Ask, Nonce, RUN_BY_PATH},
    stream::{Address, Came, Stream},
};
use crate::{
    ids::ContainerId,
    phases::{ExecEnd, PhasesHandle},
    proto::{
        cri::{ExecRequest, ExecResponse, runtime_service_server::SERVICE_NAME},
        encoded,
    },
    results::exec_route::WhySync,
};

/// 10 s for the runtime, which starts a shell in 30 ms, or in a second on a busy node, and 10 s for the shell.
const OPENING: Duration = Duration::from_secs(10);

/// 256 KiB: the longest environment that is compared.
const LONGEST_ENVIRONMENT: usize = 256 << 10;

/// What a shell sets for itself.
const SHELLS_OWN: [&str; 4] = ["PWD", "OLDPWD", "SHLVL", "_"];

/// A stream to the shells of a session.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) stream: Stream,
    pub(super) key: Nonce,
    /// The shell that runs commands: a process, in the container's own numbers.
    pub(super) runner: u32,
}

/// Opens a session in a container for the criprobe at `owner`.
///
/// # Errors
/// Why there is none.
pub(super) async fn open(
    channel: &Channel,
    phases: &PhasesHandle,
    owner: &str,
    container: &ContainerId,
) -> Result<Line, Unopened> {
    // The runtime's events name no calls: so that its exec is not taken for that of a client's call.
    let probed = phases.probed(container);
    let stream = time::timeout(OPENING, start(channel, owner, container)).await;
    let line = match stream.unwrap_or(Err(WhySync::Ended)) {
        Ok(stream) => time::timeout(OPENING, greet(stream)).await.unwrap_or(Err(WhySync::Silent.into())),
        Err(why) => Err(why.into()),
    };
    let _ = probed.ended(ExecEnd::Unanswered);
    line
}

async fn start(channel: &Channel, owner: &str, container: &ContainerId) -> Result<Stream, WhySync> {
    // It kills what others of its name have left. Containers of a pod may see each other's processes.
    let name = format!("{owner} in {container}");
    let request = ExecRequest {
        container_id: container.as_str().to_owned(),
        cmd: ["sh", "-c", &script::script(&name)].map(str::to_owned).to_vec(),
        tty: false,
        stdin: true,
        stdout: true,
        stderr: true,
    };
    let answer = encoded::call::<ExecResponse>(channel, SERVICE_NAME, "Exec", &request).await;
    let url = answer.map_err(|status| refused(&status))?.url;
    Stream::open(&Address::read(&url)?).await
}

async fn greet(mut stream: Stream) -> Result<Line, Unopened> {
    let key = Nonce::fresh();
    stream.send(&format!("{key}\n")).await.map_err(|_| WhySync::Ended)?;
    let (hello, code) = ask(&mut stream, &key, Ask::Hello).await?;
    let runner = runner(&hello).filter(|_| code == 0).ok_or(WhySync::Shell)?;
    let mut line = Line { stream, key, runner };
    line.prove().await?;
    Ok(line)
}

impl Line {
    /// Has the shell run the image's own programs, and shows that it does, and that it passes on the environment that the
    /// runtime gives, once what it sets for itself is unset.
    async fn prove(&mut self) -> Result<(), Unopened> {
        match self.ask(Ask::BuiltIn).await?.1 {
            127 => {}
            0 => drop(self.ask(Ask::Adjust(RUN_BY_PATH)).await?),
            _ => return Err(WhySync::Shell.into()),
        }
        let given = self.ask(Ask::Environment).await?;
        let given = environment(&given)?;
        let mut passed_on = self.ask(Ask::Run(" 'cat' '/proc/self/environ'")).await?;
        if let Some(changes) = changes(&given, &environment(&passed_on)?) {
            self.ask(Ask::Adjust(&changes)).await?;
            passed_on = self.ask(Ask::Run(" 'cat' '/proc/self/environ'")).await?;
        }
        if environment(&passed_on)? == given { Ok(()) } else { Err(WhySync::Environment.into()) }
    }

    async fn ask(&mut self, what: Ask<'_>) -> Result<(Vec<u8>, u32), Unopened> {
        ask(&mut self.stream, &self.key, what).await
    }
}

/// What the shells answer on standard output, and with which code. Some shells complain on standard error as they start.
async fn ask(stream: &mut Stream, key: &Nonce, what: Ask<'_>) -> Result<(Vec<u8>, u32), Unopened> {
    let nonce = Nonce::fresh();
    stream.send(&what.line(key, &nonce)).await.map_err(|_| WhySync::Ended)?;
    let mut capture = Capture::new(nonce, LONGEST_ENVIRONMENT);
    while !capture.has_ended() {
        match stream.next().await.map_err(|_| WhySync::Ended)? {
            Came::Said(output, octets) => capture.take(output, &octets).map_err(|_| WhySync::Shell)?,
            Came::Status(status) => return Err(Unopened { why: not_started(&status), is_left: false }),
        }
        if capture.said() > LONGEST_ENVIRONMENT {
            return Err(WhySync::Shell.into());
        }
    }
    let end = capture.end().ok_or(WhySync::Shell)?;
    Ok((end.output[..end.stdout].to_vec(), end.exit_code))
}

/// The number of the shell that runs commands, as it writes it. What comes before is what the shell says by itself.
pub(super) fn runner(hello: &[u8]) -> Option<u32> {
    String::from_utf8_lossy(hello).lines().last()?.parse().ok()
}

/// The assignments of an environment, sorted.
fn environment((text, code): &(Vec<u8>, u32)) -> Result<Vec<&[u8]>, WhySync> {
    if *code != 0 {
        return Err(WhySync::Shell);
    }
    let mut assignments: Vec<_> =
        text.split(|&octet| octet == 0).filter(|assignment| !assignment.is_empty()).collect();
    assignments.sort_unstable();
    Ok(assignments)
}

/// What makes the environment that is passed on the one that was given, as far as it is the shell's own variables that
/// differ; none if nothing does.
fn changes(given: &[&[u8]], passed_on: &[&[u8]]) -> Option<String> {
    let value = |environment: &[&[u8]], name: &str| {
        environment.iter().find_map(|assignment| {
            let text = str::from_utf8(assignment).ok()?;
            text.strip_prefix(name)?.strip_prefix('=').map(str::to_owned)
        })
    };
    let statements: Vec<_> = SHELLS_OWN
        .iter()
        .filter_map(|name| match (value(given, name), value(passed_on, name)) {
            (None, Some(_)) => Some(format!("unset {name}")),
            (Some(given), passed_on) if Some(&given) != passed_on.as_ref() => script::exported(name, &given),
            _ => None,
        })
        .collect();
    (!statements.is_empty()).then(|| statements.join(";"))
}

/// Why the runtime gives no stream.
fn refused(status: &Status) -> WhySync {
    match status.code() {
        Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded => WhySync::Ended,
        _ => WhySync::NoStreaming,
    }
}

/// Why the shell was not started, or ended, as the runtime says it.
fn not_started(status: &[u8]) -> WhySync {
    let says = |words: &str| status.windows(words.len()).any(|window| window == words.as_bytes());
    if says("executable file not found") || says("no such file or directory") && !says("chdir") {
        WhySync::NoShell
    } else if says("NonZeroExitCode") || says("\"Success\"") {
        WhySync::Shell
    } else {
        WhySync::Ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runner_is_read_from_the_last_line() {
        for (hello, expected) in
            [("9\n", Some(9)), ("Welcome\n9\n", Some(9)), ("", None), ("\n", None), ("x\n", None)]
        {
            assert_eq!(runner(hello.as_bytes()), expected, "{hello:?}");
        }
    }

    #[test]
    fn what_a_shell_sets_for_itself_is_undone() {
        let rows: [(&[&str], &[&str], Option<&str>); 5] = [
            (&["A=1"], &["A=1"], None),
            (&["A=1"], &["A=1", "PWD=/", "SHLVL=1"], Some("unset PWD;unset SHLVL")),
            (&["SHLVL=3", "PWD=/it's"], &["SHLVL=4"], Some(r"export PWD='/it'\''s';export SHLVL='3'")),
            (&["A=1"], &["A=2"], None),
            (&["_=/x"], &[], Some("export _='/x'")),
        ];
        for (given, passed_on, expected) in rows {
            let octets =
                |texts: &[&'static str]| -> Vec<&[u8]> { texts.iter().map(|text| text.as_bytes()).collect() };
            assert_eq!(changes(&octets(given), &octets(passed_on)).as_deref(), expected, "{given:?}");
        }
    }

    #[test]
    fn reasons_are_read_from_what_runtimes_say() {
        let rows = [
            (
                r#"{"status":"Failure","message":"... exec: \"sh\": executable file not found in $PATH: unknown"}"#,
                WhySync::NoShell,
            ),
            (
                r#"{"status":"Failure","message":"exec failed: ... stat sh: no such file or directory"}"#,
                WhySync::NoShell,
            ),
            (r#"{"status":"Failure","reason":"NonZeroExitCode"}"#, WhySync::Shell),
            (r#"{"metadata":{},"status":"Success"}"#, WhySync::Shell),
            (r#"{"status":"Failure","message":"cannot exec in a paused container"}"#, WhySync::Ended),
        ];
        for (status, why) in rows {
            assert_eq!(not_started(status.as_bytes()), why, "{status}");
        }
    }
}
