//! Pairs the two directions of each stream into calls. In: header fields, data and resets of both sides, in the order
//! of the bytes; out: calls begun and ended. Never does IO, never reads a clock.
//!
//! request headers -> open --request whole--> begun --trailers--> complete
//!                       any --RST by client--> cancelled   --RST by runtime--> reset   --connection over--> lost

mod carried;

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc, time::Instant};

use super::{
    call::{Call, CallEnd, CallOrigin, Code, EndedCall, TapEvent},
    creation::CreationRequest,
    cri::{CallKind, CriRequest, CriResponse, Method, Wanted},
    exec::ExecMeter,
    header::{RequestHeader, ResponseHeader, text},
    message::{Body, Kept, Messages},
    room::{Allowance, Purpose, Room, Taken},
};
use crate::{ids::ConnId, peer::Peer};

/// 128 bytes of a path, a trace context and a user agent of its own: with more, a stream counts as several.
const PLAIN_TEXTS: usize = 128;

/// 128 bytes of a path that is none of the CRI's are kept, while its call is open or in the trace.
pub(super) const MAX_PATH: usize = 128;

/// The calls of one connection.
#[derive(Debug)]
pub(super) struct Streams {
    origin: Arc<CallOrigin>,
    /// Boxed, so that the tree moves pointers when streams come and go.
    open: BTreeMap<u32, Box<Stream>>,
    /// The highest stream that the client opened.
    highest: u32,
    allowance: Allowance,
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
    /// The request as it came, if it is kept.
    creation: Option<CreationRequest>,
    /// Bytes that it has of its connection's share.
    held: usize,
    places: Taken,
    answer: ResponseHeader,
}

impl Streams {
    /// No call yet.
    pub(super) fn new(conn: ConnId, peer: Arc<Peer>, room: &Arc<Room>) -> Self {
        let allowance = Allowance::new(room, &peer);
        Self {
            origin: Arc::new(CallOrigin { conn, peer, user_agent: Box::default() }),
            open: BTreeMap::new(),
            highest: 0,
            allowance,
        }
    }

