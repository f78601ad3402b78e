//! Faults that tests inject into the embedded runtime, and the log of the calls it received. Never reads a clock. Only
//! builds with the feature `faults` contain it; others contain `no_faults.rs` instead.

use std::{
    collections::VecDeque,
    future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use http_body_util::{BodyExt, Collected, Full};
use hyper::{Request, StatusCode};
use tokio::time::sleep;
use tonic::{Code, Status, body::Body};

use super::connection::Hangup;
use crate::proto::cri;

/// 4,096 calls are kept for assertions; the oldest makes room for the next.
const CALLS_KEPT: usize = 4096;

/// One fault, for the calls of some methods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectedFault {
    /// The method's bare name (`ExecSync`), or a glob in which `*` matches any text. The streaming server's clients count
    /// as calls of a method `Stream`: `Delay`, `Code` (`PermissionDenied` is 403), `Hang` and `DropConnection` strike them.
    pub method: String,
    /// How many calls it strikes; `None` is every one until it is cleared.
    pub times: Option<u32>,
    /// What happens to them.
    pub kind: FaultKind,
}

impl InjectedFault {
    /// A fault that strikes every call of `method`.
    pub fn always(method: &str, kind: FaultKind) -> Self {
        Self { method: method.to_owned(), times: None, kind }
    }

    /// A fault that strikes the next call of `method` only.
    pub fn once(method: &str, kind: FaultKind) -> Self {
        Self { method: method.to_owned(), times: Some(1), kind }
    }
}

/// What happens to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// It waits this long before it is handled.
    Delay(Duration),
    /// It is handled at once, and its answer waits this long: a list as of then, delivered now.
    DelayAnswer(Duration),
    /// It is not handled; this is its answer.
    Code(Code, String),
    /// It is neither handled nor answered, until its client gives up.
    Hang,
    /// The same if its request holds one of these texts, as when a container's shim hangs; others are handled.
    HangAbout(Vec<String>),
    /// It is not handled if its request holds one of these texts, and this is its answer; others are handled.
    CodeAbout(Vec<String>, Code, String),
    /// It is not handled; the connection that it came on ends without a GOAWAY.
    DropConnection,
    /// The times in its answer are so much later, as if the clock had been set back since: ContainerStatus. Other methods
    /// answer as ever.
    LaterTimes(Duration),
    /// ContainerStatus answers `OOMKilled` for a container that was killed. Other methods answer as ever.
    OutOfMemory,
    /// ContainerStatus answers with another ID if its request holds one of these texts. Other methods answer as ever.
    OtherIds(Vec<String>),
    /// Its answer is made at least this many bytes long. ListContainers pads an image annotation of the first listed
    /// container (an empty list stays empty), ExecSync its standard output; other methods answer as ever.
    HugeAnswer(usize),
    /// Exec answers this URL, in which `{port}` and `{token}` are those of its own. Other methods answer as ever.
    OtherUrl(String),
}

/// A call that reached the server, as the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedCall {
    /// The method's bare name.
    pub method: String,
    /// When its headers were there.
    pub at: Instant,
}

/// A handle on a runtime's faults and its log of calls; clones share both.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<Inner>>);

impl Faults {
    /// Adds a fault. A call gets the earliest added one that matches it and has strikes left, and only that one.
    pub fn add(&self, fault: InjectedFault) {
        self.lock().faults.push(fault);
    }

    /// Removes all faults. Calls that already wait or hang go on doing so.
    pub fn clear(&self) {
        self.lock().faults.clear();
    }

    /// The calls received so far, oldest first; at most the newest 4,096.
    pub fn calls(&self) -> Vec<ReceivedCall> {
        self.lock().calls.iter().cloned().collect()
    }

    /// How many of the kept calls were of this method.
    pub fn count(&self, method: &str) -> usize {
        self.lock().calls.iter().filter(|call| call.method == method).count()
    }

