//! The operator's part in what is probed: rules, whose annotations and HEALTHCHECKs count, and the limits that these
//! must keep. A value; never reads a file.

use std::{net::IpAddr, time::Duration};

use ipnet::IpNet;

use super::{
    Handler, HttpGet, ProbeSpec,
    rule::Rule,
    validate::{MAX_TIMEOUT, MIN_PERIOD},
};
use crate::{duration::GoDuration, glob::Glob};

/// What the operator decided. By default there are no rules, all annotations count, and no HEALTHCHECK does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The first that fits and has a probe of the type wins.
    pub rules: Vec<Rule>,
    /// The namespaces whose pods' annotations count; one that fits is enough.
    pub annotations: Vec<Glob>,
    /// The namespaces whose images' HEALTHCHECKs count; none where they are off.
    pub healthchecks: Vec<Glob>,
    /// What annotations and HEALTHCHECKs must keep.
    pub limits: Limits,
}

/// What those who are not the operator must keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Where `host` may point to.
    pub allow_hosts: Vec<IpNet>,
    /// The shortest period.
    pub min_period: Duration,
    /// The longest timeout: for so long an attempt may hold a place that others need.
    pub max_timeout: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            annotations: vec![Glob::from("*")],
            healthchecks: Vec::new(),
            limits: Limits::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { allow_hosts: Vec::new(), min_period: MIN_PERIOD, max_timeout: MAX_TIMEOUT }
    }
}

impl Policy {
    /// Whether the annotations of a pod in this namespace count.
    pub fn honours_annotations(&self, namespace: &str) -> bool {
        self.annotations.iter().any(|one| one.matches(namespace))
    }

    /// Whether any rule goes by the names of images.
    pub fn needs_image_names(&self) -> bool {
        self.rules.iter().any(|rule| rule.matcher.needs_image_names())
    }

    /// Whether the HEALTHCHECKs of images count in this namespace.
    pub fn honours_healthchecks(&self, namespace: &str) -> bool {
        self.healthchecks.iter().any(|one| one.matches(namespace))
    }
}

impl Limits {
    /// Why a definition that is valid in itself is refused, in Kubernetes' words; `None` where it keeps all limits.
    pub fn refusal(&self, spec: &ProbeSpec) -> Option<String> {
        let is_too_short = |time: Duration| time < self.min_period;
        let field = match spec.start {
            _ if is_too_short(spec.period) => Some("period"),
            Some(start) if is_too_short(start.interval) => Some("start interval"),
            Some(_) | None => None,
        };
        if let Some(field) = field {
            let least = GoDuration(self.min_period);
            return Some(format!("{field}: Forbidden: the operator's least is {least} (prober.minPeriod)"));
        }
        if spec.timeout > self.max_timeout {
            let most = GoDuration(self.max_timeout);
            return Some(format!("timeout: Forbidden: the operator's most is {most} (prober.maxTimeout)"));
        }
        let (field, host) = match &spec.handler {
            Handler::Exec { .. } | Handler::Grpc { .. } => return None,
            Handler::TcpSocket { host, .. } => ("tcpSocket.host", host),
            Handler::HttpGet(HttpGet { host, .. }) => ("httpGet.host", host),
        };
        let reason = self.host_refusal(host.as_deref()?)?;
        Some(format!("{field}: Forbidden: {reason}"))
    }

    fn host_refusal(&self, host: &str) -> Option<&'static str> {
        let Ok(address) = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() else {
            return Some(
                "another host than the pod must be written as an address, which the operator allows \
                 (prober.allowHosts)",
            );
        };
        if is_never_allowed(address) {
            return Some("loopback, link-local, multicast and unspecified addresses are never allowed");
        }
        let is_allowed = self.allow_hosts.iter().any(|net| net.contains(&address));
        (!is_allowed)
            .then_some("another host than the pod needs the operator's allowance (prober.allowHosts)")
    }
}

/// Whether an address leads back to the node itself, or to nobody in particular. Rules may name them, nobody else.
pub fn is_never_allowed(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            v4.is_loopback()
                || v4.is_link_local()
                || v4.is_multicast()
                || v4.is_unspecified()
                || v4.is_broadcast()
        }
        IpAddr::V6(v6) => {
            v6.is_loopback() || v6.is_unicast_link_local() || v6.is_multicast() || v6.is_unspecified()
        }
    }
}
