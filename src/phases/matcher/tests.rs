//! Which exec belongs to which call: tables, and the property that phases are never wrong.

use std::{collections::BTreeMap, time::UNIX_EPOCH};

use proptest::prelude::*;

use super::{
    place::{MOST_CALLS, MOST_EXECS},
    *,
};
use crate::{
    clock,
    phases::forms::CommandPrint,
    results::phases::{Part, Phases},
    runtime::marks::MarkKind,
};

/// One container, and times in milliseconds. Names of calls that begin with a capital are clients'.
struct Rig {
    matcher: Matcher<String, String>,
    origin: Instant,
    /// `name queue/start/run/drain`, `-` where a phase was not reached, or `name ?`; `name ended BEGAN-ENDED CODE` of sessions.
    said: Vec<String>,
    /// Why calls have no phases: `name reason`, and what is certain all the same: `name part>=MILLIS`.
    whys: Vec<(String, Unknown)>,
    least: Vec<(String, Part, u64)>,
    /// The command that processes show, if it can be read. That of each session is 1.
    command: ExecCommand,
    /// Likewise, of execs that show another one.
    commands: BTreeMap<String, ExecCommand>,
}

fn named(name: &str) -> CallName {
    let number = name.bytes().fold(0u32, |number, byte| number.wrapping_mul(31) + u32::from(byte));
    if name.starts_with(char::is_uppercase) {
        CallName::Client(ConnId(1), number)
    } else {
        CallName::Probe(number.into())
    }
}

impl Rig {
    fn new() -> Self {
        Self {
            matcher: Matcher::default(),
            origin: clock::now(),
            said: Vec::new(),
            whys: Vec::new(),
            least: Vec::new(),
            command: ran(1),
            commands: BTreeMap::new(),
        }
    }

    fn now(&self, at: u64) -> Now {
        Now { at: self.origin + Duration::from_millis(at), clock: wall(at), wall: wall(at) }
    }

    fn began(&mut self, name: &str, at: u64) -> &mut Self {
        let now = self.now(at);
        self.matcher.began(&"c".into(), named(name), None, now);
        self
    }

    /// What the process of this exec shows.
    fn shows(&mut self, exec: &str, command: ExecCommand) -> &mut Self {
        self.commands.insert(exec.to_owned(), command);
        self
    }

    fn ended(&mut self, name: &str, at: u64, exit_code: Option<i32>) -> &mut Self {
        let end = exit_code.map_or(ExecEnd::Unanswered, |exit_code| ExecEnd::Answered { exit_code });
        self.ended_so(name, at, end)
    }

    fn ended_so(&mut self, name: &str, at: u64, end: ExecEnd) -> &mut Self {
        let now = self.now(at);
        let resolved = self.matcher.ended(&"c".into(), named(name), end, name.to_owned(), now);
        self.note(resolved)
    }

    fn session(&mut self, name: &str, at: u64) -> &mut Self {
        let now = self.now(at);
        self.session_of(name, now, forms(1))
    }

    fn session_of(&mut self, name: &str, now: Now, command: CommandForms) -> &mut Self {
        self.matcher.session(&"c".into(), named(name), (name.to_owned(), command), None, now);
        self
    }

    /// A mark that arrives at once.
    fn mark(&mut self, exec: &str, kind: MarkKind, at: u64) -> &mut Self {
        self.late_mark(exec, kind, at, at)
    }

    fn late_mark(&mut self, exec: &str, kind: MarkKind, at: u64, arrives: u64) -> &mut Self {
        let mark = ExecMark { container: "c".into(), exec: exec.into(), at: wall(at), kind };
        let mut resolved = self.matcher.mark(mark, self.now(arrives));
        while let Some(StartedExec { exec, .. }) = resolved.started.take() {
            self.note(resolved);
            let command = self.commands.get(&*exec).copied().unwrap_or(self.command);
            resolved = self.matcher.command_read(&"c".into(), &exec, command, self.now(arrives).at);
        }
        self.note(resolved)
    }

    /// All marks of one exec, at once.
    fn exec(&mut self, exec: &str, times: [u64; 3], status: u32) -> &mut Self {
        let kinds = [MarkKind::Added, STARTED, MarkKind::Exited { status }];
        for (kind, at) in kinds.into_iter().zip(times) {
            self.mark(exec, kind, at);
        }
        self
    }

    /// Expires whatever is due, at its time, until then.
    fn run(&mut self, until: u64) -> &mut Self {
        while let Some(due) = self.matcher.due().filter(|due| *due <= self.now(until).at) {
            let resolved = self.matcher.expire(due);
            self.note(resolved);
        }
        self
    }

    fn note(&mut self, resolved: Resolved<String, String>) -> &mut Self {
        for (name, split) in resolved.calls {
            let said = split.phases().map_or_else(|| "?".to_owned(), |phases| shown(&phases));
            self.said.push(format!("{name} {said}"));
            if let Split::Unknown(why, least) = split {
                self.whys.push((name.clone(), why));
                self.least
                    .extend(least.map(|(part, took)| (name, part, u64::try_from(took.as_millis()).unwrap())));
            }
        }
        for (name, SessionEnd { began, ended, exit_code }) in resolved.sessions {
            let [began, ended] =
                [began, ended].map(|at| at.duration_since(wall(0)).map_or(0, |since| since.as_millis()));
            self.said.push(format!("{name} ended {began}-{ended} {exit_code}"));
        }
        self
    }

