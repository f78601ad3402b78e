//! The API over TCP: who may ask for what, what others cannot spoil, and the live stream.

use std::{collections::BTreeMap, fs, net::SocketAddr, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, ensure};
use criprobe::{demo::EnvValues, proto::cri as pb};
use rustix::process::Signal;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream, UnixStream},
    task::JoinSet,
    time::timeout,
};

use crate::{
    rig::{LIVENESS, Rig, runtime},
    support::{PATIENCE, daemon::Daemon, eventually},
};

/// A daemon with this TCP address and page, and the address that it has.
async fn served(http: &str, page: &str) -> Result<(Rig, SocketAddr)> {
    let rig = Rig::with(&[("CRIPROBE_API_HTTP", http), ("CRIPROBE_API_PAGE", page)]).await?;
    let address: SocketAddr = rig.daemon.status().await?["http"]["address"]
        .as_str()
        .context("the status shows no address")?
        .parse()?;
    let ip = if address.is_ipv6() { "::1".parse()? } else { "127.0.0.1".parse()? };
    Ok((rig, SocketAddr::new(ip, address.port())))
}

/// An answer: its code, its headers by their names in lower case, its body.
struct Answer {
    code: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

async fn ask(address: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)]) -> Result<Answer> {
    let mut stream = TcpStream::connect(address).await?;
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut answer = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut answer)).await??;
    let answer = String::from_utf8(answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").with_context(|| format!("no head: {answer}"))?;
    let mut lines = head.lines();
    let code = lines.next().and_then(|line| line.split(' ').nth(1)).context("no code")?.parse()?;
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    Ok(Answer { code, headers, body: body.to_owned() })
}

