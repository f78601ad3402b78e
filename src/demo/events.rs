//! Sends events to the subscribers of GetContainerEvents. Events in, one bounded queue per subscriber out; never waits.

use tokio::sync::mpsc;
use tonic::Status;

use super::{state::State, view};
use crate::{
    ids::SandboxId,
    proto::cri::{ContainerEventResponse, ContainerEventType},
};

/// 256 events wait for a subscriber that does not read; at the next its stream ends after those, so that it knows of
/// the gap and can list anew.
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

    fn tell(&mut self, event: &ContainerEventResponse) {
        self.0.retain(|subscriber| subscriber.try_send(Ok(event.clone())).is_ok());
    }
}

impl State {
    /// Tells everyone what became of `id`, a container or the sandbox itself, with its pod as it is now.
    pub(super) fn announce(&mut self, kind: ContainerEventType, id: &str, sandbox: &SandboxId, at: i64) {
        let event = ContainerEventResponse {
            container_id: id.to_owned(),
            container_event_type: kind.into(),
            created_at: at,
            pod_sandbox_status: self.sandboxes.get(sandbox).map(view::sandbox_status),
            containers_statuses: self
                .containers_of(sandbox)
                .into_iter()
                .map(view::container_status)
                .collect(),
        };
        self.subscribers.tell(&event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
