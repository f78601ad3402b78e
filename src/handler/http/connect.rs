//! Connects a request: the probe's address or the name's in, a connection out. One connection a request, never a proxy:
//! no environment is read here, and none of the crates below reads one for us.

use std::io;

use super::{Target, url::Url};
use crate::handler::{
    dial::{self, Connection},
    go,
    lookup::Host,
    trouble::Trouble,
};

/// Connects to where `url` points: the port is its own; the host is that of the probe's target, as redirects to another
/// are never followed. `waits_for_us` is true while it waits for one of our own places.
///
/// # Errors
/// In the words of Go's dialler.
pub(super) async fn connect(
    target: &Target<'_>,
    url: &Url,
    waits_for_us: &mut bool,
) -> Result<Connection, Trouble> {
    let host = match target.address {
        Some(address) => Host::Address(address),
        None => Host::of(str::from_utf8(url.hostname()).unwrap_or_default()),
    };
    let addresses = host.addresses(url.meant_port()?, waits_for_us).await?;
    let connection = dial::connect_any(&addresses, target.pod).await.map_err(|(address, error)| {
        Trouble::of(&error, format!("dial tcp {address}: connect: {}", go::system_error(&error)))
    })?;
    // Go's own way; without it the request goes out a little later, which is no reason to fail.
    let _ = connection.set_no_delay();
    Ok(connection)
}

/// An error of an established connection: `read tcp 10.0.0.2:40000->10.0.0.1:80: read: connection reset by peer`.
pub(super) fn broken(connection: &Connection, operation: &str, error: &io::Error) -> String {
    let error = go::system_error(error);
    let (local, peer) = connection.ends();
    let local = local.map(|local| local.to_string()).unwrap_or_default();
    format!("{operation} tcp {local}->{peer}: {operation}: {error}")
}
