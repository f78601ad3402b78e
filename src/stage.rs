//! The common parts of all stages: a task that is restarted when it panics (`Tasks`), a handle through which other stages
//! query it ([`Asker`]), and what keeps queries cheap for it (`SharedAnswer`).

mod ask;
pub(crate) mod panics;
mod shared;

use std::{
    any::Any,
    collections::BTreeMap,
    io,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, SystemTime},
};

use futures_util::{FutureExt, future::BoxFuture};
use tokio::{runtime::Builder, sync::oneshot, task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;

pub use self::ask::{Asker, Unanswered};
pub(crate) use self::shared::SharedAnswer;
use crate::clock;

/// 100 ms to 5 s between a panic and the next start, twice as long each time: a stage that panics at once, time and
/// again, costs next to nothing, and still answers in between.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// 60 s without a panic: the next one is a first one again.
const CALM: Duration = Duration::from_secs(60);

/// The tasks of all stages. When it is dropped, they end where they are.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    running: JoinSet<()>,
    restarts: Restarts,
    stop: CancellationToken,
}

/// Resolves when a task has ended, however it ended.
#[derive(Debug)]
pub(crate) struct TaskEnd(oneshot::Receiver<()>);

impl TaskEnd {
    /// Waits for the end of the task.
    pub(crate) async fn wait(&mut self) {
        if !self.0.is_terminated() {
            // The task never sends: it drops its end.
            let _ = (&mut self.0).await;
        }
    }
}

impl Tasks {
    /// Starts a task. A stage is wrapped in [`Tasks::supervise`] or [`Tasks::supervise_until`].
    pub(crate) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) -> TaskEnd {
        self.spawn_boxed(Box::pin(task))
    }

    /// Boxed, so that the code which runs a task is compiled once, and not for each task.
    fn spawn_boxed(&mut self, task: BoxFuture<'static, ()>) -> TaskEnd {
        let (done, ended) = oneshot::channel::<()>();
        self.running.spawn(async move {
            task.await;
            drop(done);
        });
        TaskEnd(ended)
    }

    /// Starts a task on a thread of its own, so that its work, and that of all tasks that it spawns, delays no other task.
    /// The thread ends with the task, and earlier if these tasks are shut down or dropped.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn spawn_thread(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<TaskEnd> {
        let runtime = Builder::new_current_thread().enable_all().thread_name(name).build()?;
        let ending = CancellationToken::new();
        let (cancelled, cancel) = (ending.clone(), ending.drop_guard());
        let (done, ended) = oneshot::channel::<()>();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            runtime.block_on(cancelled.run_until_cancelled_owned(task));
            // A call that blocks, such as the lookup of a name, is not waited for.
            runtime.shutdown_background();
            drop(done);
        })?;
        Ok(self.spawn(async move {
            let _cancel = cancel;
            TaskEnd(ended).wait().await;
        }))
    }

    /// Runs a stage until all stages are stopped, and again after each panic. A stage that ends before is started again,
    /// too. What `run` captures survives the panic: the ends of channels do, the stage's own state does not.
    pub(crate) fn supervise<F: AsyncFnMut()>(
        &self,
        name: &'static str,
        run: F,
    ) -> impl Future<Output = ()> + use<F> {
        self.supervise_until(name, self.stop.clone(), run)
    }

    /// Likewise for a stage that is stopped on its own.
    pub(crate) fn supervise_until<F: AsyncFnMut()>(
        &self,
        name: &'static str,
        stop: CancellationToken,
        run: F,
    ) -> impl Future<Output = ()> + use<F> {
        supervise(name, self.restarts.clone(), stop, run)
    }

    /// How often each stage was started again.
    pub(crate) fn restarts(&self) -> Restarts {
        self.restarts.clone()
    }

    /// Stops all supervised stages when it is cancelled.
    pub(crate) fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Ends all tasks where they are, and waits until they are gone.
    pub(crate) async fn shutdown(mut self) {
        self.running.shutdown().await;
    }
}

async fn supervise(
    name: &'static str,
    restarts: Restarts,
    stop: CancellationToken,
    mut run: impl AsyncFnMut(),
) {
    let mut pause = PAUSE.0;
    loop {
        let began = clock::now();
        let ended = AssertUnwindSafe(async {
            tokio::select! {
                biased;
                () = run() => {}
                () = faults::asked(name) => {}
            }
        });
        let ended = ended.catch_unwind().await;
        if stop.is_cancelled() {
            return;
        }
        restarts.note(name, ended.err());
        if clock::now() - began > CALM {
            pause = PAUSE.0;
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = stop.cancelled() => return,
        }
        pause = (pause * 2).min(PAUSE.1);
    }
}

/// Counts the restarts of stages. Cheap to clone; all clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Restarts {
    /// An entry for each stage that has panicked.
    by_stage: Arc<Mutex<BTreeMap<&'static str, StageRestarts>>>,
}

#[derive(Clone, Debug)]
pub(crate) struct StageRestarts {
    /// Its name.
    pub stage: &'static str,
    /// How many there were.
    pub count: u64,
    /// When the last one was.
    pub last_at: SystemTime,
    /// Why: the place and the message of the panic.
    pub reason: String,
}

impl Restarts {
    /// Of each stage that was restarted, by name.
    pub(crate) fn all(&self) -> Vec<StageRestarts> {
        self.by_stage().values().cloned().collect()
    }

