//! The part of containerd's content store that serves image configs: digests in, blobs out, in pieces. The image
//! service knows the contents.

use std::vec;

use tokio_stream::Iter;
use tonic::{Request, Response, Status, metadata::MetadataValue};

use super::images::Images;
use crate::proto::containerd::content::{ReadContentRequest, ReadContentResponse, content_server::Content};

/// 32 KiB a piece, so that a blob of some size comes in several.
const PIECE: usize = 32 << 10;

#[tonic::async_trait]
impl Content for Images {
    type ReadStream = Iter<vec::IntoIter<Result<ReadContentResponse, Status>>>;

    async fn read(&self, request: Request<ReadContentRequest>) -> Result<Response<Self::ReadStream>, Status> {
        let namespace = request.metadata().get("containerd-namespace").map(MetadataValue::as_bytes);
        let digest = request.get_ref().digest.clone();
        match namespace {
            None => return Err(Status::failed_precondition("namespace is required: failed precondition")),
            Some(b"k8s.io") => {}
            Some(_) => return Err(Status::not_found(format!("content {digest}: not found"))),
        }
        let blob = self.config(&digest);
        let blob = blob.ok_or_else(|| Status::not_found(format!("content {digest}: not found")))?;
        let pieces: Vec<_> = blob
            .chunks(PIECE)
            .zip((0i64..).step_by(PIECE))
            .map(|(piece, offset)| Ok(ReadContentResponse { offset, data: piece.to_vec() }))
            .collect();
        Ok(Response::new(tokio_stream::iter(pieces)))
    }
}
