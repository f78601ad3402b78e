//! The daemon's background tasks, by name. In: futures that last as long as the daemon; out: the first of them that
//! ended all the same. Starts nothing again: what a task knew went with it.

use std::{any::Any, collections::HashMap};

use thiserror::Error;
use tokio::task::{Id, JoinError, JoinSet};

/// A handful of tasks that nobody waits for in the ordinary course of things.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    running: JoinSet<()>,
    known: HashMap<Id, Known>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    name: &'static str,
    /// Whether it is to last as long as the daemon.
    is_lasting: bool,
}

/// A task is gone that the daemon cannot do without.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the task {name} {how}")]
pub struct TaskEnded {
    /// Which.
    name: &'static str,
    /// `panicked: REASON`, or `ended`.
    how: String,
}

impl Tasks {
    /// Starts a task that is to last as long as the daemon.
    pub(super) fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.running.spawn(task).id();
        self.known.insert(id, Known { name, is_lasting: true });
    }

    /// Starts a task that ends when its work is done.
    pub(super) fn spawn_once(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.running.spawn(task).id();
        self.known.insert(id, Known { name, is_lasting: false });
    }

    /// Returns when a task panicked, or ended that was to last. Safe to be dropped and called again.
    pub(super) async fn failed(&mut self) -> TaskEnded {
        while let Some(ended) = self.running.join_next_with_id().await {
            let (id, panic) = match ended {
                Ok((id, ())) => (id, None),
                Err(error) => (error.id(), panic_of(error)),
            };
            let Some(Known { name, is_lasting }) = self.known.remove(&id) else { continue };
            match panic {
                Some(reason) => return TaskEnded { name, how: format!("panicked: {reason}") },
                None if is_lasting => return TaskEnded { name, how: "ended".to_owned() },
                None => {}
            }
        }
        std::future::pending().await
    }

    /// Ends all of them where they are, and waits until they are gone.
    pub(super) async fn shutdown(mut self) {
        self.running.shutdown().await;
    }
}

/// What a task said when it panicked; none if it was only cancelled.
fn panic_of(error: JoinError) -> Option<String> {
    let payload: Box<dyn Any + Send> = error.try_into_panic().ok()?;
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    Some(text.unwrap_or_else(|| "for no reason that it gave".to_owned()))
}

#[cfg(test)]
mod tests {
    use std::{future::pending, time::Duration};

    use tokio::time::timeout;

    use super::*;

    async fn failed(tasks: &mut Tasks) -> Option<String> {
        let ended = timeout(Duration::from_secs(60), tasks.failed()).await;
        ended.ok().map(|ended| ended.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_is_told_with_its_reason() {
        let mut tasks = Tasks::default();
        tasks.spawn("relay", pending());
        tasks.spawn("plan", async { panic!("this panic belongs to the {}", "test") });
        let text = failed(&mut tasks).await;
        assert_eq!(text.as_deref(), Some("the task plan panicked: this panic belongs to the test"));
        tasks.shutdown().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_was_to_last_may_not_even_end_well() {
        let mut tasks = Tasks::default();
        tasks.spawn("prober", async {});
        assert_eq!(failed(&mut tasks).await.as_deref(), Some("the task prober ended"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_whose_work_is_done_is_not_missed() {
        let mut tasks = Tasks::default();
        tasks.spawn("relay", pending());
        tasks.spawn_once("access", async {});
        assert_eq!(failed(&mut tasks).await, None);
        tasks.spawn_once("access", async { panic!("this panic belongs to the test") });
        assert!(failed(&mut tasks).await.is_some(), "a panic is never the end of the work");
    }
}
