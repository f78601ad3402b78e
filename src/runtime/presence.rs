//! What a Version call shows about a runtime: whether it is available, and how long clients wait while it does not
//! answer properly. Answers and moments in, decisions out; never does IO, never reads a clock.

use std::{
    error::Error as _,
    time::{Duration, Instant},
};

use tonic::{Code, Status};

use super::Version;

/// 3 s: how long clients wait for a runtime that accepts connections and does not answer Version properly. During a
/// restart of containerd, this state lasts some tens of milliseconds. After that, clients are connected, and the
/// runtime answers them itself.
const HOLD: Duration = Duration::from_secs(3);

/// 250 ms: how long clients wait at most because the runtime closed a connection that its client still used. After that,
/// they are connected, and the runtime answers them itself.
pub(super) const DOUBT: Duration = Duration::from_millis(250);

/// The answer of containerd 1.6, with code UNKNOWN, while it starts; 2.x answers Unavailable.
const NOT_INITIALIZED: &str = "server is not initialized yet";

/// The outcome of a Version call.
#[derive(Debug)]
pub(crate) enum PresenceAnswer {
    /// It reported its name and version.
    Version(Version),
    /// It answered with an error: it does not serve this version of the CRI, or its CRI plugin is disabled.
    Refusal(Status),
    /// It accepted the call and did not answer in time.
    Silence(Status),
    /// It does not accept calls, or not yet.
    Away(Status),
}

impl PresenceAnswer {
    /// The outcome for this result of a Version call.
    pub(crate) fn of(outcome: Result<Version, Status>) -> Self {
        match outcome {
            Ok(version) => Self::Version(version),
            Err(status) if is_away(&status) => Self::Away(status),
            Err(status) if matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled) => {
                Self::Silence(status)
            }
            Err(status) => Self::Refusal(status),
        }
    }
}

/// A status that the server sent has no source; one that the transport created from its own error does.
fn is_away(status: &Status) -> bool {
    status.source().is_some()
        || status.code() == Code::Unavailable
        || (status.code() == Code::Unknown && status.message().contains(NOT_INITIALIZED))
}

/// Decides how long clients wait while the runtime does not answer Version properly.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    accepts_since: Option<Instant>,
    is_over: bool,
    is_reported: bool,
}

impl Hold {
    /// Whether clients are to be connected. `accepts`: the runtime's socket accepts connections. `is_shut`: clients are
    /// waiting now, so that a runtime that was found away after they had been connected makes them wait again.
    pub(crate) fn is_over(&mut self, accepts: bool, is_shut: bool, now: Instant) -> bool {
        if !accepts || (self.is_over && is_shut) {
            (self.accepts_since, self.is_over) = (None, false);
        }
        if accepts {
            let since = *self.accepts_since.get_or_insert(now);
            self.is_over = now.saturating_duration_since(since) >= HOLD;
        }
        self.is_over
    }

    /// Whether it was not reported yet that clients are connected: once, however often the relay doubts the runtime.
    pub(crate) fn is_news(&mut self) -> bool {
        !std::mem::replace(&mut self.is_reported, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_server_answers_is_presence_unless_it_says_that_it_is_not_ready() {
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let kind = |status| match PresenceAnswer::of(Err(status)) {
            PresenceAnswer::Version(_) => "version",
            PresenceAnswer::Refusal(_) => "refusal",
            PresenceAnswer::Silence(_) => "silence",
            PresenceAnswer::Away(_) => "away",
        };
        for (status, expected) in [
            (Status::unimplemented("unknown service runtime.v1.RuntimeService"), "refusal"),
            (Status::internal("no"), "refusal"),
            (Status::unknown("something else"), "refusal"),
            (Status::permission_denied("not you"), "refusal"),
            (Status::unknown("server is not initialized yet"), "away"),
            (Status::unavailable("server is not initialized yet"), "away"),
            (Status::deadline_exceeded("no answer within 5 s"), "silence"),
            (Status::cancelled("Timeout expired"), "silence"),
            (Status::from_error(Box::new(reset)), "away"),
        ] {
            assert_eq!(kind(status.clone()), expected, "{status:?}");
        }
    }

    #[test]
    fn clients_are_held_for_3_s_from_the_moment_that_the_socket_accepts() {
        let start = crate::clock::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut hold = Hold::default();
        for (accepts, is_shut, millis, is_over) in [
            (false, true, 0, false),
            (true, true, 1_000, false),
            (true, true, 3_900, false),
            (true, true, 4_000, true),
            (true, false, 9_000, true),
            // The relay was refused: the time starts again.
            (true, true, 9_100, false),
            (true, true, 12_000, false),
            (true, true, 12_100, true),
            (false, false, 12_200, false),
            (true, true, 12_300, false),
            (true, true, 15_300, true),
        ] {
            assert_eq!(hold.is_over(accepts, is_shut, at(millis)), is_over, "at {millis}");
        }
    }

    #[test]
    fn that_clients_are_connected_is_news_once() {
        let (mut hold, start) = (Hold::default(), crate::clock::now());
        assert!(hold.is_news());
        hold.is_over(false, true, start);
        assert!(!hold.is_news(), "neither after it was refused");
    }
}
