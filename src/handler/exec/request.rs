//! The request of an ExecSync as bytes: a container, a command and a timeout in, one gRPC message out. The command is
//! expanded directly into it, so that there is only one copy of a command, and long commands share a bounded amount of
//! memory.

use std::{fmt, time::Duration};

use bytes::{BufMut, Bytes};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time,
};

use crate::{
    handler::Fault,
    ids::ContainerId,
    proto::grpc::{GrpcPrefix, PREFIX},
    spec::expand::{Expansion, Piece, Word},
};

/// 4 KiB: a request of at most this size takes no part in [`ROOM`], so that no long command holds up a usual one. There are
/// as many of them as there are attempts at once.
const SMALL: usize = 4 << 10;

/// 4 MiB: what all longer requests that have not been sent yet take together: sixteen of an annotation's longest commands,
/// or two of a rule's. An attempt beyond waits, for its timeout at most, and then is an error.
const MOST: usize = 4 << 20;

/// What is left of [`MOST`], in KiB.
static ROOM: Semaphore = Semaphore::const_new(MOST >> 10);

/// The numbers of `runtime.v1.ExecSyncRequest`.
const CONTAINER_ID: u32 = 1;
const CMD: u32 = 2;
const TIMEOUT: u32 = 3;

/// The message: not compressed, its length, itself. Waits for room if it is long, at most `patience`.
///
/// # Errors
/// [`Fault::Ours`] when there is no room for it.
pub(super) async fn framed(
    container: &ContainerId,
    command: Expansion<'_>,
    timeout: i64,
    patience: Duration,
) -> Result<Bytes, Fault> {
    let id = container.as_str();
    let words: usize = command.words().map(|word| field_len(CMD, word.length())).sum();
    let timeout = u64::try_from(timeout).unwrap_or_default();
    let number = if timeout == 0 { 0 } else { key_len(TIMEOUT) + encoded_len_varint(timeout) };
    let length = field_len(CONTAINER_ID, id.len()) + words + number;
    let too_long = || Fault::Ours("the command is too long for the memory that all commands share".into());
    let prefix = GrpcPrefix::encode(length).ok_or_else(too_long)?;

    let room = room(length + PREFIX, patience).await.ok_or_else(too_long)?;
    let mut octets = Vec::with_capacity(PREFIX + length);
    octets.extend_from_slice(&prefix);
    put_text(CONTAINER_ID, id.len(), std::iter::once(id), &mut octets);
    for word in command.words() {
        put_text(CMD, word.length(), Word::pieces(word).map(Piece::text), &mut octets);
    }
    if timeout != 0 {
        encode_key(TIMEOUT, WireType::Varint, &mut octets);
        encode_varint(timeout, &mut octets);
    }
    Ok(Bytes::from_owner(Owner { octets, _room: room }))
}

/// Room for a request of so many bytes; none if there is none in time.
async fn room(length: usize, patience: Duration) -> Option<Option<SemaphorePermit<'static>>> {
    if length <= SMALL {
        return Some(None);
    }
    let wanted = u32::try_from(length.div_ceil(1 << 10)).ok().filter(|kib| *kib as usize <= MOST >> 10)?;
    time::timeout(patience, ROOM.acquire_many(wanted)).await.ok()?.ok().map(Some)
}

fn field_len(field: u32, length: usize) -> usize {
    key_len(field) + encoded_len_varint(length as u64) + length
}

fn put_text<'a>(field: u32, length: usize, pieces: impl Iterator<Item = &'a str>, into: &mut Vec<u8>) {
    encode_key(field, WireType::LengthDelimited, into);
    encode_varint(length as u64, into);
    pieces.for_each(|piece| into.put_slice(piece.as_bytes()));
}

/// A request and the room that it takes: both are given back when the last part of it was sent or dropped.
struct Owner {
    octets: Vec<u8>,
    _room: Option<SemaphorePermit<'static>>,
}

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.octets
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({} bytes)", self.octets.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::{proto::cri::ExecSyncRequest, spec::expand::Env};

    async fn sent(command: Expansion<'_>, timeout: i64) -> ExecSyncRequest {
        let octets = framed(&"c1".into(), command, timeout, Duration::ZERO).await.unwrap();
        let (prefix, message) = octets.split_at(PREFIX);
        assert_eq!(prefix, [&[0], &u32::try_from(message.len()).unwrap().to_be_bytes()[..]].concat());
        ExecSyncRequest::decode(message).unwrap()
    }

    #[tokio::test]
    async fn long_requests_share_their_room_and_short_ones_need_none() {
        let long = ["x".repeat(MOST - 100)];
        let (long, short) = (Expansion::literal(&long), Expansion::literal(&[]));
        let id = ContainerId::from("c1");
        let patience = Duration::from_millis(20);
        let held = framed(&id, long, 1, Duration::from_secs(60)).await.unwrap();
        assert!(matches!(framed(&id, long, 1, patience).await, Err(Fault::Ours(_))));
        assert!(framed(&id, short, 1, patience).await.is_ok());
        let part = held.slice(7..9);
        drop(held);
        assert!(framed(&id, long, 1, patience).await.is_err(), "a part of it is not sent yet");
        drop(part);
        assert!(framed(&id, long, 1, Duration::from_secs(60)).await.is_ok());
        let endless = ["x".repeat(MOST)];
        assert!(framed(&id, Expansion::literal(&endless), 1, patience).await.is_err());
    }

    proptest! {
        #[test]
        fn a_request_reads_as_it_was_meant(
            command in prop::collection::vec("[$()Aé]{0,9}", 0..9),
            value in "\\PC{0,300}",
            timeout in 0_i64..i64::MAX,
        ) {
            let env: Env = [("A".to_owned(), value)].into_iter().collect();
            let expansion = Expansion::new(&command, &env, usize::MAX).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let request = runtime.block_on(sent(expansion, timeout));
            let expected =
                ExecSyncRequest { container_id: "c1".to_owned(), cmd: expansion.to_argv(), timeout };
            prop_assert_eq!(request, expected);
        }
    }
}
