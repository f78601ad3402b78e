//! Finds a probe or a container by the name that a user gave: the name and all candidates in; the match out, or why
//! there is none, with the nearest names. Pure.

use std::{borrow::Cow, collections::BTreeSet, time::SystemTime};

use percent_encoding::percent_decode_str;

use super::{
    nearest::{MOST, did_you_mean, nearest},
    view::{ContainerView, PodView, ProbeView, joined},
};
use crate::prober::Listed;

/// Why nothing was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotFound {
    /// It cannot be a name of such a thing, or is that of several.
    #[error("{0}")]
    Malformed(String),
    /// Nothing has this name.
    #[error("{0}")]
    Unknown(String),
}

/// A container that can be named.
pub(crate) trait NamedContainer {
    /// Namespace, pod and container.
    fn names(&self) -> [&str; 3];
    /// The runtime's id.
    fn id(&self) -> &str;
    /// Orders containers of one name of one pod name: the newest last. One whose age the runtime has not reported was
    /// created just now.
    fn age(&self) -> (bool, Option<SystemTime>, u32);
}

impl NamedContainer for &Listed {
    fn names(&self) -> [&str; 3] {
        [&self.view.pod.namespace, &self.view.pod.name, &self.view.name]
    }

    fn id(&self) -> &str {
        self.view.id.as_str()
    }

    fn age(&self) -> (bool, Option<SystemTime>, u32) {
        (self.view.created_at.is_none(), self.view.created_at, self.view.attempt)
    }
}

/// A pod and one of its containers, as the API shows them.
impl NamedContainer for (&PodView, &ContainerView) {
    fn names(&self) -> [&str; 3] {
        let (pod, container) = self;
        [&pod.namespace, &pod.pod, &container.container]
    }

    fn id(&self) -> &str {
        &self.1.container_id
    }

    fn age(&self) -> (bool, Option<SystemTime>, u32) {
        let created_at = self.1.created_at.map(|at| at.0);
        (created_at.is_none(), created_at, self.1.restarts)
    }
}

/// How a container is written, for those who wrote it otherwise.
const CONTAINER: &str = "write NAMESPACE/POD/CONTAINER, or a container's ID or its first characters";

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
            // Who leaves out the namespace has written what looks like a key.
            let mut full: Vec<_> = probes.iter().map(id).filter(|id| id[1..] == wanted).map(joined).collect();
            full.dedup();
            full.truncate(MOST);
            let near = nearest(wanted, 0, probes.iter().map(key)).into_iter().map(joined);
            (at, if full.is_empty() { near.collect() } else { full })
        }
        _ => (None, Vec::new()),
    };
    match at {
        Some(at) => Ok(probes.swap_remove(at)),
        None => {
            let hint = match names[..] {
                [namespace, pod, container, kind] => {
                    hint(&near, &[namespace, pod, container, kind], probes.iter().map(id))
                }
                _ => did_you_mean(&near),
            };
            Err(NotFound::Unknown(format!("no probe {}{hint}", joined(names))))
        }
    }
}

/// The pod with this namespace and name: of several, the one that is up, then the one whose containers are newest.
pub(super) fn pod(names: &[String], mut pods: Vec<PodView>) -> Result<PodView, NotFound> {
    let [namespace, name] = names else {
        return Err(NotFound::Malformed("write NAMESPACE/POD".to_owned()));
    };
    let wanted = [&**namespace, &**name];
    let age = |pod: &PodView| {
        let newest = pod.containers.iter().map(|container| container.created_at).max();
        (pod.sandbox_ready, newest, pod.attempt)
    };
    let named = (0..pods.len()).filter(|&at| [&*pods[at].namespace, &*pods[at].pod] == wanted);
    match named.max_by_key(|&at| age(&pods[at])) {
        Some(at) => Ok(pods.swap_remove(at)),
        None => {
            let all = pods.iter().map(|pod| [&*pod.namespace, &*pod.pod]);
            let near: Vec<_> = nearest(wanted, 1, all).into_iter().map(joined).collect();
            // Who leaves out the namespace has named a container.
            let meant = pods.iter().filter(|pod| pod.pod == *namespace).flat_map(|pod| {
                let named = pod.containers.iter().filter(|container| container.container == *name);
                named.map(|container| joined([&*pod.namespace, &*pod.pod, &*container.container]))
            });
            let mut meant: Vec<_> = meant.take(MOST).collect();
            meant.dedup();
            let near = if meant.is_empty() { near } else { meant };
            let all = pods.iter().map(|pod| [&*pod.namespace, &*pod.pod]);
            Err(NotFound::Unknown(format!("no pod {}{}", joined(wanted), hint(&near, &wanted, all))))
        }
    }
}

