//! Queries to a stage's task: sent through a bounded channel, answered within a deadline or not at all.

use std::time::Duration;

use thiserror::Error;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

/// 2 s: how long a stage may take to answer a question. After that the question is given up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// 16 questions may wait for a stage. Further askers wait, within their deadline.
const QUESTIONS: usize = 16;

/// Why a stage did not answer. It names the stage that was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unanswered {
    /// Its task is busy or stuck.
    #[error("{0} did not answer within {PATIENCE:?}")]
    Late(&'static str),
    /// Its task has ended, or dropped the question.
    #[error("{0} is not running")]
    Stopped(&'static str),
}

/// The asking end. Cheap to clone; all clones ask the same stage.
#[derive(Debug)]
pub struct Asker<Q> {
    stage: &'static str,
    questions: mpsc::Sender<Q>,
}

impl<Q> Asker<Q> {
    /// Both ends: for those who ask, and for the task of the stage `stage`.
    pub fn channel(stage: &'static str) -> (Self, mpsc::Receiver<Q>) {
        let (questions, asked) = mpsc::channel(QUESTIONS);
        (Self { stage, questions }, asked)
    }

    /// Asks a question. `question` gets the sender that the stage answers with.
    ///
    /// # Errors
    /// The stage did not answer within `PATIENCE`, or does not run.
    pub async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Q) -> Result<T, Unanswered> {
        let exchange = async {
            let (answer, answered) = oneshot::channel();
            self.questions.send(question(answer)).await.map_err(|_| Unanswered::Stopped(self.stage))?;
            answered.await.map_err(|_| Unanswered::Stopped(self.stage))
        };
        timeout(PATIENCE, exchange).await.unwrap_or(Err(Unanswered::Late(self.stage)))
    }
}

impl<Q> Clone for Asker<Q> {
    fn clone(&self) -> Self {
        Self { stage: self.stage, questions: self.questions.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stage_answers_or_is_late_or_is_gone() {
        let (asker, mut questions) = Asker::<oneshot::Sender<u32>>::channel("prober");
        let ask = async || asker.ask(|answer| answer).await;
        let stage = tokio::spawn(async move {
            let question = questions.recv().await.unwrap();
            question.send(7).unwrap();
            let dropped = questions.recv().await.unwrap();
            drop(dropped);
            questions
        });
        assert_eq!(ask().await, Ok(7));
        assert_eq!(ask().await, Err(Unanswered::Stopped("prober")));
        let questions = stage.await.unwrap();
        for _ in 0..=QUESTIONS {
            let late = Err(Unanswered::Late("prober"));
            assert_eq!(ask().await, late, "nothing takes the question, and then the queue is full");
        }
        drop(questions);
        assert_eq!(ask().await, Err(Unanswered::Stopped("prober")));
    }
}
