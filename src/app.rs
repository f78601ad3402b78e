//! The one place that knows all stages: makes the runtime that they run on, starts them, waits for a signal, ends
//! them.

mod daemon;
mod demo;
mod logging;
mod reporter;
mod tasks;

use std::{env, thread};

use anyhow::Context;
use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{SignalKind, signal},
};

pub use self::{
    daemon::{Daemon, StartError},
    demo::demo,
    tasks::TaskEnded,
};
use crate::{
    cli::{Exit, ServeArgs},
    config::{self, Config, Overrides, key::Key},
};

/// `criprobe serve`: runs the daemon until SIGTERM or SIGINT, or until a part of it fails that the rest cannot do
/// without: then it drains and fails, so that the service manager starts it anew.
pub fn serve(args: ServeArgs) -> Exit {
    let file = args.config.clone();
    let overrides = Overrides::from_environment(|name| env::var(name).ok())
        .flag(Key::Listen, args.listen)
        .flag(Key::Runtime, args.runtime)
        .flag(Key::ApiListen, args.api)
        .flag(Key::LogFormat, args.log_format)
        .flag(Key::LogLevel, args.log_level);
    let config = match config::load(file.as_deref(), &overrides) {
        Ok(config) => config,
        Err(errors) => {
            let exit = if errors.are_usage() { Exit::Usage } else { Exit::Configuration };
            return errors.iter().fold(exit, Exit::because);
        }
    };
    logging::start(&config.log);
    let files = config::files(file.as_deref());
    match background().and_then(|runtime| runtime.block_on(run(config, files))) {
        Ok(()) => Exit::Fine,
        Err(error) => Exit::Failed.because(&format!("{error:#}")),
    }
}

async fn run(config: Config, files: Vec<String>) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let mut daemon = Daemon::start(config, files)?;
    let name = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
        ended = daemon.failed() => {
            tracing::error!(error = %ended, "a part of the daemon is gone: draining, to be started anew");
            daemon.drain().await;
            return Err(ended.into());
        }
    };
    tracing::info!(signal = name, "draining");
    daemon.drain().await;
    Ok(())
}

/// The threads of everything but the relay, which has its own.
fn background() -> anyhow::Result<Runtime> {
    let threads = thread::available_parallelism().map_or(1, |cores| cores.get() / 2).clamp(1, 2);
    Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("background")
        .enable_all()
        .build()
        .context("cannot start threads")
}
