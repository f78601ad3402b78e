//! Records what passes between a real gRPC client (tonic's) and the null runtime: calls in, octets of both directions
//! out, in the order in which they were passed on.

use std::{
    io::{Read, Write},
    net::Shutdown,
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use anyhow::Result;
use criprobe::proto::cri;
use hyper_util::rt::TokioIo;
use tonic::{
    Request,
    transport::{Endpoint, Uri},
};

use crate::call::Call;

/// Who sent a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    Client,
    Runtime,
}

/// The pieces of one connection.
pub(crate) type Recording = Vec<(Sender, Vec<u8>)>;

/// 64 KiB: the most that is passed on at once.
const PIECE: usize = 64 * 1024;

/// Makes `count` calls of that kind over one connection, one after the other, by way of the socket `listen`.
pub(crate) fn record(runtime: &Path, listen: &Path, call: Call, count: u32) -> Result<Recording> {
    let recording = Arc::new(Mutex::new(Recording::new()));
    let listener = UnixListener::bind(listen)?;
    let relay = {
        let (recording, runtime) = (Arc::clone(&recording), runtime.to_owned());
        thread::spawn(move || relay(&listener, &runtime, &recording))
    };
    make_calls(listen, call, count)?;
    relay.join().map_err(|_| anyhow::anyhow!("the recorder panicked"))??;
    Ok(std::mem::take(&mut *recording.lock().unwrap_or_else(PoisonError::into_inner)))
}

fn relay(listener: &UnixListener, runtime: &Path, recording: &Mutex<Recording>) -> Result<()> {
    let (client, _) = listener.accept()?;
    let runtime = UnixStream::connect(runtime)?;
    thread::scope(|scope| {
        scope.spawn(|| pass(&client, &runtime, Sender::Client, recording));
        pass(&runtime, &client, Sender::Runtime, recording);
    });
    Ok(())
}

/// Passes on and records until either end is gone.
fn pass(mut from: &UnixStream, mut to: &UnixStream, sender: Sender, recording: &Mutex<Recording>) {
    let mut buffer = vec![0; PIECE];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let piece = &buffer[..count];
        // First, so that no answer stands before its request.
        recording.lock().unwrap_or_else(PoisonError::into_inner).push((sender, piece.to_vec()));
        if to.write_all(piece).is_err() {
            break;
        }
    }
    // Fails only if it is gone already.
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

fn make_calls(socket: &Path, call: Call, count: u32) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let socket = socket.to_owned();
        let connector = tower::service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { tokio::net::UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        let endpoint = Endpoint::from_static("http://localhost");
        let channel = endpoint.connect_with_connector_lazy(connector);
        let mut client = cri::runtime_service_client::RuntimeServiceClient::new(channel);
        for number in 0..count {
            // No two deadlines are alike in a real client: what is left of two minutes.
            let timeout = Duration::from_micros(119_990_000 + u64::from(number * 7 % 9973));
            match call {
                Call::ExecSync => {
                    let asked = cri::ExecSyncRequest { cmd: vec!["true".into()], ..Default::default() };
                    client.exec_sync(with_timeout(asked, timeout)).await.map(drop)?;
                }
                Call::ListContainers => {
                    let asked = cri::ListContainersRequest::default();
                    client.list_containers(with_timeout(asked, timeout)).await.map(drop)?;
                }
                Call::Version | Call::ListPodSandbox | Call::Huge => {
                    let asked = cri::VersionRequest::default();
                    client.version(with_timeout(asked, timeout)).await.map(drop)?;
                }
            }
        }
        Ok(())
    })
}

fn with_timeout<T>(message: T, timeout: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(timeout);
    request
}
