//! One request of a probe: where to, under which name, with which headers. Built from a definition or from a redirect.
//! Pure.

use base64::{Engine, engine::general_purpose::STANDARD};

use super::{
    Target,
    headers::Headers,
    url::{ParseError, Url, User},
};

/// A GET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Where to.
    pub url: Url,
    /// Instead of the URL's host in the `Host` field; empty for the URL's own.
    pub host: String,
    /// All others. A `Host` in them is not sent.
    pub headers: Headers,
}

impl Request {
    /// The first request of a probe.
    ///
    /// # Errors
    /// When target makes no URL.
    pub(super) fn of_probe(target: &Target<'_>) -> Result<Self, ParseError> {
        let scheme = if target.is_secure { "https" } else { "http" };
        let url = Url::of_probe(scheme, target.host, target.port, target.path)?;
        let headers = Headers::of_probe(target.headers);
        Ok(Self { url, host: headers.first("Host").to_owned(), headers })
    }

    /// Refuses what cannot be sent, in the order in which Go looks.
    ///
    /// # Errors
    /// In Go's words.
    pub(super) fn check(&self) -> Result<(), String> {
        let is_http = matches!(self.url.scheme.as_str(), "http" | "https");
        if !is_http {
            return Err(format!("unsupported protocol scheme \"{}\"", self.url.scheme));
        }
        self.headers.check()?;
        if self.url.host.is_empty() {
            return Err("http: no Host in request URL".to_owned());
        }
        Ok(())
    }

    /// Whether it goes over TLS.
    pub(super) fn is_secure(&self) -> bool {
        self.url.scheme == "https"
    }

    /// Its headers as they are sent: a user in the URL logs in where no header does.
    pub(super) fn sent_headers(&self) -> Headers {
        let mut headers = self.headers.clone();
        if let Some(User { name, password }) = &self.url.user
            && headers.first("Authorization").is_empty()
        {
            let password = password.as_deref().unwrap_or_default();
            let login = STANDARD.encode([name, b":".as_slice(), password].concat());
            headers.set("Authorization", format!("Basic {login}"));
        }
        headers
    }

    /// What names the server: the custom host, or the URL's with its port, and without an IPv6 zone. `None` where it
    /// holds what no host does.
    pub(super) fn host_field(&self) -> Option<String> {
        let host = match self.host.as_str() {
            "" => String::from_utf8(self.url.host.clone()).ok()?,
            host => host.to_owned(),
        };
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!$%&'()*+,-.:;=[]_~".contains(&byte);
        host.bytes().all(is_allowed).then(|| without_zone(host))
    }
}

/// `[fe80::1%eth0]:80` as `[fe80::1]:80`: a zone means nothing to the server (RFC 6874).
fn without_zone(mut host: String) -> String {
    if host.starts_with('[')
        && let Some(end) = host.rfind(']')
        && let Some(zone) = host[..end].rfind('%')
    {
        host.replace_range(zone..end, "");
    }
    host
}
