//! Keeps what decides about all containers' probes, and plans anew whatever a change concerns. Pure: facts in, plans
//! out. Plans do not depend on the order in which the facts came.

use std::{
    collections::{BTreeSet, HashMap},
    mem,
    sync::Arc,
};

use super::{
    plan::{Healthcheck, Planned, heeds_healthcheck, plan},
    policy::Policy,
};
use crate::{
    ids::{ContainerId, ImageRef},
    inventory::view::ContainerView,
};

/// A container, and all that it is to be probed for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The container as it is now.
    pub view: Arc<ContainerView>,
    /// At most one a type.
    pub probes: Vec<Planned>,
}

/// The containers of the node, what their images have, and the operator's policy. As bounded as the inventory: of an
/// image that no container is probed by any more, nothing is kept.
#[derive(Debug, Default)]
pub struct Planner {
    policy: Arc<Policy>,
    containers: HashMap<ContainerId, Arc<ContainerView>>,
    images: HashMap<ImageRef, Image>,
    /// Those of the images that nobody was asked for yet.
    wanted: BTreeSet<ImageRef>,
}

/// An image whose HEALTHCHECK counts somewhere.
#[derive(Debug, Default)]
struct Image {
    /// Where; never empty.
    containers: BTreeSet<ContainerId>,
    /// None before it was told, and where the image has none.
    healthcheck: Option<Arc<Healthcheck>>,
}

impl Planner {
    /// Without any container yet.
    pub fn new(policy: Arc<Policy>) -> Self {
        Self { policy, ..Self::default() }
    }

    /// A container was made or changed.
    pub fn on_container(&mut self, view: Arc<ContainerView>) -> Plan {
        let former = self.containers.insert(view.id.clone(), view.clone());
        if let Some(former) = former.filter(|former| former.image_ref != view.image_ref) {
            self.leave(&former);
        }
        self.heed(&view);
        self.plan(view)
    }

    /// A container is gone.
    pub fn on_gone(&mut self, id: &ContainerId) {
        if let Some(view) = self.containers.remove(id) {
            self.leave(&view);
        }
    }

    /// These are all containers that there are.
    pub fn retain(&mut self, is_there: impl Fn(&ContainerId) -> bool) {
        let gone: Vec<_> = self.containers.keys().filter(|id| !is_there(id)).cloned().collect();
        gone.iter().for_each(|id| self.on_gone(id));
    }

    /// The operator decided anew. Plans all containers, in the order of their ids.
    pub fn on_policy(&mut self, policy: Arc<Policy>) -> Vec<Plan> {
        self.policy = policy;
        let mut views: Vec<_> = self.containers.values().cloned().collect();
        views.sort_by(|a, b| a.id.cmp(&b.id));
        views.iter().for_each(|view| self.heed(view));
        views.into_iter().map(|view| self.plan(view)).collect()
    }

    /// What an image has. Plans the containers that are probed by it, in the order of their ids; none where nobody wants
    /// to know it any more.
    pub fn on_image(&mut self, image: &ImageRef, healthcheck: Option<Arc<Healthcheck>>) -> Vec<Plan> {
        let Some(known) = self.images.get_mut(image) else { return Vec::new() };
        known.healthcheck = healthcheck;
        let views = known.containers.iter().filter_map(|id| self.containers.get(id)).cloned();
        views.collect::<Vec<_>>().into_iter().map(|view| self.plan(view)).collect()
    }

    /// The images that are to be asked for, since this was last asked: what they have goes to [`Self::on_image`].
    pub fn take_wanted(&mut self) -> BTreeSet<ImageRef> {
        mem::take(&mut self.wanted)
    }

    /// Whether what an image has still says something of a container.
    pub fn wants(&self, image: &ImageRef) -> bool {
        self.images.contains_key(image)
    }

    /// Notes which image a container is to be probed by, if it is.
    fn heed(&mut self, view: &ContainerView) {
        if view.image_ref.is_empty() || !heeds_healthcheck(view, &self.policy) {
            return self.leave(view);
        }
        let image = self.images.entry(view.image_ref.clone()).or_insert_with(|| {
            self.wanted.insert(view.image_ref.clone());
            Image::default()
        });
        image.containers.insert(view.id.clone());
    }

    /// Notes that a container is not probed by its image.
    fn leave(&mut self, view: &ContainerView) {
        let Some(image) = self.images.get_mut(&view.image_ref) else { return };
        image.containers.remove(&view.id);
        if image.containers.is_empty() {
            self.images.remove(&view.image_ref);
            self.wanted.remove(&view.image_ref);
        }
    }

    fn plan(&self, view: Arc<ContainerView>) -> Plan {
        let healthcheck = self.images.get(&view.image_ref).and_then(|image| image.healthcheck.as_deref());
        let probes = plan(&view, &self.policy, healthcheck);
        Plan { view, probes }
    }
}

#[cfg(test)]
mod tests;
