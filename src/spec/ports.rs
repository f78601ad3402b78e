//! Placeholder to compile against; the spec stage brings the real file.

use std::collections::BTreeMap;

use super::PortRef;

/// The ports that a container declares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredPorts(BTreeMap<String, u16>);

/// Why a port cannot be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the container declares no port named {0:?}")]
pub struct PortError(String);

impl DeclaredPorts {
    /// Those of a container's annotations.
    pub fn read(_annotations: &BTreeMap<String, String>) -> Self {
        Self::default()
    }

    /// The number of a port.
    ///
    /// # Errors
    /// When no declared port has the name.
    pub fn resolve(&self, port: &PortRef) -> Result<u16, PortError> {
        match port {
            PortRef::Number(number) => Ok(*number),
            PortRef::Name(name) => self.0.get(name).copied().ok_or_else(|| PortError(name.clone())),
        }
    }
}