    fn said(&self) -> Vec<&str> {
        self.said.iter().map(String::as_str).collect()
    }
}

fn wall(at: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_000_000) + Duration::from_millis(at)
}

fn shown(phases: &Phases) -> String {
    let others = [phases.start, phases.run, phases.drain];
    let others = others.map(|took| took.map_or("-".to_owned(), |took| took.as_millis().to_string()));
    format!("{}/{}", phases.queue.as_millis(), others.join("/"))
}

const ADDED: MarkKind = MarkKind::Added;
const STARTED: MarkKind = MarkKind::Started { pid: 7 };
const EXITED: MarkKind = MarkKind::Exited { status: 0 };

#[test]
fn the_time_of_a_call_is_split_at_the_marks_of_its_exec() {
    let mut rig = Rig::new();
    rig.began("a", 0).exec("x", [5, 37, 537], 0).ended("a", 540, Some(0));
    assert_eq!(rig.said(), ["a 5/32/500/3"]);
    rig.run(60_000);
    assert!(rig.matcher.places.is_empty(), "{:?}", rig.matcher);
}

#[test]
fn marks_may_be_late_doubled_or_out_of_order() {
    let mut rig = Rig::new();
    rig.mark("x", ADDED, 5).began("a", 0).mark("x", ADDED, 5).late_mark("x", EXITED, 40, 41);
    rig.ended("a", 45, Some(0)).late_mark("x", STARTED, 42, 46);
    assert_eq!(rig.said(), ["a 5/35/0/5"], "a process that ended before it was seen to run");
    let mut rig = Rig::new();
    rig.began("a", 0).ended("a", 45, Some(0)).late_mark("x", EXITED, 40, 50);
    rig.late_mark("x", STARTED, 20, 51).late_mark("x", STARTED, 30, 51).late_mark("x", ADDED, 5, 52);
    assert_eq!(rig.said(), ["a 5/15/20/5"]);
    rig.began("b", 53).exec("x", [5, 20, 40], 0).exec("y", [54, 55, 56], 0).ended("b", 57, Some(0));
    assert_eq!(rig.said()[1..], ["b 1/1/1/1"], "what is reported twice belongs to no other call");
}

#[test]
fn a_call_without_marks_waits_for_them_and_then_has_no_phases() {
    let mut rig = Rig::new();
    rig.began("a", 0).ended("a", 45, Some(0)).run(344);
    assert!(rig.said().is_empty());
    rig.run(345);
    assert_eq!(rig.said(), ["a ?"]);
    rig.late_mark("x", ADDED, 5, 400).run(2_000_000);
    assert!(rig.matcher.places.is_empty(), "{:?}", rig.matcher);
}

#[test]
fn a_call_without_an_answer_has_the_phases_that_it_reached() {
    for (marks, phases) in
        [(0, "a 1000/-/-/-"), (1, "a 5/995/-/-"), (2, "a 5/25/970/-"), (3, "a 5/25/70/900")]
    {
        let mut rig = Rig::new();
        rig.began("a", 0);
        for (kind, at) in [(ADDED, 5), (STARTED, 30), (EXITED, 100)].into_iter().take(marks) {
            rig.mark("x", kind, at);
        }
        rig.ended("a", 1_000, None).run(1_300);
        assert_eq!(rig.said(), [phases]);
    }
}

#[test]
fn a_call_that_the_runtime_refuses_at_once_is_passed_on_at_once() {
    let mut rig = Rig::new();
    rig.began("a", 0).ended_so("a", 5, ExecEnd::Refused);
    assert_eq!(rig.said(), ["a ?"]);
    rig.began("b", 10).mark("x", ADDED, 15).ended_so("b", 2_010, ExecEnd::Refused).run(2_310);
    assert_eq!(rig.said()[1..], ["b 5/1995/-/-"]);
}

#[test]
fn an_exit_after_the_end_of_an_unanswered_call_is_not_its_drain() {
    let mut rig = Rig::new();
    rig.began("a", 0).mark("x", ADDED, 5).mark("x", STARTED, 30).ended("a", 1_000, None);
    rig.mark("x", EXITED, 1_100).run(1_300);
    assert_eq!(rig.said(), ["a 5/25/970/-"]);
}

#[test]
fn what_the_runtime_takes_up_too_late_is_not_the_next_calls() {
    let mut rig = Rig::new();
    rig.began("a", 0)
        .ended("a", 1_000, None)
        .began("b", 1_000)
        .mark("x", ADDED, 1_100)
        .ended("b", 2_000, None);
    rig.run(2_300);
    assert_eq!(rig.said(), ["a 1000/-/-/-", "b ?"], "x may be the exec of a");
    rig.began("c", 30_000).exec("y", [30_005, 30_010, 30_015], 0).ended("c", 30_016, Some(0));
    assert_eq!(rig.said()[2..], ["c 5/5/5/1"]);
}

#[test]
fn calls_of_one_container_that_cannot_be_exchanged_get_their_own() {
    let mut rig = Rig::new();
    rig.began("slow", 0).mark("x", ADDED, 5).mark("x", STARTED, 10);
    rig.run(150).began("quick", 150).exec("y", [155, 160, 170], 0).ended("quick", 175, Some(0));
    rig.mark("x", EXITED, 900).ended("slow", 903, Some(0));
    assert_eq!(rig.said(), ["quick 5/5/10/5", "slow 5/5/890/3"]);
    let mut rig = Rig::new();
    rig.began("good", 0).began("bad", 1).exec("x", [5, 10, 20], 0).exec("y", [6, 11, 21], 1);
    rig.ended("good", 25, Some(0)).ended("bad", 26, Some(1)).run(400);
    assert_eq!(rig.said(), ["good 5/5/10/5", "bad 5/5/10/5"], "exit codes tell them apart");
}

