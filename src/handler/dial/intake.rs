//! Limits how fast, and how much, is read from a probe's peer: received octets in; pauses, or the end, out. Pure.
//!
//! The answer of a health check has a few hundred bytes. Without this limit, a peer that sends without end would be
//! read as fast as it sends for the whole attempt: an HTTP/2 server that only sends PINGs used a whole processor.

use std::time::Duration;

/// 32 KiB are read at once: answers, their headers and chains of certificates.
const AT_ONCE: u64 = 32 << 10;

/// 16 KiB with each pause after that.
const PIECE: u64 = 16 << 10;

/// 100 ms: long enough that the attempt counts as slow, and has its places among the slow ones.
const PAUSE: Duration = Duration::from_millis(100);

/// 1 MiB: more than the longest head and body that are read of an answer. The connection breaks beyond that.
const MOST: u64 = 1 << 20;

/// What was read of one connection.
#[derive(Debug, Default)]
pub(super) struct Intake {
    read: u64,
    /// Up to where it is read before the next pause; 0 means [`AT_ONCE`].
    until: u64,
}

/// A peer sent more than any answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server sent more than 1 MiB")]
pub(super) struct TooMuch;

impl Intake {
    /// How many octets may be read next: at least one.
    pub(super) fn room(&self) -> usize {
        usize::try_from(self.until.max(AT_ONCE) - self.read).unwrap_or(usize::MAX)
    }

    /// Takes note of octets that were read, [`Self::room`] of them at most. How long to pause before the next, if at all.
    ///
    /// # Errors
    /// There were more than any answer has.
    pub(super) fn took(&mut self, octets: usize) -> Result<Option<Duration>, TooMuch> {
        self.read += octets as u64;
        if self.read >= MOST {
            return Err(TooMuch);
        }
        if self.room() > 0 {
            return Ok(None);
        }
        self.until = self.read + PIECE;
        Ok(Some(PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_at_once_and_a_flood_in_pieces_up_to_an_end() {
        let mut intake = Intake::default();
        assert_eq!((intake.room(), intake.took(300)), (32_768, Ok(None)));
        let (mut pauses, mut read) = (0, 300);
        let end = loop {
            let room = intake.room();
            assert!((1..=32_768).contains(&room));
            read += room;
            match intake.took(room) {
                Ok(pause) => pauses += u32::from(pause.is_some()),
                Err(end) => break end,
            }
        };
        assert_eq!(
            (end.to_string().as_str(), read, pauses),
            ("the server sent more than 1 MiB", 1 << 20, 62)
        );
    }
}
