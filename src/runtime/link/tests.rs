//! The link to an embedded runtime that misbehaves.

use tokio::time::timeout;

use super::*;
use crate::demo::{EmbeddedRuntime, FaultKind, InjectedFault, Options};

fn there() -> Link {
    Link { source: EventSource::Containerd, is_up: true, ..Link::default() }
}

#[test]
fn one_slow_answer_costs_no_subscription() {
    let link = watch::Sender::new(there());
    let generation = link.borrow().generation;
    set_down(&link, LinkTrouble::silence(), clock::now());
    assert_eq!((link.borrow().is_up, link.borrow().source), (false, EventSource::Containerd));
    set_up(&link, 0, Version::default(), LinkTrouble::default());
    assert_eq!((link.borrow().is_up, link.borrow().source), (true, EventSource::Containerd));
    assert!(link.borrow().generation > generation, "what passed meanwhile may be unknown");
}

#[test]
fn row_20_a_stream_that_ended_makes_lists_out_of_date_and_a_connection_that_is_new_makes_another_runtime() {
    let link = watch::Sender::new(Link::default());
    let counts = || (link.borrow().generation, link.borrow().epoch);
    let answers = |connection| set_up(&link, connection, Version::default(), LinkTrouble::default());
    answers(1);
    assert_eq!(counts(), (1, 1));
    subscribed(&link, EventSource::Cri, 1);
    assert_eq!(counts(), (2, 1), "a first subscription");
    subscribed(&link, EventSource::Cri, 1);
    answers(1);
    assert_eq!(counts(), (3, 1), "a further one, over the same connection");
    subscribed(&link, EventSource::Cri, 2);
    answers(2);
    assert_eq!(counts(), (4, 2), "over another connection");
    set_down(&link, LinkTrouble::silence(), clock::now());
    answers(2);
    assert_eq!(counts(), (5, 3), "it was away");
    answers(3);
    assert_eq!(counts(), (5, 4), "it was restarted between two answers");
}

#[tokio::test]
async fn what_is_wrong_with_the_socket_is_said_in_words_whatever_the_call() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("runtime.sock");
    let runtime = Runtime::new(&socket);
    let path = socket.display();
    for _ in 0..2 {
        let status = runtime.version().await.unwrap_err();
        let text = format!("the runtime's socket {path} does not exist");
        assert_eq!(LinkTrouble::from(&status), text.clone().into());
        // Whoever shows an error of the runtime shows its message.
        assert_eq!(status.message(), text);
        assert_eq!(runtime.containers().await.unwrap_err().message(), text);
    }
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let status = runtime.version().await.unwrap_err();
    assert_eq!(
        LinkTrouble::from(&status),
        format!("no process listens on the runtime's socket {path}").into()
    );
    let own = Status::unavailable("its own words");
    assert_eq!(LinkTrouble::from(&own), "its own words".to_owned().into());
    assert_eq!(LinkTrouble::from(&Status::internal("é".repeat(1 << 20))).text, "é".repeat(512));
}

#[tokio::test(start_paused = true)]
async fn a_silence_counts_from_the_first_call_that_was_not_answered() {
    let link = watch::Sender::new(there());
    let began = clock::now();
    tokio::time::advance(SILENCE).await;
    set_down(&link, LinkTrouble::silence(), began);
    tokio::time::advance(SILENCE).await;
    set_down(&link, LinkTrouble::silence(), clock::now());
    assert_eq!((link.borrow().is_up, link.borrow().began), (false, began));
}

#[tokio::test]
async fn a_runtime_that_becomes_silent_is_noticed_within_a_few_seconds_and_its_clients_go_on() {
    let mut rig = Rig::new().await;
    let began = clock::now();
    rig.runtime.faults().add(InjectedFault::always("Version", FaultKind::Hang));
    let limit = PULSE.0 + SILENCE + Duration::from_secs(5);
    timeout(limit, rig.link.wait_for(|link| !link.is_up)).await.unwrap().unwrap();
    let link = rig.link.borrow().clone();
    assert_eq!(link.trouble.cause, TroubleCause::Silence);
    assert!(link.began >= began && clock::now() - link.began >= SILENCE, "{:?}", link.began - began);
    assert_eq!(rig.gate.presence(), Presence::There);
    rig.runtime.faults().clear();
    timeout(Duration::from_secs(10), rig.link.wait_for(|link| link.is_up)).await.unwrap().unwrap();
    rig.end().await;
}

