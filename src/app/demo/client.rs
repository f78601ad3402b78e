//! The demo's client of the relay: makes sure that there is an image, runs a command from time to time like a real
//! client, and cleans up. In: a channel to the relay's socket. Out: ordinary calls.

use std::time::Duration;

use anyhow::{Context, bail};
use tokio::time::interval;
use tonic::{Status, transport::Channel};

use crate::{
    demo::pods::{self, DemoPods},
    proto::{
        cri::{
            ExecSyncRequest, ExecSyncResponse, ImageSpec, ImageStatusRequest, ImageStatusResponse,
            PullImageRequest, PullImageResponse, image_service_server, runtime_service_server,
        },
        encoded,
    },
};

/// 3 s between two commands of the client that we play.
const PACE: Duration = Duration::from_secs(3);

/// Images with a busybox in them, the likeliest first; the last one is pulled where none is there.
const IMAGES: [&str; 4] = [
    "localhost/busybox:1",
    "docker.io/library/busybox:latest",
    "docker.io/library/busybox:stable",
    "docker.io/library/busybox:1.36",
];

/// The pods, and the client that uses them.
pub(super) struct Stage {
    channel: Channel,
    pods: DemoPods,
}

impl Stage {
    pub(super) fn new(channel: Channel, pods: DemoPods) -> Self {
        Self { channel, pods }
    }

    pub(super) fn pods(&self) -> &DemoPods {
        &self.pods
    }

    /// Runs a command in one pod after the other, as an agent on the node would. Leaves out the pod that is restarted,
    /// whose next container has an id of its own.
    pub(super) async fn act(&self) {
        let mut pace = interval(PACE);
        let lasting: Vec<_> = self.pods.iter().filter(|pod| !pod.is_restarted).collect();
        for pod in lasting.iter().cycle() {
            pace.tick().await;
            let Some(container) = &pod.container_id else { continue };
            let cmd = ["sh", "-c", "date; test -e healthy"].map(str::to_owned).to_vec();
            let request = ExecSyncRequest { container_id: container.to_string(), cmd, timeout: 5 };
            // Whatever it answers is what the demo shows.
            let _: Result<ExecSyncResponse, _> =
                encoded::call(&self.channel, runtime_service_server::SERVICE_NAME, "ExecSync", &request)
                    .await;
        }
        std::future::pending::<()>().await;
    }

    /// Removes the pods.
    pub(super) async fn clear(self) -> anyhow::Result<()> {
        pods::remove_pods(self.channel, &self.pods).await.context("cannot remove the demo's pods")
    }
}

/// An image to make containers from; pulled where none is there. The embedded runtime takes any name.
pub(super) async fn image(channel: Channel, is_embedded: bool) -> anyhow::Result<String> {
    let spec = |image: &str| Some(ImageSpec { image: image.to_owned(), ..ImageSpec::default() });
    let first = IMAGES[0];
    if is_embedded {
        pull(&channel, spec(first)).await?;
        return Ok(first.to_owned());
    }
    for image in IMAGES {
        let request = ImageStatusRequest { image: spec(image), verbose: false };
        let status: ImageStatusResponse =
            encoded::call(&channel, image_service_server::SERVICE_NAME, "ImageStatus", &request).await?;
        if status.image.is_some() {
            return Ok(image.to_owned());
        }
    }
    let last = IMAGES[IMAGES.len() - 1];
    if let Err(status) = pull(&channel, spec(last)).await {
        bail!("the runtime has no busybox image and cannot pull {last}: {}", status.message());
    }
    Ok(last.to_owned())
}

async fn pull(channel: &Channel, image: Option<ImageSpec>) -> Result<PullImageResponse, Status> {
    let request = PullImageRequest { image, ..PullImageRequest::default() };
    encoded::call(channel, image_service_server::SERVICE_NAME, "PullImage", &request).await
}
