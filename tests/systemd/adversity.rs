//! What is wrong with the node is one clear line, and clients are relayed wherever that is possible.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
};

use anyhow::{Result, ensure};

use crate::support::{
    PATIENCE,
    containerd::Lab,
    cri, eventually,
    node::{Node, SERVICE},
};

const SOCKET: &str = "criprobe.socket";

/// The lines that a unit has logged and that contain this.
fn lines(node: &Node, unit: &str, part: &str) -> Result<Vec<String>> {
    let log = node.run(&["journalctl", "--no-pager", "--output=cat", "--unit", unit])?;
    Ok(log.lines().filter(|line| line.contains(part)).map(str::to_owned).collect())
}

/// That the service has logged one line with all of this, and no other with the first part.
fn has_one_line(node: &Node, unit: &str, parts: &[&str]) -> Result<()> {
    let lines = lines(node, unit, parts[0])?;
    ensure!(lines.len() == 1 && parts.iter().all(|part| lines[0].contains(part)), "{parts:?} in {lines:#?}");
    Ok(())
}

/// That a new client is answered.
async fn relays(node: &Node) -> Result<()> {
    assert_eq!(cri::version(&mut node.client().await?).await?.runtime_name, "containerd");
    Ok(())
}

#[tokio::test]
async fn a_read_only_run_costs_the_api_and_no_client() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    // Without its folder, the whole of /run is read-only for the service.
    node.drop_in(SERVICE, "[Service]\nRuntimeDirectory=\n")?;
    node.service("start")?;
    relays(&node).await?;
    has_one_line(&node, SERVICE, &["/run/criprobe/api.sock", "Read-only file system", "ReadWritePaths="])?;
    has_one_line(&node, SERVICE, &["cannot copy the mode and owner", "Read-only file system"])?;
    eventually("the status says so", PATIENCE, async || {
        let text = node.property(SERVICE, "StatusText")?;
        Ok(text.contains("; the API is not served: ").then_some(()))
    })
    .await?;
    node.service("restart")?;
    relays(&node).await
}

#[tokio::test]
async fn without_proc_clients_are_relayed() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    node.drop_in(SERVICE, "[Service]\nTemporaryFileSystem=/proc:ro\nProtectProc=default\nProcSubset=all\n")?;
    node.service("start")?;
    relays(&node).await?;
    eventually("the runtime is known", PATIENCE, async || {
        let status = node.get("/v1/status").await?;
        Ok((status["runtime"]["name"] == "containerd").then_some(()))
    })
    .await?;
    // And without a socket unit.
    node.run(&["systemctl", "stop", SERVICE, SOCKET])?;
    fs::remove_file(node.file("/etc/systemd/system/criprobe.socket"))?;
    node.run(&["systemctl", "mask", SOCKET])?;
    node.service("start")?;
    relays(&node).await
}

#[tokio::test]
async fn a_socket_file_that_was_removed_is_made_again() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    node.run(&["systemctl", "start", SOCKET])?;
    fs::remove_file(node.socket())?;
    node.service("start")?;
    relays(&node).await?;
    has_one_line(
        &node,
        SERVICE,
        &["that file is gone", "/run/criprobe/criprobe.sock", "restart its socket unit"],
    )
}

#[tokio::test]
async fn a_second_unit_is_refused_in_a_line_and_the_first_goes_on() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    node.service("start")?;
    let mut client = node.client().await?;
    cri::version(&mut client).await?;
    let unit = |name| Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging").join(name);
    let service = fs::read_to_string(unit(SERVICE))?.replace("Restart=always", "Restart=no");
    fs::write(node.file("/etc/systemd/system/other.service"), service.replace(SOCKET, "other.socket"))?;
    node.run(&["systemctl", "daemon-reload"])?;
    ensure!(node.run(&["systemctl", "start", "other.service"]).is_err());
    has_one_line(&node, "other.service", &["criprobe.sock is in use by a socket unit of systemd"])?;
    cri::version(&mut client).await?;
    relays(&node).await?;

    // One with a socket of its own relays, too.
    let socket = fs::read_to_string(unit(SOCKET))?.replace("criprobe/criprobe.sock", "criprobe/other.sock");
    fs::write(node.file("/etc/systemd/system/other.socket"), socket)?;
    node.run(&["systemctl", "daemon-reload"])?;
    node.run(&["systemctl", "start", "other.service"])?;
    let mut other = cri::connect(&node.file("/run/criprobe/other.sock")).await?;
    cri::version(&mut other).await?;
    let pid = node.property(SERVICE, "MainPID")?;
    has_one_line(&node, "other.service", &["api.sock is in use by", &format!("pid {pid} (criprobe)")])?;
    has_one_line(&node, "other.service", &["listens on /run/criprobe/other.sock, but `listen` is"])?;
    eventually("the state is not taken from the first", PATIENCE, async || {
        let lines = lines(&node, "other.service", "another criprobe keeps its state in")?;
        Ok((lines.len() == 1).then_some(()))
    })
    .await?;
    node.run(&["systemctl", "stop", "other.service", "other.socket"])?;
    cri::version(&mut client).await?;
    relays(&node).await
}

