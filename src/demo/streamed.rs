//! One command and the WebSocket of its client: the client's messages in, the command's outputs and its end out. Each
//! message begins with the number of its channel, as `v4.channel.k8s.io` has it.
//!
//! A client that goes ends the command's input. The command goes on, and what it writes is dropped, as in containerd.

use std::{convert::Infallible, future, io, time::Duration};

use bytes::{BufMut as _, BytesMut};
use futures_util::{
    SinkExt as _, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::ChildStdin,
    sync::Mutex,
    time::{sleep, timeout},
};
use tokio_tungstenite::{WebSocketStream, tungstenite::Message};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{
    exec,
    node::Node,
    process::{ExitCode, Group, OUTPUT_GRACE},
    state::Run,
};
use crate::proto::cri::ExecRequest;

/// 32 KiB of an output in a message, as containerd sends it.
const READ: usize = 32 << 10;

/// 1 s for a client to take the end of its stream, before its connection is closed over its head.
const CLOSING: Duration = Duration::from_secs(1);

/// The channels.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;

/// Runs a command for a client until both have ended. At `cut`, the client is gone.
pub(super) async fn serve(
    node: &Node,
    request: &ExecRequest,
    socket: WebSocketStream<TcpStream>,
    cut: &CancellationToken,
) {
    let (sink, source) = socket.split();
    let client = Client { sink: Mutex::new(Some(sink)), gone: cut.child_token() };
    let mut source = Some(source);
    // Says that the stream is open, on the first channel that the client reads.
    let first = if request.stdout { STDOUT } else { STDERR };
    client.send(if request.stdout || request.stderr { first } else { STATUS }, &[]).await;
    let status = match run(node, request, &client, &mut source).await {
        Ok(ExitCode(0)) => json!({ "metadata": {}, "status": "Success" }),
        Ok(code) => non_zero(&request.cmd, code),
        Err(status) => failure(status.message()),
    };
    client.send(STATUS, status.to_string().as_bytes()).await;
    client.close(source).await;
}

async fn run(
    node: &Node,
    request: &ExecRequest,
    client: &Client,
    source: &mut Option<Source>,
) -> Result<ExitCode, Status> {
    let (mut process, run, mut command) =
        node.start_exec(&request.container_id, &request.cmd, request.stdin)?;
    let (group, input, outputs) = (process.group(), process.take_input(), process.take_output());
    let ended = CancellationToken::new();
    let ending = async {
        let code = exec::end_in(&run, &group, process.end()).await;
        ended.cancel();
        code
    };
    let sending = async {
        if let Some((stdout, stderr)) = outputs {
            let (stdout, stderr) = (
                send(stdout, request.stdout.then_some(STDOUT), client, &run, &ended),
                send(stderr, request.stderr.then_some(STDERR), client, &run, &ended),
            );
            tokio::join!(stdout, stderr);
        }
    };
    let meanwhile = async { tokio::join!(listen(client, source, input), freeze(&run, &group)).1 };
    let code: io::Result<ExitCode> = tokio::select! {
        (code, ()) = async { tokio::join!(ending, sending) } => code,
        never = meanwhile => match never {},
    };
    let code = code.map_err(|error| Status::unknown(format!("failed to exec in container: {error}")))?;
    command.exit_code = code.0;
    Ok(code)
}

/// Sends what a command writes, on a channel if the client wants it. What is still in the pipe at its end is sent, too,
/// however slowly the client reads.
async fn send(
    mut pipe: impl AsyncRead + Unpin,
    channel: Option<u8>,
    client: &Client,
    run: &Run,
    ended: &CancellationToken,
) {
    let mut chunk = Vec::with_capacity(READ);
    loop {
        chunk.clear();
        let held_open = async {
            ended.cancelled().await;
            sleep(OUTPUT_GRACE).await;
        };
        let read = tokio::select! {
            read = pipe.read_buf(&mut chunk) => read,
            () = held_open => return,
        };
        if !read.is_ok_and(|read| read > 0) {
            return;
        }
        exec::not_paused(run).await;
        if let Some(channel) = channel {
            client.send(channel, &chunk).await;
        }
    }
}

