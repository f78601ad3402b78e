//! A private, real containerd (`tests/lab/containerd.sh`) with idle containers, in a cgroup of its own. Ends with this bench,
//! however that ends.

use std::{
    fs,
    path::{Path, PathBuf},
    process,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use criprobe::{clock, ids::ContainerId, proto::cri as pb};
use tokio::{runtime::Runtime as Threads, task::JoinSet, time::sleep};

use crate::{
    accounts::{Accounts, Cgroup, of_container},
    cri::{self, Container, Cri, Pod},
    lab::{script, text},
    process::when_interrupted,
};

const SCRIPT: &str = "containerd.sh";

/// 20 s: containerd's CRI service answers by then.
const PATIENCE: Duration = Duration::from_secs(20);

/// 4 pods are made or removed at a time: two cores are busy with as many.
const AT_A_TIME: usize = 4;

/// The rig at work.
pub(crate) struct Rig {
    dir: PathBuf,
    threads: Threads,
    client: Cri,
    service: Cgroup,
    /// containerd's process.
    daemon: u32,
}

/// Pods whose containers do nothing.
pub(crate) struct Pods {
    pods: Vec<Pod>,
    /// Where the processes of each container are counted.
    pub(crate) cgroups: Vec<PathBuf>,
}

impl Rig {
    /// Starts containerd.
    pub(crate) fn start() -> Result<Self> {
        script(SCRIPT, &["check"])?;
        let dir = tempfile::Builder::new().prefix("criprobe-exec-").tempdir()?.keep();
        when_interrupted({
            let dir = dir.clone();
            // The script does it again when this process has ended.
            move || drop(text(&dir).and_then(|dir| script(SCRIPT, &["down", dir])))
        });
        let service = Cgroup::make("service")?;
        script(SCRIPT, &["up", text(&dir)?, &process::id().to_string()])?;
        let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (daemon, client) = threads.block_on(joined(&dir, &service))?;
        Ok(Self { dir, threads, client, service, daemon })
    }

    /// Starts containerd again, which then knows the runtime handler `crun`.
    pub(crate) fn add_crun(&mut self) -> Result<()> {
        script(SCRIPT, &["crun", text(&self.dir)?])?;
        (self.daemon, self.client) = self.threads.block_on(joined(&self.dir, &self.service))?;
        Ok(())
    }

    /// Where containerd listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join("containerd.sock")
    }

    /// The accounts of containerd, these containers, and a daemon.
    pub(crate) fn accounts<'a>(&'a self, pods: &'a Pods, criprobe: Option<&'a Cgroup>) -> Accounts<'a> {
        Accounts { service: &self.service, daemon: self.daemon, containers: &pods.cgroups, criprobe }
    }

    /// Runs pods `exec-0`, `exec-1`, ... with containers `app-0`, `app-1`, ... each, with a runtime handler.
    pub(crate) fn run_pods(&self, handler: &'static str, pods: usize, containers: usize) -> Result<Pods> {
        let made = self.each(0..pods, move |mut client, number| async move {
            let pod = run_pod(&mut client, number, handler).await?;
            let mut ids = Vec::with_capacity(containers);
            for number in 0..containers {
                let name = format!("app-{number}");
                let container = Container { name: &name, ..Container::IDLE };
                ids.push(cri::run_container(&mut client, &pod, &container).await?);
            }
            Ok((pod, ids))
        })?;
        let (pods, ids): (Vec<Pod>, Vec<Vec<ContainerId>>) = made.into_iter().unzip();
        let cgroups = ids.iter().flatten().map(of_container).collect::<Result<Vec<_>>>()?;
        let lost = cgroups.iter().find(|cgroup| !cgroup.exists());
        ensure!(lost.is_none(), "{lost:?} does not exist: the rig's containers are counted elsewhere");
        Ok(Pods { pods, cgroups })
    }

    /// Stops and removes pods.
    pub(crate) fn remove(&self, pods: Pods) -> Result<()> {
        let removed = self.each(pods.pods, |mut client, pod| async move {
            let pod_sandbox_id = pod.id.to_string();
            client
                .stop_pod_sandbox(pb::StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() })
                .await?;
            client.remove_pod_sandbox(pb::RemovePodSandboxRequest { pod_sandbox_id }).await?;
            Ok(())
        });
        removed.map(drop)
    }

    /// Does the same for each, some at a time.
    fn each<T: Send + 'static, U: Send + 'static, F>(
        &self,
        all: impl IntoIterator<Item = T>,
        work: impl Fn(Cri, T) -> F,
    ) -> Result<Vec<U>>
    where
        F: Future<Output = Result<U>> + Send + 'static,
    {
        self.threads.block_on(async {
            let (mut set, mut done) = (JoinSet::new(), Vec::new());
            for one in all {
                if set.len() == AT_A_TIME {
                    done.extend(set.join_next().await.transpose()?.transpose()?);
                }
                set.spawn(work(self.client.clone(), one));
            }
            while let Some(one) = set.join_next().await {
                done.push(one??);
            }
            Ok(done)
        })
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Err(error) = text(&self.dir).and_then(|dir| script(SCRIPT, &["down", dir])) {
            eprintln!("a rig is left in {}: {error:#}", self.dir.display());
        }
    }
}

/// Moves containerd into its cgroup; returns its pid, and a client as soon as its CRI service answers.
async fn joined(dir: &Path, service: &Cgroup) -> Result<(u32, Cri)> {
    let daemon = fs::read_to_string(dir.join("containerd.pid"))?.trim().parse()?;
    service.adopt(daemon)?;
    let mut client = cri::connect(&dir.join("containerd.sock")).await?;
    let deadline = clock::now() + PATIENCE;
    while let Err(error) = cri::version(&mut client).await {
        ensure!(clock::now() < deadline, "containerd's CRI service does not answer: {error:#}");
        sleep(Duration::from_millis(50)).await;
    }
    Ok((daemon, client))
}

async fn run_pod(client: &mut Cri, number: usize, handler: &str) -> Result<Pod> {
    let config = cri::pod_config(&format!("exec-{number}"), &[]);
    let request = pb::RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: handler.into() };
    let answer =
        client.run_pod_sandbox(request).await.with_context(|| format!("run a pod with {handler}"))?;
    Ok(Pod::of(&answer.into_inner().pod_sandbox_id, config))
}
