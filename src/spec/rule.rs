//! An operator's rule: which containers it is for, and the probes that these get. Never reads a file: `config` does.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    ProbeSpec, Reach,
    image::{ImageNames, forms},
};
use crate::{glob::Glob, ids::ProbeKind, inventory::view::ContainerView};

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Unique among the rules.
    pub name: Arc<str>,
    /// Which containers it is for.
    pub matcher: Matcher,
    /// Whether it stands above annotations, and a pod cannot switch it off.
    pub is_enforced: bool,
    /// What these containers get: at least one probe, at most one a type, in the order of the types.
    pub probes: Vec<Arc<ProbeSpec>>,
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
    /// Of the image: one of its names has to fit.
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

    /// Whether a container fits, whose image has these names as far as they are known.
    pub fn fits(&self, container: &ContainerView, names: Option<&ImageNames>) -> bool {
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

    fn fits_image(&self, container: &ContainerView, names: Option<&ImageNames>) -> bool {
        !self.needs_image_names()
            || forms(&container.image_spec).any(|name| self.image.matches(name))
            || names.is_some_and(|names| names.iter().any(|name| self.image.matches(name)))
    }
}