/// What lies where the state is kept, and what is logged about it.
#[tokio::test]
async fn a_state_that_is_of_no_use_is_a_line_and_probes_start_again() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    fs::write(node.file("/etc/criprobe/conf.d/50-test.yaml"), "act: {enabled: true}\n")?;
    let folder = "/var/lib/criprobe";
    node.run(&["install", "-d", "-m", "700", folder])?;
    let rows = [
        (
            "echo '{\"version\":99,\"probes\":[]}' >probes.json; chmod 600 probes.json",
            "has version 99, but only version",
        ),
        ("echo '{' >probes.json; chmod 600 probes.json", "it is damaged at line"),
        ("ln -s /etc/passwd probes.json", "probes.json is not a regular file"),
        ("mkdir probes.json", "probes.json is not a regular file"),
        ("echo '{}' >probes.json; chmod 666 probes.json", "others can write to it"),
        (
            "echo '{}' >probes.json; chown 65534 probes.json; chmod 600 probes.json",
            "cannot read /var/lib/criprobe/probes.json",
        ),
        ("echo '{\"version\":99}' >acts.json; chmod 600 acts.json", "the record of acts is damaged"),
        // systemd gives the folder back to root.
        ("chown 65534 .; chmod 777 .", ""),
    ];
    for (break_, says) in rows {
        node.run(&["sh", "-c", &format!("cd {folder} && rm -rf probes.json acts.json && {break_}")])?;
        node.run(&["journalctl", "--rotate", "--vacuum-size=1", "--quiet"])?;
        node.service("start")?;
        relays(&node).await?;
        if says.is_empty() {
            let meta = fs::metadata(node.file(folder))?;
            assert_eq!((meta.uid(), meta.mode() & 0o777), (0, 0o700), "{break_}");
        } else {
            let logged = eventually(says, PATIENCE, async || {
                Ok((lines(&node, SERVICE, says)?.len() == 1).then_some(()))
            });
            logged.await?;
        }
        node.service("stop")?;
        ensure!(lines(&node, SERVICE, says)?.len() == 1 || says.is_empty(), "{break_}: again at the end");
    }
    Ok(())
}

#[tokio::test]
async fn an_api_that_cannot_be_served_costs_no_client_and_no_connection() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    let api = node.file("/run/criprobe/api.sock");
    node.run(&["systemctl", "start", SOCKET])?;
    fs::write(&api, "")?;
    node.service("start")?;
    relays(&node).await?;
    has_one_line(&node, SERVICE, &["api.sock exists and is not a socket", "remove it"])?;
    node.run(&["systemctl", "stop", SERVICE, SOCKET])?;

    // Without a socket unit, too, once there are connections to go on with.
    fs::remove_file(node.file("/etc/systemd/system/criprobe.socket"))?;
    node.run(&["systemctl", "mask", SOCKET])?;
    fs::remove_file(&api)?;
    node.service("start")?;
    let mut client = node.client().await?;
    cri::version(&mut client).await?;
    fs::remove_file(&api)?;
    fs::create_dir(&api)?;
    node.service("restart")?;
    cri::version(&mut client).await?;
    relays(&node).await
}

/// The unit's own descriptors, and one that a store could have: of another program, or of another version.
#[tokio::test]
async fn a_descriptor_that_is_not_ours_is_a_line_and_connections_go_on() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    node.service("start")?;
    let mut client = node.client().await?;
    cri::version(&mut client).await?;
    node.drop_in(
        SERVICE,
        "[Service]\nExecStart=\nExecStart=/bin/sh -c 'case $LISTEN_FDS in 1) exec 4</dev/null;; 2) exec 5</dev/null;; esac; \
         LISTEN_FDS=$((LISTEN_FDS+1)) LISTEN_FDNAMES=$LISTEN_FDNAMES:stranger exec criprobe serve'\n",
    )?;
    node.service("restart")?;
    cri::version(&mut client).await?;
    relays(&node).await?;
    has_one_line(&node, SERVICE, &["stranger: is not a Unix socket that listens"])
}

