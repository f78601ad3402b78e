//! A filter that shows nothing: whether it names what the daemon knows, or else what is probably meant.

use super::{Context, Error, select::Names};
use crate::report::{filter::Glob, lookup::suggestion, view::PodView};

impl Names {
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
