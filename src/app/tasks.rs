//! The daemon's stages as tasks. In: a stage's name and how to run it; out: a stage that runs until it is stopped,
//! whatever panics in it. Each is started again by itself: the others, and the relay above all, go on.

use std::{
    any::Any,
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use futures_util::FutureExt;
use tokio::{task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;

use super::panics;
use crate::{
    clock,
    report::{metrics::StageMetrics, view::StageRestartView},
};

/// 100 ms to 5 s between a panic and the next start, twice as long each time: a stage that panics at once, time and
/// again, costs next to nothing, and still answers in between.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// 60 s without a panic: the next one is a first one again.
const CALM: Duration = Duration::from_secs(60);

/// The tasks of all stages. Dropped, they end where they are.
#[derive(Debug)]
pub(super) struct Tasks {
    running: JoinSet<()>,
    restarts: Restarts,
}

impl Tasks {
    /// Without any task yet.
    pub(super) fn new(metrics: StageMetrics) -> Self {
        Self { running: JoinSet::new(), restarts: Restarts { by_stage: Arc::default(), metrics } }
    }

    /// Starts a task. A stage wraps itself in [`supervise`].
    pub(super) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.running.spawn(task);
    }

    /// How often which stage was started again.
    pub(super) fn restarts(&self) -> Restarts {
        self.restarts.clone()
    }

    /// Ends all of them where they are, and waits until they are gone.
    pub(super) async fn shutdown(mut self) {
        self.running.shutdown().await;
    }
}

/// Runs a stage until `stop`, and again after each panic; one that ends before `stop` is started again, too. What `run`
/// captures outlives the panic: the ends of channels do, a stage's own state does not.
pub(super) async fn supervise(
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

/// Counts the stages that were started again. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Restarts {
    /// As many as there are stages that panicked.
    by_stage: Arc<Mutex<BTreeMap<&'static str, StageRestart>>>,
    metrics: StageMetrics,
}

#[derive(Debug)]
struct StageRestart {
    count: u64,
    at: SystemTime,
    reason: String,
}

impl Restarts {
    /// As people see them, by the name of the stage.
    pub(super) fn views(&self) -> Vec<StageRestartView> {
        let view = |(name, restart): (&&str, &StageRestart)| StageRestartView {
            stage: (*name).to_owned(),
            restarts: restart.count,
            last_at: restart.at.into(),
            reason: restart.reason.clone(),
        };
        self.by_stage().iter().map(view).collect()
    }

    fn note(&self, name: &'static str, panic: Option<Box<dyn Any + Send>>) {
        let place = panics::take_place();
        let reason = match panic {
            Some(payload) => {
                let place = place.map(|place| format!(" at {place}")).unwrap_or_default();
                format!("panicked{place}: {}", panics::describe(&*payload))
            }
            None => "ended before it was told to".to_owned(),
        };
        tracing::error!(stage = name, reason, "a stage failed: starting it again");
        self.metrics.restarted(name);
        let at = clock::wall();
        let mut by_stage = self.by_stage();
        let count = by_stage.get(name).map_or(1, |restart| restart.count + 1);
        by_stage.insert(name, StageRestart { count, at, reason });
    }

    fn by_stage(&self) -> MutexGuard<'_, BTreeMap<&'static str, StageRestart>> {
        self.by_stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Panics on request, for tests; no part of a release build.
mod faults {
    /// Never returns.
    #[cfg(not(debug_assertions))]
    pub(super) async fn asked(_stage: &str) {
        std::future::pending().await
    }

    /// Panics once a file of the stage's name is in the folder that CRIPROBE_FAULTS names, and removes it.
    #[cfg(debug_assertions)]
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

    fn tasks() -> Tasks {
        Tasks::new(StageMetrics::default())
    }

    async fn until_restarted(restarts: &Restarts, times: u64) -> StageRestartView {
        let view = timeout(Duration::from_secs(60), async {
            loop {
                let views = restarts.views();
                if let [view] = &views[..]
                    && view.restarts >= times
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
        let mut tasks = tasks();
        let (restarts, stop) = (tasks.restarts(), CancellationToken::new());
        let (sender, mut numbers) = mpsc::channel::<u32>(8);
        let (answers, mut answered) = mpsc::channel::<u32>(8);
        tasks.spawn(supervise("plan", restarts.clone(), stop.clone(), async move || {
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
        assert_eq!((view.stage.as_str(), view.restarts), ("plan", 1));
        assert!(view.reason.contains("this panic belongs to the test"), "{}", view.reason);
        stop.cancel();
        tasks.shutdown().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_stage_that_panics_for_ever_is_started_ever_more_rarely() {
        let mut tasks = tasks();
        let (restarts, stop) = (tasks.restarts(), CancellationToken::new());
        let panicking = async || panic!("this panic belongs to the test");
        tasks.spawn(supervise("plan", restarts.clone(), stop, panicking));
        sleep(Duration::from_secs(60)).await;
        let [view] = &restarts.views()[..] else { panic!("one stage was started again") };
        assert!((12..=20).contains(&view.restarts), "{}", view.restarts);
        tasks.shutdown().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_stage_that_ends_is_started_again_unless_it_was_to_end() {
        let mut tasks = tasks();
        let (restarts, stop) = (tasks.restarts(), CancellationToken::new());
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
        tasks.spawn(supervise("prober", restarts.clone(), stop.clone(), ending));
        let view = until_restarted(&restarts, 1).await;
        assert_eq!(view.reason, "ended before it was told to");
        stop.cancel();
        // The sender goes with the stage.
        while ends.recv().await.is_some() {}
        assert_eq!(restarts.views()[0].restarts, view.restarts);
        tasks.spawn(pending());
        tasks.shutdown().await;
    }
}