    /// Notes a call, and returns what is to happen to it.
    pub(super) fn receive(&self, method: &str, at: Instant) -> Option<FaultKind> {
        let mut inner = self.lock();
        if inner.calls.len() == CALLS_KEPT {
            inner.calls.pop_front();
        }
        inner.calls.push_back(ReceivedCall { method: method.to_owned(), at });
        inner.strike(method)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct Inner {
    faults: Vec<InjectedFault>,
    calls: VecDeque<ReceivedCall>,
}

impl Inner {
    fn strike(&mut self, method: &str) -> Option<FaultKind> {
        let index = self.faults.iter().position(|fault| matches(&fault.method, method))?;
        let fault = &mut self.faults[index];
        let kind = fault.kind.clone();
        match &mut fault.times {
            None => {}
            Some(0 | 1) => drop(self.faults.remove(index)),
            Some(times) => *times -= 1,
        }
        Some(kind)
    }
}

/// Applies a fault before its call is handled. Returns the request to handle.
///
/// # Errors
/// The status to answer with instead of handling the call.
pub(super) async fn before(
    fault: Option<&FaultKind>,
    mut request: Request<Body>,
) -> Result<Request<Body>, Status> {
    match fault {
        None | Some(FaultKind::DelayAnswer(_)) => {}
        Some(FaultKind::Delay(delay)) => sleep(*delay).await,
        Some(FaultKind::Code(code, message)) => return Err(Status::new(*code, message)),
        Some(FaultKind::Hang) => future::pending().await,
        Some(FaultKind::HangAbout(texts)) => {
            let is_about;
            (request, is_about) = holds_one_of(request, texts).await;
            if is_about {
                future::pending::<()>().await;
            }
        }
        Some(FaultKind::CodeAbout(texts, code, message)) => {
            let is_about;
            (request, is_about) = holds_one_of(request, texts).await;
            if is_about {
                return Err(Status::new(*code, message));
            }
        }
        Some(FaultKind::DropConnection) => {
            if let Some(hangup) = request.extensions().get::<Hangup>() {
                hangup.call();
            }
            future::pending::<()>().await;
        }
        Some(FaultKind::LaterTimes(later_by)) => {
            request.extensions_mut().insert(Forgery { later_by: *later_by, ..Forgery::default() });
        }
        Some(FaultKind::OutOfMemory) => {
            request.extensions_mut().insert(Forgery { is_out_of_memory: true, ..Forgery::default() });
        }
        Some(FaultKind::OtherIds(texts)) => {
            let has_other_id;
            (request, has_other_id) = holds_one_of(request, texts).await;
            request.extensions_mut().insert(Forgery { has_other_id, ..Forgery::default() });
        }
        Some(FaultKind::HugeAnswer(bytes)) => {
            request.extensions_mut().insert(Forgery { at_least: *bytes, ..Forgery::default() });
        }
        Some(FaultKind::OtherUrl(url)) => {
            request.extensions_mut().insert(Forgery { url: Some(url.clone()), ..Forgery::default() });
        }
    }
    Ok(request)
}

/// Whether the message of a request holds one of these texts. One that cannot be read holds none.
async fn holds_one_of(request: Request<Body>, texts: &[String]) -> (Request<Body>, bool) {
    let (head, body) = request.into_parts();
    let bytes = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    let holds = |text: &String| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    let is_about = texts.iter().any(holds);
    (Request::from_parts(head, Body::new(Full::new(bytes))), is_about)
}

/// Applies a fault after its call was handled, before the answer is sent.
pub(super) async fn after(fault: Option<&FaultKind>) {
    if let Some(FaultKind::DelayAnswer(delay)) = fault {
        sleep(*delay).await;
    }
}

/// Applies a fault before the handshake of a client of the streaming server.
///
/// # Errors
/// The status to answer with instead; without one, the connection ends at once.
pub(super) async fn before_stream(fault: Option<&FaultKind>) -> Result<(), Option<StatusCode>> {
    match fault {
        Some(FaultKind::Delay(delay)) => sleep(*delay).await,
        Some(FaultKind::Code(Code::PermissionDenied, _)) => return Err(Some(StatusCode::FORBIDDEN)),
        Some(FaultKind::Code(..)) => return Err(Some(StatusCode::SERVICE_UNAVAILABLE)),
        Some(FaultKind::Hang) => future::pending().await,
        Some(FaultKind::DropConnection) => return Err(None),
        _ => {}
    }
    Ok(())
}

/// How to alter an answer; not at all by default. Travels in the extensions of the request.
#[derive(Clone, Debug, Default)]
pub(super) struct Forgery {
    at_least: usize,
    later_by: Duration,
    has_other_id: bool,
    is_out_of_memory: bool,
    url: Option<String>,
}

impl Forgery {
    /// How to alter the answer to this request.
    pub(super) fn of<T>(request: &tonic::Request<T>) -> Self {
        request.extensions().get().cloned().unwrap_or_default()
    }

    pub(super) fn list(self, mut list: cri::ListContainersResponse) -> cri::ListContainersResponse {
        if let (1.., Some(first)) = (self.at_least, list.containers.first_mut()) {
            let image = first.image.get_or_insert_default();
            image.annotations.insert("padding".to_owned(), "x".repeat(self.at_least));
        }
        list
    }

    pub(super) fn status(self, mut found: cri::ContainerStatusResponse) -> cri::ContainerStatusResponse {
        let later = i64::try_from(self.later_by.as_nanos()).unwrap_or(i64::MAX);
        if let Some(status) = &mut found.status {
            for time in [&mut status.created_at, &mut status.started_at] {
                // What has not happened yet has no time.
                *time = if *time > 0 { time.saturating_add(later) } else { *time };
            }
            if self.is_out_of_memory && status.exit_code == 137 {
                "OOMKilled".clone_into(&mut status.reason);
            }
            if self.has_other_id {
                status.id.insert_str(0, "other-");
            }
        }
        found
    }

    pub(super) fn output(self, mut result: cri::ExecSyncResponse) -> cri::ExecSyncResponse {
        if self.at_least > result.stdout.len() {
            result.stdout.resize(self.at_least, b'x');
        }
        result
    }

    pub(super) fn url(self, mut answer: cri::ExecResponse) -> cri::ExecResponse {
        if let Some(other) = self.url {
            let (head, token) = answer.url.rsplit_once('/').unwrap_or_default();
            let port = head.rsplit(':').next().and_then(|rest| rest.split('/').next()).unwrap_or_default();
            answer.url = other.replace("{port}", port).replace("{token}", token);
        }
        answer
    }
}

/// Whether `glob`, in which `*` matches any text, covers the whole of `text`.
fn matches(glob: &str, text: &str) -> bool {
    match glob.split_once('*') {
        None => glob == text,
        Some((head, rest)) => text.strip_prefix(head).is_some_and(|tail| {
            tail.char_indices().map(|(at, _)| at).chain([tail.len()]).any(|at| matches(rest, &tail[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_covers_the_whole_name() {
        let cases = [
            ("ExecSync", "ExecSync", true),
            ("Exec", "ExecSync", false),
            ("*", "ExecSync", true),
            ("*", "", true),
            ("List*", "ListContainers", true),
            ("List*", "ContainerStatus", false),
            ("*Status", "PodSandboxStatus", true),
            ("*Status", "StatusOf", false),
            ("*Pod*", "RunPodSandbox", true),
            ("*a*a", "banana", true),
        ];
        for (glob, text, expected) in cases {
            assert_eq!(matches(glob, text), expected, "{glob} against {text}");
        }
    }

    #[test]
    fn the_earliest_fault_strikes_until_it_is_used_up() {
        let faults = Faults::default();
        faults.add(InjectedFault { method: "Exec*".into(), times: Some(2), kind: FaultKind::Hang });
        faults.add(InjectedFault::once("*", FaultKind::DropConnection));
        let now = crate::clock::now();
        let strike = |method| faults.receive(method, now);
        assert_eq!(strike("ExecSync"), Some(FaultKind::Hang));
        assert_eq!(strike("Version"), Some(FaultKind::DropConnection));
        assert_eq!(strike("Version"), None);
        assert_eq!(strike("ExecSync"), Some(FaultKind::Hang));
        assert_eq!(strike("ExecSync"), None);
        assert_eq!(faults.count("ExecSync"), 3);
    }

    #[test]
    fn a_fault_without_a_number_strikes_until_cleared() {
        let faults = Faults::default();
        faults.add(InjectedFault::always("Version", FaultKind::Hang));
        let now = crate::clock::now();
        for _ in 0..5 {
            assert_eq!(faults.receive("Version", now), Some(FaultKind::Hang));
        }
        faults.clear();
        assert_eq!(faults.receive("Version", now), None);
    }

    #[test]
    fn the_log_keeps_the_newest_calls() {
        let faults = Faults::default();
        let now = crate::clock::now();
        faults.receive("First", now);
        for _ in 0..CALLS_KEPT {
            faults.receive("Later", now);
        }
        assert_eq!(faults.count("First"), 0);
        assert_eq!(faults.calls().len(), CALLS_KEPT);
    }
}
