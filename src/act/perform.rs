//! Carries out one act: a demand, or the intent of a run before a restart of ours, in; calls of the runtime out, each step
//! on record before it is taken. Decides nothing that the guard decides. A client that stops, removes or replaces the
//! container meanwhile wins at every step.
//!
//! ```text
//! demand --stands, recorded--> command, preStop hook --> StopContainer --+--> done (stop, kill)
//!                                                                        |
//! container that exited --stands, recorded-------------------------------+--> back-off --> CreateContainer
//!                                      done <-- RemoveContainer (the former one) <-- StartContainer <--'
//! ```

mod look;
mod restart;
mod resume;
mod stop;

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use tokio::{
    select,
    sync::{Mutex, mpsc, watch},
    time::sleep,
};
use tonic::Status;

use super::{
    ActSettings, News,
    board::Board,
    counts::ActResult,
    ledger::{Content, Intent, IntentStep, Ledger, LedgerError, Wall, describe},
    recipe::{Recipe, RecipeStore, rebuilt::from_runtime},
    status::{ActEnd, ActRecord, Current, Place, Step},
};
use crate::{
    clock, faults,
    ids::{ContainerId, ProbeKey},
    inventory::pod::Container,
    prober::{
        Input, ProberHandle, ProberSettings,
        attempt::Handlers,
        demand::{Cause, Claim, Demand, Standing},
    },
    proto::cri::ContainerState,
    results::event::{ActCause, ActNotice, ProbeEvent},
    runtime::{Runtime, condition::ContainerCondition},
    spec::OnFailure,
    stage::Unanswered,
};

/// 250 ms: how often an act in progress looks whether a client has taken the container over.
const LOOK: Duration = Duration::from_millis(250);

/// 5 s: when a demand is looked at again whose reason to be withheld may pass without any news of it.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// 60 s: likewise one whose container cannot be made again as far as the runtime reports.
const UNRECOVERABLE: Duration = Duration::from_secs(60);

/// 30 s: an act that takes longer no longer counts among those in progress. Authors choose grace periods
/// and what hooks do: they must not keep the acts on other pods waiting.
const LONGEST_TURN: Duration = Duration::from_secs(30);

/// What all acts work with.
pub(super) struct Performer {
    pub(super) runtime: Runtime,
    pub(super) prober: ProberHandle,
    pub(super) recipes: RecipeStore,
    pub(super) ledger: Mutex<Ledger>,
    pub(super) board: Board,
    pub(super) handlers: Handlers,
    pub(super) settings: watch::Receiver<ActSettings>,
    pub(super) probing: watch::Receiver<ProberSettings>,
    /// To the stage's loop, which always reads.
    pub(super) news: mpsc::Sender<News>,
    pub(super) on_end_claimed: OnEndClaimed,
}

/// Is called before an act does anything that may end a container, with `true`, and with `false` when the container is left
/// running: whose doing its end is. Must not block.
pub(super) type OnEndClaimed = Box<dyn Fn(&ContainerId, bool) + Send + Sync>;

/// Why a demand is not carried out now.
#[derive(Debug)]
pub(super) enum NotNow {
    /// It does not stand any more.
    Withdrawn,
    /// There is a reason that may pass.
    Withheld {
        /// In words.
        reason: String,
        /// When it is to be looked at again.
        until: Instant,
    },
}

/// One act on one container.
struct Act<'a> {
    on: &'a Performer,
    key: ProbeKey,
    place: Place,
    view: Arc<Container>,
    action: OnFailure,
    cause: ActCause,
    began: (Instant, SystemTime),
}

/// Why an act ends early.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HandsOff {
    /// A client did something with the container.
    Claimed(Claim),
    /// The container was removed.
    Removed,
    /// The container was paused before it was stopped.
    Paused,
    /// The operator does not want it any more, or the probe is gone.
    NotWanted,
    /// The stop cannot be recorded, for this reason.
    NotRecorded(String),
}

impl HandsOff {
    fn reason(&self) -> &str {
        match self {
            Self::Claimed(Claim::Stopped) => "a client stopped or removed the container",
            Self::Claimed(Claim::PodStopped) => "the pod was stopped",
            Self::Claimed(Claim::Replaced) => "a client replaced the container",
            Self::Removed => "the container was removed",
            Self::Paused => "the container was paused",
            Self::NotWanted => "its probe may not act any more",
            Self::NotRecorded(reason) => reason,
        }
    }
}

