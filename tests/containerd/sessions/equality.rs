//! Random commands by a session and by ExecSync, in each of the three shells: every verdict is the same.
//!
//! `make test-exec-equality COMMANDS=10000` runs more of them; `SEED=...` runs those of an earlier run again.

use std::{
    collections::BTreeMap,
    env,
    hash::{BuildHasher, RandomState},
};

use anyhow::{Context as _, Result, ensure};
use futures_util::future::try_join_all;

use super::{
    Answer, SHELLS, Subject, Verdict,
    commands::{Case, cases},
};
use crate::support::{containerd::Lab, daemon::Daemon};

/// How many commands `make test` compares, those of the table included, in all three shells together.
const COMMANDS: usize = 300;

/// What an attempt by ExecSync says if containerd has shown no life until its timeout was over.
const AWAY: &str = "the runtime is away";

/// So many of a hundred go by the session, at least. What the runtime cannot run, what exits with 126 or 127, and what has no
/// session for a moment goes by ExecSync.
const BY_SESSION: usize = 70;

/// What one shell has shown.
#[derive(Default)]
struct Tally {
    ways: BTreeMap<String, usize>,
    different: Vec<String>,
}

#[tokio::test(flavor = "multi_thread")]
async fn random_commands_are_judged_alike_by_a_session_and_by_execsync_in_each_shell() -> Result<()> {
    let Some(lab) = Lab::shared_with_shells()? else { return Ok(()) };
    let number =
        |name: &str| env::var(name).ok().filter(|text| !text.is_empty()).map(|text| text.parse::<u64>());
    let seed = number("EQUALITY_SEED").transpose()?.unwrap_or_else(|| RandomState::new().hash_one(()) >> 32);
    let commands = number("EQUALITY_COMMANDS").transpose()?.map_or(Ok(COMMANDS), usize::try_from)?;
    println!("{commands} commands, seed {seed}");
    let daemon = Daemon::start(&lab.socket()).await?;
    let daemon = &daemon;
    let each = commands / SHELLS.len();
    let tallies = SHELLS.into_iter().zip(seed..).map(async |((shell, image), seed)| {
        let all = cases(seed, each.saturating_sub(cases(0, 0).len()));
        // Half of them in a container each: most of the time is that of commands that do not end.
        let mut halves = [Vec::new(), Vec::new()];
        for (at, case) in all.into_iter().enumerate() {
            halves[at % 2].push(case);
        }
        let halves = halves.into_iter().zip(["even", "odd"]).map(|(cases, half)| {
            let pod = format!("equal-{shell}-{half}");
            judge_all(daemon, shell, image, pod, cases)
        });
        let mut tally = Tally::default();
        for half in try_join_all(halves).await? {
            for (way, count) in half.ways {
                *tally.ways.entry(way).or_default() += count;
            }
            tally.different.extend(half.different);
        }
        anyhow::Ok(tally)
    });
    let (mut different, mut few) = (Vec::new(), Vec::new());
    for (tally, (shell, _)) in try_join_all(tallies).await?.into_iter().zip(SHELLS) {
        let all: usize = tally.ways.values().sum();
        println!("{shell}: {all} commands: {:?}", tally.ways);
        if tally.ways.get("session").copied().unwrap_or_default() * 100 < all * BY_SESSION {
            few.push(format!("{shell}: too few of {all} commands went by the session: {:?}", tally.ways));
        }
        different.extend(tally.different);
    }
    ensure!(different.is_empty(), "seed {seed}: {} differ:\n{}", different.len(), different.join("\n"));
    ensure!(few.is_empty(), "{}", few.join("\n"));
    Ok(())
}

async fn judge_all(
    daemon: &Daemon,
    shell: &str,
    image: &str,
    pod: String,
    cases: Vec<Case>,
) -> Result<Tally> {
    let subject = Subject::start(daemon, &pod, image).await?.ready().await?;
    let mut tally = Tally::default();
    for case in cases {
        let (wanted, found) = both(&subject, &case).await.with_context(|| format!("{shell}: {case:?}"))?;
        if comparable(&case, &wanted) != comparable(&case, &found) {
            tally.different.push(format!(
                "{shell}: {case:?}\n  ExecSync: {}\n  {}: {}",
                shown(&wanted),
                found.way,
                shown(&found)
            ));
        }
        if found.way.contains("session ") {
            // It has ended, or is being opened: later commands are to be compared, too.
            subject.opened().await.with_context(|| format!("after {case:?}"))?;
        }
        if found.way.contains("session ") {
            println!("{shell}: {case:?}: {}", found.way);
        }
        *tally.ways.entry(found.way).or_default() += 1;
    }
    Ok(tally)
}

/// By ExecSync, and then by the session.
async fn both(subject: &Subject<'_>, case: &Case) -> Result<(Answer, Answer)> {
    let mut wanted = subject.run("session", &case.words, case.timeout).await?;
    ensure!(wanted.way.starts_with("sync"), "a command that ExecSync has not run went by the session");
    if let Some(file) = &case.flag {
        subject.touch(file)?;
        wanted = subject.run("sync", &case.words, case.timeout).await?;
    }
    // On a busy machine, containerd may be slower than short timeouts, and its answer says nothing of the command then.
    for _ in 0..5 {
        if wanted.verdict.output.starts_with(AWAY) {
            wanted = subject.run("sync", &case.words, case.timeout).await?;
        }
    }
    let found = subject.run("session", &case.words, case.timeout).await?;
    Ok((wanted, found))
}

/// A verdict without what docs/exec-sessions.md lists as different: the order of the variables, and the path of a program that a
/// busybox has in itself.
fn comparable(case: &Case, answer: &Answer) -> Verdict {
    let mut verdict = answer.verdict.clone();
    if ["env", "printenv"].contains(&case.words[0].as_str()) {
        let mut lines: Vec<_> = verdict.output.lines().collect();
        lines.sort_unstable();
        verdict.output = lines.join("\n");
    }
    verdict.output = verdict.output.replace("/bin/cat\0", "cat\0").replace("/bin/sh: ", "sh: ");
    verdict
}

/// A verdict in a line.
fn shown(answer: &Answer) -> String {
    let verdict = &answer.verdict;
    let head: String = verdict.output.chars().take(200).collect();
    format!("{} {:?} {} bytes {head:?}", verdict.result, verdict.exit_code, verdict.output.len())
}
