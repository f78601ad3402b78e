//! The Debian package on a real systemd.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use crate::{
    bare::{
        Caller, copy, leftovers, node, nothing_is_started, process_and_socket, settings_are_untouched,
        settings_of_clients,
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

    node.run(&["dpkg", "--install", &deb])?;
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
            "/etc/crictl.yaml:1: runtime-endpoint: unix:///run/criprobe/criprobe.sock",
            "/var/lib/kubelet/config.yaml:1: containerRuntimeEndpoint: unix:///run/criprobe/criprobe.sock",
            "open connections of clients: 1;",
            "Point them at unix:///run/containerd/containerd.sock",
            "CRIPROBE_FORCE_REMOVE=1",
        ] {
            ensure!(refused.contains(what), "{what} is not in: {refused}");
        }
        assert_eq!(state(&node)?, "installed");
        cri::version(&mut client).await?;
    }

    // A kubelet whose settings were changed, but that was not restarted.
    settings_of_clients(&node, "containerd/containerd.sock")?;
    let refused = refusal(&node, &["dpkg", "--remove", "criprobe"])?;
    ensure!(
        refused.contains("open connections of clients: 1;") && !refused.contains("crictl.yaml:"),
        "{refused}"
    );
    drop(client);
    eventually("criprobe notices that the client has gone", PATIENCE, async || {
        Ok((node.get("/v1/status").await?["connections"]["open"] == 0).then_some(()))
    })
    .await?;

    node.run(&["dpkg", "--remove", "criprobe"])?;
    assert_eq!(state(&node)?, "config-files");
    ensure!(!node.file("/run/criprobe").exists(), "the socket's folder is left");
    ensure!(node.file("/etc/criprobe/config.yaml").exists(), "a removal keeps the configuration");
    settings_are_untouched(&node)?;

    // What was enabled stays so over a removal, as with other packages; it is started by hand or at the next boot.
    node.run(&["dpkg", "--install", &deb])?;
    node.run(&["systemctl", "start", SERVICE])?;
    node.client_that_is_answered().await?;
    settings_of_clients(&node, "criprobe/criprobe.sock")?;
    node.run(&["env", "CRIPROBE_FORCE_REMOVE=1", "dpkg", "--purge", "criprobe"])?;
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
    let caller = Caller::start(&node);
    node.run(&["dpkg", "--install", &second])?;
    caller.end().await?;
    let (next, same) = process_and_socket(&node)?;
    ensure!(next != process, "process {process} still runs");
    assert_eq!(same, socket, "an upgrade leaves the socket as it is");
    assert_eq!(fs::read_to_string(node.file("/etc/criprobe/config.yaml"))?, edited);
    assert_eq!(node.property(SERVICE, "UnitFileState")?, "enabled");

    let wrong = node.file("/etc/criprobe/conf.d/50-wrong.yaml");
    fs::write(&wrong, "lisen: unix:///run/x.sock\n")?;
    let caller = Caller::start(&node);
    let refused = refusal(&node, &["dpkg", "--install", &first])?;
    for what in ["NOT restarted", "50-wrong.yaml:1", "lisen", "systemctl restart criprobe"] {
        ensure!(refused.contains(what), "{what} is not in: {refused}");
    }
    caller.end().await?;
    assert_eq!(process_and_socket(&node)?.0, next, "the previous version goes on");

    fs::remove_file(wrong)?;
    node.run(&["dpkg", "--configure", "criprobe"])?;
    ensure!(process_and_socket(&node)?.0 != next, "process {next} still runs");
    node.client_that_is_answered().await?;
    Ok(())
}