/// A link to an embedded runtime that answered.
struct Rig {
    dir: tempfile::TempDir,
    runtime: EmbeddedRuntime,
    gate: Gate,
    link: watch::Receiver<Link>,
    keeper: tokio::task::JoinHandle<()>,
}

impl Rig {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("runtime.sock");
        let runtime = EmbeddedRuntime::start(Options::new(&socket, dir.path().join("containers"))).unwrap();
        let (gate, link) = (Gate::default(), watch::Sender::new(Link::default()));
        let mut link_now = link.subscribe();
        let (asked, kept, queue) =
            (Runtime::new(&socket), gate.clone(), events::queue(ExecNewsSink::new(drop)).0);
        let keeper = tokio::spawn(async move { keep(&asked, &kept, &queue, &link).await });
        timeout(Duration::from_secs(10), link_now.wait_for(|link| link.is_up)).await.unwrap().unwrap();
        Self { dir, runtime, gate, link: link_now, keeper }
    }

    async fn end(self) {
        self.keeper.abort();
        self.runtime.shutdown().await;
    }
}

#[tokio::test]
async fn an_open_connection_of_ours_is_no_sign_that_clients_find_the_runtime() {
    let rig = Rig::new().await;
    std::fs::remove_file(rig.dir.path().join("runtime.sock")).unwrap();
    rig.gate.found_away();
    let opened = timeout(Duration::from_millis(500), rig.gate.there()).await;
    assert!(opened.is_err(), "nothing can be dialled");
    assert!(!rig.link.borrow().is_up);
    rig.end().await;
}

#[tokio::test]
async fn whoever_contradicts_each_answer_gets_the_next_ones_later_and_later() {
    let rig = Rig::new().await;
    let mut opened = 0;
    let contradict = async {
        loop {
            rig.gate.found_away();
            rig.gate.there().await;
            opened += 1;
        }
    };
    assert!(timeout(Duration::from_secs(1), contradict).await.is_err());
    assert!(opened <= 8, "50, 100, 200, 250 ms apart, not {opened} times a second");
    rig.end().await;
}

#[tokio::test]
async fn a_runtime_that_is_back_is_found_with_our_own_connection_too() {
    let mut rig = Rig::new().await;
    rig.runtime.stop_serving().await;
    timeout(Duration::from_secs(10), rig.gate.away()).await.unwrap();
    rig.runtime.serve_again(Duration::ZERO).unwrap();
    timeout(Duration::from_secs(10), rig.gate.there()).await.unwrap();
    rig.link.wait_for(|link| link.is_up).await.unwrap();
    let version = Runtime::new(&rig.dir.path().join("runtime.sock")).version().await.unwrap();
    assert_eq!(rig.link.borrow().version, version);
    rig.end().await;
}

#[tokio::test]
async fn row_07_a_doubt_holds_clients_for_a_quarter_of_a_second_and_not_again_at_once() {
    let rig = Rig::new().await;
    rig.runtime.faults().add(InjectedFault::always("Version", FaultKind::Delay(Duration::from_secs(2))));
    let began = clock::now();
    let mut held = Duration::ZERO;
    while clock::now() - began < Duration::from_secs(3) {
        // The relay sees connections that the runtime closes again and again.
        rig.gate.doubted(clock::now());
        let waited = clock::now();
        timeout(Duration::from_secs(10), rig.gate.there()).await.unwrap();
        held += clock::now() - waited;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // At most one doubt in each 1.25 s.
    assert!(held < Duration::from_millis(1_500), "clients were held for {held:?} of 3 s");
    rig.end().await;
}
