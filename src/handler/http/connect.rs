//! Connects a request: the probe's address or the name's in, a connection out. One connection a request, never a proxy:
//! no environment is read here, and none of the crates below reads one for us.

use std::io;

use super::{Target, url::Url};
use crate::handler::{
    dial::{self, Connection},
    go,
    lookup::Host,
};

/// Connects to where `url` points: the port is its own; the host is that of the probe's target, as redirects to another
/// are never followed.
///
/// # Errors
/// In the words of Go's dialler.
pub async fn connect(target: &Target<'_>, url: &Url) -> Result<Connection, String> {
    let host = match target.address {
        Some(address) => Host::Address(address),
        None => Host::of(str::from_utf8(url.hostname()).unwrap_or_default()),
    };
    let addresses = host.addresses(port(url)?).await?;
    let failed = |(address, error)| format!("dial tcp {address}: connect: {}", go::system_error(&error));
    let connection = dial::connect_any(&addresses).await.map_err(failed)?;
    // Go's own way; without it the request goes out a little later, which is no reason to fail.
    let _ = connection.set_no_delay();
    Ok(connection)
}

/// An error of an established connection: `read tcp 10.0.0.2:40000->10.0.0.1:80: read: connection reset by peer`.
pub fn broken(connection: &Connection, operation: &str, error: &io::Error) -> String {
    let error = go::system_error(error);
    let (local, peer) = connection.ends();
    let local = local.map(|local| local.to_string()).unwrap_or_default();
    format!("{operation} tcp {local}->{peer}: {operation}: {error}")
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