async fn get(address: SocketAddr, path: &str) -> Result<Answer> {
    ask(address, "GET", path, &[("Host", &address.to_string())]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_tcp_serves_is_decided_by_the_address_and_the_setting_and_nothing_changes_anything() -> Result<()>
{
    for (http, page, has_page) in [
        ("127.0.0.1:0", "loopback", true),
        ("[::1]:0", "loopback", true),
        ("0.0.0.0:0", "loopback", false),
        (":0", "loopback", false),
        ("127.0.0.1:0", "never", false),
        (":0", "always", true),
    ] {
        let (rig, address) = served(http, page).await?;
        let what = format!("{http} {page}");
        for path in ["/metrics", "/livez", "/readyz", "/readyz?verbose"] {
            assert_eq!(get(address, path).await?.code, 200, "{what} {path}");
        }
        let reading =
            ["/", "/page.css", "/page.js", "/v1/status", "/v1/pods", "/v1/probes", "/v1/trace", "/v1/config"];
        for path in reading {
            let answer = get(address, path).await?;
            assert_eq!(answer.code, if has_page { 200 } else { 403 }, "{what} {path}");
            ensure!(has_page || answer.body.contains("api.page"), "{what} {path}: {}", answer.body);
        }
        for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
            for path in ["/", "/metrics", "/v1/run", "/v1/probes/a/b/c/liveness/pause", "/v1/none"] {
                let answer = ask(address, method, path, &[("Host", &address.to_string())]).await?;
                assert_eq!(answer.code, 405, "{what} {method} {path}");
                assert_eq!(answer.headers["allow"], "GET, HEAD");
                assert!(answer.body.contains("use the API socket"), "{}", answer.body);
            }
        }
        let status = rig.daemon.run(&["status"])?.1;
        let words =
            if has_page { "(page, reading API, metrics, health)" } else { "(only metrics and health)" };
        ensure!(status.contains(words), "{what}: {status}");
        assert_eq!(rig.daemon.log().contains("anyone who can reach"), page == "always", "{what}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn another_name_and_another_site_get_nothing_and_answers_say_what_a_browser_may_do() -> Result<()> {
    let (rig, address) = served("127.0.0.1:0", "loopback").await?;
    let port = address.port();
    for (host, code) in [
        (format!("localhost:{port}"), 200),
        (format!("x.localhost:{port}"), 200),
        ("[::1]".to_owned(), 200),
        (format!("evil.example:{port}"), 421),
        ("127.0.0.1.evil.example".to_owned(), 421),
        (format!("192.0.2.7:{port}"), 421),
    ] {
        for path in ["/", "/page.js", "/v1/status", "/v1/live?x"] {
            if path == "/v1/live?x" && code == 200 {
                continue;
            }
            let answer = ask(address, "GET", path, &[("Host", &host)]).await?;
            assert_eq!(answer.code, code, "{host} {path}: {}", answer.body);
            let advice = "use localhost or a loopback address such as 127.0.0.1";
            ensure!(code == 200 || answer.body.contains(advice), "{}", answer.body);
        }
        assert_eq!(ask(address, "GET", "/metrics", &[("Host", &host)]).await?.code, 200);
    }
    let host = address.to_string();
    let site = |site| [("Host", &*host), ("Sec-Fetch-Site", site)];
    assert_eq!(ask(address, "GET", "/v1/status", &site("cross-site")).await?.code, 403);
    assert_eq!(ask(address, "GET", "/v1/status", &site("same-origin")).await?.code, 200);
    assert_eq!(ask(address, "GET", "/", &site("cross-site")).await?.code, 200, "a link is followed");
    assert_eq!(rig.daemon.get("/").await?.0, 200, "a socket that is forwarded shows the page");
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/page.css", "text/css; charset=utf-8"),
        ("/page.js", "text/javascript; charset=utf-8"),
        ("/v1/status", "application/json"),
    ] {
        for method in ["GET", "HEAD"] {
            let answer = ask(address, method, path, &[("Host", &host)]).await?;
            let header = |name: &str| answer.headers.get(name).map(String::as_str);
            assert_eq!(header("content-type"), Some(kind));
            assert_eq!(header("x-content-type-options"), Some("nosniff"));
            assert_eq!(header("referrer-policy"), Some("no-referrer"));
            assert_eq!(header("cache-control"), Some("no-store"));
            assert_eq!(header("cross-origin-resource-policy"), Some("same-origin"));
            let policy = header("content-security-policy").unwrap_or_default();
            for part in
                ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"]
            {
                ensure!(policy.contains(part), "{path}: {policy}");
            }
            ensure!(!answer.headers.keys().any(|name| name.starts_with("access-control-")), "{path}");
            assert_eq!(answer.body.is_empty(), method == "HEAD", "{path}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_taken_is_told_and_leaves_no_socket_behind() -> Result<()> {
    let (rig, address) = served("127.0.0.1:0", "loopback").await?;
    let dir = tempfile::tempdir()?;
    let log = dir.path().join("log");
    let mut second = Daemon::command(dir.path(), rig.runtime.socket());
    second.args(["--http", &address.to_string()]).stderr(Stdio::from(fs::File::create(&log)?));
    let mut process = second.spawn()?;
    let status = eventually("the second one ends", PATIENCE, async || Ok(process.try_wait()?)).await?;
    let log = fs::read_to_string(log)?;
    assert_eq!(status.code(), Some(1), "{log}");
    ensure!(log.contains(&format!("{address} is in use by another process")), "{log}");
    ensure!(!dir.path().join("api.sock").exists() && !dir.path().join("criprobe.sock").exists());
    let (runtime, folder) = runtime(EnvValues::default())?;
    let mut wrong = Daemon::spawn(runtime.socket(), &[("CRIPROBE_API_HTTP", "node-1:9090")])?;
    assert_eq!(wrong.ended().await?.code(), Some(78));
    ensure!(wrong.log().contains("is not a TCP address"), "{}", wrong.log());
    drop(folder);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_tcp_that_send_half_a_question_or_do_not_read_leave_the_socket_alone() -> Result<()> {
    let (rig, address) = served("127.0.0.1:0", "loopback").await?;
    let mut slow = Vec::new();
    for number in 0..300 {
        let mut stream = TcpStream::connect(address).await?;
        let text = match number % 3 {
            0 => "GET /v1/status HTTP/1.1\r\nHost: localhost\r\nX: ".to_owned(),
            1 => "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(20),
            _ => "GET /v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
        };
        // One whose place was taken may be closed already.
        let _ = stream.write_all(text.as_bytes()).await;
        slow.push(stream);
        if number % 50 == 0 {
            timeout(Duration::from_secs(2), rig.daemon.status()).await??;
        }
    }
    timeout(Duration::from_secs(2), rig.daemon.probes()).await??;
    for path in ["/v1/trace?follow=true", "/v1/live"] {
        let mut follower = Stream::over_socket(&rig, path).await?;
        assert_eq!(follower.code().await?, 200, "{path}");
    }
    let answer = timeout(PATIENCE, get(address, "/livez")).await??;
    assert_eq!(answer.code, 200, "they make way for others");
    drop(slow);
    Ok(())
}

/// A stream of a follower, chunk by chunk.
struct Stream {
    reading: Box<dyn tokio::io::AsyncRead + Send + Unpin>,
    _writing: Box<dyn std::any::Any + Send>,
    text: String,
    /// Up to where events were taken.
    taken: usize,
}

impl Stream {
    async fn over_tcp(address: SocketAddr, path: &str) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        // What the kernel keeps for one who does not read is little.
        socket.set_recv_buffer_size(16 << 10)?;
        let mut stream = socket.connect(address).await?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
        let (reading, writing) = stream.into_split();
        Ok(Self::of(reading, writing))
    }

    async fn over_socket(rig: &Rig, path: &str) -> Result<Self> {
        let mut stream = UnixStream::connect(rig.daemon.api()).await?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await?;
        let (reading, writing) = stream.into_split();
        Ok(Self::of(reading, writing))
    }

    fn of(
        reading: impl tokio::io::AsyncRead + Send + Unpin + 'static,
        writing: impl std::any::Any + Send,
    ) -> Self {
        Self { reading: Box::new(reading), _writing: Box::new(writing), text: String::new(), taken: 0 }
    }

    /// Reads more; false at the end.
    async fn more(&mut self) -> Result<bool> {
        let mut piece = vec![0; 64 << 10];
        let read = timeout(PATIENCE, self.reading.read(&mut piece)).await??;
        self.text.push_str(&String::from_utf8_lossy(&piece[..read]));
        Ok(read > 0)
    }

    async fn code(&mut self) -> Result<u16> {
        while !self.text.contains("\r\n\r\n") {
            ensure!(self.more().await?, "it ended");
        }
        Ok(self.text.split(' ').nth(1).context("no code")?.parse()?)
    }

    /// The next event of this name.
    async fn event(&mut self, name: &str) -> Result<Value> {
        let begin = format!("event: {name}\ndata: ");
        loop {
            let rest = &self.text[self.taken..];
            if let Some(at) = rest.find(&begin)
                && let Some(length) = rest[at..].find("\n\n")
            {
                // A chunk's length may stand within.
                let data: String = rest[at + begin.len()..at + length].to_owned();
                let data = unchunked(&data);
                self.taken += at + length;
                return serde_json::from_str(&data).with_context(|| format!("{name}: {data}"));
            }
            ensure!(self.more().await?, "it ended before {name}: {}", self.text);
        }
    }
}

/// Text without the lengths of chunks in it: no text of these tests has such a line.
fn unchunked(text: &str) -> String {
    let mut parts = text.split("\r\n");
    let mut whole = parts.next().unwrap_or_default().to_owned();
    while let (Some(_length), Some(part)) = (parts.next(), parts.next()) {
        whole.push_str(part);
    }
    whole
}

#[tokio::test(flavor = "multi_thread")]
async fn the_live_stream_shows_rows_verdicts_calls_and_ends_with_the_drain() -> Result<()> {
    let (mut rig, address) = served("127.0.0.1:0", "loopback").await?;
    let probe = r#"{"exec": {"command": ["sh", "-c", "echo '<b>&'; test ! -e bad"]}, "period": "200ms", "failureThreshold": 1}"#;
    let (pod, id) = rig.run("live", &[(LIVENESS, probe)], &["sleep", "100000"]).await?;
    rig.run("bare", &[], &["sleep", "100000"]).await?;
    rig.becomes(&pod, "liveness", "succeeds", |probe| probe["state"] == "success").await?;
    for over_tcp in [true, false] {
        let mut stream = match over_tcp {
            true => Stream::over_tcp(address, "/v1/live").await?,
            false => Stream::over_socket(&rig, "/v1/live").await?,
        };
        let hello = stream.event("hello").await?;
        ensure!(hello["version"].is_string() && hello["tickSeconds"] == 1, "{hello}");
        let head = stream.text.to_lowercase();
        for header in ["content-type: text/event-stream", "cache-control: no-store", "x-accel-buffering: no"]
        {
            ensure!(head.contains(header), "{head}");
        }
        ensure!(stream.text.contains("retry: 2000\n"), "{head}");
        assert_eq!(stream.event("status").await?["runtime"]["state"], "ok");
        let rows = stream.event("rows").await?;
        assert_eq!((&rows["reset"], &rows["hidden"]), (&Value::Bool(true), &Value::from(0)), "{rows}");
        let of = |rows: &Value, name: &str| {
            rows["rows"].as_array().into_iter().flatten().find(|row| row["pod"] == name).cloned()
        };
        let (bare, mut row) = (of(&rows, "bare"), of(&rows, "live"));
        // What another stream was shown is not older than a tick.
        while row.as_ref().is_none_or(|row| row["state"] != "success") {
            row = of(&stream.event("rows").await?, "live");
        }
        let row = row.context("no row")?;
        assert_eq!(row["key"], format!("{}/app/liveness", pod.uid));
        assert_eq!([&row["state"], &row["containerState"], &row["type"]], ["success", "running", "liveness"]);
        assert_eq!([&row["podReady"], &row["isFailing"]], [&Value::Bool(true), &Value::Bool(false)]);
        assert_eq!(row["output"], "<b>&");
        let attempt = row["attempts"].as_array().and_then(|all| all.last()).context("no attempt")?;
        ensure!(attempt[1] == "s" && attempt[2].as_f64().is_some() && attempt[3] == 0, "{attempt}");
        ensure!(bare.is_some_and(|row| row.get("type").is_none()), "{rows}");
        let before = stream.taken;
        crate::support::cri::exec(&mut rig.client, &id, &["touch", "bad"]).await?;
        loop {
            let call = stream.event("call").await?;
            if call["exec"]["command"] == serde_json::json!(["touch", "bad"]) {
                break;
            }
        }
        stream.taken = before;
        loop {
            let rows = stream.event("rows").await?;
            if of(&rows, "live").is_some_and(|row| row["state"] == "failure" && row["isFailing"] == true) {
                assert_eq!(rows["reset"], false);
                break;
            }
        }
        stream.event("beat").await?;
        crate::support::cri::exec(&mut rig.client, &id, &["rm", "bad"]).await?;
        rig.becomes(&pod, "liveness", "succeeds", |probe| probe["state"] == "success").await?;
    }
    let mut streams =
        [Stream::over_tcp(address, "/v1/live").await?, Stream::over_socket(&rig, "/v1/live").await?];
    for stream in &mut streams {
        stream.event("rows").await?;
    }
    rig.daemon.signal(Signal::TERM);
    for stream in &mut streams {
        while stream.more().await? {}
        ensure!(stream.text.ends_with("0\r\n\r\n"), "it ends as a whole");
    }
    ensure!(rig.daemon.ended().await?.success());
    ensure!(TcpStream::connect(address).await.is_err());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_once_ends_by_itself_with_all_rows_and_the_newest_calls() -> Result<()> {
    let (mut rig, address) = served("127.0.0.1:0", "loopback").await?;
    let (pod, id) = rig.run("once", &[(LIVENESS, crate::rig::LAZY)], &["sleep", "100000"]).await?;
    for number in 0..60 {
        crate::support::cri::exec(&mut rig.client, &id, &["echo", &format!("call-{number}-")]).await?;
    }
    eventually("the last call has ended", PATIENCE, async || {
        let newest = rig.daemon.calls(1).await?;
        Ok(newest.iter().any(|call| call.to_string().contains("call-59-")).then_some(()))
    })
    .await?;
    // Also while another one follows, which has had the calls already.
    let mut follower = Stream::over_tcp(address, "/v1/live").await?;
    for is_followed in [false, true] {
        if is_followed {
            follower.event("rows").await?;
        }
        let answer = get(address, "/v1/live?once=true").await?;
        assert_eq!(answer.code, 200);
        for name in ["hello", "status", "top"] {
            assert_eq!(
                answer.body.matches(&format!("event: {name}\n")).count(),
                1,
                "{name}: {}",
                answer.body
            );
        }
        ensure!(answer.body.contains(&format!("{}/app/liveness", pod.uid)), "{}", answer.body);
        ensure!(answer.body.contains("\"more\":false"), "{}", answer.body);
        assert_eq!(answer.body.matches("event: call\n").count(), 50, "{}", answer.body);
        let newest = answer.body.rsplit("\n\n").find(|event| event.contains("event: call\n"));
        ensure!(newest.is_some_and(|call| call.contains("call-59-")), "{}", answer.body);
    }
    assert_eq!(get(address, "/v1/live?once").await?.code, 400);
    Ok(())
}

/// The memory of a process in RAM, in bytes.
fn resident(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
}

/// How many calls each of the others has seen, while two never read.
#[tokio::test(flavor = "multi_thread")]
async fn of_50_subscribers_each_one_that_never_reads_costs_the_others_no_call_and_little_memory() -> Result<()>
{
    const CALLS: usize = 6_000;
    const BATCH: usize = 200;
    let (mut rig, address) = served("127.0.0.1:0", "loopback").await?;
    let probe =
        r#"{"exec": {"command": ["sh", "-c", "test ! -e bad"]}, "period": "200ms", "failureThreshold": 1}"#;
    let (pod, id) = rig.run("watched", &[(LIVENESS, probe)], &["sleep", "100000"]).await?;
    rig.becomes(&pod, "liveness", "succeeds", |probe| probe["state"] == "success").await?;
    let mut silent = [
        Stream::over_tcp(address, "/v1/live").await?,
        Stream::over_tcp(address, "/v1/trace?follow=true").await?,
    ];
    silent[0].event("rows").await?;
    assert_eq!(silent[1].code().await?, 200);
    let (counts, _) = tokio::sync::watch::channel(vec![0; 48]);
    let mut reading = JoinSet::new();
    for number in 0..48 {
        // Of a call that has ended: the live stream also shows those in flight.
        let needle = "\"method\":\"Version\",\"code\"";
        let mut stream = match number % 2 {
            0 => Stream::over_tcp(address, "/v1/live").await?,
            _ => Stream::over_socket(&rig, "/v1/trace?follow=true").await?,
        };
        match number % 2 {
            0 => drop(stream.event("rows").await?),
            _ => drop(stream.code().await?),
        }
        let counts = counts.clone();
        reading.spawn(async move {
            stream.text.clear();
            while stream.more().await? {
                ensure!(!stream.text.contains("missed"), "{number} missed some");
                let seen = stream.text.matches(needle).count();
                counts.send_modify(|counts| counts[number] += seen);
                // A name may be cut by the end of a piece, also within a chunk's length.
                let last = stream.text.rfind(needle).map_or(0, |at| at + needle.len());
                let keep = last.max(stream.text.len().saturating_sub(needle.len() - 1));
                let keep = stream.text.ceil_char_boundary(keep);
                stream.text.drain(..keep);
            }
            Ok(())
        });
    }
    let before = resident(rig.daemon.pid())?;
    for batch in 1..=CALLS / BATCH {
        for _ in 0..BATCH {
            rig.client.version(pb::VersionRequest::default()).await?;
        }
        let mut seen = counts.subscribe();
        let all = seen.wait_for(|counts| counts.iter().all(|&seen| seen >= batch * BATCH));
        let waited = timeout(PATIENCE, all).await.map(drop);
        ensure!(waited.is_ok(), "batch {batch}: {:?}", counts.borrow());
    }
    ensure!(counts.borrow().iter().all(|&seen| seen == CALLS), "{:?}", counts.borrow());
    let after = resident(rig.daemon.pid())?;
    eprintln!("resident before {before}, after {after}");
    ensure!(after < before + (40 << 20), "{before} -> {after}");
    reading.abort_all();
    crate::support::cri::exec(&mut rig.client, &id, &["touch", "bad"]).await?;
    rig.becomes(&pod, "liveness", "fails", |probe| probe["state"] == "failure").await?;
    let [live, trace] = &mut silent;
    ensure!(live.event("missed").await?["calls"].as_u64().is_some_and(|missed| missed > 1_000));
    live.taken = 0;
    loop {
        let rows = live.event("rows").await?;
        if rows["rows"].as_array().into_iter().flatten().any(|row| row["state"] == "failure") {
            break;
        }
    }
    while !trace.text.contains("{\"missed\":") {
        ensure!(trace.more().await?);
    }
    Ok(())
}
