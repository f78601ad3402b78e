//! Asks real servers on loopback: a tonic one that behaves, and raw ones that do not.

use std::{convert::Infallible, future::pending, net::TcpListener as StdListener};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::AbortHandle,
    time::sleep,
};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, transport::Server};
use tower::service_fn;

use super::*;
use crate::{
    clock,
    handler::Judgement,
    proto::health::{
        HealthCheckRequest, HealthCheckResponse,
        health_server::{Health, HealthServer},
    },
};

/// Long enough for whatever is to be answered.
const AMPLE: Duration = Duration::from_secs(10);

/// What is waited for where nothing comes.
const SHORT: Duration = Duration::from_millis(300);

/// One attempt for a pod like any other.
async fn ask(address: SocketAddr, service: &str, timeout: Duration) -> Result<Outcome, Fault> {
    attempt(&PodUid::default(), address, service, timeout).await
}

/// Ends its server when dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    task: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers by the name of the service that it is asked about.
struct ByName;

#[tonic::async_trait]
impl Health for ByName {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let agent = request.metadata().get("user-agent").map(|agent| agent.to_str().unwrap().to_owned());
        assert_eq!(agent.as_deref(), Some(USER_AGENT));
        assert!(request.metadata().get("grpc-timeout").is_some());
        let status = match request.into_inner().service.as_str() {
            "" => 1,
            "sick" => 2,
            "strange" => 3,
            "unsure" => 0,
            "newer" => 17,
            "hangs" => pending().await,
            "late" => return Err(Status::deadline_exceeded("in its own words")),
            other => return Err(Status::not_found(format!("no service {other}"))),
        };
        Ok(Response::new(HealthCheckResponse { status }))
    }
}

