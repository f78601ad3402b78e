//! `criprobe demo`: a daemon in front of the embedded runtime or a given one, a few pods created through its socket,
//! and a display of what it sees. Removes everything at the end.

mod client;
mod folder;
mod show;

use std::{
    fmt::Display,
    io,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process,
    time::Duration,
};

use anyhow::{Context, anyhow};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{sleep, timeout},
};

use self::folder::{Folder, FolderError};
use super::{
    Daemon, LAST_LINES, background,
    errors::{describe_error, is_reader_gone},
    logging,
};
use crate::{
    cli::{DemoArgs, Exit, progress::Progress},
    clock,
    config::{
        Config, Loaded, LogConfig, LogFormat, LogLevel, Overrides, key::Key, raw::Raw, resolve::resolve,
        socket,
    },
    demo::{EmbeddedRuntime, Options, pods},
    runtime,
};

/// 10 s: how long the runtime may take to answer for the first time.
const START: Duration = Duration::from_secs(10);

/// Runs the demo until Ctrl-C, or for as long as it was asked to.
pub fn demo(args: DemoArgs) -> Exit {
    let runtime = match args.runtime.as_deref().map(socket::parse).transpose() {
        Ok(runtime) => runtime,
        Err(error) => return Exit::Usage.because(&format!("--runtime: {error}")),
    };
    if let Err(error) = logging::start(&LogConfig { format: LogFormat::Text, level: LogLevel::Error }) {
        return Exit::Failed.because(&format!("cannot start the log: {error}"));
    }
    let ran = background().and_then(|threads| {
        let ran = threads.block_on(run(runtime, args.dir, args.duration));
        threads.shutdown_timeout(Duration::from_secs(1));
        ran
    });
    let (exit, failure) = match ran {
        Ok(()) => (Exit::Fine, None),
        // As with every verb: a reader that has left is no error.
        Err(error) if is_reader_gone(&error) => (Exit::Fine, None),
        Err(error) if error.downcast_ref().is_some_and(FolderError::is_usage) => {
            (Exit::Usage, Some(error.to_string()))
        }
        Err(error) => (Exit::Failed, Some(describe_error(&error))),
    };
    logging::end(failure.as_ref().map(|failure| failure as &dyn Display), LAST_LINES);
    exit
}

async fn run(runtime: Option<PathBuf>, dir: Option<PathBuf>, limit: Option<Duration>) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let mut hangup = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    if let Some(runtime) = &runtime {
        UnixStream::connect(runtime).map_err(|error| no_runtime(runtime, error))?;
    }
    let folder = Folder::make(dir)?;
    let embedded = match runtime {
        Some(_) => None,
        None => {
            let options = Options {
                poses_as_containerd: true,
                ..Options::new(folder.path.join("runtime.sock"), folder.path.join("containers"))
            };
            Some(EmbeddedRuntime::start(options).context("cannot start the embedded runtime")?)
        }
    };
    let runtime = runtime.unwrap_or_else(|| folder.path.join("runtime.sock"));
    let run_id = process::id().to_string();
    let loaded = loaded(&folder, &runtime, &run_id)?;
    let config = loaded.config.clone();
    let mut daemon = Daemon::start(loaded, None, None, Vec::new(), clock::now())?;

    let shown = async {
        let progress = Progress::start("starting the demo's pods");
        let stage = set_up(&config, embedded.is_some(), &run_id).await?;
        drop(progress);
        let show = show::Show {
            sources: daemon.sources().clone(),
            config: &config,
            is_embedded: embedded.is_some(),
            pods: stage.pods(),
            limit,
        };
        let shown = tokio::select! {
            shown = show.run() => shown,
            () = stage.act() => Ok(()),
            () = async { sleep(limit.unwrap_or_default()).await }, if limit.is_some() => Ok(()),
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
            _ = hangup.recv() => Ok(()),
            ended = daemon.failed() => Err(ended.into()),
        };
        let cleared = stage.clear().await;
        shown.and(cleared)
    }
    .await;
    daemon.drain().await;
    if let Some(embedded) = embedded {
        embedded.shutdown().await;
    }
    shown
}

/// Why a runtime that was named is not there, and what to do.
fn no_runtime(runtime: &Path, error: io::Error) -> anyhow::Error {
    let path = runtime.display();
    match error.kind() {
        io::ErrorKind::NotFound => {
            anyhow!("the socket {path} does not exist: start the runtime, or name another socket")
        }
        io::ErrorKind::ConnectionRefused => {
            anyhow!("no process listens on {path}: start the runtime, or name another socket")
        }
        _ => anyhow::Error::from(error).context(format!("cannot reach the runtime at {path}")),
    }
}

/// Makes the pods through the relay's own socket, as any client would.
async fn set_up(config: &Config, is_embedded: bool, run_id: &str) -> anyhow::Result<client::Stage> {
    let channel = runtime::channel(config.listen.clone());
    let image = timeout(START, client::image(channel.clone(), is_embedded))
        .await
        .map_err(|_| anyhow!("the runtime at {} does not answer", config.runtime.display()))??;
    let pods =
        pods::create_pods(channel.clone(), &image, run_id).await.context("cannot create the demo's pods")?;
    Ok(client::Stage::new(channel, pods))
}

/// The configuration of a daemon with its sockets and its state in one folder, which acts on one of the demo's pods and
/// on nothing else.
fn loaded(folder: &Folder, runtime: &Path, run_id: &str) -> anyhow::Result<Loaded> {
    let url = |path: &Path| Some(path.display().to_string());
    let overrides = Overrides::default()
        .flag(Key::Listen, url(&folder.path.join("criprobe.sock")))
        .flag(Key::ApiListen, url(&folder.path.join("api.sock")))
        .flag(Key::Runtime, url(runtime))
        .flag(Key::State, url(&folder.state))
        .flag(Key::ActEnabled, Some("true".to_owned()));
    let rules = Raw::read(&pods::configuration(run_id), Path::new("demo"));
    resolve(&[rules], &overrides, &|_| Ok(None))
        .map_err(|errors| anyhow!("cannot use {}: {errors}", folder.path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demo_keeps_all_in_its_folder_and_acts_by_its_own_rule_only() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::make(Some(dir.path().into())).unwrap();
        let Loaded { config, settings, .. } = loaded(&folder, Path::new("/run/rt.sock"), "7").unwrap();
        assert!(config.state.is_some_and(|state| state.starts_with(dir.path())));
        assert!(config.policy.acting.is_enabled && config.policy.acting.namespaces.is_empty());
        assert_eq!(config.policy.rules.len(), 1);
        let url = |name: &str| format!("unix://{}", dir.path().join(name).display());
        for (key, url) in [
            (Key::Listen, url("criprobe.sock")),
            (Key::ApiListen, url("api.sock")),
            (Key::Runtime, "unix:///run/rt.sock".to_owned()),
        ] {
            let setting = settings.iter().find(|setting| setting.key == key).unwrap();
            assert_eq!(setting.texts.concat(), url);
        }
    }
}
