//! Binds a TCP address. In: the address. Out: a listener, or why there is none and what to do.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    thread,
};

use socket2::{Domain, Socket, Type};
use thiserror::Error;

use super::{HOLDER_LOOK, HOLDER_LOOKS};

/// 128 connections may wait to be accepted; the kernel lets further ones try again.
const BACKLOG: i32 = 128;

/// Why an address could not be bound. Each message says what to do.
#[derive(Debug, Error)]
pub(crate) enum TcpError {
    /// Another process listens there.
    #[error("{0} is in use by another process: stop it first, or choose another address (--http, api.http)")]
    InUse(SocketAddr),
    /// No interface has that address.
    #[error("no interface of this node has the address {0}: choose another one (--http, api.http)")]
    NotHere(SocketAddr),
    /// The port is for privileged processes.
    #[error("no permission to listen on {0}: choose a port above 1023 (--http, api.http), or run it as root")]
    Privileged(SocketAddr),
    /// The kernel returned an error.
    #[error("cannot listen on {address}")]
    Io {
        /// The address.
        address: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
}

/// A non-blocking listener. `[::]` is all addresses, also those of IPv4, and only those where the node has no IPv6. A
/// process that has just been killed may keep the address for up to a second.
///
/// # Errors
/// The address cannot be bound.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpListener, TcpError> {
    let mut looks = HOLDER_LOOKS;
    loop {
        match listen(address) {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && looks > 0 => {
                looks -= 1;
                thread::sleep(HOLDER_LOOK);
            }
            Err(source) => return Err(TcpError::of(address, source)),
        }
    }
}

impl TcpError {
    fn of(address: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::InUse(address),
            io::ErrorKind::AddrNotAvailable => Self::NotHere(address),
            io::ErrorKind::PermissionDenied => Self::Privileged(address),
            _ => Self::Io { address, source },
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let is_all = address.ip() == IpAddr::from(Ipv6Addr::UNSPECIFIED);
    match listen_on(address, is_all) {
        Err(error) if is_all && error.kind() != io::ErrorKind::AddrInUse => {
            listen_on((Ipv4Addr::UNSPECIFIED, address.port()).into(), false)
        }
        listening => listening,
    }
}

fn listen_on(address: SocketAddr, is_all: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // What is left of connections of the last process does not keep the address from the next one.
    socket.set_reuse_address(true)?;
    if is_all {
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn an_address_is_bound_once_and_again_when_it_is_free() {
        let any: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
        let listener = bind(any).unwrap();
        let address = listener.local_addr().unwrap();
        TcpStream::connect(address).unwrap();
        assert_eq!(
            bind(address).unwrap_err().to_string(),
            format!(
                "{address} is in use by another process: stop it first, or choose another address (--http, api.http)"
            )
        );
        drop(listener);
        bind(address).unwrap();
    }

    #[test]
    fn all_addresses_are_those_of_ipv4_too() {
        let listener = bind((Ipv6Addr::UNSPECIFIED, 0).into()).unwrap();
        TcpStream::connect((Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port())).unwrap();
    }

    #[test]
    fn an_address_of_another_node_is_told() {
        let elsewhere: SocketAddr = "192.0.2.7:9090".parse().unwrap();
        assert!(matches!(bind(elsewhere), Err(TcpError::NotHere(_))));
    }
}
