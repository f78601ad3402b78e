//! The first half of an act: what runs before a container is stopped, and the stop itself.

use std::time::Duration;

use tokio::{select, time::sleep};
use tonic::Code;

use super::{
    super::{
        News, grace, hook,
        ledger::{IntentStep, Wall, describe},
        status::{CommandReport, Step},
    },
    Act, HandsOff, LOOK, said,
};
use crate::{
    clock, faults,
    prober::Input,
    proto::cri::ContainerState,
    results::event::ActNotice,
    runtime::condition::{ContainerCondition, PRE_STOP},
    spec::{self, FailureCommand, OnFailure, ProbeSpec},
};

/// 1 s, doubled up to 30 s: the pause before the next try of a stop that failed.
const STOP_AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// 10 s: a container that still runs so long after its grace period was not asked to end.
const LAST_WORD: Duration = Duration::from_secs(10);

impl Act<'_> {
    /// Runs the command before the act, then the preStop hook. Returns what is left of the grace period.
    ///
    /// # Errors
    /// A client took the container over.
    pub(super) async fn ready_to_stop(
        &self,
        spec: &ProbeSpec,
        condition: &ContainerCondition,
    ) -> Result<Duration, HandsOff> {
        let before = async {
            if let Some(command) = &spec.on_failure_command {
                self.run_command(command, spec).await;
            }
            if self.action == OnFailure::Kill {
                return Duration::ZERO;
            }
            let default = self.on.settings.borrow().grace;
            let period = grace::period(spec.termination_grace, &condition.annotations, default);
            grace::rest(period, self.run_hook(condition, period).await)
        };
        select! {
            rest = before => Ok(rest),
            hands_off = self.claimed(false) => Err(hands_off),
        }
    }

    async fn run_command(&self, command: &FailureCommand, spec: &ProbeSpec) {
        self.step(Step::Command);
        faults::point("act-command").await;
        let report = hook::run_command(command, spec, &self.on.handlers(), &self.view).await;
        let CommandReport { exit_code, output, took: _ } = &report;
        self.report(ActNotice::CommandEnded { exit_code: *exit_code, output: output.clone() }).await;
        let note = Input::ActNote { key: self.key.clone(), text: report.in_words() };
        self.on.prober.report(note).await;
        self.on.board.place(&self.place, |status| {
            if let Some(last) = &mut status.last {
                last.command = Some(report);
            }
        });
    }

    /// Runs the container's preStop hook, if it has one; returns how long that took.
    async fn run_hook(&self, condition: &ContainerCondition, within: Duration) -> Duration {
        let began = clock::now();
        let limits = self.on.probing.borrow().limits.clone();
        let Some(written) = condition.annotations.get(PRE_STOP).filter(|_| !within.is_zero()) else {
            return Duration::ZERO;
        };
        let ran = match spec::hook::read(written, &limits) {
            Ok(hook) => {
                self.step(Step::Hook);
                faults::point("act-hook").await;
                hook::run(&hook, &self.on.handlers(), &self.view, within).await
            }
            Err(error) => Err(error.to_string().into()),
        };
        if let Err(reason) = ran {
            self.report(ActNotice::HookFailed { reason }).await;
        }
        clock::now().saturating_duration_since(began)
    }

    /// Stops the container, and returns when it does not run any more. What the runtime does not do is tried again: the
    /// container may have been asked to end already.
    ///
    /// # Errors
    /// A client took the container over, or it is not to be stopped any more.
    pub(super) async fn stop(&self, grace: Duration) -> Result<(), HandsOff> {
        let deadline = clock::wall() + grace;
        self.may_stop().await.inspect_err(|_| self.claim_end(false))?;
        let recorded = self.on.record(|content| {
            if let Some(intent) = content.intent(&self.view.id) {
                (intent.step, intent.stop_deadline) = (IntentStep::Stopping, Some(Wall(deadline)));
            }
        });
        if let Err(error) = recorded.await {
            self.claim_end(false);
            return Err(HandsOff::NotRecorded(describe(&error)));
        }
        self.step(Step::Stopping);
        let mut pause = STOP_AGAIN.0;
        let mut is_first = true;
        loop {
            faults::point("act-stopping").await;
            let left = deadline.duration_since(clock::wall()).unwrap_or_default().min(grace);
            let failed = match self.on.runtime.stop_container(&self.view.id, left).await {
                Ok(()) => None,
                Err(status) if status.code() == Code::NotFound => return Err(HandsOff::Removed),
                Err(status) => Some(status),
            };
            let condition = self.on.runtime.condition(self.view.id.as_str()).await;
            let reason = match (condition, failed) {
                (Ok(None), _) => return Err(HandsOff::Removed),
                (Ok(Some(condition)), _) if condition.state != ContainerState::ContainerRunning => break,
                (_, Some(status)) => said(&status),
                (Err(status), None) => said(&status),
                (Ok(Some(_)), None) => "the container still runs after it was stopped".to_owned(),
            };
            if std::mem::take(&mut is_first) {
                self.report(ActNotice::Failed { action: self.action, reason: reason.as_str().into() }).await;
                // Others do not wait for a container that cannot be stopped.
                self.send(News::Freed(self.view.id.clone())).await;
            }
            self.step(Step::Retrying { reason, at: Some(clock::wall() + pause) });
            select! {
                () = sleep(pause) => {}
                hands_off = self.claimed(false) => return Err(hands_off),
            }
            if let Err(unwanted) = self.may_stop().await {
                return self.outlast(left, unwanted).await;
            }
            pause = (pause * 2).min(STOP_AGAIN.1);
        }
        faults::point("act-stopped").await;
        Ok(())
    }

    /// A container that was asked to end, and is not to be stopped any more: what was asked may still end it, which is our doing.
    /// Meanwhile others have their turn.
    ///
    /// # Errors
    /// It runs on, for the reason `unwanted`; or a client removed it.
    pub(super) async fn outlast(&self, grace: Duration, unwanted: HandsOff) -> Result<(), HandsOff> {
        self.send(News::Freed(self.view.id.clone())).await;
        let until = clock::now() + grace + LAST_WORD;
        while clock::now() < until {
            match self.on.runtime.condition(self.view.id.as_str()).await {
                Ok(None) => return Err(HandsOff::Removed),
                Ok(Some(condition)) if condition.state != ContainerState::ContainerRunning => return Ok(()),
                Ok(Some(_)) | Err(_) => sleep(LOOK).await,
            }
        }
        self.claim_end(false);
        Err(unwanted)
    }
}
