//! The RPM on a real systemd: Debian's rpm installs it, and runs its scripts.

use anyhow::{Context as _, Result, ensure};

use crate::{
    bare::{
        Clients, copy, leftovers, node, nothing_is_started, process_and_socket, settings_are_untouched,
        settings_of_clients,
    },
    made::{FIRST, SECOND, package},
    support::node::{Node, SERVICE},
};

/// Debian has no RPMs of the libraries, and its rpm asks whether one means it.
fn rpm(node: &Node, arguments: &[&str]) -> Result<String> {
    node.run(&[&["rpm", "--nodeps", "--force-debian"], arguments].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rpm_starts_nothing_hands_over_and_is_kept_while_it_is_used() -> Result<()> {
    let (Some(first), Some(second)) = (package("rpm", FIRST)?, package("rpm", SECOND)?) else {
        return Ok(());
    };
    let Some(node) = node()? else { return Ok(()) };
    let (first, second) = (copy(&node, &first)?, copy(&node, &second)?);
    let before = leftovers(&node)?;
    rpm(&node, &["--install", &first])?;
    nothing_is_started(&node)?;
    settings_are_untouched(&node)?;

    node.run(&["systemctl", "enable", "--now", SERVICE])?;
    node.client_that_is_answered().await?;
    let (process, socket) = process_and_socket(&node)?;
    let clients = Clients::start(&node, "rpm").await?;
    rpm(&node, &["--upgrade", &second])?;
    clients.end().await?;
    ensure!(node.log()?.contains("going on with the connections"), "the connections were cut");
    let (next, same) = process_and_socket(&node)?;
    ensure!(next != process, "process {process} still runs");
    assert_eq!(same, socket, "an upgrade leaves the socket as it is");
    assert_eq!(node.property(SERVICE, "UnitFileState")?, "enabled");

    settings_of_clients(&node, "criprobe/criprobe.sock")?;
    let refused = rpm(&node, &["--erase", "criprobe"]).err().context("it is removed while it is used")?;
    let refused = format!("{refused:#}");
    ensure!(refused.contains("crictl points at criprobe in /etc/crictl.yaml:1"), "{refused}");
    assert_eq!(process_and_socket(&node)?.0, next);

    node.run(&["env", "CRIPROBE_FORCE_REMOVE=1", "rpm", "--force-debian", "--erase", "criprobe"])?;
    // The state of probes; rpm knows no purge.
    node.run(&["rm", "-rf", "/var/lib/criprobe", "/var/log/criprobe"])?;
    assert_eq!(leftovers(&node)?, before);
    assert_eq!(node.property(SERVICE, "LoadState")?, "not-found");
    Ok(())
}
