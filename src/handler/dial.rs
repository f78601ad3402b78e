//! Opens the connections of network probes. In: an address. Out: a connection that never blocks a thread when it is
//! dropped, and leaves next to nothing in the kernel then.

mod allowance;
mod intake;
mod parting;

pub(crate) use parting::descriptors_for;

use std::{
    io,
    net::{SocketAddr, TcpStream as StdStream},
    pin::{Pin, pin},
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Poll, ready},
    thread,
    time::Duration,
};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpSocket, TcpStream},
    time::{Sleep, sleep, timeout},
};

use super::trouble::is_ours;
use crate::{clock, ids::PodUid};
use intake::Intake;

/// 64 KiB, which the kernel doubles: how much memory it may use for each direction of a connection. A request of an
/// annotation fits in, and so does what is read at once of an answer; what exceeds it waits for the peer or for us.
/// Without this bound, the kernel lets both buffers grow to megabytes.
const BUFFER: usize = 64 << 10;

/// 16 connections: while more are open, no thread yields.
const CROWD: usize = 16;

/// The connections that are open or being opened.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// A TCP connection of a probe.
#[derive(Debug)]
pub(crate) struct Connection {
    /// `None` only while it is being dropped.
    stream: Option<TcpStream>,
    peer: SocketAddr,
    /// Whose probe it is for.
    pod: PodUid,
    has_written: bool,
    intake: Intake,
    /// Until when nothing more is read.
    pause: Option<Pin<Box<Sleep>>>,
    _counted: Counted,
}

/// One of [`OPEN`].
#[derive(Debug)]
struct Counted;

