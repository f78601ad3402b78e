//! Pairs the two directions of each stream into calls. In: header fields, data and resets of both sides, in the order
//! of the bytes; out: calls begun and ended. Never does IO, never reads a clock.
//!
//! request headers -> open --request whole--> begun --trailers--> complete
//!                       any --RST by client--> cancelled   --RST by runtime--> reset   --connection over--> lost

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Instant,
};

use super::{
    call::{Call, CallEnd, CallOrigin, Code, EndedCall, TapEvent},
    cri::{CallKind, CriRequest, CriResponse, Method},
    exec::ExecMeter,
    header::{RequestHeader, ResponseHeader, text},
    message::{Body, Kept, Messages},
};
use crate::{ids::ConnId, peer::Peer};

/// 16,384 streams of one connection are tracked at once; calls beyond that are not seen, but counted.
pub(super) const MAX_STREAMS: usize = 16_384;

/// 4 MiB of message bodies are kept for one connection; beyond that, calls have no details.
pub(super) const MAX_KEPT: usize = 4 * 1024 * 1024;

/// 256 different paths are cached for one connection; further ones are parsed each time.
pub(super) const MAX_METHODS: usize = 256;

/// The calls of one connection.
#[derive(Debug)]
pub(super) struct Streams {
    origin: Arc<CallOrigin>,
    /// Boxed, so that the tree moves pointers when streams come and go.
    open: BTreeMap<u32, Box<Stream>>,
    /// The highest stream that the client opened.
    highest: u32,
    kept: usize,
    methods: HashMap<Arc<[u8]>, Arc<Method>>,
    /// The path of the last call: the next call usually has the same one.
    last_method: Option<(Arc<[u8]>, Arc<Method>)>,
}

/// One call in progress.
#[derive(Debug)]
struct Stream {
    method: Arc<Method>,
    began: Instant,
    traceparent: Option<Arc<str>>,
    origin: Arc<CallOrigin>,
    request: Messages,
    response: Messages,
    /// Set when the request is complete.
    call: Option<Call>,
    /// Bytes that it keeps.
    held: usize,
    answer: ResponseHeader,
}

impl Streams {
    /// No call yet.
    pub(super) fn new(conn: ConnId, peer: Arc<Peer>) -> Self {
        Self {
            origin: Arc::new(CallOrigin { conn, peer, user_agent: Box::default() }),
            open: BTreeMap::new(),
            highest: 0,
            kept: 0,
            methods: HashMap::new(),
            last_method: None,
        }
    }

