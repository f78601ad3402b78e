//! What Exec answers, and what a client of the streaming server gets: the streams that containerd 1.6 would send.

use std::collections::BTreeMap;

use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use http::Request;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{self, Message, handshake::client::generate_key},
};

use super::*;

const V4: &str = "v4.channel.k8s.io";

/// A client of the streaming server.
struct Stream {
    socket: WebSocketStream<TcpStream>,
    /// What the server chose.
    protocol: String,
}

/// What came until the stream ended: by channel, with all messages of one joined, and the last as a status.
#[derive(Debug)]
struct Ended {
    stdout: String,
    stderr: String,
    status: Value,
}

impl Stream {
    /// # Errors
    /// The status of a refusal; 0 without one.
    async fn open(url: &str, protocols: &str) -> Result<Self, u16> {
        let rest = url.strip_prefix("http://").unwrap();
        let (address, _) = rest.split_once('/').unwrap();
        let connection = TcpStream::connect(address).await.map_err(|_| 0u16)?;
        let request = Request::get(format!("ws://{rest}"))
            .header("host", address)
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", generate_key())
            .header("sec-websocket-protocol", protocols);
        match client_async(request.body(()).unwrap(), connection).await {
            Ok((socket, answer)) => {
                let protocol = answer.headers()["sec-websocket-protocol"].to_str().unwrap().to_owned();
                Ok(Self { socket, protocol })
            }
            Err(tungstenite::Error::Http(answer)) => Err(answer.status().as_u16()),
            Err(_) => Err(0),
        }
    }

    async fn send(&mut self, text: &[u8]) {
        let message = [&[0], text].concat();
        self.socket.send(Message::Binary(message.into())).await.unwrap();
    }

    /// The next message: its channel, and what it says. None at the stream's end.
    async fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let next = tokio::time::timeout(Duration::from_secs(20), self.socket.next());
        match next.await.expect("no message within 20 s")? {
            Ok(Message::Binary(bytes)) => {
                bytes.split_first().map(|(channel, rest)| (*channel, rest.to_vec()))
            }
            Ok(_) | Err(_) => None,
        }
    }

    async fn end(mut self) -> Ended {
        let mut channels = BTreeMap::<u8, Vec<u8>>::new();
        let mut last = 0;
        while let Some((channel, bytes)) = self.next().await {
            channels.entry(channel).or_default().extend(bytes);
            last = channel;
        }
        assert_eq!(last, 3, "the status comes last");
        let text = |channel| String::from_utf8(channels.get(&channel).cloned().unwrap_or_default()).unwrap();
        Ended { stdout: text(1), stderr: text(2), status: serde_json::from_str(&text(3)).unwrap() }
    }
}

impl Rig {
    async fn exec_url(&self, id: &str, cmd: &[&str], has_input: bool) -> Result<String, tonic::Status> {
        let request = cri::ExecRequest {
            container_id: id.to_owned(),
            cmd: cmd.iter().map(|part| (*part).to_owned()).collect(),
            tty: false,
            stdin: has_input,
            stdout: true,
            stderr: true,
        };
        self.client.clone().exec(request).await.map(|answer| answer.into_inner().url)
    }

    /// A stream with input, after its first message.
    async fn stream(&self, id: &str, cmd: &[&str]) -> Stream {
        let url = self.exec_url(id, cmd, true).await.unwrap();
        let mut stream = Stream::open(&url, V4).await.unwrap();
        assert_eq!(stream.next().await, Some((1, Vec::new())), "the first message is empty");
        stream
    }
}

fn exit_code(status: &Value) -> &str {
    match status["status"].as_str() {
        Some("Success") => "0",
        _ if status["reason"] == "NonZeroExitCode" => {
            status["details"]["causes"][0]["message"].as_str().unwrap()
        }
        _ => panic!("no exit code: {status}"),
    }
}

