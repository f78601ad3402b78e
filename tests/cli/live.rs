//! Verbs on a terminal: lists that are watched, narrow screens, poor characters, and the demo.

use rustix::process::Signal;

use super::{
    terminal::{Keys, Terminal},
    *,
};

/// A daemon with so many probes, of which the last two fail.
fn daemon(count: usize) -> Daemon {
    let daemon = Daemon::start();
    daemon.probes.send_replace(probes(count, 2));
    daemon
}

fn probes(count: usize, failing: usize) -> Vec<ProbeView> {
    let named = |number: usize| {
        let state = if number + failing < count { "success" } else { "failure" };
        let json = PROBE.replace(r#""state":"success""#, &format!(r#""state":"{state}""#));
        let json = json.replace(r#""pod":"web""#, &format!(r#""pod":"web-{number:02}""#));
        let json = json.replace("u/app", &format!("u{number}/app"));
        serde_json::from_str(&json.replace("default/web/", &format!("default/web-{number:02}/"))).unwrap()
    };
    (0..count).map(named).collect()
}

fn start(daemon: &Daemon, arguments: &str, size: (u16, u16)) -> Terminal {
    start_with(daemon, arguments, size, &[], Keys::Terminal)
}

fn start_with(
    daemon: &Daemon,
    arguments: &str,
    size: (u16, u16),
    more: &[(&str, &str)],
    keys: Keys,
) -> Terminal {
    let socket = daemon.socket();
    let variables: Vec<_> =
        [("CRIPROBE_API", socket.to_str().unwrap())].into_iter().chain(more.iter().copied()).collect();
    Terminal::start(arguments, &variables, size, keys)
}

/// The pods of the rows, in their order.
fn pods(lines: &[String]) -> Vec<&str> {
    lines.iter().filter_map(|line| line.strip_prefix("default/")?.split(' ').next()).collect()
}

#[test]
fn what_fails_comes_first_keys_scroll_and_q_restores_the_terminal() {
    let daemon = daemon(30);
    let mut terminal = start(&daemon, "probes -w", (80, 12));
    let lines = terminal.shows("30 probes: 2 failing, 28 ok");
    assert_eq!(pods(&lines)[..3], ["web-28", "web-29", "web-00"], "{lines:#?}");
    assert!(lines[11].starts_with("q quit; by state; lines 1-9 of 30; f failing"), "{lines:#?}");
    assert!(!terminal.is_restored());
    terminal.press("jj");
    terminal.until("two lines further", |screen| pods(&screen.lines())[0] == "web-00");
    terminal.press("\u{1b}[6~");
    terminal.until("a page further", |screen| pods(&screen.lines())[0] == "web-08");
    terminal.press("G");
    terminal.until("the end", |screen| pods(&screen.lines()).last() == Some(&"web-27"));
    terminal.press("g");
    terminal.until("the beginning", |screen| pods(&screen.lines())[0] == "web-28");
    terminal.press("s");
    let lines = terminal.shows("by name; ");
    assert_eq!(pods(&lines)[..2], ["web-00", "web-01"]);
    terminal.press("f");
    let lines = terminal.shows("only failing");
    assert_eq!(pods(&lines), ["web-28", "web-29"]);
    terminal.press("q");
    assert_eq!(terminal.ends().code(), Some(0));
    assert!(terminal.is_restored());
    assert!(terminal.screen().history().concat().is_empty(), "nothing is left of it");
}

#[test]
fn a_list_that_is_watched_follows_the_daemon_through_a_restart() {
    let mut daemon = daemon(3);
    let mut terminal = start(&daemon, "probes -w --failed", (100, 20));
    let lines = terminal.shows("3 probes: 2 failing, 1 ok");
    assert_eq!(pods(&lines), ["web-01", "web-02"]);
    daemon.probes.send_replace(probes(3, 1));
    terminal.until("one fails", |screen| pods(&screen.lines()) == ["web-02"]);
    daemon.runtime.take().unwrap().shutdown_timeout(Duration::from_secs(5));
    let lines = terminal.shows("daemon not reachable since ");
    assert_eq!(pods(&lines), ["web-02"], "the last data stay: {lines:#?}");
    daemon.probes.send_replace(probes(4, 1));
    daemon.serve();
    let lines = terminal.shows("4 probes: 1 failing, 3 ok");
    assert_eq!(pods(&lines), ["web-03"]);
    assert!(!lines.concat().contains("not reachable"), "{lines:#?}");
    terminal.press("\u{3}");
    assert_eq!(terminal.ends().code(), Some(0));
    assert!(terminal.is_restored());
}

#[test]
fn a_frame_follows_the_size_of_the_terminal() {
    let daemon = daemon(30);
    let mut terminal = start(&daemon, "probes -w", (100, 10));
    terminal.shows("lines 1-7 of 30");
    terminal.resize((100, 20));
    terminal.shows("lines 1-17 of 30");
    terminal.resize((40, 20));
    let lines = terminal.shows("  container app  type liveness");
    assert!(lines.contains(&"default/web-28".to_owned()), "{lines:#?}");
    terminal.resize((20, 12));
    let lines =
        terminal.until("short lines", |screen| screen.lines().contains(&"  type liveness".to_owned()));
    assert_eq!(lines[..2], ["30 probes: 2", "failing, 28 ok"]);
    terminal.press("q");
    assert_eq!(terminal.ends().code(), Some(0));
}

#[test]
fn every_signal_that_ends_it_restores_the_terminal_and_so_does_suspending_it() {
    let daemon = daemon(3);
    for (signal, keys) in [
        (Signal::TERM, Keys::Terminal),
        (Signal::HUP, Keys::Terminal),
        (Signal::QUIT, Keys::Terminal),
        (Signal::INT, Keys::None),
    ] {
        let mut terminal = start_with(&daemon, "pods -w", (80, 12), &[], keys);
        terminal.shows("1 pod: 1 ok");
        terminal.signal(signal);
        assert_eq!(terminal.ends().code(), Some(0), "{signal:?}");
        assert!(terminal.is_restored(), "{signal:?}");
    }
    let mut terminal = start(&daemon, "pods -w -o wide", (80, 12));
    terminal.shows("1 pod: 1 ok");
    terminal.press("\u{1a}");
    terminal.stops();
    assert!(terminal.is_restored() && terminal.screen().lines().concat().is_empty());
    terminal.signal(Signal::CONT);
    terminal.shows("1 pod: 1 ok");
    for _ in 0..20 {
        terminal.press("l");
    }
    terminal.shows("LOG  REASON");
    terminal.press("q");
    assert_eq!(terminal.ends().code(), Some(0));
    assert!(terminal.is_restored());
}

#[test]
fn a_call_in_flight_comes_ages_and_goes_and_keys_change_the_order_of_what_costs_most() {
    let daemon = daemon(1);
    let mut terminal = start(&daemon, "top", (100, 24));
    let lines = terminal.shows("0 in flight; 42 execs in 5m: 2 failed, 1.50s in all");
    assert!(lines.contains(&"none".to_owned()), "{lines:#?}");
    assert_eq!(pods(&lines), ["web", "db"]);
    daemon.in_flight.send_replace(Some(criprobe::clock::now()));
    let age = |screen: &super::terminal::Screen| {
        let lines = screen.lines();
        let call = lines.iter().find_map(|line| line.strip_prefix("default/web/app "))?;
        call.contains("sleep 60").then(|| call.trim_start().split(' ').next().unwrap().to_owned())
    };
    terminal.until("the call", |screen| age(screen).is_some());
    let first = age(terminal.screen()).unwrap();
    terminal.until("an older call", |screen| {
        age(screen).is_some_and(|age| age.ends_with('s') && !age.ends_with("ms") && age != first)
    });
    daemon.in_flight.send_replace(None);
    terminal.until("no call", |screen| age(screen).is_none());
    terminal.press("s");
    let lines = terminal.shows("by calls");
    assert_eq!(pods(&lines), ["db", "web"]);
    terminal.press("f");
    terminal.until("only what failed", |screen| pods(&screen.lines()) == ["db"]);
    terminal.press("q");
    assert_eq!(terminal.ends().code(), Some(0));
    assert!(terminal.is_restored());
    let mut once = start(&daemon, "top --once --by pod", (100, 24));
    assert_eq!(once.ends().code(), Some(0));
    assert!(!once.screen().history().concat().contains("by command"));
}

#[test]
fn a_daemon_that_is_away_from_the_start_is_an_error_on_a_terminal_too() {
    let daemon = daemon(1);
    let mut terminal = start_with(&daemon, "probes -w --api /nowhere.sock", (200, 9), &[], Keys::Terminal);
    assert_eq!(terminal.ends().code(), Some(3));
    assert!(
        terminal.screen().lines()[0].starts_with("criprobe: cannot reach the daemon at unix:///nowhere.sock")
    );
    assert!(terminal.is_restored());
}

#[test]
fn only_ascii_is_shown_where_the_terminal_can_show_no_more() {
    let daemon = Daemon::start();
    let reason = "cat: gesund: keine Datei — für Prüfung".repeat(9);
    daemon.probes.send_replace(vec![ProbeView { reason: reason.clone(), ..failing() }]);
    daemon.push(CallView { code: "Unknown".to_owned(), message: reason, ..call() });
    for (arguments, variables) in [
        ("probes", &[("LANG", "C")][..]),
        ("trace --last 1", &[("LANG", "C")]),
        ("describe default/web/app/liveness", &[("LC_ALL", "POSIX")]),
        ("probes", &[("LANG", "")]),
    ] {
        let mut terminal = start_with(&daemon, arguments, (60, 40), variables, Keys::Terminal);
        assert_eq!(terminal.ends().code(), Some(0));
        let text = terminal.screen().lines().join("\n");
        assert!(text.is_ascii() && text.contains("gesund"), "{arguments}:\n{text}");
    }
    for variable in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let mut terminal = start_with(&daemon, "probes", (60, 40), &[variable], Keys::Terminal);
        assert_eq!(terminal.ends().code(), Some(0));
        let text = terminal.screen().lines().join("\n");
        assert!(!text.contains(['└', '…']) && text.contains("für"), "what a container prints stays:\n{text}");
    }
}

#[test]
fn the_demo_draws_over_its_last_frame_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = format!("demo --dir {}/d", dir.path().display());
    let mut terminal = Terminal::start(&arguments, &[], (50, 100), Keys::Terminal);
    let titles = |screen: &super::terminal::Screen| {
        let history = screen.history();
        ["criprobe demo, in front", "From another terminal", "Calls through the relay"]
            .map(|title| history.iter().filter(|line| line.starts_with(title)).count())
    };
    terminal.shows("ExecSync");
    // Each frame shows other ages.
    let first = terminal.screen().lines();
    terminal.until("a later frame", |screen| screen.lines() != first);
    assert_eq!(titles(terminal.screen()), [1; 3], "{:#?}", terminal.screen().history());
    terminal.resize((42, 100));
    let narrower = "criprobe demo, in front of the embedded".to_owned();
    terminal.until("the title at the new width", |screen| screen.lines().contains(&narrower));
    assert_eq!(titles(terminal.screen()), [1; 3], "{:#?}", terminal.screen().history());
    terminal.press("\u{3}");
    assert_eq!(terminal.ends().code(), Some(0));
    assert_eq!(titles(terminal.screen()), [1; 3], "{:#?}", terminal.screen().history());
}
