//! The ports that a container declares, and what a probe's port comes to among them. Never does IO.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::PortRef;

/// Where the kubelet writes a container's ports, as a JSON list of Kubernetes `ContainerPort`s.
const PORTS_ANNOTATION: &str = "io.kubernetes.container.ports";

/// How much of that annotation is read, in bytes; a longer one counts as none.
const MAX_ANNOTATION: usize = 256 << 10;

/// The ports that a container declares, in their order; empty where nothing or nothing readable is declared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredPorts(Vec<DeclaredPort>);

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeclaredPort {
    #[serde(default)]
    name: String,
    container_port: i64,
}

/// Why a probe has no port to go to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// In the kubelet's words.
    #[error("invalid port number: {0}")]
    OutOfRange(i64),
    /// Neither a declared name nor a number.
    #[error("the container declares no port named {0:?}")]
    Undeclared(String),
}

impl DeclaredPorts {
    /// Reads them from a container's annotations.
    pub fn read(annotations: &BTreeMap<String, String>) -> Self {
        let text = annotations.get(PORTS_ANNOTATION).filter(|text| text.len() <= MAX_ANNOTATION);
        let ports = text.and_then(|text| serde_json::from_str(text).ok());
        Self(ports.unwrap_or_default())
    }

    /// The port to go to: a number is itself; a name is the first declared port of that name, whatever its protocol,
    /// else the number that it spells.
    ///
    /// # Errors
    /// When there is none, or it is not within 1 to 65535.
    pub fn resolve(&self, port: &PortRef) -> Result<u16, PortError> {
        let number = match port {
            PortRef::Number(number) => i64::from(*number),
            PortRef::Name(name) => match self.0.iter().find(|declared| declared.name == *name) {
                Some(declared) => declared.container_port,
                None => name.parse().map_err(|_| PortError::Undeclared(name.clone()))?,
            },
        };
        u16::try_from(number).ok().filter(|port| *port != 0).ok_or(PortError::OutOfRange(number))
    }

    /// Whether a port is one of them, whatever its name and protocol.
    pub fn declares(&self, port: u16) -> bool {
        self.0.iter().any(|declared| declared.container_port == i64::from(port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(ports: &[(&str, i64)]) -> DeclaredPorts {
        DeclaredPorts(
            ports
                .iter()
                .map(|(name, port)| DeclaredPort { name: (*name).into(), container_port: *port })
                .collect(),
        )
    }

    fn annotated(text: &str) -> DeclaredPorts {
        DeclaredPorts::read(&BTreeMap::from([(PORTS_ANNOTATION.to_owned(), text.to_owned())]))
    }

    #[test]
    fn a_port_resolves_as_the_vectors_say() {
        let name = |text: &str| PortRef::Name(text.into());
        let out = |number| Err(PortError::OutOfRange(number));
        let none = |text: &str| Err(PortError::Undeclared(text.into()));
        let found: &[_] = &[("found", 93)];
        for (id, port, ports, expected) in [
            ("C04", name("foo"), &[("bar", 9000)][..], none("foo")),
            ("C06", name("foo"), &[("foo", 8080), ("bar", 9000)], Ok(8080)),
            ("C10", name("-1"), found, out(-1)),
            ("C12", name("found"), found, Ok(93)),
            ("C14", name("118"), found, Ok(118)),
            ("C16", PortRef::Number(1), &[], Ok(1)),
            ("C20", name(" 80"), &[], none(" 80")),
            ("C22", name("080"), &[], Ok(80)),
            ("C24", name("foo"), &[("foo", 70000)], out(70000)),
            ("C26", name("Found"), found, none("Found")),
            ("a name may be declared twice: the first counts", name("a"), &[("a", 1), ("a", 2)], Ok(1)),
            ("a sign is part of a number", name("+80"), &[], Ok(80)),
            ("an empty name is an unnamed port's", name(""), &[("x", 1), ("", 2)], Ok(2)),
            ("a name of digits is a name first", name("80"), &[("80", 81)], Ok(81)),
            ("66666 as text", name("66666"), &[], out(66666)),
            ("zero", PortRef::Number(0), &[], out(0)),
        ] {
            assert_eq!(declared(ports).resolve(&port), expected, "{id}");
        }
        assert_eq!(PortError::OutOfRange(66666).to_string(), "invalid port number: 66666");
    }

    #[test]
    fn the_kubelets_annotation_is_read() {
        let x06 = r#"[{"name":"http","hostPort":80,"containerPort":8080,"protocol":"TCP"},{"name":"https","hostPort":443,"containerPort":6443,"protocol":"TCP"}]"#;
        assert_eq!(annotated(x06), declared(&[("http", 8080), ("https", 6443)]));
        assert_eq!(annotated(r#"[{"containerPort":1}]"#), declared(&[("", 1)]));
    }

    #[test]
    fn an_annotation_that_is_no_list_of_ports_declares_none() {
        for text in ["", "null", "{}", "[1]", r#"[{"name":"x"}]"#, r#"[{"containerPort":"80"}]"#] {
            assert_eq!(annotated(text), DeclaredPorts::default(), "{text}");
        }
        assert_eq!(DeclaredPorts::read(&BTreeMap::new()), DeclaredPorts::default());
    }
}
