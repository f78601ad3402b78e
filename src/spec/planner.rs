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
    image::{ImageMatches, ImagePatterns, is_id},
    plan::{Healthcheck, ImageFacts, Merged, Planned, Reads, heeds_healthcheck, plan_again},
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
    /// Those of the policy.
    patterns: ImagePatterns,
    containers: HashMap<ContainerId, Known>,
    images: HashMap<ImageRef, Image>,
    /// Which of their HEALTHCHECKs are kept.
    held: Held,
    /// Those of the images that are to be asked for, or to be asked for again.
    wanted: BTreeMap<ImageRef, Depth>,
}

/// A container, and what its own texts come to.
#[derive(Debug)]
struct Known {
    view: Arc<Container>,
    /// What its own name for its image matches. `None` if it names its image by an ID: then the names of that image count.
    own: Option<ImageMatches>,
    /// What was read of its annotations.
    reads: Reads,
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
    /// What its names match; `None` until they are reported.
    names: Option<Arc<ImageMatches>>,
    /// `None` until it is reported, and where the image has none.
    healthcheck: Option<Arc<Healthcheck>>,
    /// What rules have made of it.
    merged: Merged,
}

impl Planner {
    /// Without any container yet.
    pub(crate) fn new(policy: Arc<Policy>) -> Self {
        Self { patterns: policy.image_patterns(), policy, ..Self::default() }
    }

    /// A container was made or changed.
    pub(crate) fn on_container(&mut self, view: Arc<Container>) -> Plan {
        let former = self.containers.remove(&view.id);
        if let Some(former) = former.as_ref().filter(|former| former.view.image_ref != view.image_ref) {
            self.leave(&former.view);
        }
        let (own, reads) = former.map_or((None, None), |former| {
            let is_as_named = former.view.image_spec == view.image_spec;
            let is_as_read = Reads::are_of(&former.view, &view);
            (is_as_named.then_some(former.own), is_as_read.then_some(former.reads))
        });
        let own = own.unwrap_or_else(|| self.patterns.matching_own_name(&view.image_spec));
        let known = Known { view: view.clone(), own, reads: reads.unwrap_or_default() };
        self.containers.insert(view.id.clone(), known);
        self.heed(&view);
        self.plan(view)
    }

    /// A container is gone.
    pub(crate) fn on_gone(&mut self, id: &ContainerId) {
        if let Some(known) = self.containers.remove(id) {
            self.leave(&known.view);
        }
    }

    /// These are all containers that there are.
    pub(crate) fn retain(&mut self, is_there: impl Fn(&ContainerId) -> bool) {
        let gone: Vec<_> = self.containers.keys().filter(|id| !is_there(id)).cloned().collect();
        gone.iter().for_each(|id| self.on_gone(id));
    }

