//! The loop under paused time, with attempts that the test makes up.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use tokio::time;

use super::*;
use crate::{
    handler::exec::PendingCall,
    ids::ProbeKind,
    inventory::pod::{Container, ContainerState, Pod, PodNetwork},
    prober::{
        ProbeStatus,
        fixtures::{container, outcome, planned, spec},
    },
    results::{AttemptResult, Verdict, event::EventReason},
    spec::{Handler, PortRef, ProbeSpec},
};

const SECOND: Duration = Duration::from_secs(1);

fn input(pod: usize, handler: Handler) -> Input {
    let spec = ProbeSpec { handler, ..spec(ProbeKind::Liveness) };
    let view = container(&format!("p{pod}"), &format!("c{pod}"), 0);
    Input::Container { view: Arc::new(view), probes: vec![planned(spec)] }
}

fn tcp() -> Handler {
    Handler::TcpSocket { host: None, port: PortRef::Number(80) }
}

fn exec() -> Handler {
    Handler::Exec { command: vec!["true".to_owned()] }
}

/// What the attempts of a test left behind.
#[derive(Default)]
struct Log {
    made: HashMap<ProbeKey, u32>,
    in_flight: HashMap<ProbeKey, u32>,
    most_in_flight: usize,
}

impl Log {
    fn begin(&mut self, key: &ProbeKey) {
        *self.made.entry(key.clone()).or_default() += 1;
        let same = self.in_flight.entry(key.clone()).or_default();
        *same += 1;
        assert_eq!(*same, 1, "two attempts of {key} at once");
        self.most_in_flight = self.most_in_flight.max(self.in_flight.len());
    }

    fn end(&mut self, key: &ProbeKey) {
        self.in_flight.remove(key);
    }
}