    /// Calls that have not ended.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// Bytes of messages in memory, and bytes that are counted.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> (usize, usize) {
        let in_memory = |stream: &Stream| {
            let request = stream.call.as_ref().map_or(0, |call| call.request.weight());
            let creation = stream.creation.as_ref().map_or(0, CreationRequest::weight);
            stream.request.kept() + stream.response.kept() + request + creation
        };
        let kept = self.open.values().map(|stream| in_memory(stream)).sum();
        (kept, self.allowance.held())
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
        out: &mut dyn FnMut(TapEvent),
    ) {
        if id > self.highest {
            self.highest = id;
            let (method, own_path) = method(header.path);
            let own_agent = header.user_agent != self.origin.user_agent.as_bytes();
            let mut texts = header.traceparent.len() + own_path;
            if own_agent {
                texts += header.user_agent.len();
            }
            let places = texts.div_ceil(PLAIN_TEXTS).max(1);
            let Some(places) = self.allowance.take(method.kind, places) else {
                out(TapEvent::Untracked(1));
                return;
            };
            if own_agent {
                let user_agent = text(header.user_agent).into();
                self.origin = Arc::new(CallOrigin { user_agent, ..CallOrigin::clone(&self.origin) });
            }
            let stream = Stream {
                request: Messages::new(request_body(method.kind)),
                response: Messages::new(response_body(method.kind, self.allowance.keeps_outputs())),
                method,
                began: now,
                traceparent: Some(text(header.traceparent)).filter(|text| !text.is_empty()).map(Arc::from),
                origin: Arc::clone(&self.origin),
                call: None,
                creation: None,
                held: 0,
                places,
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
        out: &mut dyn FnMut(TapEvent),
    ) {
        if let Some(stream) = self.open.get_mut(&id) {
            stream.request.feed(piece);
            // What is behind a whole request is not kept.
            if stream.call.is_none()
                && let Some(purpose) = stream.hold(stream.request.counted(), &mut self.allowance)
            {
                self.make_room(purpose);
            }
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
        out: &mut dyn FnMut(TapEvent),
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
        out: &mut dyn FnMut(TapEvent),
    ) {
        if let Some(stream) = self.open.get_mut(&id) {
            stream.response.feed(piece);
            if is_end {
                self.end(id, CallEnd::Complete, now, out);
            }
        }
    }

    /// One side reset a stream.
    pub(super) fn reset(&mut self, id: u32, end: CallEnd, now: Instant, out: &mut dyn FnMut(TapEvent)) {
        self.end(id, end, now, out);
    }

    /// The runtime does not process streams above `last`: those calls did not happen.
    pub(super) fn go_away(&mut self, last: u32, now: Instant, out: &mut dyn FnMut(TapEvent)) {
        while let Some((&id, _)) = self.open.range(last.saturating_add(1)..).next() {
            self.end(id, CallEnd::Reset, now, out);
        }
    }

    /// The connection is over.
    pub(super) fn lost(&mut self, now: Instant, out: &mut dyn FnMut(TapEvent)) {
        while let Some((&id, _)) = self.open.first_key_value() {
            self.end(id, CallEnd::Lost, now, out);
        }
    }

    /// Drops the largest of what is kept for a purpose, until little enough is left.
    fn make_room(&mut self, purpose: Purpose) {
        let share = self.allowance.share(purpose);
        if purpose == Purpose::Creation {
            // The runtime can be asked for these.
            for stream in self.open.values_mut() {
                share.shrink(stream.forget_creation());
            }
        }
        let Some(may_stay) = share.excess() else { return };
        let is_alike = |stream: &Stream| stream.held > 0 && stream.purpose() == Some(purpose);
        let alike = self.open.iter_mut().filter(|(_, stream)| is_alike(stream));
        let mut alike: Vec<_> = alike.map(|(&id, stream)| (stream.held, Reverse(id), stream)).collect();
        alike.sort_unstable_by_key(|&(held, id, _)| (held, id));
        while share.held() > may_stay
            && let Some((held, _, stream)) = alike.pop()
        {
            stream.forget();
            share.shrink(held);
        }
    }

    fn request_whole(&mut self, id: u32, out: &mut dyn FnMut(TapEvent)) {
        let Some(stream) = self.open.get_mut(&id) else { return };
        if stream.call.is_some() {
            return;
        }
        let call = stream.call(id, self.allowance.keeps_requests());
        // A command counts as when it arrived, so that one that arrives is not the largest.
        let kept = match &call.request {
            CriRequest::ExecSync(_) | CriRequest::Exec(_) => stream.held,
            request => request.weight() + stream.creation.as_ref().map_or(0, CreationRequest::weight),
        };
        stream.hold(0, &mut self.allowance);
        stream.request.spoil();
        stream.call = Some(call.clone());
        if let Some(purpose) = stream.hold(kept, &mut self.allowance) {
            self.make_room(purpose);
        }
        out(TapEvent::Begun(call));
    }

    fn end(&mut self, id: u32, end: CallEnd, now: Instant, out: &mut dyn FnMut(TapEvent)) {
        let Some(mut stream) = self.open.remove(&id) else { return };
        self.allowance.give(stream.places);
        stream.hold(0, &mut self.allowance);
        if self.open.is_empty() {
            self.allowance.rest();
        }
        let call = match stream.call.take() {
            Some(call) => call,
            // The message may be complete although the client has not ended the stream yet: the runtime may have
            // processed it.
            None => stream.call(id, self.allowance.keeps_requests()),
        };
        let (code, message) = match end {
            CallEnd::Complete => stream.answer.status(),
            CallEnd::Cancelled | CallEnd::Reset | CallEnd::Lost => (None, Box::default()),
        };
        let response = if code == Some(Code::OK) { stream.response() } else { CriResponse::Skipped };
        let response_bytes = stream.response.bytes;
        let is_created = matches!(&response, CriResponse::Container(id) if !id.is_empty());
        let creation = stream.creation.filter(|_| is_created);
        let ended = EndedCall { call, at: now, end, code, message, response_bytes, response, creation };
        out(TapEvent::Ended(ended));
    }
}

impl Stream {
    fn call(&mut self, stream: u32, keeps_requests: bool) -> Call {
        let message = self.request.whole();
        let request = match (self.method.kind, &message) {
            (CallKind::Other, _) => CriRequest::Skipped,
            (kind, Some(message)) => CriRequest::decode(kind, message),
            (_, None) => CriRequest::Undecoded,
        };
        if keeps_requests && matches!(request, CriRequest::CreateContainer(_)) {
            self.creation = message.and_then(CreationRequest::of);
        }
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

    /// What it keeps bytes for. Ids are not counted: a stream is taken to have one.
    fn purpose(&self) -> Option<Purpose> {
        match self.method.kind.wanted()? {
            Wanted::Command => Some(Purpose::Command),
            Wanted::Creation if self.call.is_none() => Some(Purpose::Arriving),
            Wanted::Creation => Some(Purpose::Creation),
            Wanted::Id | Wanted::Filter => None,
        }
    }

    /// It keeps so many bytes now. Returns for what, if that is more than there is room for.
    fn hold(&mut self, bytes: usize, allowance: &mut Allowance) -> Option<Purpose> {
        if bytes == self.held {
            return None;
        }
        let purpose = self.purpose()?;
        let share = allowance.share(purpose);
        share.shrink(self.held);
        share.grow(bytes);
        self.held = bytes;
        share.excess().map(|_| purpose)
    }

    /// Drops the request as it came, and returns its size.
    fn forget_creation(&mut self) -> usize {
        let freed = self.creation.take().map_or(0, |creation| creation.weight());
        self.held = self.held.saturating_sub(freed);
        freed
    }

    /// Drops the details.
    fn forget(&mut self) {
        self.request.spoil();
        self.held = 0;
        if let Some(call) = &mut self.call {
            call.request = CriRequest::Undecoded;
        }
    }

    fn response(&self) -> CriResponse {
        if self.method.kind.is_answered_with_id() {
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

/// The method of a path, and how many bytes it takes if no other stream has it.
fn method(path: &[u8]) -> (Arc<Method>, usize) {
    if let Some(known) = Method::known(path) {
        return (known, 0);
    }
    let path = text(path);
    let path = &path[..path.floor_char_boundary(MAX_PATH)];
    (Arc::new(Method::from_path(path)), path.len())
}

fn request_body(kind: CallKind) -> Body {
    kind.wanted().map_or(Body::Skip, |wanted| Body::Keep(wanted, Kept::default()))
}

fn response_body(kind: CallKind, keeps_outputs: bool) -> Body {
    if kind == CallKind::ExecSync {
        Body::Measure(ExecMeter::new(keeps_outputs))
    } else if kind.is_answered_with_id() {
        Body::Keep(Wanted::Id, Kept::default())
    } else {
        Body::Skip
    }
}
