//! criprobe and containerd go away: nothing of a session is left in a container, and sessions come back.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures_util::future::{join_all, try_join_all};
use rustix::process::Signal;

use super::{SHELLS, Subject, rarely};
use crate::support::{containerd::Lab, cri, daemon::Daemon};

/// How long something of a session may be left in its container.
const A_MINUTE: Duration = Duration::from_secs(60);

/// A command that ends at once, until there is a file.
const LONG: [&str; 3] = ["sh", "-c", "[ ! -e /tmp/long ] || { sleep 600 & sleep 600; }"];

/// A container of each shell.
async fn subjects<'a>(daemon: &'a Daemon, name: &str) -> Result<Vec<Subject<'a>>> {
    let pod = &cri::run_pod(&mut daemon.client().await?, name, &[]).await?;
    try_join_all(SHELLS.map(async |(shell, image)| Subject::idle(daemon, pod, shell, image).await)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_criprobe_that_is_killed_leaves_nothing_in_containers() -> Result<()> {
    let Some(lab) = Lab::shared_with_shells()? else { return Ok(()) };
    let mut daemon = Daemon::start(&lab.socket()).await?;
    let all = subjects(&daemon, "deserted").await?;
    // In all but the first, a command with a child runs meanwhile.
    for subject in &all[1..] {
        ensure!(subject.run("session", &LONG, "30s").await?.verdict.exit_code == Some(0));
        subject.touch("/tmp/long")?;
    }
    let runs = all[1..].iter().map(|subject| subject.run("session", &LONG, "30s"));
    let killed = async {
        for subject in &all[1..] {
            subject.sees("sleep 600 ").await?;
        }
        daemon.signal(Signal::KILL);
        anyhow::Ok(())
    };
    let (runs, killed) = tokio::join!(join_all(runs), killed);
    killed?;
    ensure!(runs.iter().all(Result::is_err), "the attempts ended: {runs:?}");
    for subject in &all {
        subject.is_left_alone(A_MINUTE).await?;
    }
    let left: Vec<_> = all.into_iter().map(|subject| (subject.pod, subject.name, subject.id)).collect();

    daemon.start_again(&lab.socket(), &[]).await?;
    for (pod, name, id) in left {
        let client = daemon.client().await?;
        let subject = Subject { daemon: &daemon, client, pod, name, id };
        subject.opened().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_containerd_ends_sessions_and_they_come_back() -> Result<()> {
    let Some(lab) = Lab::start()? else { return Ok(()) };
    lab.add_shells()?;
    let daemon = Daemon::start(&lab.socket()).await?;
    let all = subjects(&daemon, "restarted").await?;
    lab.stop()?;
    lab.resume()?;
    let again = all.iter().map(async |subject| {
        rarely("a session is there again", async || {
            let answer = subject.run("session", &["cat", "/dev/null"], "5s").await?;
            // It may still be starting.
            Ok((answer.way == "session").then_some(()))
        })
        .await?;
        // What was left behind is gone.
        ensure!(subject.helpers()?.len() == 3, "{:?}", subject.processes()?);
        Ok(())
    });
    try_join_all(again).await.map(drop)
}
