//! What a command says until its marks come: pieces of the stream in, outputs and exit code out. Pure. However much a command
//! says, no more is held of it than is kept.

use bytes::Bytes;

use super::script::Nonce;

/// Which of the process's outputs a piece is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    Stdout,
    Stderr,
}

/// How a command ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct End {
    /// `$?`, as the shell wrote it.
    pub(super) exit_code: u32,
    /// Standard output, then standard error, cut to as many bytes as were to be kept.
    pub(super) output: Bytes,
    /// How much of that is standard output.
    pub(super) stdout: usize,
    /// How many bytes the command said.
    pub(super) said: usize,
}

/// The outputs of one command, as far as they came.
#[derive(Debug)]
pub(super) struct Capture {
    nonce: Nonce,
    /// The answer to a ping, once there was one.
    pong: Option<Nonce>,
    is_answered: bool,
    /// One to a ping of the command before.
    late: Option<Nonce>,
    messages: usize,
    stdout: Piece,
    stderr: Piece,
    exit_code: Option<u32>,
    most: usize,
}

/// One output.
#[derive(Debug, Default)]
struct Piece {
    kept: Vec<u8>,
    said: usize,
    /// What may be the beginning of a mark, and a mark that is not complete.
    rest: Vec<u8>,
    is_ended: bool,
}

/// The digits of an exit code, and more than that: what follows the mark of standard output, at most.
const LONGEST_CODE: usize = 16;

impl Capture {
    /// Of a command whose marks have this nonce. Of each output, `most` bytes are kept.
    pub(super) fn new(nonce: Nonce, most: usize) -> Self {
        Self {
            nonce,
            pong: None,
            is_answered: false,
            late: None,
            messages: 0,
            stdout: Piece::default(),
            stderr: Piece::default(),
            exit_code: None,
            most,
        }
    }

    /// After a command that ended before this answer came: if it comes now, it is no output.
    #[must_use]
    pub(super) fn after(self, late: Option<Nonce>) -> Self {
        Self { late, ..self }
    }

    /// The reader was asked for this.
    pub(super) fn asked(&mut self, pong: Nonce) {
        (self.pong, self.is_answered) = (Some(pong), false);
    }

    /// Whether it answered.
    pub(super) fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// What the reader has been asked for, and has not answered.
    pub(super) fn unanswered(&mut self) -> Option<Nonce> {
        self.pong.take()
    }

    /// How many pieces came.
    pub(super) fn messages(&self) -> usize {
        self.messages
    }

    /// How many bytes came of both outputs.
    pub(super) fn said(&self) -> usize {
        self.stdout.said + self.stderr.said
    }

    /// Takes what comes next. What follows a mark is dropped: the command has ended.
    ///
    /// # Errors
    /// [`Malformed`] when a mark is not followed by an exit code.
    pub(super) fn take(&mut self, output: Output, octets: &[u8]) -> Result<(), Malformed> {
        self.messages += 1;
        let piece = match output {
            Output::Stdout => &mut self.stdout,
            Output::Stderr => &mut self.stderr,
        };
        if piece.is_ended {
            return Ok(());
        }
        piece.rest.extend_from_slice(octets);
        if output == Output::Stdout {
            piece.drop_line(&mut self.late);
            self.is_answered |= piece.drop_line(&mut self.pong);
        }
        let Some(at) = find(&piece.rest, self.nonce.as_bytes()) else {
            let decided = piece.rest.len().saturating_sub(Nonce::LENGTH);
            piece.keep(decided, self.most);
            return Ok(());
        };
        piece.keep(at, self.most);
        let after = &piece.rest[Nonce::LENGTH..];
        let Some(length) = after.iter().position(|&octet| octet == b'\n') else {
            return if after.len() > LONGEST_CODE { Err(Malformed) } else { Ok(()) };
        };
        match output {
            Output::Stderr if length > 0 => return Err(Malformed),
            Output::Stderr => {}
            Output::Stdout => {
                let code = str::from_utf8(&after[..length]).ok().and_then(|text| text.strip_prefix(' '));
                self.exit_code = Some(code.and_then(|code| code.parse().ok()).ok_or(Malformed)?);
            }
        }
        piece.is_ended = true;
        piece.rest = Vec::new();
        Ok(())
    }

    /// Whether both outputs have ended.
    pub(super) fn has_ended(&self) -> bool {
        self.stdout.is_ended && self.stderr.is_ended
    }

