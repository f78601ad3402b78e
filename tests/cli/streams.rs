//! Verbs that stay: until Ctrl-C, until their reader leaves, or the daemon goes.

use super::*;

#[test]
fn a_trace_is_live_until_ctrl_c() {
    let daemon = Daemon::start();
    daemon.push(call());
    let (child, mut lines) = daemon.follow("trace --follow --last 1 -o json");
    assert_eq!(serde_json::from_str::<CallView>(&line(&mut lines)).unwrap(), call(), "what was kept");
    let next = CallView { method: "Exec".to_owned(), ..call() };
    daemon.push(next.clone());
    assert_eq!(serde_json::from_str::<CallView>(&line(&mut lines)).unwrap(), next, "what came");
    assert_eq!(interrupt(child), (Some(0), String::new()));
}

#[test]
fn a_reader_that_leaves_ends_it_quietly() {
    let daemon = Daemon::start();
    daemon.push(call());
    let (mut child, mut lines) = daemon.follow("trace --last 1 --follow");
    line(&mut lines);
    drop(lines);
    // Nothing more is written.
    let has_ended = (0..4_000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        child.try_wait().unwrap().is_some()
    });
    assert!(has_ended, "it waits for calls that nobody will read");
    assert_eq!(end(&mut child), (Some(0), String::new()));
}

#[test]
fn a_daemon_that_goes_ends_its_followers_with_3() {
    let mut daemon = Daemon::start();
    daemon.push(call());
    let (mut child, mut lines) = daemon.follow("trace --last 1 --follow");
    line(&mut lines);
    daemon.runtime.take().unwrap().shutdown_background();
    let (code, stderr) = end(&mut child);
    assert_eq!(code, Some(3));
    assert!(
        stderr.contains("closed the stream: it has stopped or is restarting") && stderr.lines().count() == 1,
        "{stderr}"
    );
}

#[test]
fn a_watch_tells_each_change_on_a_line_where_there_is_no_terminal() {
    let daemon = Daemon::start();
    let (child, mut lines) = daemon.follow("probes -w");
    assert!(line(&mut lines).ends_with(" default/web/app/liveness success probing\n"));
    daemon.probes.send_replace(vec![failing()]);
    assert!(line(&mut lines).ends_with(" success probing -> failure probing\n"));
    daemon.probes.send_replace(Vec::new());
    assert!(line(&mut lines).ends_with(" default/web/app/liveness gone\n"));
    assert_eq!(interrupt(child), (Some(0), String::new()));
}
