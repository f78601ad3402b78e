//! The whole handler against servers on loopback that send exactly what a test specifies.

mod answers;
mod hostile;
mod redirects;
mod request;
pub(crate) mod secure;

use std::{
    net::SocketAddr,
    sync::{Arc, LazyLock, Mutex},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::*;

/// The pod that all probes are of.
static POD: LazyLock<PodUid> = LazyLock::new(PodUid::default);

/// Long enough for anything on loopback.
const LIMIT: Duration = Duration::from_secs(5);

/// What a server says to one request, and what it does then.
#[derive(Clone)]
struct Reply {
    bytes: Vec<u8>,
    then: Then,
}

#[derive(Clone)]
enum Then {
    Close,
    /// Keeps the connection, and says no more.
    Hold,
    /// Ends the connection with a reset.
    Reset,
    /// Repeats these bytes for ever, with a pause before each.
    Repeat(Vec<u8>, Duration),
}

impl Reply {
    fn new(bytes: impl AsRef<[u8]>, then: Then) -> Self {
        Self { bytes: bytes.as_ref().to_vec(), then }
    }

    fn status(status: u16, body: &str) -> Self {
        let length = body.len();
        Self::new(format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}"), Then::Close)
    }

    fn redirect(status: u16, location: &str) -> Self {
        let head = format!("HTTP/1.1 {status} X\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
        Self::new(head, Then::Close)
    }
}

/// A server, and the requests that it was sent, in their order.
struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn new(reply: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        Self::at("127.0.0.1:0", reply).await
    }

    async fn at(address: &str, reply: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let server = Self { address: listener.local_addr().unwrap(), requests: Arc::default() };
        let requests = Arc::clone(&server.requests);
        let reply = Arc::new(reply);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, Arc::clone(&requests), Arc::clone(&reply)));
            }
        });
        server
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    async fn probe(&self, path: &str, headers: &[(&str, &str)]) -> Result<Outcome, Fault> {
        self.probe_within(LIMIT, path, headers).await
    }

    async fn probe_within(
        &self,
        limit: Duration,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Outcome, Fault> {
        let headers: Vec<_> =
            headers.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let host = self.address.ip().to_string();
        attempt(&Target { headers: &headers, path, ..at(&host, self.address) }, limit).await
    }
}

/// A target over plain HTTP, without path and headers.
fn at(host: &str, address: SocketAddr) -> Target<'_> {
    Target {
        pod: &POD,
        is_secure: false,
        host,
        address: Some(address.ip()),
        port: address.port(),
        ports: Ports::Any,
        path: "/",
        headers: &[],
    }
}

async fn answer<R: Fn(&str) -> Reply>(
    mut stream: TcpStream,
    requests: Arc<Mutex<Vec<String>>>,
    reply: Arc<R>,
) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut request).await.unwrap_or_default() == 0 {
            return;
        }
    }
    let request = String::from_utf8(request).unwrap();
    requests.lock().unwrap().push(request.clone());
    let Reply { bytes, then } = reply(&request);
    if stream.write_all(&bytes).await.is_err() {
        return;
    }
    match then {
        Then::Close => {}
        Then::Hold => while stream.read(&mut [0]).await.is_ok_and(|count| count > 0) {},
        Then::Reset => stream.set_zero_linger().unwrap(),
        Then::Repeat(bytes, pause) => loop {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            if stream.write_all(&bytes).await.is_err() {
                return;
            }
        },
    }
}

fn text(outcome: &Outcome) -> &str {
    &outcome.output
}

/// Judgement, status and output, short enough to compare at a glance.
fn seen(ended: &Result<Outcome, Fault>) -> (Option<Judgement>, Option<u16>, String) {
    match ended {
        Ok(outcome) => (Some(outcome.judgement), outcome.status, text(outcome).to_owned()),
        Err(fault) => (None, None, fault.to_string()),
    }
}
