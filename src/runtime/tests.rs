//! Calls to a runtime that begins an answer and never ends it, over memory, in paused time.

use std::{convert::Infallible, io, sync::Mutex};

use http_body_util::StreamBody;
use hyper::body::Frame;
use tokio::io::duplex;
use tokio_stream::StreamExt;
use tonic::{
    Code,
    body::Body,
    codegen::http,
    transport::{Endpoint, Server},
};
use tower::service_fn;

use super::*;
use crate::clock;

/// A runtime of whose answers only the head ever comes.
fn stalling() -> Runtime {
    let (near, far) = duplex(1 << 16);
    let service = service_fn(|_: http::Request<Body>| async {
        let endless = StreamBody::new(tokio_stream::pending::<Result<Frame<bytes::Bytes>, Infallible>>());
        let head = http::Response::builder().header("content-type", "application/grpc");
        Ok::<_, Infallible>(head.body(Body::new(endless)).unwrap())
    });
    tokio::spawn(async move {
        let incoming = tokio_stream::once(Ok::<_, io::Error>(far)).chain(tokio_stream::pending());
        Server::builder().serve_with_incoming(service, incoming).await.unwrap();
    });
    let near = Mutex::new(Some(near));
    let connector = service_fn(move |_: Uri| {
        let near = near.lock().unwrap().take().map(TokioIo::new);
        async move { near.ok_or(io::Error::from(io::ErrorKind::ConnectionRefused)) }
    });
    let channel = Endpoint::from_static("http://runtime").connect_with_connector_lazy(connector);
    Runtime { socket: PathBuf::new(), channel, connections: watch::channel(0).1 }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_begins_and_never_ends_is_given_up() {
    let runtime = stalling();
    let began = clock::now();
    let version = timeout(QUICK * 2, runtime.version()).await.expect("it waits for ever");
    assert_eq!(version.unwrap_err().code(), Code::DeadlineExceeded);
    assert_eq!((clock::now() - began).as_secs(), 5);
    let list = timeout(LONG * 2, runtime.containers()).await.expect("it waits for ever");
    assert_eq!(list.unwrap_err().code(), Code::DeadlineExceeded);
}
