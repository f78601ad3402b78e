//! The operator's policy: rules, whose annotations and HEALTHCHECKs are used, and the limits for these. A value; never
//! reads a file.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use ipnet::IpNet;

use super::{
    Handler, HttpGet, ProbeSpec,
    acting::ActPolicy,
    image::ImagePatterns,
    rule::Rule,
    validate::{DOCKERS_TIMEOUT, MAX_TIMEOUT, MIN_PERIOD},
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
    /// What verdicts of failure may do.
    pub acting: ActPolicy,
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
            acting: ActPolicy::default(),
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

    /// The patterns by which rules go.
    pub fn image_patterns(&self) -> ImagePatterns {
        let matchers = self.rules.iter().map(|rule| &rule.matcher);
        matchers.filter(|matcher| matcher.needs_image_names()).map(|matcher| &matcher.image).collect()
    }

    /// Whether the HEALTHCHECKs of images count in this namespace.
    pub fn honours_healthchecks(&self, namespace: &str) -> bool {
        self.healthchecks.iter().any(|one| one.matches(namespace))
    }
}

impl Limits {
    /// Everything for which a definition that is valid in itself is refused, in Kubernetes' words; `None` where it keeps all limits.
    pub fn refusal(&self, spec: &ProbeSpec) -> Option<String> {
        let too_short = |field: &str, time: Duration| {
            let least = GoDuration(self.min_period);
            (time < self.min_period)
                .then(|| format!("{field}: Forbidden: the operator's minimum is {least} (prober.minPeriod)"))
        };
        let before = spec.on_failure_command.as_ref();
        let before = before.and_then(|before| self.timeout_refusal(before.timeout));
        let all = [
            too_short("period", spec.period),
            spec.start.and_then(|start| too_short("start interval", start.interval)),
            self.timeout_refusal(spec.timeout),
            before.map(|reason| format!("onFailureCommand.{reason}")),
            self.target_refusal(&spec.handler),
        ];
        let all: Vec<_> = all.into_iter().flatten().collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// The timeout that a HEALTHCHECK gets if its own is Docker's default, and longer than the operator allows: nobody
    /// chose it.
    pub(crate) fn cap(&self, healthcheck: &ProbeSpec) -> Option<Duration> {
        let is_default = healthcheck.timeout == DOCKERS_TIMEOUT;
        (is_default && healthcheck.timeout > self.max_timeout).then_some(self.max_timeout)
    }

    /// Why what a handler goes to is refused; `None` where it is not.
    pub(crate) fn target_refusal(&self, handler: &Handler) -> Option<String> {
        let (field, host) = match handler {
            Handler::Exec { .. } | Handler::Grpc { .. } => return None,
            Handler::TcpSocket { host, .. } => ("tcpSocket.host", host),
            Handler::HttpGet(HttpGet { host, .. }) => ("httpGet.host", host),
        };
        let reason = self.host_refusal(host.as_deref()?)?;
        Some(format!("{field}: Forbidden: {reason}"))
    }

    /// Why a timeout is refused; `None` where it is not.
    pub fn timeout_refusal(&self, timeout: Duration) -> Option<String> {
        let most = GoDuration(self.max_timeout);
        (timeout > self.max_timeout)
            .then(|| format!("timeout: Forbidden: the operator's maximum is {most} (prober.maxTimeout)"))
    }

    fn host_refusal(&self, host: &str) -> Option<&'static str> {
        // An address in brackets would be looked up as a name.
        let Ok(address) = host.parse::<IpAddr>() else {
            return Some(
                "a host other than the pod must be an IP address that the operator allows (prober.allowHosts)",
            );
        };
        if is_never_allowed(address) {
            return Some(
                "loopback, link-local, multicast, unspecified and cloud metadata addresses are never allowed",
            );
        }
        let is_allowed = self.allow_hosts.iter().any(|net| net.contains(&address));
        (!is_allowed)
            .then_some("a host other than the pod must be allowed by the operator (prober.allowHosts)")
    }
}

