//! A HEALTHCHECK with what a rule lets its verdict do: made once for each rule and image, and shared by their containers.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{Class, Outline, ProbeSpec};
use crate::spec::rule::HealthcheckAct;

/// What rules make of the HEALTHCHECK of one image. Keeps nothing that no container is probed by any more.
#[derive(Debug, Default)]
pub(crate) struct Merged(Mutex<Vec<Kept>>);

#[derive(Debug)]
struct Kept {
    act: Arc<HealthcheckAct>,
    /// Without its definition.
    outline: Outline,
    spec: Weak<ProbeSpec>,
}

impl Merged {
    /// The HEALTHCHECK of the image with what a rule lets it do.
    pub(super) fn outline(&self, healthcheck: &Arc<ProbeSpec>, act: &Arc<HealthcheckAct>) -> Outline {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|kept| kept.spec.strong_count() > 0);
        let known = all.iter().find(|kept| kept.act == *act);
        if let Some((kept, spec)) = known.and_then(|kept| Some((kept, kept.spec.upgrade()?))) {
            return Outline { shared: Some(spec), ..kept.outline.clone() };
        }
        let spec = Arc::new(act.applied_to(healthcheck));
        let made = Outline::shared(&spec, Class::Author);
        let outline = Outline { shared: None, ..made.clone() };
        all.push(Kept { act: act.clone(), outline, spec: Arc::downgrade(&spec) });
        made
    }
}