#[test]
fn calls_that_follow_each_other_closely_get_their_own() {
    for names in [["a", "b", "c"], ["A", "B", "C"], ["a", "B", "c"]] {
        let mut rig = Rig::new();
        for (at, name) in [0, 22, 44].into_iter().zip(names) {
            rig.began(name, at).exec(name, [at + 2, at + 10, at + 18], 0).ended(name, at + 20, Some(0));
        }
        let said = names.map(|name| format!("{name} 2/8/8/2"));
        assert_eq!(rig.said(), said);
    }
}

#[test]
fn calls_that_could_be_exchanged_get_none_and_the_next_one_has_its_own() {
    let mut rig = Rig::new();
    rig.began("a", 0).began("b", 1).exec("x", [5, 10, 20], 0).exec("y", [6, 11, 21], 0);
    rig.ended("a", 25, Some(0)).ended("b", 26, Some(0)).run(400);
    assert_eq!(rig.said(), ["a ?", "b ?"]);
    rig.began("c", 410).exec("z", [411, 412, 413], 0).ended("c", 414, Some(0));
    assert_eq!(rig.said()[2..], ["c 1/1/1/1"]);
    let mut rig = Rig::new();
    rig.began("a", 0).began("b", 1).mark("x", ADDED, 5).ended("a", 100, None).ended("b", 101, None).run(500);
    assert_eq!(rig.said(), ["a ?", "b ?"], "one of them never came to an exec");
}

#[test]
fn what_is_true_of_all_execs_that_fit_is_certain() {
    let least = |rig: &Rig| -> Vec<String> {
        rig.least.iter().map(|(name, part, least)| format!("{name} {part:?}>={least}")).collect()
    };
    // Two commands wait in a stopped shim, and both run when it goes on.
    let mut rig = Rig::new();
    rig.began("a", 0).began("b", 200).exec("x", [9_800, 9_820, 9_830], 0).exec("y", [9_801, 9_821, 9_831], 0);
    rig.ended("a", 9_840, Some(0)).ended("b", 9_841, Some(0)).run(20_000);
    assert_eq!(rig.said(), ["a ?", "b ?"]);
    assert_eq!(least(&rig), ["a Queue>=9800", "b Queue>=9600"]);
    assert!(rig.whys.iter().all(|(_, why)| *why == Unknown::Overlap), "{:?}", rig.whys);
    // A third one was given up meanwhile, and its exec is added, too.
    let mut rig = Rig::new();
    rig.began("gone", 0).ended("gone", 1_000, None).run(2_000).began("a", 2_000).began("b", 2_001);
    rig.exec("x", [5_000, 5_010, 5_020], 0).exec("y", [5_001, 5_011, 5_021], 0).exec(
        "z",
        [5_002, 5_012, 5_022],
        0,
    );
    rig.ended("a", 5_030, Some(0)).ended("b", 5_031, Some(0)).run(20_000);
    assert_eq!(rig.said(), ["gone 1000/-/-/-", "a ?", "b ?"]);
    assert_eq!(least(&rig), ["a Queue>=3000", "b Queue>=2999"]);
    // It is not: each of the three may be without an exec, or its marks are lost.
    let mut rig = Rig::new();
    rig.began("gone", 0).ended("gone", 1_000, None).run(2_000).began("a", 2_000).began("b", 2_001);
    rig.exec("x", [5_000, 5_010, 5_020], 0).exec("y", [5_001, 5_011, 5_021], 0);
    rig.ended("a", 5_030, Some(0)).ended("b", 5_031, Some(0)).run(20_000);
    assert_eq!((rig.said()[1..].join(","), least(&rig)), ("a ?,b ?".to_owned(), Vec::new()));
    // One of two that time out came to an exec: both waited at least as long as that one.
    let mut rig = Rig::new();
    rig.began("a", 0)
        .began("b", 1)
        .mark("x", ADDED, 800)
        .ended("a", 1_000, None)
        .ended("b", 1_001, None)
        .run(2_000);
    assert_eq!(least(&rig), ["a Queue>=800", "b Queue>=799"]);
    // Both run until they time out.
    let mut rig = Rig::new();
    rig.began("a", 0).began("b", 1).mark("x", ADDED, 5).mark("y", ADDED, 6);
    rig.mark("x", STARTED, 20)
        .mark("y", STARTED, 30)
        .ended("a", 1_000, None)
        .ended("b", 1_001, None)
        .run(2_000);
    assert_eq!(least(&rig), ["a Run>=970", "b Run>=971"]);
    // What took most depends on which is which.
    let mut rig = Rig::new();
    rig.began("a", 0).began("b", 1).exec("x", [5, 10, 900], 0).exec("y", [880, 890, 900], 0);
    rig.ended("a", 910, Some(0)).ended("b", 911, Some(0)).run(20_000);
    assert_eq!((rig.said().join(","), least(&rig)), ("a ?,b ?".to_owned(), Vec::new()));
    // A command without a call.
    let mut rig = Rig::new();
    rig.began("a", 0)
        .exec("x", [900, 910, 920], 0)
        .exec("y", [900, 910, 920], 0)
        .ended("a", 930, Some(0))
        .run(20_000);
    assert_eq!((rig.said().join(","), least(&rig)), ("a ?".to_owned(), Vec::new()));
}

