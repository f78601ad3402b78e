//! What the other stages may do with the prober: report containers to it, ask it, command its probes, and make single
//! attempts of an operator on a container. An operator's attempt runs in the task of the one who asks, so that leaving
//! cancels it. It never takes a place of the probes' workers, and is not recorded.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::sync::{Semaphore, SemaphorePermit, mpsc, oneshot, watch};
use tonic::transport::Channel;

use super::{
    CommandRefusal, ContainerStatus, Input, ProbeCommand, ProbeCounts, ProbeStatus, ProberSettings,
    attempt::{AttemptOutcome, Handlers},
    command::TriggerEnd,
    demand::Standing,
    status,
    variables::Variables,
};
use crate::{
    clock,
    handler::exec::Exec,
    ids::{ContainerId, ProbeKey, ProbeKind},
    inventory::pod::{Container, ContainerState},
    spec::{ProbeSpec, plan::Planned, policy::Limits},
    stage::{Asker, Unanswered},
};

/// 4 attempts of operators at once; a further one is refused, and may be asked for again.
const ATTEMPTS_AT_ONCE: usize = 4;

/// A handle to the prober. Cheap to clone; all clones share one limit on the attempts of operators.
#[derive(Clone, Debug)]
pub struct ProberHandle {
    inputs: mpsc::Sender<Input>,
    questions: Asker<Question>,
    handlers: Handlers,
    settings: watch::Receiver<ProberSettings>,
    places: Arc<Semaphore>,
}

/// What the prober's task can be asked. All who ask the same within a short time get the same answer.
#[derive(Debug)]
pub enum Question {
    /// How many probes there are.
    Counts(oneshot::Sender<Arc<ProbeCounts>>),
    /// All probes, by namespace, pod, container and type.
    Probes(oneshot::Sender<Arc<Vec<ProbeStatus>>>),
    /// All containers, also those without probes, with their verdicts; in no order.
    Containers(oneshot::Sender<Arc<Vec<ContainerStatus>>>),
    /// All containers with what is planned for them; in no order.
    Plans(oneshot::Sender<Arc<Vec<Listed>>>),
    /// To do something with one probe.
    Command {
        /// Which probe.
        key: ProbeKey,
        /// What to do.
        command: ProbeCommand,
        /// Is sent whether it was done.
        answer: oneshot::Sender<Result<(), CommandRefusal>>,
    },
    /// To make the next attempt of a probe now.
    Trigger {
        /// Which probe.
        key: ProbeKey,
        /// Is sent where the end of the attempt will be reported, or why there will be none.
        answer: oneshot::Sender<Result<oneshot::Receiver<TriggerEnd>, CommandRefusal>>,
    },
    /// Whether a demand is still valid; answered at once, for each asker.
    Standing {
        /// The probe that asked for the act.
        key: ProbeKey,
        /// The container that is to be acted on.
        container: ContainerId,
        /// None if the container or its probe is not known any more.
        answer: oneshot::Sender<Option<Standing>>,
    },
}

/// A container that the prober knows.
#[derive(Clone, Debug)]
pub struct Listed {
    /// As it was reported last.
    pub view: Arc<Container>,
    /// At most one a type.
    pub probes: Vec<Arc<Planned>>,
}

/// One of the few places for attempts of operators; free again when it is dropped.
#[derive(Debug)]
pub struct AttemptPlace<'a> {
    prober: &'a ProberHandle,
    _permit: SemaphorePermit<'a>,
}

/// The outcome of one attempt, and how long it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptReport {
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// How long all its tries took together.
    pub duration: Duration,
}

/// Why an attempt was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotMade {
    /// Too many are under way.
    #[error("{ATTEMPTS_AT_ONCE} runs are already in progress: try again when one has ended")]
    Busy,
    /// The container could not be asked.
    #[error("{0}")]
    NotRunning(String),
}

impl ProberHandle {
    /// Over the channels of the prober's task. Commands of operators' attempts go through `runtime`, under the settings of
    /// that moment.
    pub fn new(
        inputs: mpsc::Sender<Input>,
        questions: Asker<Question>,
        runtime: Channel,
        settings: watch::Receiver<ProberSettings>,
    ) -> Self {
        let handlers = Handlers::new(&Exec::new(runtime), &settings.borrow());
        Self { inputs, questions, handlers, settings, places: Arc::new(Semaphore::new(ATTEMPTS_AT_ONCE)) }
    }