/// Whether only a rule may name an address, however wide the networks are that the operator allows: it leads back to
/// the node itself, to no host in particular, or to a cloud's services for its machines.
pub(crate) fn is_never_allowed(address: IpAddr) -> bool {
    let is_site_local = matches!(address, IpAddr::V6(v6) if v6.segments()[0] & 0xffc0 == 0xfec0);
    is_no_hosts(address) || is_site_local || is_metadata(address)
}

/// Whether an address cannot be that of a pod, whatever the runtime reports. The loopback itself can be: a runtime that
/// does not isolate its containers' networks reports it. So can the addresses of another cloud's metadata service.
pub(crate) fn is_never_a_pods(address: IpAddr) -> bool {
    is_no_hosts(address) && !address.is_loopback()
}

/// Whether an address leads back to the node itself, or to no host in particular, also through a translator or a
/// tunnel.
fn is_no_hosts(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_v4_no_hosts(v4),
        IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_unicast_link_local()
                || v6.is_multicast()
                || v6.is_unspecified()
                || is_locally_translated(v6)
                || embedded(v6).into_iter().flatten().any(is_v4_no_hosts)
        }
    }
}

/// IPv4 addresses outside the link-local network where clouds answer their machines, with credentials among other things:
/// - Alibaba Cloud: "Instance metadata" in the guide of ECS, and cloud-init's data source AliYun;
/// - Oracle Cloud Infrastructure Classic: "Retrieving Instance Metadata";
/// - the host agent of Azure, WireServer: "What is IP address 168.63.129.16?".
///
/// The others use link-local ones: `169.254.169.254` most, `169.254.170.2` and `169.254.170.23` Amazon's ECS and EKS,
/// `169.254.0.23` Tencent Cloud, `169.254.42.42` Scaleway, `fe80::a9fe:a9fe` OpenStack, Akamai and Exoscale.
const METADATA: [Ipv4Addr; 3] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(192, 0, 0, 192), Ipv4Addr::new(168, 63, 129, 16)];

/// The same over IPv6:
/// - Google Cloud: "View and query VM metadata", for VMs with IPv6 only;
/// - Oracle Cloud: oci-python-sdk, `instance_principals_security_token_signer.py`;
/// - Akamai, formerly Linode: cloud-init's data source Akamai;
/// - Scaleway: cloud-init's data source Scaleway;
/// - Alibaba Cloud: the tests of cloud-init's data source AliYun.
const METADATA_V6: [Ipv6Addr; 5] = [
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
    Ipv6Addr::new(0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),
    Ipv6Addr::new(0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200),
];

/// Whether it is within `fd00:ec2::/32`, where Amazon answers its machines: `::254` has the metadata, `::23` credentials
/// of pods ("Instance metadata" in the guide of EC2, "Pod Identity" in that of EKS).
fn is_amazons(v6: Ipv6Addr) -> bool {
    matches!(v6.segments(), [0xfd00, 0x0ec2, ..])
}

/// Whether a cloud's metadata service has the address, be it by way of a translator or a tunnel.
fn is_metadata(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => METADATA.contains(&v4),
        IpAddr::V6(v6) => {
            is_amazons(v6)
                || METADATA_V6.contains(&v6)
                || embedded(v6).into_iter().flatten().any(|v4| METADATA.contains(&v4))
        }
    }
}

fn is_v4_no_hosts(v4: Ipv4Addr) -> bool {
    v4.is_loopback() || v4.is_link_local() || v4.is_multicast() || v4.is_unspecified() || v4.is_broadcast()
}

/// Whether it is within 64:ff9b:1::/48 (RFC 8215): where in it the IPv4 address is, only the translator knows.
fn is_locally_translated(v6: Ipv6Addr) -> bool {
    matches!(v6.segments(), [0x64, 0xff9b, 1, ..])
}

