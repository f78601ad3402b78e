//! Row 12: a stop whose end was lost, and stops beside calls that hang.

use std::{io::Write, time::Duration};

use anyhow::{Result, ensure};
use criprobe::{demo::FaultKind, proto::cri as pb};
use prost::Message;
use serde_json::Value;
use tonic::Code;

use crate::{
    made_up::{self, DATA, END_HEADERS, END_STREAM, HANG, HEADERS},
    rig::{EAGER, LIVENESS, Rig, STARTUP, give_up},
    support::{PATIENCE, cri::Pod, daemon::Daemon, eventually},
};

const IDLE: [&str; 2] = ["sleep", "100000"];

/// Passes once a file `go` is there: until then a startup probe goes on.
const UNTIL_GO: &str =
    r#"{"exec": {"command": ["test", "-e", "go"]}, "period": "100ms", "failureThreshold": 100000}"#;

/// Makes the runtime be listed: a call that ended without an answer asks for that.
async fn ask_for_lists(rig: &mut Rig) {
    rig.once("RemoveContainer", FaultKind::Hang);
    let request = pb::RemoveContainerRequest { container_id: "nobody".into() };
    give_up(rig.client.remove_container(request), Duration::from_millis(50)).await;
}

/// Waits until a probe makes attempts again that it did not make before.
async fn goes_on(rig: &Rig, pod: &Pod, kind: &str) -> Result<Value> {
    let attempts = |probe: &Value| {
        ["success", "failure"].iter().filter_map(|result| probe["counts"][result].as_u64()).sum::<u64>()
    };
    let before = rig.daemon.probe(pod, "app", kind).await?.as_ref().map(attempts).unwrap_or_default();
    rig.becomes(pod, kind, "goes on", |probe| attempts(probe) > before + 3 && probe["phase"] == "probing")
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_12_a_container_that_the_runtime_reports_running_is_probed_whatever_became_of_its_stop()
-> Result<()> {
    let mut rig = Rig::start().await?;
    let (eager, eager_id) = rig.run("eager", &[(LIVENESS, EAGER)], &IDLE).await?;
    let (starting, starting_id) = rig.run("starting", &[(STARTUP, UNTIL_GO)], &IDLE).await?;
    goes_on(&rig, &eager, "liveness").await?;
    goes_on(&rig, &starting, "startup").await?;
    // The runtime says that it has stopped them, and has not.
    for id in [&eager_id, &starting_id] {
        rig.once("StopContainer", FaultKind::Code(Code::Ok, String::new()));
        let request = pb::StopContainerRequest { container_id: id.to_string(), timeout: 1 };
        let _ = rig.client.stop_container(request).await;
    }
    goes_on(&rig, &eager, "liveness").await?;
    goes_on(&rig, &starting, "startup").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_12_a_pod_that_the_runtime_lists_as_ready_is_probed_whatever_became_of_its_stop() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, _) = rig.run("pod", &[(LIVENESS, EAGER)], &IDLE).await?;
    goes_on(&rig, &pod, "liveness").await?;
    rig.once("StopPodSandbox", FaultKind::Code(Code::Ok, String::new()));
    let request = pb::StopPodSandboxRequest { pod_sandbox_id: pod.id.to_string() };
    let _ = rig.client.stop_pod_sandbox(request).await;
    ask_for_lists(&mut rig).await;
    goes_on(&rig, &pod, "liveness").await?;
    Ok(())
}

/// Passes until the container goes.
const UNTIL_GOING: &str =
    r#"{"exec": {"command": ["test", "!", "-e", "going"]}, "period": "100ms", "failureThreshold": 1}"#;

/// The bytes of each word of the commands that hang, three words each: 24 of 350 KB, as a kubelet sends for exec probes,
/// then ever smaller ones, which fill any gap that longer ones leave.
fn hung() -> impl Iterator<Item = usize> {
    let smaller = (3..17).rev().flat_map(|bits| [1 << bits; 2]);
    std::iter::repeat_n(116_000, 24).chain(smaller).chain([10; 8])
}

#[tokio::test(flavor = "multi_thread")]
async fn row_12_hung_commands_of_any_size_hide_no_stop_on_the_same_connection() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (_, greedy) = rig.run("greedy", &[], &IDLE).await?;
    rig.always("ExecSync", FaultKind::HangAbout(vec![greedy.to_string()]));
    let mut hanging = vec![];
    for size in hung() {
        let mut client = rig.client.clone();
        let mut cmd = vec!["sleep".to_owned(), "100000".to_owned()];
        cmd.extend(vec!["x".repeat(size); 3]);
        let request = pb::ExecSyncRequest { container_id: greedy.to_string(), cmd, timeout: 3600 };
        hanging.push(tokio::spawn(async move { client.exec_sync(request).await }));
        eventually("the command hangs", PATIENCE, async || {
            Ok((rig.faults().count("ExecSync") == hanging.len()).then_some(()))
        })
        .await?;
    }

    let (other, _) = rig.run("other", &[(LIVENESS, EAGER)], &IDLE).await?;
    let (pod, id) = rig.run("pod", &[(LIVENESS, UNTIL_GOING)], &IDLE).await?;
    goes_on(&rig, &pod, "liveness").await?;

    // The runtime does not answer the stop: only the relay can have seen it.
    rig.once("StopContainer", FaultKind::Hang);
    let mut client = rig.client.clone();
    let request = pb::StopContainerRequest { container_id: id.to_string(), timeout: 30 };
    let stop = tokio::spawn(async move { client.stop_container(request).await });
    rig.becomes(&pod, "liveness", "is stopped", |probe| probe["phase"] == "stopped").await?;
    let going = pb::ExecSyncRequest {
        container_id: id.to_string(),
        cmd: ["touch", "going"].map(str::to_owned).to_vec(),
        timeout: 5,
    };
    rig.past.exec_sync(going).await?;
    goes_on(&rig, &other, "liveness").await?;
    let probe = rig.daemon.probe(&pod, "app", "liveness").await?.unwrap_or_default();
    ensure!(probe["phase"] == "stopped" && probe["counts"]["failure"] == 0, "{probe}");
    ensure!(!stop.is_finished() && hanging.iter().all(|call| !call.is_finished()), "calls still hang");
    Ok(())
}