    fn note(&self, stage: &'static str, panic: Option<Box<dyn Any + Send>>) {
        let place = panics::take_place();
        let reason = match panic {
            Some(payload) => {
                let place = place.map(|place| format!(" at {place}")).unwrap_or_default();
                format!("panicked{place}: {}", panics::describe(&*payload))
            }
            None => "ended unexpectedly".to_owned(),
        };
        tracing::error!(stage, reason, "a stage failed: restarting it");
        let last_at = clock::wall();
        let mut by_stage = self.by_stage();
        let count = by_stage.get(stage).map_or(1, |restarts| restarts.count + 1);
        by_stage.insert(stage, StageRestarts { stage, count, last_at, reason });
    }

    fn by_stage(&self) -> MutexGuard<'_, BTreeMap<&'static str, StageRestarts>> {
        self.by_stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Panics on request, for tests.
mod faults {
    /// Never returns.
    #[cfg(not(feature = "faults"))]
    pub(super) async fn asked(_stage: &str) {
        std::future::pending::<()>().await;
    }

    /// Panics once a file of the stage's name is in the folder that CRIPROBE_FAULTS names, and removes it.
    #[cfg(feature = "faults")]
    pub(super) async fn asked(stage: &str) {
        let Some(folder) = std::env::var_os("CRIPROBE_FAULTS") else { return std::future::pending().await };
        let file = std::path::Path::new(&folder).join(stage);
        while std::fs::remove_file(&file).is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("a test asked {stage} for it");
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::{sync::mpsc, time::timeout};

    use super::*;

    async fn until_restarted(restarts: &Restarts, times: u64) -> StageRestarts {
        let view = timeout(Duration::from_secs(60), async {
            loop {
                let all = restarts.all();
                if let [view] = &all[..]
                    && view.count >= times
                {
                    return view.clone();
                }
                sleep(Duration::from_millis(1)).await;
            }
        });
        view.await.expect("it is started again within a minute")
    }

    #[tokio::test(start_paused = true)]
    async fn a_stage_that_panics_is_started_again_and_its_channels_outlive_that() {
        let mut tasks = Tasks::default();
        let (restarts, stop) = (tasks.restarts(), tasks.stop());
        let (sender, mut numbers) = mpsc::channel::<u32>(8);
        let (answers, mut answered) = mpsc::channel::<u32>(8);
        tasks.spawn(tasks.supervise("plan", async move || {
            while let Some(number) = numbers.recv().await {
                assert_ne!(number, 2, "this panic belongs to the test");
                answers.send(number).await.unwrap();
            }
        }));
        for number in 1..=3 {
            sender.send(number).await.unwrap();
        }
        assert_eq!((answered.recv().await, answered.recv().await), (Some(1), Some(3)));
        let view = until_restarted(&restarts, 1).await;
        assert_eq!((view.stage, view.count), ("plan", 1));
        assert!(view.reason.contains("this panic belongs to the test"), "{}", view.reason);
        stop.cancel();
        tasks.shutdown().await;
    }

    #[tokio::test]
    async fn a_thread_of_its_own_restarts_its_stage_and_ends_with_it_or_with_all_tasks() {
        let mut tasks = Tasks::default();
        let (restarts, stop) = (tasks.restarts(), CancellationToken::new());
        let (report, mut reported) = mpsc::unbounded_channel();
        let (stopped, mut has_panicked) = (stop.clone(), false);
        let stage = tasks.supervise_until("api", stop.clone(), async move || {
            let name = |thread: &thread::Thread| thread.name().map(str::to_owned);
            let spawned = tokio::spawn(async move { name(&thread::current()) }).await.unwrap();
            report.send((name(&thread::current()), spawned)).unwrap();
            assert!(std::mem::replace(&mut has_panicked, true), "this panic belongs to the test");
            stopped.cancelled().await;
        });
        let mut ended = tasks.spawn_thread("api", stage).unwrap();
        let own = Some("api".to_owned());
        for _ in 0..2 {
            assert_eq!(reported.recv().await, Some((own.clone(), own.clone())));
        }
        let view = until_restarted(&restarts, 1).await;
        assert!(view.reason.contains("this panic belongs to the test"), "{}", view.reason);
        stop.cancel();
        ended.wait().await;
        ended.wait().await;
        assert_eq!(reported.recv().await, None);
        let (lives, mut ends) = mpsc::channel::<()>(1);
        let endless = async move {
            let _lives = lives;
            pending::<()>().await;
        };
        tasks.spawn_thread("endless", endless).unwrap();
        tasks.shutdown().await;
        assert_eq!(ends.recv().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stage_that_panics_for_ever_is_started_ever_more_rarely() {
        let mut tasks = Tasks::default();
        let restarts = tasks.restarts();
        let panicking = async || panic!("this panic belongs to the test");
        tasks.spawn(tasks.supervise("plan", panicking));
        sleep(Duration::from_secs(60)).await;
        let [view] = &restarts.all()[..] else { panic!("one stage was started again") };
        assert!((12..=20).contains(&view.count), "{}", view.count);
        tasks.shutdown().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_stage_that_ends_is_started_again_unless_it_was_to_end() {
        let mut tasks = Tasks::default();
        let (restarts, stop) = (tasks.restarts(), tasks.stop());
        let (ended, mut ends) = mpsc::unbounded_channel();
        let ending = {
            let stop = stop.clone();
            async move || {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = sleep(Duration::from_secs(1)) => {}
                }
                ended.send(()).unwrap();
            }
        };
        tasks.spawn(tasks.supervise("prober", ending));
        let view = until_restarted(&restarts, 1).await;
        assert_eq!(view.reason, "ended unexpectedly");
        stop.cancel();
        // The sender goes with the stage.
        while ends.recv().await.is_some() {}
        assert_eq!(restarts.all()[0].count, view.count);
        tasks.spawn(pending());
        tasks.shutdown().await;
    }
}
