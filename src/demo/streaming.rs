//! The streaming server, as containerd 1.6 has it: Exec answers the URL of a loopback port with a token, and whoever
//! connects there with the token gets the command's streams over WebSocket. Connections in, one task for each out.

use std::{io, net::Ipv4Addr, sync::Arc, time::Duration};

use hyper::{StatusCode, header::SEC_WEBSOCKET_PROTOCOL, http::HeaderValue};
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async_with_config,
    tungstenite::{
        handshake::server::{ErrorResponse, Request, Response},
        protocol::WebSocketConfig,
    },
};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{faults, faults::Faults, node::Node, streamed};
use crate::{clock, proto::cri};

/// What the server speaks; offers of others alone are answered 403.
const PROTOCOL: &str = "v4.channel.k8s.io";

/// 4,096 connections at a time: the next is closed at once.
const MAX_STREAMS: usize = 4096;

/// 10 s for a client to ask for its stream; then its connection ends.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// 1 MiB in one message of a client: a longer one ends its stream. Clients of the field send 32 KiB at most.
const MAX_MESSAGE: usize = 1 << 20;

/// 4 KiB, of which each stream keeps one: there may be thousands that are idle.
const READ_BUFFER: usize = 4 << 10;

/// 4 KiB of a request are searched for the name of its protocol.
const HEAD: usize = 4 << 10;

/// 50 ms between two tries to accept when accepting fails, as it does without free file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// What clients without WebSocket get.
const NO_WEBSOCKET: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n\
    the embedded runtime streams over WebSocket only: try crictl exec --transport websocket, or --sync\n";

impl Node {
    /// The URL where a command will run once a client connects.
    ///
    /// # Errors
    /// NotFound; InvalidArgument without streams; Unknown when the container does not run; Unimplemented with a terminal;
    /// Unavailable without a streaming server; those of `Tokens::add`.
    pub(super) fn exec(&self, request: cri::ExecRequest) -> Result<cri::ExecResponse, Status> {
        if request.tty {
            return Err(Status::unimplemented("the embedded runtime has no terminals: exec without a TTY"));
        }
        if !(request.stdin || request.stdout || request.stderr) {
            return Err(Status::invalid_argument("one of stdin, stdout, or stderr must be set"));
        }
        let mut state = self.state();
        state.admit()?;
        let text = &request.container_id;
        let container = state.container(text).map_err(|_| {
            Status::not_found(format!("failed to find container {text:?} in store: not found"))
        })?;
        if container.run().is_none() {
            let name = container.cri_state().as_str_name();
            return Err(Status::unknown(format!("container is in {name} state")));
        }
        let address =
            state.streaming.ok_or_else(|| Status::unavailable("the streaming server is not running"))?;
        let token = state.tokens.add(request, clock::now())?;
        Ok(cri::ExecResponse { url: format!("http://{address}/exec/{token}") })
    }
}

/// Listens on a free port of the loopback address until `end`. Tokens of an earlier server are forgotten.
///
/// # Errors
/// What binding brings; there is no streaming server then.
pub(super) fn listen(node: &Arc<Node>, faults: Faults, end: CancellationToken) -> io::Result<()> {
    {
        let mut state = node.state();
        (state.streaming, state.tokens) = Default::default();
    }
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let address = listener.local_addr()?;
    node.state().streaming = Some(address);
    node.tasks.spawn(accept(listener, node.clone(), faults, end));
    Ok(())
}

async fn accept(listener: TcpListener, node: Arc<Node>, faults: Faults, end: CancellationToken) {
    let places = Arc::new(Semaphore::new(MAX_STREAMS));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = end.cancelled() => return,
        };
        let Ok((connection, _)) = accepted else {
            sleep(ACCEPT_BACKOFF).await;
            continue;
        };
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let (node, faults, end) = (node.clone(), faults.clone(), end.clone());
        node.clone().tasks.spawn(async move {
            let opened = tokio::select! {
                opened = open(&node, &faults, connection) => opened,
                () = end.cancelled() => None,
            };
            if let Some((socket, request)) = opened {
                streamed::serve(&node, &request, socket, &end).await;
            }
            drop(place);
        });
    }
}

/// Lets a client in that has a token. The token is used up, whatever else is wrong with its request.
async fn open(
    node: &Node,
    faults: &Faults,
    connection: TcpStream,
) -> Option<(WebSocketStream<TcpStream>, cri::ExecRequest)> {
    let fault = faults.receive("Stream", clock::now());
    let refusal = match faults::before_stream(fault.as_ref()).await {
        Ok(()) => None,
        Err(status) => Some(status?),
    };
    let mut found = None;
    #[expect(clippy::result_large_err, reason = "the type of a refusal is the handshake's")]
    let judge = |asked: &Request, response: Response| {
        let token = asked.uri().path().strip_prefix("/exec/").unwrap_or_default();
        let request = node.state().tokens.take(token, clock::now());
        let status = match refusal {
            _ if request.is_none() => StatusCode::NOT_FOUND,
            Some(status) => status,
            None if !is_offered(asked) => StatusCode::FORBIDDEN,
            None => {
                found = request;
                return Ok(chosen(response));
            }
        };
        let mut refused = ErrorResponse::new(None);
        *refused.status_mut() = status;
        Err(refused)
    };
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(0)
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE));
    let opening = async {
        connection.set_nodelay(true).ok()?;
        let connection = with_websocket(connection).await?;
        accept_hdr_async_with_config(connection, judge, Some(config)).await.ok()
    };
    let socket = timeout(HANDSHAKE_LIMIT, opening).await.ok()??;
    Some((socket, found?))
}

/// Sends a client away that asks for something else, as crictl does with SPDY, and says what to do.
async fn with_websocket(mut connection: TcpStream) -> Option<TcpStream> {
    let mut head = [0; HEAD];
    let length = connection.peek(&mut head).await.ok()?;
    let head = head[..length].to_ascii_lowercase();
    let has = |text: &[u8]| head.windows(text.len()).any(|window| window == text);
    if has(b"\r\n\r\n") && !has(b"websocket") {
        let _ = connection.write_all(NO_WEBSOCKET).await;
        return None;
    }
    Some(connection)
}

fn is_offered(asked: &Request) -> bool {
    let offers = asked.headers().get_all(SEC_WEBSOCKET_PROTOCOL);
    let mut names = offers.iter().filter_map(|offer| offer.to_str().ok()).flat_map(|offer| offer.split(','));
    names.any(|name| name.trim() == PROTOCOL)
}

fn chosen(mut response: Response) -> Response {
    response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    response
}