#[test]
fn a_call_that_was_given_up_leaves_the_container_without_phases_until_the_runtime_added_another_exec() {
    let mut rig = Rig::new();
    rig.began("given up", 0).ended("given up", 3, None).run(5_000);
    rig.began("a", 5_000).exec("x", [5_005, 5_010, 5_015], 0).ended("a", 5_016, Some(0));
    rig.run(6_000).began("b", 6_000).exec("y", [6_005, 6_010, 6_015], 0).ended("b", 6_016, Some(0));
    rig.run(7_100)
        .began("c", 7_100)
        .exec("z", [7_105, 7_110, 7_115], 0)
        .ended("c", 7_116, Some(0))
        .run(60_000);
    assert_eq!(rig.said(), ["given up 3/-/-/-", "a ?", "b ?", "c 5/5/5/1"]);
    // An exec that was added before, and is heard of later, shows nothing.
    let mut rig = Rig::new();
    rig.began("o", 0).ended("given up", 1, None).began("given up", 1).ended("given up", 50, None);
    rig.late_mark("x", ADDED, 40, 60).run(3_000);
    rig.began("a", 3_000).exec("y", [3_005, 3_010, 3_015], 0).ended("a", 3_016, Some(0)).run(10_000);
    assert_eq!(rig.said().last(), Some(&"a ?"));
}

#[test]
fn a_call_without_phases_says_why() {
    let mut rig = Rig::new();
    rig.began("lost", 0).ended("lost", 45, Some(0)).run(1_000);
    rig.began("refused", 1_000).ended_so("refused", 1_005, ExecEnd::Refused);
    rig.began("marks", 2_000);
    rig.matcher.marks_lost();
    rig.ended("marks", 2_100, Some(0)).run(30_000);
    rig.began("a", 30_000).exec("x", [30_005, 30_010, 30_020], 0).exec("y", [30_005, 30_010, 30_020], 0);
    rig.ended("a", 30_030, Some(0)).run(60_000);
    rig.matcher.calls_missed(rig.now(60_000).at);
    rig.began("unseen", 60_000).ended("unseen", 61_000, None).run(90_000);
    rig.ended("unknown", 90_000, Some(0));
    let expected = [
        ("lost", Unknown::NoMarks),
        ("refused", Unknown::Refused),
        ("marks", Unknown::EventsLost),
        ("a", Unknown::Overlap),
        ("unseen", Unknown::CallsUnseen),
        ("unknown", Unknown::TooMany),
    ];
    assert_eq!(rig.whys, expected.map(|(name, why)| (name.to_owned(), why)));
}

#[test]
fn an_exec_without_a_call_is_given_to_none() {
    let mut rig = Rig::new();
    rig.began("a", 0)
        .exec("x", [5, 10, 20], 0)
        .exec("foreign", [7, 11, 21], 0)
        .ended("a", 25, Some(0))
        .run(400);
    assert_eq!(rig.said(), ["a ?"]);
    let mut rig = Rig::new();
    rig.began("a", 0).exec("x", [5, 10, 20], 0).mark("foreign", EXITED, 15).ended("a", 25, Some(0)).run(400);
    assert_eq!(rig.said(), ["a ?"], "it exits, and nothing else is known of it");
}

#[test]
fn what_was_in_flight_while_marks_were_lost_has_none_and_what_comes_later_has() {
    let mut rig = Rig::new();
    rig.began("a", 0).mark("x", ADDED, 5);
    rig.matcher.marks_lost();
    rig.mark("x", STARTED, 10).mark("x", EXITED, 20).ended("a", 25, Some(0));
    assert_eq!(rig.said(), ["a ?"]);
    rig.began("b", 30).exec("y", [31, 32, 33], 0).ended("b", 34, Some(0));
    assert_eq!(rig.said(), ["a ?", "b 1/1/1/1"]);
}

#[test]
fn while_calls_pass_unseen_only_answered_ones_are_split() {
    let mut rig = Rig::new();
    rig.matcher.calls_missed(rig.origin);
    rig.began("a", 0).mark("x", ADDED, 5).ended("a", 1_000, None).run(1_300);
    rig.began("b", 1_300).exec("y", [1_301, 1_302, 1_303], 0).ended("b", 1_304, Some(0)).run(1_604);
    assert_eq!(rig.said(), ["a ?", "b 1/1/1/1"]);
}

#[test]
fn a_clock_that_was_set_leaves_phases_out() {
    let mut rig = Rig::new();
    rig.began("a", 100_000).mark("x", ADDED, 100_005).mark("x", STARTED, 100_010);
    // The clock was set back by 50 s.
    rig.mark("x", EXITED, 50_020).ended("a", 50_025, Some(0)).run(200_000);
    assert_eq!(rig.said(), ["a ?"]);
    // It was set after all marks, and before the answer.
    for (set, said) in
        [(61_000, "a ?"), (-960, "a ?"), (-1, "a 5/5/10/979"), (0, "a 5/5/10/980"), (49, "a 5/5/10/1029")]
    {
        let mut rig = Rig::new();
        rig.began("a", 100_000).exec("x", [100_005, 100_010, 100_020], 0);
        let clock = wall(u64::try_from(101_000 + set).unwrap());
        let now = Now { clock, wall: clock, ..rig.now(101_000) };
        let answered = ExecEnd::Answered { exit_code: 0 };
        let resolved = rig.matcher.ended(&"c".into(), named("a"), answered, "a".to_owned(), now);
        rig.note(resolved).run(200_000);
        assert_eq!(rig.said(), [said], "{set}");
    }
}

