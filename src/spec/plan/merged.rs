//! A HEALTHCHECK with what rules say of it, and with the timeout that the operator allows: made once for each image and what
//! is said, and shared by their containers.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use super::{Class, Outline, ProbeSpec};
use crate::spec::rule::HealthcheckRule;

/// What rules and limits make of the HEALTHCHECK of one image. Keeps nothing that no container is probed by any more.
#[derive(Debug, Default)]
pub(crate) struct Merged(Mutex<Vec<Kept>>);

#[derive(Debug)]
struct Kept {
    by: HealthcheckRule,
    cap: Option<Duration>,
    /// Without its definition.
    outline: Outline,
    spec: Weak<ProbeSpec>,
}

impl Merged {
    /// The HEALTHCHECK of the image with what rules say of it, and with a shorter timeout.
    pub(super) fn outline(
        &self,
        healthcheck: &Arc<ProbeSpec>,
        by: &HealthcheckRule,
        cap: Option<Duration>,
    ) -> Outline {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|kept| kept.spec.strong_count() > 0);
        let known = all.iter().find(|kept| kept.by == *by && kept.cap == cap);
        if let Some((kept, spec)) = known.and_then(|kept| Some((kept, kept.spec.upgrade()?))) {
            return Outline { shared: Some(spec), ..kept.outline.clone() };
        }
        let mut spec = by.applied_to(healthcheck);
        if let Some(cap) = cap {
            (spec.timeout, spec.timeout_before_cap) = (cap, Some(spec.timeout));
        }
        let spec = Arc::new(spec);
        let made = Outline::shared(&spec, Class::Author);
        let outline = Outline { shared: None, ..made.clone() };
        all.push(Kept { by: by.clone(), cap, outline, spec: Arc::downgrade(&spec) });
        made
    }
}
