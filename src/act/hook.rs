//! Runs what a container is given before it is stopped: its preStop hook, and the command of its probe. By the prober's
//! handlers, under the same limits, one try each. Never stops anything.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::status::CommandReport;
use crate::{
    clock,
    duration::GoDuration,
    inventory::pod::Container,
    prober::attempt::Handlers,
    results::{AttemptResult, text::BoundedText},
    spec::{ExecMode, FailureCommand, Handler, ProbeSpec, hook::Hook},
};

/// Runs a hook, for so long at most.
///
/// # Errors
/// Why it failed, in words. The stop goes on without it.
pub(super) async fn run(
    hook: &Hook,
    handlers: &Handlers,
    view: &Container,
    within: Duration,
) -> Result<(), BoundedText> {
    let running = async {
        let spec = match hook {
            Hook::Nothing => return Ok(()),
            Hook::Sleep(time) => {
                sleep(*time).await;
                return Ok(());
            }
            Hook::Call(spec) => ProbeSpec { timeout: within, ..(**spec).clone() },
        };
        let outcome = handlers.try_once(&spec, view).await;
        match (outcome.result, outcome.exit_code, outcome.status) {
            (AttemptResult::Success | AttemptResult::Warning, _, _) => Ok(()),
            (_, Some(code), _) => {
                Err(BoundedText::of(format_args!("the command exited with {code}: {}", outcome.output)))
            }
            (_, None, Some(status)) => Err(BoundedText::of(format_args!("the answer has status {status}"))),
            (_, None, None) => Err(outcome.output),
        }
    };
    let late = |_| format!("it did not complete within {}, the grace period", GoDuration(within));
    timeout(within, running).await.map_err(late)?
}

/// Runs `onFailureCommand` of a probe. Its variables are expanded like those of an exec probe.
pub(super) async fn run_command(
    command: &FailureCommand,
    probe: &ProbeSpec,
    handlers: &Handlers,
    view: &Container,
) -> CommandReport {
    let began = clock::now();
    let spec = ProbeSpec {
        handler: Handler::Exec { command: command.command.clone() },
        timeout: command.timeout,
        is_literal: false,
        exec_mode: Some(ExecMode::Sync),
        ..probe.clone()
    };
    let (exit_code, output) = match timeout(command.timeout, handlers.try_once(&spec, view)).await {
        Ok(outcome) => (outcome.exit_code, outcome.output),
        Err(_) => (None, format!("it did not end within {}", GoDuration(command.timeout)).into()),
    };
    CommandReport { exit_code, output, took: clock::now() - began }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        handler::exec::tests::{Runtime, exec},
        ids::ProbeKind,
        inventory::fixtures,
        spec::{ExecModeSetting, definition, hook::read, policy::Limits},
    };

    fn container() -> Container {
        fixtures::container("c1", fixtures::pod())
    }

    async fn ran(runtime: Runtime, hook: &str) -> Result<(), String> {
        let handlers = Handlers { exec: exec(runtime).0, exec_mode: ExecModeSetting::Sync, node_ip: None };
        let hook = read(hook, &Limits::default()).unwrap();
        let view = container();
        run(&hook, &handlers, &view, Duration::from_secs(3)).await.map_err(|error| error.to_string())
    }

    fn exits(exit_code: i32) -> Runtime {
        Runtime::Answers { exit_code, stdout: "out", stderr: String::new() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_hook_runs_once_and_ends_with_its_time() {
        const EXEC: &str = r#"{"exec":{"command":["bye","$(NOW)"]}}"#;
        let late = Err("it did not complete within 3s, the grace period".to_owned());
        for (runtime, hook, ended) in [
            (exits(0), EXEC, Ok(())),
            (exits(3), EXEC, Err("the command exited with 3: out".to_owned())),
            (
                Runtime::Refuses(tonic::Code::Unknown),
                EXEC,
                Err("rpc error: code = Unknown desc = in its own words".to_owned()),
            ),
            (Runtime::Frozen, EXEC, late.clone()),
            (Runtime::Frozen, r#"{"sleep":{"seconds":2}}"#, Ok(())),
            (Runtime::Frozen, r#"{"sleep":{"seconds":9}}"#, late),
            (Runtime::Frozen, r#"{"tcpSocket":{"port":1}}"#, Ok(())),
        ] {
            assert_eq!(ran(runtime, hook).await, ended, "{hook}");
        }
        let (exec, asked) = exec(Runtime::Refuses(tonic::Code::Unknown));
        let handlers = Handlers { exec, exec_mode: ExecModeSetting::Sync, node_ip: None };
        let hook = read(EXEC, &Limits::default()).unwrap();
        run(&hook, &handlers, &container(), Duration::from_secs(3)).await.unwrap_err();
        assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hooks_command_is_literal() {
        // The words are printed, and the answer is a failure only if the runtime refuses it.
        let hook = r#"{"exec":{"command":["bye","$(NOW)","$$"]}}"#;
        let refused = ran(Runtime::NamesTheCommand, hook).await.unwrap_err();
        assert!(refused.contains("$(NOW)") && refused.contains("$$"), "{refused}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_is_reported_with_what_it_printed_or_why_it_did_not() {
        let command = FailureCommand { command: vec!["dump".to_owned()], timeout: Duration::from_secs(3) };
        let (probe, view) =
            (definition::read(ProbeKind::Liveness, "exec: {command: [check]}").unwrap(), container());
        for (runtime, exit_code, output) in [
            (exits(7), Some(7), "out"),
            (Runtime::TellsTheCommand, Some(0), "dump"),
            (Runtime::Frozen, None, "it did not end within 3s"),
        ] {
            let handlers =
                Handlers { exec: exec(runtime).0, exec_mode: ExecModeSetting::Sync, node_ip: None };
            let report = run_command(&command, &probe, &handlers, &view).await;
            assert_eq!((report.exit_code, &*report.output), (exit_code, output));
            assert_eq!(report.took >= command.timeout, exit_code.is_none());
        }
    }
}