#[tokio::test]
async fn a_socket_of_the_wrong_owner_is_mended() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    node.run(&["systemctl", "start", SOCKET])?;
    node.run(&[
        "sh",
        "-c",
        "chmod 666 /run/criprobe/criprobe.sock; chown 65534:65534 /run/criprobe/criprobe.sock",
    ])?;
    node.service("start")?;
    relays(&node).await?;
    let (ours, theirs) = (fs::metadata(node.socket())?, fs::metadata(lab.socket())?);
    assert_eq!((ours.mode(), ours.uid(), ours.gid()), (theirs.mode(), theirs.uid(), theirs.gid()));
    Ok(())
}

#[tokio::test]
async fn a_second_socket_unit_that_takes_the_file_ends_no_open_connection() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    node.service("start")?;
    let mut client = node.client_that_is_answered().await?;
    let units = node.file("/etc/systemd/system");
    fs::copy(units.join(SOCKET), units.join("other.socket"))?;
    fs::write(units.join("other.service"), "[Service]\nExecStart=sleep infinity\n")?;
    node.run(&["systemctl", "daemon-reload"])?;
    node.run(&["systemctl", "start", "other.socket"])?;
    node.service("restart")?;
    cri::version(&mut client).await?;

    // What docs/packages.md says to do.
    node.run(&["systemctl", "stop", "other.socket", "other.service"])?;
    node.run(&["systemctl", "stop", SOCKET, SERVICE])?;
    node.service("start")?;
    relays(&node).await
}

#[tokio::test]
async fn files_of_the_wrong_mode_or_owner_are_a_line_each() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    let settings = node.file("/etc/criprobe/conf.d/50-test.yaml");
    fs::write(&settings, "trace: {file: /var/log/criprobe/deep/calls.jsonl}\n")?;
    fs::set_permissions(&settings, Permissions::from_mode(0o666))?;
    let records = node.file("/var/log/criprobe/deep");
    fs::create_dir_all(&records)?;
    fs::set_permissions(&records, Permissions::from_mode(0o777))?;
    node.run(&["systemctl", "start", SOCKET])?;
    fs::set_permissions(node.socket(), Permissions::from_mode(0o666))?;
    node.service("start")?;
    relays(&node).await?;
    let theirs = fs::metadata(lab.socket())?.permissions().mode();
    assert_eq!(fs::metadata(node.socket())?.permissions().mode(), theirs, "no wider than the runtime's");
    has_one_line(&node, SERVICE, &["50-test.yaml", "can be written by others"])?;
    eventually("the folder of the records is noticed", PATIENCE, async || {
        Ok((lines(&node, SERVICE, "others can write to the folder")?.len() == 1).then_some(()))
    })
    .await?;

    // Root without CAP_DAC_OVERRIDE cannot read what belongs to others alone.
    node.run(&["chown", "65534", "/etc/criprobe/conf.d/50-test.yaml"])?;
    fs::set_permissions(&settings, Permissions::from_mode(0o600))?;
    ensure!(node.service("restart").is_err());
    assert_eq!(node.property(SERVICE, "ExecMainStatus")?, "78");
    has_one_line(&node, SERVICE, &["Permission denied", "50-test.yaml: cannot read the configuration"])
}

#[tokio::test]
async fn an_upgrade_stops_a_build_that_the_signal_of_restarts_would_kill() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    let former = "[Service]\nType=simple\nWatchdogSec=0\nExecStart=\nExecStart=/bin/sleep infinity\n";
    node.drop_in(SERVICE, former)?;
    node.service("start")?;
    node.drop_in(SERVICE, "")?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/maintenance.sh");
    fs::copy(script, node.file("/srv/maintenance"))?;
    for catches in [false, true] {
        let pid = node.property(SERVICE, "MainPID")?;
        node.run(&["/srv/maintenance", "hand-over", "systemctl"])?;
        assert_ne!(node.property(SERVICE, "MainPID")?, pid);
        assert_eq!(!lines(&node, SERVICE, "handed over")?.is_empty(), catches);
    }
    ensure!(lines(&node, SERVICE, "status=10/USR1")?.is_empty());
    relays(&node).await
}
