//! Whether the runtime is available. The relay reports that it is away; the runtime client reports, after a Version
//! call, that it is back. Until then, no connections are made for clients.

use tokio::sync::watch;

/// What is known of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It answered when it was last tried, or was never tried.
    There,
    /// It closed a connection that its client still used: a Version call will show whether it works. Meanwhile, no
    /// connection is made for other clients; this takes a millisecond if it works.
    Doubted,
    /// It could not be dialled: it must answer a Version call, or accept connections for a few seconds, before
    /// connections are made again.
    Away,
}

/// Shared by every connection; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Gate(watch::Sender<Presence>);

impl Default for Gate {
    fn default() -> Self {
        Self(watch::Sender::new(Presence::There))
    }
}

impl Gate {
    /// What is known now.
    pub(crate) fn presence(&self) -> Presence {
        *self.0.borrow()
    }

    /// Records that the runtime is away. Returns whether this is a change.
    pub(crate) fn found_away(&self) -> bool {
        self.change(Presence::Away)
    }

    /// Records that it closed a connection for an unknown reason. Returns whether this is a change.
    pub(crate) fn doubted(&self) -> bool {
        self.0.send_if_modified(|presence| match presence {
            Presence::There => {
                *presence = Presence::Doubted;
                true
            }
            Presence::Doubted | Presence::Away => false,
        })
    }

    /// Records that the runtime answered a Version call, or that clients are connected without one. Returns whether
    /// this is a change.
    pub(crate) fn answered(&self) -> bool {
        self.change(Presence::There)
    }

    /// Records an answered Version call, which removes a doubt. If the runtime was found away in the meantime, it stays
    /// away.
    pub(crate) fn settled(&self) {
        self.0.send_if_modified(|presence| match presence {
            Presence::Doubted => {
                *presence = Presence::There;
                true
            }
            Presence::There | Presence::Away => false,
        });
    }

    /// Returns once the runtime is available.
    pub(crate) async fn there(&self) {
        self.reaches(Presence::There).await;
    }

    /// Returns once the runtime is away.
    pub(crate) async fn away(&self) {
        self.reaches(Presence::Away).await;
    }

    /// Returns once there is a doubt that a Version call can resolve.
    pub(crate) async fn in_doubt(&self) {
        self.reaches(Presence::Doubted).await;
    }

    fn change(&self, to: Presence) -> bool {
        self.0.send_if_modified(|presence| std::mem::replace(presence, to) != to)
    }

    async fn reaches(&self, wanted: Presence) {
        let mut watcher = self.0.subscribe();
        // It cannot fail: the sender lives in `self`.
        let _ = watcher.wait_for(|presence| *presence == wanted).await;
    }
}
