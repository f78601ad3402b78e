//! `criprobe demo`: a daemon before the embedded runtime or a given one, a few pods made through its socket, and a
//! look at what it sees. Leaves nothing behind.

mod client;
mod show;

use std::{
    env, fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process,
    time::Duration,
};

use anyhow::{Context, anyhow};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{sleep, timeout},
};

use super::{Daemon, background, logging};
use crate::{
    cli::{DemoArgs, Exit},
    config::{
        Config, LogConfig, LogFormat, LogLevel, Overrides, key::Key, raw::Raw, resolve::resolve, socket,
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
    logging::start(&LogConfig { format: LogFormat::Text, level: LogLevel::Error });
    let ran = background().and_then(|threads| {
        let ran = threads.block_on(run(runtime, args.dir, args.duration));
        threads.shutdown_timeout(Duration::from_secs(1));
        ran
    });
    match ran {
        Ok(()) => Exit::Fine,
        Err(error) => Exit::Failed.because(&format!("{error:#}")),
    }
}

async fn run(runtime: Option<PathBuf>, dir: Option<PathBuf>, limit: Option<Duration>) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let folder = Folder::make(dir)?;
    let embedded = match runtime {
        Some(_) => None,
        None => {
            let options = Options::new(folder.path.join("runtime.sock"), folder.path.join("containers"));
            Some(EmbeddedRuntime::start(options).context("cannot start the embedded runtime")?)
        }
    };
    let runtime = runtime.unwrap_or_else(|| folder.path.join("runtime.sock"));
    let config = config(&folder.path, &runtime)?;
    let mut daemon = Daemon::start(config.clone(), Vec::new())?;

    let shown = async {
        let stage = set_up(&config, embedded.is_some()).await?;
        let show = show::Show {
            sources: daemon.sources().clone(),
            config: &config,
            is_embedded: embedded.is_some(),
            limit,
        };
        tokio::select! {
            shown = show.run() => shown?,
            () = stage.act() => {}
            () = async { sleep(limit.unwrap_or_default()).await }, if limit.is_some() => {}
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            ended = daemon.failed() => return stage.clear().await.and(Err(ended.into())),
        }
        stage.clear().await
    }
    .await;
    daemon.drain().await;
    if let Some(embedded) = embedded {
        embedded.shutdown().await;
    }
    shown
}

/// Makes the pods through the relay's own socket, as any client would.
async fn set_up(config: &Config, is_embedded: bool) -> anyhow::Result<client::Stage> {
    let channel = runtime::channel(config.listen.clone());
    let image = timeout(START, client::image(channel.clone(), is_embedded))
        .await
        .map_err(|_| anyhow!("the runtime at {} does not answer", config.runtime.display()))??;
    let run_id = process::id().to_string();
    let pods =
        pods::create_pods(channel.clone(), &image, &run_id).await.context("cannot make the demo's pods")?;
    Ok(client::Stage::new(channel, pods))
}

/// A daemon with all its sockets in one folder.
fn config(folder: &Path, runtime: &Path) -> anyhow::Result<Config> {
    let url = |path: &Path| Some(path.display().to_string());
    let overrides = Overrides::default()
        .flag(Key::Listen, url(&folder.join("criprobe.sock")))
        .flag(Key::ApiListen, url(&folder.join("api.sock")))
        .flag(Key::State, url(&folder.join("state")))
        .flag(Key::Runtime, url(runtime));
    resolve(Raw::default(), &overrides).map_err(|errors| anyhow!("cannot use {}: {errors}", folder.display()))
}

/// A folder for the demo; removed at the end if we made it.
struct Folder {
    path: PathBuf,
    is_ours: bool,
}

impl Folder {
    fn make(dir: Option<PathBuf>) -> anyhow::Result<Self> {
        let path = dir.unwrap_or_else(|| env::temp_dir().join(format!("criprobe-demo-{}", process::id())));
        let path = std::path::absolute(&path)?;
        let is_ours = !path.exists();
        fs::DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(&path)
            .with_context(|| format!("cannot make the folder {}", path.display()))?;
        Ok(Self { path, is_ours })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_ours
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            tracing::error!(%error, path = %self.path.display(), "cannot remove the demo's folder");
        }
    }
}
