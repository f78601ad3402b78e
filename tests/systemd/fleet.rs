//! The script that keeps a fleet's nodes current, with a real systemd: what its clients notice of an update, of a version that
//! does not work, and of a removal.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    handover::call_steadily,
    support::{
        PATIENCE,
        containerd::Lab,
        cri, eventually,
        node::{Node, SERVICE},
    },
};

/// A node without criprobe, and the image that a pod of the fleet would have.
fn bare(lab: &Lab) -> Result<Option<Node>> {
    let Some(node) = Node::boot(lab)? else { return Ok(None) };
    for unit in [SERVICE, "criprobe.socket"] {
        let installed = node.file("/etc/systemd/system").join(unit);
        fs::create_dir_all(node.file("/srv/image/units"))?;
        fs::rename(installed, node.file("/srv/image/units").join(unit))?;
    }
    fs::remove_dir_all(node.file("/etc/criprobe"))?;
    fs::create_dir_all(node.file("/srv/config"))?;
    fs::write(node.file("/srv/config/config.yaml"), "log: {level: info}\n")?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/kubernetes/node.sh");
    fs::copy(script, node.file("/srv/node.sh"))?;
    node.run(&["systemctl", "daemon-reload"])?;
    Ok(Some(node))
}

/// The next image: one that runs the same criprobe, except for what it does to serve.
fn image(node: &Node, version: &str, serve: &str) -> Result<()> {
    let serve = if serve.is_empty() { String::new() } else { format!("[ \"$1\" != serve ] || {serve}\n") };
    let path = node.file("/srv/image/bin/criprobe");
    fs::create_dir_all(path.parent().context("it has a folder")?)?;
    fs::write(&path, format!("#!/bin/sh\n# {version}\n{serve}exec /usr/bin/criprobe \"$@\"\n"))?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

fn script(node: &Node, verb: &str) -> Result<String> {
    let variables = ["ROOT=/", "SOURCE=/srv/image", "CONFIG=/srv/config", "RULES=/srv/rules", "PATIENCE=10"];
    let command: Vec<_> = ["env"].into_iter().chain(variables).chain(["/srv/node.sh", verb]).collect();
    node.run(&command)
}

/// How a verb fails.
fn refusal(node: &Node, verb: &str) -> Result<String> {
    match script(node, verb) {
        Ok(said) => anyhow::bail!("{verb} succeeds: {said}"),
        Err(error) => Ok(format!("{error:#}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_ends_no_call_and_neither_does_one_that_is_undone() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = bare(lab)? else { return Ok(()) };
    image(&node, "one", "")?;
    ensure!(script(&node, "install")?.contains("installed criprobe"));
    assert_eq!(node.property("criprobe.socket", "ActiveState")?, "active");
    assert_eq!(node.property(SERVICE, "UnitFileState")?, "enabled");

    let is_over = Arc::new(AtomicBool::new(false));
    let steady = tokio::spawn(call_steadily(node.client().await?, is_over.clone()));
    image(&node, "two", "")?;
    script(&node, "install")?;
    image(&node, "three", "exit 1")?;
    let undone = refusal(&node, "install")?;
    ensure!(undone.contains("this version was undone"), "{undone}");
    is_over.store(true, Ordering::Relaxed);
    let (calls, longest) = steady.await??;
    eprintln!("{calls} calls, the longest {longest:?}");
    ensure!(calls > 100, "only {calls} calls");
    let installed = fs::read_to_string(node.file("/opt/criprobe/bin/criprobe"))?;
    ensure!(installed.contains("# two\n"), "{installed}");
    let again = refusal(&node, "install")?;
    ensure!(again.contains("this version failed on this node before"), "{again}");

    // One that refuses the configuration is not started again by systemd: the connections end, and new ones come.
    image(&node, "four", "exit 78")?;
    ensure!(refusal(&node, "install")?.contains("this version was undone"));
    cri::version(&mut node.client_that_is_answered().await?).await?;

    let mut client = node.client_that_is_answered().await?;
    let used = refusal(&node, "uninstall")?;
    ensure!(used.contains("is connected") && used.contains("switch back first"), "{used}");
    cri::version(&mut client).await?;
    drop(client);
    eventually("the connection has ended, and criprobe is gone", PATIENCE, async || {
        Ok(script(&node, "uninstall").ok())
    })
    .await?;
    for left in [
        "/opt/criprobe",
        "/etc/criprobe",
        "/etc/systemd/system/criprobe.service",
        "/run/criprobe/criprobe.sock",
    ] {
        ensure!(!node.file(left).exists(), "{left}");
    }
    ensure!(node.property(SERVICE, "LoadState")? == "not-found");
    Ok(())
}
