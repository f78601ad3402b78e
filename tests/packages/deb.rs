//! The Debian package on a real systemd.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};

use crate::{
    bare::{
        Clients, SOCKET, copy, leftovers, node, nothing_is_started, process_and_socket,
        settings_are_untouched, settings_of_clients,
    },
    made::{FIRST, SECOND, package},
    support::{
        PATIENCE, cri, eventually,
        node::{Node, SERVICE},
    },
};

/// The error of a command that must fail.
fn refusal(node: &Node, command: &[&str]) -> Result<String> {
    let refused = node.run(command).err().with_context(|| format!("{command:?} succeeds"))?;
    Ok(format!("{refused:#}"))
}

/// What dpkg says of the package's state.
fn state(node: &Node) -> Result<String> {
    node.run(&["dpkg-query", "--show", "--showformat", "${db:Status-Status}", "criprobe"])
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deb_starts_nothing_is_kept_while_it_is_used_and_leaves_nothing_behind() -> Result<()> {
    let Some(deb) = package("deb", FIRST)? else { return Ok(()) };
    let Some(node) = node()? else { return Ok(()) };
    let deb = copy(&node, &deb)?;
    let before = leftovers(&node)?;

    // As docs/packages.md says.
    node.run(&["apt-get", "install", "--yes", &deb])?;
    nothing_is_started(&node)?;
    settings_are_untouched(&node)?;
    node.run(&["criprobe", "check", "/etc/criprobe/config.yaml"])?;
    node.run(&["systemd-analyze", "verify", SERVICE])?;

    node.run(&["systemctl", "enable", "--now", SERVICE])?;
    settings_of_clients(&node, "criprobe/criprobe.sock")?;
    let mut client = node.client_that_is_answered().await?;
    for purge in ["--remove", "--purge"] {
        let refused = refusal(&node, &["dpkg", purge, "criprobe"])?;
        for what in [
            "crictl points at criprobe in /etc/crictl.yaml:1",
            "the kubelet points at criprobe in /var/lib/kubelet/config.yaml:3",
            "is connected",
            "criprobe node revert && systemctl restart kubelet",
            "CRIPROBE_FORCE_REMOVE=1",
        ] {
            ensure!(refused.contains(what), "{what} is not in: {refused}");
        }
        assert_eq!(state(&node)?, "installed");
        cri::version(&mut client).await?;
    }

    // A kubelet whose settings were changed, but that was not restarted.
    node.run(&["criprobe", "node", "revert", "--to", "unix:///run/containerd/containerd.sock"])?;
    settings_are_untouched(&node)?;
    let refused = refusal(&node, &["dpkg", "--remove", "criprobe"])?;
    ensure!(refused.contains("is connected") && !refused.contains("crictl.yaml:"), "{refused}");
    drop(client);
    eventually("criprobe notices that the client has gone", PATIENCE, async || {
        Ok((node.get("/v1/status").await?["connections"]["open"] == 0).then_some(()))
    })
    .await?;

    node.run(&["apt-get", "remove", "--yes", "criprobe"])?;
    assert_eq!(state(&node)?, "config-files");
    ensure!(!node.file("/run/criprobe").exists(), "the socket's folder is left");
    ensure!(node.file("/etc/criprobe/config.yaml").exists(), "a removal keeps the configuration");
    settings_are_untouched(&node)?;

    // What was enabled stays so over a removal, as with other packages; it is started by hand or at the next boot.
    node.run(&["dpkg", "--install", &deb])?;
    node.run(&["systemctl", "start", SERVICE])?;
    node.client_that_is_answered().await?;
    settings_of_clients(&node, "criprobe/criprobe.sock")?;
    node.drop_in(SERVICE, "[Service]\nMemoryMax=1G\n")?;
    node.run(&["systemctl", "set-property", SERVICE, "CPUWeight=200"])?;
    node.run(&["systemctl", "mask", SOCKET])?;
    fs::write(
        node.file("/etc/criprobe/conf.d/50-test.yaml"),
        "trace: {file: /var/log/criprobe/calls.jsonl}\n",
    )?;
    node.run(&["env", "CRIPROBE_FORCE_REMOVE=1", "apt-get", "purge", "--yes", "criprobe"])?;
    assert_eq!(leftovers(&node)?, before);
    assert_eq!(node.property(SERVICE, "LoadState")?, "not-found");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_of_the_deb_hands_over_unless_the_new_version_refuses_the_configuration() -> Result<()> {
    let (Some(first), Some(second)) = (package("deb", FIRST)?, package("deb", SECOND)?) else {
        return Ok(());
    };
    let Some(node) = node()? else { return Ok(()) };
    let (first, second) = (copy(&node, &first)?, copy(&node, &second)?);
    node.run(&["dpkg", "--install", &first])?;
    // Not running: an upgrade does not start it.
    node.run(&["dpkg", "--install", &second])?;
    nothing_is_started(&node)?;

    node.run(&["dpkg", "--install", &first])?;
    node.run(&["systemctl", "enable", "--now", SERVICE])?;
    node.client_that_is_answered().await?;
    let sample = fs::read_to_string(node.file("/etc/criprobe/config.yaml"))?;
    let edited = format!("{sample}\nlog: {{level: debug}}\n");
    fs::write(node.file("/etc/criprobe/config.yaml"), &edited)?;
    let (process, socket) = process_and_socket(&node)?;
    let clients = Clients::start(&node, "deb").await?;
    node.run(&["apt-get", "install", "--yes", &second])?;
    clients.end().await?;
    ensure!(node.log()?.contains("going on with the connections"), "the connections were cut");
    let (next, same) = process_and_socket(&node)?;
    ensure!(next != process, "process {process} still runs");
    assert_eq!(same, socket, "an upgrade leaves the socket as it is");
    assert_eq!(fs::read_to_string(node.file("/etc/criprobe/config.yaml"))?, edited);
    assert_eq!(node.property(SERVICE, "UnitFileState")?, "enabled");

    let wrong = node.file("/etc/criprobe/conf.d/50-wrong.yaml");
    fs::write(&wrong, "lisen: unix:///run/x.sock\n")?;
    let clients = Clients::start(&node, "deb-refused").await?;
    let refused = refusal(&node, &["dpkg", "--install", &first])?;
    for what in ["NOT restarted", "50-wrong.yaml:1", "lisen", "systemctl restart criprobe"] {
        ensure!(refused.contains(what), "{what} is not in: {refused}");
    }
    clients.end().await?;
    assert_eq!(process_and_socket(&node)?.0, next, "the previous version goes on");

    fs::remove_file(wrong)?;
    node.run(&["dpkg", "--configure", "criprobe"])?;
    ensure!(process_and_socket(&node)?.0 != next, "process {next} still runs");
    node.client_that_is_answered().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn units_by_hand_and_a_second_socket_unit_are_a_line_each_and_go_on() -> Result<()> {
    let Some(deb) = package("deb", FIRST)? else { return Ok(()) };
    let Some(node) = node()? else { return Ok(()) };
    let deb = copy(&node, &deb)?;
    node.install(Path::new(env!("CARGO_BIN_EXE_criprobe")))?;
    fs::remove_dir_all(node.file("/etc/criprobe"))?;
    node.run(&["systemctl", "enable", "--now", SERVICE])?;
    let unit = fs::read_to_string(node.file("/etc/systemd/system").join(SOCKET))?;
    fs::write(node.file("/usr/lib/systemd/system/cri-shim.socket"), unit)?;
    let clients = Clients::start(&node, "by-hand").await?;
    let printed = node.run(&["sh", "-c", &format!("dpkg --install {deb} 2>&1")])?;
    clients.end().await?;
    let warnings: Vec<_> = printed.lines().filter(|line| line.starts_with("criprobe: ")).collect();
    let expected = [
        "/etc/systemd/system/criprobe.service hides",
        "/etc/systemd/system/criprobe.socket hides",
        "/usr/lib/systemd/system/cri-shim.socket listens on /run/criprobe/criprobe.sock, too",
    ];
    ensure!(warnings.len() == expected.len(), "{printed}");
    for (warning, expected) in warnings.iter().zip(expected) {
        ensure!(warning.contains(expected), "{warning}");
    }

    // What docs/packages.md says to do.
    node.run(&["sh", "-c", "rm /etc/systemd/system/criprobe.service /etc/systemd/system/criprobe.socket"])?;
    node.run(&["systemctl", "daemon-reload"])?;
    let clients = Clients::start(&node, "by-hand-no-more").await?;
    node.run(&["systemctl", "restart", SERVICE])?;
    clients.end().await?;
    assert_eq!(node.property(SERVICE, "FragmentPath")?, "/lib/systemd/system/criprobe.service");
    Ok(())
}
