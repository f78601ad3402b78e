//! Finds the probe or the container that somebody named: a name and all that there are in, the one that is meant out, or
//! why there is none, with the nearest. Pure.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::{
    nearest::{did_you_mean, nearest},
    view::{ProbeView, joined},
};
use crate::prober::operator::Listed;

/// Why nothing was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotFound {
    /// It cannot be a name of such a thing, or is that of several.
    #[error("{0}")]
    Malformed(String),
    /// Nothing has this name.
    #[error("{0}")]
    Unknown(String),
}

/// How a container is written, for those who wrote it otherwise.
const CONTAINER: &str = "write NAMESPACE/POD/CONTAINER, or a container's id or its beginning";

/// The probe with these names: namespace, pod, container and type, then that of the newest sandbox; or the parts of its
/// key: uid, container and type. Expects older ones before newer ones.
pub(super) fn probe(names: &[String], mut probes: Vec<ProbeView>) -> Result<ProbeView, NotFound> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (at, near): (_, Vec<_>) = match names[..] {
        [namespace, pod, container, kind] => {
            let wanted = [namespace, pod, container, kind];
            let at = probes.iter().rposition(|probe| id(probe) == wanted);
            (at, nearest(wanted, 1, probes.iter().map(id)).into_iter().map(joined).collect())
        }
        [uid, container, kind] => {
            let wanted = [uid, container, kind];
            let at = probes.iter().rposition(|probe| key(probe) == wanted);
            (at, nearest(wanted, 0, probes.iter().map(key)).into_iter().map(joined).collect())
        }
        _ => (None, Vec::new()),
    };
    match at {
        Some(at) => Ok(probes.swap_remove(at)),
        None => Err(NotFound::Unknown(format!("no probe {}{}", joined(names), did_you_mean(&near)))),
    }
}

/// The container that is written so: `NAMESPACE/POD/CONTAINER`, names percent-encoded where they hold a slash, then the
/// newest one of that name; or an id, or the beginning of one id only.
pub(super) fn container(written: &str, mut containers: Vec<Listed>) -> Result<Listed, NotFound> {
    containers.sort_by(|a, b| (names(a), a.age(), &a.view.id).cmp(&(names(b), b.age(), &b.view.id)));
    let parts: Vec<_> = written.split('/').map(|part| percent_decode_str(part).decode_utf8()).collect();
    let at = match &parts[..] {
        [Ok(_)] => by_container_id(written, &containers),
        [Ok(namespace), Ok(pod), Ok(name)] => by_names([namespace, pod, name], &containers),
        _ => Err(NotFound::Malformed(format!("{} names no container: {CONTAINER}", shown(written)))),
    }?;
    Ok(containers.swap_remove(at))
}