/// A valid demand, with all that its act needs; its intent is on record.
pub(super) struct Prepared {
    demand: Demand,
    standing: Standing,
    condition: ContainerCondition,
    recipe: Option<Recipe>,
    intent: Intent,
}

impl Performer {
    /// Finds out whether a demand is valid, gets all that is needed for the act, and records the intent. Changes nothing else.
    pub(super) async fn prepare(&self, demand: Demand) -> Result<Box<Prepared>, NotNow> {
        let container = &demand.view.id;
        let standing = self
            .prober
            .standing(demand.key.clone(), container.clone())
            .await
            .map_err(|error| withheld(error.to_string(), LOOK_AGAIN))?
            .filter(|standing| standing.claim.is_none())
            .ok_or(NotNow::Withdrawn)?;
        let action = standing.acting.effective();
        let is_exit = matches!(demand.cause, Cause::Exited { .. });
        if action == OnFailure::Report || (!is_exit && !standing.is_failing) {
            return Err(NotNow::Withdrawn);
        }
        if let Cause::Exited { exit_code } = demand.cause
            && !self.settings.borrow().restart_on_exit.restarts(exit_code)
        {
            return Err(NotNow::Withdrawn);
        }
        if standing.paused_since.is_some() {
            return Err(withheld("the probe is paused".to_owned(), LOOK_AGAIN));
        }
        let silent =
            |error: Status| withheld(format!("the runtime does not answer: {}", said(&error)), LOOK_AGAIN);
        let expected =
            if is_exit { ContainerState::ContainerExited } else { ContainerState::ContainerRunning };
        let condition = self.condition_in(expected, container).await.map_err(silent)?;
        let condition = condition.ok_or(NotNow::Withdrawn)?;
        if !is_exit && self.runtime.is_paused(container.as_str()).await.map_err(silent)? == Some(true) {
            return Err(withheld("the container is paused".to_owned(), LOOK_AGAIN));
        }
        let recipe = match action {
            OnFailure::Restart if condition.attempt == u32::MAX => {
                let reason = "the container cannot be made again: its attempt has the highest number";
                return Err(withheld(reason.to_owned(), UNRECOVERABLE));
            }
            OnFailure::Restart => Some(self.recipe(&standing.view).await?),
            OnFailure::Report | OnFailure::Stop | OnFailure::Kill => None,
        };
        let view = &standing.view;
        let intent = Intent {
            container: container.clone(),
            sandbox: view.pod.sandbox_id.clone(),
            pod: view.pod.uid.clone(),
            name: view.name.clone(),
            kind: demand.key.kind,
            attempt: condition.attempt,
            action,
            cause: cause_of(&demand),
            step: IntentStep::Begun,
            began: Wall(clock::wall()),
            stop_deadline: None,
            not_before: None,
            successor: None,
        };
        self.record(|content| content.begin(intent.clone()))
            .await
            .map_err(|error| withheld(describe(&error), LOOK_AGAIN))?;
        Ok(Box::new(Prepared { demand, standing, condition, recipe, intent }))
    }

    /// Carries out an act, from the first step to the last.
    pub(super) async fn carry_out(&self, prepared: Prepared) {
        let Prepared { demand, standing, condition, recipe, intent } = prepared;
        let act = Act::of(self, standing.view.clone(), &intent);
        faults::point("act-recorded").await;
        let is_exit = matches!(demand.cause, Cause::Exited { .. });
        act.enter(if is_exit { Step::Creating } else { Step::Stopping });
        let is_restarted = act.action == OnFailure::Restart;
        act.report(ActNotice::Killing { cause: act.cause, is_restarted }).await;
        act.hold().await;
        let whole = async {
            if !is_exit {
                // A command or a hook may end it, too.
                act.claim_end(true);
                let ready = act.ready_to_stop(&standing.spec, &condition).await;
                let rest = ready.inspect_err(|_| act.claim_end(false))?;
                act.stop(rest).await?;
            }
            match recipe {
                Some(recipe) => act.replace(&intent, &recipe).await.map(ActEnd::Restarted),
                None => Ok(ActEnd::Stopped),
            }
        };
        match self.giving_way(&act.view.id, whole).await {
            Ok(end) => act.conclude(end).await,
            Err(hands_off) => act.give_up(&hands_off).await,
        }
    }

