//! What a request may ask for, by the socket that it came on. In: the head of a request. Out: nothing, or the answer that
//! refuses it. Never does IO.
//!
//! Over TCP nothing can be changed. Metrics and health are always there; the page and the reading API only where the
//! setting says so, and then only under names that no other site can have: a page of another site that has its own name
//! resolve to this address (DNS rebinding) is refused by the name.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use axum::http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, ORIGIN, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS},
    request::Parts,
};

use super::routes::Refusal;
use crate::config::PageAccess;

/// What anyone may read who can reach the TCP address.
const ALWAYS: [&str; 3] = ["/livez", "/metrics", "/readyz"];

/// What a browser sends about where a request comes from.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Keeps other sites from embedding an answer.
const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Whatever text of a pod got into the page: a browser runs and loads nothing but the page's own files.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What may be asked for at one TCP address.
#[derive(Clone, Debug)]
pub(crate) struct HttpRights {
    /// What is bound.
    pub address: SocketAddr,
    pub page: PageAccess,
    /// The node's hostname.
    pub node: Arc<str>,
}

impl HttpRights {
    /// Whether the page and the reading API are there.
    pub(crate) fn serve_page(&self) -> bool {
        match self.page {
            PageAccess::Loopback => self.is_loopback(),
            PageAccess::Always => true,
            PageAccess::Never => false,
        }
    }

    /// Whether only processes of this node can connect. A wildcard is all addresses.
    pub(crate) fn is_loopback(&self) -> bool {
        self.address.ip().to_canonical().is_loopback()
    }

    /// Refuses what may not be asked for.
    pub(super) fn check(&self, head: &Parts) -> Result<(), Refusal> {
        let path = head.uri.path();
        if !matches!(head.method, Method::GET | Method::HEAD) {
            let words = "nothing can be changed over TCP, only read: use the API socket";
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, words.to_owned()));
        }
        if is_always(path) {
            return Ok(());
        }
        if !self.serve_page() {
            return Err(Refusal::new(StatusCode::FORBIDDEN, self.why_not(path)));
        }
        let mut hosts = head.headers.get_all(HOST).iter().map(HeaderValue::as_bytes);
        let host = hosts.next().filter(|_| hosts.next().is_none());
        let target = head.uri.authority().map(|authority| authority.as_str().as_bytes());
        let is_ours = |host: Option<&[u8]>| host.and_then(name_of).is_some_and(|name| self.is_our_name(name));
        if !is_ours(host) || target.is_some() && !is_ours(target) {
            let known = match self.page {
                PageAccess::Always => "localhost, an IP address of this node, or its hostname",
                PageAccess::Loopback | PageAccess::Never => {
                    "localhost or a loopback address such as 127.0.0.1"
                }
            };
            let words = format!("the request names another host: use {known}");
            return Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, words));
        }
        check_site(head)
    }

    fn why_not(&self, path: &str) -> String {
        let there = format!("{path} is not served here, only {}", ALWAYS.join(", "));
        match self.page {
            PageAccess::Never => format!("{there}: api.page is never; use the API socket"),
            PageAccess::Loopback | PageAccess::Always => format!(
                "{there}: api.page is loopback, and {} is not on loopback; use the API socket, or set api.page to always",
                self.address
            ),
        }
    }

    /// Whether no other site can have this name. An address is no name that others could make resolve to us. A longer
    /// name that begins with the node's may belong to anyone.
    fn is_our_name(&self, name: &str) -> bool {
        let has_suffix = |suffix: &str| {
            name.len() > suffix.len()
                && name.as_bytes()[name.len() - suffix.len()..].eq_ignore_ascii_case(suffix.as_bytes())
        };
        let is_localhost = name.eq_ignore_ascii_case("localhost") || has_suffix(".localhost");
        let address: Option<IpAddr> = name.parse().ok();
        is_localhost
            || address.is_some_and(|address| address.to_canonical().is_loopback())
            || self.page == PageAccess::Always
                && (address.is_some() || !self.node.is_empty() && name.eq_ignore_ascii_case(&self.node))
    }
}

