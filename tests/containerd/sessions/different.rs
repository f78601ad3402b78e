//! What docs/exec-sessions.md lists as different is so.

use anyhow::{Context as _, Result, ensure};
use futures_util::future::try_join_all;

use super::{SHELLS, Subject, commands::Case, rarely};
use crate::support::{containerd::Lab, cri, daemon::Daemon};

/// Its output is open for two seconds longer than it runs.
const LEAVES_A_CHILD: &str = "(sleep 2; echo late) & echo early; exit 3";

/// At a timeout, its child is left.
const HAS_A_CHILD: &str = "sleep 77; exit 4";

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_holds_the_output_delays_no_answer_and_ends_with_the_timeout() -> Result<()> {
    let Some(lab) = Lab::shared_with_shells()? else { return Ok(()) };
    // So long ExecSync waits beyond a timeout.
    let mut daemon = Daemon::spawn(&lab.socket(), &[("CRIPROBE_PROBER_EXEC_GRACE", "2s")])?;
    daemon.ready().await?;
    let (daemon, pod) = (&daemon, &cri::run_pod(&mut daemon.client().await?, "different", &[]).await?);
    let leaving = SHELLS.map(async |(shell, image)| {
        leaves(&Subject::idle(daemon, pod, &format!("leaves-{shell}"), image).await?).await.context(shell)
    });
    let having = SHELLS.map(async |(shell, image)| {
        has(&Subject::idle(daemon, pod, &format!("has-{shell}"), image).await?).await.context(shell)
    });
    tokio::try_join!(try_join_all(leaving), try_join_all(having)).map(drop)
}

/// Answers when the command ends.
async fn leaves(subject: &Subject<'_>) -> Result<()> {
    let leaves = Case::shell(LEAVES_A_CHILD);
    let wanted = subject.run("session", &leaves.words, "20s").await?;
    ensure!(wanted.verdict.output == "early\nlate\n" && wanted.verdict.exit_code == Some(3), "{wanted:?}");
    let found = rarely("a session decides while the child runs", async || {
        let found = subject.run("session", &leaves.words, "20s").await?;
        let is_there = subject.processes()?.iter().any(|(_, line)| line == "sleep 2 ");
        Ok((is_there && found.way == "session").then_some(found))
    })
    .await?;
    ensure!(found.verdict.output == "early\n" && found.verdict.exit_code == Some(3), "{found:?}");
    Ok(())
}

/// Ends the child with its command.
async fn has(subject: &Subject<'_>) -> Result<()> {
    let has = Case::once("/tmp/has", HAS_A_CHILD, "1s");
    subject.run("session", &has.words, "1s").await?;
    subject.touch("/tmp/has")?;
    let children = || -> Result<usize> {
        Ok(subject.processes()?.iter().filter(|(_, line)| line == "sleep 77 ").count())
    };
    let mut before = 0;
    let found = rarely("a session decides", async || {
        subject.opened().await?;
        // Of an attempt that ExecSync decided, because the machine is busy.
        before = children()?;
        let found = subject.run("session", &has.words, "1s").await?;
        Ok((found.way == "session").then_some(found))
    })
    .await?;
    let timed_out = found.verdict.output.starts_with("command timed out: ");
    ensure!(found.verdict.result == "failure" && timed_out, "{found:?}");
    ensure!(children()? == before, "the child runs on: {:?}", subject.processes()?);
    let wanted = subject.run("sync", &has.words, "1s").await?;
    ensure!(wanted.verdict.output.contains("keeps its output open"), "{wanted:?}");
    ensure!(children()? == before + 1, "the child has ended: {:?}", subject.processes()?);
    Ok(())
}