    /// The same, whose commands are run so.
    #[must_use]
    pub(crate) fn with_exec(self, exec: &Exec) -> Self {
        let handlers = Handlers::new(exec, &self.settings.borrow());
        Self { handlers, ..self }
    }

    /// What attempts are made with outside of the prober's task.
    pub(crate) fn handlers(&self) -> Handlers {
        self.handlers.clone()
    }

    /// Reports what the inventory and the plan know; false if the prober has ended.
    pub async fn report(&self, input: Input) -> bool {
        self.inputs.send(input).await.is_ok()
    }

    /// How many probes there are, by verdict and phase. Much cheaper than all of them.
    ///
    /// # Errors
    /// The prober did not answer.
    pub async fn counts(&self) -> Result<Arc<ProbeCounts>, Unanswered> {
        self.questions.ask(Question::Counts).await
    }

    /// All probes, by namespace, pod, container and type; a quarter of a second old at most.
    ///
    /// # Errors
    /// The prober did not answer.
    pub async fn probes(&self) -> Result<Arc<Vec<ProbeStatus>>, Unanswered> {
        self.questions.ask(Question::Probes).await
    }

    /// All containers, also those without probes, with their verdicts; in no order.
    ///
    /// # Errors
    /// The prober did not answer.
    pub async fn containers(&self) -> Result<Arc<Vec<ContainerStatus>>, Unanswered> {
        self.questions.ask(Question::Containers).await
    }

    /// All containers with what is planned for them; in no order.
    ///
    /// # Errors
    /// The prober did not answer.
    pub async fn plans(&self) -> Result<Arc<Vec<Listed>>, Unanswered> {
        self.questions.ask(Question::Plans).await
    }

    /// Does something with a probe. The answers to all later questions show what was done.
    ///
    /// # Errors
    /// The prober did not answer. The inner error is why nothing was done.
    pub async fn command(
        &self,
        key: ProbeKey,
        command: ProbeCommand,
    ) -> Result<Result<(), CommandRefusal>, Unanswered> {
        self.questions.ask(|answer| Question::Command { key, command, answer }).await
    }

    /// Makes the next attempt of a probe now. The receiver is sent its end, and may be dropped; it closes if the prober
    /// ends or fails.
    ///
    /// # Errors
    /// The prober did not answer. The inner error is why there will be no attempt.
    pub async fn trigger(
        &self,
        key: ProbeKey,
    ) -> Result<Result<oneshot::Receiver<TriggerEnd>, CommandRefusal>, Unanswered> {
        self.questions.ask(|answer| Question::Trigger { key, answer }).await
    }

    /// Whether a probe still asks for an act on a container, and whose the container is; none if one of them is not known
    /// any more.
    ///
    /// # Errors
    /// The prober did not answer.
    pub async fn standing(
        &self,
        key: ProbeKey,
        container: ContainerId,
    ) -> Result<Option<Standing>, Unanswered> {
        self.questions.ask(|answer| Question::Standing { key, container, answer }).await
    }

    /// A place for one attempt. It is to be taken before anything else is done for the attempt, so that all that costs has
    /// the same limit.
    ///
    /// # Errors
    /// Too many such attempts are under way.
    pub fn place(&self) -> Result<AttemptPlace<'_>, NotMade> {
        let permit = self.places.try_acquire().map_err(|_| NotMade::Busy)?;
        Ok(AttemptPlace { prober: self, _permit: permit })
    }

    /// What an attempt must keep, by the settings of this moment.
    pub fn limits(&self) -> Limits {
        self.settings.borrow().limits.clone()
    }
}

