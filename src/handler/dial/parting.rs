//! Closes the connections of probes so that nothing that their peers decide on stays in the kernel. In: a connection that
//! is not needed any more. Out: it is closed in order or reset, after a second at most. Never waits.
//!
//! A socket that is closed while its peer has not taken all that was sent goes on without a process: it keeps these bytes
//! for as long as the peer answers with a window of zero, five minutes and more, and for hours if the peer acknowledges
//! them one by one. All TCP of the node shares the memory that this takes (`net.ipv4.tcp_mem`). So such a socket is not
//! closed before its peer has had the time to take them, and then it is reset.

use std::{
    collections::VecDeque,
    net::{Shutdown, SocketAddr},
    sync::{LazyLock, Mutex, PoisonError},
    time::{Duration, Instant},
};

use rustix::{
    io::ioctl_fionread,
    process::{Resource, getrlimit},
};
use socket2::SockRef;
use tokio::{net::TcpStream, runtime::Handle, task::AbortHandle, time::sleep};

use super::allowance::Allowance;
use crate::ids::PodUid;

/// 1 s: the kubelet's SO_LINGER on probe connections (docs/kubelet-prober.md 7.3 and 8). What the peer has not acknowledged
/// by then is dropped with the connection.
const LINGER: Duration = Duration::from_secs(1);

/// 64 connections wait for their peers, as many as are open by default. One more resets the oldest. At 696 closed
/// connections a second, the most of 110 pods, each still waits for a twelfth of a second; a peer that behaves needs one
/// round trip.
const PLACES: usize = 64;

/// A 32nd of the limit of descriptors: fewer wait where even 64 would be missed by the relay.
const SHARE: usize = 32;

/// The connections that wait, the oldest first.
static PARTING: Mutex<VecDeque<AbortHandle>> = Mutex::new(VecDeque::new());

static ALLOWANCE: LazyLock<Mutex<Allowance>> = LazyLock::new(Mutex::default);

/// Ends a connection to `peer` of a probe of `pod`. SO_LINGER is 0 on it, so that returning early resets it, and so does
/// the end of this process.
pub(super) fn part(stream: TcpStream, has_written: bool, pod: &PodUid, peer: SocketAddr, now: Instant) {
    // The kernel itself resets a connection that is closed with unread data (RFC 2525, section 2.17).
    let is_read = ioctl_fionread(&stream).is_ok_and(|unread| unread == 0);
    if !is_read || !ALLOWANCE.lock().unwrap_or_else(PoisonError::into_inner).permits(pod, peer, now) {
        return;
    }
    if has_written { wait(stream) } else { close(&stream) }
}

/// Closes a connection on which nothing was sent in order. Only its FIN waits for an acknowledgement, and TCP_USER_TIMEOUT
/// ends that after a second.
fn close(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    // If one of them fails, the connection is reset.
    if socket.set_tcp_user_timeout(Some(LINGER)).is_ok() {
        let _ = socket.set_linger(None);
    }
}

/// Sends the FIN and keeps the socket until the peer has had time to take everything and to close, too. The reset that
/// follows reaches only a peer that has not. TCP_USER_TIMEOUT would not do here: it begins again with each byte that the
/// peer acknowledges.
fn wait(stream: TcpStream) {
    let Ok(runtime) = Handle::try_current() else { return };
    let _ = SockRef::from(&stream).shutdown(Shutdown::Both);
    let mut parting = PARTING.lock().unwrap_or_else(PoisonError::into_inner);
    parting.retain(|waits| !waits.is_finished());
    if parting.len() >= descriptors_for(SHARE, PLACES)
        && let Some(oldest) = parting.pop_front()
    {
        oldest.abort();
    }
    let waits = runtime.spawn(async move {
        sleep(LINGER).await;
        drop(stream);
    });
    parting.push_back(waits.abort_handle());
}

/// How many descriptors something may take: `most`, or, where that is less, so small a part of all that this process may have.
pub(crate) fn descriptors_for(part: usize, most: usize) -> usize {
    let limit = getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok());
    limit.map_or(most, |limit| (limit / part).clamp(1, most))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::{clock, handler::dial::connect};

    #[tokio::test]
    async fn a_connection_resets_what_it_leaves_and_its_end_waits_for_nobody() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connection = connect(listener.local_addr().unwrap(), &PodUid::default()).await.unwrap();
        let stream = connection.stream.as_ref().unwrap();
        assert_eq!(SockRef::from(stream).linger().unwrap(), Some(Duration::ZERO));
        // The peer reads nothing, so that what was sent cannot be acknowledged to its end.
        while stream.try_write(&[0; 65536]).is_ok() {}
        let began = clock::now();
        drop(connection);
        assert!(clock::now() - began < LINGER / 2);
    }

    #[test]
    fn of_the_connections_that_a_pod_closes_those_beyond_its_allowance_are_reset() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let waiting = || {
            let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
            let port = format!(":{:04X} ", address.port());
            sockets.lines().filter(|line| line.contains(&port) && line.contains(" 06 ")).count()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let began = clock::now();
        runtime.block_on(async {
            for _ in 0..1024 {
                let connection = connect(address, &PodUid::from("hostile")).await.unwrap();
                let (mut served, _) = listener.accept().unwrap();
                drop(connection);
                // The peer closes after us: TIME_WAIT is ours.
                let _ = std::io::Read::read(&mut served, &mut [0]);
            }
        });
        let permitted = 80 + 52 * (clock::now() - began).as_secs() as usize + 52;
        let began = clock::now();
        while waiting() == 0 && clock::now() - began < Duration::from_secs(5) {}
        assert!((1..=permitted).contains(&waiting()), "{} connections wait", waiting());
    }
}