    /// Calls that have not ended.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// Bytes of message bodies that are kept.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.kept
    }

    /// The methods of the calls that have not ended, for the log of aborted calls.
    pub(super) fn open_methods(&self) -> impl Iterator<Item = &str> {
        self.open.values().map(|stream| &*stream.method.name)
    }

    /// The highest stream that the client opened; 0 before its first.
    pub(super) fn highest(&self) -> u32 {
        self.highest
    }

    /// The client sent a header block: a new call, or the trailers of its request.
    pub(super) fn request_header(
        &mut self,
        id: u32,
        header: RequestHeader<'_>,
        is_end: bool,
        now: Instant,
        out: &mut impl FnMut(TapEvent),
    ) {
        if id > self.highest {
            self.highest = id;
            if self.open.len() >= MAX_STREAMS {
                out(TapEvent::Untracked(1));
                return;
            }
            let method = self.method(header.path);
            if header.user_agent != self.origin.user_agent.as_bytes() {
                let user_agent = text(header.user_agent).into();
                self.origin = Arc::new(CallOrigin { user_agent, ..CallOrigin::clone(&self.origin) });
            }
            let stream = Stream {
                request: Messages::new(if method.kind.keeps_request() {
                    Body::Keep(Kept::default())
                } else {
                    Body::Skip
                }),
                response: Messages::new(response_body(method.kind)),
                method,
                began: now,
                traceparent: Some(text(header.traceparent)).filter(|text| !text.is_empty()).map(Arc::from),
                origin: Arc::clone(&self.origin),
                call: None,
                held: 0,
                answer: ResponseHeader::default(),
            };
            self.open.insert(id, Box::new(stream));
        }
        if is_end {
            self.request_whole(id, out);
        }
    }

    /// The client sent a piece of a request.
    pub(super) fn request_data(
        &mut self,
        id: u32,
        piece: &[u8],
        is_end: bool,
        out: &mut impl FnMut(TapEvent),
    ) {
        if let Some(stream) = self.open.get_mut(&id) {
            feed(&mut stream.request, piece, &mut self.kept);
            if is_end {
                self.request_whole(id, out);
            }
        }
    }

    /// The runtime sent a header block: 1xx, the answer's headers, or its trailers.
    pub(super) fn response_header(
        &mut self,
        id: u32,
        header: ResponseHeader,
        is_end: bool,
        now: Instant,
        out: &mut impl FnMut(TapEvent),
    ) {
        if let Some(stream) = self.open.get_mut(&id) {
            stream.answer.merge(header);
            if is_end {
                self.end(id, CallEnd::Complete, now, out);
            }
        }
    }

    /// The runtime sent a piece of an answer.
    pub(super) fn response_data(
        &mut self,
        id: u32,
        piece: &[u8],
        is_end: bool,
        now: Instant,
        out: &mut impl FnMut(TapEvent),
    ) {
        if let Some(stream) = self.open.get_mut(&id) {
            feed(&mut stream.response, piece, &mut self.kept);
            if is_end {
                self.end(id, CallEnd::Complete, now, out);
            }
        }
    }

    /// One side reset a stream.
    pub(super) fn reset(&mut self, id: u32, end: CallEnd, now: Instant, out: &mut impl FnMut(TapEvent)) {
        self.end(id, end, now, out);
    }

    /// The runtime does not process streams above `last`: those calls did not happen.
    pub(super) fn go_away(&mut self, last: u32, now: Instant, out: &mut impl FnMut(TapEvent)) {
        while let Some((&id, _)) = self.open.range(last.saturating_add(1)..).next() {
            self.end(id, CallEnd::Reset, now, out);
        }
    }

    /// The connection is over.
    pub(super) fn lost(&mut self, now: Instant, out: &mut impl FnMut(TapEvent)) {
        while let Some((&id, _)) = self.open.first_key_value() {
            self.end(id, CallEnd::Lost, now, out);
        }
    }

    fn method(&mut self, path: &[u8]) -> Arc<Method> {
        if let Some((_, method)) = self.last_method.as_ref().filter(|(last, _)| **last == *path) {
            return Arc::clone(method);
        }
        let known =
            self.methods.get_key_value(path).map(|(path, method)| (Arc::clone(path), Arc::clone(method)));
        let (path, method) = known.unwrap_or_else(|| {
            let (path, method) = (Arc::<[u8]>::from(path), Arc::new(Method::from_path(text(path))));
            if self.methods.len() < MAX_METHODS {
                self.methods.insert(Arc::clone(&path), Arc::clone(&method));
            }
            (path, method)
        });
        self.last_method = Some((path, Arc::clone(&method)));
        method
    }

    fn request_whole(&mut self, id: u32, out: &mut impl FnMut(TapEvent)) {
        let Some(stream) = self.open.get_mut(&id) else { return };
        if stream.call.is_some() {
            return;
        }
        let mut call = stream.call(id);
        self.kept -= stream.request.kept();
        stream.request.spoil();
        // The request is kept until the call ends.
        stream.held = call.request.weight();
        if self.kept + stream.held > MAX_KEPT {
            call.request = CriRequest::Undecoded;
            stream.held = 0;
        }
        self.kept += stream.held;
        stream.call = Some(call.clone());
        out(TapEvent::Begun(call));
    }

    fn end(&mut self, id: u32, end: CallEnd, now: Instant, out: &mut impl FnMut(TapEvent)) {
        let Some(mut stream) = self.open.remove(&id) else { return };
        // After a panic of ours, the count may be wrong; open calls are reported anyway.
        self.kept = self.kept.saturating_sub(stream.held + stream.request.kept() + stream.response.kept());
        let call = match stream.call.take() {
            Some(call) => call,
            // The message may be complete although the client has not ended the stream yet: the runtime may have
            // processed it.
            None => stream.call(id),
        };
        let (code, message) = match end {
            CallEnd::Complete => stream.answer.status(),
            CallEnd::Cancelled | CallEnd::Reset | CallEnd::Lost => (None, Box::default()),
        };
        let response = if code == Some(Code::OK) { stream.response() } else { CriResponse::Skipped };
        let response_bytes = stream.response.bytes;
        out(TapEvent::Ended(EndedCall { call, at: now, end, code, message, response_bytes, response }));
    }
}

impl Stream {
    fn call(&mut self, stream: u32) -> Call {
        let request = match (self.method.kind, self.request.whole()) {
            (CallKind::Other, _) => CriRequest::Skipped,
            (kind, Some(message)) => CriRequest::decode(kind, &message),
            (_, None) => CriRequest::Undecoded,
        };
        Call {
            origin: Arc::clone(&self.origin),
            stream,
            method: Arc::clone(&self.method),
            began: self.began,
            request_bytes: self.request.bytes,
            traceparent: self.traceparent.take(),
            request,
        }
    }

    fn response(&self) -> CriResponse {
        if self.method.kind.keeps_response() {
            match self.response.whole() {
                Some(message) => CriResponse::decode(self.method.kind, &message),
                None => CriResponse::Undecoded,
            }
        } else if self.method.kind == CallKind::ExecSync {
            self.response.measured().map_or(CriResponse::Undecoded, CriResponse::Exec)
        } else {
            CriResponse::Skipped
        }
    }
}

/// Adds messages and counts what they keep; beyond the bound, nothing is kept.
fn feed(messages: &mut Messages, piece: &[u8], kept: &mut usize) {
    let others = *kept - messages.kept();
    messages.feed(piece);
    if others + messages.kept() > MAX_KEPT {
        messages.spoil();
    }
    *kept = others + messages.kept();
}

fn response_body(kind: CallKind) -> Body {
    if kind == CallKind::ExecSync {
        Body::Measure(ExecMeter::default())
    } else if kind.keeps_response() {
        Body::Keep(Kept::default())
    } else {
        Body::Skip
    }
}
