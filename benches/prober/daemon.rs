//! The program under test, as a user runs it: started, asked over its API, measured, ended.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use criprobe::clock;
use serde_json::Value;

use crate::process::Process;

/// 60 s: all probes have to be at work by then.
const START: Duration = Duration::from_secs(60);

/// 10 s: the API has to answer by then.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running criprobe.
pub(crate) struct Daemon {
    pub(crate) process: Process,
    /// Where clients reach it.
    pub(crate) socket: PathBuf,
    api: PathBuf,
    started: Instant,
}

/// What it used in a window of time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Of one core.
    pub(crate) cores: f64,
    /// The most memory, in MiB.
    pub(crate) mib: f64,
}

/// The variables that the packaged unit sets, such as those of malloc(3).
fn unit_environment() -> impl Iterator<Item = (&'static str, &'static str)> {
    let unit = include_str!("../../packaging/criprobe.service");
    let lines = unit.lines().filter_map(|line| line.strip_prefix("Environment="));
    lines.flat_map(str::split_whitespace).filter_map(|setting| setting.split_once('='))
}

impl Daemon {
    /// Starts it with its defaults but for `settings`, and as the unit does, in front of the runtime at `runtime`; its files go
    /// to `folder`.
    pub(crate) fn start(
        program: &Path,
        runtime: &Path,
        folder: &Path,
        settings: &[(&str, &str)],
    ) -> Result<Self> {
        let (socket, api) = (folder.join("criprobe.sock"), folder.join("api.sock"));
        let url = |path: &Path| format!("unix://{}", path.display());
        let mut command = Command::new(program);
        command
            .arg("serve")
            .args(["--listen", &url(&socket)])
            .args(["--runtime", &url(runtime)])
            .args(["--api", &url(&api)])
            .env("CRIPROBE_STATE", folder.join("state"))
            .envs(settings.iter().copied())
            .envs(unit_environment());
        let started = clock::now();
        let process = Process::start(&mut command, &folder.join("criprobe.log"))?;
        Ok(Self { process, socket, api, started })
    }

    /// Waits until as many probes are at work.
    pub(crate) fn wait_for(&mut self, probes: usize) -> Result<()> {
        let deadline = clock::now() + START;
        loop {
            self.process.ensure_running()?;
            let status = self.get("/v1/status").unwrap_or_default();
            let at_work = status["probes"]["phases"]["probing"].as_u64().unwrap_or(0);
            // A phase that no probe is in is left out; the inventory says that the lists were taken in.
            if at_work == probes as u64 && !status["inventory"]["lastResyncAt"].is_null() {
                return Ok(());
            }
            let has_invalid =
                status["probes"]["phases"]["invalid"].as_u64().is_some_and(|invalid| invalid > 0);
            if has_invalid || clock::now() > deadline {
                bail!("{probes} probes should be at work, there are: {}", status["probes"]);
            }
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// How long after its start the API shows all containers as running, with all probes. Asks every 50 ms.
    pub(crate) fn time_until_known(&mut self, containers: usize, probes: usize) -> Result<Duration> {
        loop {
            let pods = self.get("/v1/pods").unwrap_or_default();
            let took = clock::now() - self.started;
            let all: Vec<&Value> = pods
                .as_array()
                .into_iter()
                .flatten()
                .flat_map(|pod| pod["containers"].as_array())
                .flatten()
                .collect();
            let running = all.iter().filter(|container| container["state"] == "running").count();
            let probed: u64 = all.iter().filter_map(|container| container["probes"]["total"].as_u64()).sum();
            if running == containers && probed == probes as u64 {
                return Ok(took);
            }
            self.process.ensure_running()?;
            ensure!(
                took < START,
                "{running} of {containers} containers are known, and {probed} of {probes} probes"
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Lets `window` pass; what is used meanwhile comes out.
    pub(crate) fn use_in(&mut self, window: Duration) -> Result<Usage> {
        let (cpu, began) = (self.process.cpu(), clock::now());
        self.process.reset_peak()?;
        thread::sleep(window);
        self.process.ensure_running()?;
        let used = self.process.cpu().saturating_sub(cpu);
        let peak = self.process.peak()?;
        Ok(Usage {
            cores: used.as_secs_f64() / (clock::now() - began).as_secs_f64(),
            mib: peak as f64 / f64::from(1 << 20),
        })
    }

    /// How often it has taken in the runtime's lists.
    pub(crate) fn resyncs(&self) -> Result<u64> {
        self.get("/v1/status")?["inventory"]["resyncs"].as_u64().context("the status has no resyncs")
    }

    /// The attempts that it has counted itself, by how they ended: successes, and all.
    pub(crate) fn counted(&self) -> Result<(u64, u64)> {
        let probes = self.get("/v1/probes")?;
        let probes = probes.as_array().context("the probes are no list")?;
        let sum = |names: &[&str]| {
            let of =
                |probe: &Value| names.iter().filter_map(|name| probe["counts"][*name].as_u64()).sum::<u64>();
            probes.iter().map(of).sum()
        };
        Ok((sum(&["success"]), sum(&["success", "warning", "failure", "error"])))
    }

    /// What the API answers to a path.
    pub(crate) fn get(&self, path: &str) -> Result<Value> {
        let mut stream = UnixStream::connect(&self.api)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        // A body without chunks, up to the end of the connection.
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let answer = String::from_utf8(answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no end of the header")?;
        ensure!(head.starts_with("HTTP/1.0 200"), "{path}: {}", head.lines().next().unwrap_or_default());
        Ok(serde_json::from_str(body)?)
    }
}
