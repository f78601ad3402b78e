//! Reads the answer to an ExecSync as it comes: the octets of its body in; the exit code and the beginning of what the
//! command said out. Pure. However much a command says, no more is held of it than is kept.

use bytes::{Buf, Bytes};
use tonic::Status;

use crate::handler::OUTPUT_LIMIT;

/// 16 MiB: what the kubelet accepts of one answer (docs/kubelet-prober.md 6.2). A larger one is an error, as it is
/// there.
pub(super) const LONGEST: usize = 16 << 20;

/// The numbers of `runtime.v1.ExecSyncResponse`.
const STDOUT: u64 = 1;
const STDERR: u64 = 2;
const EXIT_CODE: u64 = 3;

/// How a command ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) exit_code: i32,
    /// Standard output, then standard error, cut to [`OUTPUT_LIMIT`] bytes.
    pub(super) output: Bytes,
}

/// An answer as far as it was read.
#[derive(Debug)]
pub(super) struct Reader {
    place: Place,
    /// How much of the message is to come.
    left: usize,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    exit_code: i32,
}

/// What the next octet belongs to.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// What stands before a message: whether it is compressed, and its length.
    Prefix([u8; 5], usize),
    /// The number and type of a field.
    Key(Varint),
    /// The value of a field.
    Value(u64, Varint),
    /// The length of a field.
    Length(u64, Varint),
    /// So many octets of a field; those of one that we do not know have the number 0.
    Octets(u64, u64),
}

/// A number in protobuf's base 128, as far as it was read.
#[derive(Clone, Copy, Debug, Default)]
struct Varint {
    value: u64,
    bits: u32,
}

impl Reader {
    /// Before the first octet.
    pub(super) fn new() -> Self {
        let (stdout, stderr) = (Vec::new(), Vec::new());
        Self { place: Place::Prefix([0; 5], 0), left: 0, stdout, stderr, exit_code: 0 }
    }

    /// Takes what comes next.
    ///
    /// # Errors
    /// When it is no such answer, a second one, or longer than [`LONGEST`].
    pub(super) fn take(&mut self, mut octets: &[u8]) -> Result<(), Status> {
        while let Some(&octet) = octets.first() {
            if self.left == 0 && !matches!(self.place, Place::Prefix(..)) {
                return Err(Status::internal("there was more than one answer"));
            }
            let taken = match self.place {
                Place::Prefix(prefix, read) => {
                    self.place = self.prefixed(prefix, read, octet)?;
                    octets.advance(1);
                    continue;
                }
                Place::Octets(field, left) => {
                    let most = usize::try_from(left).unwrap_or(usize::MAX).min(self.left).min(octets.len());
                    self.keep(field, &octets[..most]);
                    let left = left - most as u64;
                    self.place = if left == 0 { Place::key() } else { Place::Octets(field, left) };
                    most
                }
                Place::Key(key) => {
                    self.place = match key.with(octet)? {
                        Ok(key) => Place::of_field(key)?,
                        Err(key) => Place::Key(key),
                    };
                    1
                }
                Place::Value(field, value) => {
                    self.place = match value.with(octet)? {
                        Ok(value) => self.valued(field, value),
                        Err(value) => Place::Value(field, value),
                    };
                    1
                }
                Place::Length(field, length) => {
                    self.place = match length.with(octet)? {
                        Ok(0) => Place::key(),
                        Ok(length) => Place::Octets(field, length),
                        Err(length) => Place::Length(field, length),
                    };
                    1
                }
            };
            self.left -= taken;
            octets.advance(taken);
        }
        Ok(())
    }

    /// The whole answer.
    ///
    /// # Errors
    /// When it broke off.
    pub(super) fn end(self) -> Result<Answer, Status> {
        match self.place {
            Place::Key(Varint { bits: 0, .. }) if self.left == 0 => {}
            Place::Prefix(_, 0) => return Err(Status::internal("there was no answer")),
            _ => return Err(Status::internal("the answer was cut off")),
        }
        let output: Bytes = self.stdout.into_iter().chain(self.stderr).take(OUTPUT_LIMIT).collect();
        Ok(Answer { exit_code: self.exit_code, output })
    }

    fn prefixed(&mut self, mut prefix: [u8; 5], read: usize, octet: u8) -> Result<Place, Status> {
        prefix[read] = octet;
        let [is_compressed, length @ ..] = prefix;
        if read + 1 < prefix.len() {
            return Ok(Place::Prefix(prefix, read + 1));
        }
        if is_compressed != 0 {
            return Err(Status::internal("the answer is compressed, which criprobe did not offer"));
        }
        self.left = u32::from_be_bytes(length) as usize;
        if self.left > LONGEST {
            return Err(Status::out_of_range(format!(
                "the answer has {} bytes, more than {LONGEST}",
                self.left
            )));
        }
        Ok(Place::key())
    }

    fn valued(&mut self, field: u64, value: u64) -> Place {
        if field == EXIT_CODE {
            // protobuf's int32 is the lower half of what is written.
            self.exit_code = value as u32 as i32;
        }
        Place::key()
    }

    fn keep(&mut self, field: u64, octets: &[u8]) {
        let kept = match field {
            STDOUT => &mut self.stdout,
            STDERR => &mut self.stderr,
            _ => return,
        };
        let room = OUTPUT_LIMIT - kept.len();
        kept.extend_from_slice(&octets[..octets.len().min(room)]);
    }
}

impl Place {
    fn key() -> Self {
        Self::Key(Varint::default())
    }

    /// Behind the key of a field.
    fn of_field(key: u64) -> Result<Self, Status> {
        let field = key >> 3;
        match key & 7 {
            0 => Ok(Self::Value(field, Varint::default())),
            1 => Ok(Self::Octets(0, 8)),
            2 => Ok(Self::Length(field, Varint::default())),
            5 => Ok(Self::Octets(0, 4)),
            _ => Err(Status::internal("the answer cannot be decoded")),
        }
    }
}

impl Varint {
    /// With the next octet: the whole number, or as far as it goes.
    fn with(self, octet: u8) -> Result<Result<u64, Self>, Status> {
        if self.bits > 63 {
            return Err(Status::internal("the answer cannot be decoded"));
        }
        let value = self.value | u64::from(octet & 0x7f) << self.bits;
        let is_last = octet & 0x80 == 0;
        Ok(if is_last { Ok(value) } else { Err(Self { value, bits: self.bits + 7 }) })
    }
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
        let mut reader = Reader::new();
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
        for (name, octets, told) in rows {
            assert_eq!(read([&octets[..]]), Err(told.to_owned()), "{name}");
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
        let mut reader = Reader::new();
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
