//! The only place that knows all stages: creates the tokio runtime, starts the stages, waits for a signal, and stops
//! them.

mod attempt_log;
mod bindings;
mod daemon;
mod demo;
mod errors;
mod event_log;
mod images;
mod informing;
mod log_share;
mod logging;
mod manifests;
mod outages;
mod passing;
mod planning;
mod probing;
mod recording;
mod records;
mod registration;
mod reload;
mod settings;
mod source;
mod state;
mod trace_log;

use std::{
    env,
    fmt::Display,
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{SignalKind, signal},
    sync::Notify,
};

pub use self::demo::demo;
use self::errors::describe_error;
use self::{
    bindings::StartError,
    daemon::{DRAINING, Daemon},
    reload::Reloading,
    source::ConfigSource,
};
use crate::{
    cli::{Exit, ServeArgs},
    clock,
    config::{Loaded, Overrides, key::Key, unknown_variables},
    faults,
    manager::{self, Notice, Passed, Sorted},
    relay::descriptors,
};

/// 1 s: how long blocking calls without a waiter, mostly to a disk that hangs, may delay the end.
const LEFT_OVER: Duration = Duration::from_secs(1);

/// 500 ms: how long the end waits for the last lines of the log to be read.
const LAST_LINES: Duration = Duration::from_millis(500);

/// 50 ms: the same where clients wait for the next process, which waits for this one's end.
const LAST_LINES_OF_HANDOVER: Duration = Duration::from_millis(50);

/// `criprobe serve`: runs the daemon until SIGTERM or SIGINT, or until a part of it fails that the rest cannot do
/// without: then it drains and fails, so that the service manager restarts it.
pub fn serve(args: ServeArgs) -> Exit {
    let began = clock::now();
    // First: the numbers of these descriptors may belong to other files later.
    let mut passed = Passed::take();
    let handovers = passed.take_handovers();
    let is_by_flag = args.listen.is_some() || args.runtime.is_some();
    let overrides = Overrides::from_environment(|name| env::var(name).ok())
        .flag(Key::Listen, args.listen)
        .flag(Key::Runtime, args.runtime)
        .flag(Key::ApiListen, args.api)
        .flag(Key::ApiHttp, args.http)
        .flag(Key::LogFormat, args.log_format)
        .flag(Key::LogLevel, args.log_level);
    let source = ConfigSource::new(args.config, overrides);
    let loaded = match source.load() {
        Ok(loaded) => loaded,
        Err(errors) => {
            let exit = if errors.are_usage() { Exit::Usage } else { Exit::Configuration };
            return errors.iter().fold(exit, Exit::because);
        }
    };
    let threshold = match logging::start(&loaded.config.log) {
        Ok(threshold) => threshold,
        Err(error) => return Exit::Failed.because(&format!("cannot start the log: {error}")),
    };
    for note in &loaded.notes {
        tracing::warn!(note, "configuration files need attention");
    }
    let names = env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    for note in unknown_variables(names) {
        tracing::warn!(note, "an environment variable is ignored");
    }
    let passed = passed.sort(&loaded.config.listen);
    for note in &passed.notes {
        tracing::error!(note, "what the service manager passed does not fit");
    }
    let reloading = Reloading { source, threshold, requests: Arc::default() };
    let ran = background().and_then(|runtime| {
        let ran = runtime.block_on(run(loaded, reloading, passed, handovers, began));
        match ran {
            // The next process waits for this one's end.
            Ok(End::HandedOver) => runtime.shutdown_background(),
            _ => runtime.shutdown_timeout(LEFT_OVER),
        }
        ran
    });
    let exit = match &ran {
        Ok(_) => Exit::Fine,
        Err(error) if is_runtime_itself(error) && is_by_flag => Exit::Usage,
        Err(error) if is_runtime_itself(error) => Exit::Configuration,
        Err(_) => Exit::Failed,
    };
    let limit = if matches!(ran, Ok(End::HandedOver)) { LAST_LINES_OF_HANDOVER } else { LAST_LINES };
    let failure = ran.err().map(|error| describe_error(&error));
    logging::end(failure.as_ref().map(|failure| failure as &dyn Display), limit);
    exit
}

/// Two names for one file: only binding finds out, but it is the same mistake as two equal names.
fn is_runtime_itself(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(StartError::is_runtime_itself)
}

/// How a daemon ended that was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Its connections are over.
    Drained,
    /// Its connections are kept for the next process.
    HandedOver,
}

async fn run(
    loaded: Loaded,
    reloading: Reloading,
    passed: Sorted,
    handovers: Vec<OwnedFd>,
    began: Instant,
) -> anyhow::Result<End> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let mut hangup = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    let requests: Arc<Notify> = reloading.requests.clone();
    let mut replace = signal(SignalKind::user_defined1()).context("cannot listen for SIGUSR1")?;
    for name in passed.strangers {
        manager::send(vec![Notice::Useless(name)]).await;
    }
    let is_next = !handovers.is_empty();
    faults::point("takeover-begun").await;
    // Should this fail before it has taken anything over, the manager still has all of it for another process.
    let mut daemon = Daemon::start(loaded, Some(reloading), passed.socket, handovers, began)?;
    faults::point("takeover-done").await;
    let taken_over = is_next.then_some(Notice::TakenOver);
    manager::send(taken_over.into_iter().chain([Notice::Ready]).collect()).await;
    let name = loop {
        tokio::select! {
            _ = terminate.recv() => break "SIGTERM",
            _ = interrupt.recv() => break "SIGINT",
            _ = replace.recv() => {
                tracing::info!(signal = "SIGUSR1", "handing connections over to the next process");
                manager::send(vec![Notice::status("handing connections over to the next process")]).await;
                return Ok(daemon.hand_over().await);
            }
            _ = hangup.recv() => {
                tracing::info!(signal = "SIGHUP", "reloading the configuration");
                requests.notify_one();
            }
            ended = daemon.failed() => {
                tracing::error!(error = %ended, "draining, so that the service manager can restart criprobe");
                manager::send(vec![Notice::Stopping, Notice::status(&format!("draining: {ended}"))]).await;
                daemon.drain().await;
                return Err(ended.into());
            }
        }
    };
    tracing::info!(signal = name, "draining");
    manager::send(vec![Notice::Stopping, Notice::status(DRAINING)]).await;
    daemon.drain().await;
    Ok(End::Drained)
}

/// 2: the threads of everything but the relay, so that a list of a thousand containers holds up no probe.
const BACKGROUND_THREADS: usize = 2;

/// The threads of everything but the relay, which has its own. As many descriptors as the process may have are there
/// from now on.
fn background() -> anyhow::Result<Runtime> {
    descriptors::raise_limit();
    Builder::new_multi_thread()
        .worker_threads(BACKGROUND_THREADS)
        .thread_name("background")
        .enable_all()
        .build()
        .context("cannot start threads")
}