#[tokio::test]
async fn exit_codes_and_outputs_are_the_commands() {
    type Row<'a> = (&'a str, &'a [&'a str], bool, &'a str, &'a str, &'a str);

    let rig = Rig::new().await;
    let id = rig.run("web", "echo here > mark; sleep 600").await;
    rig.file(&id, "mark").await;
    let cases: [Row<'_>; 6] = [
        ("success", &["true"], true, "0", "", ""),
        ("the container's own files", &["cat", "mark"], true, "0", "here\n", ""),
        ("outputs apart", &["sh", "-c", "echo out; echo err >&2; exit 3"], true, "3", "out\n", "err\n"),
        ("killed by a signal", &["sh", "-c", "kill -s KILL $$"], true, "137", "", ""),
        ("no input", &["cat"], false, "0", "", ""),
        ("a child left with the output", &["sh", "-c", "sleep 600 & echo done"], false, "0", "done\n", ""),
    ];
    for (name, cmd, has_input, code, stdout, stderr) in cases {
        let url = rig.exec_url(&id, cmd, has_input).await.unwrap();
        let ended = Stream::open(&url, V4).await.unwrap().end().await;
        assert_eq!(exit_code(&ended.status), code, "{name}");
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), (stdout, stderr), "{name}");
    }
}

#[tokio::test]
async fn a_status_reads_as_containerds() {
    let rig = Rig::new().await;
    let id = rig.run("web", "sleep 600").await;
    let status = |cmd: &'static [&'static str]| async {
        let url = rig.exec_url(&id, cmd, false).await.unwrap();
        Stream::open(&url, V4).await.unwrap().end().await.status
    };
    assert_eq!(status(&["true"]).await, json!({ "metadata": {}, "status": "Success" }));
    let message =
        "command terminated with non-zero exit code: error executing command [sh -c exit 3], exit code 3";
    let expected = json!({
        "metadata": {}, "status": "Failure", "message": message, "reason": "NonZeroExitCode",
        "details": { "causes": [{ "reason": "ExitCode", "message": "3" }] },
    });
    assert_eq!(status(&["sh", "-c", "exit 3"]).await, expected);
    let failed = status(&["no-such-program"]).await;
    let message = "error executing command in container: failed to exec in container: failed to start exec: \
        exec: \"no-such-program\": executable file not found in $PATH";
    let expected = json!({
        "metadata": {}, "status": "Failure", "message": format!("Internal error occurred: {message}"),
        "reason": "InternalError", "details": { "causes": [{ "message": message }] }, "code": 500,
    });
    assert_eq!(failed, expected);
}

#[tokio::test]
async fn what_cannot_be_asked_for_gets_no_url() {
    let rig = Rig::new().await;
    let id = rig.run("web", "sleep 600").await;
    let request = cri::ExecRequest {
        container_id: id.clone(),
        cmd: vec!["true".to_owned()],
        stdout: true,
        ..Default::default()
    };
    let done = rig.run("done", "exit 0").await;
    rig.exited(&done).await;
    let cases = [
        (cri::ExecRequest { tty: true, ..request.clone() }, Code::Unimplemented, "no terminals"),
        (cri::ExecRequest { stdout: false, ..request.clone() }, Code::InvalidArgument, "must be set"),
        (
            cri::ExecRequest { container_id: "absent".to_owned(), ..request.clone() },
            Code::NotFound,
            "failed to find container \"absent\"",
        ),
        (
            cri::ExecRequest { container_id: done, ..request.clone() },
            Code::Unknown,
            "container is in CONTAINER_EXITED state",
        ),
        (
            cri::ExecRequest { cmd: vec!["x".repeat(1 << 20)], ..request.clone() },
            Code::InvalidArgument,
            "more than",
        ),
    ];
    for (request, code, message) in cases {
        assert_status(rig.client.clone().exec(request).await, code, message);
    }
    for _ in 0..1000 {
        rig.client.clone().exec(request.clone()).await.unwrap();
    }
    assert_status(rig.client.clone().exec(request).await, Code::ResourceExhausted, "in-flight requests");
}

#[tokio::test]
async fn only_an_unused_token_and_the_right_protocol_open_a_stream() {
    let rig = Rig::new().await;
    let id = rig.run("web", "sleep 600").await;
    let url = || async { rig.exec_url(&id, &["true"], false).await.unwrap() };
    let both = url().await;
    let stream = Stream::open(&both, "v5.channel.k8s.io, v4.channel.k8s.io").await.unwrap();
    assert_eq!(stream.protocol, V4);
    stream.end().await;
    assert_eq!(Stream::open(&both, V4).await.err(), Some(404), "a token is used once");

    let other = url().await;
    assert_eq!(Stream::open(&other, "v5.channel.k8s.io").await.err(), Some(403));
    assert_eq!(Stream::open(&other, V4).await.err(), Some(404), "a refusal uses it, too");
    let unknown = format!("{}x", url().await);
    assert_eq!(Stream::open(&unknown, V4).await.err(), Some(404));
    let elsewhere = url().await.replace("/exec/", "/attach/");
    assert_eq!(Stream::open(&elsewhere, V4).await.err(), Some(404));
}