/// A prober whose attempts take `duration` and end as `result` says, and the test's ends of its channels.
struct Rig {
    inputs: mpsc::Sender<Input>,
    questions: Asker<Question>,
    settings: watch::Sender<ProberSettings>,
    stop: CancellationToken,
    log: Arc<Mutex<Log>>,
    events: Arc<Mutex<Vec<ProbeEvent>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Rig {
    fn new(
        settings: ProberSettings,
        duration: Duration,
        result: impl Fn(&ProbeKey) -> AttemptResult + Clone + Send + 'static,
    ) -> Self {
        Self::with_pending(settings, duration, result, None)
    }

    /// One whose attempts then keep the runtime at work for so long.
    fn with_pending(
        settings: ProberSettings,
        duration: Duration,
        result: impl Fn(&ProbeKey) -> AttemptResult + Clone + Send + 'static,
        pending: Option<Duration>,
    ) -> Self {
        let (inputs, input_end) = mpsc::channel(64);
        let (questions, asked) = Asker::channel("prober");
        let stop = CancellationToken::new();
        let (setter, settings) = watch::channel(settings);
        let channels = Channels {
            settings,
            inputs: input_end,
            questions: asked,
            saves: watch::Sender::default(),
            stop: stop.clone(),
        };
        let log = Arc::new(Mutex::new(Log::default()));
        let events = Arc::new(Mutex::new(Vec::new()));
        let (logged, reported) = (log.clone(), events.clone());
        let task = tokio::spawn(async move {
            let attempt = move |job: Job| {
                let (log, result) = (logged.clone(), result.clone());
                async move {
                    log.lock().unwrap().begin(&job.key);
                    time::sleep(duration).await;
                    log.lock().unwrap().end(&job.key);
                    let pending = pending.map(|pending| Box::pin(time::sleep(pending)) as PendingCall);
                    Attempted { outcome: outcome(result(&job.key)), pending }
                }
            };
            let mut channels = channels;
            let on_event = move |event| reported.lock().unwrap().push(event);
            drive(Saved::default(), &mut channels, attempt, on_event, drop, drop).await;
        });
        Self { inputs, questions, settings: setter, stop, log, events, task }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap()
    }

    async fn statuses(&self) -> Arc<Vec<ProbeStatus>> {
        self.questions.ask(Question::Probes).await.unwrap()
    }
}

fn settings(workers: usize, exec_workers: usize) -> ProberSettings {
    ProberSettings { workers, exec_workers, ..ProberSettings::default() }
}

#[tokio::test(start_paused = true)]
async fn settings_that_change_are_in_force_at_once() {
    let rig = Rig::new(settings(1, 1), Duration::from_secs(5), |_| AttemptResult::Success);
    // One after the other: those that come together are spread.
    for pod in 0..2 {
        rig.inputs.send(input(pod, tcp())).await.unwrap();
        time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(rig.log().in_flight.len(), 1);
    rig.settings.send_replace(settings(4, 1));
    time::sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.log().in_flight.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn attempts_keep_the_beat_of_the_period() {
    let rig = Rig::new(settings(64, 16), Duration::from_millis(5), |_| AttemptResult::Success);
    rig.inputs.send(input(0, tcp())).await.unwrap();
    time::sleep(Duration::from_millis(60_500)).await;
    assert_eq!(rig.log().made.values().copied().collect::<Vec<_>>(), [7], "at once, then every 10 s");
    let statuses = rig.statuses().await;
    assert_eq!((statuses[0].state, statuses[0].counts.success), (Verdict::Success, 7));
    assert!(statuses[0].next_at.is_some());
}

/// With time as it is, and connections that are real.
#[tokio::test]
async fn a_period_below_a_second_is_kept_within_a_tenth() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (inputs, input_end) = mpsc::channel(1);
    let (_asker, questions) = Asker::channel("prober");
    let (_setter, settings) = watch::channel(settings(64, 16));
    let mut channels = Channels {
        settings,
        inputs: input_end,
        questions,
        saves: watch::Sender::default(),
        stop: CancellationToken::new(),
    };
    let nowhere = tonic::transport::Endpoint::from_static("http://runtime").connect_lazy();
    let nowhere = Exec::new(nowhere);
    let task =
        tokio::spawn(async move { run(Saved::default(), &mut channels, &nowhere, drop, drop, drop).await });
    let handler = Handler::TcpSocket { host: None, port: PortRef::Number(address.port()) };
    let period = Duration::from_millis(250);
    let spec = ProbeSpec { handler, period, ..spec(ProbeKind::Readiness) };
    let view = container("p", "c", 0);
    let network = PodNetwork::Pod(vec![address.ip()]);
    let pod = Arc::new(Pod { network, ..(*view.pod).clone() });
    let view = Arc::new(Container { pod, ..view });
    inputs.send(Input::Container { view, probes: vec![planned(spec)] }).await.unwrap();
    let accept = async || time::timeout(10 * SECOND, listener.accept()).await.unwrap().unwrap();
    drop(accept().await);
    let first = clock::now();
    for _ in 0..8 {
        drop(accept().await);
    }
    let mean = (clock::now() - first) / 8;
    assert!((225..=275).contains(&mean.as_millis()), "every {mean:?}");
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn the_pool_keeps_its_limits_and_everybody_gets_a_turn() {
    let rig = Rig::new(settings(8, 3), Duration::from_millis(90), |_| AttemptResult::Success);
    for pod in 0..800 {
        let handler = if pod % 4 == 0 { exec() } else { tcp() };
        rig.inputs.send(input(pod, handler)).await.unwrap();
    }
    time::sleep(100 * SECOND).await;
    let log = rig.log();
    assert_eq!(log.most_in_flight, 6, "what one namespace may hold of eight");
    assert_eq!(log.made.len(), 800);
    let (least, most) = (log.made.values().min().unwrap(), log.made.values().max().unwrap());
    assert!((6..=11).contains(least) && (6..=11).contains(most), "{least} to {most} attempts in 100 s");
}

#[tokio::test(start_paused = true)]
async fn a_panic_costs_one_attempt_and_frees_its_place() {
    let rig = Rig::new(settings(1, 1), Duration::ZERO, |key| {
        assert_ne!(key.pod.as_str(), "p0", "this panic belongs to the test");
        AttemptResult::Success
    });
    rig.inputs.send(input(0, tcp())).await.unwrap();
    rig.inputs.send(input(1, tcp())).await.unwrap();
    time::sleep(35 * SECOND).await;
    let statuses = rig.statuses().await;
    assert_eq!(statuses[0].counts.total(), 0);
    assert_eq!(statuses[0].state, Verdict::Success, "it changes nothing: liveness starts as a success");
    assert!(rig.log().made.values().all(|made| *made >= 3), "{:?}", rig.log().made);
    assert!(statuses[1].counts.success >= 3);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_ends_with_its_container_and_its_place_is_free() {
    let rig = Rig::new(settings(1, 1), 3600 * SECOND, |_| AttemptResult::Success);
    for (pod, end) in [
        (0, Input::ContainerGone("c0".into())),
        (1, {
            let exited = ContainerState::Exited { exit_code: Some(0) };
            let view = Container { state: exited, ..container("p1", "c1", 0) };
            Input::Container {
                view: Arc::new(view),
                probes: vec![planned(ProbeSpec { handler: tcp(), ..spec(ProbeKind::Liveness) })],
            }
        }),
        (2, input(2, exec())),
    ] {
        rig.inputs.send(input(pod, tcp())).await.unwrap();
        time::sleep(SECOND).await;
        let key =
            ProbeKey { pod: format!("p{pod}").into(), container: "app".into(), kind: ProbeKind::Liveness };
        assert_eq!(rig.log().made.get(&key), Some(&1), "{pod} has the only place");
        // The log does not see that an attempt was given up: it only counts those that end by themselves.
        rig.log().in_flight.clear();
        rig.inputs.send(end).await.unwrap();
        time::sleep(SECOND).await;
    }
    let key = ProbeKey { pod: "p2".into(), container: "app".into(), kind: ProbeKind::Liveness };
    assert_eq!(rig.log().made.get(&key), Some(&2), "another definition is another probe");
    assert!(
        rig.events.lock().unwrap().iter().all(|event| event.reason != EventReason::Unhealthy),
        "and nothing is said of it"
    );
}

#[tokio::test(start_paused = true)]
async fn failures_turn_the_verdict_and_are_told() {
    let rig = Rig::new(settings(64, 16), Duration::ZERO, |_| AttemptResult::Failure);
    rig.inputs.send(input(0, tcp())).await.unwrap();
    time::sleep(100 * SECOND).await;
    assert_eq!(rig.statuses().await[0].state, Verdict::Failure);
    assert!(rig.log().made.values().sum::<u32>() >= 10, "it goes on");
    let reasons: Vec<_> = rig.events.lock().unwrap().iter().map(|event| event.reason.as_str()).collect();
    assert_eq!(reasons[..5], ["Unhealthy", "Unhealthy", "Unhealthy", "VerdictChanged", "Unhealthy"]);
    assert!(reasons[5..].iter().all(|reason| *reason == "Unhealthy"), "the verdict fell once");
}

#[tokio::test(start_paused = true)]
async fn what_is_judged_while_the_runtime_works_at_it_is_shown_and_keeps_its_place() {
    let (quick, long) = (Duration::from_millis(10), Some(20 * SECOND));
    let rig = Rig::with_pending(settings(1, 1), quick, |_| AttemptResult::Failure, long);
    rig.inputs.send(input(0, exec())).await.unwrap();
    time::sleep(SECOND).await;
    rig.inputs.send(input(1, exec())).await.unwrap();
    time::sleep(18 * SECOND).await;
    let made = || rig.log().made.values().copied().collect::<Vec<_>>();
    assert_eq!(made(), [1], "its place is not free, and it is not tried again");
    let counts: Vec<_> = rig.statuses().await.iter().map(|status| status.counts.failure).collect();
    assert_eq!(counts.iter().sum::<u64>(), 1, "it counts at once");
    time::sleep(2 * SECOND).await;
    assert_eq!(made(), [1, 1], "the other one has its turn");
    // One that waits for the runtime ends with its container.
    rig.inputs.send(Input::ContainerGone("c1".into())).await.unwrap();
    time::sleep(14 * SECOND).await;
    assert_eq!(made().iter().sum::<u32>(), 3, "its place is free at once");
    let counts: Vec<_> = rig.statuses().await.iter().map(|status| status.counts.failure).collect();
    assert_eq!(counts, [2], "each counts once");
}

#[tokio::test(start_paused = true)]
async fn row_20_what_is_reported_is_taken_in_before_questions_are_answered() {
    let rig = Rig::new(settings(1, 1), SECOND, |_| AttemptResult::Success);
    rig.inputs.try_send(input(0, tcp())).unwrap();
    assert_eq!(rig.statuses().await.len(), 1);
}

/// With time as it is: what matters is how long answers take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_20_no_flood_of_questions_delays_a_new_container() {
    let rig = Rig::new(settings(64, 16), Duration::ZERO, |_| AttemptResult::Success);
    let silent = |pod: usize| {
        let spec = ProbeSpec { initial_delay: 3600 * SECOND, ..spec(ProbeKind::Liveness) };
        (Arc::new(container(&format!("p{pod}"), &format!("c{pod}"), 0)), vec![planned(spec)])
    };
    rig.inputs.send(Input::Replanned((1..=500).map(silent).collect())).await.unwrap();
    assert_eq!(rig.statuses().await.len(), 500);
    let mut askers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let questions = rig.questions.clone();
        askers.spawn(async move {
            loop {
                // Too late or not: it asks again at once.
                let _ = questions.ask(Question::Probes).await;
            }
        });
    }
    time::sleep(SECOND).await;
    rig.inputs.send(input(0, tcp())).await.unwrap();
    let key = ProbeKey { pod: "p0".into(), container: "app".into(), kind: ProbeKind::Liveness };
    let attempted = async {
        while !rig.log().made.contains_key(&key) {
            time::sleep(Duration::from_millis(10)).await;
        }
    };
    let attempted = time::timeout(10 * SECOND, attempted).await;
    askers.shutdown().await;
    assert!(attempted.is_ok(), "the prober only answers questions");
}

#[tokio::test(start_paused = true)]
async fn it_ends_when_it_is_told_to_and_gives_up_what_is_in_flight() {
    let rig = Rig::new(settings(64, 16), 3600 * SECOND, |_| AttemptResult::Success);
    rig.inputs.send(input(0, tcp())).await.unwrap();
    time::sleep(SECOND).await;
    assert_eq!(rig.log().in_flight.len(), 1);
    rig.stop.cancel();
    let ended = time::timeout(SECOND, rig.task).await;
    assert!(ended.is_ok(), "the prober is still there");
    time::sleep(3600 * SECOND).await;
    assert_eq!(rig.log.lock().unwrap().in_flight.len(), 1, "the attempt went on by itself");
}

#[tokio::test(start_paused = true)]
async fn it_ends_when_nobody_can_tell_it_anything_any_more() {
    let rig = Rig::new(settings(64, 16), SECOND, |_| AttemptResult::Success);
    drop(rig.inputs);
    assert!(time::timeout(SECOND, rig.task).await.is_ok());
}
