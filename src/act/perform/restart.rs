//! The second half of a restart: the container does not run any more, and another one is created and started in its
//! place. It is removed only when its successor runs, because it holds the copy of its configuration.

use std::{error::Error, mem, time::Duration};

use tokio::{select, time::sleep};
use tonic::{Code, Status};

use super::{
    super::{
        News, back_off,
        ledger::{Intent, IntentStep, Wall, describe},
        recipe::Recipe,
        status::Step,
    },
    Act, HandsOff, Performer, said,
};
use crate::{
    clock, faults, ids::ContainerId, proto::cri::ContainerState, results::event::ActNotice,
    runtime::presence::PresenceAnswer,
};

/// 3 tries, and 1 s between them, to remove the former container: it is dead, and only takes room on the disk.
const REMOVE: (u32, Duration) = (3, Duration::from_secs(1));

/// 1 s between two looks whether the runtime answers again.
const LOOK: Duration = Duration::from_secs(1);

/// 20 looks, 500 ms apart, at a successor whose start failed: a runtime may still be starting it on behalf of a call that was
/// cut off.
const STARTING: (u32, Duration) = (20, Duration::from_millis(500));

/// A newer container of the same name in the same sandbox.
struct Successor {
    id: ContainerId,
    attempt: u32,
    state: ContainerState,
}

/// How far the successor is, as far as we have made it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Making {
    /// Nothing was asked for: a newer container is a client's.
    NotAsked,
    /// CreateContainer was called, and its answer is not known.
    Asked,
    /// This is it.
    Made(ContainerId),
}

impl Making {
    /// What an intent says of it.
    fn of(intent: &Intent) -> Self {
        match (&intent.successor, intent.step >= IntentStep::Creating) {
            (Some(id), _) => Self::Made(id.clone()),
            (None, true) => Self::Asked,
            (None, false) => Self::NotAsked,
        }
    }

    fn is_asked(&self) -> bool {
        *self != Self::NotAsked
    }

    /// Whether a newer container than that of the intent is ours.
    fn is_ours(&self, successor: &Successor, intent: &Intent) -> bool {
        match self {
            Self::NotAsked => false,
            Self::Asked => successor.attempt == intent.attempt + 1,
            Self::Made(id) => successor.id == *id,
        }
    }
}

/// Why there is no successor yet.
enum NotMade {
    HandsOff(HandsOff),
    /// The runtime's reason: it is tried again.
    Failed(String),
    /// The runtime is away, for this reason: it is tried again when it answers.
    Away(String),
}

impl From<Status> for NotMade {
    fn from(status: Status) -> Self {
        let reason = said(&status);
        match PresenceAnswer::of(Err(status)) {
            PresenceAnswer::Away(_) => Self::Away(reason),
            PresenceAnswer::Version(_) | PresenceAnswer::Refusal(_) | PresenceAnswer::Silence(_) => {
                Self::Failed(reason)
            }
        }
    }
}

