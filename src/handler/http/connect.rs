//! Connects a request: the probe's address or the name's in, a connection out. One connection a request, never a proxy:
//! no environment is read here, and none of the crates below reads one for us.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use tokio::net;

use super::{Target, url::Url};
use crate::handler::{
    dial::{self, Connection},
    go,
};

/// Connects to where `url` points: the port is its own; the host is that of the probe's target, as redirects to another
/// are never followed.
///
/// # Errors
/// In the words of Go's dialler.
pub async fn connect(target: &Target<'_>, url: &Url) -> Result<Connection, String> {
    let port = port(url)?;
    if let Some(address) = target.address {
        return dial(SocketAddr::new(address, port)).await;
    }
    let host = str::from_utf8(url.hostname()).unwrap_or_default();
    if let Ok(address) = host.parse::<IpAddr>() {
        return dial(SocketAddr::new(address, port)).await;
    }
    let addresses = net::lookup_host((host, port)).await.map_err(|error| not_found(host, &error))?;
    let mut first_error = None;
    for address in addresses {
        match dial(address).await {
            Ok(connection) => return Ok(connection),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    Err(first_error.unwrap_or_else(|| format!("dial tcp: lookup {host}: no such host")))
}

/// An error of an established connection: `read tcp 10.0.0.2:40000->10.0.0.1:80: read: connection reset by peer`.
pub fn broken(connection: &Connection, operation: &str, error: &io::Error) -> String {
    let error = go::system_error(error);
    let (local, peer) = connection.ends();
    let local = local.map(|local| local.to_string()).unwrap_or_default();
    format!("{operation} tcp {local}->{peer}: {operation}: {error}")
}

async fn dial(address: SocketAddr) -> Result<Connection, String> {
    let failed = |error| format!("dial tcp {address}: connect: {}", go::system_error(&error));
    let connection = dial::connect(address).await.map_err(failed)?;
    // Go's own way; without it the request goes out a little later, which is no reason to fail.
    let _ = connection.set_no_delay();
    Ok(connection)
}

fn port(url: &Url) -> Result<u16, String> {
    match (url.port(), url.scheme.as_str()) {
        (b"", "https") => Ok(443),
        (b"", _) => Ok(80),
        (digits, _) => {
            let digits = String::from_utf8_lossy(digits);
            digits.parse().map_err(|_| format!("dial tcp: address {digits}: invalid port"))
        }
    }
}

fn not_found(host: &str, error: &io::Error) -> String {
    let text = error.to_string();
    let reason = text.rsplit(": ").next().unwrap_or_default();
    let is_unknown = reason.contains("not known") || reason.contains("No address associated");
    format!("dial tcp: lookup {host}: {}", if is_unknown { "no such host" } else { reason })
}