#[test]
fn a_session_ends_with_its_process() {
    let mut rig = Rig::new();
    rig.session("S", 100).mark("x", ADDED, 105).mark("x", STARTED, 130);
    // Probes run meanwhile, for an hour.
    for at in (200..3_600_000).step_by(10_000) {
        rig.run(at).began("p", at).exec(&at.to_string(), [at + 5, at + 20, at + 30], 0).ended(
            "p",
            at + 31,
            Some(0),
        );
        assert_eq!(rig.said.pop().as_deref(), Some("p 5/15/10/1"), "at {at}");
    }
    rig.mark("x", MarkKind::Exited { status: 137 }, 3_600_130);
    assert_eq!(rig.said(), ["S ended 130-3600130 137"]);
    rig.run(10_000_000);
    assert!(rig.matcher.places.is_empty(), "{:?}", rig.matcher);
}

#[test]
fn a_session_gets_no_exec_that_a_call_may_have() {
    let mut rig = Rig::new();
    // The exec of a call that is read a little later.
    rig.session("S", 100).exec("x", [205, 210, 215], 0).began("p", 200).ended("p", 220, Some(0)).run(100_000);
    assert_eq!(rig.said(), ["p ?"], "x may be either's until the session can have none any more");
    let mut rig = Rig::new();
    rig.session("S", 100).exec("x", [205, 210, 215], 0).run(300);
    assert!(rig.said().is_empty(), "its call may be read later");
    rig.run(305);
    assert_eq!(rig.said(), ["S ended 210-215 0"]);
    let mut rig = Rig::new();
    rig.session("S", 100).session("T", 200).exec("x", [205, 210, 215], 0).run(100_000);
    assert!(rig.said().is_empty());
    let mut rig = Rig::new();
    rig.session("S", 100)
        .exec("x", [105, 210, 215], 0)
        .session("T", 200)
        .exec("y", [205, 210, 220], 1)
        .run(600);
    assert_eq!(rig.said(), ["S ended 210-215 0", "T ended 210-220 1"]);
    let mut rig = Rig::new();
    rig.session("S", 100).run(61_000).exec("x", [61_000, 61_010, 61_015], 0).run(100_000);
    assert!(rig.said().is_empty(), "containerd has forgotten the stream");
    rig.session("S", 100_000).mark("x", ADDED, 100_005).run(101_000);
    rig.matcher.gone(&"c".into());
    rig.mark("x", EXITED, 102_000).run(2_000_000);
    assert!(rig.said().is_empty() && rig.matcher.places.is_empty(), "{:?}", rig.matcher);
}

#[test]
fn a_session_ends_only_with_a_process_of_its_command() {
    for command in [ExecCommand::Unknown, ExecCommand::Gone, ran(2)] {
        let mut rig = Rig::new();
        rig.command = command;
        // The stream is not used, and another client runs a command past us.
        rig.session("S", 100).exec("x", [505, 510, 900], 7).run(30_000);
        assert!(rig.said().is_empty(), "{:?}", rig.said());
        // Other commands have their own phases.
        rig.began("p", 30_000)
            .exec("y", [30_005, 30_020, 30_030], 0)
            .ended("p", 30_031, Some(0))
            .run(1_000_000);
        assert_eq!(rig.said(), ["p 5/15/10/1"]);
        assert!(rig.matcher.places.is_empty(), "{:?}", rig.matcher);
    }
    // The process ends before its command is read.
    let mut rig = Rig::new();
    rig.session("S", 100);
    let kinds = [(ADDED, 205), (STARTED, 210), (EXITED, 215)];
    for (kind, at) in kinds {
        let mark = ExecMark { container: "c".into(), exec: "x".into(), at: wall(at), kind };
        let resolved = rig.matcher.mark(mark, rig.now(at));
        assert_eq!(resolved.started.is_some(), kind == STARTED);
    }
    rig.run(1_000);
    assert!(rig.said().is_empty());
    let resolved = rig.matcher.command_read(&"c".into(), "x", ran(1), rig.now(1_000).at);
    assert_eq!(rig.note(resolved).said(), ["S ended 210-215 0"]);
    // Its process was quick, and was gone when its command was to be read. A script shows its interpreter.
    for command in [ExecCommand::Gone, ExecCommand::Known([3, 1, 2]), ExecCommand::Known([3, 2, 1])] {
        let mut rig = Rig::new();
        rig.command = command;
        rig.session("S", 100).exec("x", [505, 510, 600], 7).run(30_000);
        assert_eq!(rig.said(), ["S ended 510-600 7"], "{command:?}");
    }
}

fn ran(command: CommandPrint) -> ExecCommand {
    ExecCommand::Known([command, 0, 0])
}

fn forms(command: CommandPrint) -> CommandForms {
    CommandForms::of(&["word"], |_| command)
}

#[test]
fn a_command_that_times_out_beside_a_quick_one_has_its_phases() {
    let mut rig = Rig::new();
    rig.began("slow", 0).began("quick", 0);
    rig.mark("x", ADDED, 5).mark("y", ADDED, 7).mark("x", STARTED, 20).mark("y", STARTED, 22);
    rig.mark("y", EXITED, 25).ended("quick", 28, Some(0)).run(1_000).ended("slow", 2_000, None);
    rig.mark("x", MarkKind::Exited { status: 137 }, 2_100).run(2_500);
    assert_eq!(rig.said(), ["quick ?", "slow 5/15/1980/-"]);
}

