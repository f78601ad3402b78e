//! One pod and one container for the tests of all stages: each test changes in them what it is about.

use std::{collections::BTreeMap, sync::Arc};

use super::pod::{Container, ContainerState, Pod, PodNetwork};

/// Pod `web` of `default`, which is ready.
pub(crate) fn pod() -> Pod {
    Pod {
        sandbox_id: "s1".into(),
        uid: "u1".into(),
        copied_uid: None,
        name: "web".into(),
        namespace: "default".into(),
        attempt: 0,
        is_ready: true,
        is_kubelets: false,
        network: PodNetwork::Unknown,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        omitted: 0,
    }
}

/// Its container `app`, which runs.
pub(crate) fn container(id: &str, pod: Pod) -> Container {
    Container {
        id: id.into(),
        name: "app".into(),
        attempt: 0,
        image: "x".into(),
        image_spec: "x".into(),
        image_ref: "sha256:1".into(),
        state: ContainerState::Running,
        is_paused: false,
        created_at: None,
        started_at: None,
        end: None,
        log_path: "".into(),
        annotations: BTreeMap::new(),
        omitted: 0,
        pod: Arc::new(pod),
    }
}

/// Labels or annotations.
pub(crate) fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}
