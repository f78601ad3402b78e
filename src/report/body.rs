//! Reads the body of a request, before anything else is done with it. In: a request whose head has come. Out: the request
//! with its whole body, or the answer that refuses it.

use std::{error::Error, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::StatusCode,
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::{
    Request,
    body::{self, Body as _, Incoming},
};
use tokio::time::timeout;

use super::routes::Refusal;

/// 64 KiB of a request's body; a longer one is answered 413.
const MAX_BODY: usize = 64 * 1024;

/// 5 s for a body; a later one is answered 408. Until it is whole, the client counts as silent, so its connection gives way
/// to others.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The request with its whole body.
pub(super) async fn whole(request: Request<Incoming>) -> Result<Request<Body>, Refusal> {
    let (head, body) = request.into_parts();
    // One that says that it is too long is not read.
    if body.size_hint().lower() > MAX_BODY as u64 {
        return Err(too_long());
    }
    let read = timeout(TIMEOUT, copied(body)).await.map_err(|_| {
        Refusal::new(StatusCode::REQUEST_TIMEOUT, format!("the body did not arrive within {TIMEOUT:?}"))
    })?;
    let body = read.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
        Some(_) => too_long(),
        None => Refusal::new(StatusCode::BAD_REQUEST, format!("the body cannot be read: {error}")),
    })?;
    Ok(Request::from_parts(head, body.into()))
}

/// All of a body. Its pieces are copied, and dropped at once: each is a part of a buffer of 8 KiB, however short it is, so
/// that a body that comes byte by byte would keep gigabytes.
async fn copied<B>(body: B) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>>
where
    B: body::Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
{
    let (mut body, mut whole) = (Limited::new(body, MAX_BODY), Vec::new());
    while let Some(frame) = body.frame().await {
        if let Ok(piece) = frame?.into_data() {
            whole.extend_from_slice(&piece);
        }
    }
    Ok(whole)
}

fn too_long() -> Refusal {
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is longer than {MAX_BODY} bytes"))
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use futures_util::stream;
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    /// A buffer of 8 KiB, and how many of them there are.
    struct Buffer([u8; 8192], Arc<AtomicUsize>);

    impl AsRef<[u8]> for Buffer {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    impl Drop for Buffer {
        fn drop(&mut self) {
            self.1.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn row_20_a_body_that_comes_byte_by_byte_keeps_no_buffer() {
        let buffers = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let pieces = (0..60_000).map(|_| {
            let now = buffers.fetch_add(1, Ordering::Relaxed) + 1;
            most.fetch_max(now, Ordering::Relaxed);
            let buffer = Bytes::from_owner(Buffer([b'x'; 8192], buffers.clone()));
            Ok::<_, Infallible>(Frame::data(buffer.slice(..1)))
        });
        let whole = copied(StreamBody::new(stream::iter(pieces))).await.unwrap();
        assert_eq!((whole.len(), most.load(Ordering::Relaxed)), (60_000, 1));
    }
}
