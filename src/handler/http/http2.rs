//! One request and its answer in HTTP/2. The connection is driven by who waits for the answer: no task of its own, and
//! nothing is left of it when the answer is dropped.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use h2::{RecvStream, client};

use super::{source::MAX_HEAD, source::UNEXPECTED_EOF, tls::Secured};

/// 64 KiB: how much of a body the server may send ahead of what is read, in all.
const WINDOW: u32 = 65_535;

/// A connection with one request on it, that was answered.
#[derive(Debug)]
pub(super) struct Http2 {
    connection: client::Connection<Secured>,
    body: RecvStream,
    length: Option<u64>,
}

impl Http2 {
    /// Sends the request and waits for the head of the answer: its status and `Location` come with it.
    ///
    /// # Errors
    /// In Go's words where it has some for it.
    pub(super) async fn ask(
        stream: Secured,
        request: http::Request<()>,
    ) -> Result<(Self, u16, Vec<u8>), String> {
        let mut builder = client::Builder::new();
        builder.enable_push(false).initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
        builder.max_header_list_size(MAX_HEAD as u32).max_concurrent_reset_streams(0);
        let (sender, mut connection) =
            builder.handshake::<_, Bytes>(stream).await.map_err(|error| describe_error(&error))?;
        let asked = async {
            let (answer, _nothing_to_send) = sender.ready().await?.send_request(request, true)?;
            answer.await
        };
        let answer = driven(&mut connection, asked).await?.map_err(|error| describe_error(&error))?;
        let (head, body) = answer.into_parts();
        let location = head.headers.get(http::header::LOCATION);
        let location = location.map(|value| value.as_bytes().to_vec()).unwrap_or_default();
        let length = head.headers.get(http::header::CONTENT_LENGTH);
        let length = length.and_then(|value| value.to_str().ok()).and_then(|value| value.parse().ok());
        Ok((Self { connection, body, length }, head.status.as_u16(), location))
    }

    /// How long the body is, if the server said so.
    pub(super) fn length(&self) -> Option<u64> {
        self.length
    }

    /// Reads the body, at most `limit` bytes of it.
    ///
    /// # Errors
    /// In Go's words where it has some for it.
    pub(super) async fn body(&mut self, limit: usize) -> Result<Bytes, String> {
        let Self { connection, body, .. } = self;
        let read = async {
            let mut bytes = BytesMut::new();
            while bytes.len() < limit {
                let Some(data) = body.data().await else { break };
                let data = data?;
                body.flow_control().release_capacity(data.len())?;
                bytes.extend_from_slice(&data[..data.len().min(limit - bytes.len())]);
            }
            Ok(bytes.freeze())
        };
        driven(connection, read).await?.map_err(|error| describe_error(&error))
    }
}

/// Waits for what needs the connection, while the connection goes on.
async fn driven<T>(
    connection: &mut client::Connection<Secured>,
    waiting: impl Future<Output = T>,
) -> Result<T, String> {
    let mut waiting = pin!(waiting);
    let mut connection = pin!(connection);
    let mut ended = None;
    poll_fn(|cx| {
        if ended.is_none()
            && let Poll::Ready(end) = connection.as_mut().poll(cx)
        {
            ended = Some(end);
        }
        match (waiting.as_mut().poll(cx), &ended) {
            (Poll::Ready(output), _) => Poll::Ready(Ok(output)),
            (Poll::Pending, Some(Err(error))) => Poll::Ready(Err(describe_error(error))),
            (Poll::Pending, Some(Ok(()))) => Poll::Ready(Err(UNEXPECTED_EOF.to_owned())),
            (Poll::Pending, None) => Poll::Pending,
        }
    })
    .await
}

/// An error nearly as Go's client words it.
fn describe_error(error: &h2::Error) -> String {
    let from = if error.is_remote() { "; received from peer" } else { "" };
    match error.reason() {
        Some(reason) if error.is_go_away() => {
            let name = name(reason);
            format!(
                "http2: server sent GOAWAY and closed the connection; LastStreamID=0, ErrCode={name}, debug=\"\""
            )
        }
        Some(reason) if error.is_reset() => format!("stream error: stream ID 1; {}{from}", name(reason)),
        Some(reason) => format!("connection error: {}", name(reason)),
        None if error.is_io() => UNEXPECTED_EOF.to_owned(),
        None => format!("http2: {error}"),
    }
}

/// `INTERNAL_ERROR`, as RFC 9113 spells it.
fn name(reason: h2::Reason) -> String {
    format!("{reason:?}")
}