/// Passes on what a client sends, until it goes.
async fn listen(client: &Client, source: &mut Option<Source>, mut input: Option<ChildStdin>) {
    while let Some(from) = source {
        let message = tokio::select! {
            message = from.next() => message,
            () = client.gone.cancelled() => None,
        };
        let bytes = match message {
            Some(Ok(Message::Binary(bytes))) => bytes,
            Some(Ok(Message::Close(_))) => {
                drop(input.take());
                client.leave().await;
                // It gets its answer.
                let _ = timeout(CLOSING, async { while let Some(Ok(_)) = from.next().await {} }).await;
                *source = None;
                return;
            }
            Some(Err(_)) | None => {
                client.leave().await;
                *source = None;
                return;
            }
            Some(Ok(_)) => continue,
        };
        if let (Some((&STDIN, bytes)), Some(pipe)) = (bytes.split_first(), &mut input) {
            let is_taken = tokio::select! {
                written = pipe.write_all(bytes) => written.is_ok(),
                () = client.gone.cancelled() => false,
            };
            if !is_taken {
                input = None;
            }
        }
    }
}

/// Freezes a command with its container.
async fn freeze(run: &Run, group: &Group) -> Infallible {
    let mut paused = run.paused.subscribe();
    paused.mark_changed();
    while paused.changed().await.is_ok() {
        group.freeze(*paused.borrow_and_update());
    }
    future::pending().await
}

type Socket = WebSocketStream<TcpStream>;
type Source = SplitStream<Socket>;

/// Who reads what a command writes.
struct Client {
    sink: Mutex<Option<SplitSink<Socket, Message>>>,
    /// Cancelled when nothing reaches it any more.
    gone: CancellationToken,
}

impl Client {
    /// Sends a message. Waits for as long as the client does not read; does nothing once it is gone.
    async fn send(&self, channel: u8, bytes: &[u8]) {
        let mut message = BytesMut::with_capacity(1 + bytes.len());
        message.put_u8(channel);
        message.put_slice(bytes);
        let sending = async {
            match self.sink.lock().await.as_mut() {
                Some(sink) => sink.send(Message::Binary(message.freeze())).await.is_ok(),
                None => false,
            }
        };
        let is_sent = tokio::select! {
            biased;
            () = self.gone.cancelled() => false,
            is_sent = sending => is_sent,
        };
        if !is_sent {
            self.gone.cancel();
        }
    }

    /// Gives it up.
    async fn leave(&self) {
        self.gone.cancel();
        self.sink.lock().await.take();
    }

    /// Closes its stream, and waits until it has read everything: the kernel would drop what is on its way if the
    /// connection was closed while something from it was not read.
    async fn close(&self, source: Option<Source>) {
        let (Some(mut source), false) = (source, self.gone.is_cancelled()) else { return };
        let closing = async {
            if let Some(sink) = self.sink.lock().await.as_mut() {
                let _ = sink.close().await;
            }
            while let Some(Ok(_)) = source.next().await {}
        };
        tokio::select! {
            _ = timeout(CLOSING, closing) => {}
            () = self.gone.cancelled() => {}
        }
    }
}

/// The status of a command that failed, in the words of containerd and Kubernetes.
fn non_zero(argv: &[String], ExitCode(code): ExitCode) -> Value {
    let argv = argv.join(" ");
    json!({
        "metadata": {},
        "status": "Failure",
        "message": format!(
            "command terminated with non-zero exit code: error executing command [{argv}], exit code {code}"
        ),
        "reason": "NonZeroExitCode",
        "details": { "causes": [{ "reason": "ExitCode", "message": code.to_string() }] },
    })
}

/// The status of a command that could not be run.
fn failure(message: &str) -> Value {
    let message = format!("error executing command in container: {message}");
    json!({
        "metadata": {},
        "status": "Failure",
        "message": format!("Internal error occurred: {message}"),
        "reason": "InternalError",
        "details": { "causes": [{ "message": message }] },
        "code": 500,
    })
}
