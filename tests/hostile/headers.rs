//! Row 2: header blocks of megabytes. A runtime's error is a header field, and repeats what a pod's author wrote.

use anyhow::{Result, bail};
use criprobe::{demo::FaultKind, proto::cri as pb};
use tonic::Code;

use crate::rig::{EAGER, LIVENESS, Rig};

/// 1.4 MB in percent-encoding, as containerd makes of a seccomp profile's name of 240 KB that it repeats.
const LETTERS: usize = 240_000;

#[tokio::test(flavor = "multi_thread")]
async fn row_02_an_error_of_megabytes_hides_no_stop_on_the_same_connection() -> Result<()> {
    let mut rig = Rig::start().await?;
    let (pod, id) = rig.run("other", &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
    rig.last(&pod, "liveness", "success").await?;

    let text = "\u{e9}".repeat(LETTERS);
    rig.once("CreateContainer", FaultKind::Code(Code::InvalidArgument, text.clone()));
    let error = rig.client.create_container(pb::CreateContainerRequest::default()).await.unwrap_err();
    assert_eq!((error.code(), error.message().len()), (Code::InvalidArgument, text.len()), "it is relayed");
    assert_eq!(rig.daemon.status().await?["connections"]["blind"], serde_json::json!([]));

    // The runtime does not answer the stop: only the relay can have seen it.
    rig.once("StopContainer", FaultKind::Hang);
    let request = pb::StopContainerRequest { container_id: id.to_string(), timeout: 30 };
    let mut client = rig.client.clone();
    tokio::select! {
        answer = client.stop_container(request) => bail!("the stop is answered: {answer:?}"),
        is_stopped = rig.becomes(&pod, "liveness", "is stopped", |probe| probe["phase"] == "stopped") => is_stopped?,
    };
    Ok(())
}