/// The container that is written so: `NAMESPACE/POD/CONTAINER`, names percent-encoded where they hold a slash, then the
/// newest one of that name; or an id, or the beginning of one id only.
pub(crate) fn container<C: NamedContainer>(written: &str, mut containers: Vec<C>) -> Result<C, NotFound> {
    let parts: Vec<_> = written.split('/').map(|part| percent_decode_str(part).decode_utf8()).collect();
    let at = match &parts[..] {
        [Ok(_)] => by_container_id(written, &containers),
        [Ok(namespace), Ok(pod), Ok(name)] => by_names([namespace, pod, name], &containers),
        [Ok(pod), Ok(name)] => Err(unnamed(written, |names| names[1..] == [&**pod, &**name], &containers)),
        _ => Err(unnamed(written, |_| false, &containers)),
    }?;
    Ok(containers.swap_remove(at))
}

fn by_names<C: NamedContainer>(wanted: [&Cow<'_, str>; 3], containers: &[C]) -> Result<usize, NotFound> {
    let wanted = wanted.map(|name| &**name);
    let named = (0..containers.len()).filter(|&at| containers[at].names() == wanted);
    let age = |at: usize| (containers[at].age(), containers[at].id());
    named.max_by(|&a, &b| age(a).cmp(&age(b))).ok_or_else(|| {
        let near = nearest(wanted, 1, containers.iter().map(C::names));
        let near: Vec<_> = near.into_iter().map(joined).collect();
        let hint = hint(&near, &wanted, containers.iter().map(C::names));
        NotFound::Unknown(format!("no container {}{hint}", joined(wanted)))
    })
}

fn by_container_id<C: NamedContainer>(written: &str, containers: &[C]) -> Result<usize, NotFound> {
    let begins: Vec<_> =
        (0..containers.len()).filter(|&at| containers[at].id().starts_with(written)).collect();
    let exact = begins.iter().find(|&&at| containers[at].id() == written);
    match (exact, &begins[..]) {
        (Some(&at), _) | (None, &[at]) => Ok(at),
        (None, []) => {
            let hint = meant(|names| names[1..].contains(&written), containers);
            let written = shown(written);
            Err(NotFound::Unknown(format!("no container ID begins with {written}{hint}")))
        }
        (None, several) => Err(NotFound::Malformed(format!(
            "{} container IDs begin with {written}: write more characters",
            several.len()
        ))),
    }
}

fn unnamed<C: NamedContainer>(
    written: &str,
    is_meant: impl Fn([&str; 3]) -> bool,
    containers: &[C],
) -> NotFound {
    NotFound::Malformed(format!(
        "{} does not name a container{}",
        shown(written),
        meant(is_meant, containers)
    ))
}

/// For a part of a name, the hint is how to write it in full.
fn meant<C: NamedContainer>(is_meant: impl Fn([&str; 3]) -> bool, containers: &[C]) -> String {
    let mut first = BTreeSet::new();
    for names in containers.iter().map(C::names).filter(|&names| is_meant(names)) {
        first.insert(names);
        if first.len() > MOST {
            first.pop_last();
        }
    }
    let full: Vec<_> = first.into_iter().map(joined).collect();
    if full.is_empty() { format!(": {CONTAINER}") } else { did_you_mean(&full) }
}

/// Why a pod, or a container of one, has no probes: it does not exist, then with the nearest names of `there`, namespace, pod
/// and container (empty for the pod as such); or it has none.
pub(super) fn without_probes<'a>(names: &[String], there: impl Iterator<Item = [&'a str; 3]>) -> NotFound {
    let (what, wanted): (_, [&str; 3]) = match names {
        [namespace, pod, container] => ("container", [namespace, pod, container]),
        [namespace, pod] => ("pod", [namespace, pod, ""]),
        _ => return NotFound::Malformed("write NAMESPACE/POD or NAMESPACE/POD/CONTAINER".to_owned()),
    };
    let there: BTreeSet<_> = there.filter(|names| what == "container" || names[2].is_empty()).collect();
    if there.contains(&wanted) {
        return NotFound::Unknown(format!("{what} {} has no probes", written(names)));
    }
    let near = nearest(wanted, 1, there.iter().copied()).into_iter();
    let near: Vec<_> = near.map(|names| joined(names.into_iter().filter(|name| !name.is_empty()))).collect();
    let hint = hint(&near, &wanted[..names.len()], there.into_iter());
    NotFound::Unknown(format!("no {what} {}{hint}", written(names)))
}

