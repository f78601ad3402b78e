//! The stream to a process that an Exec started: an address in, pieces of its outputs out. WebSocket with the subprotocol
//! `v4.channel.k8s.io` or `v5.channel.k8s.io`: each binary message begins with the number of its channel.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::{SinkExt, Stream as _, StreamExt};
use http::{Request, Uri, header, uri::PathAndQuery};
use tokio::{net::TcpStream, time};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{self, Message, handshake::client::generate_key, protocol::WebSocketConfig},
};

use super::capture::Output;
use crate::results::exec_route::WhySync;

/// Both in one handshake: a server takes one that it knows. containerd 1.6 knows the second one alone.
const PROTOCOLS: &str = "v5.channel.k8s.io, v4.channel.k8s.io";

/// 5 s: how long the server may take to open a stream.
const OPENING: Duration = Duration::from_secs(5);

/// 1 MiB: the longest message; containerd's have 32 KiB.
const LONGEST_MESSAGE: usize = 1 << 20;

/// 4 KiB are read at once into a buffer that each stream keeps: there may be thousands, which are idle for the most time.
const READ_BUFFER: usize = 4 << 10;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;

/// Where a stream is: only what is needed of the URL in the runtime's answer. The path contains a token that lets anyone run
/// commands in the container, so it is never shown.
pub(super) struct Address {
    server: SocketAddr,
    path: PathAndQuery,
}

impl Address {
    /// Reads the URL of the runtime's answer.
    ///
    /// # Errors
    /// [`WhySync::StreamingAddress`] if the server is not on this node, or wants TLS.
    pub(super) fn read(url: &str) -> Result<Self, WhySync> {
        let url: Uri = url.parse().map_err(|_| WhySync::StreamingAddress)?;
        let host =
            url.host().filter(|_| url.scheme_str() == Some("http")).ok_or(WhySync::StreamingAddress)?;
        let ip = match host.trim_start_matches('[').trim_end_matches(']') {
            "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
            host => host.parse().map_err(|_| WhySync::StreamingAddress)?,
        };
        let path = url.path_and_query().cloned().ok_or(WhySync::StreamingAddress)?;
        if !is_own(ip) {
            return Err(WhySync::StreamingAddress);
        }
        Ok(Self { server: SocketAddr::new(ip, url.port_u16().unwrap_or(80)), path })
    }
}

/// Whether an address is this node's: what goes there has it as its source, too. Nothing is sent.
fn is_own(ip: IpAddr) -> bool {
    let any =
        if ip.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    let source = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((ip, 9))?;
        socket.local_addr()
    });
    !ip.is_unspecified() && (ip.is_loopback() || source.is_ok_and(|source| source.ip() == ip))
}

/// An open stream. Dropped, it is closed, and with it the standard input of the process.
#[derive(Debug)]
pub(super) struct Stream(WebSocketStream<TcpStream>);

/// What comes.
#[derive(Debug)]
pub(super) enum Came {
    /// A piece of an output.
    Said(Output, Bytes),
    /// The process has ended, or could not be started: a Kubernetes `Status` as JSON.
    Status(Bytes),
}

/// The stream is closed, or broken.
#[derive(Debug)]
pub(super) struct Closed;

impl Stream {
    /// Opens it.
    ///
    /// # Errors
    /// [`WhySync::StreamRefused`] if the server is away, refuses, or knows none of the protocols.
    pub(super) async fn open(address: &Address) -> Result<Self, WhySync> {
        let opening = async {
            let connection = TcpStream::connect(address.server).await.ok()?;
            connection.set_nodelay(true).ok()?;
            let request = Request::get(format!("ws://{}{}", address.server, address.path))
                .header(header::HOST, address.server.to_string())
                .header(header::CONNECTION, "Upgrade")
                .header(header::UPGRADE, "websocket")
                .header(header::SEC_WEBSOCKET_VERSION, "13")
                .header(header::SEC_WEBSOCKET_KEY, generate_key())
                .header(header::SEC_WEBSOCKET_PROTOCOL, PROTOCOLS)
                .body(())
                .ok()?;
            let config = WebSocketConfig::default()
                .read_buffer_size(READ_BUFFER)
                .write_buffer_size(0)
                .max_message_size(Some(LONGEST_MESSAGE))
                .max_frame_size(Some(LONGEST_MESSAGE));
            // The error may contain the address, so it is not shown.
            Some(client_async_with_config(request, connection, Some(config)).await.ok()?.0)
        };
        let opened = time::timeout(OPENING, opening).await.ok().flatten();
        opened.map(Self).ok_or(WhySync::StreamRefused)
    }

    /// Writes to the standard input of the process.
    ///
    /// # Errors
    /// [`Closed`].
    pub(super) async fn send(&mut self, text: &str) -> Result<(), Closed> {
        let mut message = BytesMut::with_capacity(1 + text.len());
        message.put_u8(STDIN);
        message.put_slice(text.as_bytes());
        self.0.send(Message::Binary(message.freeze())).await.map_err(|_| Closed)
    }

    /// Waits for what comes next. May be dropped at any time: nothing is lost.
    ///
    /// # Errors
    /// [`Closed`].
    pub(super) async fn next(&mut self) -> Result<Came, Closed> {
        loop {
            if let Some(came) = came(self.0.next().await)? {
                return Ok(came);
            }
        }
    }

    /// What has come already; none if nothing has.
    ///
    /// # Errors
    /// [`Closed`].
    pub(super) fn try_next(&mut self) -> Result<Option<Came>, Closed> {
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(message) = Pin::new(&mut self.0).poll_next(&mut cx) {
            if let Some(came) = came(message)? {
                return Ok(Some(came));
            }
        }
        Ok(None)
    }
}

/// What a message is; none if it says nothing. The server's first one is empty.
fn came(message: Option<Result<Message, tungstenite::Error>>) -> Result<Option<Came>, Closed> {
    let mut payload = match message {
        Some(Ok(Message::Binary(payload))) => payload,
        Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(Closed),
        Some(Ok(_)) => return Ok(None),
    };
    if payload.len() < 2 {
        return Ok(None);
    }
    let channel = payload.split_to(1);
    Ok(match channel[0] {
        STDOUT => Some(Came::Said(Output::Stdout, payload)),
        STDERR => Some(Came::Said(Output::Stderr, payload)),
        STATUS => Some(Came::Status(payload)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_servers_of_this_node_are_dialled() {
        let rows = [
            ("http://127.0.0.1:41/exec/t", Some("127.0.0.1:41")),
            ("http://[::1]:41/exec/t?x=y", Some("[::1]:41")),
            ("http://localhost:41/exec/t", Some("127.0.0.1:41")),
            ("http://127.0.0.1/exec/t", Some("127.0.0.1:80")),
            ("https://127.0.0.1:41/exec/t", None),
            ("http://192.0.2.1:41/exec/t", None),
            ("http://0.0.0.0:41/exec/t", None),
            ("http://224.0.0.1:41/exec/t", None),
            ("http://example.com:41/exec/t", None),
            ("http://user@192.0.2.1:41/exec/t", None),
            ("/exec/t", None),
            ("", None),
        ];
        for (url, server) in rows {
            let read = Address::read(url).ok().map(|address| address.server.to_string());
            assert_eq!(read.as_deref(), server, "{url}");
        }
    }
}
