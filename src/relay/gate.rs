//! Whether the runtime is there. The relay says when it found it away; whoever can ask it a question (the runtime
//! client, by a Version call) says when it is back. Until then nobody is dialled for.

use tokio::sync::watch;

/// What is known of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It answered when it was last tried, or was never tried.
    There,
    /// It ended a connection that its client still used: a Version call will tell whether it is well. Nobody else is
    /// dialled for meanwhile, which takes a millisecond where it is.
    Doubted,
    /// It could not be dialled: it must answer a Version call, or accept connections for a few seconds, before anyone is
    /// dialled for again.
    Away,
}

/// Shared by every connection; cheap to clone.
#[derive(Clone, Debug)]
pub struct Gate(watch::Sender<Presence>);

impl Default for Gate {
    fn default() -> Self {
        Self(watch::Sender::new(Presence::There))
    }
}

impl Gate {
    /// What is known now.
    pub fn presence(&self) -> Presence {
        *self.0.borrow()
    }

    /// Somebody found the runtime away. Says whether that was news.
    pub fn found_away(&self) -> bool {
        self.change(Presence::Away)
    }

    /// It ended a connection for a reason that only it knows. Says whether that was news.
    pub fn doubted(&self) -> bool {
        self.0.send_if_modified(|presence| match presence {
            Presence::There => {
                *presence = Presence::Doubted;
                true
            }
            Presence::Doubted | Presence::Away => false,
        })
    }

    /// The runtime answered a Version call, or clients are let through without. Says whether that was news.
    pub fn answered(&self) -> bool {
        self.change(Presence::There)
    }

    /// The runtime answered a Version call, and so no doubt is left. Where it was found away meanwhile it stays so.
    pub fn settled(&self) {
        self.0.send_if_modified(|presence| match presence {
            Presence::Doubted => {
                *presence = Presence::There;
                true
            }
            Presence::There | Presence::Away => false,
        });
    }

    /// Returns once the runtime is there.
    pub async fn there(&self) {
        self.reaches(Presence::There).await;
    }

    /// Returns once the runtime was found away.
    pub async fn away(&self) {
        self.reaches(Presence::Away).await;
    }

    /// Returns once there is a doubt that a Version call can settle.
    pub async fn in_doubt(&self) {
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