    /// How a container is made again.
    async fn recipe(&self, view: &Container) -> Result<Recipe, NotNow> {
        if let Some(recipe) = self.recipes.get(&view.id) {
            return Ok(recipe);
        }
        match from_runtime(&self.runtime, &view.id, &view.pod.sandbox_id).await {
            Ok(rebuilt) => {
                if !rebuilt.not_carried_over.is_empty() {
                    tracing::warn!(
                        namespace = &*view.pod.namespace,
                        pod = &*view.pod.name,
                        container = &*view.name,
                        left_out = rebuilt.not_carried_over.join(", "),
                        "parts of the container's configuration are unknown to criprobe: a restart leaves them out"
                    );
                }
                Ok(rebuilt.recipe)
            }
            Err(error) => {
                Err(withheld(format!("the container cannot be made again: {error}"), UNRECOVERABLE))
            }
        }
    }

    /// Makes a change to what survives a restart of ours, and returns when that is on the disk.
    ///
    /// # Errors
    /// It cannot be recorded: then nothing is changed.
    async fn record(&self, change: impl FnOnce(&mut Content)) -> Result<(), LedgerError> {
        let recorded = self.ledger.lock().await.record(change).await;
        self.show_trouble(recorded.as_ref().err());
        recorded
    }

    /// The same of what has happened: if it cannot be recorded now, it is with the next change.
    async fn note<T>(&self, change: impl FnOnce(&mut Content) -> T) -> T {
        let mut ledger = self.ledger.lock().await;
        let mut done = None;
        ledger.note(|content| done = Some(change(content)));
        let flushed = ledger.flush().await;
        self.show_trouble(flushed.as_ref().err());
        done.expect("the change was made")
    }

    /// Logs why acts cannot be recorded, if that is news.
    fn show_trouble(&self, error: Option<&LedgerError>) {
        let trouble = error.map(describe).unwrap_or_default();
        if self.board.set_trouble(&trouble) && !trouble.is_empty() {
            tracing::warn!(trouble, "nothing acts until acts can be recorded again");
        }
    }

    /// Does the work of an act; after [`LONGEST_TURN`] others have their turn.
    async fn giving_way<T>(&self, container: &ContainerId, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        select! {
            done = &mut work => return done,
            () = sleep(LONGEST_TURN) => {}
        }
        self.send(News::Freed(container.clone())).await;
        work.await
    }

    /// The stage's loop reads until it ends, and then nothing is of interest any more.
    async fn send(&self, news: News) {
        let _ = self.news.send(news).await;
    }

    /// What attempts are made with, under the settings of this moment.
    fn handlers(&self) -> Handlers {
        self.handlers.under(&self.probing.borrow())
    }
}

impl<'a> Act<'a> {
    fn of(on: &'a Performer, view: Arc<Container>, intent: &Intent) -> Self {
        Self {
            on,
            key: ProbeKey { pod: intent.pod.clone(), container: intent.name.clone(), kind: intent.kind },
            place: (view.pod.uid.clone(), view.name.clone()),
            view,
            action: intent.action,
            cause: intent.cause,
            began: (clock::now(), intent.began.0),
        }
    }

    /// Shows that this act is in progress.
    fn enter(&self, step: Step) {
        let (action, cause, container) = (self.action, self.cause, self.view.id.clone());
        let since = clock::wall();
        self.on
            .board
            .enter(&self.place, Current { container: container.clone(), action, cause, since, step });
        let (end, took, command) = (None, Duration::ZERO, None);
        self.on
            .board
            .begin(&self.place, ActRecord { at: self.began.1, container, action, cause, end, took, command });
    }

    /// Records how far the act is.
    async fn note(&self, change: impl FnOnce(&mut Intent)) {
        self.on.note(|content| content.intent(&self.view.id).map(change)).await;
    }

    fn step(&self, step: Step) {
        self.on.board.step(&self.place, step, clock::wall());
    }

    /// Has the container's liveness and startup probes held until another container runs in its place.
    async fn hold(&self) {
        self.on.prober.report(Input::ActBegan(self.view.id.clone())).await;
        faults::point("act-held").await;
    }

    /// Whether it is this act's doing if the container ends from now on.
    fn claim_end(&self, is_ours: bool) {
        (self.on.on_end_claimed)(&self.view.id, is_ours);
    }

    async fn report(&self, notice: ActNotice) {
        if let ActNotice::Failed { action, .. } = notice {
            self.send(News::Ended { action, result: ActResult::Failed }).await;
        }
        let event =
            ProbeEvent::of_act(&notice, self.key.kind, self.view.id.clone(), &self.view, clock::wall());
        self.send(News::Event(Box::new(event))).await;
    }

