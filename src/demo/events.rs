//! Sends events to the subscribers of the CRI's and of containerd's event service. Events in, one bounded queue per subscriber out; never waits.

use tokio::sync::mpsc;
use tonic::Status;

use crate::proto::{containerd::Envelope, cri::ContainerEventResponse};

/// 256 events wait for a subscriber that does not read; at the next its stream ends after those, so that it knows of
/// the gap and can list again.
pub(super) const QUEUE: usize = 256;

/// What a subscriber of GetContainerEvents receives.
pub(super) type Event = Result<ContainerEventResponse, Status>;

/// Everyone who listens. Dropping this ends every stream.
#[derive(Default)]
pub(super) struct Subscribers {
    pub(super) cri: SubscribersOf<ContainerEventResponse>,
    pub(super) containerd: SubscribersOf<Envelope>,
}

/// The subscribers of one service.
pub(super) struct SubscribersOf<E>(Vec<mpsc::Sender<Result<E, Status>>>);

impl<E> Default for SubscribersOf<E> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<E: Clone> SubscribersOf<E> {
    /// Adds one; it hears everything from now on.
    pub(super) fn add(&mut self) -> mpsc::Receiver<Result<E, Status>> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        self.0.retain(|other| !other.is_closed());
        self.0.push(sender);
        receiver
    }

    /// Sends an event to all. A subscriber that does not keep up gets no more.
    pub(super) fn send(&mut self, event: &E) {
        self.0.retain(|subscriber| subscriber.try_send(Ok(event.clone())).is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{demo::state::State, ids::SandboxId, proto::cri::ContainerEventType};

    #[test]
    fn a_subscriber_that_does_not_read_loses_its_stream_after_what_was_queued() {
        let mut state = State::default();
        let mut slow = state.subscribers.cri.add();
        let mut quick = state.subscribers.cri.add();
        let sandbox = SandboxId::from("pod");
        for number in 0..=QUEUE {
            let id = number.to_string();
            state.announce(ContainerEventType::ContainerStartedEvent, &id, &sandbox, 0);
            assert_eq!(quick.try_recv().unwrap().unwrap().container_id, id);
        }
        for _ in 0..QUEUE {
            assert!(slow.try_recv().unwrap().is_ok());
        }
        assert_eq!(slow.try_recv().unwrap_err(), mpsc::error::TryRecvError::Disconnected);
        assert_eq!(quick.try_recv().unwrap_err(), mpsc::error::TryRecvError::Empty);
    }
}