    /// The operator loaded a policy: the names by which its rules go are asked for again. If it is another one than before,
    /// plans all containers, in the order of their ids, each when it is taken.
    pub(crate) fn on_policy(&mut self, policy: Arc<Policy>) -> impl Iterator<Item = Plan> + use<'_> {
        let is_news = self.policy != policy;
        let mut views: Vec<_> =
            self.containers.values().filter(|_| is_news).map(|known| known.view.clone()).collect();
        if is_news {
            if self.policy.limits != policy.limits {
                self.containers.values_mut().for_each(|known| known.reads = Reads::default());
            }
            self.patterns = policy.image_patterns();
            self.policy = policy;
            views.sort_by(|a, b| a.id.cmp(&b.id));
            views.iter().for_each(|view| self.heed(view));
        }
        if self.policy.needs_image_names() {
            self.want_again(Depth::Names);
        }
        views.into_iter().map(|view| {
            if let Some(known) = self.containers.get_mut(&view.id) {
                known.own = self.patterns.matching_own_name(&view.image_spec);
            }
            self.plan(view)
        })
    }

    /// The runtime may be another one than before: all that was asked of it is asked again, and what was known stays in
    /// force until the answers.
    pub(crate) fn on_new_link(&mut self) {
        self.want_again(Depth::Healthcheck);
    }

    /// The names of an image. Plans the containers that run it, in the order of their ids, unless they are as they were;
    /// each when it is taken.
    pub(crate) fn on_names(
        &mut self,
        image: &ImageRef,
        names: Arc<ImageMatches>,
    ) -> impl Iterator<Item = Plan> + use<'_> {
        let known = self.images.get_mut(image).filter(|known| known.names.as_ref() != Some(&names));
        let is_news = known.map(|known| known.names = Some(names)).is_some();
        self.plan_image(image, is_news)
    }

    /// What an image has. Plans the containers that are probed by it, in the order of their ids, unless it is as it was;
    /// each when it is taken. None where no container needs it any more. Then those of images whose HEALTHCHECKs this one
    /// leaves no room for.
    pub(crate) fn on_image(
        &mut self,
        image: &ImageRef,
        healthcheck: Option<Arc<Healthcheck>>,
    ) -> impl Iterator<Item = Plan> + use<'_> {
        let mut changed = Vec::new();
        if let Some(known) = self.images.get_mut(image).filter(|known| known.healthcheck != healthcheck) {
            let weight = healthcheck.as_deref().map_or(0, healthcheck::weight);
            (known.healthcheck, known.merged) = (healthcheck, Merged::default());
            changed = self.held.add(image, weight);
            for refused in &changed {
                if let Some(known) = self.images.get_mut(refused) {
                    known.healthcheck = Some(Arc::new(healthcheck::too_many(self.held.most())));
                }
            }
            changed.retain(|other| other != image);
            changed.insert(0, image.clone());
        }
        changed.into_iter().flat_map(|image| self.plan_image(&image, true))
    }

    /// The patterns that [`Self::on_names`] wants matched.
    pub(crate) fn patterns(&self) -> &ImagePatterns {
        &self.patterns
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

    /// Notes which image decides about a container, if one does. The names of an image count if the container names it by
    /// ID; they are asked for again for each new container, as the image may have been pulled by another name for it.
    fn heed(&mut self, view: &Container) {
        let needs_names = self.policy.needs_image_names() && is_id(&view.image_spec);
        let depth = match (heeds_healthcheck(view, &self.policy), needs_names) {
            _ if view.image_ref.is_empty() => return,
            (true, _) => Depth::Healthcheck,
            (false, true) => Depth::Names,
            (false, false) => return self.leave(view),
        };
        let image = self.images.entry(view.image_ref.clone()).or_insert_with(|| {
            self.wanted.insert(view.image_ref.clone(), depth);
            Image {
                containers: BTreeSet::new(),
                asked: depth,
                names: None,
                healthcheck: None,
                merged: Merged::default(),
            }
        });
        let is_new = image.containers.insert(view.id.clone());
        if image.asked < depth {
            image.asked = depth;
            self.wanted.insert(view.image_ref.clone(), depth);
        } else if is_new && needs_names {
            self.wanted.entry(view.image_ref.clone()).or_insert(Depth::Names);
        }
    }

    /// Has images asked for again, at most so much of each.
    fn want_again(&mut self, at_most: Depth) {
        for (image, known) in &self.images {
            let depth = known.asked.min(at_most);
            let wanted = self.wanted.entry(image.clone()).or_insert(depth);
            *wanted = depth.max(*wanted);
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
        ids.filter_map(|id| self.containers.get(id)).map(|known| self.plan(known.view.clone()))
    }

    fn plan(&self, view: Arc<Container>) -> Plan {
        let image = self.images.get(&view.image_ref);
        let healthcheck = image.and_then(|image| image.healthcheck.as_deref());
        let (known, none) = (self.containers.get(&view.id), Reads::default());
        let own = known.and_then(|known| known.own.as_ref());
        let names = own.or(image.and_then(|image| image.names.as_deref()));
        let reads = known.map_or(&none, |known| &known.reads);
        let facts = ImageFacts { healthcheck, names, merged: image.map(|image| &image.merged) };
        let probes = plan_again(&view, &self.policy, facts, reads);
        Plan { view, probes }
    }
}

#[cfg(test)]
mod tests;
