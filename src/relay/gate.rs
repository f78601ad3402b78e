//! Whether the runtime is available. The relay reports that it is away; the runtime client reports, after a Version
//! call, that it is back. Until then, no connections are made for clients.

use std::time::{Duration, Instant};

use tokio::sync::watch;

/// 1 s after a Version call or a doubt ended, a closed connection causes no doubt: what was just found out still holds.
/// So a client whose connections the runtime closes cannot hold others again and again.
const CALM: Duration = Duration::from_secs(1);

/// What is known of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It answered when it was last tried, or was never tried.
    There,
    /// It closed a connection that its client still used: a Version call will show whether it works. Meanwhile, no
    /// connection is made for other clients; this takes a millisecond if it works, and 250 ms at most.
    Doubted,
    /// It could not be dialled: it must answer a Version call, or accept connections for a few seconds, before
    /// connections are made again.
    Away,
}

#[derive(Debug)]
struct State {
    presence: Presence,
    /// No doubt before then.
    calm_until: Option<Instant>,
}

/// Shared by every connection; cheap to clone.
#[derive(Clone, Debug)]
pub struct Gate(watch::Sender<State>);

impl Default for Gate {
    fn default() -> Self {
        Self(watch::Sender::new(State { presence: Presence::There, calm_until: None }))
    }
}

impl Gate {
    /// What is known now.
    pub fn presence(&self) -> Presence {
        self.0.borrow().presence
    }

    /// Records that the runtime is away. Returns whether this is a change.
    pub fn found_away(&self) -> bool {
        self.change(Presence::Away, None)
    }

    /// Records that it closed a connection for an unknown reason. Returns whether this is a change: not if a Version call
    /// or a doubt ended less than a second ago.
    pub fn doubted(&self, now: Instant) -> bool {
        self.0.send_if_modified(|state| {
            let is_change =
                state.presence == Presence::There && state.calm_until.is_none_or(|until| now >= until);
            if is_change {
                state.presence = Presence::Doubted;
            }
            is_change
        })
    }

    /// Records that the runtime answered a Version call, or that clients are connected without one. Returns whether
    /// this is a change.
    pub fn answered(&self, now: Instant) -> bool {
        self.change(Presence::There, Some(now + CALM))
    }

    /// Records the end of a Version call, or that a doubt has lasted long enough: there is no doubt any more. If the
    /// runtime was found away in the meantime, it stays away.
    pub fn settled(&self, now: Instant) {
        self.0.send_if_modified(|state| {
            state.calm_until = Some(now + CALM);
            let is_change = state.presence == Presence::Doubted;
            if is_change {
                state.presence = Presence::There;
            }
            is_change
        });
    }

    /// Returns once the runtime is available.
    pub async fn there(&self) {
        self.reaches(Presence::There).await;
    }

    /// Returns once the runtime is away.
    pub async fn away(&self) {
        self.reaches(Presence::Away).await;
    }

    /// Returns once there is a doubt that a Version call can resolve.
    pub async fn in_doubt(&self) {
        self.reaches(Presence::Doubted).await;
    }

    fn change(&self, to: Presence, calm_until: Option<Instant>) -> bool {
        self.0.send_if_modified(|state| {
            state.calm_until = calm_until;
            std::mem::replace(&mut state.presence, to) != to
        })
    }

    async fn reaches(&self, wanted: Presence) {
        let mut watcher = self.0.subscribe();
        // It cannot fail: the sender lives in `self`.
        let _ = watcher.wait_for(|state| state.presence == wanted).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn within_a_second_of_an_answer_or_of_a_doubt_there_is_no_other() {
        let gate = Gate::default();
        let start = clock::now();
        let at = |millis| start + Duration::from_millis(millis);
        assert!(gate.doubted(at(0)));
        assert!(!gate.doubted(at(0)), "it is doubted already");
        gate.settled(at(100));
        assert!(!gate.doubted(at(1_099)));
        assert_eq!(gate.presence(), Presence::There);
        assert!(gate.doubted(at(1_100)));
        assert!(gate.answered(at(2_000)));
        assert!(!gate.doubted(at(2_999)));
        // An answer that no doubt asked for counts, too.
        gate.settled(at(3_000));
        assert!(!gate.doubted(at(3_999)));
        assert!(gate.doubted(at(4_000)));
        assert!(gate.found_away());
        assert!(!gate.doubted(at(9_000)), "what is away is not doubted");
    }
}
