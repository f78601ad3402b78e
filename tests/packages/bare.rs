//! A node with a real systemd, in front of a real containerd, on which criprobe is not installed yet.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use anyhow::{Context as _, Result, ensure};

use crate::support::{
    containerd::Lab,
    cri,
    node::{Node, SERVICE},
};

/// The unit of the clients' socket.
pub(crate) const SOCKET: &str = "criprobe.socket";

/// The configuration of a kubelet that uses the runtime directly.
const KUBELET: (&str, &str) =
    ("/var/lib/kubelet/config.yaml", "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n");

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

/// Calls Version on a connection of its own, again and again until asked to end.
pub(crate) struct Caller {
    is_over: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<Result<()>>,
}

impl Caller {
    /// Begins.
    pub(crate) fn start(node: &Node) -> Self {
        let (is_over, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (ending, counter, socket) = (is_over.clone(), calls.clone(), node.socket());
        let task = tokio::spawn(async move {
            while !ending.load(Ordering::Relaxed) {
                let mut client = cri::connect(&socket).await?;
                cri::version(&mut client).await?;
                counter.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        Self { is_over, calls, task }
    }

    /// Ends it.
    ///
    /// # Errors
    /// A call was not answered, or none was made.
    pub(crate) async fn end(self) -> Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        self.task.await??;
        ensure!(self.calls.load(Ordering::Relaxed) > 0, "no call");
        Ok(())
    }
}
