//! Resolves a host in a definition: an address or a name in, the addresses to dial out. Only operators may use names;
//! pod authors may only write addresses.

use std::{
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
};

use socket2::{Domain, Socket, Type};
use tokio::{sync::Semaphore, task};

use super::{go, trouble::Trouble};

/// 16 names are looked up at once; further ones wait, within their attempts' timeouts. The system's resolver cannot be
/// given up, so one that hangs takes a thread for longer than any attempt: this bounds these threads.
pub(super) const AT_ONCE: usize = 16;

pub(super) static PLACES: Semaphore = Semaphore::const_new(AT_ONCE);

/// Where to dial, but for the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host<'a> {
    /// There.
    Address(IpAddr),
    /// Wherever the name leads.
    Name(&'a str),
}

impl<'a> Host<'a> {
    /// What a definition names.
    pub(crate) fn of(text: &'a str) -> Self {
        text.parse().map_or(Self::Name(text), Self::Address)
    }

    /// The addresses to dial, in the resolver's order; at least one. Takes as long as the resolver does: the caller has
    /// the limit. `waits_for_us` is true while it waits for one of our own places: a limit that ends then is no fault of
    /// the name.
    ///
    /// # Errors
    /// In the words of Go's dialler: `dial tcp: lookup NAME: no such host`.
    pub(crate) async fn addresses(
        self,
        port: u16,
        waits_for_us: &mut bool,
    ) -> Result<Vec<SocketAddr>, Trouble> {
        let name = match self {
            Self::Address(address) => return Ok(vec![SocketAddr::new(address, port)]),
            Self::Name(name) => name,
        };
        *waits_for_us = true;
        let place = PLACES.acquire().await.expect("the semaphore is never closed");
        *waits_for_us = false;
        let asked = name.to_owned();
        let found = task::spawn_blocking(move || {
            let _place = place;
            let found = (asked, port).to_socket_addrs().map(Vec::from_iter);
            let wanting = if found.as_ref().is_ok_and(|found| !found.is_empty()) { None } else { want() };
            (found, wanting)
        });
        let failed = |reason: &str| format!("dial tcp: lookup {name}: {reason}");
        match found.await {
            Err(_panicked) => Err(Trouble::Ours(failed("the resolver failed"))),
            Ok((Ok(addresses), _)) if !addresses.is_empty() => Ok(addresses),
            Ok((_, Some(want))) => Err(Trouble::Ours(failed(&go::system_error(&want)))),
            Ok((Ok(_none), None)) => Err(Trouble::Peer(failed("no such host"))),
            Ok((Err(error), None)) => Err(Trouble::of(&error, failed(&reason(&error)))),
        }
    }
}

/// What a resolver that found nothing may have been in want of. It opens files and sockets, and says of all that goes wrong
/// with them no more than that it failed, or that there is no such name: so one socket is opened to see.
fn want() -> Option<io::Error> {
    Socket::new(Domain::IPV4, Type::DGRAM, None).err()
}

fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let reason = text.rsplit(": ").next().unwrap_or_default();
    let is_unknown = reason.contains("not known") || reason.contains("No address associated");
    if is_unknown { "no such host".to_owned() } else { reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_itself_and_all_else_is_a_name() {
        for (text, is_name) in
            [("10.0.0.1", false), ("::1", false), ("[::1]", true), ("db.example.org", true), ("10.0.0", true)]
        {
            assert_eq!(matches!(Host::of(text), Host::Name(_)), is_name, "{text}");
        }
    }

    #[tokio::test]
    async fn a_name_leads_to_addresses_or_is_refused_in_gos_words() {
        let found = Host::of("localhost").addresses(80, &mut false).await.unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 80), "{found:?}");
        let error = Host::of("no-such-host.invalid").addresses(80, &mut false).await.unwrap_err();
        let Trouble::Peer(reported) = error else { panic!("{error:?}") };
        assert!(reported.starts_with("dial tcp: lookup no-such-host.invalid: "), "{reported}");
    }

    #[tokio::test]
    async fn names_that_hang_take_no_more_threads_than_the_bound() {
        let held = PLACES.acquire_many(AT_ONCE as u32).await.unwrap();
        let mut for_us = false;
        let waits = tokio::time::timeout(
            std::time::Duration::from_millis(50),
            Host::of("localhost").addresses(80, &mut for_us),
        );
        assert!(waits.await.is_err() && for_us, "it waits for a place");
        assert!(Host::of("127.0.0.1").addresses(80, &mut false).await.is_ok(), "an address needs none");
        drop(held);
        assert!(Host::of("localhost").addresses(80, &mut false).await.is_ok());
    }
}
