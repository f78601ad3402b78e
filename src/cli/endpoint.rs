//! Where the daemon's API is: a URL or a path, as people write it, in the words and within the bounds of `api.listen`.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use crate::config::socket;

/// A Unix socket's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint(PathBuf);

impl Endpoint {
    /// The flag, or else the variable, or else the default. An empty variable counts as not set.
    ///
    /// # Errors
    /// The address is invalid: the flag or variable, the reason, and what to write instead.
    pub(super) fn choose(flag: Option<&str>, variable: Option<&str>) -> Result<Self, String> {
        let said = flag.map(|text| ("--api", text));
        let variable = variable.filter(|text| !text.is_empty()).map(|text| ("CRIPROBE_API", text));
        let Some((who, text)) = said.or(variable) else { return Ok(Self::default()) };
        socket::parse(text).map(Self).map_err(|error| format!("{who}: {error}"))
    }

    /// The socket's path.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Default for Endpoint {
    fn default() -> Self {
        Self(PathBuf::from("/run/criprobe/api.sock"))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix://{}", self.0.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(flag: Option<&str>, variable: Option<&str>) -> String {
        Endpoint::choose(flag, variable).map_or_else(|error| error, |endpoint| endpoint.to_string())
    }

    #[test]
    fn a_flag_stands_over_the_variable_and_that_over_the_default() {
        for (flag, variable, expected) in [
            (None, None, "unix:///run/criprobe/api.sock"),
            (None, Some(""), "unix:///run/criprobe/api.sock"),
            (None, Some("/run/b.sock"), "unix:///run/b.sock"),
            (Some("unix:///run/a.sock"), Some("/run/b.sock"), "unix:///run/a.sock"),
        ] {
            assert_eq!(chosen(flag, variable), expected);
        }
    }

    #[test]
    fn what_names_no_socket_is_refused_as_the_daemon_refuses_it() {
        for (flag, variable, expected) in [
            (Some(""), Some("/run/b.sock"), "--api: empty: write unix:///PATH"),
            (Some("api.sock"), None, "--api: \"api.sock\" is not an absolute path: write unix:///PATH"),
            (None, Some("tcp://x"), "CRIPROBE_API: \"tcp://x\" is not a Unix socket: write unix:///PATH"),
        ] {
            assert_eq!(chosen(flag, variable), expected);
        }
    }
}
