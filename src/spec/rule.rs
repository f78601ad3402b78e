//! An operator's rule: which containers it matches, and the probes that they get. Never reads a file: `config` does.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{
    ExecMode, FailureCommand, OnFailure, ProbeSpec, Reach,
    image::{ImageMatches, own_names},
};
use crate::{glob::Glob, ids::ProbeKind, inventory::pod::Container};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Unique among the rules.
    pub name: Arc<str>,
    /// Which containers it is for.
    pub matcher: Matcher,
    /// Whether it takes precedence over annotations, and a pod cannot switch it off.
    pub is_enforced: bool,
    /// What these containers get: at most one probe a type, in the order of the types. None only where it has
    /// `healthcheck` or `history`.
    pub probes: Vec<Arc<ProbeSpec>>,
    /// What it says of the HEALTHCHECKs of these containers.
    pub healthcheck: HealthcheckRule,
    /// How much is kept of the attempts of all probes of these containers.
    pub history: HistoryRule,
}

/// How much is kept of the attempts of a probe, as far as a rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct HistoryRule {
    /// How many attempts.
    pub attempts: Option<u16>,
    /// How many bytes of what each said.
    pub output_bytes: Option<u16>,
}

impl HistoryRule {
    /// Whether it says nothing.
    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// What a rule says of HEALTHCHECKs, and images do not say. Each part is decided by the first rule that says it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct HealthcheckRule {
    /// What their verdict of failure does.
    pub act: Option<Arc<HealthcheckAct>>,
    /// How their commands are run.
    pub exec_mode: Option<ExecMode>,
}

impl HealthcheckRule {
    /// Whether it says nothing.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What those that fit a container say together; an earlier one takes precedence.
    pub(super) fn first_of(rules: &[&Rule]) -> Self {
        Self {
            act: rules.iter().find_map(|rule| rule.healthcheck.act.clone()),
            exec_mode: rules.iter().find_map(|rule| rule.healthcheck.exec_mode),
        }
    }

    /// A HEALTHCHECK of which this is said.
    pub(super) fn applied_to(&self, spec: &ProbeSpec) -> ProbeSpec {
        let spec = ProbeSpec { exec_mode: self.exec_mode, ..spec.clone() };
        match self.act.as_deref().cloned() {
            Some(HealthcheckAct { on_failure, on_failure_command, termination_grace }) => {
                ProbeSpec { on_failure, on_failure_command, termination_grace, ..spec }
            }
            None => spec,
        }
    }
}

/// What a HEALTHCHECK's verdict of failure does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthcheckAct {
    /// What it does; also `report`, so that no later rule decides.
    pub on_failure: OnFailure,
    /// What runs before that.
    pub on_failure_command: Option<FailureCommand>,
    /// Overrides the pod's grace period.
    pub termination_grace: Option<Duration>,
}

/// Which containers a rule is for: those that fit all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matcher {
    /// Of the pod's namespace.
    pub namespace: Glob,
    /// Of the pod's name.
    pub pod: Glob,
    /// Of the container's name.
    pub container: Glob,
    /// Of the image: the container's own name for it has to fit or, if that is an ID, one of the runtime's names.
    pub image: Glob,
    /// Of the pod's labels: each must be there, with a value that fits.
    pub labels: BTreeMap<String, Glob>,
}

impl Rule {
    /// One of its probes. These are the operator's own words: any port may be meant.
    pub fn defining(spec: ProbeSpec) -> Arc<ProbeSpec> {
        Arc::new(ProbeSpec { reach: Reach::Any, ..spec })
    }

    /// What it gives a container as a probe of that type.
    pub fn probe(&self, kind: ProbeKind) -> Option<&Arc<ProbeSpec>> {
        self.probes.iter().find(|spec| spec.kind == kind)
    }
}

impl Matcher {
    /// Fits every container.
    pub fn any() -> Self {
        let any = || Glob::from("*");
        Self { namespace: any(), pod: any(), container: any(), image: any(), labels: BTreeMap::new() }
    }

    /// Whether a container fits. `names` are the image patterns that match its image; without them, its own name for the
    /// image is matched now.
    pub fn fits(&self, container: &Container, names: Option<&ImageMatches>) -> bool {
        let pod = &container.pod;
        self.namespace.matches(&pod.namespace)
            && self.pod.matches(&pod.name)
            && self.container.matches(&container.name)
            && self.fits_image(container, names)
            && self.labels.iter().all(|(key, value)| pod.labels.get(key).is_some_and(|is| value.matches(is)))
    }

    /// Whether the names of the image make a difference.
    pub fn needs_image_names(&self) -> bool {
        !self.image.matches("")
    }

    fn fits_image(&self, container: &Container, names: Option<&ImageMatches>) -> bool {
        !self.needs_image_names()
            || match names {
                Some(names) => names.contains(&self.image),
                None => own_names(&container.image_spec)
                    .is_some_and(|names| names.iter().any(|name| self.image.matches(name))),
            }
    }
}