/// What was probably meant, or else what there is instead of the first name that nothing has: `; namespace shop has the pods
/// cart, db, web-0 and 4 more`.
fn hint<'a, const N: usize>(
    near: &[String],
    wanted: &[&str],
    there: impl Iterator<Item = [&'a str; N]>,
) -> String {
    const PARTS: [[&str; 3]; 4] = [
        ["", "namespace", "namespaces"],
        ["namespace", "pod", "pods"],
        ["pod", "container", "containers"],
        ["container", "probe", "probes"],
    ];
    if !near.is_empty() {
        return did_you_mean(near);
    }
    // The longest beginning that something has, and what comes next there.
    let mut known = 0;
    let mut next = BTreeSet::new();
    for names in there {
        let same = names.iter().zip(wanted).take_while(|(name, wanted)| name == wanted).count();
        if same > known {
            known = same;
            next.clear();
        }
        if let Some(name) = names.get(same).filter(|name| same == known && !name.is_empty()) {
            next.insert(*name);
        }
    }
    let Some([place, one, several]) = PARTS.get(known).filter(|_| known < wanted.len() && !next.is_empty())
    else {
        return String::new();
    };
    let what = if next.len() == 1 { one } else { several };
    let more = next.len().saturating_sub(MOST);
    let names: Vec<_> = next.into_iter().take(MOST).map(|name| joined([name])).collect();
    let names = match &names[..] {
        names if more > 0 => format!("{} and {more} more", names.join(", ")),
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        names => names.concat(),
    };
    match known {
        0 => format!("; there is the {what} {names}").replace("is the namespaces", "are the namespaces"),
        _ => format!("; {place} {} has the {what} {names}", joined(wanted[..known].iter().copied())),
    }
}

/// Names as they are written in a path.
pub(super) fn written(names: &[String]) -> String {
    joined(names.iter().map(String::as_str))
}

/// The names nearest to one, or else those that begin with it: `; did you mean a or b?`; empty if there is none.
pub(crate) fn suggestion<'a>(wanted: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: BTreeSet<&str> = known.collect();
    let near = nearest([wanted], 0, known.iter().map(|name| [*name]));
    let mut near: Vec<_> = near.into_iter().map(|[name]| name.to_owned()).collect();
    if near.is_empty() && !wanted.is_empty() {
        near = known.iter().filter(|name| name.starts_with(wanted)).map(ToString::to_string).collect();
        near.truncate(MOST);
    }
    did_you_mean(&near)
}

