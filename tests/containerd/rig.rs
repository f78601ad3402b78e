//! The rig gives what the other tests build on: pods, containers, addresses, and a containerd that can be stopped.

use anyhow::Result;
use criprobe::proto::cri::ContainerState;
use tokio::net::TcpStream;

use crate::support::{
    PATIENCE,
    containerd::Lab,
    cri::{self, Container},
    eventually,
};

#[tokio::test]
async fn the_rig_runs_containers_that_answer_and_can_be_reached() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let mut client = lab.client().await?;
    assert_eq!(cri::version(&mut client).await?.runtime_name, "containerd");

    let pod = cri::run_pod(&mut client, "rig", &[]).await?;
    let serve = Container { command: &["httpd", "-f", "-p", "8080"], ..Container::IDLE };
    let id = cri::run_container(&mut client, &pod, &serve).await?;

    let answer = cri::exec(&mut client, &id, &["sh", "-c", "echo out; echo err >&2; exit 3"]).await?;
    assert_eq!((answer.exit_code, &answer.stdout[..], &answer.stderr[..]), (3, &b"out\n"[..], &b"err\n"[..]));

    let address = cri::pod_address(&mut client, &pod).await?;
    eventually("the host reaches the pod", PATIENCE, async || {
        Ok(TcpStream::connect((address, 8080)).await.ok())
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn the_rig_sees_a_container_end_by_itself() -> Result<()> {
    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let mut client = lab.client().await?;
    let pod = cri::run_pod(&mut client, "rig-exit", &[]).await?;
    let id = cri::run_container(&mut client, &pod, &Container::shell(&["sh", "-c", "exit 7"])).await?;
    eventually("the container has exited with its code", PATIENCE, async || {
        let state = cri::container_state(&mut client, &id).await?;
        Ok((state == (ContainerState::ContainerExited, 7)).then_some(()))
    })
    .await
}

#[tokio::test]
async fn the_rig_keeps_containers_running_while_containerd_is_away() -> Result<()> {
    let Some(lab) = Lab::start()? else { return Ok(()) };
    let mut client = lab.client().await?;
    let pod = cri::run_pod(&mut client, "rig-restart", &[]).await?;
    let id = cri::run_container(&mut client, &pod, &Container::IDLE).await?;
    let address = cri::pod_address(&mut client, &pod).await?;
    cri::exec(&mut client, &id, &["touch", "/tmp/mark"]).await?;

    lab.stop()?;
    assert!(cri::connect(&lab.socket()).await.is_err(), "containerd still accepts connections");
    lab.resume()?;

    let mut client = lab.client().await?;
    assert_eq!(cri::container_state(&mut client, &id).await?.0, ContainerState::ContainerRunning);
    assert_eq!(cri::exec(&mut client, &id, &["cat", "/tmp/mark"]).await?.exit_code, 0);
    assert_eq!(cri::pod_address(&mut client, &pod).await?, address);
    Ok(())
}
