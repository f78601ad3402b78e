//! Keeps what decides about all containers' probes, and plans anew whatever a change concerns. Pure: facts in, plans
//! out. Plans do not depend on the order in which the facts came.

use std::{collections::HashMap, sync::Arc};

use super::{
    plan::{Planned, plan},
    policy::Policy,
};
use crate::{ids::ContainerId, inventory::view::ContainerView};

/// A container, and all that it is to be probed for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The container as it is now.
    pub view: Arc<ContainerView>,
    /// At most one a type.
    pub probes: Vec<Planned>,
}

/// The containers of the node and the operator's policy. As bounded as the inventory.
#[derive(Debug, Default)]
pub struct Planner {
    policy: Arc<Policy>,
    containers: HashMap<ContainerId, Arc<ContainerView>>,
}

impl Planner {
    /// Without any container yet.
    pub fn new(policy: Arc<Policy>) -> Self {
        Self { policy, containers: HashMap::new() }
    }

    /// A container was made or changed.
    pub fn on_container(&mut self, view: Arc<ContainerView>) -> Plan {
        self.containers.insert(view.id.clone(), view.clone());
        self.plan(view)
    }

    /// A container is gone.
    pub fn on_gone(&mut self, id: &ContainerId) {
        self.containers.remove(id);
    }

    /// The operator decided anew. Plans all containers, in the order of their ids.
    pub fn on_policy(&mut self, policy: Arc<Policy>) -> Vec<Plan> {
        self.policy = policy;
        let mut views: Vec<_> = self.containers.values().cloned().collect();
        views.sort_by(|a, b| a.id.cmp(&b.id));
        views.into_iter().map(|view| self.plan(view)).collect()
    }

    fn plan(&self, view: Arc<ContainerView>) -> Plan {
        let probes = plan(&view, &self.policy, None);
        Plan { view, probes }
    }
}
