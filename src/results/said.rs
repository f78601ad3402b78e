//! What attempts say: bytes and texts of runtimes, servers and commands in, a bounded text out. Whatever comes from
//! outside becomes one before it goes on, so that no later stage has to bound it. Pure.

use std::{fmt, ops::Deref, sync::Arc};

/// 10 KiB: what the kubelet keeps of a probe's output (docs/kubelet-prober.md 6.2). The rest is cut off, at a
/// character.
pub const SAID_LIMIT: usize = 10_240;

/// A text of at most [`SAID_LIMIT`] bytes. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Said(Arc<str>);

impl Said {
    /// The beginning of bytes. What is not UTF-8 is replaced, which makes three bytes of one: the result is cut again.
    pub fn lossy(bytes: &[u8]) -> Self {
        let mut end = bytes.len().min(SAID_LIMIT);
        let is_inside_a_character = |at: usize| bytes.get(at).is_some_and(|byte| byte & 0xC0 == 0x80);
        if end < bytes.len() {
            let earliest = end.saturating_sub(3);
            while end > earliest && is_inside_a_character(end) {
                end -= 1;
            }
        }
        Self::from(&*String::from_utf8_lossy(&bytes[..end]))
    }

    /// What a value prints. Stops to print it at the limit.
    pub fn of(value: impl fmt::Display) -> Self {
        let mut text = Bounded(String::new());
        // An error only says that the limit was reached.
        let _ = fmt::write(&mut text, format_args!("{value}"));
        Self(text.0.into())
    }

    /// The text itself, shared.
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl From<&str> for Said {
    fn from(text: &str) -> Self {
        Self(text[..text.floor_char_boundary(SAID_LIMIT)].into())
    }
}

impl From<String> for Said {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl Deref for Said {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// A text that takes no more than the limit.
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = SAID_LIMIT - self.0.len();
        let taken = &more[..more.floor_char_boundary(room)];
        self.0.push_str(taken);
        if taken.len() == more.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(&*Said::lossy(b"all of it"), "all of it");
        assert_eq!(&*Said::lossy(&[b'a'; SAID_LIMIT + 44]), "a".repeat(SAID_LIMIT));
        let text = format!("{}\u{20ac} and more", "a".repeat(SAID_LIMIT - 1));
        for said in [Said::lossy(text.as_bytes()), Said::from(text.as_str()), Said::of(&text)] {
            assert_eq!(&*said, "a".repeat(SAID_LIMIT - 1));
        }
        assert_eq!(&*Said::lossy(b"\xff\x1b[31m"), "\u{fffd}\u{1b}[31m");
    }

    #[test]
    fn a_replacement_that_multiplies_is_cut_again() {
        let said = Said::lossy(&[0x80; 2 * SAID_LIMIT]);
        assert!(!said.is_empty() && said.len() <= SAID_LIMIT, "{}", said.len());
    }

    proptest! {
        #[test]
        fn nothing_is_longer_than_the_limit(piece in "\\PC{1,8}", times in 0_usize..4000, bytes: Vec<u8>) {
            let text = piece.repeat(times);
            let long = bytes.repeat(times);
            for said in [Said::of(format_args!("{text}{text}")), Said::from(&*text), Said::lossy(&long)] {
                prop_assert!(said.len() <= SAID_LIMIT);
            }
        }
    }
}
