//! Measures an ExecSync answer while it passes: exit code and lengths, however large the outputs are. Keeps none of
//! them. In: the message in pieces of any size; out: the figures, once it is whole.

use super::cri::ExecResult;

/// Walks the fields of one ExecSyncResponse (1 stdout bytes, 2 stderr bytes, 3 exit_code int32).
#[derive(Debug, Default)]
pub struct ExecMeter {
    result: ExecResult,
    state: State,
    /// The varint that is being read, and how many bits of it are there.
    varint: u64,
    shift: u32,
}

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Tag,
    /// The value of a varint field.
    Number { field: u64 },
    /// The length of a length-delimited field.
    Length { field: u64 },
    /// That many bytes are of no interest.
    Skip { left: u64 },
    /// Not a protobuf message that we can walk.
    Lost,
}

impl ExecMeter {
    /// Takes the next piece of the message.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.state != State::Lost {
            if let State::Skip { left } = self.state {
                let count = left.min(bytes.len() as u64);
                bytes = &bytes[count as usize..];
                self.state = if left == count { State::Tag } else { State::Skip { left: left - count } };
            } else {
                let byte = bytes[0];
                bytes = &bytes[1..];
                self.take_varint_byte(byte);
            }
        }
    }

    /// What the message said; `None` if it was cut short or malformed.
    pub fn finish(&self) -> Option<ExecResult> {
        (self.state == State::Tag && self.shift == 0).then_some(self.result)
    }

    fn take_varint_byte(&mut self, byte: u8) {
        if self.shift > 63 {
            self.state = State::Lost;
            return;
        }
        self.varint |= u64::from(byte & 0x7f) << self.shift;
        self.shift += 7;
        if byte & 0x80 == 0 {
            let value = std::mem::take(&mut self.varint);
            self.shift = 0;
            self.state = self.take_varint(value);
        }
    }

    fn take_varint(&mut self, value: u64) -> State {
        match self.state {
            State::Tag => match value & 7 {
                0 => State::Number { field: value >> 3 },
                1 => State::Skip { left: 8 },
                2 => State::Length { field: value >> 3 },
                5 => State::Skip { left: 4 },
                _ => State::Lost,
            },
            State::Number { field } => {
                if field == 3 {
                    // An int32 is sent as its 64-bit sign extension.
                    self.result.exit_code = value as i32;
                }
                State::Tag
            }
            State::Length { field } => {
                match field {
                    1 => self.result.stdout_bytes = shorter(value),
                    2 => self.result.stderr_bytes = shorter(value),
                    _ => {}
                }
                if value == 0 { State::Tag } else { State::Skip { left: value } }
            }
            State::Skip { .. } | State::Lost => State::Lost,
        }
    }
}

/// A message has less than 4 GiB, and so has each field of one that is whole.
fn shorter(length: u64) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::proto::cri::ExecSyncResponse;

    proptest! {
        #[test]
        fn any_answer_in_any_pieces_is_measured(
            stdout in prop::collection::vec(any::<u8>(), 0..300),
            stderr in prop::collection::vec(any::<u8>(), 0..300),
            exit_code: i32,
            piece in 1usize..64,
        ) {
            let bytes = ExecSyncResponse { stdout: stdout.clone(), stderr: stderr.clone(), exit_code }.encode_to_vec();
            let mut meter = ExecMeter::default();
            bytes.chunks(piece).for_each(|piece| meter.feed(piece));
            prop_assert_eq!(meter.finish(), Some(ExecResult {
                exit_code,
                stdout_bytes: stdout.len() as u32,
                stderr_bytes: stderr.len() as u32,
            }));
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut meter = ExecMeter::default();
            meter.feed(&bytes);
            let _ = meter.finish();
        }
    }

    #[test]
    fn an_answer_cut_short_says_nothing() {
        let bytes =
            ExecSyncResponse { stdout: b"hello".to_vec(), stderr: vec![], exit_code: 1 }.encode_to_vec();
        for end in 1..5 {
            let mut meter = ExecMeter::default();
            meter.feed(&bytes[..end]);
            assert_eq!(meter.finish(), None, "{end}");
        }
    }
}
