//! Bounds texts from outside: bytes and texts of runtimes, servers and commands in, a [`BoundedText`] out. Each becomes
//! one where it enters, so that no later stage has to bound it. Pure.

use std::{fmt, ops::Deref, sync::Arc};

/// 10 KiB: what the kubelet keeps of a probe's output (docs/kubelet-prober.md 6.2). The rest is cut off, at a
/// character.
pub(crate) const TEXT_LIMIT: usize = 10_240;

/// A text of at most [`TEXT_LIMIT`] bytes. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct BoundedText(Arc<str>);

impl BoundedText {
    /// The beginning of bytes. What is not UTF-8 is replaced, which makes three bytes of one: the result is cut again.
    pub fn lossy(bytes: &[u8]) -> Self {
        let mut end = bytes.len().min(TEXT_LIMIT);
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

impl From<&str> for BoundedText {
    fn from(text: &str) -> Self {
        Self(text[..text.floor_char_boundary(TEXT_LIMIT)].into())
    }
}

impl From<String> for BoundedText {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl Deref for BoundedText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BoundedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for BoundedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// A text that takes no more than the limit.
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = TEXT_LIMIT - self.0.len();
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
        assert_eq!(&*BoundedText::lossy(b"all of it"), "all of it");
        assert_eq!(&*BoundedText::lossy(&[b'a'; TEXT_LIMIT + 44]), "a".repeat(TEXT_LIMIT));
        let text = format!("{}\u{20ac} and more", "a".repeat(TEXT_LIMIT - 1));
        for said in
            [BoundedText::lossy(text.as_bytes()), BoundedText::from(text.as_str()), BoundedText::of(&text)]
        {
            assert_eq!(&*said, "a".repeat(TEXT_LIMIT - 1));
        }
        assert_eq!(&*BoundedText::lossy(b"\xff\x1b[31m"), "\u{fffd}\u{1b}[31m");
    }

    #[test]
    fn a_replacement_that_multiplies_is_cut_again() {
        let said = BoundedText::lossy(&[0x80; 2 * TEXT_LIMIT]);
        assert!(!said.is_empty() && said.len() <= TEXT_LIMIT, "{}", said.len());
    }

    proptest! {
        #[test]
        fn nothing_is_longer_than_the_limit(piece in "\\PC{1,8}", times in 0_usize..4000, bytes: Vec<u8>) {
            let text = piece.repeat(times);
            let long = bytes.repeat(times);
            for said in [BoundedText::of(format_args!("{text}{text}")), BoundedText::from(&*text), BoundedText::lossy(&long)] {
                prop_assert!(said.len() <= TEXT_LIMIT);
            }
        }
    }
}
