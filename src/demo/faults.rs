//! Faults that a test asks the embedded runtime for, and the log of calls it received. Decides which fault a call
//! gets; never performs one, never does IO, never reads a clock.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tonic::Code;

/// 4,096 calls are kept for assertions; the oldest makes room for the next.
const CALLS_KEPT: usize = 4096;

/// One fault, for the calls of some methods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The method's bare name (`ExecSync`), or a glob in which `*` stands for any text.
    pub method: String,
    /// How many calls it strikes; `None` is every one until it is cleared.
    pub times: Option<u32>,
    /// What happens to them.
    pub kind: FaultKind,
}

impl Fault {
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
    /// It is not handled; the connection that it came on ends without a GOAWAY.
    DropConnection,
    /// The times in its answer are so much later, as if the clock had been set back since: ContainerStatus. Other methods
    /// answer as ever.
    LaterTimes(Duration),
    /// Its answer is made at least this many bytes long. ListContainers pads an image annotation of the first listed
    /// container (an empty list stays empty), ExecSync its standard output; other methods answer as ever.
    HugeAnswer(usize),
}

/// On a request whose answer is to have times that are so much later.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimesLaterBy(pub(super) Duration);

/// The size that an answer shall have at least; a request that carries it in its extensions asks its handler for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerAtLeast(pub(super) usize);

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
    pub fn add(&self, fault: Fault) {
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
    faults: Vec<Fault>,
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

/// Whether `glob`, in which `*` stands for any text, covers the whole of `text`.
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
        faults.add(Fault { method: "Exec*".into(), times: Some(2), kind: FaultKind::Hang });
        faults.add(Fault::once("*", FaultKind::DropConnection));
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
        faults.add(Fault::always("Version", FaultKind::Hang));
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
