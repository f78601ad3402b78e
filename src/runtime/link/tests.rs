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
    set_down(&link, "no answer to Version".to_owned().into());
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
    set_down(&link, "no answer to Version".to_owned().into());
    answers(2);
    assert_eq!(counts(), (5, 3), "it was away");
    answers(3);
    assert_eq!(counts(), (5, 4), "it was restarted between two answers");
}

#[tokio::test]
async fn what_the_system_says_of_the_socket_is_kept_as_a_kind() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("runtime.sock");
    let trouble = async || LinkTrouble::from(&Runtime::new(&socket).version().await.unwrap_err()).kind;
    assert_eq!(trouble().await, Some(io::ErrorKind::NotFound));
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert_eq!(trouble().await, Some(io::ErrorKind::ConnectionRefused));
    assert_eq!(LinkTrouble::from(&Status::unavailable("(os error 2)")).kind, None, "its own words");
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
        let (asked, kept, queue) = (Runtime::new(&socket), gate.clone(), events::queue().0);
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
