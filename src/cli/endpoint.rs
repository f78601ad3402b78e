//! Where the daemon's API is: a URL or a path, as people write it.

use std::{fmt, path::PathBuf, str::FromStr};

/// A Unix socket's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint(PathBuf);

/// 107 bytes: the longest path of a socket (`sun_path` of unix(7), less its final zero).
const MAX_PATH: usize = 107;

impl Endpoint {
    /// The socket's path.
    pub(super) fn path(&self) -> &std::path::Path {
        &self.0
    }
}

impl Default for Endpoint {
    fn default() -> Self {
        Self(PathBuf::from("/run/criprobe/api.sock"))
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = match text.split_once("://") {
            Some(("unix", path)) => path,
            Some((scheme, _)) => {
                return Err(format!(
                    "--api {text}: the API is on a Unix socket, not at {scheme}://; write unix:///run/criprobe/api.sock"
                ));
            }
            None => text.strip_prefix("unix:").unwrap_or(text),
        };
        if path.is_empty() || path.contains('\0') {
            return Err(format!("--api {text}: no path; write unix:///run/criprobe/api.sock"));
        }
        if path.len() > MAX_PATH {
            return Err(format!(
                "--api {text}: the path has {} bytes, and a socket's at most {MAX_PATH}; use a shorter one",
                path.len()
            ));
        }
        if text.contains("://") && !path.starts_with('/') {
            return Err(format!("--api {text}: the path is not absolute; write unix:///{path}"));
        }
        Ok(Self(PathBuf::from(path)))
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

    #[test]
    fn urls_and_bare_paths_name_a_socket() {
        for (text, path) in [
            ("unix:///run/criprobe/api.sock", "/run/criprobe/api.sock"),
            ("unix:/run/api.sock", "/run/api.sock"),
            ("/run/api.sock", "/run/api.sock"),
            ("api.sock", "api.sock"),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().path().to_str(), Some(path), "{text}");
        }
    }

    #[test]
    fn what_names_no_socket_is_refused_with_what_to_write() {
        let long = format!("/{}", "x".repeat(MAX_PATH));
        for (text, reason) in [
            ("http://localhost:1", "not at http://; write unix:///run/criprobe/api.sock"),
            ("unix://", "no path"),
            ("", "no path"),
            ("unix://run/api.sock", "not absolute; write unix:///run/api.sock"),
            (long.as_str(), "has 108 bytes, and a socket's at most 107"),
        ] {
            let error = text.parse::<Endpoint>().unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
