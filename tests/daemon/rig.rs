//! What each of these tests runs in: a runtime that can be broken at will, and the binary in front of it.

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use criprobe::{
    demo::{EmbeddedRuntime, EnvValues, FaultKind, Faults, InjectedFault, Options},
    ids::ContainerId,
};
use tempfile::TempDir;

use crate::support::{
    PATIENCE,
    cri::{self, Container, Cri, Pod},
    daemon::{Daemon, exec_mode},
};

pub(crate) const LIVENESS: &str = "liveness.criprobe.dev/app";
pub(crate) const READINESS: &str = "readiness.criprobe.dev/app";
pub(crate) const STARTUP: &str = "startup.criprobe.dev/app";

/// A probe that passes at once and then rests for longer than any test: what it shows later, it was told.
pub(crate) const LAZY: &str = r#"{"exec": {"command": ["true"]}, "periodSeconds": 300}"#;

/// A probe that passes, often.
pub(crate) const EAGER: &str = r#"{"exec": {"command": ["true"]}, "period": "100ms", "failureThreshold": 1}"#;

/// A command that runs until a file `go` comes to be, and then exits with 3.
pub(crate) const UNTIL_GO: [&str; 3] = ["sh", "-c", "until [ -e go ]; do sleep 0.02; done; exit 3"];

/// How soon what happens past the relay has to show, where the runtime has events.
pub(crate) const SOON: Duration = Duration::from_secs(1);

/// A runtime and a daemon in front of it, with a client of each.
pub(crate) struct Rig {
    pub(crate) daemon: Daemon,
    pub(crate) runtime: EmbeddedRuntime,
    /// Through the relay.
    pub(crate) client: Cri,
    /// Past the relay, on the runtime's own socket.
    pub(crate) past: Cri,
    /// How the daemon runs commands of exec probes, also after a restart.
    pub(crate) exec_mode: String,
    /// After the runtime, whose folders lie in it.
    _dir: TempDir,
}

/// Starts a runtime in a folder of its own.
pub(crate) fn runtime(env_values: EnvValues) -> Result<(EmbeddedRuntime, TempDir)> {
    let dir = tempfile::Builder::new().prefix("criprobe-rt-").tempdir()?;
    let options = Options { env_values, ..Options::new(dir.path().join("rt.sock"), dir.path().join("rt")) };
    Ok((EmbeddedRuntime::start(options)?, dir))
}

impl Rig {
    pub(crate) async fn start() -> Result<Self> {
        Self::with(&[]).await
    }

    /// With commands of exec probes run so.
    pub(crate) async fn in_mode(mode: &str) -> Result<Self> {
        // A test that fails shows it.
        println!("execMode: {mode}");
        Self::with(&[exec_mode(mode)]).await
    }

    /// With these variables in the daemon's environment.
    pub(crate) async fn with(settings: &[(&str, &str)]) -> Result<Self> {
        let (runtime, dir) = runtime(EnvValues::default())?;
        Self::before(runtime, dir, settings).await
    }

    /// With a runtime that runs already.
    pub(crate) async fn before(
        runtime: EmbeddedRuntime,
        dir: TempDir,
        settings: &[(&str, &str)],
    ) -> Result<Self> {
        let mut daemon = Daemon::spawn(runtime.socket(), settings)?;
        daemon.ready().await?;
        let (client, past) = (daemon.client().await?, cri::connect(runtime.socket()).await?);
        let asked = settings.iter().find(|(name, _)| *name == exec_mode("").0);
        let exec_mode = asked.map_or("sync", |(_, mode)| mode).to_owned();
        Ok(Self { daemon, runtime, client, past, exec_mode, _dir: dir })
    }

    pub(crate) fn faults(&self) -> Faults {
        self.runtime.faults()
    }

    /// Makes all calls of a method fail in some way from now on.
    pub(crate) fn always(&self, method: &str, kind: FaultKind) {
        self.faults().add(InjectedFault::always(method, kind));
    }

    pub(crate) fn once(&self, method: &str, kind: FaultKind) {
        self.faults().add(InjectedFault::once(method, kind));
    }

    /// A running container `app` in a pod of this name, made through the relay.
    pub(crate) async fn run(
        &mut self,
        pod: &str,
        annotations: &[(&str, &str)],
        command: &[&str],
    ) -> Result<(Pod, ContainerId)> {
        run(&mut self.client, pod, annotations, command).await
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.daemon.socket()
    }

    /// Waits until a probe is as wanted.
    pub(crate) async fn becomes(
        &self,
        pod: &Pod,
        kind: &str,
        what: &str,
        is_wanted: impl Fn(&serde_json::Value) -> bool,
    ) -> Result<serde_json::Value> {
        self.daemon.probe_becomes((pod, "app", kind), what, PATIENCE, is_wanted).await
    }

    /// Waits until a probe's last attempt ended so.
    pub(crate) async fn last(&self, pod: &Pod, kind: &str, result: &str) -> Result<serde_json::Value> {
        self.becomes(pod, kind, &format!("ends with {result}"), |probe| probe["last"]["result"] == result)
            .await
    }

    /// Waits until the command of a probe's last attempt went so.
    pub(crate) async fn went_by(&self, pod: &Pod, kind: &str, mode: &str) -> Result<serde_json::Value> {
        self.becomes(pod, kind, &format!("goes by {mode}"), |probe| probe["last"]["execRoute"] == mode).await
    }

    /// Waits until the inventory counts as many containers.
    pub(crate) async fn counts(&self, containers: u64, within: Duration) -> Result<()> {
        crate::support::eventually(&format!("{containers} containers are known"), within, async || {
            Ok((self.daemon.status().await?["inventory"]["containers"] == containers).then_some(()))
        })
        .await
    }
}

/// A running container `app` in a pod of this name.
pub(crate) async fn run(
    client: &mut Cri,
    pod: &str,
    annotations: &[(&str, &str)],
    command: &[&str],
) -> Result<(Pod, ContainerId)> {
    let pod = cri::run_pod(client, pod, annotations).await?;
    let id = cri::run_container(client, &pod, &Container { command, ..Container::IDLE }).await?;
    Ok((pod, id))
}

/// Starts a call and gives it up after so long.
pub(crate) async fn give_up<T>(call: impl Future<Output = T>, after: Duration) -> bool {
    tokio::select! {
        biased;
        _ = call => false,
        () = tokio::time::sleep(after) => true,
    }
}