#[test]
fn commands_of_a_container_are_read_one_after_the_other() {
    let mut rig = Rig::new();
    rig.session("A", 0).session("B", 0).session("C", 0);
    let mut asked = Vec::new();
    for (number, exec) in ["x", "y", "z"].into_iter().enumerate() {
        for kind in [ADDED, MarkKind::Started { pid: u32::try_from(number).unwrap() }] {
            let mark = ExecMark { container: "c".into(), exec: exec.into(), at: wall(5), kind };
            asked.extend(rig.matcher.mark(mark, rig.now(5)).started.map(|started| started.pid));
        }
    }
    assert_eq!(asked, [0]);
    // The second one ends before its turn comes.
    let exited = ExecMark { container: "c".into(), exec: "y".into(), at: wall(6), kind: EXITED };
    assert!(rig.matcher.mark(exited, rig.now(6)).started.is_none());
    let resolved = rig.matcher.command_read(&"c".into(), "x", ran(1), rig.now(7).at);
    assert_eq!(resolved.started.map(|started| started.pid), Some(2));
}

#[test]
fn what_is_taken_for_the_exec_of_an_unanswered_call_may_be_that_of_an_answered_one() {
    // `V` is run past us. `a` has no exec, and D's own fits it as well.
    let mut rig = Rig::new();
    rig.began("a", 0).ended("a", 900, None).run(1_300).began("D", 1_300).mark("x", ADDED, 1_305);
    rig.mark("x", STARTED, 1_310).run(3_500).exec("v", [3_800, 3_810, 4_000], 0).mark("x", EXITED, 5_000);
    rig.run(5_005).ended("D", 5_010, Some(0)).run(60_000);
    assert_eq!(rig.said(), ["a 900/-/-/-", "D ?"]);
    let mut rig = Rig::new();
    rig.began("D", 0)
        .exec("v", [10, 15, 20], 0)
        .began("a", 100)
        .mark("x", ADDED, 120)
        .mark("x", STARTED, 125);
    rig.ended("a", 200, None)
        .run(600)
        .mark("x", EXITED, 5_000)
        .run(5_005)
        .ended("D", 5_010, Some(0))
        .run(60_000);
    assert_eq!(rig.said().last(), Some(&"D ?"), "{:?}", rig.said());
}

#[test]
fn calls_whose_execs_are_all_known_do_not_stand_in_the_way_of_later_ones() {
    let mut rig = Rig::new();
    // Two probes of the same command time out together, again and again.
    for round in 0..20 {
        let at = 5_000 * round;
        rig.run(at).began("a", at).began("b", at);
        for (exec, after) in [("x", 5), ("y", 7)] {
            let exec = format!("{exec}{round}");
            rig.mark(&exec, ADDED, at + after).mark(&exec, STARTED, at + after + 20);
        }
        rig.ended("a", at + 2_000, None).ended("b", at + 2_001, None);
        for exec in ["x", "y"] {
            rig.mark(&format!("{exec}{round}"), MarkKind::Exited { status: 137 }, at + 2_100);
        }
        rig.run(at + 3_000);
        assert_eq!(rig.said.split_off(0), ["a ?", "b ?"], "round {round}");
        assert_eq!(
            rig.least.split_off(0),
            [("a".to_owned(), Part::Run, 1973), ("b".to_owned(), Part::Run, 1974)],
            "round {round}"
        );
    }
    rig.run(101_000).began("c", 101_000).exec("z", [101_005, 101_010, 101_020], 0).ended(
        "c",
        101_021,
        Some(0),
    );
    assert_eq!(rig.said(), ["c 5/5/10/1"], "two that were exchanged are over");
    rig.run(200_000);
    assert!(rig.matcher.places.is_empty(), "{:?}", rig.matcher);
}

#[test]
fn what_is_kept_is_bounded() {
    let mut rig = Rig::new();
    for number in 0..=MOST_CALLS {
        rig.began(&number.to_string(), 0);
    }
    rig.exec("x", [5, 6, 7], 0).ended("0", 10, Some(0)).run(600);
    assert_eq!(rig.said(), ["0 ?"], "another call, which is not known, may have had the exec");
    for number in 0..2 * MOST_CONTAINERS {
        rig.matcher.began(&number.to_string().as_str().into(), named("a"), None, rig.now(600));
    }
    assert_eq!(rig.matcher.places.len(), MOST_CONTAINERS);
    for number in 0..2 * MOST_EXECS {
        rig.mark(&number.to_string(), ADDED, 8);
    }
    assert_eq!(rig.matcher.places["c"].execs.len(), MOST_EXECS);
    rig.said.clear();
    rig.run(5_000_000).began("a", 5_000_000).exec("y", [5_000_001, 5_000_002, 5_000_003], 0);
    rig.ended("a", 5_000_004, Some(0));
    assert_eq!(rig.said(), ["a 1/1/1/1"]);
    // Commands that never start, one after the other.
    for at in (6_000_000..7_000_000).step_by(1_000) {
        rig.run(at).began("b", at).mark(&at.to_string(), ADDED, at + 1).ended_so(
            "b",
            at + 2,
            ExecEnd::Refused,
        );
    }
    rig.began("a", 7_000_000).exec("z", [7_000_001, 7_000_002, 7_000_003], 0).ended("a", 7_000_004, Some(0));
    assert_eq!(rig.said().last(), Some(&"a 1/1/1/1"));
    rig.run(10_000_000);
    assert!(rig.matcher.places.is_empty(), "{:?}", rig.matcher);
    for number in 0..2 * ALL_SESSIONS {
        let container = (number / 100).to_string().as_str().into();
        let opened = (String::new(), forms(1));
        rig.matcher.session(&container, named(&number.to_string()), opened, None, rig.now(0));
    }
    let sessions = rig.matcher.places.values().map(Place::sessions);
    assert!(sessions.clone().all(|sessions| sessions == MOST_SESSIONS), "{:?}", sessions.collect::<Vec<_>>());
}