impl AttemptPlace<'_> {
    /// Makes one attempt, now, with its up to three tries, as a worker of the prober would. Dropped, it is given up,
    /// and a command in flight is cancelled.
    ///
    /// # Errors
    /// The container does not run, or is paused.
    pub async fn attempt(&self, spec: &ProbeSpec, view: &Container) -> Result<AttemptReport, NotMade> {
        if view.state != ContainerState::Running {
            return Err(NotMade::NotRunning(status::not_running(view)));
        }
        if view.is_paused {
            return Err(NotMade::NotRunning(status::CONTAINER_PAUSED.to_owned()));
        }
        let began = clock::now();
        let handlers = self.prober.handlers.under(&self.prober.settings.borrow());
        let outcome = handlers.attempt(spec, view, &Variables::default(), &OnceLock::new()).await;
        Ok(AttemptReport { outcome, duration: clock::now() - began })
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
    use crate::spec::ExecModeSetting;
    use crate::{
        handler::exec::tests::{Runtime, exec},
        prober::{
            PauseTerms,
            fixtures::{container, spec},
        },
        results::AttemptResult,
        spec::Handler,
    };

    fn prober(runtime: Runtime) -> ProberHandle {
        let handlers = Handlers { exec: exec(runtime).0, exec_mode: ExecModeSetting::Sync, node_ip: None };
        let settings = watch::channel(ProberSettings::default()).1;
        let places = Arc::new(Semaphore::new(ATTEMPTS_AT_ONCE));
        let questions = Asker::channel("prober").0;
        ProberHandle { inputs: mpsc::channel(1).0, questions, handlers, settings, places }
    }

    fn command() -> ProbeSpec {
        let handler = Handler::Exec { command: vec!["true".to_owned()] };
        ProbeSpec { handler, timeout: Duration::from_secs(3600), ..spec(ProbeKind::Readiness) }
    }

    #[tokio::test]
    async fn an_attempt_tells_how_often_it_tried_and_one_that_errs_gives_its_place_back() {
        let prober = prober(Runtime::Refuses(tonic::Code::Internal));
        for _ in 0..2 * ATTEMPTS_AT_ONCE {
            let report =
                prober.place().unwrap().attempt(&command(), &container("web", "c1", 0)).await.unwrap();
            assert_eq!((report.outcome.result, report.outcome.tries), (AttemptResult::Error, 3));
        }
        let prober = self::prober(Runtime::Answers { exit_code: 1, stdout: "no", stderr: String::new() });
        let report = prober.place().unwrap().attempt(&command(), &container("web", "c1", 0)).await.unwrap();
        assert_eq!((report.outcome.result, report.outcome.tries), (AttemptResult::Failure, 1));
        assert_eq!((report.outcome.exit_code, &*report.outcome.output), (Some(1), "no"));
    }

    #[tokio::test]
    async fn one_too_many_is_refused_and_those_that_leave_free_their_places() {
        let prober = prober(Runtime::Hangs);
        let free = prober.places.clone();
        let mut under_way = tokio::task::JoinSet::new();
        for _ in 0..ATTEMPTS_AT_ONCE {
            let prober = prober.clone();
            under_way.spawn(async move {
                prober.place().unwrap().attempt(&command(), &container("web", "c1", 0)).await
            });
        }
        while free.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let refused = prober.place().map(|_| ());
        assert_eq!(refused, Err(NotMade::Busy));
        under_way.shutdown().await;
        assert_eq!(free.available_permits(), ATTEMPTS_AT_ONCE);
    }

    #[tokio::test]
    async fn what_does_not_run_is_not_tried_and_why_is_told() {
        let prober = prober(Runtime::Hangs);
        for (state, reported) in [
            (ContainerState::Created, "the container has not been started"),
            (ContainerState::Exited { exit_code: Some(3) }, "the container exited with code 3"),
            (ContainerState::Unknown, "the runtime does not know the container's state"),
        ] {
            let view = Container { state, ..container("web", "c1", 0) };
            let refused = prober.place().unwrap().attempt(&command(), &view).await;
            assert_eq!(refused, Err(NotMade::NotRunning(reported.to_owned())));
        }
        let view = Container { is_paused: true, ..container("web", "c1", 0) };
        let refused = prober.place().unwrap().attempt(&command(), &view).await;
        assert_eq!(refused, Err(NotMade::NotRunning("the container is paused".to_owned())));
    }

    #[tokio::test]
    async fn a_prober_that_is_gone_is_reported() {
        let prober = prober(Runtime::Hangs);
        assert_eq!(prober.plans().await.unwrap_err(), Unanswered::Stopped("prober"));
        let key = ProbeKey { pod: "p".into(), container: "c".into(), kind: ProbeKind::Liveness };
        assert_eq!(
            prober.command(key, ProbeCommand::Pause(PauseTerms::default())).await,
            Err(Unanswered::Stopped("prober"))
        );
    }
}
