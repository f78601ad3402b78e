//! Patterns and networks as operators write them: text in; a pattern that can match something, or the reason why it
//! cannot, out. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::{document::fault::quoted, glob::Glob, spec::policy};

/// 256 characters: the longest pattern. Kubernetes and registries accept no name or image longer than this. A longer
/// one is an error.
const MAX_PATTERN: usize = 256;

/// Characters that do not occur in names of pods, namespaces, containers or images or in label values, and that other
/// pattern languages use.
const FOREIGN: &str = "[]{}()|^$\\!,;\"'`<>&";

/// What a pattern matches, as far as this determines which characters are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// A name, or an image.
    Name,
    /// The value of a label, which may be empty.
    LabelValue,
}

/// Reads a pattern: `*` matches any text, `?` any one character.
///
/// # Errors
/// The pattern cannot match anything; the error says what to write instead.
pub(super) fn parse(text: &str, of: Of) -> Result<Glob, String> {
    let fault = |what: &str| Err(format!("{} matches nothing: {what}", quoted(text)));
    if text.is_empty() && of == Of::Name {
        return fault("write \"*\" for all");
    }
    if text.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return fault("names contain no spaces");
    }
    if let Some(sign) = text.chars().find(|c| FOREIGN.contains(*c)) {
        return fault(&format!("names contain no {sign:?}, and only * and ? are special"));
    }
    if text.chars().count() > MAX_PATTERN {
        return fault(&format!("a pattern has at most {MAX_PATTERN} characters"));
    }
    Ok(Glob::from(text))
}

/// Reads a network, `10.0.0.0/8`, or a single address.
///
/// # Errors
/// It is neither, or has no effect; the error says what to write instead.
pub(super) fn network(text: &str) -> Result<IpNet, String> {
    let single = text.parse::<IpAddr>().map(IpNet::from);
    let net = single.or_else(|_| text.parse::<IpNet>()).map_err(|_| {
        format!("{} is not a network: write one such as 10.0.0.0/8, or an address", quoted(text))
    })?;
    if net != net.trunc() {
        return Err(format!("{net} has bits set beyond its prefix: write {}", net.trunc()));
    }
    // Networks that also contain other addresses may begin and end with such ones, but have others in the middle.
    let some = [net.network(), net.broadcast(), middle(net)];
    if some.into_iter().all(policy::is_never_allowed) {
        return Err(format!(
            "{net} has no effect: only rules may use loopback, link-local, multicast, unspecified and cloud metadata addresses"
        ));
    }
    Ok(net)
}

/// An address within a network whose host bits are mixed: not all zero, not all one, and not with only zeros in front.
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

    fn reported(text: &str) -> String {
        parse(text, Of::Name).map_or_else(|reason| reason, |glob| format!("ok {}", glob.as_str()))
    }

    fn network_told(text: &str) -> String {
        network(text).map_or_else(|reason| reason, |net| format!("ok {net}"))
    }

    #[test]
    fn a_pattern_that_can_match_nothing_is_told_with_what_to_write() {
        insta::assert_snapshot!(reported("shop-*"), @"ok shop-*");
        insta::assert_snapshot!(reported("*/nginx:1.?@sha256:*"), @"ok */nginx:1.?@sha256:*");
        insta::assert_snapshot!(reported(""), @r#""" matches nothing: write "*" for all"#);
        insta::assert_snapshot!(reported("shop "), @r#""shop " matches nothing: names contain no spaces"#);
        insta::assert_snapshot!(reported("a\u{1b}[2J"), @r#""a\u{1b}[2J" matches nothing: names contain no spaces"#);
        insta::assert_snapshot!(reported("web-[0-9]"), @r#""web-[0-9]" matches nothing: names contain no '[', and only * and ? are special"#);
        insta::assert_snapshot!(reported("shop,cart"), @r#""shop,cart" matches nothing: names contain no ',', and only * and ? are special"#);
        insta::assert_snapshot!(reported("^web$"), @r#""^web$" matches nothing: names contain no '^', and only * and ? are special"#);
        insta::assert_snapshot!(reported(&"x".repeat(257)), @r#""xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"... matches nothing: a pattern has at most 256 characters"#);
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
            assert!(network_told(net).contains(" has no effect: "), "{net}");
        }
        insta::assert_snapshot!(network_told("10.0.0.1/8"), @"10.0.0.1/8 has bits set beyond its prefix: write 10.0.0.0/8");
        insta::assert_snapshot!(network_told("10.0.0.0/33"), @r#""10.0.0.0/33" is not a network: write one such as 10.0.0.0/8, or an address"#);
        insta::assert_snapshot!(network_told("db.example.org"), @r#""db.example.org" is not a network: write one such as 10.0.0.0/8, or an address"#);
        insta::assert_snapshot!(network_told("127.0.0.0/8"), @"127.0.0.0/8 has no effect: only rules may use loopback, link-local, multicast, unspecified and cloud metadata addresses");
        insta::assert_snapshot!(network_told("::1"), @"::1/128 has no effect: only rules may use loopback, link-local, multicast, unspecified and cloud metadata addresses");
        insta::assert_snapshot!(network_told("169.254.0.0/16"), @"169.254.0.0/16 has no effect: only rules may use loopback, link-local, multicast, unspecified and cloud metadata addresses");
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