/// The IPv4 addresses that packets to an IPv6 address may be sent on to.
fn embedded(v6: Ipv6Addr) -> [Option<Ipv4Addr>; 2] {
    let v4 = |high: u16, low: u16| Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match v6.segments() {
        // IPv4-compatible and IPv4-mapped (RFC 4291), IPv4-translated (RFC 7915), NAT64 (RFC 6052).
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => [v4(high, low), None],
        // 6to4 (RFC 3056).
        [0x2002, high, low, ..] => [v4(high, low), None],
        // Teredo (RFC 4380): the server, and the client with its bits inverted.
        [0x2001, 0, server_high, server_low, _, _, high, low] => {
            [v4(server_high, server_low), v4(!high, !low)]
        }
        // ISATAP (RFC 5214).
        [.., 0 | 0x200, 0x5efe, high, low] => [v4(high, low), None],
        _ => [None, None],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_09_no_address_leads_to_the_node_however_it_is_written() {
        let everything = ["0.0.0.0/0", "::/0"].map(|net| net.parse().unwrap()).to_vec();
        let limits = Limits { allow_hosts: everything, ..Limits::default() };
        for bad in [
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "169.254.170.2",
            "169.254.170.23",
            "224.0.0.1",
            "0.0.0.0",
            "255.255.255.255",
            "100.100.100.200",
            "192.0.0.192",
            "168.63.129.16",
        ] {
            let v4: Ipv4Addr = bad.parse().unwrap();
            let [a, b, c, d] = v4.octets();
            let inverted = Ipv4Addr::from(!u32::from(v4));
            let [e, f, g, h] = inverted.octets();
            for host in [
                bad.to_owned(),
                format!("::{bad}"),
                format!("::ffff:{bad}"),
                format!("::ffff:0:{bad}"),
                format!("64:ff9b::{bad}"),
                format!("64:ff9b:1::{bad}"),
                format!("2002:{a:02x}{b:02x}:{c:02x}{d:02x}::1"),
                format!("2002:{a:02x}{b:02x}:{c:02x}{d:02x}:1:2:3:4:5"),
                format!("2001:0:{a:02x}{b:02x}:{c:02x}{d:02x}::1"),
                format!("2001:0:102:304::{e:02x}{f:02x}:{g:02x}{h:02x}"),
                format!("2001:db8::5efe:{bad}"),
                format!("2001:db8::200:5efe:{bad}"),
            ] {
                let refusal = limits.host_refusal(&host).unwrap_or_default();
                assert!(refusal.ends_with("are never allowed"), "{host}: {refusal}");
            }
        }
        for bad in [
            "::",
            "::1",
            "fe80::1",
            "ff02::1",
            "64:ff9b:1::102:304",
            "64:ff9b:1:7f00:0:100::",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "fd00:42::42",
            "fd00:c1::a9fe:a9fe",
            "fd00:a9fe:a9fe::1",
            "fd00:100::100:200",
            "fe80::a9fe:a9fe",
            "fec0::1",
            "feff::1",
        ] {
            assert!(
                limits.host_refusal(bad).is_some_and(|reported| reported.ends_with("never allowed")),
                "{bad}"
            );
        }
        for name in ["[::1]", "[2001:db8::1]", "[10.0.0.1]", "127.1", "0x7f.1", "fe80::1%eth0", "localhost"] {
            let refusal = limits.host_refusal(name).unwrap_or_default();
            assert!(refusal.contains("must be an IP address"), "{name}: {refusal}");
        }
        for good in [
            "10.0.0.1",
            "192.0.2.1",
            "2001:db8::1",
            "fd00::1",
            "fd00:ec3::254",
            "fd20:ce::1",
            "fd00:c1::1",
            "fd00:a9fe:a9fe::2",
            "100.100.100.201",
            "::ffff:10.0.0.1",
            "64:ff9b::192.0.2.1",
            "2002:a00:1::1",
            "2001:0:c000:201::3fff:fdfe",
            "2001:db8::5efe:10.0.0.1",
        ] {
            assert_eq!(limits.host_refusal(good), None, "{good}");
        }
    }

    #[test]
    fn row_09_a_pods_own_address_is_none_that_leads_elsewhere() {
        for (address, is_never) in [
            ("10.0.0.1", false),
            ("2001:db8::1", false),
            ("127.0.0.1", false),
            ("100.100.100.200", false),
            ("fec0::1", false),
            ("::1", false),
            ("169.254.169.254", true),
            ("::ffff:127.0.0.1", true),
            ("64:ff9b::7f00:1", true),
            ("0.0.0.0", true),
            ("ff02::1", true),
        ] {
            assert_eq!(is_never_a_pods(address.parse().unwrap()), is_never, "{address}");
        }
    }
}
