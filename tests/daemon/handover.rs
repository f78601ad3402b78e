//! Connections that one process leaves to the next, whatever goes wrong meanwhile. The tests are the service manager, so the
//! same works by hand; `tests/systemd/` has a real one.

mod clients;
mod manager;
mod parts;

use std::{
    fs,
    os::{
        fd::OwnedFd,
        unix::{
            net::{UnixDatagram, UnixListener},
            process::ExitStatusExt as _,
        },
    },
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use criprobe::{
    clock,
    demo::{EmbeddedRuntime, EnvValues},
    ids::ContainerId,
};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use self::{
    clients::{Gate, Pinger, call_steadily, connect_behind, lines, run},
    manager::{Manager, Mood},
    parts::Parts,
};
use crate::{
    rig::runtime,
    support::{
        PATIENCE,
        cri::{self, Container},
        daemon::Daemon,
        eventually,
    },
};

/// The name of a carrier of connections.
const HANDOVER: &str = "criprobe-handover";

const GOING_ON: &str = "going on with the connections of the process before";
const NOTHING_LEFT: &str = "no connections were left to take over";
const NOT_KEPT: &str = "the service manager does not keep the connections: draining";

/// A daemon whose service manager is the test.
struct Rig {
    daemon: Daemon,
    manager: Manager,
    /// Passed to each process, if it is not to bind its own.
    listener: Option<UnixListener>,
    /// A container to run commands in.
    id: ContainerId,
    runtime: EmbeddedRuntime,
    _containers: TempDir,
}

/// What a process is passed, from descriptor 3 on: at most three, and what a shell opens besides.
#[derive(Default)]
struct Passing<'a> {
    named: Vec<(&'a str, OwnedFd)>,
    /// Redirections of a shell, and the names of what they open.
    more: (&'a str, &'a [&'a str]),
    /// A command of a shell before.
    before: &'a str,
    /// Instead of the right names.
    names: Option<&'a str>,
}

impl Rig {
    async fn start(has_listener: bool) -> Result<Self> {
        let (runtime, containers) = runtime(EnvValues::default())?;
        let mut past = cri::connect(runtime.socket()).await?;
        let pod = cri::run_pod(&mut past, "handover", &[]).await?;
        let id = cri::run_container(&mut past, &pod, &Container::IDLE).await?;
        let (manager, dir) = (Manager::start()?, tempfile::Builder::new().prefix("criprobe-").tempdir()?);
        let listener = has_listener.then(|| UnixListener::bind(dir.path().join("criprobe.sock")));
        // It is spawned by what it is spawned again by.
        let none = Command::new("true").spawn()?;
        let mut rig = Self {
            daemon: Daemon::of(none, dir),
            manager,
            listener: listener.transpose()?,
            id,
            runtime,
            _containers: containers,
        };
        rig.daemon.ended().await?;
        rig.next().await?;
        Ok(rig)
    }

    /// The listener, and what was stored.
    fn passing(&self, stored: Vec<OwnedFd>) -> Result<Passing<'static>> {
        let listener = self.listener.as_ref().map(UnixListener::try_clone).transpose()?;
        let listener = listener.map(|listener| ("criprobe.socket", listener.into()));
        let stored = stored.into_iter().map(|carrier| (HANDOVER, carrier));
        Ok(Passing { named: listener.into_iter().chain(stored).collect(), ..Passing::default() })
    }

    /// A process, which goes on logging where others have.
    fn spawn(&self, passing: Passing<'_>) -> Result<Child> {
        let Passing { named, more: (redirections, more), before, names } = passing;
        let all: Vec<_> = named.iter().map(|(name, _)| *name).chain(more.iter().copied()).collect();
        let passed = ["3<&0", "4<&1", "5<&2"][..named.len()].join(" ");
        let plain = Daemon::command(self.daemon.dir(), self.runtime.socket());
        let mut command = Command::new("sh");
        let script = format!(
            "log=$1; shift; {before} LISTEN_PID=$$ exec \"$@\" {passed} {redirections} 0</dev/null >/dev/null 2>>\"$log\""
        );
        command
            .args(["-c", &script, "sh"])
            .arg(self.daemon.dir().join("log"))
            .arg(plain.get_program())
            .args(plain.get_args())
            .env("NOTIFY_SOCKET", self.manager.path())
            .env("CRIPROBE_FAULTS", self.manager.dir())
            .env("CRIPROBE_TRACE_FILE", self.trace())
            .env("LISTEN_FDS", all.len().to_string())
            .env("LISTEN_FDNAMES", names.map_or_else(|| all.join(":"), str::to_owned))
            .stdin(Stdio::null());
        for (name, value) in plain.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        for (at, (_, descriptor)) in named.into_iter().enumerate() {
            match at {
                0 => command.stdin(descriptor),
                1 => command.stdout(descriptor),
                _ => command.stderr(descriptor),
            };
        }
        Ok(command.spawn()?)
    }

    /// Waits until the process has ended, and starts the next one with what was stored.
    async fn next(&mut self) -> Result<()> {
        self.daemon.ended().await?;
        self.go_on(self.passing(self.manager.stored()?)?).await
    }

    async fn go_on(&mut self, passing: Passing<'_>) -> Result<()> {
        self.daemon.ended().await?;
        let child = self.spawn(passing)?;
        self.daemon.succeeded_by(child);
        self.daemon.ready().await
    }

    /// Asks the process to hand over, and waits for its end.
    async fn hand_over(&mut self) -> Result<ExitStatus> {
        self.daemon.signal(Signal::USR1);
        self.daemon.ended().await
    }

    /// Has it hand over, and takes out what it left.
    async fn parts(&mut self) -> Result<Parts> {
        ensure!(self.hand_over().await?.success());
        let stored = self.manager.take_stored();
        ensure!(stored.len() == 1, "{} are stored", stored.len());
        Parts::of(&stored[0])
    }

    /// The next process goes on with these.
    async fn go_on_with(&mut self, parts: &Parts) -> Result<()> {
        let (carrier, _) = parts.put_together()?;
        self.go_on(self.passing(vec![carrier])?).await
    }

    fn pinger(&self) -> Result<Pinger> {
        Pinger::connect(&self.daemon.socket())
    }

    fn pingers(&self, count: usize) -> Result<Vec<Pinger>> {
        (0..count).map(|_| self.pinger()).collect()
    }

    /// A command that runs for so long; returns once the runtime has its call.
    async fn run(&self, seconds: &str) -> Result<tokio::task::JoinHandle<Result<()>>> {
        let before = self.runtime.faults().count("ExecSync");
        let call = run(self.daemon.client().await?, &self.id, seconds);
        eventually("the call is under way", PATIENCE, async || {
            Ok((self.runtime.faults().count("ExecSync") > before).then_some(()))
        })
        .await?;
        Ok(call)
    }

    /// Has a process be killed at this point.
    fn kill_at(&self, point: &str) -> Result<()> {
        Ok(fs::write(self.manager.dir().join(point), "")?)
    }

    /// Has processes stay at this point until they are let go.
    fn hold_at(&self, point: &str) -> Result<PathBuf> {
        let file = self.manager.dir().join(point).with_extension("wait");
        fs::write(&file, "")?;
        Ok(file)
    }

    async fn has_logged(&self, part: &str, times: usize) -> Result<()> {
        eventually(part, PATIENCE, async || Ok((self.logged(part) >= times).then_some(()))).await
    }

    /// How many lines of the log contain this.
    fn logged(&self, part: &str) -> usize {
        self.daemon.log().lines().filter(|line| line.contains(part)).count()
    }

    /// That a new client is served, and that nothing was an error.
    async fn is_clean(&self) -> Result<()> {
        self.pinger()?.exchange()?;
        cri::version(&mut self.daemon.client().await?).await?;
        ensure!(self.logged(" ERROR ") == 0, "an error");
        Ok(())
    }

    fn trace(&self) -> PathBuf {
        self.daemon.dir().join("calls.jsonl")
    }

    /// Waits until so many calls of each method are in the file, and none of them twice.
    async fn has_traced(&self, calls: &[(&str, usize)]) -> Result<()> {
        eventually("each call is in the file once", PATIENCE, async || {
            let text = fs::read_to_string(self.trace())?;
            let traced: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
            let of = |method: &str| traced.iter().filter(|call| call["method"] == method).count();
            for (method, count) in calls {
                ensure!(of(method) <= *count, "{} of {count} {method}", of(method));
            }
            Ok(calls.iter().all(|(method, count)| of(method) == *count).then_some(()))
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn by_hand_no_call_ends_no_byte_is_lost_and_each_call_is_traced_once() -> Result<()> {
    for has_listener in [true, false] {
        let mut rig = Rig::start(has_listener).await?;
        let silent = std::os::unix::net::UnixStream::connect(rig.daemon.socket())?;
        let mut pinger = rig.pinger()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let steady = tokio::spawn(call_steadily(rig.daemon.client().await?, is_over.clone()));
        let running = rig.run("4").await?;
        // A large answer of which the client has read the beginning.
        let gate = Gate::after(100_000);
        let mut slow = connect_behind(&gate, &rig.daemon.socket()).await?;
        let id = rig.id.clone();
        let large = "i=100000; while [ $i -lt 400000 ]; do echo $i; i=$((i+1)); done";
        let large = tokio::spawn(async move { cri::exec(&mut slow, &id, &["sh", "-c", large]).await });
        eventually("the answer has begun", PATIENCE, async || Ok(gate.is_closed().then_some(()))).await?;
        for _ in 0..3 {
            ensure!(rig.hand_over().await?.success());
            // Sent to nobody yet.
            pinger.send()?;
            let early = has_listener.then(|| Pinger::knock(&rig.daemon.socket())).transpose()?;
            rig.next().await?;
            pinger.receive_all()?;
            if let Some(mut early) = early {
                early.receive_all()?;
            }
        }
        ensure!(rig.logged(GOING_ON) == 3);
        gate.open();
        let large = large.await??.stdout;
        let expected: Vec<_> = (100_000..400_000).flat_map(|i: u32| format!("{i}\n").into_bytes()).collect();
        ensure!(large == expected, "{} of {} bytes, or others", large.len(), expected.len());
        running.await??;
        is_over.store(true, Ordering::Relaxed);
        let (calls, longest) = steady.await??;
        eprintln!("{calls} calls, the longest {longest:?}");
        rig.has_traced(&[("Version", calls), ("ExecSync", 2)]).await?;
        ensure!(rig.manager.was_told("FDSTOREREMOVE=1") && !rig.manager.was_told("STOPPING=1"));
        drop(silent);
        rig.is_clean().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_killed_on_the_way_leaves_its_connections_whole_or_none() -> Result<()> {
    // Where, and whether the connections go on.
    let rows = [
        ("handover-begun", false),
        ("handover-frozen", false),
        ("handover-stored", true),
        ("takeover-begun", true),
        ("takeover-done", false),
    ];
    let mut rig = Rig::start(true).await?;
    for (point, goes_on) in rows {
        let mut pinger = rig.pinger()?;
        let running = rig.run("2").await?;
        let (taken, empty) = (rig.logged(GOING_ON), rig.logged(NOTHING_LEFT));
        rig.kill_at(point)?;
        let first = rig.hand_over().await?;
        let is_first = point.starts_with("handover");
        ensure!(is_first == (first.signal() == Some(9)), "{point}: {first}");
        if !is_first {
            pinger.send()?;
            let next = rig.spawn(rig.passing(rig.manager.stored()?)?)?;
            rig.daemon.succeeded_by(next);
            let next = rig.daemon.ended().await?;
            ensure!(next.signal() == Some(9), "{point}: {next}");
        }
        rig.next().await?;
        let ran = running.await.context(point)?;
        if goes_on {
            pinger.exchange().context(point)?;
            ran.context(point)?;
        } else {
            ensure!(pinger.is_over().context(point)? && ran.is_err(), "{point}: nobody relays it any more");
        }
        // What was taken out by the process that was killed is nothing any more. Its last lines may be lost.
        let is_empty = point == "takeover-done";
        ensure!(is_empty || rig.logged(GOING_ON) == taken + usize::from(goes_on), "{point}");
        ensure!(rig.logged(NOTHING_LEFT) == empty + usize::from(is_empty), "{point}");
        rig.is_clean().await.context(point)?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn while_one_process_has_left_its_connections_only_the_next_one_writes_into_them() -> Result<()> {
    let mut rig = Rig::start(true).await?;
    let mut pinger = rig.pinger()?;
    let running = rig.run("1").await?;
    let wait = rig.hold_at("handover-stored")?;
    rig.daemon.signal(Signal::USR1);
    let stored = eventually("they are stored", PATIENCE, async || {
        Ok(Some(rig.manager.stored()?).filter(|stored| !stored.is_empty()))
    })
    .await?;
    let next = rig.spawn(rig.passing(stored)?)?;
    rig.daemon.succeeded_by(next);
    rig.daemon.ready().await?;
    for _ in 0..100 {
        pinger.exchange()?;
    }
    fs::remove_file(wait)?;
    rig.daemon.those_before_ended().await?;
    pinger.exchange()?;
    running.await??;
    rig.has_traced(&[("ExecSync", 1)]).await?;
    rig.is_clean().await?;

    // A manager that has given them to somebody else already, and says nothing of it.
    let running = rig.run("1").await?;
    rig.manager.is_now(Mood::StoresAndHangs);
    rig.daemon.signal(Signal::USR1);
    let parts = eventually("they are stored", PATIENCE, async || {
        rig.manager.take_stored().first().map(Parts::of).transpose()
    })
    .await?;
    ensure!(rig.daemon.ended().await?.success());
    ensure!(rig.logged("another process has taken the connections over before this one ended") == 1);
    rig.manager.is_now(Mood::Works);
    rig.go_on_with(&parts).await?;
    drop(parts);
    pinger.exchange()?;
    running.await??;
    rig.has_traced(&[("ExecSync", 2)]).await?;
    rig.is_clean().await
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_manager_that_does_not_keep_them_connections_are_drained() -> Result<()> {
    // Its mood, what is done to it besides, and the reason that is logged.
    type Row = (&'static str, Mood, fn(&Manager) -> Result<()>, &'static str);
    let rows: [Row; 7] = [
        ("refuses", Mood::Refuses, |_| Ok(()), "its store is full, or off"),
        ("hangs", Mood::Hangs, |_| Ok(()), "it does not answer BARRIER=1 by NOTIFY_SOCKET: timed out"),
        ("hangs later", Mood::HangsLater, |_| Ok(()), "timed out"),
        ("stores and hangs", Mood::StoresAndHangs, |_| Ok(()), "timed out"),
        ("takes no message", Mood::Hangs, Manager::flood, "timed out"),
        ("is gone", Mood::Works, Manager::vanish, "No such file"),
        ("works", Mood::Works, |_| Ok(()), ""),
    ];
    let mut rig = Rig::start(true).await?;
    let mut calls = 0;
    for (what, mood, besides, reason) in rows {
        let mut pinger = rig.pinger()?;
        let running = rig.run("3").await?;
        calls += 1;
        let (drained, empty) = (rig.logged("relay drained"), rig.logged(NOTHING_LEFT));
        rig.manager.is_now(mood);
        besides(&rig.manager)?;
        let is_drained = what != "works";
        rig.daemon.signal(Signal::USR1);
        if is_drained {
            rig.has_logged(NOT_KEPT, drained + 1).await.context(what)?;
            let log = rig.daemon.log();
            let line = log.lines().rfind(|line| line.contains(NOT_KEPT)).unwrap_or_default();
            ensure!(line.contains(reason), "{what}: {line}");
            if what == "refuses" {
                // Nobody plans probes for it.
                let mut late = rig.daemon.client().await?;
                let pod = cri::run_pod(&mut late, "late", &[]).await?;
                cri::run_container(&mut late, &pod, &Container::IDLE).await?;
            }
            // It goes on, and is asked to leave.
            drop(pinger.exchange());
            running.await?.context(what)?;
            ensure!(pinger.is_over()? && pinger.goaways > 0, "{what}: {} GOAWAYs", pinger.goaways);
        }
        ensure!(rig.daemon.ended().await?.success(), "{what}");
        // What it does later, it does with nothing.
        rig.manager.come_back()?;
        rig.manager.is_now(Mood::Works);
        if matches!(mood, Mood::HangsLater | Mood::StoresAndHangs) {
            eventually("it is stored late", PATIENCE, async || {
                Ok((!rig.manager.stored()?.is_empty()).then_some(()))
            })
            .await?;
        }
        let is_empty = !rig.manager.stored()?.is_empty() && is_drained;
        rig.next().await.context(what)?;
        ensure!(rig.logged(NOTHING_LEFT) == empty + usize::from(is_empty), "{what}");
        ensure!(rig.logged("relay drained") == drained + usize::from(is_drained), "{what}");
        rig.has_traced(&[("ExecSync", calls)]).await.context(what)?;
        rig.is_clean().await.context(what)?;
        drop(rig.manager.take_stored());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_is_busy_is_waited_for_while_calls_go_on() -> Result<()> {
    let mut rig = Rig::start(true).await?;
    let mut pinger = rig.pinger()?;
    rig.manager.is_now(Mood::Hangs);
    rig.daemon.signal(Signal::USR1);
    // Longer than clients would wait.
    let began = clock::now();
    while clock::now() - began < Duration::from_millis(2_500) {
        pinger.exchange()?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    rig.manager.is_now(Mood::Works);
    rig.next().await?;
    pinger.exchange()?;
    ensure!(rig.logged(GOING_ON) == 1 && rig.logged(NOT_KEPT) == 0);
    rig.is_clean().await
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_move_to_the_runtime_that_is_configured_over_a_restart() -> Result<()> {
    let mut rig = Rig::start(true).await?;
    let running = rig.run("2").await?;
    let mut client = rig.daemon.client().await?;
    cri::container_state(&mut client, &rig.id).await?;
    let (other, _containers) = runtime(EnvValues::default())?;
    ensure!(rig.hand_over().await?.success());
    let _former = std::mem::replace(&mut rig.runtime, other);
    rig.next().await?;
    let reason = "it leads to the runtime that was configured before";
    ensure!(rig.logged(reason) == 1);
    let blind = rig.daemon.status().await?["connections"]["blind"].clone();
    ensure!(blind[0]["reason"] == reason, "{blind}");
    running.await??;
    eventually("the other runtime answers", PATIENCE, async || {
        Ok(cri::container_state(&mut client, &rig.id).await.is_err().then_some(()))
    })
    .await?;
    cri::version(&mut client).await?;
    eventually("nobody is left at the former one", PATIENCE, async || {
        Ok((rig.daemon.status().await?["connections"]["blind"] == serde_json::json!([])).then_some(()))
    })
    .await?;
    rig.is_clean().await
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_another_version_connect_again_and_no_call_fails() -> Result<()> {
    let mut rig = Rig::start(true).await?;
    let is_over = Arc::new(AtomicBool::new(false));
    let mut steady = Vec::new();
    for _ in 0..3 {
        steady.push(tokio::spawn(call_steadily(rig.daemon.client().await?, is_over.clone())));
    }
    let mut pinger = rig.pinger()?;
    let running = rig.run("3").await?;
    let gate = Gate::after(5_000);
    let mut slow = connect_behind(&gate, &rig.daemon.socket()).await?;
    let id = rig.id.clone();
    let long = tokio::spawn(async move { cri::exec(&mut slow, &id, &["sh", "-c", clients::LINES]).await });
    eventually("the answer has begun", PATIENCE, async || Ok(gate.is_closed().then_some(()))).await?;
    let before: u64 = rig.daemon.status().await?["connections"]["open"].as_u64().context("a number")?;

    let mut parts = rig.parts().await?;
    parts.of_another_layout()?;
    rig.go_on_with(&parts).await?;
    drop(parts);
    ensure!(rig.logged("connections of the process before are relayed blindly") == 1);
    let blind = rig.daemon.status().await?["connections"]["blind"].clone();
    let is_said = blind.as_array().is_some_and(|all| {
        !all.is_empty()
            && all.iter().all(|one| one["reason"] == "it was handed over by another version of criprobe")
    });
    ensure!(is_said && before >= 6, "{before} connections: {blind}");
    // Once, between two frames, and nothing is missing.
    pinger.exchange()?;
    pinger.exchange()?;
    ensure!(pinger.goaways == 1, "{} GOAWAYs", pinger.goaways);
    gate.open();
    ensure!(long.await??.stdout == lines());
    running.await??;
    drop(pinger);
    eventually("all have connected again", PATIENCE, async || {
        Ok((rig.daemon.status().await?["connections"]["blind"] == serde_json::json!([])).then_some(()))
    })
    .await?;
    // Again, by a version that knows them.
    ensure!(rig.hand_over().await?.success());
    rig.next().await?;
    ensure!(rig.daemon.status().await?["connections"]["blind"] == serde_json::json!([]));
    is_over.store(true, Ordering::Relaxed);
    for calls in steady {
        let (calls, longest) = calls.await??;
        ensure!(calls > 0);
        eprintln!("{calls} calls, the longest {longest:?}");
    }
    rig.is_clean().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_damaged_ends_alone_and_is_a_line() -> Result<()> {
    // What is done to three connections, which of them go on, and what is logged, at which level.
    type Row = (&'static str, fn(&mut Parts) -> Result<()>, [bool; 3], &'static [&'static str]);
    let none = [false; 3];
    let rows: [Row; 13] = [
        ("nothing", |_| Ok(()), [true; 3], &[]),
        (
            "a byte of a record",
            |parts| {
                let record = parts.record(1)?;
                parts.state[record.start + 30] ^= 1;
                Ok(())
            },
            [true, false, true],
            &["WARN", "its record cannot be read: it is damaged"],
        ),
        (
            "a tap within a record",
            |parts| parts.change_record(0, |record| *record.last_mut().unwrap() ^= 1),
            [true; 3],
            &["WARN", "relayed blindly", "its state was damaged when it was handed over"],
        ),
        (
            "a record of another format",
            |parts| parts.change_record(2, |record| record[0] ^= 2),
            [true, true, false],
            &["WARN", "it was left by a version that keeps other state"],
        ),
        (
            "half a pair",
            |parts| {
                parts.sockets.remove(3);
                Ok(())
            },
            [true, false, true],
            &["WARN", "its socket was not passed on"],
        ),
        (
            "an end that is missing",
            |parts| {
                parts.has_end = false;
                Ok(())
            },
            [true; 3],
            &["WARN", "what the process before has left is not as it was sent", "is_cut=true"],
        ),
        (
            "sockets of others",
            |parts| {
                let (one, other) = std::os::unix::net::UnixStream::pair()?;
                parts.sockets.extend([one.into(), other.into(), fs::File::open("/dev/null")?.into()]);
                Ok(())
            },
            [true; 3],
            &["WARN", "what the process before has left is not as it was sent", "foreign=2"],
        ),
        (
            "another format",
            |parts| parts.change_head(|head| head[0] ^= 2),
            none,
            &["ERROR", "cannot be read: it was left by a version that keeps other state"],
        ),
        (
            "another runtime",
            |parts| parts.change_head(|head| head[24] ^= 1),
            [true; 3],
            &["WARN", "relayed blindly", "it leads to the runtime that was configured before"],
        ),
        (
            "the head",
            |parts| {
                parts.state[60] ^= 1;
                Ok(())
            },
            none,
            &["ERROR", "cannot be read: it is damaged"],
        ),
        (
            "records that are cut off",
            |parts| {
                parts.state.truncate(parts.record(2)?.start + 10);
                Ok(())
            },
            none,
            &["ERROR", "cannot be read: it is damaged"],
        ),
        (
            "all of the state",
            |parts| {
                parts.state.clear();
                Ok(())
            },
            none,
            &["ERROR", "cannot be read: it is damaged"],
        ),
        (
            "a state that others can change",
            |parts| {
                parts.is_open = true;
                Ok(())
            },
            none,
            &["ERROR", "the state of the connections is missing"],
        ),
    ];
    let mut rig = Rig::start(true).await?;
    for (what, damage, goes_on, logged) in rows {
        let mut pingers = rig.pingers(3)?;
        let mut parts = rig.parts().await?;
        damage(&mut parts)?;
        let before = rig.daemon.log().len();
        rig.go_on_with(&parts).await.context(what)?;
        drop(parts);
        for (pinger, goes_on) in pingers.iter_mut().zip(goes_on) {
            let is_right = if goes_on { pinger.exchange().is_ok() } else { pinger.is_over()? };
            ensure!(is_right, "{what}: goes on: {goes_on}");
        }
        rig.pinger()?.exchange().context(what)?;
        // It is written by a thread of its own.
        eventually(what, PATIENCE, async || {
            let log = rig.daemon.log().split_off(before);
            let lines: Vec<_> =
                log.lines().filter(|line| line.contains(" WARN ") || line.contains(" ERROR ")).collect();
            let Some(first) = lines.first() else { return Ok(logged.is_empty().then_some(())) };
            let is_right = lines.len() == 1 && logged.iter().all(|part| first.contains(part));
            ensure!(is_right && !logged.is_empty(), "{what}: {lines:#?}");
            Ok(Some(()))
        })
        .await?;
        drop(pingers);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn descriptors_that_are_of_no_use_are_a_line_each_and_the_others_are_used() -> Result<()> {
    let mut rig = Rig::start(true).await?;
    let elsewhere = UnixListener::bind(rig.manager.dir().join("elsewhere.sock"))?;
    let (writing, written_to) = parts::pair()?;
    type Change<'a> = &'a dyn Fn(&mut Passing<'static>) -> Result<()>;
    let with =
        |name: &'static str, descriptor: &dyn Fn() -> Result<OwnedFd>, passing: &mut Passing<'static>| {
            passing.named.push((name, descriptor()?));
            Ok(())
        };
    // What is passed, whether the connections go on, and what is logged of it.
    let rows: [(&str, Change<'_>, bool, &[&str]); 13] = [
        ("nothing else", &|_| Ok(()), true, &[]),
        (
            "a file",
            &|passing| {
                passing.more = ("5</dev/null", &["file"]);
                Ok(())
            },
            true,
            &["file: is not a Unix socket that listens, and is not used"],
        ),
        (
            "datagrams",
            &|passing| with("datagrams", &|| Ok(UnixDatagram::unbound()?.into()), passing),
            true,
            &["datagrams: is not a Unix socket that listens, and is not used"],
        ),
        (
            "a number that is closed",
            &|passing| {
                passing.more = ("5<&-", &["closed"]);
                Ok(())
            },
            true,
            &["LISTEN_FDS=3, but 1 of these descriptors are not open, the first is 5"],
        ),
        (
            "numbers that are closed, in between",
            &|passing| {
                passing.more = ("5<&- 6</dev/null 7<&-", &["closed", "file", "closed"]);
                Ok(())
            },
            true,
            &[
                "LISTEN_FDS=5, but 2 of these descriptors are not open, the first is 5",
                "file: is not a Unix socket that listens, and is not used",
            ],
        ),
        (
            "a listener of another name",
            &|passing| with("other", &|| Ok(elsewhere.try_clone()?.into()), passing),
            true,
            &["elsewhere.sock, where criprobe serves no one"],
        ),
        (
            "an empty carrier before",
            &|passing| {
                passing.named.insert(1, (HANDOVER, parts::pair()?.1));
                Ok(())
            },
            true,
            &[],
        ),
        (
            "a carrier into which others can write",
            &|passing| {
                passing.named.insert(1, (HANDOVER, written_to.try_clone()?));
                rustix::net::send(&writing, b"?", rustix::net::SendFlags::empty())?;
                Ok(())
            },
            true,
            &[],
        ),
        (
            "a file of the carrier's name",
            &|passing| {
                passing.more = ("5</dev/null", &[HANDOVER]);
                Ok(())
            },
            true,
            &["the descriptor that was passed does not carry connections"],
        ),
        (
            "the same connections twice",
            &|passing| {
                let (_, carrier) = passing.named.pop().context("a carrier")?;
                let parts = Parts::of(&carrier)?;
                for _ in 0..2 {
                    passing.named.push((HANDOVER, parts.put_together()?.0));
                }
                Ok(())
            },
            true,
            &["connections of more than one process were passed"],
        ),
        (
            "more names than descriptors",
            &|passing| {
                passing.names = Some("criprobe.socket:criprobe-handover:more");
                Ok(())
            },
            true,
            &["LISTEN_FDNAMES has 3 names, but LISTEN_FDS=2"],
        ),
        (
            "no names",
            &|passing| {
                passing.names = Some("");
                Ok(())
            },
            false,
            &["unknown: is not a Unix socket that listens, and is not used"],
        ),
        (
            "the carrier under another name",
            &|passing| {
                passing.names = Some("criprobe.socket:other");
                Ok(())
            },
            false,
            &["other: is not a Unix socket that listens, and is not used"],
        ),
    ];
    for (what, change, goes_on, logged) in rows {
        let mut pinger = rig.pinger()?;
        ensure!(rig.hand_over().await?.success(), "{what}");
        let mut passing = rig.passing(rig.manager.take_stored())?;
        change(&mut passing)?;
        let before = rig.daemon.log().len();
        rig.go_on(passing).await.context(what)?;
        let is_right = if goes_on { pinger.exchange().is_ok() } else { pinger.is_over()? };
        ensure!(is_right, "{what}: goes on: {goes_on}");
        rig.pinger()?.exchange().context(what)?;
        let log = rig.daemon.log().split_off(before);
        let lines: Vec<_> =
            log.lines().filter(|line| line.contains(" WARN ") || line.contains(" ERROR ")).collect();
        let is_right = lines.len() == logged.len()
            && logged.iter().all(|part| lines.iter().filter(|line| line.contains(part)).count() == 1);
        ensure!(is_right, "{what}: {lines:#?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_may_have_fewer_descriptors_goes_on_with_some_connections() -> Result<()> {
    let mut rig = Rig::start(true).await?;
    let mut pingers = rig.pingers(60)?;
    ensure!(rig.hand_over().await?.success());
    let mut passing = rig.passing(rig.manager.take_stored())?;
    passing.before = "ulimit -n 100;";
    rig.go_on(passing).await?;
    let mut going_on = Vec::new();
    for mut pinger in pingers.drain(..) {
        // A connection that was closed refuses the ping, or answers with its end.
        if pinger.exchange().is_ok() {
            going_on.push(pinger);
        }
    }
    ensure!((5..50).contains(&going_on.len()), "{} go on", going_on.len());
    let line = "connections of the process before ended: out of file descriptors, raise LimitNOFILE";
    ensure!(rig.logged(line) == 1 && rig.logged(" ERROR ") == 1);
    ensure!(rig.daemon.status().await?["connections"]["open"] == going_on.len());
    // New clients wait until others leave.
    drop(going_on);
    rig.pinger()?.exchange()?;
    ensure!(rig.hand_over().await?.success());
    rig.next().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_connections_and_full_buffers_pass_whole() -> Result<()> {
    criprobe::relay::descriptors::raise_limit();
    let mut rig = Rig::start(true).await?;
    let mut slow = rig.pingers(3)?;
    let mut idle = rig.pingers(1_000)?;
    let mut sent = 0;
    for pinger in &mut slow {
        sent += pinger.send_all_that_fits()?;
    }
    let gate = Gate::after(100_000);
    let mut frozen = connect_behind(&gate, &rig.daemon.socket()).await?;
    let id = rig.id.clone();
    let large = "i=100000; while [ $i -lt 500000 ]; do echo $i; i=$((i+1)); done";
    let large = tokio::spawn(async move { cri::exec(&mut frozen, &id, &["sh", "-c", large]).await });
    eventually("the answer has begun", PATIENCE, async || Ok(gate.is_closed().then_some(()))).await?;
    for _ in 0..2 {
        let began = clock::now();
        ensure!(rig.hand_over().await?.success());
        let left = clock::now();
        idle[0].send()?;
        let child = rig.spawn(rig.passing(rig.manager.stored()?)?)?;
        rig.daemon.succeeded_by(child);
        idle[0].receive_all()?;
        eprintln!(
            "1,004 connections left in {:?}, were relayed {:?} later",
            left - began,
            clock::now() - left
        );
        rig.daemon.ready().await?;
    }
    for pinger in &mut idle {
        pinger.exchange()?;
    }
    for pinger in &mut slow {
        pinger.receive_all()?;
        pinger.exchange()?;
    }
    gate.open();
    let large = large.await??.stdout;
    let expected: Vec<_> = (100_000..500_000).flat_map(|i: u32| format!("{i}\n").into_bytes()).collect();
    ensure!(large == expected && sent > 1_000, "{} of {} bytes, {sent} pings", large.len(), expected.len());
    // The last of them is closed with its answer.
    let open = rig.daemon.status().await?["connections"]["open"].as_u64();
    ensure!(open >= Some(1_003), "{open:?} are open");
    ensure!(rig.logged("are relayed again stalled_millis=") == 2);
    ensure!(rig.logged(" WARN ") + rig.logged(" ERROR ") == 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_at_any_time_of_a_handover_end_no_connection() -> Result<()> {
    let mut rig = Rig::start(true).await?;
    let mut pinger = rig.pinger()?;
    // More of them during a handover.
    let wait = rig.hold_at("handover-begun")?;
    rig.daemon.signal(Signal::USR1);
    rig.has_logged("handing connections over to the next process", 1).await?;
    for signal in [Signal::USR1, Signal::TERM, Signal::INT, Signal::HUP] {
        rig.daemon.signal(signal);
    }
    pinger.exchange()?;
    fs::remove_file(wait)?;
    pinger.send()?;
    rig.next().await?;
    pinger.receive_all()?;

    // While the next one starts, when it has taken nothing over yet.
    ensure!(rig.hand_over().await?.success());
    let wait = rig.hold_at("takeover-begun")?;
    let next = rig.spawn(rig.passing(rig.manager.stored()?)?)?;
    rig.daemon.succeeded_by(next);
    let pid = rig.daemon.pid();
    eventually("it listens for signals", PATIENCE, async || {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).context("signals")?;
        // SIGUSR1 is 10.
        Ok((u64::from_str_radix(caught, 16)? & 1 << 9 != 0).then_some(()))
    })
    .await?;
    rig.daemon.signal(Signal::USR1);
    fs::remove_file(wait)?;
    pinger.send()?;
    rig.next().await?;
    pinger.receive_all()?;

    // At any time before: it ends by it, or hands over.
    for _ in 0..5 {
        ensure!(rig.hand_over().await?.success());
        let next = rig.spawn(rig.passing(rig.manager.stored()?)?)?;
        rig.daemon.succeeded_by(next);
        rig.daemon.signal(Signal::USR1);
        pinger.send()?;
        let ended = rig.daemon.ended().await?;
        ensure!(ended.success() || ended.signal() == Some(10), "{ended}");
        rig.next().await?;
        pinger.receive_all()?;
    }
    rig.is_clean().await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_manager_the_signal_of_a_handover_drains() -> Result<()> {
    let mut rig = crate::rig::Rig::start().await?;
    let mut pinger = Pinger::connect(&rig.socket())?;
    rig.daemon.signal(Signal::USR1);
    ensure!(rig.daemon.ended().await?.success());
    ensure!(pinger.is_over()? && pinger.goaways == 2);
    let log = rig.daemon.log();
    ensure!(
        log.contains("no service manager keeps connections (NOTIFY_SOCKET is not set): draining"),
        "{log}"
    );
    Ok(())
}
