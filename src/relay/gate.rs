//! Whether the runtime is there. The relay says when it found it away; whoever can ask it a question (the runtime
//! client, by a Version call) says when it is back. Until then nobody is dialled for.

use tokio::sync::watch;

/// What is known of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It answered when it was last tried, or was never tried.
    There,
    /// A dial failed, or it ended a connection: it must answer a Version call before anyone is dialled for again.
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

    /// The runtime answered a Version call. Says whether that was news.
    pub fn answered(&self) -> bool {
        self.change(Presence::There)
    }

    /// Returns once the runtime is there.
    pub async fn there(&self) {
        self.reaches(Presence::There).await;
    }

    /// Returns once the runtime was found away.
    pub async fn away(&self) {
        self.reaches(Presence::Away).await;
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
