//! The URL of `run --http-get`: its text in, scheme, port and path out. Never resolves or escapes anything: the path goes
//! as it is written, as in a pod's manifest.

use std::str::FromStr;

/// What to ask for of the container's own pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProbeUrl {
    /// `HTTP` or `HTTPS`, as Kubernetes writes them.
    pub(super) scheme: &'static str,
    /// A number, or the name of a declared port.
    pub(super) port: String,
    /// With its query; `/` where none is written.
    pub(super) path: String,
}

const FORMS: &str =
    "write http://:8080/healthz, https://:8443/healthz, :8080/healthz, or /healthz for port 80";

impl FromStr for ProbeUrl {
    type Err = String;

    /// `[http:|https:]//[:PORT][/PATH]`, `:PORT[/PATH]` or `/PATH`: without a scheme it is http, without a port 80, or
    /// 443 of https.
    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, usual, rest) = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => ("HTTP", "80", rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => ("HTTPS", "443", rest),
            // What stands behind the first slash is path and query, whatever it looks like.
            Some((before, _)) if !before.contains('/') => {
                return Err(format!("the scheme must be http or https: {FORMS}"));
            }
            Some(_) | None => ("HTTP", "80", text),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let port = match authority.strip_prefix(':') {
            Some("") => return Err(format!("the port is missing behind the colon: {FORMS}")),
            Some(port) => port,
            None if !authority.is_empty() => {
                return Err(format!("no host may be named, as the container's pod is asked: {FORMS}"));
            }
            None if text.is_empty() => return Err(format!("empty: {FORMS}")),
            None => usual,
        };
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { scheme, port: port.to_owned(), path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheme_port_and_path_are_taken_and_no_host_may_stand_there() {
        for (text, parts) in [
            ("http://:8080/healthz", ("HTTP", "8080", "/healthz")),
            ("https://:8443/x?y=z#f", ("HTTPS", "8443", "/x?y=z#f")),
            ("HTTPS:///x", ("HTTPS", "443", "/x")),
            ("http://:web", ("HTTP", "web", "/")),
            ("http://:80?a", ("HTTP", "80", "/?a")),
            (":8080/a//b", ("HTTP", "8080", "/a//b")),
            ("/healthz", ("HTTP", "80", "/healthz")),
            ("/go?to=ftp://x", ("HTTP", "80", "/go?to=ftp://x")),
            ("http://", ("HTTP", "80", "/")),
        ] {
            let url: ProbeUrl = text.parse().unwrap();
            assert_eq!((url.scheme, &*url.port, &*url.path), parts, "{text}");
        }
        for (text, told) in [
            ("http://localhost:8080/", "no host may be named"),
            ("http://[::1]:80/", "no host may be named"),
            ("localhost", "no host may be named"),
            ("healthz", "no host may be named"),
            ("ftp://:21/", "the scheme must be http or https"),
            ("http://:/x", "the port is missing"),
            ("", "empty"),
        ] {
            let error = text.parse::<ProbeUrl>().unwrap_err();
            assert!(error.starts_with(told) && error.ends_with(FORMS), "{text}: {error}");
        }
    }
}
