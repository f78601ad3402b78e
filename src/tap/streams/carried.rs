//! Carries the calls of a connection to the next process. What they keep is counted again there: calls for which it has no
//! room lose their details, or pass unseen, as new ones would.

use std::{mem, sync::Arc};

use super::{Stream, Streams};
use crate::{
    carry::{Carry, Reader, Unreadable, Writer, carried, layout},
    ids::ConnId,
    peer::Peer,
    tap::{
        call::{Call, CallOrigin, TapEvent},
        room::Room,
    },
};

/// 32 places: more than the longest texts of a call take.
const MOST_PLACES: usize = 32;

/// 2 MiB: more than one call ever holds.
const MOST_HELD: usize = 2 << 20;

carried! {
    struct Stream { method, began, traceparent, request, response, call, creation, held, places, answer }
    fresh { origin: Arc::default() }
    if is_sound
}

impl Stream {
    fn is_sound(&self) -> bool {
        (1..=MOST_PLACES).contains(&self.places.places()) && self.held <= MOST_HELD
    }
}

impl Streams {
    /// As in [`Streams::write`].
    pub(in crate::tap) const LAYOUT: u64 = layout(
        "Streams",
        &[
            ("user_agent", <Box<str>>::LAYOUT),
            ("highest", u32::LAYOUT),
            ("open", usize::LAYOUT),
            ("id", u32::LAYOUT),
            ("own_agent", <Option<Box<str>>>::LAYOUT),
            ("stream", Stream::LAYOUT),
        ],
    );

    /// Appends them.
    pub(in crate::tap) fn write(&self, into: &mut Writer) {
        let Self { origin, open, highest, allowance: _ } = self;
        origin.user_agent.write(into);
        highest.write(into);
        open.len().write(into);
        let mut latest = origin;
        for (id, stream) in open {
            id.write(into);
            let own_agent = !Arc::ptr_eq(&stream.origin, latest);
            own_agent.then(|| stream.origin.user_agent.clone()).write(into);
            stream.write(into);
            latest = &stream.origin;
        }
    }

    /// Takes them off the front, and says how many calls are not tracked any more.
    pub(in crate::tap) fn read(
        from: &mut Reader<'_>,
        conn: ConnId,
        peer: Arc<Peer>,
        room: &Arc<Room>,
    ) -> Result<(Self, u64), Unreadable> {
        let mut streams = Self::new(conn, peer, room);
        let mut origin = streams.origin_of(Carry::read(from)?);
        streams.origin = Arc::clone(&origin);
        streams.highest = u32::read(from)?;
        let (mut before, mut untracked) = (0, 0);
        for _ in 0..usize::read(from)? {
            let id = u32::read(from)?;
            if let Some(user_agent) = Carry::read(from)? {
                origin = streams.origin_of(user_agent);
            }
            let stream = Stream::read(from)?;
            if id <= mem::replace(&mut before, id) || id > streams.highest {
                return Err(Unreadable::Damaged);
            }
            if !streams.reopen(id, stream, &origin) {
                untracked += 1;
            }
        }
        Ok((streams, untracked))
    }

    /// Reports the calls that began.
    pub(in crate::tap) fn resumed(&self, out: &mut dyn FnMut(TapEvent)) {
        for call in self.open.values().filter_map(|stream| stream.call.as_ref()) {
            out(TapEvent::Resumed(call.clone()));
        }
    }

    fn origin_of(&self, user_agent: Box<str>) -> Arc<CallOrigin> {
        Arc::new(CallOrigin { user_agent, ..CallOrigin::clone(&self.origin) })
    }

    /// Goes on with a stream; says whether there is room for it.
    fn reopen(&mut self, id: u32, mut stream: Stream, origin: &Arc<CallOrigin>) -> bool {
        let Some(places) = self.allowance.take(stream.method.kind, stream.places.places()) else {
            return false;
        };
        stream.places = places;
        stream.origin = Arc::clone(origin);
        if let Some(call) = stream.call.take() {
            let (origin, method) = (Arc::clone(origin), Arc::clone(&stream.method));
            stream.call = Some(Call { origin, stream: id, method, began: stream.began, ..call });
        }
        let held = mem::take(&mut stream.held);
        let excess = stream.hold(held, &mut self.allowance);
        self.open.insert(id, Box::new(stream));
        if let Some(purpose) = excess {
            self.make_room(purpose);
        }
        true
    }
}
