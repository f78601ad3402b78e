//! tcpSocket: an address and a limit in, an outcome out. Sends nothing, reads nothing, and every problem of dialling is
//! a failure (prober.md 8).

use std::{net::SocketAddr, time::Duration};

use tokio::time;

use super::{Outcome, dial, go};

/// Connects and closes. Texts are those of Go's dialler: `dial tcp 10.0.0.1:80: connect: connection refused`.
pub async fn attempt(address: SocketAddr, timeout: Duration) -> Outcome {
    match time::timeout(timeout, dial::connect(address)).await {
        Ok(Ok(_connection)) => Outcome::success(),
        Ok(Err(error)) => {
            Outcome::failure(format!("dial tcp {address}: connect: {}", go::system_error(&error)))
        }
        Err(_elapsed) => Outcome::failure(format!("dial tcp {address}: i/o timeout")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::handler::Judgement;

    const LIMIT: Duration = Duration::from_secs(5);

    fn text(outcome: &Outcome) -> &str {
        std::str::from_utf8(&outcome.output).unwrap()
    }

    #[tokio::test]
    async fn a_port_that_accepts_is_a_success_whatever_is_behind_it() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(host) else { continue };
            let outcome = attempt(listener.local_addr().unwrap(), LIMIT).await;
            assert_eq!(outcome, Outcome::success(), "{host}");
        }
    }

    #[tokio::test]
    async fn a_closed_port_is_a_failure_in_gos_words() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let outcome = attempt(address, LIMIT).await;
        assert_eq!(outcome.judgement, Judgement::Failure);
        assert_eq!(text(&outcome), format!("dial tcp {address}: connect: connection refused"));
    }

    #[tokio::test]
    async fn an_address_of_ipv6_stands_in_brackets() {
        let outcome = attempt("[::1]:1".parse().unwrap(), LIMIT).await;
        assert_eq!(outcome.judgement, Judgement::Failure);
        assert!(text(&outcome).starts_with("dial tcp [::1]:1: connect: "), "{}", text(&outcome));
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
            let outcome = attempt(address, Duration::from_millis(100)).await;
            if outcome.judgement == Judgement::Failure || held.len() > 8 {
                break outcome;
            }
            held.push(time::timeout(Duration::from_millis(100), dial::connect(address)).await);
        };
        assert_eq!(text(&outcome), format!("dial tcp {address}: i/o timeout"));
    }
}
