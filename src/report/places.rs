//! The places of the API's connections: which are idle, and which follow. Decides which connection is closed if no
//! place is free: the one that has been idle for the longest, never one whose request is being answered. Never does IO,
//! never reads a clock.
//!
//! new --settle--> waiting --asked--> asking --answered--> waiting
//!                                    asking --follow--> following --dropped--> waiting
//!
//! A new one is not closed: its client may have asked, and was not read yet.
//!
//! One that follows also waits until its client has taken the records that were kept.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// 64 followers at a time, so that half of the places are left to questions. One more is answered 503.
pub(super) const MAX_FOLLOWERS: usize = 64;

/// 3: over TCP, followers rest three times as long, so that together with those of the socket they leave a quarter of the
/// API's time to questions.
const TCP_REST: u32 = 3;

/// All places of one listener; clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Places {
    waiting: Arc<Mutex<Waiting>>,
    /// Notified when a connection begins to wait.
    grown: Arc<Notify>,
    followers: Arc<Semaphore>,
    /// How long a follower rests, by what it has worked and how many there are.
    rest: u32,
}

/// Connections that wait for their client: to ask, or to take the rest of an answer.
#[derive(Debug, Default)]
struct Waiting {
    turns: u64,
    /// By the turn in which it began to wait: the first has waited the longest.
    by_turn: BTreeMap<u64, CancellationToken>,
}

/// The place of one connection, free when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    /// When it began to wait; 0 while it does not.
    turn: AtomicU64,
    has_begun: AtomicBool,
    has_asked: AtomicBool,
    is_following: AtomicBool,
    /// Whether its answer holds what its client has not taken yet.
    is_holding: AtomicBool,
    ended: CancellationToken,
}

/// Somebody follows; until it is dropped, the connection keeps its place.
#[derive(Debug)]
pub(super) struct Following {
    place: Arc<Place>,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    /// Those of the API socket.
    pub(super) fn of_socket() -> Self {
        Self {
            waiting: Arc::default(),
            grown: Arc::default(),
            followers: Arc::new(Semaphore::new(MAX_FOLLOWERS)),
            rest: 1,
        }
    }

    /// Those of a TCP address.
    pub(super) fn of_tcp() -> Self {
        Self { rest: TCP_REST, ..Self::of_socket() }
    }

    /// A place for a new connection.
    pub(super) fn take(&self) -> Arc<Place> {
        Arc::new(Place {
            places: self.clone(),
            turn: AtomicU64::new(0),
            has_begun: AtomicBool::new(false),
            has_asked: AtomicBool::new(false),
            is_following: AtomicBool::new(false),
            is_holding: AtomicBool::new(false),
            ended: CancellationToken::new(),
        })
    }

    /// Ends the connection that has waited for its client the longest, if any does.
    pub(super) fn end_one(&self) {
        if let Some((_, ended)) = self.waiting().by_turn.pop_first() {
            ended.cancel();
        }
    }

    /// Whether [`Self::end_one`] would end one.
    pub(super) fn can_end_one(&self) -> bool {
        !self.waiting().by_turn.is_empty()
    }

