//! What is read from a connection that speaks HTTP/1.1: heads and bodies, each within its bounds. In: a stream; out: a
//! head, or the first bytes of a body. Has no limit of time: the caller has one.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::{
    chunk::{Chunks, MAX_LINE},
    fields::Fields,
    head::{Framing, Head, HeadReader},
};

/// 256 KiB: what all heads of one answer may hold together, those of 1xx included; more is a failure. Go's client takes
/// 10 MiB (docs/kubelet-prober.md 7.3), which would let 64 workers hold 640 MiB for servers that mean no good.
pub(super) const MAX_HEAD: usize = 256 << 10;

/// 8 KiB: what is asked of the connection at once.
const READ: usize = 8 << 10;

/// 4 KiB: what the trailer of a chunked body may hold, as in Go's client; a longer one is an error.
const MAX_TRAILER: usize = 4 << 10;

/// Go's name of an end in the middle of something.
pub(super) const UNEXPECTED_EOF: &str = "unexpected EOF";

/// A connection and what was read of it ahead.
#[derive(Debug)]
pub(super) struct Source<S> {
    stream: S,
    ahead: BytesMut,
    /// How an error of the stream is worded.
    describe: fn(&S, &std::io::Error) -> String,
}

/// A line, or why there is none.
enum Line {
    Whole(Bytes),
    /// The stream ended, perhaps after some bytes.
    Cut(Bytes),
    TooLong,
}

impl<S: AsyncRead + Unpin> Source<S> {
    /// Reads from `stream`; its errors are put into words by `describe`.
    pub(super) fn new(stream: S, describe: fn(&S, &std::io::Error) -> String) -> Self {
        Self { stream, ahead: BytesMut::new(), describe }
    }

    /// The stream, to write to.
    pub(super) fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Reads heads up to the first that is none of 1xx, or 101.
    ///
    /// # Errors
    /// In Go's words: an end before any byte is `EOF`, and all else that goes wrong breaks the connection.
    pub(super) async fn head(&mut self) -> Result<Head, String> {
        if self.ahead.is_empty() && self.fill().await? == 0 {
            return Err("EOF".to_owned());
        }
        let broken = |error: String| format!("net/http: HTTP/1.x transport connection broken: {error}");
        self.heads().await.map_err(broken)
    }

    async fn heads(&mut self) -> Result<Head, String> {
        let mut left = MAX_HEAD;
        loop {
            let head = self.one_head(&mut left).await?;
            if !head.is_interim() {
                return Ok(head);
            }
        }
    }

    async fn one_head(&mut self, left: &mut usize) -> Result<Head, String> {
        let mut reader = HeadReader::default();
        loop {
            let line = match self.line(*left).await? {
                Line::Whole(line) => line,
                Line::Cut(rest) if rest.is_empty() => return Err(UNEXPECTED_EOF.to_owned()),
                Line::Cut(rest) => {
                    reader.on_line(&rest)?;
                    return Err(UNEXPECTED_EOF.to_owned());
                }
                Line::TooLong => {
                    return Err(format!(
                        "net/http: server response headers exceeded {MAX_HEAD} bytes; aborted"
                    ));
                }
            };
            *left -= line.len();
            if let Some(head) = reader.on_line(without_end(&line))? {
                return Ok(head);
            }
        }
    }

    /// Reads a body, at most `limit` bytes of it: what follows them is not looked at.
    ///
    /// # Errors
    /// In Go's words, when it ends too early or is not framed as it should be.
    pub(super) async fn body(&mut self, framing: Framing, limit: usize) -> Result<Bytes, String> {
        let mut body = BytesMut::new();
        match framing {
            Framing::Length(length) => {
                let wanted = usize::try_from(length).map_or(limit, |length| length.min(limit));
                self.take(wanted, &mut body).await?;
            }
            Framing::UntilClose => {
                while body.len() < limit && self.some(limit - body.len(), &mut body).await? {}
            }
            Framing::Chunked => self.chunks(limit, &mut body).await?,
        }
        Ok(body.freeze())
    }

    async fn chunks(&mut self, limit: usize, body: &mut BytesMut) -> Result<(), String> {
        let mut chunks = Chunks::default();
        loop {
            let size = match self.line(MAX_LINE).await? {
                Line::Whole(line) => chunks.on_line(&line)?,
                Line::Cut(_) => return Err(UNEXPECTED_EOF.to_owned()),
                Line::TooLong => return Err("header line too long".to_owned()),
            };
            if size == 0 {
                return self.trailer().await;
            }
            let room = limit - body.len();
            let wanted = usize::try_from(size).map_or(room, |size| size.min(room));
            self.take(wanted, body).await?;
            if body.len() >= limit {
                return Ok(());
            }
            let mut end = BytesMut::new();
            self.take(2, &mut end).await?;
            if &end[..] != b"\r\n" {
                return Err("malformed chunked encoding".to_owned());
            }
        }
    }

    /// Reads the trailer and forgets it.
    async fn trailer(&mut self) -> Result<(), String> {
        let mut fields = Fields::default();
        let mut left = MAX_TRAILER;
        loop {
            let is_first = left == MAX_TRAILER;
            match self.line(left).await? {
                Line::Whole(line) if line.ends_with(b"\r\n") => {
                    left -= line.len();
                    if fields.on_line(without_end(&line))? {
                        return Ok(());
                    }
                }
                Line::Cut(rest) if is_first && rest.len() < 2 => {
                    return Err("http: unexpected EOF reading trailer".to_owned());
                }
                Line::Whole(_) | Line::Cut(_) | Line::TooLong => {
                    return Err("http: suspiciously long trailer after chunked body".to_owned());
                }
            }
        }
    }

    /// The next line with its end, of at most `limit` bytes.
    async fn line(&mut self, limit: usize) -> Result<Line, String> {
        let mut seen = 0;
        loop {
            let end = self.ahead[seen..].iter().position(|byte| *byte == b'\n').map(|at| seen + at + 1);
            match end {
                Some(end) if end <= limit => return Ok(Line::Whole(self.ahead.split_to(end).freeze())),
                None if self.ahead.len() < limit => seen = self.ahead.len(),
                Some(_) | None => return Ok(Line::TooLong),
            }
            if self.fill().await? == 0 {
                return Ok(Line::Cut(self.ahead.split().freeze()));
            }
        }
    }

    /// Appends `wanted` bytes.
    async fn take(&mut self, wanted: usize, into: &mut BytesMut) -> Result<(), String> {
        let end = into.len() + wanted;
        while into.len() < end {
            if !self.some(end - into.len(), into).await? {
                return Err(UNEXPECTED_EOF.to_owned());
            }
        }
        Ok(())
    }

    /// Appends at most `limit` bytes, and at least one unless the stream ended.
    async fn some(&mut self, limit: usize, into: &mut BytesMut) -> Result<bool, String> {
        if self.ahead.is_empty() && self.fill().await? == 0 {
            return Ok(false);
        }
        let count = limit.min(self.ahead.len());
        into.extend_from_slice(&self.ahead[..count]);
        self.ahead.advance(count);
        Ok(true)
    }

    async fn fill(&mut self) -> Result<usize, String> {
        self.ahead.reserve(READ);
        match self.stream.read_buf(&mut (&mut self.ahead).limit(READ)).await {
            Ok(count) => Ok(count),
            // TLS that ends without saying so: Go takes it for an end, as many servers do that.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(0),
            Err(error) => Err((self.describe)(&self.stream, &error)),
        }
    }
}

/// A line without its line feed, and without the carriage return before that.
fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}
