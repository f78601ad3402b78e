//! A filter that shows nothing: whether it names what the daemon knows, or else what is probably meant.

use super::{Context, Error, banner, screen::print, select::Names};
use crate::report::{
    filter::{EventFilter, Glob, PodFilter},
    lookup::suggestion,
    view::{EventView, PodView, StatusView, joined},
};

/// What is said instead of `no pods`, where pods may run that are not known yet.
pub(super) const UNLISTED: &str =
    "the runtime's pods are not known yet: it has not been listed since criprobe started";

/// Whether the runtime's pods have not been listed since the daemon started; no of a daemon that does not say.
async fn is_unlisted(context: &Context) -> bool {
    let status: Result<StatusView, _> = context.client.get("/v1/status").await;
    status.is_ok_and(|status| status.inventory.last_resync_at.is_none())
}

/// To be asked when no pod or probe was shown: whether that means that there is none. `is_check`: the exit code is the answer to
/// a question.
///
/// # Errors
/// As [`Names::check`]; or nothing is known yet.
pub(super) async fn known(context: &Context, names: &Names, is_check: bool) -> Result<(), Error> {
    if is_unlisted(context).await {
        let is_named = !names.is_empty() && !is_check;
        return Err(if is_named { Error::Usage } else { Error::Declined }(UNLISTED.to_owned()));
    }
    names.check(context).await
}

/// The error of a question for a pod or a part of one that the daemon does not know. Where the pod is gone and its events
/// are kept, they are named.
pub(super) async fn with_events(context: &Context, names: &[String], error: Error) -> Error {
    if matches!(error, Error::Usage(_)) && is_unlisted(context).await {
        return match print(&banner::text(context).await) {
            Ok(()) => Error::Usage(UNLISTED.to_owned()),
            Err(unwritten) => unwritten.into(),
        };
    }
    let (Error::Usage(reason), [namespace, pod, ..]) = (&error, names) else { return error };
    let (of_namespace, of_pod) = (Some((&**namespace).into()), Some((&**pod).into()));
    let filter = PodFilter { namespace: of_namespace.clone(), pod: of_pod.clone() };
    let there = context.client.get::<Vec<PodView>>(&format!("/v1/pods{}", filter.to_query())).await;
    let filter = EventFilter {
        namespace: of_namespace,
        pod: of_pod,
        last: Some(usize::MAX),
        ..EventFilter::default()
    };
    let events = context.client.lines(&format!("/v1/events{}", filter.to_query())).await;
    let (Ok([]), Ok(mut events)) = (there.as_deref(), events) else { return error };
    // Those of the runtime are among them.
    while let Ok(Some(event)) = events.next::<EventView>().await {
        if event.namespace == *namespace && event.pod == *pod {
            return Error::Usage(format!(
                "{reason}; the last events of one of this name are kept: criprobe events {}",
                joined([&**namespace, &**pod])
            ));
        }
    }
    error
}

/// `shop/web: the pod has no container "ap": did you mean "app"?`
fn problems(pod: &PodView) -> impl Iterator<Item = String> {
    let name = joined([&*pod.namespace, &*pod.pod]);
    pod.problems.iter().map(move |problem| format!("{name}: {problem}"))
}

impl Names {
    /// What is wrong with the annotations of the pods that have such names, and belongs to no probe: `shop/web: ...`.
    pub(super) async fn problems(&self, context: &Context) -> Result<Vec<String>, Error> {
        let filter = PodFilter { namespace: self.namespace.clone(), pod: self.pod.clone() };
        let pods: Vec<PodView> = context.client.get(&format!("/v1/pods{}", filter.to_query())).await?;
        Ok(pods.iter().flat_map(problems).collect())
    }

    /// Whether it asks for all.
    pub(super) fn is_empty(&self) -> bool {
        self.namespace.is_none() && self.pod.is_none() && self.container.is_none()
    }