#[tokio::test]
async fn a_client_without_websocket_learns_what_to_do() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let rig = Rig::new().await;
    let id = rig.run("web", "sleep 600").await;
    let url = rig.exec_url(&id, &["true"], false).await.unwrap();
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut connection = TcpStream::connect(address).await.unwrap();
    let head = format!("POST /{path} HTTP/1.1\r\nHost: {address}\r\nUpgrade: SPDY/3.1\r\n\r\n");
    connection.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // The server does not read what it was sent, so the kernel may end the connection with a reset.
    let _ = connection.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("--transport websocket"), "{answer}");
}

#[tokio::test]
async fn input_reaches_the_command_and_more_output_than_any_buffer_holds_comes_back() {
    let rig = Rig::new().await;
    let id = rig.run("web", "sleep 600").await;
    let mut stream = rig.stream(&id, &["sh", "-c", "read line; echo got $line; read line; exit $line"]).await;
    stream.send(b"this").await;
    stream.send(b" line\n").await;
    assert_eq!(stream.next().await, Some((1, b"got this line\n".to_vec())));
    stream.send(b"").await;
    stream.send(b"7\n").await;
    assert_eq!(exit_code(&stream.end().await.status), "7");

    let mut stream = rig.stream(&id, &["head", "-c", "3000000", "/dev/zero"]).await;
    // It never reads this, and its pipe holds 64 KiB.
    stream.send(&[b'x'; 200_000]).await;
    let ended = stream.end().await;
    assert_eq!((ended.stdout.len(), exit_code(&ended.status)), (3_000_000, "0"));
}

#[tokio::test]
async fn a_client_that_goes_ends_the_input_and_the_command_goes_on() {
    let rig = Rig::new().await;
    let id = rig.run("web", "sleep 600").await;
    let script = "cat; echo more; echo $$ > after; sleep 600";
    for (name, says_so) in [("one that closes its stream", true), ("one that is gone", false)] {
        let mut stream = rig.stream(&id, &["sh", "-c", script]).await;
        stream.send(b"hello\n").await;
        assert_eq!(stream.next().await, Some((1, b"hello\n".to_vec())), "{name}");
        if says_so {
            stream.socket.close(None).await.unwrap();
            assert_eq!(stream.next().await, None, "its close is answered");
        }
        drop(stream);
        let pid = rig.pid(&id, "after").await;
        assert!(is_alive(pid), "{name}");
        fs::remove_file(rig.root(&id).join("after")).unwrap();
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
        rustix::process::kill_process_group(pid, rustix::process::Signal::KILL).unwrap();
    }
}

#[tokio::test]
async fn a_message_that_is_too_long_ends_the_stream() {
    let rig = Rig::new().await;
    let id = rig.run("web", "sleep 600").await;
    let mut stream = rig.stream(&id, &["sh", "-c", "cat > all; echo end > end"]).await;
    stream.send(b"kept").await;
    let long = Message::Binary(vec![0; 2 << 20].into());
    // The server may be gone before it has all of it.
    let _ = stream.socket.send(long).await;
    assert_eq!(stream.next().await, None);
    rig.file(&id, "end").await;
    assert_eq!(fs::read(rig.root(&id).join("all")).unwrap(), b"kept");
}

#[tokio::test]
async fn a_container_takes_its_streams_with_it() {
    let rig = Rig::new().await;
    let id = rig.run("web", "until test -e stop; do sleep 0.01; done").await;
    let stream = rig.stream(&id, &["sh", "-c", "echo up > stop; sleep 600"]).await;
    assert_eq!(exit_code(&stream.end().await.status), "137");
    rig.exited(&id).await;
}

