//! A clock that is set back, or that shows any time: row 19.

use std::{fs, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use criprobe::demo::FaultKind;
use jiff::Timestamp;

use crate::{
    rig::{EAGER, LIVENESS, READINESS, Rig, STARTUP},
    support::{PATIENCE, cri::Container, daemon::Daemon, eventually},
};

/// Adds the seconds that a file holds to what the wall's clock shows.
const SHIFTED_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *shown) {
    char text[32] = {0};
    int result = syscall(SYS_clock_gettime, clock, shown);
    int file = clock == CLOCK_REALTIME ? open(getenv("CLOCK_SHIFT"), O_RDONLY) : -1;
    if (file >= 0) {
        if (read(file, text, sizeof(text) - 1) > 0) shown->tv_sec += atoll(text);
        close(file);
    }
    return result;
}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn row_19_a_start_in_the_future_counts_as_now() -> Result<()> {
    const YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
    const HOURS: Duration = Duration::from_secs(2 * 3600);
    let delayed = r#"{"exec": {"command": ["true"]}, "period": "100ms", "initialDelaySeconds": 1}"#;
    let mut rig = Rig::start().await?;
    for (name, ahead) in [("hours", HOURS), ("years", YEARS)] {
        rig.faults().clear();
        rig.always("ContainerStatus", FaultKind::LaterTimes(ahead));
        let probes = [(STARTUP, delayed), (LIVENESS, EAGER), (READINESS, EAGER)];
        let (pod, _) = rig.run(name, &probes, Container::IDLE.command).await?;
        for kind in ["startup", "liveness", "readiness"] {
            rig.last(&pod, kind, "success").await?;
        }
        let status = rig.daemon.json("/v1/pods").await?;
        let of_it = status.as_array().into_iter().flatten().find(|shown| shown["pod"] == name);
        let shown = of_it.cloned().unwrap_or_default();
        ensure!(shown["ready"] == true, "{shown}");
        let started: Timestamp = shown["containers"][0]["startedAt"].as_str().unwrap_or_default().parse()?;
        ensure!(started > Timestamp::now(), "the runtime says that it started in the future: {shown}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_19_containers_that_started_in_the_future_are_probed_after_a_restart_of_criprobe() -> Result<()> {
    let mut rig = Rig::start().await?;
    rig.always("ContainerStatus", FaultKind::LaterTimes(Duration::from_secs(7200)));
    let (pod, _) = rig.run("restarted", &[(LIVENESS, EAGER)], Container::IDLE.command).await?;
    rig.last(&pod, "liveness", "success").await?;
    rig.daemon.terminate();
    let socket = rig.runtime.socket().to_owned();
    rig.daemon.start_again(&socket, &[]).await?;
    let made = rig.last(&pod, "liveness", "success").await?["counts"]["success"].as_u64().unwrap_or_default();
    rig.becomes(&pod, "liveness", "goes on", |probe| probe["counts"]["success"].as_u64() > Some(made + 3))
        .await?;
    let uptime = rig.daemon.status().await?["uptimeSeconds"].as_f64().unwrap_or(-1.0);
    ensure!((0.0..600.0).contains(&uptime), "up for {uptime} s");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_19_questions_are_answered_whatever_the_clock_shows() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("criprobe-clock-").tempdir()?;
    let (source, library, shift) =
        (dir.path().join("clock.c"), dir.path().join("clock.so"), dir.path().join("shift"));
    fs::write(&source, SHIFTED_CLOCK)?;
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).args([&library, &source]);
    ensure!(compiler.status().context("run cc")?.success(), "cc failed");
    fs::write(&shift, "0")?;
    let (library, clock) = (library.display().to_string(), shift.display().to_string());
    let settings = [("LD_PRELOAD", library.as_str()), ("CLOCK_SHIFT", clock.as_str())];

    let mut rig = Rig::start().await?;
    let (pod, _) = rig.run("clock", &[(LIVENESS, EAGER)], Container::IDLE.command).await?;
    // 1912, 1874, 2312, 9948, 11532 and 287241.
    for seconds in
        ["-1800000000", "-3000000000", "9000000000", "250000000000", "300000000000", "9000000000000"]
    {
        fs::write(&shift, "0")?;
        let mut jumps = Daemon::spawn(rig.runtime.socket(), &settings)?;
        jumps.ready().await?;
        fs::write(&shift, seconds)?;
        let mut starts = Daemon::spawn(rig.runtime.socket(), &settings)?;
        starts.ready().await?;
        for daemon in [&jumps, &starts] {
            eventually("the probe goes on", PATIENCE, async || {
                let probe = daemon.probe(&pod, "app", "liveness").await?.unwrap_or_default();
                Ok((probe["counts"]["success"].as_u64() > Some(3)).then_some(()))
            })
            .await?;
            for asked in [["status", "-o", "yaml"], ["probes", "-o", "wide"], ["events", "-o", "table"]] {
                let (succeeded, printed) = daemon.run(&asked)?;
                ensure!(succeeded, "{seconds}: {asked:?}: {printed}");
            }
            let log = daemon.log();
            ensure!(!log.contains("panic"), "{seconds}: {log}");
        }
    }
    Ok(())
}
