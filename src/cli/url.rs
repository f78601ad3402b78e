//! The URL of `run --http-get`: its text in, scheme, host, port and path out. Never resolves or escapes anything: the path
//! goes as it is written, as in a pod's manifest.

use std::str::FromStr;

/// What to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProbeUrl {
    /// `HTTP` or `HTTPS`, as Kubernetes writes them.
    pub(super) scheme: &'static str,
    /// Instead of the container's own pod; the daemon decides whether it is allowed.
    pub(super) host: Option<String>,
    /// A number, or the name of a declared port.
    pub(super) port: String,
    /// With its query; `/` by default.
    pub(super) path: String,
}

const FORMS: &str = "write http://:8080/healthz, https://:8443/healthz, :8080/healthz, or /healthz for port 80; for a host \
    that prober.allowHosts permits, http://10.0.0.1:8080/healthz";

impl FromStr for ProbeUrl {
    type Err = String;

    /// `[http:|https:]//[HOST][:PORT][/PATH]`, `:PORT[/PATH]` or `/PATH`: the defaults are http, port 80, or
    /// 443 for https, and the container's pod as host.
    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, usual, rest) = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => ("HTTP", "80", rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => ("HTTPS", "443", rest),
            // Everything after the first slash is path and query.
            Some((before, _)) if !before.contains('/') => {
                return Err(format!("the scheme must be http or https: {FORMS}"));
            }
            Some(_) | None => ("HTTP", "80", text),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if text.is_empty() {
            return Err(format!("empty: {FORMS}"));
        }
        let (host, port) = split_authority(authority)?;
        let is_bare = rest.len() == text.len();
        if host.is_some() && is_bare {
            return Err(format!("the scheme is missing before the host: {FORMS}"));
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { scheme, host: host.map(str::to_owned), port: port.unwrap_or(usual).to_owned(), path })
    }
}

/// Host and port, if present; an IPv6 address is in brackets.
fn split_authority(text: &str) -> Result<(Option<&str>, Option<&str>), String> {
    let (host, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(Some((host, port))) => (host, port),
        Some(None) => return Err(format!("a closing bracket is missing: {FORMS}")),
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match port.strip_prefix(':') {
        Some("") => return Err(format!("the port is missing after the colon: {FORMS}")),
        Some(port) if port.contains('@') => return Err(format!("a user is not allowed: {FORMS}")),
        Some(port) if port.contains(':') => return Err(format!("put the address in brackets: {FORMS}")),
        Some(port) => Some(port),
        None if port.is_empty() => None,
        None => return Err(format!("a colon is missing before the port: {FORMS}")),
    };
    if host.contains('@') {
        return Err(format!("a user is not allowed: {FORMS}"));
    }
    Ok((Some(host).filter(|host| !host.is_empty()), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheme_host_port_and_path_are_taken() {
        for (text, parts) in [
            ("http://:8080/healthz", ("HTTP", None, "8080", "/healthz")),
            ("https://:8443/x?y=z#f", ("HTTPS", None, "8443", "/x?y=z#f")),
            ("HTTPS:///x", ("HTTPS", None, "443", "/x")),
            ("http://:web", ("HTTP", None, "web", "/")),
            ("http://:80?a", ("HTTP", None, "80", "/?a")),
            (":8080/a//b", ("HTTP", None, "8080", "/a//b")),
            ("/healthz", ("HTTP", None, "80", "/healthz")),
            ("/go?to=ftp://x", ("HTTP", None, "80", "/go?to=ftp://x")),
            ("http://", ("HTTP", None, "80", "/")),
            ("http://10.0.0.1:8080/x", ("HTTP", Some("10.0.0.1"), "8080", "/x")),
            ("https://10.0.0.1", ("HTTPS", Some("10.0.0.1"), "443", "/")),
            ("http://[fd00::1]:web/", ("HTTP", Some("fd00::1"), "web", "/")),
            ("http://[::1]?a", ("HTTP", Some("::1"), "80", "/?a")),
        ] {
            let url: ProbeUrl = text.parse().unwrap();
            assert_eq!((url.scheme, url.host.as_deref(), &*url.port, &*url.path), parts, "{text}");
        }
        for (text, reported) in [
            ("localhost", "the scheme is missing before the host"),
            ("healthz", "the scheme is missing before the host"),
            ("localhost:80/x", "the scheme is missing before the host"),
            ("http://::1:80/", "put the address in brackets"),
            ("http://[::1/", "a closing bracket is missing"),
            ("http://[::1]80/", "a colon is missing"),
            ("http://10.0.0.1:/", "the port is missing"),
            ("http://u:p@10.0.0.1/", "a user is not allowed"),
            ("http://u@10.0.0.1/", "a user is not allowed"),
            ("ftp://:21/", "the scheme must be http or https"),
            ("http://:/x", "the port is missing"),
            ("", "empty"),
        ] {
            let error = text.parse::<ProbeUrl>().unwrap_err();
            assert!(error.starts_with(reported) && error.ends_with(FORMS), "{text}: {error}");
        }
    }
}
