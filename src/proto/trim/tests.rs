//! What is kept of messages, and what is not.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

fn texts<const N: usize>(pairs: [(&str, String); N]) -> HashMap<String, String> {
    pairs.map(|(key, value)| (key.to_owned(), value)).into()
}

fn pod(labels: HashMap<String, String>, annotations: HashMap<String, String>) -> cri::PodSandbox {
    let metadata =
        cri::PodSandboxMetadata { name: "web".into(), uid: "u".into(), namespace: "shop".into(), attempt: 3 };
    cri::PodSandbox {
        id: "s".into(),
        metadata: Some(metadata),
        state: 1,
        created_at: -7,
        labels,
        annotations,
        runtime_handler: String::new(),
    }
}

#[test]
fn what_is_small_and_read_is_kept_as_it_is() {
    let annotations = texts([
        ("liveness.criprobe.dev/app", "{}".to_owned()),
        ("criprobe.dev/probes", "off".to_owned()),
        ("livenes.criprobe.dev/app", String::new()),
        ("liveness.criprobe.dev", String::new()),
        ("io.kubernetes.container.ports", "[]".to_owned()),
        ("kubectl.kubernetes.io/last-applied-configuration", "{}".to_owned()),
        ("kubernetes.io/config.source", "file".to_owned()),
    ]);
    let whole = pod(texts([("tier", "front".to_owned()), ("empty", String::new())]), annotations);
    assert_eq!(decode(&whole.encode_to_vec()), Ok(Trimmed::from(whole)));
}

#[test]
fn annotations_that_nothing_reads_are_left_out_and_not_counted() {
    let mut whole =
        pod(HashMap::new(), texts([("criprobe.dev", "x".into()), ("notcriprobe.dev/x", "x".into())]));
    let trimmed = decode::<cri::PodSandbox>(&whole.encode_to_vec()).unwrap();
    whole.annotations.clear();
    assert_eq!(trimmed, whole.into());
}

#[test]
fn the_longest_are_left_out_and_counted_whatever_the_order() {
    let long = |length: usize| "x".repeat(length);
    let mut labels: HashMap<_, _> =
        (0..20).map(|number| (format!("small-{number}"), number.to_string())).collect();
    labels.extend(texts([("a", long(MAX_LABELS)), ("z", long(12_000_000)), ("fits", long(20_000))]));
    let annotations = texts([
        ("liveness.criprobe.dev/a", long(12_000_000)),
        ("kubectl.kubernetes.io/last-applied-configuration", long(MAX_ANNOTATIONS)),
        ("readiness.criprobe.dev/a", "{}".to_owned()),
    ]);
    let trimmed = decode::<cri::PodSandbox>(&pod(labels, annotations).encode_to_vec()).unwrap();
    assert_eq!((trimmed.labels.len(), trimmed.labels["fits"].len()), (21, 20_000));
    assert_eq!((trimmed.annotations.len(), trimmed.omitted()), (2, 3));
    assert_eq!(trimmed.annotations["liveness.criprobe.dev/a"].len(), MAX_OWN, "long enough to be refused");
}

#[test]
fn any_number_of_tiny_entries_has_its_bound_too() {
    let labels = (0..100_000).map(|number| (number.to_string(), String::new())).collect();
    let trimmed = decode::<cri::PodSandbox>(&pod(labels, HashMap::new()).encode_to_vec()).unwrap();
    assert!(trimmed.labels.len() <= MAX_LABELS / OVERHEAD);
    assert_eq!(trimmed.labels.len() + trimmed.omitted() as usize, 100_000);
}

#[test]
fn a_container_loses_its_labels_and_its_environment_and_keeps_its_image() {
    let config = cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata { name: "app".into(), attempt: 2 }),
        image: Some(cri::ImageSpec {
            image: "sha256:1".into(),
            user_specified_image: "web".into(),
            annotations: texts([("x", "y".into())]),
            ..Default::default()
        }),
        envs: vec![cri::KeyValue { key: "A".into(), value: "1".into() }],
        labels: texts([("x", "y".into())]),
        command: vec!["sleep".into()],
        ..Default::default()
    };
    let sandbox = cri::PodSandboxConfig {
        metadata: pod(HashMap::new(), HashMap::new()).metadata,
        labels: texts([("x", "y".into())]),
        ..Default::default()
    };
    let mut whole = cri::CreateContainerRequest {
        pod_sandbox_id: "s".into(),
        config: Some(config),
        sandbox_config: Some(sandbox),
    };
    let trimmed = decode::<cri::CreateContainerRequest>(&whole.encode_to_vec()).unwrap();
    let config = whole.config.as_mut().unwrap();
    config.labels.clear();
    config.envs.clear();
    config.command.clear();
    config.image.as_mut().unwrap().annotations.clear();
    whole.sandbox_config.as_mut().unwrap().labels.clear();
    assert!(trimmed == whole.into());
}

