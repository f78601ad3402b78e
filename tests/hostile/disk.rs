//! Row 18: a disk that is full, or cannot be written.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Signal, geteuid};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    rig::{EAGER, LIVENESS, Rig},
    support::{
        PATIENCE,
        cri::{self, Pod},
        eventually,
    },
};

/// Rests long enough that nothing but what was saved can explain what is seen after a restart.
const FAILS_ONCE: &str = r#"{"exec": {"command": ["false"]}, "periodSeconds": 300, "failureThreshold": 1}"#;

/// A disk of 256 KiB in memory, mounted on a folder of its own and unmounted when it is dropped.
pub(crate) struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    pub(crate) fn mount() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("criprobe-disk-").tempdir()?;
        run("mount", &["-t", "tmpfs", "-o", "size=256k,mode=0700", "criprobe-test"], folder.path())?;
        Ok(Self { folder })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// Writes a file until nothing more fits.
    fn fill(&self) -> Result<()> {
        let mut filler = File::create(self.folder.path().join("filler"))?;
        while filler.write_all(&[0; 4096]).is_ok() {}
        ensure!(fs::write(self.folder.path().join("more"), [0; 4096]).is_err(), "the disk is not full");
        Ok(())
    }

    pub(crate) fn make_read_only(&self) -> Result<()> {
        run("mount", &["-o", "remount,ro"], self.folder.path())
    }

    fn make_writable(&self) -> Result<()> {
        run("mount", &["-o", "remount,rw"], self.folder.path())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // What still has a file open there must not keep the mount: lazily, it goes with the last of them.
        if let Err(error) = run("umount", &["--lazy"], self.folder.path()) {
            eprintln!("the disk was left mounted: {error:#}");
        }
    }
}

fn run(program: &str, arguments: &[&str], folder: &Path) -> Result<()> {
    let output = Command::new(program).args(arguments).arg(folder).output().context("run mount")?;
    ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Only root may mount a disk. For other users the test is left out, and says so.
pub(crate) fn may_mount() -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        eprintln!("left out: only root can mount a disk");
    }
    is_root
}

impl Rig {
    async fn liveness(&self, pod: &Pod) -> Result<Value> {
        self.daemon.probe(pod, "app", "liveness").await?.context("the probe is there")
    }

