//! What the runtime shows of a container before an act: its id and the state that the act expects in, its condition out.

use std::time::Duration;

use tokio::time::sleep;
use tonic::Status;

use super::Performer;
use crate::{ids::ContainerId, proto::cri::ContainerState, runtime::condition::ContainerCondition};

/// 10 looks, 100 ms apart: containerd sends the event of an exit while ContainerStatus still shows the container as running.
const LOOKS: (u32, Duration) = (10, Duration::from_millis(100));

impl Performer {
    /// A container's condition, if it is in this state. One that is expected to have exited may still be shown as running for
    /// about a second.
    pub(super) async fn condition_in(
        &self,
        expected: ContainerState,
        id: &ContainerId,
    ) -> Result<Option<ContainerCondition>, Status> {
        let mut looks = 1;
        loop {
            let condition = self.runtime.condition(id.as_str()).await?;
            let is_late = condition.as_ref().is_some_and(|condition| {
                (condition.state, expected)
                    == (ContainerState::ContainerRunning, ContainerState::ContainerExited)
            });
            if !is_late || looks == LOOKS.0 {
                return Ok(condition.filter(|condition| condition.state == expected));
            }
            looks += 1;
            sleep(LOOKS.1).await;
        }
    }
}
