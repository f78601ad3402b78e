//! The room for answers: how many bytes all answers may hold that clients have not taken yet. An answer gets room before
//! what it is made of is collected. A client that takes its answer too slowly is cut when another one needs the room.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};

use super::places::Place;
use crate::clock;

/// 64 MiB: what all answers hold together until they are written, whatever pods print and however many clients do not
/// read. An answer that would take more than all of it takes all. When it is used up, the next answer waits.
const ROOM: usize = 64 << 20;

/// 32 MiB likewise for those over TCP.
const TCP_ROOM: usize = 32 << 20;

/// 256 KiB of that for an answer's lines on their way to the client; the rest is what they are made of.
const OWN: usize = 256 << 10;

/// 8 MiB: what the first answer of a kind is expected to hold, before one has been collected.
const FIRST_GUESS: usize = 8 << 20;

/// 4 s: how long an answer waits for room before it is a 503.
const WAIT: Duration = Duration::from_secs(4);

/// 50 ms between two looks for an answer that can be cut, while another one waits.
const LOOK: Duration = Duration::from_millis(50);

/// 200 ms: a client that takes nothing for that long is cut when another answer waits for room. All clients are on the
/// node, where a piece takes microseconds.
const STILL: Duration = Duration::from_millis(200);

/// 1 s, and 1 us for each byte that a client has taken: one that is slower, 1 MB/s on average, is cut likewise.
const GRACE: Duration = Duration::from_secs(1);

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("other clients have not read their answers, which take all the room there is: try again")]
pub(super) struct NoRoom;

/// The room; clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Room {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    all: usize,
    free: Arc<Semaphore>,
    holders: Mutex<Holders>,
}

#[derive(Debug, Default)]
struct Holders {
    /// Counts all that there ever were.
    total: u64,
    by_number: BTreeMap<u64, Holder>,
}

#[derive(Debug)]
struct Holder {
    place: Arc<Place>,
    /// When its client could begin to read, and when it took something last.
    reading: Option<(Instant, Instant)>,
    /// The bytes that were written so far.
    taken: u64,
    is_cut: bool,
}

/// What an answer of one kind is expected to hold: what the last one did. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Guess(Arc<AtomicUsize>);

/// The room that one answer has, free when it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    shared: Arc<Shared>,
    place: Arc<Place>,
    number: u64,
    permit: OwnedSemaphorePermit,
}

impl Default for Guess {
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(FIRST_GUESS)))
    }
}

impl Room {
    /// That of the API socket.
    pub(super) fn of_socket() -> Self {
        Self::of(ROOM)
    }

    /// That of a TCP address.
    pub(super) fn of_tcp() -> Self {
        Self::of(TCP_ROOM)
    }

    fn of(all: usize) -> Self {
        let free = Arc::new(Semaphore::new(all));
        Self { shared: Arc::new(Shared { all, free, holders: Mutex::default() }) }
    }

    /// Collects what an answer is made of, and the room for as much as it weighs. While it waits for room, it has
    /// collected nothing.
    ///
    /// # Errors
    /// Those of collecting; and there was no room in time.
    pub(super) async fn hold<T, E: From<NoRoom>, F: Future<Output = Result<T, E>>>(
        &self,
        place: &Arc<Place>,
        guess: &Guess,
        collect: impl Fn() -> F,
        weigh: impl Fn(&T) -> usize,
    ) -> Result<(T, Held), E> {
        let until = clock::now() + WAIT;
        let mut weight = guess.0.load(Ordering::Relaxed);
        loop {
            let rest = until.saturating_duration_since(clock::now());
            let mut held = timeout(rest, self.take(place, weight)).await.map_err(|_| NoRoom)?;
            let collected = collect().await?;
            weight = weigh(&collected);
            guess.0.store(weight, Ordering::Relaxed);
            if held.resize(weight) {
                return Ok((collected, held));
            }
        }
    }

    async fn take(&self, place: &Arc<Place>, weight: usize) -> Held {
        let mut acquiring =
            std::pin::pin!(self.shared.free.clone().acquire_many_owned(self.shared.permits(weight)));
        let permit = loop {
            tokio::select! {
                biased;
                permit = &mut acquiring => break permit.expect("nothing closes it"),
                () = sleep(LOOK) => self.shared.cut_one(clock::now()),
            }
        };
        place.hold();
        let holder = Holder { place: place.clone(), reading: None, taken: 0, is_cut: false };
        let mut holders = self.shared.holders();
        let number = holders.total;
        holders.total += 1;
        holders.by_number.insert(number, holder);
        drop(holders);
        Held { shared: self.shared.clone(), place: place.clone(), number, permit }
    }
}

