//! The name of a probe as users write it, and its path in the API.

use std::str::FromStr;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// `NAMESPACE/POD/CONTAINER/TYPE` or `POD_UID/CONTAINER/TYPE`; names that contain a slash are percent-encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProbeName(Vec<String>);

impl FromStr for ProbeName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split('/').map(|part| percent_decode_str(part).decode_utf8());
        let parts: Result<Vec<_>, _> = parts.map(|part| part.map(String::from)).collect();
        parts
            .ok()
            .filter(|parts| matches!(parts.len(), 3 | 4) && parts.iter().all(|part| !part.is_empty()))
            .map(Self)
            .ok_or_else(|| "write NAMESPACE/POD/CONTAINER/TYPE, or POD_UID/CONTAINER/TYPE".to_owned())
    }
}

impl ProbeName {
    /// Where the API has the probe.
    pub(super) fn path(&self) -> String {
        let parts = self.0.iter().map(|part| format!("/{}", utf8_percent_encode(part, NON_ALPHANUMERIC)));
        format!("/v1/probes{}", parts.collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_three_or_four_parts_and_finds_its_way() {
        for (text, path) in [
            ("default/web/app/liveness", Some("/v1/probes/default/web/app/liveness")),
            ("uid/app/readiness", Some("/v1/probes/uid/app/readiness")),
            ("a%2Fb/50%25 off/ü/startup", Some("/v1/probes/a%2Fb/50%25%20off/%C3%BC/startup")),
            ("a/b?c=d/e#f/startup", Some("/v1/probes/a/b%3Fc%3Dd/e%23f/startup")),
            ("web/liveness", None),
            ("a/b/c/d/e", None),
            ("default//app/liveness", None),
            ("%FF/b/c", None),
            ("", None),
        ] {
            let found = text.parse::<ProbeName>().ok().map(|name| name.path());
            assert_eq!(found.as_deref(), path, "{text}");
        }
    }
}
