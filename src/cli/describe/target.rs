//! The target of `describe`: text in, the names of a probe or of a container out. Needs no daemon.

use std::str::FromStr;

use percent_encoding::percent_decode_str;

use crate::ids::ProbeType;

/// A probe, a container, or a pod. Names are decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// `NAMESPACE/POD/CONTAINER/TYPE`.
    Probe([String; 4]),
    /// `POD_UID/CONTAINER/TYPE` or `NAMESPACE/POD/CONTAINER`: which of them, only the daemon knows.
    KeyOrContainer([String; 3]),
    /// `NAMESPACE/POD`.
    Pod([String; 2]),
    /// The beginning of a container's id.
    ContainerId(String),
}

/// The accepted forms, for error messages.
const WRITE: &str = "write NAMESPACE/POD, NAMESPACE/POD/CONTAINER, NAMESPACE/POD/CONTAINER/TYPE, or the first characters of a container's ID";

impl Target {
    /// The names; of a container's ID none.
    pub(super) fn names(&self) -> Vec<String> {
        match self {
            Self::Probe(names) => names.to_vec(),
            Self::KeyOrContainer(names) => names.to_vec(),
            Self::Pod(names) => names.to_vec(),
            Self::ContainerId(_) => Vec::new(),
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<String> = text
            .split('/')
            .map(|part| percent_decode_str(part).decode_utf8().map(String::from))
            .collect::<Result<_, _>>()
            .map_err(|_| format!("the percent-encoded text is not UTF-8: {WRITE}"))?;
        if parts.iter().any(String::is_empty) {
            return Err(format!("a name is missing: {WRITE}"));
        }
        match <[String; 4]>::try_from(parts) {
            Ok(names) => Ok(Self::Probe(names)),
            Err(parts) => match <[String; 3]>::try_from(parts) {
                Ok(names) => Ok(Self::KeyOrContainer(names)),
                Err(parts) => match <[String; 2]>::try_from(parts) {
                    Ok(names) => Ok(Self::Pod(names)),
                    Err(parts) => match <[String; 1]>::try_from(parts) {
                        Ok([id]) => Ok(Self::ContainerId(id)),
                        Err(_) => Err(format!("too many names: {WRITE}")),
                    },
                },
            },
        }
    }
}

/// Whether a name can be that of a probe's type.
pub(super) fn is_type(name: &str) -> bool {
    name.parse::<ProbeType>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_names_tells_what_is_meant() {
        let names = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let four = |text| Target::Probe(names(text).try_into().unwrap());
        let three = |text| Target::KeyOrContainer(names(text).try_into().unwrap());
        for (text, target) in [
            ("default/web/app/liveness", four("default web app liveness")),
            ("a%2Fb/web/app/liveness", four("a/b web app liveness")),
            ("uid/app/liveness", three("uid app liveness")),
            ("default/web/app", three("default web app")),
            ("default/web", Target::Pod(names("default web").try_into().unwrap())),
            ("0e2f11", Target::ContainerId("0e2f11".to_owned())),
        ] {
            assert_eq!(text.parse(), Ok(target), "{text}");
        }
        for (text, reported) in [
            ("", "a name is missing"),
            ("default//app", "a name is missing"),
            ("web/", "a name is missing"),
            ("a/b/c/d/e", "too many names"),
            ("%ff/web/app", "is not UTF-8"),
        ] {
            let error = text.parse::<Target>().unwrap_err();
            assert!(error.contains(reported) && error.ends_with(WRITE), "{text}: {error}");
        }
    }
}
