//! Commands and containers that are bad for a session: the verdict is always that of ExecSync, the reason is visible, and a session
//! works later.

use anyhow::{Context as _, Result, ensure};
use futures_util::future::try_join_all;
use rustix::process::{Pid, Signal, kill_process};

use super::{SHELLS, Subject, commands::Case, few_at_a_time, rarely};
use crate::{
    paused,
    support::{
        PATIENCE,
        confined::Linux,
        containerd::Lab,
        cri::{self, Container},
        daemon::Daemon,
        eventually,
    },
};

const SESSION: &str = "session";
const ENDED: &str = "sync (the session ended)";
const NO_SHELL: &str = "sync (the image's sh cannot serve a session)";
const CHANGES: &str = "sync (the image's sh changes the environment)";
const SILENT: &str = "sync (the session does not answer)";

/// What a command does to the session that runs it, and which way its verdict comes then.
const HOSTILE: [(&str, &str, &str); 12] = [
    ("kill -9 -1", "2s", ENDED),
    ("kill -9 0", "2s", ENDED),
    ("kill -9 $PPID", "2s", SILENT),
    ("kill -STOP 0", "1s", SILENT),
    ("kill -STOP -1", "1s", SILENT),
    ("kill -PIPE 0", "2s", ENDED),
    ("kill -TERM 0", "2s", SESSION),
    ("kill -INT 0; kill -HUP 0; kill -QUIT 0; sleep 1; exit 4", "5s", SESSION),
    ("trap '' TERM; kill -TERM -1; echo alive; exit 4", "5s", SESSION),
    ("kill -TSTP 0", "1s", SESSION),
    ("for fd in /proc/[0-9]*/fd/0; do timeout 0.1 cat $fd; done >/dev/null 2>&1; exit 5", "5s", SESSION),
    ("head -c 4000000 /dev/zero", "10s", "sync (too much output for a session)"),
];

/// Writes to the outputs of all processes.
const NOISE: &str = "for fd in /proc/[0-9]*/fd/[123456]; do echo noise >$fd; done 2>/dev/null";

#[tokio::test(flavor = "multi_thread")]
async fn what_a_command_does_to_its_session_changes_no_verdict_and_ends_no_later_session() -> Result<()> {
    let Some(lab) = Lab::shared_with_shells()? else { return Ok(()) };
    let daemon = Daemon::start(&lab.socket()).await?;
    let pod = cri::run_pod(&mut daemon.client().await?, "hostile", &[]).await?;
    let scenes = HOSTILE.into_iter().enumerate().map(async |(at, (line, timeout, way))| {
        // Each of the shells meets a third of them, in turns.
        let (shell, image) = SHELLS[at % SHELLS.len()];
        let subject = Subject::idle(&daemon, &pod, &format!("app-{at}"), image).await?;
        let case = Case::once("/tmp/hostile", line, timeout);
        let (wanted, found) = judged(&subject, &case).await.with_context(|| format!("{shell}: {line}"))?;
        ensure!(found.verdict == wanted.verdict, "{shell}: {line}:\n{wanted:?}\n{found:?}");
        println!("{shell}: {line}: {}", found.way);
        // A machine that is busy may keep the shells from answering in time.
        ensure!([way, SILENT].contains(&&*found.way), "{shell}: {line}: wanted {way}: {found:?}");
        // What others write to its pipes meanwhile is not what the next command says.
        subject.exec(&["timeout", "1", "sh", "-c", NOISE]).await?;
        subject.opened().await.with_context(|| format!("{shell}: after {line}"))
    });
    none_failed(few_at_a_time(scenes).await)
}

