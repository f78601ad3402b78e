//! Carries a tap to the next process, so that it goes on in the middle of whatever it reads. In: a tap; out: bytes; and the
//! other way round. Pure.

use std::{sync::Arc, time::Instant};

use super::{
    Blindness, Direction, PREFACE, RequestFields, ResponseFields, Room, Share, Sighted, State, Streams, Tap,
    TapEvent,
};
use crate::{
    carry::{Carry, Reader, Unreadable, Writer, carried, layout},
    ids::ConnId,
    peer::Peer,
};

carried! { struct Direction { frames, hpack } }

/// As in [`Sighted::write`].
const SIGHTED: u64 = layout(
    "Sighted",
    &[
        ("preface", usize::LAYOUT),
        ("client", Direction::LAYOUT),
        ("runtime", Direction::LAYOUT),
        ("streams", Streams::LAYOUT),
        ("request", RequestFields::LAYOUT),
        ("response", ResponseFields::LAYOUT),
        ("has_goodbye", bool::LAYOUT),
    ],
);

impl Tap {
    /// What a tap keeps has this layout; another version of criprobe may have another one.
    pub const LAYOUT: u64 =
        layout("Tap", &[("blindness", <Option<Blindness>>::LAYOUT), ("sighted", SIGHTED)]);

    /// All that it keeps at this time. May contain secrets of requests.
    pub fn carry(&self, now: Instant) -> Vec<u8> {
        let mut into = Writer::new(Self::LAYOUT, now);
        self.blindness().write(&mut into);
        if let State::Sighted(sighted) = &self.state {
            sighted.write(&mut into);
        }
        into.finish()
    }

    /// Goes on with what another process kept at that time, and reports the calls that had begun. Nothing is reported if
    /// it fails.
    ///
    /// # Errors
    /// The bytes are damaged, or were written by a version that keeps other state.
    pub fn resume(
        room: &Arc<Room>,
        conn: ConnId,
        peer: Arc<Peer>,
        bytes: &[u8],
        carried_at: Instant,
        mut out: impl FnMut(TapEvent),
    ) -> Result<Self, Unreadable> {
        let mut from = Reader::open(bytes, Self::LAYOUT, carried_at)?;
        if let Some(reason) = Carry::read(&mut from)? {
            from.end()?;
            return Ok(Self { conn, state: State::Blind(reason) });
        }
        let (mut sighted, untracked) = Sighted::read(&mut from, conn, peer, room)?;
        from.end()?;
        sighted.streams.resumed(&mut out);
        if untracked > 0 {
            out(TapEvent::Untracked(untracked));
        }
        let counted = sighted.count_tables();
        let mut tap = Self { conn, state: State::Sighted(Box::new(sighted)) };
        if let Err(lost) = counted {
            tap.blind(lost, carried_at, out);
        }
        Ok(tap)
    }
}

impl Sighted {
    fn write(&self, into: &mut Writer) {
        let Self { preface, client, runtime, streams, request, response, has_goodbye, tables: _ } = self;
        preface.write(into);
        client.write(into);
        runtime.write(into);
        streams.write(into);
        request.write(into);
        response.write(into);
        has_goodbye.write(into);
    }

    fn read(
        from: &mut Reader<'_>,
        conn: ConnId,
        peer: Arc<Peer>,
        room: &Arc<Room>,
    ) -> Result<(Self, u64), Unreadable> {
        let preface = usize::read(from)?;
        if preface > PREFACE.len() {
            return Err(Unreadable::Damaged);
        }
        let (client, runtime) = (Carry::read(from)?, Carry::read(from)?);
        let (streams, untracked) = Streams::read(from, conn, peer, room)?;
        let (request, response) = (Carry::read(from)?, Carry::read(from)?);
        let has_goodbye = bool::read(from)?;
        let tables = Share::of_tables(room);
        Ok((Self { preface, client, runtime, streams, request, response, has_goodbye, tables }, untracked))
    }
}