pub(crate) async fn healthy(host: &str) -> Running {
    let listener = TcpListener::bind((host, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let serve =
        Server::builder().serve_with_incoming(HealthServer::new(ByName), TcpListenerStream::new(listener));
    let task = tokio::spawn(serve).abort_handle();
    Running { address, task }
}

/// Treats every connection as `treat` does.
pub(crate) async fn raw<F: Future<Output = std::io::Result<()>> + Send>(
    treat: impl Fn(TcpStream) -> F + Send + Copy + 'static,
) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serve = async move {
        while let Ok((stream, _)) = listener.accept().await {
            // The client ends these at will.
            let _ = treat(stream).await;
        }
    };
    Running { address, task: tokio::spawn(serve).abort_handle() }
}

pub(crate) fn closed_port() -> SocketAddr {
    StdListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn failure(text: impl Into<String>) -> Outcome {
    Outcome::failure(text.into())
}

fn text(outcome: &Outcome) -> &str {
    &outcome.output
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// `:status: 200` and `content-type: application/grpc`.
const GRPC_HEADERS: &[u8] = b"\x88\x5f\x10application/grpc";

/// Speaks HTTP/2 until a question begins.
async fn be_asked(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await?;
    loop {
        let mut header = [0; 9];
        stream.read_exact(&mut header).await?;
        let mut payload = vec![0; u16::from_be_bytes([header[1], header[2]]).into()];
        stream.read_exact(&mut payload).await?;
        if header[3] == HEADERS {
            return Ok(());
        }
    }
}

#[tokio::test]
async fn a_server_that_answers_is_judged_by_its_status() {
    let server = healthy("127.0.0.1").await;
    let rows = [
        ("serving", "", Outcome { output: "service healthy".into(), ..Outcome::success() }),
        ("not serving", "sick", failure("service unhealthy (responded with \"NOT_SERVING\")")),
        ("unknown there", "strange", failure("service unhealthy (responded with \"SERVICE_UNKNOWN\")")),
        ("unknown", "unsure", failure("service unhealthy (responded with \"UNKNOWN\")")),
        ("outside the enum", "newer", failure("service unhealthy (responded with \"17\")")),
        (
            "refused",
            "web",
            failure("error: health rpc probe failed: rpc error: code = NotFound desc = no service web"),
        ),
        ("the server's own deadline", "late", failure("timeout: health rpc did not complete within 10s")),
    ];
    for (name, service, outcome) in rows {
        assert_eq!(ask(server.address, service, AMPLE).await, Ok(outcome), "{name}");
    }
}

#[tokio::test]
async fn a_server_at_an_address_of_ipv6_is_asked_too() {
    if StdListener::bind("[::1]:0").is_err() {
        return;
    }
    let server = healthy("::1").await;
    let outcome = ask(server.address, "", AMPLE).await.unwrap();
    assert_eq!(text(&outcome), "service healthy");
    drop(server);
    let outcome = ask("[::1]:1".parse().unwrap(), "", SHORT).await.unwrap();
    assert_eq!(
        text(&outcome),
        "timeout: failed to connect service \"[::1]:1\" within 300ms: context deadline exceeded"
    );
}

#[tokio::test]
async fn a_server_without_the_health_service_is_a_failure_that_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let other = service_fn(|request: http::Request<tonic::body::Body>| async move {
        let service = request.uri().path().split('/').nth(1).unwrap_or_default();
        Ok::<_, Infallible>(
            Status::unimplemented(format!("unknown service {service}")).into_http::<tonic::body::Body>(),
        )
    });
    let serve = Server::builder().serve_with_incoming(other, TcpListenerStream::new(listener));
    let task = tokio::spawn(serve).abort_handle();
    let server = Running { address, task };
    let outcome = ask(server.address, "", AMPLE).await.unwrap();
    assert_eq!(outcome.judgement, Judgement::Failure);
    assert_eq!(
        text(&outcome),
        "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service grpc.health.v1.Health"
    );
}

#[tokio::test]
async fn a_call_that_hangs_is_a_failure_at_the_timeout() {
    let server = healthy("127.0.0.1").await;
    let began = clock::now();
    let outcome = ask(server.address, "hangs", SHORT).await.unwrap();
    assert_eq!(outcome, failure("timeout: health rpc did not complete within 300ms"));
    assert!(clock::now() - began >= SHORT);
}

#[tokio::test]
async fn what_never_speaks_http2_costs_the_whole_timeout_and_is_a_failure_to_connect() {
    let silent = raw(|_stream| async { pending().await }).await;
    let http1 = raw(|mut stream| async move {
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").await
    })
    .await;
    let garbage = raw(|mut stream| async move {
        loop {
            stream.write_all(&[0xff; 1000]).await?;
        }
    })
    .await;
    let closing = raw(|_stream| async { Ok(()) }).await;
    let goaway_first = raw(|mut stream| async move {
        stream.write_all(&frame(GOAWAY, 0, 0, &[0; 8])).await?;
        pending().await
    })
    .await;
    let rows = [
        ("refused", closed_port()),
        ("accepts and says nothing", silent.address),
        ("HTTP/1", http1.address),
        ("garbage", garbage.address),
        ("closes at once", closing.address),
        ("GOAWAY before SETTINGS", goaway_first.address),
    ];
    for (name, address) in rows {
        let began = clock::now();
        let outcome = ask(address, "", SHORT).await.unwrap();
        let expected = format!(
            "timeout: failed to connect service \"{address}\" within 300ms: context deadline exceeded"
        );
        assert_eq!(outcome, failure(expected), "{name}");
        assert!(clock::now() - began >= SHORT, "{name}");
    }
}

#[tokio::test]
async fn a_server_that_comes_late_is_tried_again_after_a_second() {
    let address = closed_port();
    let late = async {
        sleep(SHORT).await;
        let listener = TcpListener::bind(address).await.unwrap();
        let incoming = TcpListenerStream::new(listener);
        Server::builder().serve_with_incoming(HealthServer::new(ByName), incoming).await
    };
    let began = clock::now();
    let outcome = tokio::select! {
        outcome = ask(address, "", AMPLE) => outcome.unwrap(),
        ended = late => panic!("{ended:?}"),
    };
    assert_eq!(text(&outcome), "service healthy");
    let took = clock::now() - began;
    assert!(took >= Duration::from_secs(1) && took < AMPLE, "{took:?}");
}

#[tokio::test]
async fn a_server_that_breaks_the_call_is_a_failure_of_the_call() {
    let goaway = raw(|mut stream| async move {
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
        stream.write_all(&frame(GOAWAY, 0, 0, &[0; 8])).await?;
        pending().await
    })
    .await;
    let closes = raw(|mut stream| async move { be_asked(&mut stream).await }).await;
    for (name, server) in [("GOAWAY at once", goaway), ("closes in the call", closes)] {
        let outcome = ask(server.address, "", AMPLE).await.unwrap();
        let said = text(&outcome);
        let words = "error: health rpc probe failed: rpc error: code = Unavailable desc = ";
        assert!(outcome.judgement == Judgement::Failure && said.starts_with(words), "{name}: {said}");
    }
}

#[tokio::test]
async fn endless_answers_are_bounded_in_octets_or_in_time() {
    let continuations = raw(|mut stream| async move {
        be_asked(&mut stream).await?;
        stream.write_all(&frame(HEADERS, 0, 1, GRPC_HEADERS)).await?;
        let field = [&b"\x00\x01x\x7f\x81\x01"[..], &[b'y'; 256]].concat();
        loop {
            stream.write_all(&frame(CONTINUATION, 0, 1, &field)).await?;
        }
    })
    .await;
    let messages = raw(|mut stream| async move {
        be_asked(&mut stream).await?;
        stream.write_all(&frame(HEADERS, END_HEADERS, 1, GRPC_HEADERS)).await?;
        loop {
            stream.write_all(&frame(DATA, 0, 1, b"\0\0\0\0\x02\x08\x01")).await?;
        }
    })
    .await;
    let one_message = raw(|mut stream| async move {
        be_asked(&mut stream).await?;
        stream.write_all(&frame(HEADERS, END_HEADERS, 1, GRPC_HEADERS)).await?;
        stream.write_all(&frame(DATA, 0, 1, b"\0\x7f\xff\xff\xff")).await?;
        loop {
            stream.write_all(&frame(DATA, 0, 1, &[0; 1000])).await?;
        }
    })
    .await;
    let nothing = raw(|mut stream| async move {
        be_asked(&mut stream).await?;
        stream.write_all(&frame(HEADERS, END_HEADERS, 1, GRPC_HEADERS)).await?;
        loop {
            stream.write_all(&frame(DATA, 0, 1, &[])).await?;
        }
    })
    .await;
    let hints = raw(|mut stream| async move {
        be_asked(&mut stream).await?;
        loop {
            stream.write_all(&frame(HEADERS, END_HEADERS, 1, b"\x48\x03103")).await?;
        }
    })
    .await;
    let settings = raw(|mut stream| async move {
        loop {
            stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
        }
    })
    .await;
    let rows = [
        ("headers", continuations, "error: health rpc probe failed: rpc error: code = "),
        (
            "messages",
            messages,
            "error: health rpc probe failed: rpc error: code = Internal desc = grpc: more",
        ),
        ("one message", one_message, "error: health rpc probe failed: rpc error: code = ResourceExhausted"),
        ("empty frames", nothing, ""),
        ("hints", hints, ""),
        ("settings", settings, ""),
    ];
    let limit = Duration::from_secs(1);
    for (name, server, words) in rows {
        let began = clock::now();
        let outcome = ask(server.address, "", limit).await.unwrap();
        assert_eq!(outcome.judgement, Judgement::Failure, "{name}");
        assert!(text(&outcome).starts_with(words), "{name}: {}", text(&outcome));
        assert!(clock::now() - began < 3 * limit, "{name}: {}", text(&outcome));
    }
}
