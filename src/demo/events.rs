//! Sends events to the subscribers of GetContainerEvents. Events in, one bounded queue per subscriber out; never waits.

use tokio::sync::mpsc;
use tonic::Status;

use crate::proto::cri::ContainerEventResponse;

/// 256 events wait for a subscriber that does not read; at the next its stream ends after those, so that it knows of
/// the gap and can list again.
pub(super) const QUEUE: usize = 256;

/// What a subscriber receives.
pub(super) type Event = Result<ContainerEventResponse, Status>;

/// Everyone who listens.
#[derive(Default)]
pub(super) struct Subscribers(Vec<mpsc::Sender<Event>>);

impl Subscribers {
    /// Adds one; it hears everything from now on.
    pub(super) fn add(&mut self) -> mpsc::Receiver<Event> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        self.0.retain(|other| !other.is_closed());
        self.0.push(sender);
        receiver
    }

    /// Ends every stream.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Sends an event to all. A subscriber that does not keep up gets no more.
    pub(super) fn send(&mut self, event: &ContainerEventResponse) {
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
        let mut slow = state.subscribers.add();
        let mut quick = state.subscribers.add();
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
