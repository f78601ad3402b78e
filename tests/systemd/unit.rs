//! The service does what systemctl asks of it, and comes back when its process is killed.

use std::fs;

use anyhow::{Result, ensure};

use crate::support::{
    PATIENCE,
    containerd::Lab,
    cri, eventually,
    node::{Node, SERVICE},
};

#[tokio::test]
async fn the_service_starts_reloads_restarts_and_comes_back_when_it_is_killed() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };

    node.service("start")?;
    let mut client = node.client_that_is_answered().await?;
    assert_eq!(cri::version(&mut client).await?.runtime_name, "containerd");
    let first = node.property(SERVICE, "MainPID")?;

    fs::write(node.file("/etc/criprobe/conf.d/50-test.yaml"), "log: {level: debug}\n")?;
    node.service("reload")?;
    eventually("the new configuration is in effect", PATIENCE, async || {
        let status = node.get("/v1/status").await?;
        Ok(status["config"].to_string().contains("50-test.yaml").then_some(()))
    })
    .await?;
    assert_eq!(
        cri::version(&mut client).await?.runtime_name,
        "containerd",
        "the connection outlives a reload"
    );
    assert_eq!(node.property(SERVICE, "MainPID")?, first);

    node.service("restart")?;
    node.client_that_is_answered().await?;
    let second = node.property(SERVICE, "MainPID")?;
    assert_ne!(second, first);

    node.run(&["kill", "-KILL", &second])?;
    eventually("systemd starts it again", PATIENCE, async || {
        let pid = node.property(SERVICE, "MainPID")?;
        Ok((pid != "0" && pid != second).then_some(()))
    })
    .await?;
    node.client_that_is_answered().await?;
    assert_eq!(node.property(SERVICE, "NRestarts")?, "1");

    node.service("stop")?;
    assert_eq!(node.property(SERVICE, "Result")?, "success");
    Ok(())
}

#[tokio::test]
async fn a_wrong_configuration_is_one_line_and_no_restart() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    fs::write(node.file("/etc/criprobe/conf.d/50-test.yaml"), "lisen: unix:///run/x.sock\n")?;
    let _ = node.service("start");
    eventually("the service has failed", PATIENCE, async || {
        Ok((node.property(SERVICE, "ActiveState")? == "failed").then_some(()))
    })
    .await?;
    assert_eq!(node.property(SERVICE, "ExecMainStatus")?, "78");
    assert_eq!(node.property(SERVICE, "NRestarts")?, "0");
    let log = node.log()?;
    ensure!(log.lines().filter(|line| line.contains("lisen")).count() == 1, "{log}");
    Ok(())
}

#[test]
fn systemd_finds_no_fault_in_the_units_and_rates_their_exposure_two_at_most() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let Some(node) = Node::boot(lab)? else { return Ok(()) };
    let units = fs::read_dir(node.file("/etc/systemd/system"))?;
    for unit in units {
        let name = unit?.file_name().to_string_lossy().into_owned();
        if name.starts_with("criprobe") {
            let faults = node.run(&["sh", "-c", &format!("systemd-analyze verify {name} 2>&1")])?;
            ensure!(faults.is_empty(), "{faults}");
        }
    }
    let service = format!("/etc/systemd/system/{SERVICE}");
    let rated = node.run(&["systemd-analyze", "security", "--offline=yes", "--threshold=20", &service]);
    rated.map(drop)
}
