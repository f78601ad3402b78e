//! Verbs that stay: until Ctrl-C, or until their reader leaves; meanwhile the daemon may go and come back.

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

/// Whether something can be read within this time.
fn is_coming(lines: &BufReader<std::process::ChildStdout>, within: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut polled = [PollFd::new(lines.get_ref(), PollFlags::IN)];
    !lines.buffer().is_empty() || poll(&mut polled, Some(&within.try_into().unwrap())).unwrap() > 0
}

fn stderr(child: &mut Child) -> BufReader<std::process::ChildStderr> {
    BufReader::new(child.stderr.take().unwrap())
}

#[test]
fn a_follower_waits_for_a_daemon_that_is_restarted_and_says_what_is_not_known() {
    let mut daemon = Daemon::start();
    daemon.push(call());
    let (mut child, mut lines) = daemon.follow("trace --last 1 --follow -o json");
    line(&mut lines);
    let mut stderr = stderr(&mut child);
    daemon.runtime.take().unwrap().shutdown_background();
    let away = line(&mut stderr);
    assert!(away.starts_with("criprobe: the daemon is away, waiting for it: "), "{away}");
    // What another daemon has kept is new; there it is one call.
    let next = CallView { method: "Exec".to_owned(), ..call() };
    daemon.trace = Journal::new(JournalBounds::records(1_000));
    daemon.push(next.clone());
    daemon.status.started_at.0 += Duration::from_secs(1);
    daemon.serve();
    let back = line(&mut stderr);
    assert!(back.starts_with("criprobe: the daemon is back after "), "{back}");
    assert!(back.contains(": calls between ") && back.ends_with(" are not known\n"), "{back}");
    assert_eq!(serde_json::from_str::<CallView>(&line(&mut lines)).unwrap(), next);
    // The same daemon again: what is kept was printed.
    daemon.runtime.take().unwrap().shutdown_background();
    line(&mut stderr);
    daemon.serve();
    line(&mut stderr);
    let last = CallView { method: "Status".to_owned(), ..call() };
    let has_come = (0..400).any(|_| {
        daemon.push(last.clone());
        is_coming(&lines, Duration::from_millis(10))
    });
    assert!(has_come);
    assert_eq!(serde_json::from_str::<CallView>(&line(&mut lines)).unwrap(), last);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn ctrl_c_and_a_reader_that_leaves_end_a_follower_whose_daemon_is_away() {
    for leaves in [false, true] {
        for verb in ["events --follow", "probes -w", "pods -w"] {
            let mut daemon = Daemon::start();
            daemon.events.push(serde_json::from_str::<EventView>(EVENT).unwrap());
            let (mut child, mut lines) = daemon.follow(verb);
            line(&mut lines);
            let mut stderr = stderr(&mut child);
            daemon.runtime.take().unwrap().shutdown_background();
            assert!(line(&mut stderr).contains("the daemon is away"), "{verb}");
            if leaves {
                drop(lines);
            } else {
                let pid = rustix::process::Pid::from_child(&child);
                rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
            }
            assert_eq!(child.wait().unwrap().code(), Some(0), "{verb}");
        }
    }
}

#[test]
fn what_a_daemon_that_has_just_started_does_not_list_yet_is_not_gone() {
    let mut daemon = Daemon::start();
    let (mut child, mut lines) = daemon.follow("probes -w");
    line(&mut lines);
    let mut stderr = stderr(&mut child);
    daemon.runtime.take().unwrap().shutdown_background();
    line(&mut stderr);
    daemon.probes.send_replace(Vec::new());
    daemon.serve();
    assert!(line(&mut stderr).contains(": changes between "));
    // The status says that it was started 1 s ago.
    assert!(!is_coming(&lines, Duration::from_millis(1_500)), "{}", line(&mut lines));
    daemon.probes.send_replace(vec![failing()]);
    assert!(line(&mut lines).ends_with(" success probing -> failure probing\n"));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_watch_tells_each_change_on_a_line_where_there_is_no_terminal() {
    let mut status = status();
    status.uptime_seconds.0 = Duration::from_secs(60);
    let daemon = Daemon::with(status);
    let (child, mut lines) = daemon.follow("probes -w");
    assert!(line(&mut lines).ends_with(" default/web/app/liveness success probing\n"));
    daemon.probes.send_replace(vec![failing()]);
    assert!(line(&mut lines).ends_with(" success probing -> failure probing\n"));
    daemon.probes.send_replace(Vec::new());
    assert!(line(&mut lines).ends_with(" default/web/app/liveness gone\n"));
    assert_eq!(interrupt(child), (Some(0), String::new()));
}