impl Act<'_> {
    /// Creates and starts the container's successor, as soon as the back-off allows it, and removes the container. Returns the
    /// successor.
    ///
    /// # Errors
    /// A client took the container over.
    pub(super) async fn replace(&self, intent: &Intent, recipe: &Recipe) -> Result<ContainerId, HandsOff> {
        let mut making = Making::of(intent);
        // A restart of ours may have cut off a start, which then fails: that is no reason to wait.
        let mut may_try_at_once = making.is_asked();
        if !making.is_asked() {
            let after = self.back_off(intent).await;
            self.pause(after, Step::BackOff(clock::wall() + after), false).await?;
        }
        let mut outages = 0;
        let successor = loop {
            self.step(Step::Creating);
            match self.create_and_start(intent, recipe, &mut making).await {
                Ok(successor) => break successor,
                Err(NotMade::HandsOff(hands_off)) => return Err(hands_off),
                Err(NotMade::Failed(_) | NotMade::Away(_)) if mem::take(&mut may_try_at_once) => {}
                Err(NotMade::Away(reason)) => {
                    self.retry_when_it_answers(reason, outages, &making).await?;
                    outages += 1;
                }
                Err(NotMade::Failed(reason)) => self.retry_later(reason, &making).await?,
            }
        };
        self.report(ActNotice::Restarted { attempt: intent.attempt + 1 }).await;
        self.note(|intent| (intent.step, intent.successor) = (IntentStep::Removing, Some(successor.clone())))
            .await;
        self.remove_former().await;
        Ok(successor)
    }

    /// Reports that there is no successor, and waits until another try may be made.
    async fn retry_later(&self, reason: String, making: &Making) -> Result<(), HandsOff> {
        self.report(ActNotice::Failed { action: self.action, reason: reason.as_str().into() }).await;
        let (container, pod) = (self.view.id.clone(), self.view.pod.uid.clone());
        let namespace = self.view.pod.namespace.clone();
        self.send(News::Stuck { container, namespace, pod }).await;
        let now = clock::wall();
        let after = self.on.note(|content| content.back_off.failed(&self.place, now)).await;
        self.pause(after, Step::Retrying { reason, at: Some(now + after) }, making.is_asked()).await
    }

    /// Reports that the runtime is away, and waits until it answers: that is no failure of the container's, which the back-off
    /// is for. After each further outage it waits for twice as long before it looks.
    async fn retry_when_it_answers(
        &self,
        reason: String,
        outages: u32,
        making: &Making,
    ) -> Result<(), HandsOff> {
        self.report(ActNotice::Failed { action: self.action, reason: reason.as_str().into() }).await;
        let first = LOOK.saturating_mul(2_u32.saturating_pow(outages)).min(back_off::MOST);
        let answers = async {
            sleep(first).await;
            while let PresenceAnswer::Away(_) | PresenceAnswer::Silence(_) =
                PresenceAnswer::of(self.on.runtime.version().await)
            {
                sleep(LOOK).await;
            }
        };
        self.pause_for(answers, Step::Retrying { reason, at: None }, making.is_asked()).await
    }

    /// How long it is until the successor may be created.
    async fn back_off(&self, intent: &Intent) -> Duration {
        if let Some(Wall(at)) = intent.not_before {
            return at.duration_since(clock::wall()).unwrap_or_default().min(back_off::MOST);
        }
        let condition = self.on.runtime.condition(self.view.id.as_str()).await.ok().flatten();
        let (started_at, finished_at) =
            condition.map_or((None, None), |condition| (condition.started_at, condition.finished_at));
        let now = clock::wall();
        self.on
            .note(|content| {
                let after = content.back_off.delay(&self.place, started_at, finished_at, now);
                if let Some(intent) = content.intent(&self.view.id) {
                    (intent.step, intent.not_before) = (IntentStep::Stopped, Some(Wall(now + after)));
                }
                after
            })
            .await
    }

    /// Waits, unless a client takes the container over; `may_be_ours` as in [`Act::claim`]. Meanwhile others have their turn.
    pub(super) async fn pause(&self, time: Duration, step: Step, may_be_ours: bool) -> Result<(), HandsOff> {
        if time.is_zero() {
            return Ok(());
        }
        self.pause_for(sleep(time), step, may_be_ours).await
    }

    /// The same until something is so.
    async fn pause_for(
        &self,
        until: impl Future<Output = ()>,
        step: Step,
        may_be_ours: bool,
    ) -> Result<(), HandsOff> {
        self.step(step);
        self.send(News::Freed(self.view.id.clone())).await;
        faults::point("act-waiting").await;
        select! {
            () = until => Ok(()),
            hands_off = self.claimed(may_be_ours) => Err(hands_off),
        }
    }

    /// One try. What a former one has made is used; a successor that was not seen to start is removed.
    async fn create_and_start(
        &self,
        intent: &Intent,
        recipe: &Recipe,
        making: &mut Making,
    ) -> Result<ContainerId, NotMade> {
        let claim = self.claim(making.is_asked()).await;
        if let Some(hands_off) = claim.map_err(|error| NotMade::Failed(error.to_string()))? {
            return Err(NotMade::HandsOff(hands_off));
        }
        let former = self.on.successor(intent).await?;
        if former.as_ref().is_some_and(|former| !making.is_ours(former, intent)) {
            return Err(NotMade::HandsOff(HandsOff::Claimed(super::Claim::Replaced)));
        }
        let id = match former {
            Some(Successor { id, state: ContainerState::ContainerRunning, .. }) => return Ok(id),
            Some(Successor { id, state: ContainerState::ContainerCreated, .. }) => id,
            // Its start was cut off or failed, and it can never be started again.
            Some(Successor { id, .. }) => {
                self.on.runtime.remove_container(&id).await?;
                self.create(intent, recipe, making).await?
            }
            None => self.create(intent, recipe, making).await?,
        };
        if let Err(status) = self.on.runtime.start_container(&id).await {
            return self.after_failed_start(&id, status).await;
        }
        faults::point("act-started").await;
        if let Ok(request) = recipe.again(intent.attempt + 1) {
            self.on.recipes.note(&id, &self.view.pod.namespace, request.to_vec().into());
        }
        Ok(id)
    }

    async fn create(
        &self,
        intent: &Intent,
        recipe: &Recipe,
        making: &mut Making,
    ) -> Result<ContainerId, NotMade> {
        let recorded = self.on.record(|content| {
            if let Some(intent) = content.intent(&self.view.id) {
                (intent.step, intent.successor) = (IntentStep::Creating, None);
            }
        });
        recorded.await.map_err(|error| NotMade::Failed(describe(&error)))?;
        *making = Making::Asked;
        faults::point("act-creating").await;
        let request = recipe.again(intent.attempt + 1).map_err(|error| NotMade::Failed(error.to_string()))?;
        let id = match self.on.runtime.create_container(request).await {
            Ok(id) => id,
            Err(status) => {
                if !may_have_happened(&status) {
                    *making = Making::NotAsked;
                    self.note(|intent| intent.step = IntentStep::Stopped).await;
                }
                return Err(status.into());
            }
        };
        faults::point("act-created").await;
        *making = Making::Made(id.clone());
        self.note(|intent| (intent.step, intent.successor) = (IntentStep::Starting, Some(id.clone()))).await;
        // A client may have made another one meanwhile.
        if self.on.successor(intent).await?.is_some_and(|newest| newest.id != id) {
            self.on.runtime.remove_container(&id).await?;
            return Err(NotMade::HandsOff(HandsOff::Claimed(super::Claim::Replaced)));
        }
        Ok(id)
    }

    /// A start that failed: what came of it in the end. A container that the runtime has given up is removed.
    async fn after_failed_start(&self, id: &ContainerId, status: Status) -> Result<ContainerId, NotMade> {
        for _ in 0..STARTING.0 {
            let state = self.on.runtime.condition(id.as_str()).await?.map(|condition| condition.state);
            match state {
                Some(ContainerState::ContainerRunning) => return Ok(id.clone()),
                Some(ContainerState::ContainerExited | ContainerState::ContainerUnknown) => {
                    self.on.runtime.remove_container(id).await?;
                    break;
                }
                Some(ContainerState::ContainerCreated) => sleep(STARTING.1).await,
                None => break,
            }
        }
        Err(status.into())
    }

    pub(super) async fn remove_former(&self) {
        for _ in 0..REMOVE.0 {
            match self.on.runtime.remove_container(&self.view.id).await {
                Ok(()) => return faults::point("act-removed").await,
                Err(status) if status.code() == Code::NotFound => return,
                Err(status) => {
                    let error = said(&status);
                    tracing::warn!(error, container.id = %self.view.id, "cannot remove a restarted container's former one");
                }
            }
            sleep(REMOVE.1).await;
        }
    }
}

