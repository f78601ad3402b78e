//! Images in the runtime: a reference in; the image's config, as in the registry, out, through containerd's content
//! store. Does not interpret it, keeps nothing.

use std::time::Duration;

use tokio::time::timeout;
use tonic::{Code, Request, Status, codegen::http::uri::PathAndQuery, transport::Channel};

use super::{QUICK, Runtime, call::ask, of_cri};
use crate::proto::{
    containerd::content::{ReadContentRequest, content_client::ContentClient},
    cri, trim,
};

/// 10 s: the limit for reading a config, from the request to its last byte.
const READING: Duration = Duration::from_secs(10);

/// 4 MiB: the largest answer to ImageStatus, 10,000 names of the greatest length, each of which was pulled or assigned on
/// this node. A larger one is an error, and what was known of the image stays in force.
const MAX_IMAGE_STATUS: usize = 4 << 20;

/// The names of an image in the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// Its id: with containerd, the digest of its config.
    pub id: String,
    /// Its tags and digests, without those that are too long for a name.
    pub names: Vec<String>,
}

/// Why an image cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImageError {
    /// The runtime does not have this service; only containerd has it.
    #[error("the runtime has no content store")]
    NoStore,
    /// The image is unknown; possibly not pulled yet.
    #[error("the runtime does not have this image")]
    Unknown,
    /// The config is longer than requested.
    #[error("the config is longer than {0} bytes")]
    TooLong(usize),
    /// The error of the runtime or of the connection to it.
    #[error("{}", .0.message())]
    Call(Status),
}

impl From<Status> for ImageError {
    fn from(status: Status) -> Self {
        if status.code() == Code::Unimplemented { Self::NoStore } else { Self::Call(status) }
    }
}

impl Runtime {
    /// The image with this name, digest or ID.
    ///
    /// # Errors
    /// The image is unknown, or the runtime did not answer.
    pub(crate) async fn image(&self, image: &str) -> Result<Image, ImageError> {
        let spec = cri::ImageSpec { image: image.to_owned(), ..Default::default() };
        let request = cri::ImageStatusRequest { image: Some(spec), verbose: false };
        let path = PathAndQuery::from_static("/runtime.v1.ImageService/ImageStatus");
        let answer: cri::ImageStatusResponse =
            ask(self.channel(), path, request, QUICK, MAX_IMAGE_STATUS).await?;
        let image = answer.image.filter(|image| !image.id.is_empty()).ok_or(ImageError::Unknown)?;
        let names = image.repo_tags.into_iter().chain(image.repo_digests);
        Ok(Image { id: image.id, names: names.filter(|name| name.len() <= trim::MAX_NAME).collect() })
    }

    /// The config of the image with this ID, of at most `limit` bytes.
    ///
    /// # Errors
    /// The runtime has no content store, or the config is not in it, is too long, or did not arrive in time.
    pub(crate) async fn image_config(&self, id: &str, limit: usize) -> Result<Vec<u8>, ImageError> {
        let client = ContentClient::new(self.channel.clone());
        match timeout(READING, read(client, id, limit)).await {
            Ok(config) => config,
            Err(_elapsed) => {
                let message = format!("no complete answer within {} s", READING.as_secs());
                Err(ImageError::Call(Status::deadline_exceeded(message)))
            }
        }
    }
}

/// Reads until the end, or until the limit is exceeded: dropping the stream then ends it.
async fn read(mut client: ContentClient<Channel>, id: &str, limit: usize) -> Result<Vec<u8>, ImageError> {
    let mut request = Request::new(ReadContentRequest { digest: id.to_owned(), offset: 0, size: 0 });
    request.set_timeout(READING);
    of_cri(&mut request);
    let mut stream = client.read(request).await?.into_inner();
    let mut config = Vec::new();
    while let Some(piece) = stream.message().await? {
        if config.len() + piece.data.len() > limit {
            return Err(ImageError::TooLong(limit));
        }
        config.extend_from_slice(&piece.data);
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::{EmbeddedRuntime, FaultKind, InjectedFault, Options};

    const LIMIT: usize = 1 << 20;

    /// Looks up an image named `web` that has this config, while the runtime has the given fault.
    async fn found(config: &[u8], fault: Option<InjectedFault>) -> Result<Vec<u8>, String> {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("runtime.sock");
        let embedded = EmbeddedRuntime::start(Options::new(&socket, dir.path().join("containers"))).unwrap();
        embedded.add_image("web", config);
        fault.into_iter().for_each(|fault| embedded.faults().add(fault));
        let runtime = Runtime::new(&socket);
        let reported = async {
            let image = runtime.image("web").await?;
            assert_eq!(image.names, ["web:latest"]);
            assert_eq!(runtime.image(&image.id).await?, image, "it goes by its id, too");
            runtime.image_config(&image.id, LIMIT).await
        }
        .await;
        assert!(matches!(runtime.image("other").await, Err(ImageError::Unknown | ImageError::NoStore)));
        embedded.shutdown().await;
        reported.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_config_is_read_whole_up_to_the_limit() {
        for length in [0, 1, 100_000, LIMIT] {
            let config: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            assert_eq!(found(&config, None).await, Ok(config), "{length} bytes");
        }
        let longer = found(&vec![0; LIMIT + 1], None).await;
        assert_eq!(longer, Err("the config is longer than 1048576 bytes".to_owned()));
    }

    #[tokio::test]
    async fn a_runtime_without_a_content_store_is_told_from_one_that_fails() {
        for (code, reported) in [
            (Code::Unimplemented, "the runtime has no content store"),
            (Code::Unavailable, "not now"),
            (Code::NotFound, "not now"),
        ] {
            let fault = InjectedFault::always("Read", FaultKind::Code(code, "not now".to_owned()));
            assert_eq!(found(b"x", Some(fault)).await, Err(reported.to_owned()), "{code:?}");
        }
        let fault = FaultKind::Code(Code::Unimplemented, "unknown service".to_owned());
        let found = found(b"x", Some(InjectedFault::always("ImageStatus", fault))).await;
        assert_eq!(found, Err("the runtime has no content store".to_owned()));
    }
}
