//! Which of the rules' image patterns match an image: its names in, the patterns out. Pure.
//!
//! If the definition of a container names its image, only that name counts: whoever wrote the manifest chose it. A
//! kubelet creates containers by the ID of their image, and not every runtime keeps the name in the manifest. Then all
//! names count that the runtime has for that ID, whoever gave them to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
    sync::Arc,
};

use crate::glob::Glob;

/// The registry that is meant where a name has none, its former name, and the folder in it for names of one word.
const REGISTRY: &str = "docker.io";
const FORMER_REGISTRY: &str = "index.docker.io";
const LIBRARY: &str = "library/";

/// The tag that is meant where a name has none.
const LATEST: &str = ":latest";

/// The image patterns of all rules, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImagePatterns(Arc<BTreeMap<Arc<str>, Glob>>);

/// The patterns that match one of an image's names. What a pattern matches does not depend on the others, so a result
/// stays usable when the rules change: a pattern that was not evaluated yet matches nothing until it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageMatches(BTreeSet<Arc<str>>);

impl<'a> FromIterator<&'a Glob> for ImagePatterns {
    fn from_iter<I: IntoIterator<Item = &'a Glob>>(patterns: I) -> Self {
        Self(Arc::new(patterns.into_iter().map(|glob| (Arc::from(glob.as_str()), glob.clone())).collect()))
    }
}

impl ImagePatterns {
    /// Those that match the name that a container's definition has for its image; `None` if that is an ID.
    pub fn matching_own_name(&self, image: &str) -> Option<ImageMatches> {
        let mut found = ImageMatches::default();
        own_names(image)?.iter().for_each(|name| self.add(name, &mut found));
        Some(found)
    }

    /// Adds those that match this ID.
    pub fn add_matching_id(&self, id: &str, found: &mut ImageMatches) {
        self.add(id, found);
    }

    /// Adds those that match this name that the runtime has for an image.
    pub fn add_matching_name(&self, name: &str, found: &mut ImageMatches) {
        forms(name).for_each(|form| self.add(form, found));
    }

    /// Whether these are the same patterns, at no cost; two equal sets may be taken for different ones.
    pub(crate) fn are_still(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn add(&self, name: &str, found: &mut ImageMatches) {
        for (pattern, glob) in &*self.0 {
            if !found.0.contains(pattern) && glob.matches(name) {
                found.0.insert(pattern.clone());
            }
        }
    }
}

impl ImageMatches {
    /// Whether it is one of them.
    pub fn contains(&self, pattern: &Glob) -> bool {
        self.0.contains(pattern.as_str())
    }

    /// All of them, as they are written in the rules.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|pattern| &**pattern)
    }
}

/// Whether a text names an image by its ID, which is the digest of its config, or does not name it at all.
pub(crate) fn is_id(name: &str) -> bool {
    let is_hex = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    match name.strip_prefix("sha256:") {
        Some(digits) => is_hex(digits),
        None => name.is_empty() || name.len() == 64 && is_hex(name),
    }
}

/// The name that a container's definition has for its image, in all its forms; `None` if that is an ID. A manifest's
/// name is read as containerd does: `web` is `docker.io/library/web:latest`.
pub(crate) fn own_names(image: &str) -> Option<BTreeSet<String>> {
    if is_id(image) {
        return None;
    }
    let full = in_full(image);
    // The runtime ignores a tag before a digest.
    let untagged = full.split_once('@').and_then(|(name, digest)| {
        let (name, tag) = name.rsplit_once(':')?;
        (!tag.contains('/')).then(|| format!("{name}@{digest}"))
    });
    let all = forms(&full).chain(untagged.iter().flat_map(|untagged| forms(untagged)));
    Some(all.map(str::to_owned).chain([image.to_owned()]).collect())
}

/// A name as it is, and the shorter ones that mean the same: `docker.io/library/web:latest` is `library/web`, too, and
/// `web`. None of what is an ID.
fn forms(name: &str) -> impl Iterator<Item = &str> {
    let short = name.strip_prefix(REGISTRY).and_then(|rest| rest.strip_prefix('/'));
    let one_word = short.and_then(|short| short.strip_prefix(LIBRARY)).filter(|word| !word.contains('/'));
    let forms = iter::once(name).chain(short).chain(one_word).filter(|_| !is_id(name));
    forms.flat_map(|form| iter::once(form).chain(form.strip_suffix(LATEST)))
}

/// A name with its registry and tag.
fn in_full(image: &str) -> String {
    let is_registry = |first: &str| {
        first.contains(['.', ':'])
            || first == "localhost"
            || first.bytes().any(|byte| byte.is_ascii_uppercase())
    };
    let (registry, rest) =
        image.split_once('/').filter(|(first, _)| is_registry(first)).unwrap_or((REGISTRY, image));
    let registry = if registry == FORMER_REGISTRY { REGISTRY } else { registry };
    let library = if registry == REGISTRY && !rest.contains('/') { LIBRARY } else { "" };
    let last = rest.rsplit('/').next().unwrap_or_default();
    let tag = if last.contains([':', '@']) { "" } else { LATEST };
    format!("{registry}/{library}{rest}{tag}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn patterns(all: &[&str]) -> ImagePatterns {
        all.iter().map(|pattern| Glob::from(*pattern)).collect::<Vec<_>>().iter().collect()
    }

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
            ("docker.io/web:1", "docker.io/library/web:1"),
            ("index.docker.io/web", "docker.io/library/web:latest"),
            ("index.docker.io/shop/web", "docker.io/shop/web:latest"),
            ("localhost/web", "localhost/web:latest"),
            ("registry:5000/web", "registry:5000/web:latest"),
            ("quay.io/shop/web@sha256:1", "quay.io/shop/web@sha256:1"),
        ] {
            assert_eq!(in_full(image), name);
            let names = own_names(image).unwrap();
            assert!(names.contains(image), "{image}: {names:?}");
            assert!(forms(name).all(|form| names.contains(form)), "{image}: {names:?}");
        }
        let pinned = own_names("web:1@sha256:1").unwrap();
        for name in ["docker.io/library/web:1@sha256:1", "docker.io/library/web@sha256:1", "web@sha256:1"] {
            assert!(pinned.contains(name), "{pinned:?}");
        }
    }

    #[test]
    fn row_17_an_id_is_no_name_of_its_own_however_it_is_written() {
        let digits = ID.trim_start_matches("sha256:");
        for (image, is_known_by_id) in [
            (ID, true),
            (digits, true),
            ("sha256:0123", true),
            ("", true),
            ("0123456789ab", false),
            ("sha256:latest", false),
            ("web@sha256:0123", false),
        ] {
            assert_eq!(own_names(image).is_none(), is_known_by_id, "{image}");
        }
    }

    #[test]
    fn row_17_every_name_of_an_image_is_matched_however_many_come_before() {
        let patterns = patterns(&["quay.io/web:777", "zzz.io/*", "sha256:0123*", "*/nothing"]);
        let mut found = ImageMatches::default();
        for number in 0..1_000 {
            patterns.add_matching_name(&format!("quay.io/web:{number}"), &mut found);
        }
        patterns.add_matching_name("zzz.io/last:1", &mut found);
        patterns.add_matching_id(ID, &mut found);
        assert_eq!(found.iter().collect::<Vec<_>>(), ["quay.io/web:777", "sha256:0123*", "zzz.io/*"]);
        assert!(found.contains(&Glob::from("zzz.io/*")) && !found.contains(&Glob::from("zzz.io/last:1")));
    }
}
