//! Makes and resolves ids: 64 hexadecimal digits, as other runtimes have them, found again by any unique prefix.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, RandomState},
};

use crate::ids::{ContainerId, SandboxId};

/// A new id, never seen before.
pub(super) fn fresh() -> String {
    (0..4u8).map(|part| format!("{:016x}", RandomState::new().hash_one(part))).collect()
}

/// An id that is read from text that a client sent.
pub(super) trait Id: Ord + Clone {
    /// The id's text.
    fn text(&self) -> &str;
}

impl Id for ContainerId {
    fn text(&self) -> &str {
        self.as_str()
    }
}

impl Id for SandboxId {
    fn text(&self) -> &str {
        self.as_str()
    }
}

/// The one key that `text` names: itself, or the only one that begins with it. Nothing is named by empty text.
pub(super) fn resolve<K: Id, V>(map: &BTreeMap<K, V>, text: &str) -> Option<K> {
    let mut found = map.keys().filter(|key| !text.is_empty() && key.text().starts_with(text));
    let first = found.next()?;
    (first.text() == text || found.next().is_none()).then(|| first.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_64_digits_and_differ() {
        let (one, two) = (fresh(), fresh());
        assert_eq!(one.len(), 64);
        assert!(one.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_ne!(one, two);
    }

    #[test]
    fn an_id_is_found_by_itself_or_by_a_unique_prefix() {
        let map: BTreeMap<ContainerId, ()> =
            ["abc1", "abc2", "abc", "x9"].into_iter().map(|id| (ContainerId::from(id), ())).collect();
        let cases = [
            ("abc1", Some("abc1")),
            ("abc", Some("abc")),
            ("ab", None),
            ("x", Some("x9")),
            ("y", None),
            ("", None),
        ];
        for (text, expected) in cases {
            let found = resolve(&map, text);
            assert_eq!(found.as_ref().map(ContainerId::as_str), expected, "{text:?}");
        }
    }
}
