//! Identifiers of objects on a node, each with its own type, so that no bare string crosses a module.

use std::{
    borrow::Borrow,
    fmt,
    hash::{Hash, Hasher},
    str::FromStr,
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::carry::{Carry, Reader, Unreadable, Writer};

/// Makes a cheap, shared, comparable id out of a string.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        // Derived, it would be compiled into whatever each map does with its keys.
        impl Hash for $name {
            #[inline(never)]
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.0.hash(state);
            }
        }

        impl $name {
            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Whether nothing was given.
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }
        }

        impl<T: Into<Arc<str>>> From<T> for $name {
            fn from(text: T) -> Self {
                Self(text.into())
            }
        }

        impl Carry for $name {
            const LAYOUT: u64 = <Arc<str>>::LAYOUT;

            fn write(&self, into: &mut Writer) {
                self.0.write(into);
            }

            fn read(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
                Carry::read(from).map(Self)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    };
}

/// 13 characters of an id, as crictl shows them.
pub fn short(id: &str) -> &str {
    id.char_indices().nth(13).map_or(id, |(end, _)| &id[..end])
}

id! {
    /// The runtime's id of a container.
    ContainerId
}
id! {
    /// The runtime's id of a pod sandbox.
    SandboxId
}
id! {
    /// The uid that a pod is known by, unique on the node.
    PodUid
}
id! {
    /// An image as the runtime knows that of a container: its id, or a name with a digest. One image may have several.
    ImageRef
}

/// Numbers the connections of one run of the daemon, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize)]
pub struct ConnId(pub u64);

/// The three types of a probe, in the order in which the kubelet creates their workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeKind {
    /// Gates the other two until it succeeded once.
    Startup,
    /// Whether the container takes traffic.
    Readiness,
    /// Whether the container is worth keeping.
    Liveness,
}

impl ProbeKind {
    /// All three, in the kubelet's order.
    pub const ALL: [Self; 3] = [Self::Startup, Self::Readiness, Self::Liveness];

    /// `startup`, `readiness`, `liveness`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Readiness => "readiness",
            Self::Liveness => "liveness",
        }
    }

    /// The kubelet's capitalised form, used in its event messages.
    pub fn title(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        }
    }
}

impl fmt::Display for ProbeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for ProbeKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| format!("unknown probe type {text:?}: one of startup, readiness, liveness"))
    }
}

/// What a probe is listed as: one of the three types, or a client's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProbeType {
    /// One of ours.
    Kind(ProbeKind),
    /// One that a client runs; numbered within its container, from 1.
    Observed(u32),
}

impl ProbeType {
    /// How the name of a client's own begins.
    const OBSERVED: &'static str = "observed-";
}

impl fmt::Display for ProbeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => kind.fmt(f),
            Self::Observed(number) => f.pad(&format!("{}{number}", Self::OBSERVED)),
        }
    }
}

impl FromStr for ProbeType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.strip_prefix(Self::OBSERVED).and_then(|number| number.parse().ok());
        match number {
            // As it is printed: no sign, no leading zero.
            Some(number) if number > 0 && Self::Observed(number).to_string() == text => {
                Ok(Self::Observed(number))
            }
            _ => text.parse().map(Self::Kind).map_err(|error: String| format!("{error}, observed-N")),
        }
    }
}

/// What identifies a probe for as long as its pod lives: `POD_UID/CONTAINER/TYPE`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProbeKey {
    /// The pod's uid.
    pub pod: PodUid,
    /// The container's name.
    pub container: Arc<str>,
    /// Its type.
    pub kind: ProbeKind,
}

impl Hash for ProbeKey {
    #[inline(never)]
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.pod, &self.container, self.kind).hash(state);
    }
}

impl fmt::Display for ProbeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.pod, self.container, self.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_reads_as_it_prints_and_nothing_else_does() {
        for text in ["startup", "readiness", "liveness", "observed-1", "observed-4294967295"] {
            assert_eq!(text.parse::<ProbeType>().map(|kind| kind.to_string()), Ok(text.to_owned()));
        }
        for text in
            ["", "observed", "observed-", "observed-0", "observed-01", "observed-+1", "observed-4294967296"]
        {
            let reported =
                format!("unknown probe type {text:?}: one of startup, readiness, liveness, observed-N");
            assert_eq!(text.parse::<ProbeType>(), Err(reported));
        }
    }
}
