//! The prober's one loop: receives, lets the roster decide, and makes the attempts. Attempts are its only further
//! tasks; there is no timer but one.

use std::{collections::HashMap, panic::AssertUnwindSafe, sync::Arc};

use futures_util::{FutureExt, future::BoxFuture};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{
    Input, Moment, ProberHandle, ProberSettings, Question,
    answers::Answers,
    attempt::{AttemptOutcome, Attempted, Handlers, Job},
    demand::Demand,
    lateness::LatenessNews,
    made::MadeAttempt,
    roster::Roster,
    state::Saved,
};
use crate::{
    clock,
    handler::exec::Exec,
    ids::ProbeKey,
    results::event::ProbeEvent,
    stage::{Asker, Tasks},
};

/// How many inputs are taken at once, before due probes are looked at again: those reported together come due together,
/// and are spread.
const INPUTS_AT_ONCE: usize = 1024;

/// 16 questions are taken at once, before inputs and ends are looked at again; as many as wait for an answer.
const QUESTIONS_AT_ONCE: usize = 16;

/// How an attempt's task ended.
enum AttemptEnd {
    /// The attempt was made.
    Finished(AttemptOutcome),
    /// It was judged before, and now the runtime is through with it.
    Answered,
    /// It was given up: its container or its probe is no more, or others wait for its place.
    GivenUp,
    Panicked,
}

/// What the prober works with.
pub(crate) struct Deps<E, D> {
    /// The settings in effect; they may change at any time.
    pub settings: watch::Receiver<ProberSettings>,
    /// Runs commands.
    pub exec: Exec,
    /// Reads what was saved before the start.
    pub load: BoxFuture<'static, Saved>,
    /// Is sent what has to survive a restart, soon after it changed and once more at the end.
    pub saves: watch::Sender<Arc<Saved>>,
    /// Ends the prober.
    pub stop: CancellationToken,
    /// Has all containers reported again after a panic of the prober's task.
    pub replay: Box<dyn Fn() + Send + Sync>,
    /// Is called with each event, on the prober's task. Must not block.
    pub on_event: E,
    /// Is called with each attempt that ended with an outcome, on the prober's task. Must not block.
    pub on_attempt: Box<dyn FnMut(MadeAttempt) + Send>,
    /// Is called with each reason to act on a container, on the prober's task. Must not block.
    pub on_demand: D,
}

/// Starts the prober. It ends when all clones of the handle are gone, or when it is stopped: then it gives up the attempts in
/// flight.
pub(crate) fn spawn<E, D>(deps: Deps<E, D>, tasks: &mut Tasks) -> ProberHandle
where
    E: FnMut(ProbeEvent) + Send + 'static,
    D: FnMut(Demand) + Send + 'static,
{
    let Deps { settings, exec, load, saves, stop, replay, mut on_event, mut on_attempt, mut on_demand } =
        deps;
    let mut load = Some(load);
    let (input_sender, inputs) = mpsc::channel(INPUTS_AT_ONCE);
    let (asker, questions) = Asker::channel("prober");
    let handle = ProberHandle::new(input_sender, asker, exec.runtime(), settings.clone()).with_exec(&exec);
    let mut channels = Channels { settings, inputs, questions, saves, stop: stop.clone() };
    tasks.spawn(tasks.supervise_until("prober", stop, async move || {
        let restored = match load.take() {
            Some(load) => tokio::select! {
                restored = load => restored,
                () = channels.stop.cancelled() => return,
            },
            // After a panic: what was to be saved last, as after a restart of criprobe.
            None => {
                replay();
                Saved::clone(&channels.saves.borrow())
            }
        };
        run(restored, &mut channels, &exec, &mut on_event, &mut on_attempt, &mut on_demand).await;
    }));
    handle
}

/// The prober's ends of its channels, which survive a panic of its task.
#[derive(Debug)]
struct Channels {
    settings: watch::Receiver<ProberSettings>,
    inputs: mpsc::Receiver<Input>,
    questions: mpsc::Receiver<Question>,
    saves: watch::Sender<Arc<Saved>>,
    stop: CancellationToken,
}

async fn run(
    restored: Saved,
    channels: &mut Channels,
    exec: &Exec,
    on_event: impl FnMut(ProbeEvent) + Send,
    on_attempt: impl FnMut(MadeAttempt) + Send,
    on_demand: impl FnMut(Demand) + Send,
) {
    let settings = channels.settings.clone();
    let handlers = Handlers::new(exec, &settings.borrow());
    let attempt = move |job: Job| {
        let handlers = handlers.under(&settings.borrow());
        async move { handlers.judge(&job.spec, &job.view, &job.variables, &job.ports).await }
    };
    drive(restored, channels, attempt, on_event, on_attempt, on_demand).await;
}

