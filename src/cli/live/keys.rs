//! The keys of a live list: bytes of a terminal in, keys out.

use std::io::{self, IsTerminal};

use tokio::io::{Interest, unix::AsyncFd};

use crate::cli::screen::watch;

/// A key that does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    First,
    Last,
    Failed,
    Sort,
}

/// The terminal that keys come from, if there is one.
pub(super) struct Keys(Option<AsyncFd<io::Stdin>>);

impl Keys {
    /// Standard input, if it is a terminal.
    pub(super) fn of_stdin() -> Self {
        let stdin = io::stdin();
        Self(stdin.is_terminal().then(|| watch(stdin, Interest::READABLE).ok()).flatten())
    }

    /// The next keys; never if no terminal sends any.
    pub(super) async fn pressed(&mut self) -> Vec<Key> {
        let Some(stdin) = &self.0 else { return std::future::pending().await };
        let mut bytes = [0; 256];
        let read = match stdin.readable().await {
            Ok(mut ready) => {
                // It is a terminal without lines, so this takes what there is and does not wait.
                let read = rustix::io::read(stdin.get_ref(), &mut bytes);
                if !matches!(read, Ok(count) if count == bytes.len()) {
                    ready.clear_ready();
                }
                read
            }
            Err(_) => Ok(0),
        };
        match read {
            // The terminal is gone.
            Ok(0) => self.0 = None,
            Ok(count) => return parsed(&bytes[..count]),
            Err(_) => {}
        }
        Vec::new()
    }
}

/// Escape sequences of xterm and the Linux console; what is no key of ours is skipped.
fn parsed(mut bytes: &[u8]) -> Vec<Key> {
    const SEQUENCES: [(&[u8], Key); 20] = [
        (b"\x1b[A", Key::Up),
        (b"\x1bOA", Key::Up),
        (b"\x1b[B", Key::Down),
        (b"\x1bOB", Key::Down),
        (b"\x1b[C", Key::Right),
        (b"\x1bOC", Key::Right),
        (b"\x1b[D", Key::Left),
        (b"\x1bOD", Key::Left),
        (b"\x1b[5~", Key::PageUp),
        (b"\x1b[6~", Key::PageDown),
        (b"\x1b[H", Key::First),
        (b"\x1b[1~", Key::First),
        (b"\x1b[7~", Key::First),
        (b"\x1bOH", Key::First),
        (b"\x1b[F", Key::Last),
        (b"\x1b[4~", Key::Last),
        (b"\x1b[8~", Key::Last),
        (b"\x1bOF", Key::Last),
        (b"\x02", Key::PageUp),
        (b"\x06", Key::PageDown),
    ];
    let mut keys = Vec::new();
    while let Some((&first, rest)) = bytes.split_first() {
        if let Some((sequence, key)) = SEQUENCES.iter().find(|(sequence, _)| bytes.starts_with(sequence)) {
            keys.push(*key);
            bytes = &bytes[sequence.len()..];
            continue;
        }
        bytes = if first == 0x1b { unknown(rest) } else { rest };
        keys.extend(match first {
            b'q' | b'Q' | 0x03 => Some(Key::Quit),
            b'k' => Some(Key::Up),
            b'j' | b'\r' | b'\n' => Some(Key::Down),
            b'h' => Some(Key::Left),
            b'l' => Some(Key::Right),
            b'g' => Some(Key::First),
            b'G' => Some(Key::Last),
            b' ' => Some(Key::PageDown),
            b'f' => Some(Key::Failed),
            b's' => Some(Key::Sort),
            _ => None,
        });
    }
    keys
}

/// What follows the rest of an escape sequence that we do not know: its letters are no keys.
fn unknown(rest: &[u8]) -> &[u8] {
    match rest {
        [b'[', parameters @ ..] => {
            let end = parameters.iter().position(|byte| (0x40..0x7f).contains(byte));
            end.map_or(&[], |end| &parameters[end + 1..])
        }
        [b'O', _, rest @ ..] => rest,
        _ => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_keys_and_unknown_sequences_are_not() {
        use Key::{Down, Failed, First, Last, PageDown, PageUp, Quit, Sort, Up};
        for (bytes, keys) in [
            (&b"jk\x1b[A\x1bOB"[..], &[Down, Up, Up, Down][..]),
            (b"\x1b[5~\x1b[6~gG", &[PageUp, PageDown, First, Last]),
            (b"fsq\x03", &[Failed, Sort, Quit, Quit]),
            (b"\x1b[15~\x1b[1;5Qf\x1bOq", &[Failed]),
            (b"xyz\xff", &[]),
            (b"\x1b", &[]),
            (b"\x1b[", &[]),
        ] {
            assert_eq!(parsed(bytes), keys, "{bytes:?}");
        }
    }
}
