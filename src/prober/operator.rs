//! What an operator may do: commands to probes, and single attempts of their own on a container. Asks the prober's task
//! for what only that knows; makes the attempts in the asker's task, so that one who leaves cancels it. Never takes a
//! place of the probes' workers, and records nothing.

use std::{sync::Arc, time::Duration};

use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tonic::transport::Channel;

use super::{
    Command, Input, ProberSettings, Refusal,
    attempt::{Handlers, Tried},
    status,
};
use crate::{
    clock,
    ids::{ProbeKey, ProbeKind},
    inventory::view::{ContainerState, ContainerView},
    spec::{ProbeSpec, plan::Planned, policy::Limits},
};

/// 4 attempts of operators at once; a further one is refused, and may be asked for again.
pub const ATTEMPTS_AT_ONCE: usize = 4;

/// A way to the prober. Cheap to clone; all clones share one limit.
#[derive(Clone, Debug)]
pub struct Operator {
    inputs: mpsc::Sender<Input>,
    handlers: Handlers,
    settings: watch::Receiver<ProberSettings>,
    places: Arc<Semaphore>,
}

/// A container that the prober was told of.
#[derive(Clone, Debug)]
pub struct Listed {
    /// As it was told last.
    pub view: Arc<ContainerView>,
    /// At most one a type.
    pub probes: Vec<Arc<Planned>>,
}

/// An attempt that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// How it ended.
    pub tried: Tried,
    /// How long all its tries took together.
    pub duration: Duration,
}

/// Why an attempt was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotMade {
    /// Too many are under way.
    #[error("{ATTEMPTS_AT_ONCE} runs are under way already: try again when one has ended")]
    Busy,
    /// The container could not be asked.
    #[error("{0}")]
    NotRunning(String),
}

/// The prober's task has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the prober does not run")]
pub struct Gone;

impl Operator {
    /// Over the prober's own inputs; commands are run through `runtime`, as the settings of that moment say.
    pub fn new(
        inputs: mpsc::Sender<Input>,
        runtime: Channel,
        settings: watch::Receiver<ProberSettings>,
    ) -> Self {
        let handlers = Handlers::new(runtime, &settings.borrow());
        Self { inputs, handlers, settings, places: Arc::new(Semaphore::new(ATTEMPTS_AT_ONCE)) }
    }

    /// Has something done with a probe; what was done shows in the prober's answers to all later questions.
    ///
    /// # Errors
    /// The prober's task has ended. The inner one is why nothing was done.
    pub async fn command(&self, key: ProbeKey, command: Command) -> Result<Result<(), Refusal>, Gone> {
        self.ask(|answer| Input::Command { key, command, answer }).await
    }

    /// All containers, in no order.
    ///
    /// # Errors
    /// The prober's task has ended.
    pub async fn containers(&self) -> Result<Vec<Listed>, Gone> {
        self.ask(Input::Containers).await
    }

    /// Makes one attempt, now, with its up to three tries, as a worker of the prober would. Dropped, it is given up,
    /// and a command in flight is cancelled.
    ///
    /// # Errors
    /// The container does not run, or too many such attempts are under way.
    pub async fn attempt(&self, spec: &ProbeSpec, view: &ContainerView) -> Result<Made, NotMade> {
        if view.state != ContainerState::Running {
            return Err(NotMade::NotRunning(status::not_running(view.state)));
        }
        let _place = self.places.try_acquire().map_err(|_| NotMade::Busy)?;
        let began = clock::now();
        let handlers = self.handlers.under(&self.settings.borrow());
        let tried = handlers.attempt(spec, view).await;
        Ok(Made { tried, duration: clock::now() - began })
    }

    /// What an attempt must keep, by the settings of this moment.
    pub fn limits(&self) -> Limits {
        self.settings.borrow().limits.clone()
    }

