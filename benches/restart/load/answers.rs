//! Long calls and large answers: what a command printed is compared with what it should print, byte by byte.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use criprobe::proto::cri::{self, image_service_client::ImageServiceClient};
use http::{Request, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Full};
use prost::Message as _;
use tokio::time::sleep;
use tonic::{body::Body, transport::Channel};
use tower::{Service as _, ServiceExt as _};

use super::{Cri, Target};

/// Whether an answer was right, or why there was none.
pub(crate) type Answer = Result<bool, String>;

/// 64 KiB every 4 ms: an answer takes 0.4 s, so that one is nearly always on its way.
const AT_ONCE: usize = 64 << 10;
const PAUSE: Duration = Duration::from_millis(4);

/// 1 s: how long a client waits after a failure.
const AGAIN: Duration = Duration::from_secs(1);

/// Octets before a message: a flag and the length.
const PREFIX: usize = 5;

/// Runs a command that prints the content, and once more at its end.
pub(super) async fn long(mut client: Cri, target: Target, lasts: Duration) -> Answer {
    let script = "cat \"$1\"; sleep \"$2\"; cat \"$1\"";
    let cmd = ["sh", "-c", script, "sh", &target.file, &lasts.as_secs().to_string()].map(str::to_owned);
    let request = cri::ExecSyncRequest { container_id: target.container, cmd: cmd.into(), timeout: 0 };
    let answer = client.exec_sync(request).await.map_err(|status| status.to_string())?.into_inner();
    Ok(answer.stdout == target.content.repeat(2) && answer.exit_code == 0)
}

/// Pulls an image.
pub(super) async fn pull(channel: Channel) -> Answer {
    let image = cri::ImageSpec { image: "localhost/large:1".into(), ..Default::default() };
    let request = cri::PullImageRequest { image: Some(image), ..Default::default() };
    let answer = ImageServiceClient::new(channel).pull_image(request).await;
    let answer = answer.map_err(|status| status.to_string())?.into_inner();
    Ok(answer.image_ref.starts_with("sha256:"))
}

/// Has commands print the content, one after the other, and reads it slowly.
pub(super) async fn large(mut channel: Channel, target: Target) -> Vec<Answer> {
    let cmd = ["cat", &target.file].map(str::to_owned).into();
    let request = cri::ExecSyncRequest { container_id: target.container, cmd, timeout: 0 };
    let mut framed = vec![0; PREFIX];
    request.encode(&mut framed).expect("a vector takes every message");
    let length = u32::try_from(framed.len() - PREFIX).expect("the request is short");
    framed[1..PREFIX].copy_from_slice(&length.to_be_bytes());
    let framed = Bytes::from(framed);
    let mut answers = Vec::new();
    while !*target.is_over.borrow() {
        let answer = read_slowly(&mut channel, framed.clone()).await;
        if answer.is_err() {
            sleep(AGAIN).await;
        }
        answers.push(match answer {
            Ok(answer) => Ok(answer.stdout == *target.content),
            Err(error) => Err(format!("{error:#}")),
        });
    }
    answers
}

async fn read_slowly(channel: &mut Channel, framed: Bytes) -> Result<cri::ExecSyncResponse> {
    let request = Request::post("http://localhost/runtime.v1.RuntimeService/ExecSync")
        .header(CONTENT_TYPE, "application/grpc")
        .header("te", "trailers")
        .body(Body::new(Full::new(framed)))?;
    let response = channel.ready().await?.call(request).await?;
    let mut status = response.headers().get("grpc-status").cloned();
    let (mut body, mut answer, mut unpaused) = (response.into_body(), Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(data) => {
                answer.extend_from_slice(&data);
                unpaused += data.len();
            }
            Err(frame) => {
                status = frame.trailers_ref().and_then(|trailers| trailers.get("grpc-status").cloned());
            }
        }
        if unpaused >= AT_ONCE {
            unpaused = 0;
            sleep(PAUSE).await;
        }
    }
    ensure!(status.as_ref().is_some_and(|status| status == "0"), "it ended with status {status:?}");
    let message = answer.get(PREFIX..).context("the answer has no message")?;
    Ok(cri::ExecSyncResponse::decode(message)?)
}