#[test]
fn calls_that_were_passed_on_make_room_for_those_that_begin() {
    let mut rig = Rig::new();
    rig.session("S", 0);
    for number in 0..2 * MOST_CALLS as u64 {
        rig.began("p", 1 + number).ended("p", 1 + number, Some(0)).run(400 + number);
    }
    assert_eq!(rig.said.len(), 2 * MOST_CALLS);
    rig.run(61_000).began("p", 61_000).exec("x", [61_001, 61_002, 61_003], 0).ended("p", 61_004, Some(0));
    assert_eq!(rig.said().last(), Some(&"p 1/1/1/1"));
}

/// What a call, or a session, is like. All times in milliseconds; a call without an answer does not end within one of a step.
#[derive(Clone, Debug)]
struct Made {
    kind: Kind,
    began: u64,
    /// How much later than that we read the clock, for an answered call of a client.
    lag: u64,
    /// From one step to the next: added, started, exited, answered.
    steps: [u64; 4],
    status: u32,
    /// For each mark: how late it is, whether it is lost, whether it comes again, and when.
    marks: [(u64, bool, Option<u64>); 3],
    /// Its command, 0 of a call whose command is not known, and whether its process shows it.
    command: (CommandPrint, bool),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Answered,
    /// So long after it began.
    Unanswered(u64),
    /// Likewise, and it has no exec.
    WithoutExec(u64),
    Session,
}

fn made() -> impl Strategy<Value = Made> {
    let kind = prop_oneof![
        4 => Just(Kind::Answered),
        1 => (0u64..40).prop_map(|after| Kind::Unanswered(4 * after + 2)),
        1 => (0u64..40).prop_map(|after| Kind::WithoutExec(4 * after + 2)),
        1 => Just(Kind::Session),
    ];
    let late = prop_oneof![3 => 0u64..5, 2 => 0u64..250, 1 => 250u64..2_000];
    let again = prop_oneof![4 => Just(None), 1 => (0u64..1_000).prop_map(Some)];
    let marks = prop::array::uniform3((late, prop::bool::weighted(0.1), again));
    let steps =
        (1u64..10, 1u64..10, 1u64..20, 1u64..10).prop_map(|(a, b, c, d)| [4 * a, 4 * b, 4 * c, 4 * d]);
    let lag = prop_oneof![2 => Just(0u64), 1 => (0u64..12).prop_map(|lag| 4 * lag)];
    let command = (0u64..4, prop::bool::weighted(0.7));
    (kind, (0u64..75).prop_map(|began| 4 * began), lag, steps, 0u32..2, marks, command).prop_map(
        |(kind, began, lag, steps, status, marks, command)| Made {
            kind,
            began,
            lag,
            steps,
            status,
            marks,
            command,
        },
    )
}

impl Made {
    fn times(&self) -> [u64; 3] {
        let [queue, start, run, _] = self.steps;
        [self.began + queue, self.began + queue + start, self.began + queue + start + run]
    }

    /// When it began, as we read the clock.
    fn read(&self, is_client: bool) -> u64 {
        let is_late = is_client && self.kind == Kind::Answered;
        self.began + if is_late { self.lag.min(self.steps[0] + self.steps[1]) } else { 0 }
    }

    fn ended(&self) -> u64 {
        match self.kind {
            Kind::Unanswered(after) | Kind::WithoutExec(after) => self.began + after,
            Kind::Answered | Kind::Session => self.times()[2] + self.steps[3],
        }
    }

    /// When each mark arrives; those of calls without an answer are not lost, and not later than calls are held.
    fn arrivals(&self) -> Vec<(u64, usize)> {
        if matches!(self.kind, Kind::WithoutExec(_)) {
            return Vec::new();
        }
        let is_tame = matches!(self.kind, Kind::Unanswered(_));
        let mut arrivals = Vec::new();
        for (mark, (at, (late, is_lost, again))) in self.times().into_iter().zip(self.marks).enumerate() {
            if is_tame || !is_lost {
                arrivals.push((at + if is_tame { late.min(250) } else { late }, mark));
                arrivals.extend(again.map(|again| (at + late.min(250) + again, mark)));
            }
        }
        arrivals
    }

    /// How long that part of it took.
    fn took(&self, part: Part, is_client: bool) -> u64 {
        let (began, [added, started, exited], ended) = (self.read(is_client), self.times(), self.ended());
        let has_exec = !matches!(self.kind, Kind::WithoutExec(_));
        let by = |at: u64| if has_exec { at.clamp(began, ended) } else { ended };
        match part {
            Part::Queue => by(added) - began,
            Part::BeforeRun => by(started) - began,
            Part::Run => by(exited) - by(started),
            Part::Drain => ended - by(exited),
        }
    }