    /// Kills the daemon, lets something happen to its disk, starts it again, and waits for the first probe.
    async fn kill_and_start(&mut self, state: &str, meanwhile: impl FnOnce() -> Result<()>) -> Result<()> {
        self.daemon.signal(Signal::KILL);
        self.daemon.ended().await?;
        meanwhile()?;
        let runtime = self.runtime.socket().to_owned();
        self.daemon.start_again(&runtime, &[("CRIPROBE_STATE", state)]).await?;
        eventually("its probes are there", PATIENCE, async || {
            Ok((!self.daemon.probes().await?.is_empty()).then_some(()))
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_18_state_is_read_from_a_full_disk_and_from_one_that_cannot_be_written() -> Result<()> {
    if !may_mount() {
        return Ok(());
    }
    let disk = SmallDisk::mount()?;
    let state = disk.state().display().to_string();
    let mut rig = Rig::with(&[("CRIPROBE_STATE", &state)]).await?;
    let (pod, _) = rig.run("kept", &[(LIVENESS, FAILS_ONCE)], &["sleep", "100000"]).await?;
    let before = rig
        .becomes(&pod, "liveness", "fails", |probe| {
            probe["state"] == "failure" && probe["phase"] == "probing"
        })
        .await?;
    rig.daemon.post(&format!("/v1/probes/{}/app/liveness/pause", pod.uid), "").await?;
    eventually("both are saved", PATIENCE, async || {
        let saved: Value = match fs::read(disk.state().join("probes.json")) {
            Ok(bytes) => serde_json::from_slice(&bytes)?,
            Err(_) => return Ok(None),
        };
        let probe = &saved["probes"][0];
        Ok((probe["stand"]["state"] == "failure" && probe["pausedSince"].is_string()).then_some(()))
    })
    .await?;
    for (trouble, damage) in [
        ("No space left", &SmallDisk::fill as &dyn Fn(&SmallDisk) -> Result<()>),
        ("Read-only file system", &SmallDisk::make_read_only),
    ] {
        rig.kill_and_start(&state, || damage(&disk)).await?;
        let after = rig.liveness(&pod).await?;
        assert_eq!(
            [&after["state"], &after["since"]],
            [&before["state"], &before["since"]],
            "{trouble}: {after}"
        );
        assert_eq!(after["phase"], "paused", "{trouble}: {after}");
        // Probes go on; only what they find is not saved, which is shown.
        rig.daemon.post(&format!("/v1/probes/{}/app/liveness/resume", pod.uid), "").await?;
        eventually("the status says why nothing is saved", PATIENCE, async || {
            let reported = rig.daemon.status().await?["state"]["trouble"].clone();
            Ok(reported.as_str().is_some_and(|reported| reported.contains(trouble)).then_some(()))
        })
        .await?;
    }
    rig.daemon.signal(Signal::KILL);
    rig.daemon.ended().await?;
    disk.make_writable()
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_leave_some_of_a_disk_to_others_and_are_written_again_when_there_is_room() -> Result<()> {
    if !may_mount() {
        return Ok(());
    }
    let disk = SmallDisk::mount()?;
    let file = disk.path().join("records/attempts.jsonl");
    let settings =
        [("CRIPROBE_ATTEMPTS_FILE", &*file.display().to_string()), ("CRIPROBE_ATTEMPTS_MAX_BYTES", "256KiB")];
    let mut rig = Rig::with(&settings).await?;
    rig.run("recorded", &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
    let written = async |rig: &Rig, what: &str, is: &dyn Fn(&Value) -> bool| {
        eventually(what, PATIENCE, async || {
            let attempts = rig.daemon.status().await?["attempts"].take();
            Ok(is(&attempts).then_some(attempts))
        })
        .await
    };
    written(&rig, "lines are written", &|attempts| attempts["written"].as_u64() > Some(3)).await?;
    disk.fill()?;
    let full = written(&rig, "the status says that the disk is full", &|attempts| {
        attempts["trouble"].as_str().is_some_and(|trouble| trouble.contains("is nearly full"))
    })
    .await?;
    let probe = rig.daemon.probes().await?[0]["counts"]["success"].as_u64();
    eventually("the probe goes on", PATIENCE, async || {
        Ok((rig.daemon.probes().await?[0]["counts"]["success"].as_u64() > probe).then_some(()))
    })
    .await?;
    fs::remove_file(disk.path().join("filler"))?;
    let after = written(&rig, "lines are written again", &|attempts| {
        attempts["trouble"] == ""
            && attempts["written"].as_u64() > full["written"].as_u64().map(|lines| lines + 3)
    })
    .await?;
    assert_eq!(after["dropped"], 0, "they waited: {after}");
    let text = fs::read_to_string(&file)?;
    assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "each line is whole");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_leave_some_of_a_disk_to_others_and_no_call_waits_for_it() -> Result<()> {
    if !may_mount() {
        return Ok(());
    }
    let disk = SmallDisk::mount()?;
    let file = disk.path().join("records/calls.jsonl");
    let settings =
        [("CRIPROBE_TRACE_FILE", &*file.display().to_string()), ("CRIPROBE_TRACE_MAX_BYTES", "256KiB")];
    let mut rig = Rig::with(&settings).await?;
    let written = async |rig: &Rig, what: &str, is: &dyn Fn(&Value) -> bool| {
        eventually(what, PATIENCE, async || {
            let trace = rig.daemon.status().await?["trace"].take();
            Ok(is(&trace).then_some(trace))
        })
        .await
    };
    cri::version(&mut rig.client).await?;
    written(&rig, "a line is written", &|trace| trace["written"].as_u64() > Some(0)).await?;
    disk.fill()?;
    let full = eventually("the status says that the disk is full", PATIENCE, async || {
        cri::version(&mut rig.client).await?;
        let trace = rig.daemon.status().await?["trace"].take();
        Ok(trace["trouble"].as_str().is_some_and(|why| why.contains("is nearly full")).then_some(trace))
    })
    .await?;
    for _ in 0..20 {
        cri::version(&mut rig.client).await?;
    }
    assert_eq!(rig.daemon.status().await?["gaps"], 0);
    fs::remove_file(disk.path().join("filler"))?;
    let after = written(&rig, "lines are written again", &|trace| {
        trace["trouble"] == ""
            && trace["written"].as_u64() >= full["written"].as_u64().map(|lines| lines + 20)
    })
    .await?;
    assert_eq!(after["dropped"], 0, "they waited: {after}");
    Ok(())
}
