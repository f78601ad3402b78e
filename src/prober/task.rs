//! The prober's one loop: receives, lets the roster decide, and makes the attempts. Attempts are its only further
//! tasks; there is no timer but one.

use std::{collections::HashMap, panic::AssertUnwindSafe, sync::Arc, time::Instant};

use futures_util::FutureExt;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time,
};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use super::{
    ContainerStatus, Input, Moment, ProbeStatus, ProberSettings,
    attempt::{Handlers, Job, Tried},
    lateness::LatenessNews,
    roster::Roster,
    saved::Saved,
};
use crate::{ids::ProbeKey, results::event::ProbeEvent};

/// How many inputs are taken at once, before due probes are looked at again: those told together come due together,
/// and are spread.
const INPUTS_AT_ONCE: usize = 1024;

/// How an attempt's task ended.
enum Ended {
    /// The attempt was made.
    Made(Tried),
    /// It was given up: its container or its probe is no more.
    GivenUp,
    /// It panicked.
    Panicked,
}

/// The prober's ends of its channels.
#[derive(Debug)]
pub struct Channels {
    /// The settings in force; they may change at any time.
    pub settings: watch::Receiver<ProberSettings>,
    /// What the inventory and the plan tell. The prober ends when all senders are gone.
    pub inputs: mpsc::Receiver<Input>,
    /// Who wants to know all probes, sorted by namespace, pod, container and type.
    pub queries: mpsc::Receiver<oneshot::Sender<Vec<ProbeStatus>>>,
    /// Who wants to know all containers, also those without probes, and how they stand.
    pub containers: mpsc::Receiver<oneshot::Sender<Vec<ContainerStatus>>>,
    /// Is sent what a restart is to survive, soon after it changed and once more at the end.
    pub saves: watch::Sender<Arc<Saved>>,
    /// Ends the prober; attempts in flight are given up, as are those whose container ends.
    pub stop: CancellationToken,
}

/// Probes until it is stopped, and goes on from what was saved; commands are run through `runtime`. `on_event` is called
/// on the prober's task and must not block.
pub async fn run(
    restored: Saved,
    channels: &mut Channels,
    runtime: Channel,
    on_event: impl FnMut(ProbeEvent) + Send,
) {
    let settings = channels.settings.clone();
    let handlers = Handlers::new(runtime, &settings.borrow());
    let attempt = move |job: Job| {
        let handlers = handlers.under(&settings.borrow());
        async move { handlers.attempt(&job.spec, &job.view, &job.variables).await }
    };
    drive(restored, channels, attempt, on_event).await;
}

/// The loop, whatever an attempt does.
async fn drive<A, F>(
    restored: Saved,
    channels: &mut Channels,
    attempt: A,
    mut on_event: impl FnMut(ProbeEvent) + Send,
) where
    A: Fn(Job) -> F,
    F: Future<Output = Tried> + Send + 'static,
{
    let mut roster = Roster::new(&channels.settings.borrow_and_update(), Moment::now());
    let mut may_change = true;
    roster.restore(restored);
    let mut attempts: JoinSet<(ProbeKey, Ended)> = JoinSet::new();
    // Of all attempts in flight: what gives them up.
    let mut in_flight: HashMap<ProbeKey, CancellationToken> = HashMap::new();
    let mut inputs = Vec::new();
    loop {
        let mut finished = None;
        tokio::select! {
            biased;
            () = channels.stop.cancelled() => break,
            Some(query) = channels.queries.recv() => {
                // Whoever asked may have left meanwhile.
                let _ = query.send(roster.statuses(Moment::now()));
            }
            Some(query) = channels.containers.recv() => {
                let _ = query.send(roster.containers(Moment::now()));
            }
            changed = channels.settings.changed(), if may_change => {
                may_change = changed.is_ok();
                roster.set_limits(&channels.settings.borrow_and_update(), Moment::now());
            }
            taken = channels.inputs.recv_many(&mut inputs, INPUTS_AT_ONCE) => {
                if taken == 0 {
                    break;
                }
            }
            Some(ended) = attempts.join_next() => finished = ended.ok(),
            () = until(roster.deadline()) => {}
            () = until(roster.save_deadline()) => {}
        }
        let now = Moment::now();
        let mut finished = finished.or_else(|| attempts.try_join_next().and_then(Result::ok));
        // All that ended is taken each time, so that no flood of inputs or questions keeps places taken.
        while let Some((key, ended)) = finished {
            in_flight.remove(&key);
            if matches!(ended, Ended::Panicked) {
                tracing::error!(pod.uid = %key.pod, container = %key.container, probe.type = %key.kind, "attempt panicked");
            }
            let tried = match ended {
                Ended::Made(tried) => Some(tried),
                Ended::GivenUp | Ended::Panicked => None,
            };
            roster.finish(&key, tried, now);
            finished = attempts.try_join_next().and_then(Result::ok);
        }
        for input in inputs.drain(..) {
            roster.accept(input, now);
        }
        for job in roster.advance(now) {
            let (key, given_up) = (job.key.clone(), CancellationToken::new());
            in_flight.insert(key.clone(), given_up.clone());
            let made = AssertUnwindSafe(attempt(job)).catch_unwind();
            attempts.spawn(async move {
                let ended = match given_up.run_until_cancelled(made).await {
                    Some(Ok(tried)) => Ended::Made(tried),
                    Some(Err(_)) => Ended::Panicked,
                    None => Ended::GivenUp,
                };
                (key, ended)
            });
        }
        roster
            .take_given_up()
            .iter()
            .filter_map(|key| in_flight.get(key))
            .for_each(CancellationToken::cancel);
        if let Some(news) = roster.lateness_news(now) {
            log_lateness(news);
        }
        roster.take_events().into_iter().for_each(&mut on_event);
        if roster.save_deadline().is_some_and(|deadline| deadline <= now.at) {
            channels.saves.send_replace(Arc::new(roster.save(now)));
        }
    }
    if roster.save_deadline().is_some() {
        channels.saves.send_replace(Arc::new(roster.save(Moment::now())));
    }
}

/// One line when probes begin to wait for too long, and one when none does any more, however many they are.
fn log_lateness(news: LatenessNews) {
    match news {
        LatenessNews::Began => tracing::warn!(
            "probes wait for a place for more than two of their periods: see `criprobe status`, and raise \
             prober.workers or prober.execWorkers, or find what is slow with `criprobe probes`"
        ),
        LatenessNews::Ended { lasted, most } => tracing::info!(
            lasted_seconds = lasted.as_secs(),
            most_at_once = most,
            "no probe waits for a place for too long any more"
        ),
    }
}

/// Ends at the deadline; never without one.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => time::sleep_until(time::Instant::from_std(at)).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