/// Whether anyone may read this who can reach the address.
pub(super) fn is_always(path: &str) -> bool {
    ALWAYS.contains(&path)
}

/// Refuses what a page of another site made a browser ask for: also on the API socket, which a user may have forwarded to
/// a port of their own. A link to the page itself is followed. No page of ours changes anything.
pub(super) fn check_site(head: &Parts) -> Result<(), Refusal> {
    let is_reading = matches!(head.method, Method::GET | Method::HEAD);
    let mut sites = head.headers.get_all(SEC_FETCH_SITE).iter().map(HeaderValue::as_bytes);
    let is_other = sites.any(|site| !matches!(site, b"same-origin" | b"none")) && head.uri.path() != "/";
    if is_other || !is_reading && head.headers.contains_key(ORIGIN) {
        let words =
            "a page of another site asks for this in a browser, which may only show criprobe's own page";
        return Err(Refusal::new(StatusCode::FORBIDDEN, words.to_owned()));
    }
    Ok(())
}

/// Sets what browsers have to know about each answer.
pub(super) fn protect(headers: &mut HeaderMap) {
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CROSS_ORIGIN_RESOURCE_POLICY, "same-origin"),
        (CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// The name or address in a `Host` header, without port, brackets and the dot of the root.
fn name_of(host: &[u8]) -> Option<&str> {
    let host = str::from_utf8(host).ok()?;
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) = rest.split_once(']')?;
            // Brackets are for IPv6 only.
            address.parse::<std::net::Ipv6Addr>().ok()?;
            (address, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
        }
        None => host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    let is_port = port
        .is_none_or(|port| port.bytes().all(|digit| digit.is_ascii_digit()) && port.parse::<u16>().is_ok());
    let is_name =
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':'));
    (is_port && is_name).then_some(name.strip_suffix('.').unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn rights(address: &str, page: PageAccess) -> HttpRights {
        HttpRights { address: address.parse().unwrap(), page, node: "Node-1".into() }
    }

    fn code(rights: &HttpRights, method: &str, path: &str, headers: &[(&str, &str)]) -> u16 {
        let request =
            headers.iter().fold(Request::builder().method(method).uri(path), |request, (name, value)| {
                request.header(*name, *value)
            });
        let (head, ()) = request.body(()).unwrap().into_parts();
        rights.check(&head).map_or_else(|refusal| refusal.code().as_u16(), |()| 200)
    }

    #[test]
    fn the_page_is_where_the_setting_says_and_nothing_can_be_changed_anywhere() {
        use PageAccess::{Always, Loopback, Never};
        for (address, page, is_there) in [
            ("127.0.0.1:9090", Loopback, true),
            ("127.8.0.1:9090", Loopback, true),
            ("[::1]:9090", Loopback, true),
            ("[::ffff:127.0.0.1]:9090", Loopback, true),
            ("0.0.0.0:9090", Loopback, false),
            ("[::]:9090", Loopback, false),
            ("10.0.0.7:9090", Loopback, false),
            ("127.0.0.1:9090", Never, false),
            ("0.0.0.0:9090", Never, false),
            ("127.0.0.1:9090", Always, true),
            ("[::]:9090", Always, true),
            ("10.0.0.7:9090", Always, true),
        ] {
            let rights = rights(address, page);
            assert_eq!(rights.serve_page(), is_there, "{address} {page:?}");
            let host = [("host", "localhost:9090")];
            for path in ["/", "/page.js", "/v1/status", "/v1/live", "/v1/none", "/metrics/", "//metrics"] {
                let expected = if is_there { 200 } else { 403 };
                assert_eq!(code(&rights, "GET", path, &host), expected, "{address} {page:?} {path}");
                assert_eq!(code(&rights, "HEAD", path, &host), expected, "{address} {page:?} {path}");
            }
            for path in ALWAYS {
                assert_eq!(code(&rights, "GET", path, &[("host", "evil.example")]), 200, "{path}");
                assert_eq!(code(&rights, "GET", path, &[]), 200, "{path}");
            }
            for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE", "QUERY"] {
                for path in ["/", "/metrics", "/v1/run", "/v1/probes/a/b/c/d/pause"] {
                    assert_eq!(code(&rights, method, path, &host), 405, "{method} {path}");
                }
            }
        }
    }

    #[test]
    fn only_names_that_no_other_site_can_have_are_answered() {
        let loopback = rights("127.0.0.1:9090", PageAccess::Loopback);
        let always = rights("0.0.0.0:9090", PageAccess::Always);
        for (host, on_loopback, on_always) in [
            ("localhost", 200, 200),
            ("LocalHost:8080", 200, 200),
            ("localhost.:9090", 200, 200),
            ("a.b.localhost:9090", 200, 200),
            ("127.0.0.1", 200, 200),
            ("127.255.0.3:1", 200, 200),
            ("[::1]:9090", 200, 200),
            ("[::1]", 200, 200),
            ("[::ffff:127.0.0.1]:9090", 200, 200),
            ("10.0.0.7:9090", 421, 200),
            ("[2001:db8::1]:9090", 421, 200),
            ("node-1:9090", 421, 200),
            ("NODE-1.", 421, 200),
            ("node-1.evil.example", 421, 421),
            ("evil.example", 421, 421),
            ("localhost.evil.example", 421, 421),
            ("evillocalhost", 421, 421),
            (".localhost", 421, 421),
            ("evil.example/.localhost", 421, 421),
            ("localhost:+80", 421, 421),
            ("127.0.0.1.evil.example", 421, 421),
            ("0x7f.1", 421, 421),
            ("2130706433", 421, 421),
            ("127.1", 421, 421),
            ("localhost:9090:1", 421, 421),
            ("localhost:x", 421, 421),
            ("localhost:", 421, 421),
            ("localhost@evil.example", 421, 421),
            ("[localhost]", 421, 421),
            ("[::1", 421, 421),
            ("::1", 421, 421),
            ("", 421, 421),
        ] {
            let code = |rights| code(rights, "GET", "/v1/status", &[("host", host)]);
            assert_eq!((code(&loopback), code(&always)), (on_loopback, on_always), "{host}");
        }
        assert_eq!(code(&loopback, "GET", "/", &[]), 421, "a name is needed");
        let nameless = HttpRights { node: "".into(), ..always };
        assert_eq!(code(&nameless, "GET", "/", &[("host", "")]), 421);
    }

    #[test]
    fn a_page_of_another_site_reads_nothing_but_may_link_to_the_page() {
        let rights = rights("127.0.0.1:9090", PageAccess::Loopback);
        for (site, page, api) in [
            (None, 200, 200),
            (Some("none"), 200, 200),
            (Some("same-origin"), 200, 200),
            (Some("same-site"), 200, 403),
            (Some("cross-site"), 200, 403),
            (Some("unheard-of"), 200, 403),
        ] {
            let mut headers = vec![("host", "localhost:9090")];
            headers.extend(site.map(|site| ("sec-fetch-site", site)));
            for (path, expected) in [("/", page), ("/page.js", api), ("/v1/pods", api), ("/v1/live", api)] {
                assert_eq!(code(&rights, "GET", path, &headers), expected, "{site:?} {path}");
            }
        }
    }

    #[test]
    fn a_page_of_another_site_changes_nothing_through_a_forwarded_socket() {
        for (method, headers, is_refused) in [
            ("POST", &[][..], false),
            ("POST", &[("origin", "http://localhost:9090")], true),
            ("POST", &[("sec-fetch-site", "cross-site")], true),
            ("GET", &[("sec-fetch-site", "cross-site")], true),
            ("GET", &[("origin", "http://localhost:9090"), ("sec-fetch-site", "same-origin")], false),
        ] {
            let request = Request::builder().method(method).uri("/v1/run");
            let request =
                headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
            let (head, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(check_site(&head).is_err(), is_refused, "{method} {headers:?}");
        }
    }
}
