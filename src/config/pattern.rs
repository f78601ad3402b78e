//! Patterns and networks as operators write them: text in, a pattern that can match something or the reason why it
//! cannot out. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::{document::fault::quoted, glob::Glob, spec::policy};

/// 256 characters of a pattern, signs included: no name and no image is longer that Kubernetes or a registry accepts.
/// A longer one is an error.
const MAX_PATTERN: usize = 256;

/// What no name of a pod, namespace, container, image or label's value holds, and what other pattern languages use.
const FOREIGN: &str = "[]{}()|^$\\!,;\"'`<>&";

/// What a pattern stands for, as far as that decides what may stand in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// A name, or an image.
    Name,
    /// The value of a label, which may be empty.
    LabelValue,
}

/// Reads a pattern: `*` is any text, `?` any one character.
///
/// # Errors
/// It can match nothing, and what to write instead.
pub fn parse(text: &str, of: Of) -> Result<Glob, String> {
    let fault = |what: &str| Err(format!("{} matches nothing: {what}", quoted(text)));
    if text.is_empty() && of == Of::Name {
        return fault("write \"*\" for all");
    }
    if text.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return fault("no name holds blanks");
    }
    if let Some(sign) = text.chars().find(|c| FOREIGN.contains(*c)) {
        return fault(&format!("no name holds {sign:?}, and only * and ? are special"));
    }
    if text.chars().count() > MAX_PATTERN {
        return fault(&format!("a pattern has at most {MAX_PATTERN} characters"));
    }
    Ok(Glob::from(text))
}

/// Reads a network, `10.0.0.0/8`, or a single address.
///
/// # Errors
/// It is neither, or can allow nothing, and what to write instead.
pub fn network(text: &str) -> Result<IpNet, String> {
    let single = text.parse::<IpAddr>().map(IpNet::from);
    let net = single.or_else(|_| text.parse::<IpNet>()).map_err(|_| {
        format!("{} is no network: write one such as 10.0.0.0/8, or an address", quoted(text))
    })?;
    if net != net.trunc() {
        return Err(format!("{net} has bits beyond its prefix: write {}", net.trunc()));
    }
    // Nets that hold others too may begin and end with such ones, but have others in the middle.
    let some = [net.network(), net.broadcast(), middle(net)];
    if some.into_iter().all(policy::is_never_allowed) {
        return Err(format!(
            "{net} allows nothing: loopback, link-local, multicast, unspecified and cloud metadata addresses are for rules alone"
        ));
    }
    Ok(net)
}

/// An address within a network, whose last bits are neither all zero nor all one, nor have zeros alone in front.
fn middle(net: IpNet) -> IpAddr {
    match net {
        IpNet::V4(net) => {
            Ipv4Addr::from(u32::from(net.network()) | (0xaaaa_aaaa & u32::from(net.hostmask()))).into()
        }
        IpNet::V6(net) => {
            let bits = u128::MAX / 3 * 2;
            Ipv6Addr::from(u128::from(net.network()) | (bits & u128::from(net.hostmask()))).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn told(text: &str) -> String {
        parse(text, Of::Name).map_or_else(|reason| reason, |glob| format!("ok {}", glob.as_str()))
    }

    fn network_told(text: &str) -> String {
        network(text).map_or_else(|reason| reason, |net| format!("ok {net}"))
    }

    #[test]
    fn a_pattern_that_can_match_nothing_is_told_with_what_to_write() {
        insta::assert_snapshot!(told("shop-*"), @"ok shop-*");
        insta::assert_snapshot!(told("*/nginx:1.?@sha256:*"), @"ok */nginx:1.?@sha256:*");
        insta::assert_snapshot!(told(""), @r#""" matches nothing: write "*" for all"#);
        insta::assert_snapshot!(told("shop "), @r#""shop " matches nothing: no name holds blanks"#);
        insta::assert_snapshot!(told("a\u{1b}[2J"), @r#""a\u{1b}[2J" matches nothing: no name holds blanks"#);
        insta::assert_snapshot!(told("web-[0-9]"), @r#""web-[0-9]" matches nothing: no name holds '[', and only * and ? are special"#);
        insta::assert_snapshot!(told("shop,cart"), @r#""shop,cart" matches nothing: no name holds ',', and only * and ? are special"#);
        insta::assert_snapshot!(told("^web$"), @r#""^web$" matches nothing: no name holds '^', and only * and ? are special"#);
        insta::assert_snapshot!(told(&"x".repeat(257)), @r#""xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"... matches nothing: a pattern has at most 256 characters"#);
        assert_eq!(parse("", Of::LabelValue), Ok(Glob::from("")), "a label may be empty");
    }

    #[test]
    fn a_network_that_allows_nothing_is_told_with_what_to_write() {
        insta::assert_snapshot!(network_told("10.0.0.0/8"), @"ok 10.0.0.0/8");
        insta::assert_snapshot!(network_told("10.1.2.3"), @"ok 10.1.2.3/32");
        insta::assert_snapshot!(network_told("2001:db8::/32"), @"ok 2001:db8::/32");
        insta::assert_snapshot!(network_told("0.0.0.0/0"), @"ok 0.0.0.0/0");
        for net in ["::/0", "64:ff9b::/96", "2002::/16", "2001::/32", "::ffff:0.0.0.0/96", "240.0.0.0/4"] {
            assert_eq!(network_told(net), format!("ok {net}"), "it allows something");
        }
        for net in ["64:ff9b::7f00:0/104", "2002:a9fe::/32", "64:ff9b:1::/48", "fe80::/10", "224.0.0.0/4"] {
            assert!(network_told(net).contains(" allows nothing: "), "{net}");
        }
        insta::assert_snapshot!(network_told("10.0.0.1/8"), @"10.0.0.1/8 has bits beyond its prefix: write 10.0.0.0/8");
        insta::assert_snapshot!(network_told("10.0.0.0/33"), @r#""10.0.0.0/33" is no network: write one such as 10.0.0.0/8, or an address"#);
        insta::assert_snapshot!(network_told("db.example.org"), @r#""db.example.org" is no network: write one such as 10.0.0.0/8, or an address"#);
        insta::assert_snapshot!(network_told("127.0.0.0/8"), @"127.0.0.0/8 allows nothing: loopback, link-local, multicast, unspecified and cloud metadata addresses are for rules alone");
        insta::assert_snapshot!(network_told("::1"), @"::1/128 allows nothing: loopback, link-local, multicast, unspecified and cloud metadata addresses are for rules alone");
        insta::assert_snapshot!(network_told("169.254.0.0/16"), @"169.254.0.0/16 allows nothing: loopback, link-local, multicast, unspecified and cloud metadata addresses are for rules alone");
    }

    proptest! {
        #[test]
        fn a_pattern_that_is_accepted_matches_itself(text in any::<String>(), plain in "[a-z*?./:-]{0,12}") {
            for text in [text, plain] {
                if let Ok(glob) = parse(&text, Of::LabelValue) {
                    prop_assert!(glob.matches(&text));
                }
            }
        }
    }
}
