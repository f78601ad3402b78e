//! Keeps the input of all containers' plans, and plans again whatever a change affects. Pure: facts in, plans out.
//! Plans do not depend on the order of the facts.

mod held;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    mem,
    sync::Arc,
};

use held::Held;

use super::{
    healthcheck,
    image::ImageNames,
    plan::{Healthcheck, ImageFacts, Planned, Reads, heeds_healthcheck, plan_again},
    policy::Policy,
};
use crate::{
    ids::{ContainerId, ImageRef},
    inventory::pod::Container,
};

/// A container, and all that it is to be probed for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The container as it is now.
    pub view: Arc<Container>,
    /// At most one a type.
    pub probes: Vec<Planned>,
}

/// The containers of the node, what their images have, and the operator's policy. As bounded as the inventory: of an
/// image that no container is probed by any more, nothing is kept. What is kept of images is bounded by [`Held`], too.
#[derive(Debug, Default)]
pub(crate) struct Planner {
    policy: Arc<Policy>,
    containers: HashMap<ContainerId, Arc<Container>>,
    /// What was read of their annotations.
    reads: HashMap<ContainerId, Reads>,
    images: HashMap<ImageRef, Image>,
    /// Which of their HEALTHCHECKs are kept.
    held: Held,
    /// Those of the images that were not asked for yet.
    wanted: BTreeMap<ImageRef, Depth>,
}

/// How much of an image is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Depth {
    /// Its names, for the rules that go by them.
    Names,
    /// Its names and its HEALTHCHECK.
    Healthcheck,
}

/// An image whose names or HEALTHCHECK count somewhere.
#[derive(Debug)]
struct Image {
    /// Where; never empty.
    containers: BTreeSet<ContainerId>,
    /// How much of it was asked for.
    asked: Depth,
    /// None before they were reported.
    names: Option<Arc<ImageNames>>,
    /// None before it was told, and where the image has none.
    healthcheck: Option<Arc<Healthcheck>>,
}

impl Planner {
    /// Without any container yet.
    pub(crate) fn new(policy: Arc<Policy>) -> Self {
        Self { policy, ..Self::default() }
    }

    /// A container was made or changed.
    pub(crate) fn on_container(&mut self, view: Arc<Container>) -> Plan {
        let former = self.containers.insert(view.id.clone(), view.clone());
        if !former.as_ref().is_some_and(|former| Reads::are_of(former, &view)) {
            self.reads.insert(view.id.clone(), Reads::default());
        }
        if let Some(former) = former.filter(|former| former.image_ref != view.image_ref) {
            self.leave(&former);
        }
        self.heed(&view);
        self.plan(view)
    }

    /// A container is gone.
    pub(crate) fn on_gone(&mut self, id: &ContainerId) {
        self.reads.remove(id);
        if let Some(view) = self.containers.remove(id) {
            self.leave(&view);
        }
    }

    /// These are all containers that there are.
    pub(crate) fn retain(&mut self, is_there: impl Fn(&ContainerId) -> bool) {
        let gone: Vec<_> = self.containers.keys().filter(|id| !is_there(id)).cloned().collect();
        gone.iter().for_each(|id| self.on_gone(id));
    }

