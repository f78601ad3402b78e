//! The names of an image: the runtime's names in, every form in which users write them out. Pure.
//!
//! A kubelet creates containers by the ID of their image, and not every runtime keeps the name in the manifest. The
//! runtime's own names of an image are always available.

use std::{collections::BTreeSet, iter};

/// 256 names of one image are kept, the first in their order: an image has one to three, each in one to four forms.
const MAX_NAMES: usize = 256;

/// The registry that is meant where a name has none, and the folder in it for names of one word.
const REGISTRY: &str = "docker.io/";
const LIBRARY: &str = "library/";

/// The tag that is meant where a name has none.
const LATEST: &str = ":latest";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageNames(BTreeSet<Box<str>>);

impl ImageNames {
    /// Of an image that the runtime knows by this id, and by these tags and digests.
    pub fn of_runtime(id: &str, references: &[String]) -> Self {
        let all = references.iter().flat_map(|name| forms(name)).chain([id]).filter(|name| !name.is_empty());
        Self(all.map(Box::from).collect::<BTreeSet<_>>().into_iter().take(MAX_NAMES).collect())
    }

    /// Of an image that a manifest names, as containerd would come to know it.
    pub fn of_manifest(image: &str) -> Self {
        Self(forms(&in_full(image)).map(Box::from).collect())
    }

    /// All of them, in no order that matters.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|name| &**name)
    }
}

/// A name as it is, and the shorter ones that mean the same: `docker.io/library/web:latest` is `library/web`, too, and
/// `web`. None of what is an id.
pub(crate) fn forms(name: &str) -> impl Iterator<Item = &str> {
    let short = name.strip_prefix(REGISTRY);
    let one_word = short.and_then(|short| short.strip_prefix(LIBRARY)).filter(|word| !word.contains('/'));
    let forms = iter::once(name).chain(short).chain(one_word).filter(|_| !is_id(name));
    forms.flat_map(|form| iter::once(form).chain(form.strip_suffix(LATEST)))
}

/// Whether it is no name but what the runtime calls the image: the digest of its config.
fn is_id(name: &str) -> bool {
    let digits = name.strip_prefix("sha256:").unwrap_or(name);
    name.is_empty() || digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A name with its registry and tag.
fn in_full(image: &str) -> String {
    let has_registry =
        image.split_once('/').is_some_and(|(first, _)| first.contains(['.', ':']) || first == "localhost");
    let registry = match (has_registry, image.contains('/')) {
        (true, _) => "",
        (false, true) => REGISTRY,
        (false, false) => "docker.io/library/",
    };
    let last = image.rsplit('/').next().unwrap_or_default();
    let tag = if last.contains([':', '@']) { "" } else { LATEST };
    format!("{registry}{image}{tag}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn a_name_has_the_forms_in_which_people_write_it() {
        for (name, expected) in [
            ("docker.io/library/web:1", &["docker.io/library/web:1", "library/web:1", "web:1"][..]),
            (
                "docker.io/library/web:latest",
                &[
                    "docker.io/library/web:latest",
                    "docker.io/library/web",
                    "library/web:latest",
                    "library/web",
                    "web:latest",
                    "web",
                ],
            ),
            ("docker.io/shop/web:1", &["docker.io/shop/web:1", "shop/web:1"]),
            (
                "docker.io/library/web@sha256:1",
                &["docker.io/library/web@sha256:1", "library/web@sha256:1", "web@sha256:1"],
            ),
            ("registry.k8s.io/pause:3.9", &["registry.k8s.io/pause:3.9"]),
            ("web:1", &["web:1"]),
            (ID, &[]),
            ("", &[]),
        ] {
            assert_eq!(forms(name).collect::<Vec<_>>(), expected, "{name}");
        }
    }

    #[test]
    fn a_manifests_name_is_that_of_the_image_that_it_means() {
        for (image, name) in [
            ("web", "docker.io/library/web:latest"),
            ("web:1", "docker.io/library/web:1"),
            ("shop/web:1", "docker.io/shop/web:1"),
            ("localhost/web", "localhost/web:latest"),
            ("registry:5000/web", "registry:5000/web:latest"),
            ("quay.io/shop/web@sha256:1", "quay.io/shop/web@sha256:1"),
        ] {
            assert_eq!(in_full(image), name);
            let names = ImageNames::of_manifest(image);
            assert!(names.iter().any(|one| one == image), "{image}: {names:?}");
            assert_eq!(names, ImageNames::of_runtime("", &[name.to_owned()]));
        }
    }

    #[test]
    fn an_image_goes_by_its_id_too_and_has_no_more_names_than_the_bound() {
        let tags: Vec<_> = (0..1_000).map(|number| format!("quay.io/web:{number}")).collect();
        assert_eq!(ImageNames::of_runtime(ID, &tags).iter().count(), MAX_NAMES);
        assert_eq!(ImageNames::of_runtime(ID, &[]).iter().collect::<Vec<_>>(), [ID]);
    }
}
