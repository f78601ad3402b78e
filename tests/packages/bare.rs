//! A node with a real systemd, in front of a real containerd, on which criprobe is not installed yet.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use criprobe::{ids::ContainerId, proto::cri as pb};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::interval,
};

use crate::support::{
    PATIENCE,
    containerd::Lab,
    cri::{self, Cri},
    eventually,
    node::{Node, SERVICE},
};

/// The unit of the clients' socket.
pub(crate) const SOCKET: &str = "criprobe.socket";

/// The configuration of a kubelet that uses the runtime directly.
const KUBELET: (&str, &str) = (
    "/var/lib/kubelet/config.yaml",
    "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n",
);

/// That of crictl.
const CRICTL: (&str, &str) =
    ("/etc/crictl.yaml", "runtime-endpoint: unix:///run/containerd/containerd.sock\n");

/// Boots one, with a kubelet's and crictl's settings. `None` where this machine cannot run it.
pub(crate) fn node() -> Result<Option<Node>> {
    let Some(lab) = Lab::shared()? else { return Ok(None) };
    let Some(node) = Node::boot(lab)? else { return Ok(None) };
    // What `Node` installs by hand, what an earlier criprobe of this machine may have left, and a policy that some images
    // have, by which packages start and stop nothing.
    let by_hand = "rm -rf /usr/bin/criprobe /etc/systemd/system/criprobe.* /etc/criprobe /var/l*/criprobe /usr/sbin/policy-rc.d";
    node.run(&["sh", "-c", &format!("{by_hand}; systemctl daemon-reload")])?;
    settings_of_clients(&node, "containerd/containerd.sock")?;
    Ok(Some(node))
}

/// Points the kubelet and crictl at a socket below `/run`.
pub(crate) fn settings_of_clients(node: &Node, socket: &str) -> Result<()> {
    for (path, text) in [KUBELET, CRICTL] {
        let file = node.file(path);
        fs::create_dir_all(file.parent().context("a file is in a folder")?)?;
        fs::write(file, text.replace("containerd/containerd.sock", socket))?;
    }
    Ok(())
}

/// Fails if the settings are not those that [`node`] wrote.
pub(crate) fn settings_are_untouched(node: &Node) -> Result<()> {
    for (path, text) in [KUBELET, CRICTL] {
        ensure!(fs::read_to_string(node.file(path))? == text, "{path} has changed");
    }
    Ok(())
}

/// Copies a package to the node, and returns its path there.
pub(crate) fn copy(node: &Node, package: &Path) -> Result<String> {
    let name = package.file_name().context("a package has a name")?.to_string_lossy();
    let path = format!("/root/{name}");
    fs::copy(package, node.file(&path))?;
    Ok(path)
}

/// What of criprobe is on the node, apart from what systemd and journald keep by themselves.
pub(crate) fn leftovers(node: &Node) -> Result<String> {
    node.run(&[
        "sh",
        "-c",
        "find /etc /usr /var /run /opt -xdev \\( -path /run/systemd -o -path /run/log -o -path /var/log/journal \\) -prune \
         -o -name '*criprobe*' -print | sort",
    ])
}

/// Fails if a unit is enabled or active.
pub(crate) fn nothing_is_started(node: &Node) -> Result<()> {
    for unit in [SERVICE, SOCKET] {
        assert_eq!(node.property(unit, "ActiveState")?, "inactive", "{unit}");
        assert_eq!(node.property(unit, "UnitFileState")?, "disabled", "{unit}");
    }
    Ok(())
}

/// The process of the service, and the file of the socket.
pub(crate) fn process_and_socket(node: &Node) -> Result<(String, u64)> {
    Ok((node.property(SERVICE, "MainPID")?, fs::metadata(node.socket())?.ino()))
}

/// Clients that no upgrade may disturb: new connections one after the other, calls on one that stays open, and a call that
/// is in flight all the time.
pub(crate) struct Clients {
    is_over: Arc<AtomicBool>,
    callers: JoinSet<Result<usize>>,
    /// Its connection is silent until the end.
    idle: Cri,
    container: ContainerId,
    in_flight: JoinHandle<Result<pb::ExecSyncResponse>>,
}

impl Clients {
    /// Begins, with a pod of this name.
    pub(crate) async fn start(node: &Node, pod: &str) -> Result<Self> {
        let mut idle = node.client_that_is_answered().await?;
        let pod = cri::run_pod(&mut idle, pod, &[]).await?;
        let container = cri::run_container(&mut idle, &pod, &cri::Container::IDLE).await?;
        let in_flight = tokio::spawn(exec_until_told(node.client().await?, container.clone()));
        eventually("the call is in flight", PATIENCE, async || {
            let begun = cri::exec(&mut idle, &container, &["test", "-e", "/tmp/begun"]).await?;
            Ok((begun.exit_code == 0).then_some(()))
        })
        .await?;
        let is_over = Arc::new(AtomicBool::new(false));
        let mut callers = JoinSet::new();
        for stays in [true, false] {
            callers.spawn(call(node.socket(), stays, is_over.clone()));
        }
        Ok(Self { is_over, callers, idle, container, in_flight })
    }

    /// Ends them.
    ///
    /// # Errors
    /// A call was not answered, or a caller made none.
    pub(crate) async fn end(mut self) -> Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        for calls in self.callers.join_all().await {
            ensure!(calls? > 0, "no call");
        }
        ensure!(!self.in_flight.is_finished(), "the call was not in flight");
        cri::exec(&mut self.idle, &self.container, &["touch", "/tmp/end"]).await?;
        let answer = self.in_flight.await??;
        ensure!(answer.exit_code == 0 && answer.stdout == b"done\n", "{answer:?}");
        Ok(())
    }
}

/// Calls Version again and again, on one connection or each time on a new one, and returns how often.
async fn call(socket: PathBuf, stays: bool, is_over: Arc<AtomicBool>) -> Result<usize> {
    let mut client = cri::connect(&socket).await?;
    let mut calls = 0;
    let mut due = interval(Duration::from_millis(5));
    while !is_over.load(Ordering::Relaxed) {
        due.tick().await;
        cri::version(&mut client).await?;
        calls += 1;
        if !stays {
            client = cri::connect(&socket).await?;
        }
    }
    Ok(calls)
}

/// A command that ends when a file appears.
async fn exec_until_told(mut client: Cri, container: ContainerId) -> Result<pb::ExecSyncResponse> {
    let line = "touch /tmp/begun; until test -e /tmp/end; do sleep 0.05; done; echo done";
    let request = pb::ExecSyncRequest {
        container_id: container.to_string(),
        cmd: ["sh", "-c", line].map(str::to_owned).into(),
        timeout: 120,
    };
    Ok(client.exec_sync(request).await?.into_inner())
}