    /// The operator changed the policy. Plans all containers, in the order of their ids, each when it is taken.
    pub(crate) fn on_policy(&mut self, policy: Arc<Policy>) -> impl Iterator<Item = Plan> + use<'_> {
        let former = mem::replace(&mut self.policy, policy);
        if former.limits != self.policy.limits {
            self.reads.values_mut().for_each(|reads| *reads = Reads::default());
        }
        let mut views: Vec<_> = self.containers.values().cloned().collect();
        views.sort_by(|a, b| a.id.cmp(&b.id));
        views.iter().for_each(|view| self.heed(view));
        views.into_iter().map(|view| self.plan(view))
    }

    /// The names of an image. Plans the containers that run it, in the order of their ids, unless they are as they were;
    /// each when it is taken.
    pub(crate) fn on_names(
        &mut self,
        image: &ImageRef,
        names: Arc<ImageNames>,
    ) -> impl Iterator<Item = Plan> + use<'_> {
        let known = self.images.get_mut(image).filter(|known| known.names.as_ref() != Some(&names));
        let is_news = known.map(|known| known.names = Some(names)).is_some();
        self.plan_image(image, is_news)
    }

    /// What an image has. Plans the containers that are probed by it, in the order of their ids, each when it is taken; none
    /// where no container needs it any more. Then those of images whose HEALTHCHECKs this one leaves no room for.
    pub(crate) fn on_image(
        &mut self,
        image: &ImageRef,
        healthcheck: Option<Arc<Healthcheck>>,
    ) -> impl Iterator<Item = Plan> + use<'_> {
        let mut refused = Vec::new();
        if let Some(known) = self.images.get_mut(image) {
            let weight = healthcheck.as_deref().map_or(0, healthcheck::weight);
            known.healthcheck = healthcheck;
            refused = self.held.add(image, weight);
        }
        for image in &refused {
            if let Some(known) = self.images.get_mut(image) {
                known.healthcheck = Some(Arc::new(healthcheck::too_many(self.held.most())));
            }
        }
        let others = refused.into_iter().filter(|other| other != image);
        let all: Vec<_> = [image.clone()].into_iter().chain(others).collect();
        all.into_iter().flat_map(|image| self.plan_image(&image, true))
    }

    /// The images that are to be asked for, since this was last asked: what they have goes to [`Self::on_names`] and
    /// [`Self::on_image`].
    pub(crate) fn take_wanted(&mut self) -> BTreeMap<ImageRef, Depth> {
        mem::take(&mut self.wanted)
    }

    /// Whether what an image has still says something of a container.
    pub(crate) fn wants(&self, image: &ImageRef) -> bool {
        self.images.contains_key(image)
    }

    /// Notes which image decides about a container, if one does.
    fn heed(&mut self, view: &Container) {
        let depth = match (heeds_healthcheck(view, &self.policy), self.policy.needs_image_names()) {
            _ if view.image_ref.is_empty() => return,
            (true, _) => Depth::Healthcheck,
            (false, true) => Depth::Names,
            (false, false) => return self.leave(view),
        };
        let image = self.images.entry(view.image_ref.clone()).or_insert_with(|| {
            self.wanted.insert(view.image_ref.clone(), depth);
            Image { containers: BTreeSet::new(), asked: depth, names: None, healthcheck: None }
        });
        image.containers.insert(view.id.clone());
        if image.asked < depth {
            image.asked = depth;
            self.wanted.insert(view.image_ref.clone(), depth);
        }
    }

    /// Notes that a container's image decides nothing about it.
    fn leave(&mut self, view: &Container) {
        let Some(image) = self.images.get_mut(&view.image_ref) else { return };
        image.containers.remove(&view.id);
        if image.containers.is_empty() {
            self.images.remove(&view.image_ref);
            self.wanted.remove(&view.image_ref);
            let fitting = self.held.remove(&view.image_ref);
            self.wanted.extend(fitting.into_iter().map(|image| (image, Depth::Healthcheck)));
        }
    }

    fn plan_image(&self, image: &ImageRef, is_news: bool) -> impl Iterator<Item = Plan> + use<'_> {
        let ids = self.images.get(image).filter(|_| is_news).into_iter().flat_map(|known| &known.containers);
        ids.filter_map(|id| self.containers.get(id)).map(|view| self.plan(view.clone()))
    }

    fn plan(&self, view: Arc<Container>) -> Plan {
        let known = self.images.get(&view.image_ref);
        let healthcheck = known.and_then(|image| image.healthcheck.as_deref());
        let names = known.and_then(|image| image.names.as_deref());
        let (facts, none) = (ImageFacts { healthcheck, names }, Reads::default());
        let reads = self.reads.get(&view.id).unwrap_or(&none);
        let probes = plan_again(&view, &self.policy, facts, reads);
        Plan { view, probes }
    }
}

#[cfg(test)]
mod tests;
