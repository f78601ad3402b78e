//! The command of ExecSync and Exec, kept as raw bytes: most commands are never read, and decoding each would cost more
//! than relaying it. In: the message of a request, or of a long one its beginning. Out: its fields, when they are read.

use std::{fmt, ops::Range, sync::Arc};

use crate::carry::{Carry, Reader, Unreadable, Writer};

/// A command to run in a container. Cheap to clone.
///
/// Fields of both ExecSyncRequest and ExecRequest: 1 container_id, 2 cmd, repeated. Field 3 is the timeout in
/// ExecSyncRequest, a flag in ExecRequest.
#[derive(Clone)]
pub struct ExecCommand {
    message: Arc<[u8]>,
    container: Range<u32>,
}

/// The wire types of protobuf that these messages use, and their fields.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;
const CONTAINER_ID: u64 = 1;
const CMD: u64 = 2;
const TIMEOUT: u64 = 3;

impl ExecCommand {
    /// Reads a message; `None` if it is not one of those two, or 4 GiB or larger.
    pub fn read(shared: &Arc<[u8]>) -> Option<Self> {
        let message = &**shared;
        let mut container = 0..0;
        let mut fields = Fields { message, at: 0 };
        while fields.at < message.len() {
            match fields.next()? {
                Field { number: CONTAINER_ID | CMD, value: Value::Number(_) } => return None,
                Field { number: TIMEOUT, value: Value::Bytes(_) } => return None,
                Field { number: number @ (CONTAINER_ID | CMD), value: Value::Bytes(range) } => {
                    std::str::from_utf8(&message[range.clone()]).ok()?;
                    if number == CONTAINER_ID {
                        container = u32::try_from(range.start).ok()?..u32::try_from(range.end).ok()?;
                    }
                }
                Field { .. } => {}
            }
        }
        Some(Self { message: Arc::clone(shared), container })
    }

    /// The container to run it in, as the client named it.
    pub fn container(&self) -> &str {
        text(self.container_bytes())
    }

    /// The same, for comparisons.
    pub fn container_bytes(&self) -> &[u8] {
        let Range { start, end } = self.container;
        &self.message[start as usize..end as usize]
    }

    /// The program and its arguments.
    pub fn arguments(&self) -> impl Iterator<Item = &str> {
        let mut fields = Fields { message: &self.message, at: 0 };
        std::iter::from_fn(move || {
            while fields.at < self.message.len() {
                if let Field { number: CMD, value: Value::Bytes(range) } = fields.next()? {
                    return Some(text(&self.message[range]));
                }
            }
            None
        })
    }

    /// The timeout in whole seconds; 0 means none. For ExecSync only.
    pub fn timeout_seconds(&self) -> i64 {
        let mut fields = Fields { message: &self.message, at: 0 };
        let mut third = 0;
        while let Some(field) = fields.next() {
            if let Field { number: TIMEOUT, value: Value::Number(number) } = field {
                third = number;
            }
        }
        // An int64 is sent as its two's complement.
        third as i64
    }

    /// Its size in bytes.
    pub fn weight(&self) -> usize {
        self.message.len()
    }
}

/// As the message, which is read again.
impl Carry for ExecCommand {
    const LAYOUT: u64 = Vec::LAYOUT;

    fn write(&self, into: &mut Writer) {
        self.message.write(into);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        Self::read(&Arc::read(from)?).ok_or(Unreadable::Damaged)
    }
}

/// Equal if their bytes are equal, as for all equal commands of one client.
impl PartialEq for ExecCommand {
    fn eq(&self, other: &Self) -> bool {
        self.message == other.message
    }
}

impl Eq for ExecCommand {}

impl fmt::Debug for ExecCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arguments: Vec<_> = self.arguments().collect();
        write!(f, "{:?}: {arguments:?}, {}", self.container(), self.timeout_seconds())
    }
}

/// Was validated as text when it was read.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

struct Field {
    number: u64,
    value: Value,
}

enum Value {
    /// A varint, or a fixed-size value, which is not used here and reads as 0.
    Number(u64),
    Bytes(Range<usize>),
}

struct Fields<'a> {
    message: &'a [u8],
    at: usize,
}

impl Fields<'_> {
    /// The next field; `None` if there is no complete one.
    fn next(&mut self) -> Option<Field> {
        let key = self.varint()?;
        let number = key >> 3;
        if number == 0 || key > u64::from(u32::MAX) {
            return None;
        }
        let value = match key & 7 {
            VARINT => Value::Number(self.varint()?),
            LENGTH => {
                let length = usize::try_from(self.varint()?).ok()?;
                Value::Bytes(self.skip(length)?)
            }
            kind @ (FIXED64 | FIXED32) if number > TIMEOUT => {
                self.skip(if kind == FIXED64 { 8 } else { 4 })?;
                Value::Number(0)
            }
            _ => return None,
        };
        Some(Field { number, value })
    }

    fn skip(&mut self, length: usize) -> Option<Range<usize>> {
        let start = self.at;
        self.at = start.checked_add(length).filter(|&end| end <= self.message.len())?;
        Some(start..self.at)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for at in 0..10 {
            let byte = *self.message.get(self.at)?;
            self.at += 1;
            if at == 9 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::proto::cri::{ExecRequest, ExecSyncRequest};

    fn read(message: &[u8]) -> Option<ExecSyncRequest> {
        let command = ExecCommand::read(&message.into())?;
        Some(ExecSyncRequest {
            container_id: command.container().to_owned(),
            cmd: command.arguments().map(str::to_owned).collect(),
            timeout: command.timeout_seconds(),
        })
    }

    /// Bytes that look like a message often enough.
    fn nearly() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![0u8..48, any::<u8>()];
        prop::collection::vec(byte, 0..40)
    }

    /// Groups are the one thing that prost reads and we do not: proto3 has none.
    fn has_group(mut message: &[u8]) -> bool {
        while let Ok(key) = prost::encoding::decode_varint(&mut message) {
            let length = match key & 7 {
                0 => prost::encoding::decode_varint(&mut message).map(|_| 0),
                1 => Ok(8),
                2 => prost::encoding::decode_varint(&mut message),
                5 => Ok(4),
                _ => return true,
            };
            let Ok(length) = length else { return false };
            message = message.get(length as usize..).unwrap_or_default();
        }
        false
    }

    proptest! {
        #[test]
        fn any_request_reads_as_prost_reads_it(container_id: String, cmd: Vec<String>, timeout: i64) {
            let request = ExecSyncRequest { container_id, cmd, timeout };
            prop_assert_eq!(read(&request.encode_to_vec()), Some(request));
        }

        #[test]
        fn any_bytes_read_as_prost_reads_them(message in nearly()) {
            let expected = ExecSyncRequest::decode(&*message).ok().filter(|_| !has_group(&message));
            prop_assert_eq!(read(&message), expected);
        }
    }

    #[test]
    fn an_exec_reads_alike() {
        let request = ExecRequest {
            container_id: "c1".into(),
            cmd: vec!["sh".into(), "-c".into()],
            tty: true,
            stdin: true,
            ..ExecRequest::default()
        };
        let command = ExecCommand::read(&request.encode_to_vec().into()).unwrap();
        assert_eq!(command.container(), "c1");
        assert_eq!(command.arguments().collect::<Vec<_>>(), ["sh", "-c"]);
    }

    #[test]
    fn the_last_of_a_field_that_comes_twice_counts() {
        let request = read(b"\x0a\x01a\x18\x01\x0a\x02bc\x18\x02").unwrap();
        assert_eq!((&*request.container_id, request.timeout), ("bc", 2));
    }
}