impl Shared {
    /// Cuts the connection whose client is the furthest behind, if one is.
    fn cut_one(&self, now: Instant) {
        let mut holders = self.holders();
        let late = holders.by_number.values_mut().filter(|holder| !holder.is_cut);
        let late = late.filter_map(|holder| Some((holder.due()?, holder))).filter(|(due, _)| *due <= now);
        if let Some((_, holder)) = late.min_by_key(|(due, _)| *due) {
            holder.is_cut = true;
            holder.place.end();
        }
    }

    /// The room for what weighs so much, in bytes.
    fn permits(&self, weight: usize) -> u32 {
        u32::try_from(weight.saturating_add(OWN).min(self.all)).unwrap_or(u32::MAX)
    }

    fn holders(&self) -> MutexGuard<'_, Holders> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Holder {
    /// Until when its client may go on as it does; none while it cannot read yet.
    fn due(&self) -> Option<Instant> {
        let (began, last) = self.reading?;
        Some((last + STILL).min(began + GRACE + Duration::from_micros(self.taken)))
    }
}

impl Held {
    /// Notes that so many bytes more are on their way to the client, which can read from the first time on.
    pub(super) fn taken(&self, bytes: usize) {
        if let Some(holder) = self.shared.holders().by_number.get_mut(&self.number) {
            let now = clock::now();
            let began = holder.reading.map_or(now, |(began, _)| began);
            holder.reading = Some((began, now));
            holder.taken += bytes as u64;
        }
    }

    /// Takes room for as much as this, or gives back the rest. False if there is not as much.
    pub(super) fn resize(&mut self, weight: usize) -> bool {
        let (wanted, has) = (self.shared.permits(weight) as usize, self.permit.num_permits());
        if wanted <= has {
            drop(self.permit.split(has - wanted));
            return true;
        }
        let more = u32::try_from(wanted - has).unwrap_or(u32::MAX);
        let more = self.shared.free.clone().try_acquire_many_owned(more);
        more.map(|more| self.permit.merge(more)).is_ok()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.holders().by_number.remove(&self.number);
        self.place.let_go();
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::report::places::Places;

    fn is_cut(place: &Place) -> bool {
        place.ended().now_or_never().is_some()
    }

    async fn hold(room: &Room, place: &Arc<Place>, weight: usize) -> Result<Held, NoRoom> {
        let (_, held) =
            room.hold(place, &Guess::default(), || ready(Ok::<_, NoRoom>(weight)), |it| *it).await?;
        held.taken(0);
        Ok(held)
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_not_read_is_cut_when_another_one_needs_its_room_and_not_before() {
        let (room, places) = (Room::of_socket(), Places::of_socket());
        let [unread, read, small, large] = [(); 4].map(|()| places.take());
        let (first, second) = (hold(&room, &unread, ROOM / 2).await, hold(&room, &read, ROOM / 4).await);
        sleep(100 * GRACE).await;
        second.as_ref().unwrap().taken(100_000_000);
        hold(&room, &small, ROOM / 8).await.unwrap();
        assert!(!is_cut(&unread) && !is_cut(&read));
        let needed = hold(&room, &large, ROOM / 2);
        tokio::select! {
            _ = needed => panic!("there is no room"),
            () = unread.ended() => drop(first),
        }
        assert!(!is_cut(&read), "it keeps pace");
        let third = hold(&room, &large, ROOM / 2).await.unwrap();
        assert_eq!(hold(&room, &small, ROOM / 2).await.unwrap_err(), NoRoom, "nothing was given back");
        drop((second, third));
        hold(&room, &small, 10 * ROOM).await.unwrap();
    }

    #[tokio::test]
    async fn an_answer_that_is_larger_than_expected_takes_what_it_weighs() {
        let (room, place) = (Room::of_socket(), Places::of_socket().take());
        let guess = Guess::default();
        for weight in [1, 3 * FIRST_GUESS, 5] {
            let (_, held) =
                room.hold(&place, &guess, || ready(Ok::<_, NoRoom>(())), |()| weight).await.unwrap();
            assert_eq!(ROOM - room.shared.free.available_permits(), weight + OWN);
            drop(held);
            assert_eq!(room.shared.free.available_permits(), ROOM);
            assert_eq!(guess.0.load(Ordering::Relaxed), weight);
        }
    }
}
