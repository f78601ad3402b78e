//! One window of Chromium with the page of a daemon in it. Closed at the end of a test, whatever came of it.

use std::{env, net::TcpListener, path::Path, pin::Pin, process::Stdio, sync::Arc};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;
use thirtyfour::{
    ChromeCapabilities, ChromiumLikeCapabilities as _, LoggingPrefsLogLevel, WebDriver,
    error::{WebDriverError, WebDriverResult},
    session::http::{Body, HttpClient},
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use crate::{
    rig::Rig,
    support::{PATIENCE, eventually},
};

/// A window that shows the page of a daemon.
pub(crate) struct Page {
    driver: WebDriver,
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
    let driver =
        WebDriver::builder(format!("http://127.0.0.1:{port}"), capabilities()?).client(Http::new()).await?;
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
    let quit = page.driver.quit().await;
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

fn capabilities() -> Result<ChromeCapabilities> {
    let mut wanted = ChromeCapabilities::new();
    // Tests run as root, for which Chromium has no sandbox; the pages are ours.
    for flag in
        ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"]
    {
        wanted.add_arg(flag)?;
    }
    wanted.set_browser_log_level(LoggingPrefsLogLevel::All)?;
    Ok(wanted)
}

impl Page {
    /// Opens the page, with this behind its address.
    pub(crate) async fn open(&self, more: &str) -> Result<()> {
        // A new address with the same path and another hash would not load anything.
        self.driver.goto("about:blank").await?;
        self.driver.goto(format!("{}{more}", self.url)).await?;
        Ok(())
    }

    /// What a script returns.
    pub(crate) async fn eval(&self, script: &str) -> Result<Value> {
        let answer =
            self.driver.execute(script, Vec::new()).await.with_context(|| format!("evaluate {script}"))?;
        Ok(answer.json().clone())
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
        self.driver.action_chain().send_keys(keys.as_ref()).perform().await?;
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

    async fn command(&self, name: &str, parameters: Value) -> Result<()> {
        self.driver.cdp().send_raw(name, parameters).await?;
        Ok(())
    }

    /// Writes what the window shows into a file.
    pub(crate) async fn screenshot(&self, file: &Path) -> Result<()> {
        Ok(self.driver.screenshot(file).await?)
    }

    /// What the browser had to say since it was asked last. That a daemon which was stopped does not answer is no
    /// wonder.
    pub(crate) async fn complaints(&self) -> Result<Vec<String>> {
        let log = self.driver.browser_log().await?;
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
        Ok(log
            .into_iter()
            .map(|entry| format!("{}: {}", entry.level, entry.message))
            .filter(|text| !is_expected(text))
            .collect())
    }
}

/// hyper, which is here anyway, as the client of chromedriver.
struct Http(Client<HttpConnector, Full<Bytes>>);

impl Http {
    fn new() -> Self {
        Self(Client::builder(TokioExecutor::new()).build_http())
    }

    async fn ask(&self, request: Request<Body<'_>>) -> Result<Response<Bytes>> {
        let request = request.map(|body| match body {
            Body::Empty => Full::default(),
            Body::Json(json) => Full::from(json.to_string()),
        });
        let (head, body) = self.0.request(request).await?.into_parts();
        Ok(Response::from_parts(head, body.collect().await?.to_bytes()))
    }
}

/// A future as the trait wants it.
type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl HttpClient for Http {
    fn send<'a, 'b, 'c>(&'a self, request: Request<Body<'b>>) -> Answer<'c, WebDriverResult<Response<Bytes>>>
    where
        'a: 'c,
        'b: 'c,
    {
        Box::pin(async {
            self.ask(request).await.map_err(|error| WebDriverError::HttpError(format!("{error:#}")))
        })
    }

    fn new<'a, 'b>(&'a self) -> Answer<'b, Arc<dyn HttpClient>>
    where
        'a: 'b,
    {
        Box::pin(async { Arc::new(Self::new()) as Arc<dyn HttpClient> })
    }
}