    /// What may be said of it, besides nothing.
    fn truth(&self, name: &str, is_client: bool) -> Vec<String> {
        let ([added, started, exited], ended) = (self.times(), self.ended());
        match self.kind {
            Kind::Session => {
                let code = self.status;
                vec![
                    format!("{name} ended {started}-{exited} {code}"),
                    format!("{name} ended {added}-{exited} {code}"),
                ]
            }
            Kind::WithoutExec(after) => vec![format!("{name} {after}/-/-/-")],
            Kind::Unanswered(_) | Kind::Answered => {
                let began = self.read(is_client);
                let times = [began, added.max(began), started, exited, u64::MAX];
                let phases = times.windows(2).map(|pair| {
                    if pair[0] <= ended { (pair[1].min(ended) - pair[0]).to_string() } else { "-".to_owned() }
                });
                vec![format!("{name} {}", phases.collect::<Vec<_>>().join("/"))]
            }
        }
    }
}

/// Whatever runs in a container at the same time, and in whatever order marks come, late, twice or not at all: what is said is
/// true. The first `past_us` of the answered calls did not pass us; then no mark is lost.
fn check(all: &[Made], is_client: bool, past_us: usize) -> Result<(), TestCaseError> {
    let names =
        if is_client { ["A", "B", "C", "D", "E", "F", "G"] } else { ["a", "b", "c", "d", "e", "f", "g"] };
    let is_hidden = |index: usize| index < past_us;
    let mut steps: Vec<(u64, usize, usize)> = Vec::new();
    for (index, made) in all.iter().enumerate() {
        steps.extend(made.arrivals().into_iter().map(|(at, mark)| (at, index, 1 + mark)));
        if is_hidden(index) {
            continue;
        }
        steps.push((made.read(is_client), index, 0));
        if made.kind != Kind::Session {
            steps.push((made.ended(), index, 4));
        }
    }
    steps.sort_unstable();
    let mut rig = Rig::new();
    for (at, index, step) in steps {
        let (made, name, exec) = (&all[index], names[index], index.to_string());
        rig.run(at);
        let (command, is_shown) = made.command;
        rig.shows(&exec, if is_shown { ran(command) } else { ExecCommand::Unknown });
        let command = if command == 0 { CommandForms::default() } else { forms(command) };
        let [added, started, exited] = made.times();
        let status = made.status;
        match step {
            0 if made.kind == Kind::Session => rig.session_of(name, rig.now(at), command),
            0 => rig.began(name, at),
            1 => rig.late_mark(&exec, ADDED, added, at),
            2 => rig.late_mark(&exec, STARTED, started, at),
            3 => rig.late_mark(&exec, MarkKind::Exited { status }, exited, at),
            _ => rig.ended(name, at, (made.kind == Kind::Answered).then_some(status.cast_signed())),
        };
    }
    rig.run(10_000_000);
    let calls =
        all.iter().enumerate().filter(|(index, made)| made.kind != Kind::Session && !is_hidden(*index));
    let said = rig.said();
    prop_assert_eq!(said.iter().filter(|said| !said.contains("ended")).count(), calls.count());
    let of = |name: &str| &all[names.iter().position(|other| *other == name).unwrap()];
    for said in said {
        let (name, rest) = said.split_once(' ').unwrap();
        // Of these, all calls have to be known.
        if past_us > 0 && of(name).kind != Kind::Answered {
            continue;
        }
        let truth = of(name).truth(name, is_client);
        prop_assert!(rest == "?" || truth.iter().any(|truth| truth == said), "{} is not {:?}", said, truth);
    }
    for (name, part, least) in &rig.least {
        if past_us > 0 && of(name).kind != Kind::Answered {
            continue;
        }
        let took = of(name).took(*part, is_client);
        prop_assert!(took >= *least, "{}: {:?} took {}, not at least {}", name, part, took, least);
    }
    // A session whose exit was lost ends with its container.
    rig.matcher.gone(&"c".into());
    prop_assert!(rig.matcher.places.is_empty(), "{:?}", rig.matcher);
    Ok(())
}

proptest! {
    #[test]
    fn phases_are_never_wrong(all in prop::collection::vec(made(), 1..8), is_client in any::<bool>()) {
        check(&all, is_client, 0)?;
    }

    #[test]
    fn phases_of_answered_calls_are_never_wrong_beside_commands_that_passed_us_by(
        all in prop::collection::vec(made(), 1..8),
        is_client in any::<bool>(),
        past_us in 1usize..4,
        scale in prop_oneof![Just(1u64), Just(10), Just(50)],
    ) {
        // An answer is not seen before the marks.
        let in_time = |(index, made): (usize, Made)| {
            let marks = made.marks.map(|(late, _, again)| (late.min(3), false, again));
            let kind = match made.kind {
                Kind::Unanswered(after) => Kind::Unanswered(after * scale),
                Kind::WithoutExec(after) => Kind::WithoutExec(after * scale),
                Kind::Answered | Kind::Session => Kind::Answered,
            };
            let kind = if index < past_us { Kind::Answered } else { kind };
            let (began, steps) = (made.began * scale, made.steps.map(|step| step * scale));
            Made { kind, marks, began, steps, ..made }
        };
        let all: Vec<_> = all.into_iter().enumerate().map(in_time).collect();
        check(&all, is_client, past_us)?;
    }
}
