//! URLs as Go's `net/url` reads and prints them: nothing is normalised that Go leaves alone. In: a probe's path or a
//! `Location`; out: where to connect and what to ask for. Pure; never resolves a name.

pub(super) mod escape;
mod join;
mod parse;

use escape::{Part, escape};

use crate::handler::go;

/// A URL. Bytes rather than text: a server's `Location` may hold any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Url {
    /// In lower case; empty in a relative reference.
    pub scheme: String,
    /// What follows the scheme where no slash does: `mailto:x` has no host.
    pub opaque: Vec<u8>,
    /// What is before the `@`.
    pub user: Option<User>,
    /// With the port, as written; its escapes undone.
    pub host: Vec<u8>,
    /// Escaped, ready to be sent.
    pub path: Vec<u8>,
    /// Without the `?`, as written; an empty one still shows its `?`.
    pub query: Option<Vec<u8>>,
    /// Without the `#`, escaped. Never sent, but shown.
    pub fragment: Vec<u8>,
    /// Whether a scheme is followed by a path and by no host: `http:/x`.
    is_hostless: bool,
}

/// Name and password of a URL, their escapes undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    /// Before the colon.
    pub name: Vec<u8>,
    /// After it, where there is one.
    pub password: Option<Vec<u8>>,
}

/// Why a text is no URL, in Go's words: `parse "http://[::1": missing ']' in host`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("parse {}: {problem}", go::quoted(.text))]
pub(super) struct ParseError {
    text: Vec<u8>,
    problem: Problem,
}

/// What is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Problem {
    /// A byte below the blank, or DEL.
    #[error("net/url: invalid control character in URL")]
    Control,
    /// A `%` that two hexadecimal digits do not follow, or one that may not stand in a host.
    #[error("invalid URL escape {}", go::quoted(.0))]
    Escape(Vec<u8>),
    /// A byte that no host holds.
    #[error("invalid character {} in host name", go::quoted(&[*.0]))]
    HostByte(u8),
    /// It begins with a colon.
    #[error("missing protocol scheme")]
    NoScheme,
    /// A relative path whose first segment could be taken for a scheme.
    #[error("first path segment in URL cannot contain colon")]
    ColonFirst,
    /// `[` and no `]`.
    #[error("missing ']' in host")]
    NoBracket,
    /// What follows the host is no colon with digits.
    #[error("invalid port {} after host", go::quoted(.0))]
    Port(Vec<u8>),
    /// A byte that may not stand before the `@`.
    #[error("net/url: invalid userinfo")]
    User,
}

impl Url {
    /// The URL of a probe (docs/kubelet-prober.md 7.1): `path` is read as a reference, so that its query and fragment
    /// survive and `//first/rest` loses its first segment; what cannot be read is escaped as a whole. Then scheme and
    /// authority are put in, and what was printed is read again.
    ///
    /// # Errors
    /// When host and port make no authority.
    pub(super) fn of_probe(scheme: &str, host: &str, port: u16, path: &str) -> Result<Self, ParseError> {
        let unreadable = |_| Self { path: escape(path.as_bytes(), Part::Path), ..Self::default() };
        let mut url = Self::parse(path.as_bytes()).unwrap_or_else(unreadable);
        scheme.clone_into(&mut url.scheme);
        url.host = authority(host, port).into_bytes();
        Self::parse(&url.to_bytes())
    }

    /// As Go prints it. It contains a password.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let user = self.user.as_ref().map(User::to_bytes);
        self.print(user.as_deref())
    }

    /// As errors show it: without the password.
    pub(super) fn redacted(&self) -> Vec<u8> {
        let user = self.user.as_ref().map(|user| match user.password {
            Some(_) => [user.name.as_slice(), b":***"].concat(),
            None => user.to_bytes(),
        });
        self.print(user.as_deref())
    }

    /// As a `Referer` shows it: without the user.
    pub(super) fn without_user(&self) -> Vec<u8> {
        Self { user: None, ..self.clone() }.to_bytes()
    }

    /// Path and query as a request line holds them.
    pub(super) fn request_target(&self) -> Vec<u8> {
        let mut target = if self.path.is_empty() { b"/".to_vec() } else { self.path.clone() };
        self.print_query(&mut target);
        target
    }

    /// The host without its port and brackets. Case counts.
    pub(super) fn hostname(&self) -> &[u8] {
        let host = self.split_port().0;
        host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]")).unwrap_or(host)
    }

    /// The digits after the host's colon; empty where there are none.
    pub(super) fn port(&self) -> &[u8] {
        self.split_port().1
    }

    /// The port to connect to: its own, or that of its scheme.
    ///
    /// # Errors
    /// In the words of Go's dialler, where there is no such port.
    pub(super) fn meant_port(&self) -> Result<u16, String> {
        match (self.port(), self.scheme.as_str()) {
            (b"", "https") => Ok(443),
            (b"", _) => Ok(80),
            (digits, _) => {
                let digits = String::from_utf8_lossy(digits);
                digits.parse().map_err(|_| format!("dial tcp: address {digits}: invalid port"))
            }
        }
    }

    fn split_port(&self) -> (&[u8], &[u8]) {
        match self.host.iter().rposition(|byte| *byte == b':') {
            Some(colon) if self.host[colon + 1..].iter().all(u8::is_ascii_digit) => {
                (&self.host[..colon], &self.host[colon + 1..])
            }
            Some(_) | None => (&self.host, b""),
        }
    }

    fn print(&self, user: Option<&[u8]>) -> Vec<u8> {
        let mut text = self.scheme.clone().into_bytes();
        if !text.is_empty() {
            text.push(b':');
        }
        if self.opaque.is_empty() {
            self.print_hierarchy(user, &mut text);
        } else {
            text.extend_from_slice(&self.opaque);
        }
        self.print_query(&mut text);
        if !self.fragment.is_empty() {
            text.push(b'#');
            text.extend_from_slice(&self.fragment);
        }
        text
    }

    fn print_hierarchy(&self, user: Option<&[u8]>, text: &mut Vec<u8>) {
        let is_anonymous = self.host.is_empty() && user.is_none();
        let is_relative = self.scheme.is_empty() && is_anonymous;
        if !is_relative && !(is_anonymous && (self.is_hostless || self.path.is_empty())) {
            text.extend_from_slice(b"//");
            if let Some(user) = user {
                text.extend_from_slice(user);
                text.push(b'@');
            }
            text.extend_from_slice(&escape(&self.host, Part::Host));
        }
        if !self.path.is_empty() && !self.path.starts_with(b"/") && !self.host.is_empty() {
            text.push(b'/');
        }
        text.extend_from_slice(&self.path);
    }

    fn print_query(&self, text: &mut Vec<u8>) {
        if let Some(query) = &self.query {
            text.push(b'?');
            text.extend_from_slice(query);
        }
    }
}

impl User {
    fn to_bytes(&self) -> Vec<u8> {
        let mut text = escape(&self.name, Part::User);
        if let Some(password) = &self.password {
            text.push(b':');
            text.extend_from_slice(&escape(password, Part::User));
        }
        text
    }
}

/// Host and port in one; a host with a colon is in brackets.
fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests;
