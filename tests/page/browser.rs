//! One window of Chromium with the page of a daemon in it. Closed at the end of a test, whatever came of it.

use std::{env, fs, net::TcpListener, path::Path, process::Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use fantoccini::{Client, ClientBuilder, wd::WebDriverCompatibleCommand};
use hyper::Method;
use hyper_util::client::legacy::connect::HttpConnector;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};
use url::{ParseError, Url};

use crate::{
    rig::Rig,
    support::{PATIENCE, eventually},
};

/// A window that shows the page of a daemon.
pub(crate) struct Page {
    driver: Client,
    pub(crate) url: String,
}

/// A daemon with the page on a port of its own, in front of the embedded runtime.
pub(crate) async fn rig() -> Result<(Rig, String)> {
    let address = free_address()?;
    let rig = Rig::with(&[("CRIPROBE_API_HTTP", &address)]).await?;
    Ok((rig, address))
}

/// An address that nobody listens on: the daemon must be there again after a restart.
pub(crate) fn free_address() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

/// Opens the page that is served there, and closes it after the test; `false` where this machine has no browser. The
/// test passes only if the browser had nothing to complain of.
pub(crate) async fn visit(address: &str, test: impl AsyncFnOnce(&Page) -> Result<()>) -> Result<bool> {
    let dir = tempfile::Builder::new().prefix("criprobe-page-").tempdir()?;
    let mut command = Command::new("chromedriver");
    command
        .arg("--port=0")
        .env("TMPDIR", dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0);
    let mut process = match command.spawn() {
        Ok(process) => Driver { process, _dir: dir },
        Err(error) if env::var("CI").is_ok_and(|ci| ci == "true") => bail!("start chromedriver: {error}"),
        Err(error) => {
            eprintln!("skipped: start chromedriver: {error}");
            return Ok(false);
        }
    };
    let mut said =
        BufReader::new(process.process.stdout.take().context("chromedriver writes to a pipe")?).lines();
    let port = loop {
        let line = said.next_line().await?.context("chromedriver ended at once")?;
        if let Some((_, port)) = line.split_once("started successfully on port ") {
            break port.trim_end_matches('.').parse::<u16>()?;
        }
    };
    let driver = ClientBuilder::new(HttpConnector::new())
        .capabilities(capabilities())
        .connect(&format!("http://127.0.0.1:{port}"))
        .await?;
    let page = Page { driver, url: format!("http://{address}/") };
    let mut result = async {
        page.size(1280, 900).await?;
        page.open("").await?;
        test(&page).await
    }
    .await;
    if result.is_err() {
        eprintln!("the page: {}", page.eval("return document.body.innerText").await.unwrap_or_default());
    }
    let complaints = page.complaints().await;
    result = result.and_then(|()| {
        let said = complaints?;
        ensure!(said.is_empty(), "in the browser's console: {said:#?}");
        Ok(())
    });
    let quit = page.driver.close().await;
    result?;
    quit?;
    Ok(true)
}

/// A running chromedriver. Dropped, it and its browser are killed, which are one group of processes.
struct Driver {
    process: Child,
    /// Where the browser leaves its files.
    _dir: TempDir,
}

impl Drop for Driver {
    fn drop(&mut self) {
        let pid = self.process.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        // An error means that all have ended.
        let _ = pid.map(|pid| kill_process_group(pid, Signal::KILL));
    }
}

fn capabilities() -> Map<String, Value> {
    // Tests run as root, for which Chromium has no sandbox; the pages are ours.
    let args =
        ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"];
    let wanted = [
        ("browserName", json!("chrome")),
        ("goog:chromeOptions", json!({"args": args})),
        ("goog:loggingPrefs", json!({"browser": "ALL"})),
    ];
    wanted.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// A command of a session, where the client has none of its own for it: its path, and what is sent.
#[derive(Debug)]
struct Raw(&'static str, Value);

impl WebDriverCompatibleCommand for Raw {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.0))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.1.to_string()))
    }
}

