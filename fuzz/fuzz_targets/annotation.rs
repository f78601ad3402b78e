//! Any text as a probe's annotation: planning never panics, a probe that results keeps its bounds, one that does not has
//! a reason in one line.
//!
//! The first byte chooses the type.

#![no_main]

use std::{collections::BTreeMap, sync::Arc};

use criprobe::{
    ids::{ContainerId, PodUid, ProbeKind, SandboxId},
    inventory::pod::{Container, ContainerState, Pod, PodNetwork},
    spec::{
        Handler,
        plan::{ImageFacts, plan},
        policy::Policy,
        validate::{MIN_PERIOD, MIN_TIMEOUT},
    },
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((kind, text)) = data.split_first() else { return };
    let kind = ProbeKind::ALL[usize::from(*kind) % ProbeKind::ALL.len()];
    let text = String::from_utf8_lossy(text).into_owned();
    let annotations = BTreeMap::from([(format!("{kind}.criprobe.dev/app"), text)]);
    let container = container(annotations);
    let plan = plan(&container, &Policy::default(), ImageFacts::default());
    assert_eq!(plan.len(), 1);
    let definition = plan[0].definition(&container);
    assert_eq!(definition.is_ok(), plan[0].spec.is_ok());
    match definition {
        Ok(spec) => {
            assert!(spec.kind == kind && spec.period >= MIN_PERIOD && spec.timeout >= MIN_TIMEOUT);
            assert!(spec.success_threshold >= 1 && spec.failure_threshold >= 1);
            assert!(spec.exec_mode.is_none() || matches!(spec.handler, Handler::Exec { .. }));
        }
        Err(invalid) => assert!(!invalid.reason.is_empty() && !invalid.reason.contains(char::is_control)),
    }
});

fn container(annotations: BTreeMap<String, String>) -> Container {
    Container {
        id: ContainerId::from("c"),
        name: "app".into(),
        attempt: 0,
        image: "busybox".into(),
        image_spec: "".into(),
        image_ref: "".into(),
        state: ContainerState::Running,
        is_paused: false,
        created_at: None,
        started_at: None,
        end: None,
        log_path: "".into(),
        annotations,
        omitted: 0,
        pod: Arc::new(Pod {
            sandbox_id: SandboxId::from("s"),
            uid: PodUid::from("u"),
            name: "web".into(),
            namespace: "default".into(),
            attempt: 0,
            copied_uid: None,
            is_ready: true,
            is_kubelets: false,
            network: PodNetwork::Unknown,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            omitted: 0,
        }),
    }
}
