//! Periods and timeouts below a second, as servers and commands see them.

use std::{net::Ipv4Addr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use criprobe::clock;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    time::timeout,
};

use crate::{
    rig::{LIVENESS, READINESS, Rig},
    support::{PATIENCE, cri, stays},
};

const IDLE: [&str; 2] = ["sleep", "100000"];

/// The mean of the periods between 21 connections: 5 s. Single ones may be late on a busy machine.
async fn mean_period(listener: TcpListener) -> Result<Duration> {
    const PERIODS: u32 = 20;
    let mut began = None;
    for _ in 0..=PERIODS {
        let (mut stream, _) = timeout(PATIENCE, listener.accept()).await.context("no connection")??;
        began.get_or_insert_with(clock::now);
        // A tcpSocket probe has gone by then, and does not care.
        tokio::spawn(async move {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
        });
    }
    Ok((clock::now() - began.context("somebody connected")?) / PERIODS)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_period_below_a_second_is_kept_within_a_tenth_by_tcp_and_http() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (tcp, http) = (
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?,
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?,
    );
    let liveness = format!("{{tcpSocket: {{port: {}}}, period: 250ms}}", tcp.local_addr()?.port());
    let readiness = format!("{{httpGet: {{port: {}}}, period: 250ms}}", http.local_addr()?.port());
    let (pod, _) = rig.run("paced", &[(LIVENESS, &liveness), (READINESS, &readiness)], &IDLE).await?;
    let (tcp, http) = tokio::join!(mean_period(tcp), mean_period(http));
    for (handler, mean) in [("tcpSocket", tcp?), ("httpGet", http?)] {
        ensure!((225..=275).contains(&mean.as_millis()), "{handler}: every {mean:?}");
    }
    for kind in ["liveness", "readiness"] {
        let probe = rig.last(&pod, kind, "success").await?;
        assert_eq!(probe["counts"]["failure"], json!(0), "{probe}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_below_a_second_ends_the_command() -> Result<()> {
    let mut rig = Rig::start().await?;
    // Its mark comes after its timeout, and before the whole second that the runtime is asked to keep.
    let probe = r#"{"exec": {"command": ["sh", "-c", "touch begun; sleep 0.9; touch mark; sleep 1000"]},
        "timeout": "250ms", "period": "5m", "failureThreshold": 1}"#;
    let (pod, id) = rig.run("brief", &[(LIVENESS, probe)], &IDLE).await?;
    let failed = rig.last(&pod, "liveness", "failure").await?;
    let output = failed["last"]["output"].as_str().unwrap_or_default();
    assert!(output.ends_with("timed out after 250ms"), "{failed}");
    let took = failed["last"]["durationSeconds"].as_f64().unwrap_or_default();
    assert!((0.25..1.0).contains(&took), "{failed}");
    assert_eq!(cri::exec(&mut rig.client, &id, &["test", "-e", "begun"]).await?.exit_code, 0);
    stays("the command was ended", Duration::from_secs(1), async || {
        Ok(cri::exec(&mut rig.client, &id, &["test", "-e", "mark"]).await?.exit_code == 1)
    })
    .await
}
