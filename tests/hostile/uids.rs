//! Pods with one uid: row 10.

use anyhow::Result;
use hyper::StatusCode;
use serde_json::Value;

use crate::{
    rig::{LAZY, LIVENESS, Rig},
    support::{
        PATIENCE,
        cri::{self, Container, Cri, Pod},
        eventually,
    },
};

/// A pod of this name and uid with a running container `app` that is probed.
async fn run(client: &mut Cri, name: &str, uid: &str) -> Result<Pod> {
    let mut config = cri::pod_config(name, &[(LIVENESS, LAZY)]);
    if let Some(metadata) = &mut config.metadata {
        metadata.uid = uid.to_owned();
    }
    let pod = cri::run_sandbox(client, config).await?;
    cri::run_container(client, &pod, &Container::IDLE).await?;
    Ok(pod)
}

/// The probes as listed once there are so many that were tried: by the names of their pods.
async fn listed(rig: &Rig, count: usize) -> Result<Vec<(String, Value)>> {
    eventually(&format!("{count} probes are listed and tried"), PATIENCE, async || {
        let all = rig.daemon.probes().await?;
        let tried = all.into_iter().filter(|probe| probe["last"]["result"] == "success");
        let mut named: Vec<_> =
            tried.map(|probe| (probe["pod"].as_str().unwrap_or_default().to_owned(), probe)).collect();
        named.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok((named.len() == count).then_some(named))
    })
    .await
}

async fn pause(rig: &Rig, pod: &str) -> Result<()> {
    let (status, body) = rig.daemon.post(&format!("/v1/probes/default/{pod}/app/liveness/pause"), "").await?;
    assert_eq!(status, StatusCode::OK, "{body}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_10_pods_with_no_uid_or_a_copied_one_keep_their_probes_apart() -> Result<()> {
    let mut rig = Rig::start().await?;
    let mut pods = Vec::new();
    for (name, uid) in
        [("a-empty", ""), ("b-empty", ""), ("c-first", "one"), ("d-copy", "one"), ("e-slash", "x/y%")]
    {
        pods.push(run(&mut rig.client, name, uid).await?);
    }
    let known = |number: usize| format!("sandbox:{}", pods[number].id);
    let uids = [known(0), known(1), "one".to_owned(), known(3), "x/y%".to_owned()];
    let probes = listed(&rig, uids.len()).await?;
    let shown: Vec<_> =
        probes.iter().map(|(_, probe)| probe["podUid"].as_str().unwrap_or_default()).collect();
    assert_eq!(shown, uids);

    let log = rig.daemon.log();
    let warned: Vec<_> = log.lines().filter(|line| line.contains("another pod has the same UID")).collect();
    assert!(
        matches!(&*warned, [line] if line.contains("d-copy") && line.contains("given_uid=one")),
        "{warned:?}"
    );
    let pods = rig.daemon.json("/v1/pods").await?;
    let copies = pods.as_array().into_iter().flatten();
    let copies = copies
        .filter(|pod| pod["reason"].as_str().is_some_and(|why| why.contains("another pod has the same UID")));
    assert_eq!(copies.map(|pod| &pod["pod"]).collect::<Vec<_>>(), ["d-copy"]);

    // A pause is one probe's, by its name and by its key, also over a restart of criprobe.
    pause(&rig, "d-copy").await?;
    let key = probes[1].1["key"].as_str().unwrap_or_default();
    let (status, body) =
        rig.daemon.post(&format!("/v1/probes/{}/pause", key.replace('%', "%25")), "").await?;
    assert_eq!(status, StatusCode::OK, "{body}");
    let phases = async |rig: &Rig| -> Result<Vec<String>> {
        let mut all = rig.daemon.probes().await?;
        all.sort_by_key(|probe| probe["pod"].to_string());
        Ok(all.iter().map(|probe| probe["phase"].as_str().unwrap_or_default().to_owned()).collect())
    };
    let expected = ["probing", "paused", "probing", "paused", "probing"];
    assert_eq!(phases(&rig).await?, expected);
    rig.daemon.terminate();
    let socket = rig.runtime.socket().to_owned();
    rig.daemon.start_again(&socket, &[]).await?;
    eventually("all stand where they stood", PATIENCE, async || {
        Ok((phases(&rig).await? == expected).then_some(()))
    })
    .await?;
    let all = rig.daemon.probes().await?;
    let of = |name: &str| all.iter().find(|probe| probe["pod"] == name).cloned().unwrap_or_default();
    assert_eq!(
        (of("c-first")["podUid"].as_str(), of("d-copy")["podUid"].as_str()),
        (Some("one"), Some(&*known(3)))
    );
    let made: Vec<_> = all.iter().map(|probe| probe["counts"]["success"].as_u64()).collect();
    assert!(made.iter().all(|made| *made >= Some(1)), "the verdicts and counts were kept: {made:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_10_a_pod_that_is_made_again_keeps_its_uid_and_one_that_comes_later_does_not_get_it() -> Result<()>
{
    let mut rig = Rig::start().await?;
    let first = run(&mut rig.client, "first", "one").await?;
    pause(&rig, "first").await.or(listed(&rig, 1).await.map(drop))?;
    pause(&rig, "first").await?;
    let copy = run(&mut rig.client, "copy", "one").await?;
    let pod_sandbox_id = first.id.to_string();
    rig.client.stop_pod_sandbox(criprobe::proto::cri::StopPodSandboxRequest { pod_sandbox_id }).await?;
    let mut config = first.config.clone();
    if let Some(metadata) = &mut config.metadata {
        metadata.attempt = 1;
    }
    let again = cri::run_sandbox(&mut rig.client, config).await?;
    cri::run_container(&mut rig.client, &again, &Container::IDLE).await?;
    let known = |pod: &Value| {
        let text = |field: &str| pod[field].as_str().unwrap_or_default().to_owned();
        (text("pod"), text("podUid"), text("sandboxId"), text("phase"))
    };
    let expected = [
        ("copy".to_owned(), format!("sandbox:{}", copy.id), copy.id.to_string(), "probing".to_owned()),
        ("first".to_owned(), "one".to_owned(), again.id.to_string(), "paused".to_owned()),
    ];
    eventually(
        "the pod that was made again has its pause, and the other one has none",
        PATIENCE,
        async || {
            let mut all: Vec<_> = rig.daemon.probes().await?.iter().map(known).collect();
            all.sort();
            Ok((all == expected).then_some(()))
        },
    )
    .await
}
