//! Reads an encoded ExecSyncResponse while it comes. In: the message in pieces of any size; out: the lengths and the bytes
//! of its outputs, and its exit code. Pure; holds nothing of the message, however large it is.

use super::{
    trim::Malformed,
    walk::{FieldPart, FieldWalker},
};
use crate::carry::carried;

/// The fields of `runtime.v1.ExecSyncResponse`.
const STDOUT: u64 = 1;
const STDERR: u64 = 2;
const EXIT_CODE: u64 = 3;

/// One of the two outputs of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecOutput {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What a message says next. The last one counts where a field comes twice, as everywhere in protobuf.
#[derive(Debug, PartialEq, Eq)]
pub enum ExecPart<'a> {
    /// An output of so many bytes begins.
    Begins(ExecOutput, u64),
    /// The next bytes of the output that began.
    Bytes(ExecOutput, &'a [u8]),
    /// The exit code.
    ExitCode(i32),
}

/// A message as far as it was read.
#[derive(Debug, Default)]
pub struct ExecWalker {
    fields: FieldWalker,
}

carried! { struct ExecWalker { fields } }

impl ExecWalker {
    /// Takes the next piece of the message, and hands out what it says.
    ///
    /// # Errors
    /// The message is malformed; then so is all that follows.
    pub fn feed(&mut self, bytes: &[u8], mut out: impl FnMut(ExecPart<'_>)) -> Result<(), Malformed> {
        self.fields.feed(bytes, |part| match part {
            FieldPart::Begins(field, length) => {
                if let Some(output) = ExecOutput::of(field) {
                    out(ExecPart::Begins(output, length));
                }
            }
            FieldPart::Bytes(field, bytes) => {
                if let Some(output) = ExecOutput::of(field) {
                    out(ExecPart::Bytes(output, bytes));
                }
            }
            // An int32 is sent as its 64-bit sign extension.
            FieldPart::Number(EXIT_CODE, value) => out(ExecPart::ExitCode(value as i32)),
            FieldPart::Number(..) | FieldPart::Fixed(_) => {}
        })
    }

    /// Whether the message may end here.
    pub fn is_between_fields(&self) -> bool {
        self.fields.is_between_fields()
    }
}

impl ExecOutput {
    fn of(field: u64) -> Option<Self> {
        match field {
            STDOUT => Some(Self::Stdout),
            STDERR => Some(Self::Stderr),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::proto::cri::ExecSyncResponse;

    /// What the walker makes of a message in pieces of this size.
    fn walked(message: &[u8], piece: usize) -> Option<ExecSyncResponse> {
        let (mut walker, mut read) = (ExecWalker::default(), ExecSyncResponse::default());
        let mut is_walked = Ok(());
        for piece in message.chunks(piece) {
            is_walked = walker.feed(piece, |part| match part {
                ExecPart::Begins(ExecOutput::Stdout, _) => read.stdout.clear(),
                ExecPart::Begins(ExecOutput::Stderr, _) => read.stderr.clear(),
                ExecPart::Bytes(ExecOutput::Stdout, bytes) => read.stdout.extend_from_slice(bytes),
                ExecPart::Bytes(ExecOutput::Stderr, bytes) => read.stderr.extend_from_slice(bytes),
                ExecPart::ExitCode(code) => read.exit_code = code,
            });
        }
        (is_walked.is_ok() && walker.is_between_fields()).then_some(read)
    }

    /// Fields of the message and of others, whole, in any order, more than once.
    fn fields() -> impl Strategy<Value = Vec<u8>> {
        let text = |key: u8| {
            prop::collection::vec(any::<u8>(), 0..40)
                .prop_map(move |text| [&[key, text.len() as u8], &text[..]].concat())
        };
        let number = any::<i32>().prop_map(|exit_code| {
            ExecSyncResponse { exit_code, ..ExecSyncResponse::default() }.encode_to_vec()
        });
        let other =
            prop::sample::select(vec![&b"\x20\xff\x01"[..], b"\x29abcdefgh", b"\x32\x02hi", b"\x3dabcd"]);
        let field = prop_oneof![text(0x0a), text(0x12), number, other.prop_map(<[u8]>::to_vec)];
        prop::collection::vec(field, 0..8).prop_map(|fields| fields.concat())
    }

    proptest! {
        #[test]
        fn fields_are_read_as_prost_reads_them_in_any_pieces(message in fields(), piece in 1usize..40) {
            prop_assert_eq!(walked(&message, piece), ExecSyncResponse::decode(&*message).ok());
        }

        #[test]
        fn no_bytes_panic_and_none_are_read_unlike_prost(message in prop::collection::vec(any::<u8>(), 0..60)) {
            let walked = walked(&message, 7);
            if let Ok(expected) = ExecSyncResponse::decode(&*message)
                && let Some(walked) = walked
            {
                prop_assert_eq!(walked, expected);
            }
        }
    }
}
