//! What is done about the intents that a former run left: undone if nothing was asked of the runtime yet, else finished.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;
use tonic::Code;

use super::{
    super::{
        grace,
        ledger::{Intent, IntentStep},
        status::{ActEnd, Step},
    },
    Act, HandsOff, NotNow, Performer,
};
use crate::{
    clock,
    ids::ContainerId,
    inventory::pod::Container,
    prober::Input,
    proto::cri::ContainerState,
    results::event::{ActCause, ActNotice},
    runtime::condition::ContainerCondition,
    spec::OnFailure,
};
/// 2 min after its grace period, a stop of a former run is not asked for again: much may have changed since.
const STILL_WANTED: Duration = Duration::from_secs(120);

/// 60 s: how long a container is looked for in silence.
const PATIENCE: Duration = Duration::from_secs(60);

/// 500 ms: how often the runtime and the inventory are asked for a container until both know it.
const ASK: Duration = Duration::from_millis(500);

impl Performer {
    /// Finishes or undoes an act, once. Returns when that is done, which may be long: the runtime may be away.
    pub(in crate::act) async fn resume(&self, intent: Intent) {
        let container = intent.container.clone();
        self.giving_way(&container, self.go_on(intent)).await;
    }

    async fn go_on(&self, intent: Intent) {
        let Some((view, condition)) = self.found(&intent.container).await else {
            tracing::info!(container.id = %intent.container, "an act was under way on a container that is gone");
            let until = clock::now() + PATIENCE;
            while let Err(status) = self.abandon_successor(&intent).await {
                if status.code() == Code::NotFound || clock::now() > until {
                    break;
                }
                sleep(ASK).await;
            }
            self.note(|content| content.end(&intent.container)).await;
            return;
        };
        Act::of(self, view, &intent).resume(intent, &condition).await;
    }

    /// A container that both the runtime and the prober know; none if the runtime does not.
    async fn found(&self, id: &ContainerId) -> Option<(Arc<Container>, ContainerCondition)> {
        let mut patience = Some(clock::now() + PATIENCE);
        loop {
            if patience.take_if(|until| *until <= clock::now()).is_some() {
                tracing::warn!(container.id = %id, "an act under way cannot go on before the runtime has listed its container");
            }
            match self.runtime.condition(id.as_str()).await {
                Ok(None) => return None,
                Ok(Some(condition)) => {
                    let listed = self.prober.plans().await.ok();
                    let view =
                        listed.and_then(|all| Some(all.iter().find(|one| one.view.id == *id)?.view.clone()));
                    if let Some(view) = view {
                        return Some((view, condition));
                    }
                }
                Err(_) => {}
            }
            sleep(ASK).await;
        }
    }
}

impl Act<'_> {
    async fn resume(&self, intent: Intent, condition: &ContainerCondition) {
        let is_running = condition.state == ContainerState::ContainerRunning;
        if intent.step == IntentStep::Stopping {
            // What the former run asked for may end it at any time.
            self.claim_end(true);
        }
        match (intent.step, intent.cause) {
            // Nothing was asked of the runtime.
            (IntentStep::Begun, ActCause::Probe(_)) if is_running => {
                let reason = "criprobe was restarted before the container was stopped".to_owned();
                self.on.prober.report(Input::ActEnded(self.view.id.clone())).await;
                self.report(ActNotice::GivenUp { action: self.action, reason: reason.as_str().into() }).await;
                return self.conclude(ActEnd::GivenUp(reason)).await;
            }
            (IntentStep::Stopping, _) if is_running => {
                self.enter(Step::Stopping);
                self.hold().await;
                if let Err(hands_off) = self.finish_stop(&intent).await {
                    return self.give_up(&hands_off).await;
                }
            }
            // The successor runs, or has run: what is left needs nothing of the former one's configuration.
            (IntentStep::Removing, _) => {
                self.enter(Step::Creating);
                self.remove_former().await;
                let end = intent.successor.map_or(ActEnd::Stopped, ActEnd::Restarted);
                return self.conclude(end).await;
            }
            // It does not run: by our doing, as far as is known.
            _ => self.enter(Step::Creating),
        }
        if self.action != OnFailure::Restart {
            return self.conclude(ActEnd::Stopped).await;
        }
        self.hold().await;
        loop {
            match self.on.recipe(&self.view).await {
                Ok(recipe) => {
                    return match self.replace(&intent, &recipe).await {
                        Ok(successor) => self.conclude(ActEnd::Restarted(successor)).await,
                        Err(hands_off) => self.give_up(&hands_off).await,
                    };
                }
                Err(NotNow::Withheld { reason, until }) => {
                    self.report(ActNotice::Failed { action: self.action, reason: reason.as_str().into() })
                        .await;
                    let after = until.saturating_duration_since(clock::now());
                    let step = Step::Retrying { reason, at: Some(clock::wall() + after) };
                    if let Err(hands_off) = self.pause(after, step, intent.step >= IntentStep::Creating).await
                    {
                        return self.give_up(&hands_off).await;
                    }
                }
                Err(NotNow::Withdrawn) => return,
            }
        }
    }

    /// A stop that may have been asked of the runtime: if it is still wanted, and not long ago, the runtime is asked again.
    /// Otherwise the container has the rest of its time: what was asked may still end it, and that is our doing, too.
    ///
    /// # Errors
    /// It is not to be stopped any more, and runs on; or a client took it over.
    async fn finish_stop(&self, intent: &Intent) -> Result<(), HandsOff> {
        let deadline = intent.stop_deadline.map_or(intent.began.0, |at| at.0);
        let left = deadline.duration_since(clock::wall()).unwrap_or_default().min(grace::MOST);
        let is_late = clock::wall().duration_since(deadline).is_ok_and(|late| late > STILL_WANTED);
        let unwanted = match self.may_stop().await {
            Ok(()) if !is_late => return self.stop(left.max(grace::LEAST)).await,
            Ok(()) => HandsOff::NotWanted,
            Err(unwanted) => unwanted,
        };
        self.outlast(left, unwanted).await
    }
}
