//! grpc: an address, a service and a limit in, an outcome out, by one Check of the gRPC health protocol over plaintext
//! HTTP/2. Every error is a failure (docs/kubelet-prober.md 8), unless it is our own.
//!
//! One deadline applies to connecting and the call together. The connection counts as established when the server has
//! shown that it speaks HTTP/2, and is tried again until the deadline: a closed port takes the whole timeout and is
//! reported as a timeout. The kubelet's text `error: failed to connect service at ...` therefore cannot occur here: it
//! is for targets that cannot be dialled at all, and ours is an address.

mod answer;
mod connection;
mod preface;

use std::{net::SocketAddr, time::Duration};

use tokio::time::{sleep, timeout_at};
use tonic::Code;

use self::answer::Refusal;
use super::{Fault, Outcome, go};
use crate::{ids::PodUid, proto::health::health_check_response::ServingStatus};

/// How we identify ourselves to the server. We speak gRPC ourselves, so our token is where the kubelet names its
/// library.
pub(crate) const USER_AGENT: &str = concat!("kube-probe/1.36 criprobe/", env!("CARGO_PKG_VERSION"));

/// Asks the server at `address` for the health of `service`, for a probe of `pod`; an empty one means the server as a
/// whole.
///
/// # Errors
/// [`Fault::Ours`] for want of something that the server has no part in.
pub(crate) async fn attempt(
    pod: &PodUid,
    address: SocketAddr,
    service: &str,
    timeout: Duration,
) -> Result<Outcome, Fault> {
    let deadline = sleep(timeout).deadline();
    let within = go::duration(timeout);
    let mut connection = match timeout_at(deadline, connection::connect(address, pod)).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(want)) => {
            let want = go::system_error(&want);
            return Err(Fault::Ours(format!("dial tcp {address}: connect: {want}").into()));
        }
        Err(_elapsed) => {
            return Ok(Outcome::failure(format!(
                "timeout: failed to connect service \"{address}\" within {within}: context deadline exceeded"
            )));
        }
    };
    Ok(match timeout_at(deadline, connection.check(address, service, timeout)).await {
        Ok(Ok(status)) if status == ServingStatus::Serving as i32 => {
            Outcome { output: "service healthy".into(), ..Outcome::success() }
        }
        Ok(Ok(status)) => {
            Outcome::failure(format!("service unhealthy (responded with \"{}\")", name(status)))
        }
        Ok(Err(Refusal { code: Code::Unimplemented, message })) => Outcome::failure(format!(
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {message}"
        )),
        Err(_) | Ok(Err(Refusal { code: Code::DeadlineExceeded, .. })) => {
            Outcome::failure(format!("timeout: health rpc did not complete within {within}"))
        }
        Ok(Err(refusal)) => Outcome::failure(format!("error: health rpc probe failed: {refusal}")),
    })
}

/// A status as Go prints the enum: by name, or by number where it has none.
fn name(status: i32) -> String {
    ServingStatus::try_from(status)
        .map_or_else(|_| status.to_string(), |status| status.as_str_name().to_owned())
}

#[cfg(test)]
pub(crate) mod tests;