/// All that failed, not the first one alone.
fn none_failed(ended: Vec<Result<()>>) -> Result<()> {
    let wrong: Vec<_> = ended.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// By ExecSync and by the session, which is open when its turn comes, whatever the one by ExecSync has done to it.
async fn judged(subject: &Subject<'_>, case: &Case) -> Result<(super::Answer, super::Answer)> {
    let file = case.flag.as_deref().context("it does that only once it may")?;
    let seeded = subject.run("session", &case.words, case.timeout).await?;
    ensure!(seeded.verdict.exit_code == Some(3), "{seeded:?}");
    subject.touch(file)?;
    let wanted = subject.run("sync", &case.words, case.timeout).await?;
    subject.opened().await?;
    let found = subject.run("session", &case.words, case.timeout).await?;
    Ok((wanted, found))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_loses_a_process_in_the_middle_of_a_command_changes_no_verdict() -> Result<()> {
    let Some(lab) = Lab::shared_with_shells()? else { return Ok(()) };
    let daemon = Daemon::start(&lab.socket()).await?;
    let pod = cri::run_pod(&mut daemon.client().await?, "killed", &[]).await?;
    // In a container each: one that has lost a session waits longer for the next one each time.
    let scenes = SHELLS.into_iter().flat_map(|shell| [0, 1, 2].map(|victim| (shell, victim)));
    let scenes = scenes.map(async |((shell, image), victim)| {
        let what = format!("{shell}: process {victim}");
        let container = Container { name: &format!("{shell}-{victim}"), image, ..Container::IDLE };
        let subject = Subject::beside(&daemon, &pod, &container, Linux::default()).await?;
        // Slow only later, so that the first attempt takes no place from others.
        let case = Case::shell(format!("echo {victim}; [ ! -e /tmp/slow ] || sleep 1; exit 4"));
        let wanted = subject.run("session", &case.words, "10s").await?;
        subject.touch("/tmp/slow")?;
        subject.opened().await?;
        let killed = async {
            subject.sees("sleep 1 ").await?;
            let helpers = subject.helpers()?;
            ensure!(helpers.len() == 3, "{what}: the session has the processes {helpers:?}");
            kill_process(Pid::from_raw(helpers[victim]).context("a pid")?, Signal::KILL)?;
            Ok(())
        };
        let (found, killed) = tokio::join!(subject.run("session", &case.words, "10s"), killed);
        killed?;
        let found = found?;
        ensure!(found.verdict == wanted.verdict, "{what}: {wanted:?}\n{found:?}");
        // The first one only waits, and the second one only reads: the command's end may come before that of the session.
        let is_right = [ENDED, SILENT].contains(&&*found.way) || victim < 2 && found.way == SESSION;
        ensure!(is_right, "{what}: {found:?}");
        println!("{what}: {}", found.way);
        rarely("a whole session is open", async || {
            subject.opened().await?;
            Ok((subject.helpers()?.len() == 3).then_some(()))
        })
        .await
        .with_context(|| format!("{what}: {:?}", subject.helpers()))
    });
    none_failed(few_at_a_time(scenes).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_container_without_a_proper_shell_execsync_decides_and_says_why() -> Result<()> {
    let Some(lab) = Lab::shared_with_shells()? else { return Ok(()) };
    let daemon = Daemon::start(&lab.socket()).await?;
    let daemon = &daemon;
    // What `sh` is then, and which way commands go. A busybox would still be a shell under that name.
    let shells = [
        ("cat", "cp /bin/cat /bin/sh", NO_SHELL),
        ("true", "cp /bin/true /bin/sh", NO_SHELL),
        ("yes", &script("exec yes"), NO_SHELL),
        ("silent", &script("exec sleep 1000"), SILENT),
        ("chatty", &script("echo welcome; echo hm >&2; exec ash \"$@\""), NO_SHELL),
        ("missing", ":", "sync (no shell in the image)"),
        ("no-program", "touch /bin/sh", "sync (no shell in the image)"),
    ];
    let pod = cri::run_pod(&mut daemon.client().await?, "improper", &[]).await?;
    let scenes = shells.into_iter().map(async |(name, made, way)| {
        let line = format!("rm /bin/sh; {made}\n: >/tmp/ready; exec sleep 100000");
        let command = ["ash", "-c", &line];
        let container = Container { name, image: "localhost/dash:1", command: &command, ..Container::IDLE };
        let subject = Subject::beside(daemon, &pod, &container, Linux::default()).await?;
        subject.prepared().await?;
        subject.goes(way).await.with_context(|| format!("sh is {name}"))?;
        // Nothing ends a program that does not read its input, but itself.
        if !["yes", "silent"].contains(&name) {
            subject.is_left_alone(PATIENCE).await.with_context(|| format!("sh is {name}"))?;
        }
        ensure!(subject.exec(&["ln", "-sf", "dash", "/bin/sh"]).await? == 0, "sh cannot be made");
        // What only seemed to have no shell gets a session a while later; a shell that has not answered is left alone for longer.
        if name == "missing" {
            subject.opened().await?;
        }
        Ok(())
    });
    let (ended, shown) = tokio::join!(few_at_a_time(scenes), shows_why(daemon));
    none_failed(ended)?;
    shown
}

/// The reason is where people look.
async fn shows_why(daemon: &Daemon) -> Result<()> {
    let mut client = daemon.client().await?;
    let probe = r#"{"exec": {"command": ["true"]}, "period": "200ms", "execMode": "session"}"#;
    let pod = cri::run_pod(&mut client, "no-shell", &[("liveness.criprobe.dev/app", probe)]).await?;
    let container =
        Container { image: "localhost/no-shell:1", command: &["sleep", "100000"], ..Container::IDLE };
    cri::run_container(&mut client, &pod, &container).await?;
    daemon
        .probe_becomes((&pod, "app", "liveness"), "says why", PATIENCE, |probe| {
            probe["last"]["execReason"] == "no shell in the image" && probe["state"] == "success"
        })
        .await?;
    let (_, shown) = daemon.run(&["describe", "default/no-shell/app/liveness"])?;
    ensure!(shown.contains("sync (no shell in the image)"), "{shown}");
    Ok(())
}

/// Makes `sh` a script of this line.
fn script(line: &str) -> String {
    format!("printf '%s\\n' '#!/bin/ash' '{line}' >/bin/sh; chmod 755 /bin/sh")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_that_a_shell_would_change_is_as_execsync_has_it() -> Result<()> {
    let Some(lab) = Lab::shared_with_shells()? else { return Ok(()) };
    let daemon = Daemon::start(&lab.socket()).await?;
    let pod = cri::run_pod(&mut daemon.client().await?, "environments", &[]).await?;
    let environments = [
        ("dotted", "my.var=1 my-var=2"),
        ("shells-own", "PWD=/nowhere OLDPWD=/else SHLVL=7 _=x IFS=e PS4=p"),
        ("kept", "OPTIND=5 RANDOM=1"),
        ("readonly", "UID=7 PPID=8"),
        // Hard to quote; names that the session's own script might use; what shells read as they start.
        (
            "hard",
            "EMPTY= QUOTES='\"$A`\\ UNICODE=\u{1F600} A=B=C t=1 s=2 l=3 k=4 m=5 n=6 i=7 d=8 x=9 \
             ENV=/tmp/rc BASH_ENV=/tmp/rc LC_ALL=C.UTF-8",
        ),
    ];
    let scenes = SHELLS.into_iter().flat_map(|shell| environments.map(|environment| (shell, environment)));
    let scenes = scenes.map(async |((shell, image), (name, env))| {
        let line = "echo 'echo noise; exit 9' >/tmp/rc; : >/tmp/ready; exec sleep 100000";
        let command = ["sh", "-c", line];
        let env: Vec<_> = env.split(' ').filter_map(|pair| pair.split_once('=')).collect();
        let container =
            Container { name: &format!("{shell}-{name}"), image, env: &env, ..Container::shell(&command) };
        let subject = Subject::beside(&daemon, &pod, &container, Linux::default()).await?;
        subject.prepared().await?;
        let commands = [&["env"][..], &["cat", "/proc/self/environ"], &["sh", "-c", "env; set | grep -c ."]];
        let mut by_sync = Vec::new();
        for words in commands {
            by_sync.push(subject.run("session", words, "10s").await?);
        }
        // There is a session, or the reason is the environment.
        let mut seen = String::new();
        rarely("commands go by a session, or it is clear why not", async || {
            seen = subject.run("session", commands[0], "10s").await?.way;
            Ok([SESSION, CHANGES, NO_SHELL].contains(&&*seen).then_some(()))
        })
        .await
        .with_context(|| format!("{shell}, {name}: {seen}"))?;
        println!("{shell}, {name}: {seen}");
        ensure!(name != "hard" || seen == SESSION, "{shell}, {name}: {seen}");
        for (words, wanted) in commands.into_iter().zip(by_sync).filter(|_| seen == SESSION) {
            ensure!(wanted.way.starts_with("sync"), "{shell}, {name}, {words:?}: {wanted:?}");
            let found = rarely("a session runs it", async || {
                let found = subject.run("session", words, "10s").await?;
                Ok((found.way == SESSION).then_some(found))
            })
            .await?;
            // The order of the variables is the shell's.
            let sorted = |text: &str| {
                let mut lines: Vec<_> = text.split(['\n', '\0']).map(str::to_owned).collect();
                lines.sort();
                lines
            };
            ensure!(
                sorted(&wanted.verdict.output) == sorted(&found.verdict.output),
                "{shell}, {name}, {words:?}:\n{wanted:#?}\n{found:#?}"
            );
        }
        anyhow::Ok(())
    });
    none_failed(few_at_a_time(scenes).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_runs_out_of_memory_is_paused_or_starts_again_keeps_its_verdicts() -> Result<()> {
    let Some(lab) = Lab::shared_with_shells()? else { return Ok(()) };
    let daemon = Daemon::start(&lab.socket()).await?;
    tokio::try_join!(
        runs_out_of_memory(&daemon),
        is_paused(&daemon, lab),
        is_paused_in_the_middle(&daemon, lab),
        starts_again(&daemon),
    )
    .map(drop)
}

async fn runs_out_of_memory(daemon: &Daemon) -> Result<()> {
    let subject = Subject::of(daemon, "small", &Container::IDLE, Linux::memory(48 << 20)).await?;
    subject.opened().await?;
    let greedy = "x=0123456789abcdef; while true; do x=$x$x; done";
    let (wanted, found) = judged(&subject, &Case::once("/tmp/greedy", greedy, "10s")).await?;
    ensure!(wanted.verdict == found.verdict && found.verdict.exit_code == Some(137), "{wanted:?}\n{found:?}");
    subject.opened().await
}

async fn is_paused(daemon: &Daemon, lab: &Lab) -> Result<()> {
    let subject = Subject::of(daemon, "asleep", &Container::IDLE, Linux::default()).await?;
    subject.opened().await?;
    paused::task(&lab.socket(), "pause", subject.id.as_str()).await?;
    eventually("it is known to be paused", PATIENCE, async || {
        let pods = daemon.json("/v1/pods?pod=asleep").await?;
        Ok((pods[0]["containers"][0]["paused"] == true).then_some(()))
    })
    .await?;
    paused::task(&lab.socket(), "resume", subject.id.as_str()).await?;
    subject.opened().await
}

async fn is_paused_in_the_middle(daemon: &Daemon, lab: &Lab) -> Result<()> {
    let subject = Subject::of(daemon, "falls-asleep", &Container::IDLE, Linux::default()).await?;
    subject.opened().await?;
    let case = Case::shell("sleep 1; exit 4");
    subject.run("session", &case.words, "5s").await?;
    let pause = async {
        subject.sees("sleep 1 ").await?;
        paused::task(&lab.socket(), "pause", subject.id.as_str()).await
    };
    let (found, pause) = tokio::join!(subject.run("session", &case.words, "5s"), pause);
    pause?;
    let found = found?;
    println!("paused in the middle: {found:?}");
    paused::task(&lab.socket(), "resume", subject.id.as_str()).await?;
    ensure!(found.verdict.result == "error" && found.way == SILENT, "{found:?}");
    subject.opened().await
}

async fn starts_again(daemon: &Daemon) -> Result<()> {
    let subject = Subject::of(daemon, "again", &Container::IDLE, Linux::default()).await?;
    subject.opened().await?;
    let subject = subject.restarted(&Container::IDLE).await?;
    subject.opened().await?;
    ensure!(subject.helpers()?.len() == 3, "{:?}", subject.processes()?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_that_share_their_processes_have_a_session_each() -> Result<()> {
    let Some(lab) = Lab::shared_with_shells()? else { return Ok(()) };
    let daemon = Daemon::start(&lab.socket()).await?;
    let mut client = daemon.client().await?;
    let pod = cri::run_pod(&mut client, "sharing", &[]).await?;
    let mut all = Vec::new();
    for name in ["app", "other"] {
        let id = cri::run_container(&mut client, &pod, &Container { name, ..Container::IDLE }).await?;
        let (client, pod) = (client.clone(), pod.clone());
        all.push(Subject { daemon: &daemon, client, pod, name: name.to_owned(), id });
    }
    try_join_all(all.iter().map(Subject::opened)).await?;
    let before = [all[0].helpers()?, all[1].helpers()?];
    ensure!(before.iter().all(|shells| shells.len() == 3), "{before:?}");
    for _ in 0..5 {
        for subject in &all {
            subject.opened().await?;
        }
    }
    let after = [all[0].helpers()?, all[1].helpers()?];
    ensure!(before == after, "sessions were opened again: {before:?}, {after:?}");
    Ok(())
}
