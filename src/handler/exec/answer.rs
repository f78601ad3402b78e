//! Reads the answer to an ExecSync as it comes: the octets of its body in; the exit code and the beginning of what the
//! command said out. Pure. However much a command says, no more is held of it than is kept.

use bytes::Bytes;
use tonic::Status;

use crate::{
    handler::OUTPUT_LIMIT,
    proto::{
        exec::{ExecOutput, ExecPart, ExecWalker},
        grpc::{GrpcPart, GrpcPrefix, GrpcReader},
        trim::Malformed,
    },
};

/// 16 MiB: what the kubelet accepts of one answer (docs/kubelet-prober.md 6.2). A larger one is an error, as it is
/// there.
pub(super) const LONGEST: usize = 16 << 20;

/// How a command ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) exit_code: i32,
    /// Standard output, then standard error, cut to [`OUTPUT_LIMIT`] bytes.
    pub(super) output: Bytes,
}

/// An answer as far as it was read.
#[derive(Debug, Default)]
pub(super) struct Reader {
    frames: GrpcReader,
    has_begun: bool,
    message: ExecWalker,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    exit_code: i32,
}

impl Reader {
    /// Takes what comes next.
    ///
    /// # Errors
    /// When it is no such answer, a second one, or longer than [`LONGEST`].
    pub(super) fn take(&mut self, mut octets: &[u8]) -> Result<(), Status> {
        while !octets.is_empty() {
            if self.has_begun && self.frames.is_between_messages() {
                return Err(Status::internal("there was more than one answer"));
            }
            match self.frames.next(&mut octets) {
                Some(GrpcPart::Begins(prefix)) => self.begin(prefix)?,
                Some(GrpcPart::Body(piece, _)) => self.read(piece)?,
                None => {}
            }
        }
        Ok(())
    }

    /// The whole answer.
    ///
    /// # Errors
    /// When it broke off.
    pub(super) fn end(self) -> Result<Answer, Status> {
        match (self.has_begun, self.frames.is_between_messages()) {
            (true, true) if self.message.is_between_fields() => {}
            (false, true) => return Err(Status::internal("there was no answer")),
            _ => return Err(Status::internal("the answer was cut off")),
        }
        let output: Bytes = self.stdout.into_iter().chain(self.stderr).take(OUTPUT_LIMIT).collect();
        Ok(Answer { exit_code: self.exit_code, output })
    }

    fn begin(&mut self, GrpcPrefix { is_compressed, length }: GrpcPrefix) -> Result<(), Status> {
        self.has_begun = true;
        if is_compressed {
            return Err(Status::internal("the answer is compressed, which criprobe did not offer"));
        }
        if length as usize > LONGEST {
            return Err(Status::out_of_range(format!("the answer has {length} bytes, more than {LONGEST}")));
        }
        Ok(())
    }

    fn read(&mut self, piece: &[u8]) -> Result<(), Status> {
        let Self { message, stdout, stderr, exit_code, .. } = self;
        let walked = message.feed(piece, |part| match part {
            ExecPart::Begins(ExecOutput::Stdout, _) => stdout.clear(),
            ExecPart::Begins(ExecOutput::Stderr, _) => stderr.clear(),
            ExecPart::Bytes(ExecOutput::Stdout, bytes) => keep(bytes, stdout),
            ExecPart::Bytes(ExecOutput::Stderr, bytes) => keep(bytes, stderr),
            ExecPart::ExitCode(code) => *exit_code = code,
        });
        walked.map_err(|Malformed| Status::internal("the answer cannot be decoded"))
    }
}

/// Adds to an output, up to [`OUTPUT_LIMIT`].
fn keep(bytes: &[u8], kept: &mut Vec<u8>) {
    let room = OUTPUT_LIMIT - kept.len();
    kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::proto::cri::ExecSyncResponse;

    fn framed(message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        [&[0], &length[..], message].concat()
    }

    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Answer, String> {
        let mut reader = Reader::default();
        let taken = pieces.into_iter().try_for_each(|piece| reader.take(piece));
        taken.and_then(|()| reader.end()).map_err(|status| status.message().to_owned())
    }

    #[test]
    fn what_is_no_answer_is_told() {
        let rows: [(&str, Vec<u8>, &str); 7] = [
            ("nothing", vec![], "there was no answer"),
            ("half a prefix", vec![0, 0], "the answer was cut off"),
            ("half an answer", framed(b"\x0a\x05abcde")[..8].to_vec(), "the answer was cut off"),
            ("a field beyond the end", framed(b"\x0a\x05ab"), "the answer was cut off"),
            ("two answers", [framed(b""), framed(b"")].concat(), "there was more than one answer"),
            (
                "a compressed one",
                vec![1, 0, 0, 0, 0],
                "the answer is compressed, which criprobe did not offer",
            ),
            ("a group", framed(b"\x0b"), "the answer cannot be decoded"),
        ];
        for (name, octets, reported) in rows {
            assert_eq!(read([&octets[..]]), Err(reported.to_owned()), "{name}");
        }
        let long = [&[0], &u32::MAX.to_be_bytes()[..]].concat();
        assert!(read([&long[..]]).unwrap_err().ends_with("more than 16777216"));
    }

    #[test]
    fn of_a_long_output_the_beginning_is_held_and_the_exit_code_behind_it_is_read() {
        let octets = framed(
            &ExecSyncResponse { stdout: vec![b'a'; 5 << 20], stderr: vec![b'b'; 5 << 20], exit_code: -1 }
                .encode_to_vec(),
        );
        let mut reader = Reader::default();
        for piece in octets.chunks(16 << 10) {
            reader.take(piece).unwrap();
            assert!(reader.stdout.capacity() + reader.stderr.capacity() <= 4 * OUTPUT_LIMIT);
        }
        let output = vec![b'a'; OUTPUT_LIMIT].into();
        assert_eq!(reader.end().unwrap(), Answer { exit_code: -1, output });
    }

    proptest! {
        #[test]
        fn an_answer_is_read_as_protobuf_reads_it_however_it_is_cut(
            stdout in prop::collection::vec(any::<u8>(), 0..300),
            stderr in prop::collection::vec(any::<u8>(), 0..300),
            exit_code in any::<i32>(),
            // A number, eight octets, a text and four octets that a later version may add.
            unknown in prop::sample::subsequence(
                vec![&b"\x20\xff\x01"[..], b"\x29abcdefgh", b"\x32\x02hi", b"\x3dabcd"], 0..4),
            at_once in 1usize..40,
        ) {
            let expected = Bytes::from([&stdout[..], &stderr].concat());
            let message = ExecSyncResponse { stdout, stderr, exit_code }.encode_to_vec();
            let octets = framed(&[unknown.concat(), message].concat());
            let answer = read(octets.chunks(at_once));
            prop_assert_eq!(answer, Ok(Answer { exit_code, output: expected }));
        }

        #[test]
        fn no_octets_panic(octets in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = read([&octets[..]]);
            let _ = read([&framed(&octets)[..]]);
        }
    }
}
