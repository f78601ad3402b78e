//! What people and programs are told: snapshots are asked of the stages, journals are kept here, and both leave as
//! JSON through the API. Changes nothing in any stage but what an operator asks for, and never slows one.

pub mod api;
mod commands;
pub mod convert;
mod detail;
pub mod filter;
pub mod journal;
mod lines;
pub(crate) mod lookup;
pub mod metrics;
pub mod name;
mod nearest;
pub mod observed;
mod places;
pub mod printable;
mod routes;
mod rule;
pub mod view;

use std::{fmt, time::Duration};

use tokio::sync::{mpsc, oneshot};

use journal::Journal;
use metrics::Metrics;
use name::ProbeName;
use view::{CallView, ConfigurationView, EventView, PodView, ProbeDetailView, ProbeView, StatusView};

use crate::prober::operator::Operator;

/// Asks a stage's task for a snapshot: the task answers on the channel that it is sent.
///
/// Bounded. A stage that does not take the question and answer it within [`PATIENCE`] is given up on.
pub type Query<T> = mpsc::Sender<oneshot::Sender<T>>;

/// Asks a stage's task about one thing, as [`Query`] does about all of them.
pub type Lookup<Q, T> = mpsc::Sender<(Q, oneshot::Sender<T>)>;

/// 2 s: how long a stage may take to answer a question before the asker is told that it did not.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Everything that a report is made of.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The daemon as a whole.
    pub status: Query<StatusView>,
    /// All probes; those of older sandboxes come before those of newer ones.
    pub probes: Query<Vec<ProbeView>>,
    /// One probe in full, but for its events; `None` where there is no such probe.
    pub probe: Lookup<ProbeName, Option<ProbeDetailView>>,
    /// All pods, by namespace and name.
    pub pods: Query<Vec<PodView>>,
    /// The configuration in force.
    pub configuration: Query<ConfigurationView>,
    /// Calls, as they end.
    pub trace: Journal<dyn Shown>,
    /// Events, as they happen.
    pub events: Journal<EventView>,
    /// Numbers about the daemon itself.
    pub metrics: Metrics,
    /// What changes something, or tries it.
    pub operator: Operator,
}

/// A call that ended. Only when somebody reads of it is it turned into what is shown: most are never read.
pub trait Shown: fmt::Debug + Send + Sync {
    /// What is shown of it.
    fn view(&self) -> CallView;
}

/// Why a stage gave no snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// Its task is busy or stuck.
    #[error("{0} did not answer within {PATIENCE:?}")]
    Late(&'static str),
    /// Its task has ended, or dropped the question.
    #[error("{0} does not run")]
    Stopped(&'static str),
}

/// Asks for a snapshot; `stage` names whom, for the error.
///
/// # Errors
/// The stage is late or gone.
pub async fn ask<T>(query: &Query<T>, stage: &'static str) -> Result<T, Unanswered> {
    exchange(query, |answer| answer, stage).await
}

/// Asks about one thing; `stage` names whom, for the error.
///
/// # Errors
/// The stage is late or gone.
pub async fn look_up<Q, T>(lookup: &Lookup<Q, T>, what: Q, stage: &'static str) -> Result<T, Unanswered> {
    exchange(lookup, |answer| (what, answer), stage).await
}

async fn exchange<M, T>(
    stage_end: &mpsc::Sender<M>,
    question: impl FnOnce(oneshot::Sender<T>) -> M,
    stage: &'static str,
) -> Result<T, Unanswered> {
    let exchange = async {
        let (answer, answered) = oneshot::channel();
        stage_end.send(question(answer)).await.map_err(|_| Unanswered::Stopped(stage))?;
        answered.await.map_err(|_| Unanswered::Stopped(stage))
    };
    tokio::time::timeout(PATIENCE, exchange).await.unwrap_or(Err(Unanswered::Late(stage)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stage_answers_or_is_late_or_is_gone() {
        let (answering, mut questions) = mpsc::channel::<oneshot::Sender<u32>>(1);
        let stage = tokio::spawn(async move {
            let question = questions.recv().await.unwrap();
            question.send(7).unwrap();
            let dropped = questions.recv().await.unwrap();
            drop(dropped);
            questions
        });
        assert_eq!(ask(&answering, "prober").await, Ok(7));
        assert_eq!(ask(&answering, "prober").await, Err(Unanswered::Stopped("prober")));
        let questions = stage.await.unwrap();
        assert_eq!(
            ask(&answering, "prober").await,
            Err(Unanswered::Late("prober")),
            "nobody takes the question"
        );
        assert_eq!(ask(&answering, "prober").await, Err(Unanswered::Late("prober")), "the queue is full");
        drop(questions);
        assert_eq!(ask(&answering, "prober").await, Err(Unanswered::Stopped("prober")));
    }
}
