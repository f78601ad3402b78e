//! The daemon as its users have it: the binary, its sockets in a directory of its own, its JSON over the API socket.

use std::{
    fs::{self, File},
    mem,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use criprobe::clock;
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyperlocal::{UnixClientExt as _, UnixConnector};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::Semaphore;

use super::{
    PATIENCE,
    cri::{self, Cri, Pod},
    eventually,
};

/// A running `criprobe serve`. Dropped, it is drained and its log printed, which cargo shows of tests that fail.
pub(crate) struct Daemon {
    process: Child,
    /// Processes of before that may still run.
    before: Vec<Child>,
    dir: TempDir,
    /// For attempts: it refuses more than four at a time.
    places: Semaphore,
}

/// How commands of exec probes get into their containers. What a probe shows is the same in each.
pub(crate) const EXEC_MODES: [&str; 2] = ["sync", "session"];

/// The setting of such a mode, as a variable of the daemon's environment.
pub(crate) fn exec_mode(mode: &str) -> (&'static str, &str) {
    ("CRIPROBE_PROBER_EXEC_MODE", mode)
}

/// How long a daemon may take to end once it was asked to; then it is killed.
const DRAIN_PATIENCE: Duration = Duration::from_secs(15);

impl Daemon {
    /// Starts one in front of a runtime, and waits until it is ready: what ran before is known by then.
    pub(crate) async fn start(runtime: &Path) -> Result<Self> {
        let mut daemon = Self::spawn(runtime, &[])?;
        daemon.ready().await?;
        Ok(daemon)
    }

    /// Starts one that runs commands of exec probes in this mode, and waits until it is ready.
    pub(crate) async fn in_mode(runtime: &Path, mode: &str) -> Result<Self> {
        // A test that fails shows it.
        println!("execMode: {mode}");
        let mut daemon = Self::spawn(runtime, &[exec_mode(mode)])?;
        daemon.ready().await?;
        Ok(daemon)
    }

    /// Starts one with these variables in its environment, and waits for nothing.
    pub(crate) fn spawn(runtime: &Path, settings: &[(&str, &str)]) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("criprobe-").tempdir()?;
        let process = Self::command(dir.path(), runtime)
            .envs(settings.iter().copied())
            .stderr(File::create(dir.path().join("log"))?)
            .spawn()?;
        Ok(Self::of(process, dir))
    }

    /// One that a test has started by itself, from [`Daemon::command`], with its sockets in this folder.
    pub(crate) fn of(process: Child, dir: TempDir) -> Self {
        Self { process, before: Vec::new(), dir, places: Semaphore::new(4) }
    }

    /// Goes on with another process that a test has started in the same folder.
    pub(crate) fn succeeded_by(&mut self, process: Child) {
        self.before.push(mem::replace(&mut self.process, process));
    }

    /// Waits until those of before have ended.
    pub(crate) async fn those_before_ended(&mut self) -> Result<()> {
        eventually("the process before is stopping", DRAIN_PATIENCE, async || {
            while let Some(process) = self.before.last_mut() {
                if process.try_wait()?.is_none() {
                    return Ok(None);
                }
                self.before.pop();
            }
            Ok(Some(()))
        })
        .await
    }

    /// Starts it again where it was, once it has ended, and waits until it is ready. Its log starts again.
    pub(crate) async fn start_again(&mut self, runtime: &Path, settings: &[(&str, &str)]) -> Result<()> {
        self.spawn_again(runtime, settings).await?;
        self.ready().await
    }

    /// Starts it again where it was, once it has ended, and waits for nothing.
    pub(crate) async fn spawn_again(&mut self, runtime: &Path, settings: &[(&str, &str)]) -> Result<()> {
        self.ended().await?;
        self.process = Self::command(self.dir.path(), runtime)
            .envs(settings.iter().copied())
            .stderr(File::create(self.dir.path().join("log"))?)
            .spawn()?;
        Ok(())
    }

    /// The command that would start one with its sockets in this folder.
    pub(crate) fn command(dir: &Path, runtime: &Path) -> Command {
        let url = |path: &Path| format!("unix://{}", path.display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_criprobe"));
        command
            .arg("serve")
            .args(["--listen", &url(&dir.join("criprobe.sock"))])
            .args(["--api", &url(&dir.join("api.sock"))])
            .args(["--runtime", &url(runtime)])
            .env("CRIPROBE_STATE", dir.join("state"))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    /// Waits until it is ready.
    pub(crate) async fn ready(&mut self) -> Result<()> {
        eventually("the daemon is ready", PATIENCE, async || {
            if let Some(status) = self.process.try_wait()? {
                bail!("criprobe serve ended with {status}: {}", self.log());
            }
            Ok(self.get("/readyz").await.ok().filter(|(status, _)| *status == StatusCode::OK))
        })
        .await?;
        Ok(())
    }

    /// Asks it to end, as a service manager does.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }

    /// How it ended, once it has.
    pub(crate) async fn ended(&mut self) -> Result<ExitStatus> {
        eventually("the daemon is stopping", DRAIN_PATIENCE, async || Ok(self.process.try_wait()?)).await
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The folder of its sockets.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// What `/v1/status` says.
    pub(crate) async fn status(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.text("/v1/status").await?)?)
    }

    /// The folder that keeps its state.
    pub(crate) fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// Where clients connect.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("criprobe.sock")
    }

    /// A client on a new connection through the relay.
    pub(crate) async fn client(&self) -> Result<Cri> {
        cri::connect(&self.socket()).await
    }

    /// The probe of a type of a pod's container, as `/v1/probes` lists it; `None` where it does not.
    pub(crate) async fn probe(&self, pod: &Pod, container: &str, kind: &str) -> Result<Option<Value>> {
        let key = format!("{}/{container}/{kind}", pod.uid);
        Ok(self.probes().await?.into_iter().find(|probe| probe["key"] == key))
    }

    /// All probes that `/v1/probes` lists.
    pub(crate) async fn probes(&self) -> Result<Vec<Value>> {
        Ok(serde_json::from_str(&self.text("/v1/probes").await?)?)
    }

    /// Polls the probe until it is as wanted.
    ///
    /// # Errors
    /// What the probe was like at the end, when it did not become so `within` that time.
    pub(crate) async fn probe_becomes(
        &self,
        (pod, container, kind): (&Pod, &str, &str),
        what: &str,
        within: Duration,
        is_wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let mut seen = None;
        let found = eventually(&format!("{kind} of {container} {what}"), within, async || {
            seen = self.probe(pod, container, kind).await?;
            Ok(seen.clone().filter(|probe| is_wanted(probe)))
        })
        .await;
        found.with_context(|| format!("the probe: {}", seen.unwrap_or_default()))
    }

    /// Calls that `/v1/trace` keeps, the newest `last`.
    pub(crate) async fn calls(&self, last: usize) -> Result<Vec<Value>> {
        self.lines(&format!("/v1/trace?last={last}")).await
    }

    /// Events that `/v1/events` keeps.
    pub(crate) async fn events(&self) -> Result<Vec<Value>> {
        self.lines("/v1/events").await
    }

    /// What a path that answers JSON answers.
    pub(crate) async fn json(&self, path: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.text(path).await?)?)
    }

    /// What a verb prints that asks it, and whether that went well; where not, also what it says of that.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<(bool, String)> {
        let output = Command::new(env!("CARGO_BIN_EXE_criprobe"))
            .args(arguments)
            .env("CRIPROBE_API", self.dir.path().join("api.sock"))
            .env_remove("COLUMNS")
            .stdin(Stdio::null())
            .output()?;
        let mut printed = output.stdout;
        if !output.status.success() {
            printed.extend(output.stderr);
        }
        Ok((output.status.success(), String::from_utf8(printed)?))
    }

    /// What a path that answers JSON a line answers.
    pub(crate) async fn lines(&self, path: &str) -> Result<Vec<Value>> {
        let text = self.text(path).await?;
        text.lines().map(|line| serde_json::from_str(line).with_context(|| format!("parse {line}"))).collect()
    }

    async fn text(&self, path: &str) -> Result<String> {
        let (status, text) = self.get(path).await?;
        ensure!(status == StatusCode::OK, "{path} answered {status}: {text}");
        Ok(text)
    }

    /// What a path answers.
    pub(crate) async fn get(&self, path: &str) -> Result<(StatusCode, String)> {
        ask(&self.api(), Method::GET, path, "").await
    }

    /// What a path answers that is sent this body.
    pub(crate) async fn post(&self, path: &str, body: &str) -> Result<(StatusCode, String)> {
        ask(&self.api(), Method::POST, path, body).await
    }

    /// What it answers to an attempt, which waits until it does not refuse it for others.
    pub(crate) async fn attempt(&self, body: &str) -> Result<(StatusCode, String)> {
        let _place = self.places.acquire().await?;
        self.post("/v1/run", body).await
    }

    /// Where its API is.
    pub(crate) fn api(&self) -> PathBuf {
        self.dir.path().join("api.sock")
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

/// What a path of an API answers, asked on a connection of its own.
pub(crate) async fn ask(api: &Path, method: Method, path: &str, body: &str) -> Result<(StatusCode, String)> {
    let client: Client<UnixConnector, Full<Bytes>> = Client::unix();
    let url: hyper::Uri = hyperlocal::Uri::new(api, path).into();
    let request = Request::builder().method(method).uri(url).body(Bytes::from(body.to_owned()).into())?;
    let answer = client.request(request).await.with_context(|| format!("ask for {path}"))?;
    let status = answer.status();
    Ok((status, String::from_utf8(answer.into_body().collect().await?.to_bytes().into())?))
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let asked = clock::now();
        if !self.process.try_wait().is_ok_and(|status| status.is_some()) {
            self.terminate();
        }
        while self.process.try_wait().is_ok_and(|status| status.is_none()) {
            if clock::now() - asked > DRAIN_PATIENCE {
                eprintln!("the daemon did not end when it was asked to");
                let _ = self.process.kill();
            }
            thread::sleep(Duration::from_millis(5));
        }
        for process in &mut self.before {
            let _ = process.kill();
            let _ = process.wait();
        }
        eprintln!("the daemon's log:\n{}", self.log());
    }
}