impl Performer {
    /// Removes the successor of a container that was removed while we were down, if it was never started.
    pub(super) async fn abandon_successor(&self, intent: &Intent) -> Result<(), Status> {
        let making = Making::of(intent);
        match self.successor(intent).await? {
            Some(successor)
                if successor.state == ContainerState::ContainerCreated
                    && making.is_ours(&successor, intent) =>
            {
                self.runtime.remove_container(&successor.id).await
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The newest container that has the name and sandbox of an intent's, and a higher attempt.
    async fn successor(&self, intent: &Intent) -> Result<Option<Successor>, Status> {
        let all = self.runtime.containers().await?;
        let of_sandbox = all.iter().filter(|item| item.brief.pod_sandbox_id == intent.sandbox.as_str());
        let newer = of_sandbox.filter_map(|item| {
            let whole = item.whole().ok()?.into_inner();
            let metadata = whole.metadata.as_ref()?;
            let is_newer = metadata.name == *intent.name && metadata.attempt > intent.attempt;
            let (id, attempt, state) = (whole.id.as_str().into(), metadata.attempt, whole.state());
            is_newer.then_some(Successor { id, attempt, state })
        });
        Ok(newer.max_by_key(|successor| successor.attempt))
    }
}

/// Whether a call that ended so may have had its effect: the runtime did not answer it.
fn may_have_happened(status: &Status) -> bool {
    // What the runtime answers has no source.
    status.source().is_some()
        || matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled | Code::Unavailable)
}
