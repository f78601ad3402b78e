//! Which texts are read, how often, and in which order.

use super::*;
use crate::{
    clock,
    inventory::fixtures::{self, texts},
    observed::fixtures::command,
};

const POD: &str =
    r#"{"spec": {"containers": [{"name": "app", "livenessProbe": {"exec": {"command": ["cat"]}}}]}}"#;

fn pod(uid: &str, namespace: &str, annotations: &[(&str, &str)]) -> Arc<Pod> {
    let (uid, namespace, sandbox_id) = (uid.into(), namespace.into(), format!("sandbox of {uid}").into());
    Arc::new(Pod { uid, namespace, sandbox_id, annotations: texts(annotations), ..fixtures::pod() })
}

fn likely(manifests: &Manifests, uid: &str) -> Option<ProbeKind> {
    manifests.likely((&uid.into(), "app"), &command("c1", &["cat"], 1), Duration::from_secs(10))
}

/// Reads all that is wanted; returns whose, in order, and whether it was parsed.
fn read(manifests: &mut Manifests, now: Instant) -> Vec<(String, bool)> {
    let mut read = Vec::new();
    while let Some(text) = manifests.next_text(now) {
        let answer = text.read();
        read.push((text.pod.uid.to_string(), answer.written.is_some()));
        manifests.learn_text(answer);
    }
    read
}

#[test]
fn row_16_a_text_is_read_once_whatever_becomes_of_the_pods_sandboxes_and_containers() {
    let (mut manifests, now) = (Manifests::default(), clock::now());
    let web = pod("web", "shop", &[(LAST_APPLIED, POD)]);
    for _ in 0..300 {
        assert_eq!(manifests.want(&web, now), Some(Source::Annotation));
    }
    let text = manifests.next_text(now).unwrap();
    // Probes of other containers are found while it is read.
    for _ in 0..300 {
        manifests.want(&web, now);
    }
    manifests.learn_text(text.read());
    assert_eq!((read(&mut manifests, now), likely(&manifests, "web")), (vec![], Some(ProbeKind::Liveness)));
    // After a resync.
    assert_eq!(manifests.want(&Arc::new(Pod::clone(&web)), now), None);
    // A new sandbox: the text is compared, and read again only if it is another one.
    let again = |text: &str| {
        let pod = Pod {
            sandbox_id: text.len().to_string().into(),
            annotations: texts(&[(LAST_APPLIED, text)]),
            ..Pod::clone(&web)
        };
        Arc::new(pod)
    };
    manifests.want(&Arc::new(Pod { sandbox_id: "second".into(), ..Pod::clone(&web) }), now);
    assert_eq!(read(&mut manifests, now), [("web".to_owned(), false)]);
    assert_eq!(likely(&manifests, "web"), Some(ProbeKind::Liveness));
    manifests.want(&again("{}"), now);
    assert_eq!(
        (read(&mut manifests, now), likely(&manifests, "web")),
        (vec![("web".to_owned(), true)], None)
    );
}

#[test]
fn row_16_namespaces_take_turns_and_a_reader_that_fails_loses_only_one_text() {
    let (mut manifests, now) = (Manifests::default(), clock::now());
    for number in 0..5 {
        manifests.want(&pod(&format!("big-{number}"), "evil", &[(LAST_APPLIED, "{}")]), now);
    }
    let web = pod("web", "shop", &[(LAST_APPLIED, POD)]);
    manifests.want(&web, now);
    drop(manifests.next_text(now));
    let order: Vec<_> = read(&mut manifests, now).into_iter().map(|(uid, _)| uid).collect();
    assert_eq!(order, ["web", "big-1", "big-2", "big-3", "big-4"]);
    manifests.want(&pod("big-0", "evil", &[(LAST_APPLIED, "{}")]), now);
    assert_eq!(read(&mut manifests, now), [("big-0".to_owned(), true)]);
}

#[test]
fn a_static_pods_manifest_is_waited_for_and_asked_for_once() {
    let (mut manifests, now) = (Manifests::default(), clock::now());
    let etcd = pod("etcd", "kube-system", &[(SOURCE, "file")]);
    assert_eq!(manifests.want(&etcd, now), Some(Source::File));
    assert_eq!((manifests.awaited_files().count(), likely(&manifests, "etcd")), (1, None));
    assert!(manifests.next_text(now).is_none());
    let uid = PodUid::from("etcd");
    manifests.learn_file(&uid, Some(Arc::new(Written::read(POD))));
    assert_eq!(
        (manifests.awaited_files().count(), likely(&manifests, "etcd")),
        (0, Some(ProbeKind::Liveness))
    );
    manifests.learn_file(&uid, None);
    assert!(likely(&manifests, "etcd").is_some(), "what is known stays");
    assert_eq!(manifests.want(&etcd, now), None);
    for nothing in [pod("none", "shop", &[]), pod("api", "shop", &[(SOURCE, "api")])] {
        assert_eq!(manifests.want(&nothing, now), None);
    }
    let missing = pod("missing", "kube-system", &[(SOURCE, "file")]);
    manifests.want(&missing, now);
    manifests.learn_file(&"missing".into(), None);
    assert_eq!(manifests.want(&missing, now), None);
}

#[test]
fn row_16_what_is_kept_of_all_pods_is_bounded_and_those_with_most_lose_it_first() {
    let (mut manifests, now) = (Manifests::default(), clock::now());
    manifests.want(&pod("web", "shop", &[(LAST_APPLIED, POD)]), now);
    let word = "x".repeat(4000);
    let container = |number| {
        format!(r#"{{"name": "c{number}", "livenessProbe": {{"exec": {{"command": ["{word}"]}}}}}}"#)
    };
    let containers: Vec<_> = (0..15).map(container).collect();
    let big = format!(r#"{{"spec": {{"containers": [{}]}}}}"#, containers.join(","));
    for number in 0..100 {
        manifests.want(&pod(&format!("big-{number}"), "evil", &[(LAST_APPLIED, &big)]), now);
    }
    assert_eq!(read(&mut manifests, now).len(), 101);
    let sum =
        |manifests: &Manifests| manifests.pods.values().map(|known| known.written.weight()).sum::<usize>();
    assert!(
        (MOST_IN_ALL / 2..=MOST_IN_ALL).contains(&manifests.weight) && sum(&manifests) == manifests.weight
    );
    assert_eq!(likely(&manifests, "web"), Some(ProbeKind::Liveness));
    let patience = Duration::from_secs(60);
    manifests.sweep(|_| true, patience, now + 2 * patience);
    assert_eq!(manifests.pods.len(), 101);
    manifests.sweep(|uid| uid.as_str() == "web", patience, now + 4 * patience);
    assert_eq!((manifests.pods.len(), manifests.weight), (1, sum(&manifests)));
}