impl Page {
    /// Opens the page, with this behind its address.
    pub(crate) async fn open(&self, more: &str) -> Result<()> {
        // A new address with the same path and another hash would not load anything.
        self.driver.goto("about:blank").await?;
        self.driver.goto(&format!("{}{more}", self.url)).await?;
        Ok(())
    }

    /// What a script returns.
    pub(crate) async fn eval(&self, script: &str) -> Result<Value> {
        self.driver.execute(script, Vec::new()).await.with_context(|| format!("evaluate {script}"))
    }

    /// Waits until an expression is true, and returns its value.
    pub(crate) async fn until(&self, what: &str, expression: &str) -> Result<Value> {
        let script = format!("return {expression}");
        let mut seen = Value::Null;
        let found = eventually(what, PATIENCE * 2, async || {
            seen = self.eval(&script).await?;
            let is_true = !matches!(&seen, Value::Null | Value::Bool(false)) && seen != "" && seen != 0;
            Ok(is_true.then(|| seen.clone()))
        })
        .await;
        found.with_context(|| format!("{expression} is {seen}"))
    }

    /// Waits until the page says this somewhere.
    pub(crate) async fn says(&self, text: &str) -> Result<()> {
        let text = json!(text);
        self.until(&format!("the page says {text}"), &format!("document.body.innerText.includes({text})"))
            .await?;
        Ok(())
    }

    /// Presses keys, one after the other.
    pub(crate) async fn press(&self, keys: impl AsRef<str>) -> Result<()> {
        let key = |key: char| ["keyDown", "keyUp"].map(|act| json!({"type": act, "value": key.to_string()}));
        let presses: Vec<_> = keys.as_ref().chars().flat_map(key).collect();
        let keyboard = json!({"type": "key", "id": "keyboard", "actions": presses});
        self.driver.issue_cmd(Raw("actions", json!({"actions": [keyboard]}))).await?;
        Ok(())
    }

    /// Makes the window as large as that.
    pub(crate) async fn size(&self, width: u32, height: u32) -> Result<()> {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500});
        self.command("Emulation.setDeviceMetricsOverride", size).await
    }

    /// Has the system prefer `light` or `dark`.
    pub(crate) async fn prefer(&self, scheme: &str) -> Result<()> {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.command("Emulation.setEmulatedMedia", features).await
    }

    /// Whether scripts of pages run.
    pub(crate) async fn allow_scripts(&self, are_allowed: bool) -> Result<()> {
        self.command("Emulation.setScriptExecutionDisabled", json!({"value": !are_allowed})).await
    }

    async fn command(&self, name: &str, parameters: Value) -> Result<()> {
        let command = json!({"cmd": name, "params": parameters});
        self.driver.issue_cmd(Raw("goog/cdp/execute", command)).await?;
        Ok(())
    }

    /// Writes what the window shows into a file.
    pub(crate) async fn screenshot(&self, file: &Path) -> Result<()> {
        Ok(fs::write(file, self.driver.screenshot().await?)?)
    }

    /// What the browser had to say since it was asked last. That a daemon which was stopped does not answer is no
    /// wonder.
    pub(crate) async fn complaints(&self) -> Result<Vec<String>> {
        let log = self.driver.issue_cmd(Raw("se/log", json!({"type": "browser"}))).await?;
        let is_expected = |text: &str| {
            text.contains("/v1/live")
                && [
                    "ERR_CONNECTION_REFUSED",
                    "ERR_INCOMPLETE_CHUNKED",
                    "ERR_EMPTY_RESPONSE",
                    "ERR_CONNECTION_RESET",
                ]
                .iter()
                .any(|error| text.contains(error))
        };
        let entries = log.as_array().context("the log is a list")?.iter();
        Ok(entries
            .map(|entry| format!("{}: {}", entry["level"], entry["message"]))
            .filter(|text| !is_expected(text))
            .collect())
    }
}
