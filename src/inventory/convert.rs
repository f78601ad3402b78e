//! Converts the runtime's messages into plain values: times, states, addresses. Values that are missing or malformed
//! become absent, never an error.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::pod::{ContainerEnd, ContainerState, PodNetwork};
use crate::proto::cri;

/// 16 addresses of a pod are kept, the primary one first: Kubernetes assigns two.
const MAX_ADDRESSES: usize = 16;

/// Nanoseconds since the epoch; 0 and below mean "not yet".
pub(super) fn time(nanoseconds: i64) -> Option<SystemTime> {
    u64::try_from(nanoseconds)
        .ok()
        .filter(|nanos| *nanos > 0)
        .map(|nanos| UNIX_EPOCH + Duration::from_nanos(nanos))
}

/// A container's state, with its exit code if known.
pub(super) fn state(state: i32, exit_code: Option<i32>) -> ContainerState {
    match cri::ContainerState::try_from(state) {
        Ok(cri::ContainerState::ContainerCreated) => ContainerState::Created,
        Ok(cri::ContainerState::ContainerRunning) => ContainerState::Running,
        Ok(cri::ContainerState::ContainerExited) => ContainerState::Exited { exit_code },
        Ok(cri::ContainerState::ContainerUnknown) | Err(_) => ContainerState::Unknown,
    }
}

/// How a container ended, of one that the runtime reports as exited.
pub(super) fn end(status: &cri::ContainerStatus) -> Option<ContainerEnd> {
    let has_exited = cri::ContainerState::try_from(status.state) == Ok(cri::ContainerState::ContainerExited);
    has_exited.then(|| ContainerEnd {
        finished_at: time(status.finished_at),
        reason: status.reason.as_str().into(),
        message: status.message.as_str().into(),
    })
}

/// The image as the user named it. A kubelet creates containers by the image's ID, and passes the name from the pod's
/// manifest beside it (`user_specified_image`).
pub(super) fn image(spec: Option<cri::ImageSpec>) -> Arc<str> {
    let spec = spec.unwrap_or_default();
    if spec.user_specified_image.is_empty() { spec.image.into() } else { spec.user_specified_image.into() }
}

/// The addresses of a sandbox.
pub(super) fn network(status: &cri::PodSandboxStatus) -> PodNetwork {
    let options = status.linux.as_ref().and_then(|linux| linux.namespaces.as_ref()?.options.as_ref());
    if options.is_some_and(is_host_network) {
        return PodNetwork::Host;
    }
    let Some(network) = &status.network else { return PodNetwork::Unknown };
    let others = network.additional_ips.iter().map(|ip| &ip.ip);
    let addresses: Vec<IpAddr> = std::iter::once(&network.ip)
        .chain(others)
        .filter_map(|ip| ip.parse().ok())
        .take(MAX_ADDRESSES)
        .collect();
    if addresses.is_empty() { PodNetwork::Unknown } else { PodNetwork::Pod(addresses) }
}

fn is_host_network(options: &cri::NamespaceOption) -> bool {
    options.network == cri::NamespaceMode::Node as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_called_as_people_named_it() {
        let spec = |image: &str, user_specified: &str| cri::ImageSpec {
            image: image.to_owned(),
            user_specified_image: user_specified.to_owned(),
            ..cri::ImageSpec::default()
        };
        for (reported, name) in [
            (Some(spec("nginx:1", "")), "nginx:1"),
            (Some(spec("sha256:0123", "docker.io/library/nginx:1")), "docker.io/library/nginx:1"),
            (None, ""),
        ] {
            assert_eq!(&*image(reported), name);
        }
    }

    #[test]
    fn a_time_of_zero_is_not_yet() {
        assert_eq!(time(0), None);
        assert_eq!(time(1_500_000_000), Some(UNIX_EPOCH + Duration::from_millis(1500)));
    }

    #[test]
    fn an_unknown_address_is_never_an_address() {
        let mut status = cri::PodSandboxStatus::default();
        assert_eq!(network(&status), PodNetwork::Unknown);
        status.network = Some(cri::PodSandboxNetworkStatus { ip: String::new(), additional_ips: vec![] });
        assert_eq!(network(&status), PodNetwork::Unknown);
        status.network = Some(cri::PodSandboxNetworkStatus {
            ip: "10.1.2.3".into(),
            additional_ips: vec![cri::PodIp { ip: "fd00::3".into() }],
        });
        assert_eq!(
            network(&status),
            PodNetwork::Pod(vec!["10.1.2.3".parse().unwrap(), "fd00::3".parse().unwrap()])
        );
    }
}
