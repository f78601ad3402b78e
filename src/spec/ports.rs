//! The ports that a container declares, and the resolution of a probe's port among them. Never does IO.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::PortRef;

/// Where the kubelet writes a container's ports, as a JSON list of Kubernetes `ContainerPort`s.
const PORTS_ANNOTATION: &str = "io.kubernetes.container.ports";

/// How much of that annotation is read, in bytes; a longer one counts as none.
const MAX_ANNOTATION: usize = 256 << 10;

/// The ports that a container declares, in their order; empty where nothing or nothing readable is declared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeclaredPorts(Vec<DeclaredPort>);

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeclaredPort {
    #[serde(default)]
    name: String,
    container_port: i64,
}

/// Why a probe has no port to go to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PortError {
    /// In the kubelet's words.
    #[error("invalid port number: {0}")]
    OutOfRange(i64),
    /// Neither a declared name nor a number.
    #[error("the container declares no port named {0:?}")]
    Undeclared(String),
}

impl DeclaredPorts {
    /// Reads them from a container's annotations.
    pub(crate) fn read(annotations: &BTreeMap<String, String>) -> Self {
        let text = annotations.get(PORTS_ANNOTATION).filter(|text| text.len() <= MAX_ANNOTATION);
        let ports = text.and_then(|text| serde_json::from_str(text).ok());
        Self(ports.unwrap_or_default())
    }

    /// The port to go to: a number is itself; a name is the first declared port of that name, whatever its protocol,
    /// else the number that it spells.
    ///
    /// # Errors
    /// When there is none, or it is not within 1 to 65535.
    pub(crate) fn resolve(&self, port: &PortRef) -> Result<u16, PortError> {
        let number = match port {
            PortRef::Number(number) => i64::from(*number),
            PortRef::Name(name) => match self.0.iter().find(|declared| declared.name == *name) {
                Some(declared) => declared.container_port,
                None => name.parse().map_err(|_| PortError::Undeclared(name.clone()))?,
            },
        };
        u16::try_from(number).ok().filter(|port| *port != 0).ok_or(PortError::OutOfRange(number))
    }

    /// Their numbers, as far as these are ports.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u16> {
        self.0.iter().filter_map(|declared| u16::try_from(declared.container_port).ok())
    }

    /// Whether a port is one of them, whatever its name and protocol.
    pub(crate) fn declares(&self, port: u16) -> bool {
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

    /// One row of `tests/data/prober/ports.json`: the declared ports by name, or as the kubelet writes them.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Row {
        id: String,
        rule: String,
        port: serde_json::Value,
        #[serde(default)]
        ports: BTreeMap<String, i64>,
        annotation: Option<String>,
        resolved: Option<u16>,
        error: Option<String>,
    }

    #[test]
    fn a_port_resolves_as_the_vectors_say() {
        let rows: Vec<Row> =
            serde_json::from_str(include_str!("../../tests/data/prober/ports.json")).unwrap();
        for Row { id, rule, port, ports, annotation, resolved, error } in rows {
            let port = match port {
                serde_json::Value::String(name) => PortRef::Name(name),
                number => PortRef::Number(serde_json::from_value(number).unwrap()),
            };
            let pairs: Vec<_> = ports.iter().map(|(name, port)| (name.as_str(), *port)).collect();
            let declared = annotation.map_or_else(|| declared(&pairs), |text| annotated(&text));
            let found = declared.resolve(&port).map_err(|error| error.to_string());
            assert_eq!(found, resolved.ok_or(error.unwrap_or_default()), "{id}: {rule}");
        }
        assert_eq!(
            declared(&[("a", 1), ("a", 2)]).resolve(&PortRef::Name("a".into())),
            Ok(1),
            "a name may be declared twice: the first counts"
        );
        assert_eq!(declared(&[]).resolve(&PortRef::Number(0)), Err(PortError::OutOfRange(0)));
    }

    #[test]
    fn an_unnamed_port_is_read() {
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