fn by_names(wanted: [&Cow<'_, str>; 3], containers: &[Listed]) -> Result<usize, NotFound> {
    let wanted = wanted.map(|name| &**name);
    containers.iter().rposition(|listed| names(listed) == wanted).ok_or_else(|| {
        let near = nearest(wanted, 1, containers.iter().map(names));
        let near: Vec<_> = near.into_iter().map(joined).collect();
        NotFound::Unknown(format!("no container {}{}", joined(wanted), did_you_mean(&near)))
    })
}

fn by_container_id(written: &str, containers: &[Listed]) -> Result<usize, NotFound> {
    let begins: Vec<_> =
        (0..containers.len()).filter(|&at| containers[at].view.id.as_str().starts_with(written)).collect();
    let exact = begins.iter().find(|&&at| containers[at].view.id.as_str() == written);
    match (exact, &begins[..]) {
        (Some(&at), _) | (None, &[at]) => Ok(at),
        (None, []) => Err(NotFound::Unknown(unknown_id(written, containers))),
        (None, several) => Err(NotFound::Malformed(format!(
            "{} containers have an id that begins with {written}: write more of it",
            several.len()
        ))),
    }
}

/// Who writes the name of a pod or of a container alone is told how to write it in full.
fn unknown_id(written: &str, containers: &[Listed]) -> String {
    let named = containers.iter().map(names).filter(|names| names[1..].contains(&written));
    let mut full: Vec<_> = named.map(joined).collect();
    full.dedup();
    let most = full.len().min(3);
    let hint = match &full[..most] {
        [] => format!(": {CONTAINER}"),
        some => did_you_mean(some),
    };
    format!("no container has an id that begins with {}{hint}", shown(written))
}

/// In quotes, and not much of it.
fn shown(written: &str) -> String {
    match written.char_indices().nth(64) {
        None => format!("{written:?}"),
        Some((end, _)) => format!("{:?}...", &written[..end]),
    }
}

/// Namespace, pod and container.
fn names(listed: &Listed) -> [&str; 3] {
    [&listed.view.pod.namespace, &listed.view.pod.name, &listed.view.name]
}

fn id(probe: &ProbeView) -> [&str; 4] {
    [&probe.namespace, &probe.pod, &probe.container, &probe.kind]
}

fn key(probe: &ProbeView) -> [&str; 3] {
    [&probe.pod_uid, &probe.container, &probe.kind]
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        sync::Arc,
        time::{Duration, SystemTime},
    };

    use super::*;
    use crate::{
        inventory::view::{ContainerState, ContainerView, PodNetwork, PodView},
        report::view::sample,
    };

    fn probe(written: &str) -> Result<u32, String> {
        let older = sample::named_probe("default", "web", "app", "liveness");
        let newer = ProbeView { pod_uid: "uid-2".to_owned(), attempt: 1, ..older.clone() };
        let odd = ProbeView { attempt: 7, ..sample::named_probe("a/b", "50%", "x", "readiness") };
        let names: Vec<_> = written.split(' ').map(str::to_owned).collect();
        let found = super::probe(&names, vec![older, newer, odd]);
        found.map(|probe| probe.attempt).map_err(|error| error.to_string())
    }

    #[test]
    fn a_probe_is_found_by_its_id_or_its_key_or_the_nearest_is_named() {
        for (written, found) in [
            ("default web app liveness", Ok(1)),
            ("uid-web app liveness", Ok(0)),
            ("uid-2 app liveness", Ok(1)),
            ("a/b 50% x readiness", Ok(7)),
            (
                "default wbe app liveness",
                Err("no probe default/wbe/app/liveness; did you mean default/web/app/liveness?"),
            ),
            (
                "uid-wbe app liveness",
                Err("no probe uid-wbe/app/liveness; did you mean uid-web/app/liveness?"),
            ),
            (
                "default web app startup",
                Err("no probe default/web/app/startup; did you mean default/web/app/liveness?"),
            ),
            (
                "a/c 50% x readiness",
                Err("no probe a%2Fc/50%25/x/readiness; did you mean a%2Fb/50%25/x/readiness?"),
            ),
            ("other db app liveness", Err("no probe other/db/app/liveness")),
            ("app liveness", Err("no probe app/liveness")),
        ] {
            assert_eq!(probe(written), found.map_err(str::to_owned), "{written}");
        }
    }

    fn listed(id: &str, namespace: &str, pod: &str, uid: &str, made: Option<u64>) -> Listed {
        let pod = PodView {
            sandbox_id: "s".into(),
            uid: uid.into(),
            name: pod.into(),
            namespace: namespace.into(),
            attempt: 0,
            is_ready: true,
            network: PodNetwork::Unknown,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        };
        let view = ContainerView {
            id: id.into(),
            name: "app".into(),
            attempt: 0,
            image: "x".into(),
            image_ref: "sha256:1".into(),
            state: ContainerState::Running,
            created_at: made.map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)),
            started_at: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            env: None,
            pod: Arc::new(pod),
        };
        Listed { view: Arc::new(view), probes: Vec::new() }
    }

    #[test]
    fn a_container_is_found_by_its_names_or_by_its_id_or_the_nearest_is_named() {
        let there = [
            listed("abc1", "default", "web", "u2", Some(9)),
            listed("abd2", "default", "web", "u1", Some(8)),
            listed("ab", "a/b", "x", "u3", None),
            listed("f00", "a/b", "x", "u4", Some(9)),
        ];
        for (written, found) in [
            ("default/web/app", Ok("abc1")),
            ("a%2Fb/x/app", Ok("ab")),
            ("abc1", Ok("abc1")),
            ("abc", Ok("abc1")),
            ("ab", Ok("ab")),
            ("f", Ok("f00")),
            ("a", Err("3 containers have an id that begins with a: write more of it")),
            ("default/wbe/app", Err("no container default/wbe/app; did you mean default/web/app?")),
            ("prod/web/app", Err("no container prod/web/app; did you mean default/web/app?")),
            ("default/web/ap", Err("no container default/web/ap; did you mean default/web/app?")),
            ("default/db/app", Err("no container default/db/app")),
            ("web", Err("no container has an id that begins with \"web\"; did you mean default/web/app?")),
            (
                "bad",
                Err(
                    "no container has an id that begins with \"bad\": write NAMESPACE/POD/CONTAINER, or a container's \
                     id or its beginning",
                ),
            ),
            (
                "web/app",
                Err(
                    "\"web/app\" names no container: write NAMESPACE/POD/CONTAINER, or a container's id or its beginning",
                ),
            ),
            (
                "%FF/web/app",
                Err(
                    "\"%FF/web/app\" names no container: write NAMESPACE/POD/CONTAINER, or a container's id or its \
                     beginning",
                ),
            ),
        ] {
            let found_at = container(written, there.to_vec());
            let id = found_at.map(|listed| listed.view.id.to_string()).map_err(|error| error.to_string());
            assert_eq!(id, found.map(str::to_owned).map_err(str::to_owned), "{written}");
        }
    }
}