#[test]
fn a_long_name_is_shortened_and_stays_its_own() {
    let names = ["a".repeat(MAX_NAME), "a".repeat(MAX_NAME + 1), "a".repeat(9_000), "ä".repeat(9_000)];
    let kept: BTreeSet<_> = names.iter().map(|text| name(text)).collect();
    assert_eq!((kept.len(), &*name(&names[0])), (4, &*names[0]));
    assert!(kept.iter().all(|kept| kept.len() <= MAX_NAME));
    insta::assert_snapshot!(name(&names[1])[480..], @"aaaaaaaaaaaaa...9eafab1467cb0a8c");
    let mut whole = pod(HashMap::new(), HashMap::new());
    whole.metadata.as_mut().unwrap().uid = names[2].clone();
    let trimmed = decode::<cri::PodSandbox>(&whole.encode_to_vec()).unwrap();
    assert_eq!(trimmed.metadata.as_ref().unwrap().uid, *name(&names[2]));
}

#[test]
fn what_is_malformed_in_any_part_is_refused() {
    for bytes in [
        &b"\x0a\x05ab"[..],
        b"\x0a",
        b"\x0b\x0c",
        b"\x08\x01",
        b"\x12\x02\x0a\x05",
        b"\x2a\x02\x0a\x05",
        b"\x2a\x02\x08\x01",
        b"\x0a\x01\xff",
        b"\x00\x00",
    ] {
        assert_eq!(decode::<cri::PodSandbox>(bytes), Err(Malformed), "{bytes:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused_and_what_is_read_is_bounded(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(trimmed) = decode::<cri::CreateContainerRequest>(&bytes) {
            let whole = cri::CreateContainerRequest::decode(bytes.as_slice());
            prop_assert!(whole.is_ok_and(|whole| trimmed.encoded_len() <= whole.encoded_len()));
        }
    }

    #[test]
    fn a_pod_of_any_labels_is_decoded_as_it_was_written(labels in prop::collection::hash_map(".{0,9}", ".{0,9}", 0..20)) {
        let whole = pod(labels, HashMap::new());
        prop_assert_eq!(decode(&whole.encode_to_vec()), Ok(Trimmed::from(whole)));
    }
}

#[test]
fn the_label_of_a_kubelets_pod_is_kept_however_many_others_there_are() {
    let mut labels: HashMap<_, _> = (0..2000).map(|number| (number.to_string(), String::new())).collect();
    labels.insert(KUBELETS_UID.to_owned(), "1f6b8d7c-0000-4000-8000-000000000000".to_owned());
    let trimmed = decode::<cri::PodSandbox>(&pod(labels, HashMap::new()).encode_to_vec()).unwrap();
    assert!(trimmed.omitted() > 0 && trimmed.labels.contains_key(KUBELETS_UID));
}

#[test]
fn the_end_of_a_container_is_kept_and_bounded() {
    let status = cri::ContainerStatus {
        id: "c".into(),
        finished_at: 7,
        exit_code: 137,
        reason: "OOMKilled".into(),
        message: "killed".into(),
        log_path: "/var/log/pods/a/app/0.log".into(),
        ..Default::default()
    };
    assert_eq!(decode(&status.encode_to_vec()), Ok(Trimmed::from(status.clone())));
    let long = cri::ContainerStatus {
        reason: "r".repeat(MAX_NAME + 1),
        message: "\u{fc}".repeat(MAX_TEXT),
        log_path: "/".repeat(MAX_TEXT + 1),
        ..status
    };
    let kept = decode::<cri::ContainerStatus>(&long.encode_to_vec()).unwrap();
    let kept = kept.into_inner();
    assert_eq!((kept.reason.len(), kept.message.len(), &*kept.log_path), (MAX_NAME, MAX_TEXT, ""));
}
