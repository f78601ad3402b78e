//! tcpSocket: a host, a port and a limit in, an outcome out. Sends nothing, reads nothing, and every problem of dialling is
//! a failure (docs/kubelet-prober.md 8), unless it is our own.

use std::{net::SocketAddr, time::Duration};

use tokio::time;

use super::{Fault, Outcome, dial, go, lookup::Host, trouble::Trouble};
use crate::ids::PodUid;

/// How far an attempt came: what a timeout comes to depends on it.
struct Progress {
    /// What is being dialled, as Go's dialler names it.
    target: String,
    waits_for_us: bool,
}

/// Connects and closes, for a probe of `pod`. Texts are those of Go's dialler: `dial tcp 10.0.0.1:80: connect: connection
/// refused`. `timeout` bounds name and connection together.
///
/// # Errors
/// [`Fault::Ours`] for want of something that the container has no part in.
pub(crate) async fn attempt(
    pod: &PodUid,
    host: Host<'_>,
    port: u16,
    timeout: Duration,
) -> Result<Outcome, Fault> {
    let target = match host {
        Host::Address(address) => format!(" {}", SocketAddr::new(address, port)),
        Host::Name(name) => format!(": lookup {name}"),
    };
    let mut progress = Progress { target, waits_for_us: false };
    match time::timeout(timeout, connect(pod, host, port, &mut progress)).await {
        Ok(Ok(())) => Ok(Outcome::success()),
        Ok(Err(trouble)) => trouble.judged(),
        Err(_elapsed) => {
            let text = format!("dial tcp{}: i/o timeout", progress.target);
            if progress.waits_for_us { Trouble::Ours(text) } else { Trouble::Peer(text) }.judged()
        }
    }
}

async fn connect(pod: &PodUid, host: Host<'_>, port: u16, progress: &mut Progress) -> Result<(), Trouble> {
    let addresses = host.addresses(port, &mut progress.waits_for_us).await?;
    progress.target = format!(" {}", addresses[0]);
    dial::connect_any(&addresses, pod).await.map(drop).map_err(|(address, error)| {
        Trouble::of(&error, format!("dial tcp {address}: connect: {}", go::system_error(&error)))
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::handler::{Judgement, lookup};

    const LIMIT: Duration = Duration::from_secs(5);

    async fn dialled(host: Host<'_>, port: u16, timeout: Duration) -> Result<Outcome, Fault> {
        attempt(&PodUid::default(), host, port, timeout).await
    }

    async fn to(address: SocketAddr, timeout: Duration) -> Outcome {
        dialled(Host::Address(address.ip()), address.port(), timeout).await.unwrap()
    }

    fn text(outcome: &Outcome) -> &str {
        &outcome.output
    }

    #[tokio::test]
    async fn a_port_that_accepts_is_a_success_whatever_is_behind_it() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(host) else { continue };
            let outcome = to(listener.local_addr().unwrap(), LIMIT).await;
            assert_eq!(outcome, Outcome::success(), "{host}");
        }
    }

    #[tokio::test]
    async fn a_closed_port_is_a_failure_in_gos_words() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let outcome = to(address, LIMIT).await;
        assert_eq!(outcome.judgement, Judgement::Failure);
        assert_eq!(text(&outcome), format!("dial tcp {address}: connect: connection refused"));
    }

    #[tokio::test]
    async fn an_address_of_ipv6_stands_in_brackets() {
        // Without IPv6 there is no server to blame.
        if TcpListener::bind("[::1]:0").is_err() {
            return;
        }
        let outcome = to("[::1]:1".parse().unwrap(), LIMIT).await;
        assert_eq!(outcome.judgement, Judgement::Failure);
        assert!(text(&outcome).starts_with("dial tcp [::1]:1: connect: "), "{}", text(&outcome));
    }

    #[tokio::test]
    async fn a_name_is_resolved_and_one_that_leads_nowhere_is_a_failure_in_gos_words() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(dialled(Host::of("localhost"), port, LIMIT).await, Ok(Outcome::success()));
        let outcome = dialled(Host::of("no-such-host.invalid"), port, LIMIT).await.unwrap();
        assert!(text(&outcome).starts_with("dial tcp: lookup no-such-host.invalid: "), "{outcome:?}");
        let _all = lookup::PLACES.acquire_many(lookup::AT_ONCE as u32).await.unwrap();
        let outcome = dialled(Host::of("localhost"), port, Duration::from_millis(10)).await;
        let expected = Fault::Ours("dial tcp: lookup localhost: i/o timeout".into());
        assert_eq!(outcome, Err(expected), "our own bound is no failure of the pod");
    }

    #[tokio::test]
    async fn a_silent_peer_is_a_failure_at_the_timeout() {
        // A listener whose backlog is full drops further SYNs: the kernel's own silent peer.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut held = Vec::new();
        let outcome = loop {
            let outcome = to(address, Duration::from_millis(100)).await;
            if outcome.judgement == Judgement::Failure || held.len() > 8 {
                break outcome;
            }
            held.push(
                time::timeout(Duration::from_millis(100), dial::connect(address, &PodUid::default())).await,
            );
        };
        assert_eq!(text(&outcome), format!("dial tcp {address}: i/o timeout"));
    }
}
