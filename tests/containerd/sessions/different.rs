//! What docs/exec-sessions.md lists as different is so.

use std::time::Duration;

use anyhow::{Result, ensure};
use criprobe::clock;

use super::{SHELLS, Subject, commands::Case};
use crate::support::{PATIENCE, containerd::Lab, daemon::Daemon, eventually};

/// Its output is open for two seconds longer than it runs.
const LEAVES_A_CHILD: &str = "(sleep 2; echo late) & echo early; exit 3";

/// At a timeout, its child is left.
const HAS_A_CHILD: &str = "sleep 77; exit 4";

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_holds_the_output_delays_no_answer_and_ends_with_the_timeout() -> Result<()> {
    let Some(lab) = Lab::shared_with_shells()? else { return Ok(()) };
    let daemon = Daemon::start(&lab.socket()).await?;
    let daemon = &daemon;
    let scenes = SHELLS.into_iter().map(|(shell, image)| async move {
        let subject = Subject::start(daemon, &format!("different-{shell}"), image).await?.ready().await?;
        let leaves = Case::shell(LEAVES_A_CHILD);
        let wanted = subject.run("session", &leaves.words, "20s").await?;
        ensure!(
            wanted.verdict.output == "early\nlate\n" && wanted.verdict.exit_code == Some(3),
            "{wanted:?}"
        );
        let mut took = Duration::ZERO;
        let found = eventually("a session decides", PATIENCE, async || {
            let began = clock::now();
            let found = subject.run("session", &leaves.words, "20s").await?;
            took = clock::now() - began;
            Ok((found.way == "session").then_some(found))
        })
        .await?;
        ensure!(found.verdict.output == "early\n" && found.verdict.exit_code == Some(3), "{found:?}");
        ensure!(took < Duration::from_secs(2), "{took:?}: {found:?}");

        let has = Case::once("/tmp/has", HAS_A_CHILD, "1s");
        subject.run("session", &has.words, "1s").await?;
        subject.exec(&["touch", "/tmp/has"]).await?;
        let children = async || -> Result<usize> {
            Ok(subject.processes()?.iter().filter(|(_, line)| line == "sleep 77 ").count())
        };
        subject.opened().await?;
        let found = subject.run("session", &has.words, "1s").await?;
        let timed_out = found.verdict.output.starts_with("command timed out: ");
        ensure!(found.verdict.result == "failure" && timed_out && found.way == "session", "{found:?}");
        ensure!(children().await? == 0, "the child runs on: {:?}", subject.processes()?);
        let wanted = subject.run("sync", &has.words, "1s").await?;
        ensure!(wanted.verdict.output.contains("keeps its output open"), "{wanted:?}");
        ensure!(children().await? == 1, "the child has ended: {:?}", subject.processes()?);
        Ok(())
    });
    futures_util::future::try_join_all(scenes).await.map(drop)
}