    /// How the command ended, once both outputs have.
    pub(super) fn end(self) -> Option<End> {
        let said = self.said();
        let exit_code = self.exit_code.filter(|_| self.stdout.is_ended && self.stderr.is_ended)?;
        let stdout = self.stdout.kept.len();
        let output = self.stdout.kept.into_iter().chain(self.stderr.kept).take(self.most).collect();
        Some(End { exit_code, output, stdout, said })
    }
}

impl Piece {
    /// Removes an answer, if it is there.
    fn drop_line(&mut self, answer: &mut Option<Nonce>) -> bool {
        let at = answer.as_ref().and_then(|answer| find(&self.rest, answer.as_bytes()));
        let at = at.filter(|at| self.rest.get(at + Nonce::LENGTH) == Some(&b'\n'));
        if let Some(at) = at {
            self.rest.drain(at..=at + Nonce::LENGTH);
            *answer = None;
        }
        at.is_some()
    }

    /// The first so many bytes that wait are output: keeps them as far as there is room.
    fn keep(&mut self, length: usize, most: usize) {
        let room = most.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(&self.rest[..length.min(room)]);
        self.said += length;
        self.rest.drain(..length);
    }
}

/// A mark without an exit code.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Where `what` begins.
fn find(within: &[u8], what: &[u8]) -> Option<usize> {
    within.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn digits(nonce: &Nonce) -> String {
        nonce.to_string()
    }

    proptest! {
        #[test]
        fn outputs_are_what_was_said_however_it_is_cut(
            stdout in prop::collection::vec(any::<u8>(), 0..200),
            stderr in prop::collection::vec(any::<u8>(), 0..200),
            exit_code in 0..=255_u32,
            cut in 1..80_usize,
            pong_at in any::<prop::sample::Index>(),
            is_pinged in any::<bool>(),
            is_late in any::<bool>(),
        ) {
            let (nonce, pong, late) = (Nonce::fresh(), Nonce::fresh(), Nonce::fresh());
            let mut capture = Capture::new(nonce.clone(), 1000).after(Some(late.clone()));
            let mut sent = stdout.clone();
            if is_pinged {
                capture.asked(pong.clone());
                let at = pong_at.index(sent.len() + 1);
                sent.splice(at..at, format!("{}\n", digits(&pong)).into_bytes());
            }
            if is_late {
                sent.splice(0..0, format!("{}\n", digits(&late)).into_bytes());
            }
            sent.extend(format!("{} {exit_code}\n", digits(&nonce)).into_bytes());
            for piece in sent.chunks(cut) {
                prop_assert!(!capture.has_ended());
                capture.take(Output::Stdout, piece).unwrap();
            }
            for piece in [&stderr[..], format!("{}\n", digits(&nonce)).as_bytes()].concat().chunks(cut) {
                prop_assert!(!capture.has_ended());
                capture.take(Output::Stderr, piece).unwrap();
            }
            prop_assert_eq!(capture.is_answered(), is_pinged);
            prop_assert!(capture.has_ended());
            let said = stdout.len() + stderr.len();
            let output = Bytes::from([&stdout[..], &stderr].concat());
            prop_assert_eq!(capture.end(), Some(End { exit_code, output, stdout: stdout.len(), said }));
        }
    }

    #[test]
    fn a_flood_is_counted_and_not_held() {
        let nonce = Nonce::fresh();
        let mut capture = Capture::new(nonce.clone(), 10);
        for _ in 0..1000 {
            capture.take(Output::Stdout, &[b'x'; 4096]).unwrap();
            capture.take(Output::Stderr, &[b'y'; 4096]).unwrap();
            assert!(capture.stdout.rest.len() <= Nonce::LENGTH && capture.stdout.kept.len() <= 10);
        }
        capture.take(Output::Stdout, format!("{nonce} 7\n").as_bytes()).unwrap();
        assert!(!capture.has_ended());
        capture.take(Output::Stderr, format!("{nonce}\nlater").as_bytes()).unwrap();
        let said = 2 * 1000 * 4096;
        assert_eq!(
            capture.end(),
            Some(End { exit_code: 7, output: Bytes::from("x".repeat(10)), stdout: 10, said })
        );
    }

    #[test]
    fn a_mark_without_a_code_is_no_end() {
        for after in [" x\n", "\n", " -1\n", " 99999999999\n", "0123456789abcdefg"] {
            let nonce = Nonce::fresh();
            let mut capture = Capture::new(nonce.clone(), 10);
            assert_eq!(
                capture.take(Output::Stdout, format!("{nonce}{after}").as_bytes()),
                Err(Malformed),
                "{after:?}"
            );
        }
    }
}