/// In quotes, and not much of it.
pub(super) fn shown(written: &str) -> String {
    match written.char_indices().nth(64) {
        None => format!("{written:?}"),
        Some((end, _)) => format!("{:?}...", &written[..end]),
    }
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
        sync::Arc,
        time::{Duration, SystemTime},
    };

    use super::*;
    use crate::{
        inventory::{fixtures, pod as inventory_pod},
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
            ("web app liveness", Err("no probe web/app/liveness; did you mean default/web/app/liveness?")),
            (
                "other db app liveness",
                Err("no probe other/db/app/liveness; there are the namespaces a%2Fb and default"),
            ),
            ("app liveness", Err("no probe app/liveness")),
        ] {
            assert_eq!(probe(written), found.map_err(str::to_owned), "{written}");
        }
    }

    #[test]
    fn a_pod_is_found_by_its_names_or_the_nearest_is_named() {
        let older = PodView { sandbox_ready: false, attempt: 7, ..sample::pod() };
        let odd = PodView { namespace: "a/b".to_owned(), pod: "50%".to_owned(), ..sample::pod() };
        for (written, found) in [
            ("default web", Ok(0)),
            ("a/b 50%", Ok(0)),
            ("default wbe", Err("no pod default/wbe; did you mean default/web?")),
            ("prod web", Err("no pod prod/web; did you mean default/web?")),
            ("web app", Err("no pod web/app; did you mean default/web/app?")),
            ("default db", Err("no pod default/db; namespace default has the pod web")),
            ("shop db", Err("no pod shop/db; there are the namespaces a%2Fb and default")),
            ("default", Err("write NAMESPACE/POD")),
        ] {
            let names: Vec<_> = written.split(' ').map(str::to_owned).collect();
            let found_pod = pod(&names, vec![older.clone(), sample::pod(), older.clone(), odd.clone()]);
            let attempt = found_pod.map(|pod| pod.attempt).map_err(|error| error.to_string());
            assert_eq!(attempt, found.map_err(str::to_owned), "{written}");
        }
    }

    #[test]
    fn where_nothing_is_near_what_there_is_is_named() {
        let there = || ["cart", "db", "web-0", "web-1", "web-2"].map(|pod| ["shop", pod, "app"]).into_iter();
        for (wanted, hinted) in [
            (&["shop", "nothing"][..], "; namespace shop has the pods cart, db, web-0 and 2 more"),
            (&["shop", "cart", "nothing"], "; pod shop/cart has the container app"),
            (&["nothing", "cart"], "; there is the namespace shop"),
            (&["shop", "cart"], ""),
        ] {
            assert_eq!(hint(&[], wanted, there()), hinted, "{wanted:?}");
        }
        assert_eq!(hint(&[], &["a"], std::iter::empty::<[&str; 2]>()), "");
    }

    fn listed(id: &str, namespace: &str, pod: &str, uid: &str, made: Option<u64>) -> Listed {
        let pod = inventory_pod::Pod {
            uid: uid.into(),
            name: pod.into(),
            namespace: namespace.into(),
            ..fixtures::pod()
        };
        let created_at = made.map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        let view = inventory_pod::Container { created_at, ..fixtures::container(id, pod) };
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
            ("a", Err("3 container IDs begin with a: write more characters")),
            ("default/wbe/app", Err("no container default/wbe/app; did you mean default/web/app?")),
            ("prod/web/app", Err("no container prod/web/app; did you mean default/web/app?")),
            ("default/web/ap", Err("no container default/web/ap; did you mean default/web/app?")),
            ("default/db/app", Err("no container default/db/app; namespace default has the pod web")),
            (
                "default/web/sidecar/x",
                Err(
                    "\"default/web/sidecar/x\" does not name a container: write NAMESPACE/POD/CONTAINER, or a container's ID or its first characters",
                ),
            ),
            ("web", Err("no container ID begins with \"web\"; did you mean default/web/app?")),
            (
                "bad",
                Err("no container ID begins with \"bad\": write NAMESPACE/POD/CONTAINER, or a container's \
                     ID or its first characters"),
            ),
            ("web/app", Err("\"web/app\" does not name a container; did you mean default/web/app?")),
            (
                "wbe/app",
                Err(
                    "\"wbe/app\" does not name a container: write NAMESPACE/POD/CONTAINER, or a container's ID or its first characters",
                ),
            ),
            (
                "%FF/web/app",
                Err(
                    "\"%FF/web/app\" does not name a container: write NAMESPACE/POD/CONTAINER, or a container's ID or its \
                     first characters",
                ),
            ),
        ] {
            let found_at = container(written, there.iter().collect());
            let id = found_at.map(|listed| listed.view.id.to_string()).map_err(|error| error.to_string());
            assert_eq!(id, found.map(str::to_owned).map_err(str::to_owned), "{written}");
        }
    }
}