impl Counted {
    fn new() -> Self {
        OPEN.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Lets others have this processor between two pieces of work, each some tens of microseconds within the kernel: probes that
/// are due in the same millisecond would hold up a relayed call for the sum of them. The shortest sleep there is takes about
/// 55 us (the timer slack), which delays no probe that anyone would notice; unlike sched_yield(2) it gives no share of the
/// processor away.
///
/// The pool cannot pace this: tokio's timers count milliseconds, and at 5,000 probes a second five are due in each. Measured
/// when it was added (`make bench-prober`, two cores): beside 5,000 probes, the p99 of a relayed call was 6 times that of an
/// idle criprobe without this, and 2.6 times with it (docs/benchmarks/prober.md).
fn stand_aside() {
    if OPEN.load(Ordering::Relaxed) <= CROWD {
        thread::sleep(Duration::from_nanos(1));
    }
}

/// Connects for a probe of `pod`. Waits for as long as the kernel tries: the caller has the limit.
///
/// # Errors
/// What the kernel said.
pub(crate) async fn connect(address: SocketAddr, pod: &PodUid) -> io::Result<Connection> {
    let counted = Counted::new();
    stand_aside();
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    // What is not closed in order is reset. That includes a connection that is made just when the attempt is given up, and
    // every open connection if the process is killed.
    socket.set_linger(Some(Duration::ZERO))?;
    socket.set_send_buffer_size(BUFFER)?;
    socket.set_recv_buffer_size(BUFFER)?;
    let socket = TcpSocket::from_std_stream(StdStream::from(socket));
    let stream = Some(socket.connect(address).await?);
    Ok(Connection {
        stream,
        peer: address,
        pod: pod.clone(),
        has_written: false,
        intake: Intake::default(),
        pause: None,
        _counted: counted,
    })
}

/// 300 ms: how long the addresses of the first family are ahead of the others', as in Go's dialler (RFC 6555).
const AHEAD: Duration = Duration::from_millis(300);

/// Connects to the first that accepts: those of the first's family one by one, and after 300 ms, or when all of them
/// refused, those of the other beside them. Waits for as long as the kernel tries: the caller has the limit.
///
/// # Errors
/// What the kernel said of the first one, or of the first that failed for want of something of our own: whether it would
/// have accepted is not known then. `addresses` holds at least one.
pub(crate) async fn connect_any(
    addresses: &[SocketAddr],
    pod: &PodUid,
) -> Result<Connection, (SocketAddr, io::Error)> {
    let is_first_family = |address: &&SocketAddr| address.is_ipv4() == addresses[0].is_ipv4();
    let (first, second): (Vec<_>, Vec<_>) = addresses.iter().partition(is_first_family);
    let mut one = pin!(connect_in_turn(&first, pod));
    if second.is_empty() {
        return one.await;
    }
    let failed = match timeout(AHEAD, one.as_mut()).await {
        Ok(Ok(connection)) => return Ok(connection),
        Ok(Err(error)) => Some(error),
        Err(_elapsed) => None,
    };
    let mut other = pin!(connect_in_turn(&second, pod));
    if let Some(error) = failed {
        return other.await.map_err(|second| telling(error, second));
    }
    tokio::select! {
        connected = one.as_mut() => match connected {
            Ok(connection) => Ok(connection),
            Err(error) => other.await.map_err(|second| telling(error, second)),
        },
        connected = other.as_mut() => match connected {
            Ok(connection) => Ok(connection),
            Err(second) => one.await.map_err(|error| telling(error, second)),
        },
    }
}

/// The error that says more of two: the first, unless only the second is our own.
fn telling(first: (SocketAddr, io::Error), second: (SocketAddr, io::Error)) -> (SocketAddr, io::Error) {
    if !is_ours(&first.1) && is_ours(&second.1) { second } else { first }
}

async fn connect_in_turn(
    addresses: &[&SocketAddr],
    pod: &PodUid,
) -> Result<Connection, (SocketAddr, io::Error)> {
    let mut first_error = None;
    for address in addresses {
        match connect(**address, pod).await {
            Ok(connection) => return Ok(connection),
            Err(error) if is_ours(&error) => return Err((**address, error)),
            Err(error) => first_error = first_error.or(Some((**address, error))),
        }
    }
    Err(first_error.expect("a family is dialled that has an address"))
}

impl Connection {
    /// Sends what is small at once, as Go's connections do.
    ///
    /// # Errors
    /// What the kernel said.
    pub(crate) fn set_no_delay(&self) -> io::Result<()> {
        self.stream.as_ref().map_or(Ok(()), |stream| stream.set_nodelay(true))
    }

    /// Our end, if the kernel still knows it, and the peer's, which it forgets when the peer resets the connection.
    pub(crate) fn ends(&self) -> (Option<SocketAddr>, SocketAddr) {
        (self.stream.as_ref().and_then(|stream| stream.local_addr().ok()), self.peer)
    }

    fn stream(&mut self) -> Pin<&mut TcpStream> {
        Pin::new(self.stream.as_mut().expect("a stream is taken only when its connection is dropped"))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        stand_aside();
        if let Some(stream) = self.stream.take() {
            parting::part(stream, self.has_written, &self.pod, self.peer, clock::now());
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        let room = self.intake.room().min(into.remaining());
        let mut piece = ReadBuf::new(into.initialize_unfilled_to(room));
        ready!(self.stream().poll_read(cx, &mut piece))?;
        let octets = piece.filled().len();
        into.advance(octets);
        self.pause = self.intake.took(octets).map_err(io::Error::other)?.map(|pause| Box::pin(sleep(pause)));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.stream().poll_write(cx, bytes);
        self.has_written |= written.is_ready();
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn of_several_addresses_the_first_that_accepts_is_taken_and_the_first_error_told() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = taken.local_addr().unwrap();
        let closed = |ip: &str| -> SocketAddr {
            let free = TcpListener::bind((ip, 0)).map(|listener| listener.local_addr().unwrap());
            free.unwrap_or_else(|_| SocketAddr::new(ip.parse().unwrap(), 9))
        };
        let (closed_4, closed_6) = (closed("127.0.0.2"), closed("::1"));
        for addresses in [vec![open], vec![closed_4, open], vec![closed_6, open], vec![open, closed_6]] {
            let connection = connect_any(&addresses, &PodUid::default()).await.unwrap();
            assert_eq!(connection.ends().1, open, "{addresses:?}");
        }
        for addresses in [vec![closed_4], vec![closed_4, closed_6], vec![closed_6, closed_4]] {
            let refused = connect_any(&addresses, &PodUid::default()).await.unwrap_err();
            assert_eq!(refused.0, addresses[0], "{addresses:?}");
        }
    }

    #[test]
    fn of_two_errors_the_first_counts_unless_only_the_second_is_our_own() {
        use rustix::io::Errno;
        let error = |port: u16, errno: Errno| (SocketAddr::from(([127, 0, 0, 1], port)), errno.into());
        for (first, second, port) in [
            (Errno::CONNREFUSED, Errno::HOSTUNREACH, 1),
            (Errno::CONNREFUSED, Errno::MFILE, 2),
            (Errno::MFILE, Errno::CONNREFUSED, 1),
            (Errno::MFILE, Errno::NOMEM, 1),
        ] {
            let reported = telling(error(1, first), error(2, second));
            assert_eq!(reported.0.port(), port, "{first} and {second}");
        }
    }

    #[tokio::test]
    async fn a_family_that_is_silent_holds_up_the_other_for_300_ms_only() {
        // A listener whose backlog is full drops further SYNs: the kernel's own silent peer.
        let socket = TcpSocket::new_v6().and_then(|socket| {
            socket.bind("[::1]:0".parse().unwrap())?;
            socket.listen(1)
        });
        let Ok(silent) = socket else { return };
        let (silent, mut held) = (silent.local_addr().unwrap(), Vec::new());
        let pod = PodUid::default();
        while held.len() < 8 {
            let connected = connect(silent, &pod);
            let Ok(connected) = timeout(Duration::from_millis(100), connected).await else { break };
            held.push(connected);
        }
        let open = TcpListener::bind("127.0.0.1:0").unwrap();
        let began = clock::now();
        let addresses = [silent, open.local_addr().unwrap()];
        let connection = connect_any(&addresses, &PodUid::default()).await.unwrap();
        assert_eq!(connection.ends().1, open.local_addr().unwrap());
        assert!(clock::now() - began >= AHEAD);
    }
}