/// The loop, whatever an attempt does.
async fn drive<A, F>(
    restored: Saved,
    channels: &mut Channels,
    attempt: A,
    mut on_event: impl FnMut(ProbeEvent) + Send,
    mut on_attempt: impl FnMut(MadeAttempt) + Send,
    mut on_demand: impl FnMut(Demand) + Send,
) where
    A: Fn(Job) -> F,
    F: Future<Output: Into<Attempted>> + Send + 'static,
{
    let mut roster = Roster::new(&channels.settings.borrow_and_update(), Moment::now());
    let mut may_change = true;
    roster.restore(restored);
    let mut attempts: JoinSet<(ProbeKey, AttemptEnd)> = JoinSet::new();
    // Of all attempts in flight: what gives them up.
    let mut in_flight: HashMap<ProbeKey, CancellationToken> = HashMap::new();
    // Of those among them that are judged while the runtime still works at them. At most one each.
    let (judge, mut judged) = mpsc::unbounded_channel();
    let mut inputs = Vec::new();
    let mut answers = Answers::default();
    loop {
        let mut finished = None;
        let mut question = None;
        tokio::select! {
            biased;
            () = channels.stop.cancelled() => break,
            changed = channels.settings.changed(), if may_change => {
                may_change = changed.is_ok();
                roster.set_limits(&channels.settings.borrow_and_update(), Moment::now());
            }
            taken = channels.inputs.recv_many(&mut inputs, INPUTS_AT_ONCE) => {
                if taken == 0 {
                    break;
                }
            }
            Some((key, outcome)) = judged.recv() => roster.judge(&key, outcome, Moment::now()),
            Some(ended) = attempts.join_next() => finished = ended.ok(),
            () = clock::until(roster.deadline()) => {}
            () = clock::until(roster.save_deadline()) => {}
            () = clock::until(answers.deadline()) => {}
            // Last, as anyone may ask at any rate: what is reported and what has ended comes first.
            Some(asked) = channels.questions.recv(), if answers.has_room() => question = Some(asked),
        }
        let now = Moment::now();
        // All that ended is taken each time, so that no flood of inputs or questions keeps places taken.
        loop {
            let ended = finished.take().or_else(|| attempts.try_join_next().and_then(Result::ok));
            // After that, as what ended was judged before.
            while let Ok((key, outcome)) = judged.try_recv() {
                roster.judge(&key, outcome, now);
            }
            let Some((key, ended)) = ended else { break };
            in_flight.remove(&key);
            if matches!(ended, AttemptEnd::Panicked) {
                tracing::error!(pod.uid = %key.pod, container = %key.container, probe.type = %key.kind, "attempt panicked");
            }
            let outcome = match ended {
                AttemptEnd::Finished(outcome) => Some(outcome),
                AttemptEnd::Answered | AttemptEnd::GivenUp | AttemptEnd::Panicked => None,
            };
            roster.finish(&key, outcome, now);
        }
        for input in inputs.drain(..) {
            roster.accept(input, now);
        }
        // Some of them each time, so that no flood of inputs keeps them waiting, either.
        for _ in 0..QUESTIONS_AT_ONCE {
            let next = || if answers.has_room() { channels.questions.try_recv().ok() } else { None };
            let Some(asked) = question.take().or_else(next) else { break };
            answers.take(asked, &mut roster, now);
        }
        for job in roster.advance(now) {
            let (key, given_up) = (job.key.clone(), CancellationToken::new());
            in_flight.insert(key.clone(), given_up.clone());
            let (made, judge) = (attempt(job), judge.clone());
            attempts.spawn(async move {
                let to_the_end = async {
                    let Attempted { outcome, pending } = made.await.into();
                    let Some(pending) = pending else { return AttemptEnd::Finished(outcome) };
                    let _ = judge.send((key.clone(), outcome));
                    pending.await;
                    AttemptEnd::Answered
                };
                let to_the_end = AssertUnwindSafe(to_the_end).catch_unwind();
                let ended = match given_up.run_until_cancelled(to_the_end).await {
                    Some(ended) => ended.unwrap_or(AttemptEnd::Panicked),
                    None => AttemptEnd::GivenUp,
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
        roster.take_attempts().into_iter().for_each(&mut on_attempt);
        roster.take_events().into_iter().for_each(&mut on_event);
        roster.take_demands().into_iter().for_each(&mut on_demand);
        if roster.save_deadline().is_some_and(|deadline| deadline <= now.at) {
            channels.saves.send_replace(Arc::new(roster.save(now)));
        }
        answers.give(&roster, Moment::now);
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
            "probes no longer wait too long for a place"
        ),
    }
}

#[cfg(test)]
mod tests;