    /// To be asked when nothing was shown.
    ///
    /// # Errors
    /// No pod or container that the daemon knows has such names; with the nearest names.
    pub(super) async fn check(&self, context: &Context) -> Result<(), Error> {
        if self.is_empty() {
            return Ok(());
        }
        let pods: Vec<PodView> = context.client.get("/v1/pods").await?;
        self.unknown(&pods).map_or(Ok(()), |reason| Err(Error::Usage(reason)))
    }

    /// What of it no pod has.
    pub(super) fn unknown(&self, pods: &[PodView]) -> Option<String> {
        let fits = |glob: &Option<Glob>, name: &str| glob.as_ref().is_none_or(|glob| glob.matches(name));
        let of_namespace: Vec<_> = pods.iter().filter(|pod| fits(&self.namespace, &pod.namespace)).collect();
        if let Some(glob) = self.namespace.as_ref().filter(|_| of_namespace.is_empty()) {
            return Some(none("namespace", glob, "", pods.iter().map(|pod| &*pod.namespace)));
        }
        let place = self.namespace.as_ref().map(|glob| format!(" in namespace {}", glob.as_str()));
        let place = place.unwrap_or_default();
        let of_pod: Vec<_> = of_namespace.iter().filter(|pod| fits(&self.pod, &pod.pod)).collect();
        if let Some(glob) = self.pod.as_ref().filter(|_| of_pod.is_empty()) {
            return Some(none("pod", glob, &place, of_namespace.iter().map(|pod| &*pod.pod)));
        }
        let containers = || of_pod.iter().flat_map(|pod| &pod.containers).map(|one| &*one.container);
        let glob = self.container.as_ref().filter(|glob| !containers().any(|name| glob.matches(name)))?;
        let place = self.pod.as_ref().map_or(place, |pod| format!(" in pod {}", pod.as_str()));
        Some(none("container", glob, &place, containers()))
    }
}

/// `no pod matches wbe in namespace shop; did you mean web?`
fn none<'a>(what: &str, glob: &Glob, place: &str, known: impl Iterator<Item = &'a str>) -> String {
    let hint = suggestion(glob.as_str(), known);
    let hint = if hint.is_empty() { "; 'criprobe pods' lists what there is".to_owned() } else { hint };
    format!("no {what} matches {}{place}{hint}", glob.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::view::sample;

    #[test]
    fn what_nothing_has_is_named_with_what_is_near() {
        let pods = [
            PodView { namespace: "shop".to_owned(), pod: "web-0".to_owned(), ..sample::pod() },
            PodView { namespace: "shop".to_owned(), pod: "cart".to_owned(), ..sample::pod() },
            PodView { namespace: "default".to_owned(), pod: "db".to_owned(), ..sample::pod() },
        ];
        let lists = "; 'criprobe pods' lists what there is";
        for (names, reported) in [
            (["", "", ""], None),
            (["shop", "web-*", "app"], None),
            (["shpo", "", ""], Some("no namespace matches shpo; did you mean shop?".to_owned())),
            (["", "web", ""], Some("no pod matches web; did you mean web-0?".to_owned())),
            (["prod*", "web-0", ""], Some(format!("no namespace matches prod*{lists}"))),
            (
                ["shop", "crat", ""],
                Some("no pod matches crat in namespace shop; did you mean cart?".to_owned()),
            ),
            (["", "wbe-0", "app"], Some("no pod matches wbe-0; did you mean web-0?".to_owned())),
            (["", "db", "ap"], Some("no container matches ap in pod db; did you mean app?".to_owned())),
            (["default", "web-0", ""], Some(format!("no pod matches web-0 in namespace default{lists}"))),
        ] {
            let [namespace, pod, container] = names.map(|name| (!name.is_empty()).then(|| name.into()));
            let found = Names { namespace, pod, container }.unknown(&pods);
            assert_eq!(found, reported, "{names:?}");
        }
    }
}
