//! The services of containerd that a runtime has which poses as it: events, and tasks, which show what is paused. State
//! in, answers out.

use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::{
    envelope::NAMESPACE,
    service::Runtime,
    state::{Container, Run},
};
use crate::proto::containerd::{
    Envelope, SubscribeRequest,
    events_server::Events,
    tasks::{
        GetRequest, GetResponse, ListTasksRequest, ListTasksResponse, Process, Status as TaskStatus,
        tasks_server::Tasks,
    },
};

#[tonic::async_trait]
impl Events for Runtime {
    type SubscribeStream = ReceiverStream<Result<Envelope, Status>>;

    async fn subscribe(
        &self,
        _: Request<SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let mut state = self.0.state();
        state.admit()?;
        Ok(Response::new(ReceiverStream::new(state.subscribers.containerd.add())))
    }
}

#[tonic::async_trait]
impl Tasks for Runtime {
    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        has_namespace(&request)?;
        let id = request.into_inner().container_id;
        let state = self.0.state();
        let process = state.containers.get(id.as_str()).and_then(task);
        let unknown = || Status::not_found(format!("container {id:?} in namespace {NAMESPACE:?}: not found"));
        Ok(Response::new(GetResponse { process: Some(process.ok_or_else(unknown)?) }))
    }

    async fn list(&self, request: Request<ListTasksRequest>) -> Result<Response<ListTasksResponse>, Status> {
        has_namespace(&request)?;
        let tasks = self.0.state().containers.values().filter_map(task).collect();
        Ok(Response::new(ListTasksResponse { tasks }))
    }
}

fn has_namespace<T>(request: &Request<T>) -> Result<(), Status> {
    match request.metadata().get("containerd-namespace") {
        Some(namespace) if namespace == NAMESPACE => Ok(()),
        Some(_) | None => Err(Status::failed_precondition("namespace is required: failed precondition")),
    }
}

/// A container's task, if it runs.
fn task(container: &Container) -> Option<Process> {
    let is_paused = |run: &Run| *run.paused.borrow();
    let status = if is_paused(container.run()?) { TaskStatus::Paused } else { TaskStatus::Running };
    Some(Process { id: container.id.to_string(), status: status.into() })
}