#[tokio::test]
async fn a_paused_container_freezes_its_streams() {
    let rig = Rig::new().await;
    let id = rig.run("web", "sleep 600").await;
    let container = ContainerId::from(id.as_str());
    let mut stream = rig.stream(&id, &["sh", "-c", "read line; echo $line > read; exit 3"]).await;
    let early = rig.exec_url(&id, &["true"], false).await.unwrap();
    assert!(rig.runtime.set_paused(&container, true));
    stream.send(b"line\n").await;
    let refused = Stream::open(&early, V4).await.unwrap().end().await.status;
    assert!(refused["message"].as_str().unwrap().contains("cannot exec in a paused state"), "{refused}");
    assert!(stream.socket.next().now_or_never().is_none(), "its end comes later");
    assert!(rig.runtime.set_paused(&container, false));
    assert_eq!(exit_code(&stream.end().await.status), "3");
    assert_eq!(rig.file(&id, "read").await, "line\n");
}

#[tokio::test]
async fn the_steps_of_a_command_are_reported() {
    let rig = Rig::new().await;
    let id = rig.run("web", "sleep 600").await;
    let mut events = rig.runtime.node.state().subscribers.containerd.add();
    let url = rig.exec_url(&id, &["true"], false).await.unwrap();
    assert!(events.try_recv().is_err(), "nothing happens before its client is there");
    Stream::open(&url, V4).await.unwrap().end().await;
    for topic in ["/tasks/exec-added", "/tasks/exec-started", "/tasks/exit"] {
        assert_eq!(events.try_recv().unwrap().unwrap().topic, topic);
    }
}

#[tokio::test]
async fn streams_end_with_the_server_and_come_back_with_it() {
    let mut rig = Rig::new().await;
    let id = rig.run("web", "sleep 600").await;
    let mut stream = rig.stream(&id, &["sh", "-c", "cat; echo ended > input"]).await;
    let unused = rig.exec_url(&id, &["true"], false).await.unwrap();
    rig.runtime.stop_serving().await;
    assert_eq!(stream.next().await, None);
    assert_eq!(rig.file(&id, "input").await, "ended\n");
    eventually("the port is closed", || async {
        (Stream::open(&unused, V4).await.err() == Some(0)).then_some(())
    })
    .await;

    rig.runtime.serve_again(Duration::ZERO).unwrap();
    let url =
        eventually("it serves again", || async { rig.exec_url(&id, &["true"], false).await.ok() }).await;
    assert_eq!(exit_code(&Stream::open(&url, V4).await.unwrap().end().await.status), "0");
}

#[tokio::test]
async fn shutdown_ends_the_commands_of_streams() {
    let rig = Rig::new().await;
    let id = rig.run("web", "sleep 600").await;
    let mut stream = rig.stream(&id, &["sh", "-c", "trap '' TERM; echo $$ > pid; sleep 600; :"]).await;
    let pid = rig.pid(&id, "pid").await;
    rig.runtime.shutdown().await;
    gone(pid).await;
    while stream.next().await.is_some() {}
    assert_eq!(fs::read_dir(rig.dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn faults_strike_urls_and_streams() {
    let rig = Rig::new().await;
    let id = rig.run("web", "sleep 600").await;
    let faults = rig.runtime.faults();
    let url = || async { rig.exec_url(&id, &["true"], false).await.unwrap() };
    let other = |text: &str| InjectedFault::once("Exec", FaultKind::OtherUrl(text.to_owned()));
    let whole = url().await;
    let (head, _) = whole.rsplit_once('/').unwrap();
    faults.add(other("http://127.0.0.1:{port}/exec/{token}"));
    let same = url().await;
    assert!(same.starts_with(head), "{same}");
    assert_eq!(exit_code(&Stream::open(&same, V4).await.unwrap().end().await.status), "0");
    for text in ["https://127.0.0.1:1/exec/t", "http://192.0.2.1:80/exec/t", "nonsense", ""] {
        faults.add(other(text));
        assert_eq!(url().await, text);
    }
    let cases = [
        (FaultKind::Code(Code::PermissionDenied, String::new()), 403),
        (FaultKind::Code(Code::Unavailable, String::new()), 503),
        (FaultKind::DropConnection, 0),
    ];
    for (kind, status) in cases {
        faults.add(InjectedFault::once("Stream", kind));
        assert_eq!(Stream::open(&url().await, V4).await.err(), Some(status));
    }
    Stream::open(&url().await, V4).await.unwrap().end().await;
}