    /// Returns when a connection has begun to wait since the last time.
    pub(super) async fn grown(&self) {
        self.grown.notified().await;
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// It is no longer new: where it has not asked yet, it waits for its client.
    pub(super) fn settle(&self) {
        if !self.has_asked.load(Ordering::Relaxed) {
            self.wait();
        }
    }

    /// A whole head of a request came.
    pub(super) fn begun(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    /// A whole request came, with its body.
    pub(super) fn asked(&self) {
        self.has_asked.store(true, Ordering::Relaxed);
        self.leave();
    }

    /// The answer is there to be taken; one that follows goes on, once its client has taken what was kept.
    pub(super) fn answered(&self) {
        if !self.is_following.load(Ordering::Relaxed) || self.is_holding.load(Ordering::Relaxed) {
            self.wait();
        }
    }

    /// Its answer takes up room until the client has taken it.
    pub(super) fn hold(&self) {
        self.is_holding.store(true, Ordering::Relaxed);
    }

    /// Its answer takes up no room any more.
    pub(super) fn let_go(&self) {
        self.is_holding.store(false, Ordering::Relaxed);
        if self.is_following.load(Ordering::Relaxed) {
            self.leave();
        }
    }

    /// Closes its connection.
    pub(super) fn end(&self) {
        self.ended.cancel();
    }

    /// Keeps the place for as long as the answer is a stream; `None` where too many do.
    pub(super) fn follow(self: &Arc<Self>) -> Option<Following> {
        let permit = Arc::clone(&self.places.followers).try_acquire_owned().ok()?;
        self.is_following.store(true, Ordering::Relaxed);
        Some(Following { place: Arc::clone(self), _permit: permit })
    }

    /// Whether a whole head ever came.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// Since which turn it waits for its client; `None` while it does not.
    pub(super) fn waits_since(&self) -> Option<u64> {
        Some(self.turn.load(Ordering::Relaxed)).filter(|turn| *turn != 0)
    }

    /// Returns when its place is given to another.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    fn wait(&self) {
        let mut waiting = self.places.waiting();
        waiting.turns += 1;
        let turn = waiting.turns;
        let former = self.turn.swap(turn, Ordering::Relaxed);
        waiting.by_turn.remove(&former);
        waiting.by_turn.insert(turn, self.ended.clone());
        drop(waiting);
        self.places.grown.notify_one();
    }

    fn leave(&self) {
        let mut waiting = self.places.waiting();
        let turn = self.turn.swap(0, Ordering::Relaxed);
        waiting.by_turn.remove(&turn);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Following {
    /// How long to rest after a piece of work, as a multiple of it: as many times as there are followers, or more.
    pub(super) fn rest(&self) -> u32 {
        let places = &self.place.places;
        (MAX_FOLLOWERS - places.followers.available_permits()) as u32 * places.rest
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.place.is_following.store(false, Ordering::Relaxed);
        self.place.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_ended(place: &Place) -> bool {
        place.ended.is_cancelled()
    }

    /// The place of a connection that waits for its client.
    fn settled(places: &Places) -> Arc<Place> {
        let place = places.take();
        place.settle();
        place
    }

    #[test]
    fn the_one_that_has_waited_the_longest_goes_first_and_one_that_is_answered_never() {
        let places = Places::of_socket();
        let [silent, asking, asked, late] = [(); 4].map(|()| settled(&places));
        asking.asked();
        asked.asked();
        asked.answered();
        assert!(silent.waits_since() < late.waits_since() && late.waits_since() < asked.waits_since());
        for (place, name) in [(&silent, "silent"), (&late, "late"), (&asked, "asked")] {
            assert!(!has_ended(place), "{name}");
            places.end_one();
            assert!(has_ended(place), "{name}");
        }
        assert!(!places.can_end_one());
        places.end_one();
        assert!(!has_ended(&asking));
        asking.answered();
        assert!(places.can_end_one());
        drop(asking);
        assert!(!places.can_end_one(), "it has left");
    }

    #[test]
    fn a_new_one_is_not_ended_and_a_head_without_its_body_is_silence() {
        let places = Places::of_socket();
        let [new, begun, asked] = [(); 3].map(|()| places.take());
        begun.begun();
        asked.asked();
        assert!(!places.can_end_one());
        asked.settle();
        assert!(!places.can_end_one(), "it is answered");
        begun.settle();
        places.end_one();
        assert!(has_ended(&begun) && !has_ended(&new) && !has_ended(&asked));
    }

    #[test]
    fn a_follower_that_has_not_taken_what_was_kept_waits_for_its_client_as_any_other() {
        let place = Places::of_socket().take();
        place.asked();
        let following = place.follow().unwrap();
        place.hold();
        place.answered();
        assert!(place.waits_since().is_some());
        place.let_go();
        assert!(place.waits_since().is_none());
        drop(following);
        assert!(place.waits_since().is_some());
    }

    #[test]
    fn a_follower_keeps_its_place_until_it_leaves_and_one_too_many_is_refused() {
        let places = Places::of_socket();
        let followers: Vec<_> = (0..MAX_FOLLOWERS)
            .map(|_| {
                let place = places.take();
                place.asked();
                let following = place.follow().unwrap();
                place.answered();
                (place, following)
            })
            .collect();
        assert!(!places.can_end_one());
        assert_eq!(followers[0].1.rest(), MAX_FOLLOWERS as u32);
        let further = places.take();
        further.asked();
        assert!(further.follow().is_none());
        further.answered();
        places.end_one();
        assert!(has_ended(&further), "refused, it waits as any other");
        drop(followers);
        assert!(places.take().follow().is_some());
    }
}