/// Connections with 200 stops each, as many as the runtime takes: 18,000 in all.
const CONNECTIONS: usize = 90;
const STOPS_OF_EACH: u32 = 200;

/// More than 11,000 of them are followed: 10,240 in places that all connections share, and the others in their own.
const FOLLOWED: u64 = 11_000;

#[tokio::test(flavor = "multi_thread")]
async fn row_12_hung_stops_of_one_container_hide_no_stop_of_another() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (_, greedy) = rig.run("greedy", &[], &IDLE).await?;
    let (pod, id) = rig.run("pod", &[(LIVENESS, UNTIL_GOING)], &IDLE).await?;
    goes_on(&rig, &pod, "liveness").await?;

    rig.always("StopContainer", FaultKind::Hang);
    let request = pb::StopContainerRequest { container_id: greedy.to_string(), timeout: 3600 };
    let mut message = vec![0];
    message.extend((request.encoded_len() as u32).to_be_bytes());
    message.extend(request.encode_to_vec());
    let block = made_up::call("/runtime.v1.RuntimeService/StopContainer");
    let calls: Vec<u8> = (0..STOPS_OF_EACH)
        .flat_map(|number| {
            let stream = 2 * number + 1;
            let mut bytes = made_up::frame(HEADERS, END_HEADERS, stream, &block);
            bytes.extend(made_up::frame(DATA, END_STREAM, stream, &message));
            bytes
        })
        .collect();
    let mut hanging = vec![];
    for _ in 0..CONNECTIONS {
        let mut connection = made_up::connect(&rig.socket())?;
        connection.write_all(&calls)?;
        hanging.push(connection);
    }
    // All places for streams that connections share are taken, and each one's own.
    eventually("the stops hang", 2 * PATIENCE, async || {
        Ok((rig.daemon.status().await?["calls"]["inFlight"].as_u64() >= Some(FOLLOWED)).then_some(()))
    })
    .await?;

    let mut client = rig.client.clone();
    let request = pb::StopContainerRequest { container_id: id.to_string(), timeout: 30 };
    let stop = tokio::spawn(async move { client.stop_container(request).await });
    rig.becomes(&pod, "liveness", "is stopped", |probe| probe["phase"] == "stopped").await?;
    ensure!(!stop.is_finished(), "the stop still hangs");
    Ok(())
}

/// 8,192 calls of one connection are followed.
const FOLLOWED_OF_ONE: u64 = 8_192;

/// That many StopContainer calls of a container, from stream 3 on.
fn stops(count: u32, container: &str) -> Vec<u8> {
    let block = made_up::call("/runtime.v1.RuntimeService/StopContainer");
    let request = pb::StopContainerRequest { container_id: container.into(), timeout: 30 };
    let mut message = vec![0];
    message.extend((request.encoded_len() as u32).to_be_bytes());
    message.extend(request.encode_to_vec());
    let stop = |number: u32| {
        let mut bytes = made_up::frame(HEADERS, END_HEADERS, 2 * number + 3, &block);
        bytes.extend(made_up::frame(DATA, END_STREAM, 2 * number + 3, &message));
        bytes
    };
    (0..count).flat_map(stop).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn row_12_thousands_of_hung_stops_of_one_connection_hide_none_of_hundreds_of_another() -> Result<()> {
    let (socket, _dir) = made_up::start()?;
    let daemon = Daemon::spawn(&socket, &[])?;
    eventually("the runtime is there", PATIENCE, async || {
        Ok(daemon.status().await.ok().filter(|status| status["runtime"]["state"] == "ok"))
    })
    .await?;
    let open = || -> Result<_> {
        let mut connection = made_up::connect(&daemon.socket())?;
        let hang = made_up::frame(HEADERS, END_HEADERS, 1, &made_up::call(HANG));
        connection.write_all(&hang)?;
        Ok(connection)
    };
    let in_flight = async || Ok::<_, anyhow::Error>(daemon.status().await?["calls"]["inFlight"].as_u64());
    // Connections that do next to nothing come first, so that they would have what is reserved for the first ones.
    let mut connections = (0..280).map(|_| open()).collect::<Result<Vec<_>>>()?;
    let mut greedy = open()?;
    greedy.write_all(&stops(8_500, "greedy"))?;
    let followed = eventually("the stops hang", PATIENCE, async || {
        Ok(in_flight().await?.filter(|count| *count >= 280 + FOLLOWED_OF_ONE))
    })
    .await?;
    connections.push(greedy);
    let mut kubelet = open()?;
    kubelet.write_all(&stops(500, "app"))?;
    connections.push(kubelet);
    eventually("each stop of the other connection is followed", PATIENCE, async || {
        Ok(in_flight().await?.filter(|count| *count >= followed + 500))
    })
    .await?;
    Ok(())
}