    async fn send(&self, news: News) {
        self.on.send(news).await;
    }

    /// Whether a client has taken the container over. `Replaced` does not count if we may have made the successor.
    ///
    /// # Errors
    /// The prober does not say.
    async fn claim(&self, may_be_ours: bool) -> Result<Option<HandsOff>, Unanswered> {
        let standing = self.on.prober.standing(self.key.clone(), self.view.id.clone()).await?;
        Ok(match standing {
            Some(Standing { claim: Some(Claim::Replaced), .. }) if may_be_ours => None,
            Some(standing) => standing.claim.map(HandsOff::Claimed),
            // The probe may be gone, and the container there.
            None => match self.on.runtime.condition(self.view.id.as_str()).await {
                Ok(None) => Some(HandsOff::Removed),
                Ok(Some(_)) | Err(_) => None,
            },
        })
    }

    /// Returns once a client has taken the container over.
    async fn claimed(&self, may_be_ours: bool) -> HandsOff {
        loop {
            // Again and again: the prober's task may have been restarted, and know nothing of this act.
            self.on.prober.report(Input::ActBegan(self.view.id.clone())).await;
            if let Ok(Some(hands_off)) = self.claim(may_be_ours).await {
                return hands_off;
            }
            sleep(LOOK).await;
        }
    }

    /// Whether the container may be stopped now: all that may have changed since the act was prepared, as command and hook
    /// may have taken long. Waits until the prober answers.
    ///
    /// # Errors
    /// It is not to be stopped any more.
    async fn may_stop(&self) -> Result<(), HandsOff> {
        let standing = loop {
            match self.on.prober.standing(self.key.clone(), self.view.id.clone()).await {
                Ok(standing) => break standing,
                Err(_) => sleep(LOOK).await,
            }
        };
        if let Some(Standing { claim: Some(claim), .. }) = standing {
            return Err(HandsOff::Claimed(claim));
        }
        let is_wanted = |standing: &Standing| {
            standing.acting.effective() != OnFailure::Report && standing.paused_since.is_none()
        };
        if !standing.as_ref().is_some_and(is_wanted) {
            return Err(HandsOff::NotWanted);
        }
        // A runtime that does not answer is asked to stop it all the same.
        match self.on.runtime.is_paused(self.view.id.as_str()).await {
            Ok(Some(true)) => Err(HandsOff::Paused),
            Ok(Some(false) | None) | Err(_) => Ok(()),
        }
    }

    /// The container is the client's, or gone.
    async fn give_up(&self, hands_off: &HandsOff) {
        let reason = hands_off.reason();
        self.report(ActNotice::GivenUp { action: self.action, reason: reason.into() }).await;
        self.on.prober.report(Input::ActEnded(self.view.id.clone())).await;
        self.conclude(ActEnd::GivenUp(reason.to_owned())).await;
    }

    /// Ends the act: nothing is left to do.
    async fn conclude(&self, end: ActEnd) {
        let took = clock::now().saturating_duration_since(self.began.0);
        let record = self.on.board.end(&self.place, end.clone(), took);
        let back_off = self
            .on
            .note(|content| {
                content.end(&self.view.id);
                if let Some(record) = record {
                    content.remember(self.place.clone(), record);
                }
                content.back_off.next(&self.place)
            })
            .await;
        self.on.board.back_off(&self.place, back_off);
        let result = match end {
            ActEnd::Stopped | ActEnd::Restarted(_) => ActResult::Done,
            ActEnd::GivenUp(_) => ActResult::GivenUp,
            ActEnd::DryRun => ActResult::DryRun,
        };
        self.send(News::Ended { action: self.action, result }).await;
    }
}

/// 512 bytes of what a runtime says are kept with an act: it may repeat a megabyte of a client's words.
const MOST_SAID: usize = 512;

/// What the runtime says of an error.
fn said(status: &Status) -> String {
    let message = status.message();
    message[..message.floor_char_boundary(MOST_SAID)].to_owned()
}

/// Why an act is done.
pub(super) fn cause_of(demand: &Demand) -> ActCause {
    match demand.cause {
        Cause::Verdict { .. } => ActCause::Probe(demand.key.kind),
        Cause::Exited { exit_code } => ActCause::Exited { exit_code },
    }
}

fn withheld(reason: String, after: Duration) -> NotNow {
    NotNow::Withheld { reason, until: clock::now() + after }
}
