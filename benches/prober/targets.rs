//! What the probes dial: listeners on loopback that note when each attempt came. Connections in, moments by probe out.
//! A thread a listener, so that nothing of this bench delays what it notes. Where there are thousands of attempts a
//! second they run at the lowest priority: what pods do with a connection is not criprobe's doing, and must not be in
//! the way of what is measured.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use criprobe::clock;
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};

use crate::{http2::*, node::Node};

/// 2 s: a client that sends no request by then is let go.
const PATIENCE: Duration = Duration::from_secs(2);

/// 64 silent connections are held by a listener; of older ones the client has left seconds ago.
const HELD: usize = 64;

/// What a listener does with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Treatment {
    /// Accepts and closes it.
    Close,
    /// Answers one HTTP/1.1 request.
    Answer,
    /// Accepts it and never says anything.
    Silence,
    /// Answers one check of gRPC's health service.
    Serve,
}

/// Listeners, one for each probe of a pod: the port identifies the probe, the address the pod.
pub(crate) struct Targets {
    pub(crate) ports: Vec<u16>,
    seen: Vec<Arc<Mutex<Seen>>>,
}

/// When each pod's probe came.
type Seen = Vec<Vec<Instant>>;

impl Targets {
    /// Listens for as many probes of as many pods, until the process ends; gives way to all others.
    pub(crate) fn listen(probes: usize, pods: usize, treatment: Treatment) -> io::Result<Self> {
        Self::spawn(probes, pods, treatment, true)
    }

    /// The same without giving way: attempts are noted in time while others fill the machine.
    pub(crate) fn listen_promptly(probes: usize, pods: usize, treatment: Treatment) -> io::Result<Self> {
        Self::spawn(probes, pods, treatment, false)
    }

    fn spawn(probes: usize, pods: usize, treatment: Treatment, gives_way: bool) -> io::Result<Self> {
        let mut targets = Self { ports: Vec::new(), seen: Vec::new() };
        for _ in 0..probes {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            let seen = Arc::new(Mutex::new(vec![Vec::new(); pods]));
            targets.ports.push(listener.local_addr()?.port());
            targets.seen.push(seen.clone());
            thread::Builder::new().name("target".into()).spawn(move || {
                if gives_way {
                    give_way();
                }
                serve(&listener, treatment, &seen);
            })?;
        }
        Ok(targets)
    }

    /// Takes what came so far, probe by probe.
    pub(crate) fn take(&self) -> Vec<Vec<Instant>> {
        let take = |seen: &Arc<Mutex<Seen>>| {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            let pods = seen.len();
            std::mem::replace(&mut *seen, vec![Vec::new(); pods])
        };
        self.seen.iter().flat_map(take).collect()
    }
}

/// Gives this thread the lowest priority.
pub(crate) fn give_way() {
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle)
        .expect("Linux lets each thread give way");
}

fn serve(listener: &TcpListener, treatment: Treatment, seen: &Mutex<Seen>) {
    let mut held = Vec::new();
    loop {
        let Ok((mut stream, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(10));
            continue;
        };
        note(&stream, clock::now(), seen);
        match treatment {
            Treatment::Close => {}
            // A client that leaves early is its own affair.
            Treatment::Answer => drop(answer(&mut stream)),
            Treatment::Silence => held.push(stream),
            // It may stay a moment, and must not delay the next.
            Treatment::Serve => drop(thread::spawn(move || serve_health(&mut stream))),
        }
        if held.len() > HELD {
            held.drain(..HELD / 2);
        }
    }
}

fn note(stream: &TcpStream, at: Instant, seen: &Mutex<Seen>) {
    let Ok(SocketAddr::V4(address)) = stream.local_addr() else { return };
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(times) = Node::pod(*address.ip()).and_then(|pod| seen.get_mut(pod)) {
        times.push(at);
    }
}

fn answer(stream: &mut TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let (mut request, mut length) = ([0; 4096], 0);
    while !request[..length].ends_with(b"\r\n\r\n") {
        let count = stream.read(&mut request[length..])?;
        if count == 0 {
            return Ok(());
        }
        length += count;
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
}

/// One check by gRPC: SETTINGS, and once the request is whole, SERVING. Waits for the client to close: what it still
/// sends would otherwise reset the connection before it has read the answer.
fn serve_health(stream: &mut TcpStream) -> io::Result<()> {
    /// :status 200, content-type application/grpc (RFC 7541: static index 8; a literal of name 31).
    const HEAD: &[u8] = b"\x88\x0f\x10\x10application/grpc";
    /// A HealthCheckResponse with the status SERVING, and gRPC's five octets before it.
    const SERVING: &[u8] = &[0, 0, 0, 0, 2, 0x08, 1];
    /// grpc-status 0, a literal of a new name.
    const TRAILERS: &[u8] = b"\x00\x0bgrpc-status\x010";

    stream.set_read_timeout(Some(PATIENCE))?;
    let mut out = Vec::new();
    put_settings(&mut out, &[]);
    stream.write_all(&out)?;
    let mut inbox = Inbox::new();
    while inbox.take(PREFACE.len()).is_none() {
        if inbox.fill(stream, usize::MAX)? == 0 {
            return Ok(());
        }
    }
    let mut out = Vec::new();
    loop {
        while let Some(frame) = inbox.frame()? {
            match frame.kind {
                SETTINGS if !frame.has(ACK) => put(&mut out, SETTINGS, ACK, 0, &[]),
                PING if !frame.has(ACK) => put(&mut out, PING, ACK, 0, frame.payload),
                DATA if frame.has(END_STREAM) => {
                    put(&mut out, HEADERS, END_HEADERS, frame.stream, HEAD);
                    put(&mut out, DATA, 0, frame.stream, SERVING);
                    put(&mut out, HEADERS, END_HEADERS | END_STREAM, frame.stream, TRAILERS);
                }
                _ => {}
            }
        }
        stream.write_all(&out)?;
        out.clear();
        if inbox.fill(stream, usize::MAX)? == 0 {
            return Ok(());
        }
    }
}