    async fn ask<T>(&self, input: impl FnOnce(oneshot::Sender<T>) -> Input) -> Result<T, Gone> {
        let (answer, answered) = oneshot::channel();
        self.inputs.send(input(answer)).await.map_err(|_| Gone)?;
        answered.await.map_err(|_| Gone)
    }
}

impl Listed {
    /// What is planned of a type.
    pub fn planned(&self, kind: ProbeKind) -> Option<&Planned> {
        self.probes.iter().find(|planned| planned.kind == kind).map(|planned| &**planned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        handler::exec::tests::{Runtime, exec},
        prober::fixtures::{container, spec},
        results::AttemptResult,
        spec::Handler,
    };

    fn operator(runtime: Runtime) -> Operator {
        let handlers = Handlers { exec: exec(runtime).0, node_ip: None };
        let settings = watch::channel(ProberSettings::default()).1;
        let places = Arc::new(Semaphore::new(ATTEMPTS_AT_ONCE));
        Operator { inputs: mpsc::channel(1).0, handlers, settings, places }
    }

    fn command() -> ProbeSpec {
        let handler = Handler::Exec { command: vec!["true".to_owned()] };
        ProbeSpec { handler, timeout: Duration::from_secs(3600), ..spec(ProbeKind::Readiness) }
    }

    #[tokio::test]
    async fn an_attempt_tells_how_often_it_tried_and_one_that_errs_gives_its_place_back() {
        let operator = operator(Runtime::Refuses(tonic::Code::Internal));
        for _ in 0..2 * ATTEMPTS_AT_ONCE {
            let made = operator.attempt(&command(), &container("web", "c1", 0)).await.unwrap();
            assert_eq!((made.tried.result, made.tried.tries), (AttemptResult::Error, 3));
        }
        let operator = self::operator(Runtime::Answers { exit_code: 1, stdout: "no", stderr: String::new() });
        let made = operator.attempt(&command(), &container("web", "c1", 0)).await.unwrap();
        assert_eq!((made.tried.result, made.tried.tries), (AttemptResult::Failure, 1));
        assert_eq!((made.tried.exit_code, &*made.tried.output), (Some(1), "no"));
    }

    #[tokio::test]
    async fn one_too_many_is_refused_and_those_that_leave_free_their_places() {
        let operator = operator(Runtime::Hangs);
        let free = operator.places.clone();
        let mut under_way = tokio::task::JoinSet::new();
        for _ in 0..ATTEMPTS_AT_ONCE {
            let operator = operator.clone();
            under_way.spawn(async move { operator.attempt(&command(), &container("web", "c1", 0)).await });
        }
        while free.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let refused = operator.attempt(&command(), &container("web", "c1", 0)).await;
        assert_eq!(refused, Err(NotMade::Busy));
        under_way.shutdown().await;
        assert_eq!(free.available_permits(), ATTEMPTS_AT_ONCE);
    }

    #[tokio::test]
    async fn what_does_not_run_is_not_tried_and_why_is_told() {
        let operator = operator(Runtime::Hangs);
        for (state, told) in [
            (ContainerState::Created, "the container has not been started"),
            (ContainerState::Exited { exit_code: Some(3) }, "the container exited with code 3"),
            (ContainerState::Unknown, "the runtime cannot tell the container's state"),
        ] {
            let view = ContainerView { state, ..container("web", "c1", 0) };
            let refused = operator.attempt(&command(), &view).await;
            assert_eq!(refused, Err(NotMade::NotRunning(told.to_owned())));
        }
    }

    #[tokio::test]
    async fn a_prober_that_is_gone_is_told_of() {
        let operator = operator(Runtime::Hangs);
        assert_eq!(operator.containers().await.unwrap_err(), Gone);
        let key = ProbeKey { pod: "p".into(), container: "c".into(), kind: ProbeKind::Liveness };
        assert_eq!(operator.command(key, Command::Pause).await, Err(Gone));
    }
}
