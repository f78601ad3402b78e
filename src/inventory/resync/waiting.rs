//! Lookups that wait for their turn: wishes in, the one whose turn it is out. Pure.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::super::fact::Lookup;

/// 1,024 lookups wait at most; above that a wish finds no room.
const MOST: usize = 1_024;

/// 100 ms until something is asked again that the runtime could not tell just now; twice as long each further time.
const PAUSE: Duration = Duration::from_millis(100);

/// 3: how often an id is asked for again that nobody knows. A runtime tells of a creation before it knows it itself.
const TRIES: u32 = 3;

/// One question about one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) lookup: Lookup,
    /// How long it has to wait first.
    pause: Duration,
    tries: u32,
}

impl Wish {
    /// Asked at once, or a little later where the lookup says so.
    pub(super) fn new(lookup: Lookup) -> Self {
        match lookup {
            Lookup::ContainerAgain(id) => Self { lookup: Lookup::Container(id), pause: PAUSE, tries: 0 },
            lookup => Self { lookup, pause: Duration::ZERO, tries: 0 },
        }
    }

    /// The same once more, if that may help.
    pub(super) fn again(self) -> Option<Self> {
        let pause = PAUSE * 2u32.pow(self.tries);
        (self.tries < TRIES).then_some(Self { pause, tries: self.tries + 1, ..self })
    }
}

/// The lookups that wait, each once.
#[derive(Debug, Default)]
pub(super) struct Waiting(BTreeMap<Lookup, (Instant, Wish)>);

impl Waiting {
    /// Lets a wish wait; one for the same thing makes it no later. Says whether there was room.
    pub(super) fn add(&mut self, wish: Wish, now: Instant) -> bool {
        let at = now + wish.pause;
        if let Some((known, _)) = self.0.get_mut(&wish.lookup) {
            *known = at.min(*known);
            return true;
        }
        let has_room = self.0.len() < MOST;
        if has_room {
            self.0.insert(wish.lookup.clone(), (at, wish));
        }
        has_room
    }

    /// When the next one's turn comes.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.values().map(|(at, _)| *at).min()
    }

    /// The one whose turn it is: of those whose time has come, the one that has waited longest.
    pub(super) fn take(&mut self, now: Instant) -> Option<Wish> {
        let (lookup, (at, _)) = self.0.iter().min_by_key(|(_, (at, _))| *at)?;
        if *at > now {
            return None;
        }
        let lookup = lookup.clone();
        self.0.remove(&lookup).map(|(_, wish)| wish)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_waits_once_and_the_one_that_waited_longest_comes_first() {
        let start = crate::clock::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut waiting = Waiting::default();
        assert!(waiting.add(Wish::new(Lookup::Sandbox("b".into())), at(0)));
        assert!(waiting.add(Wish::new(Lookup::ContainerAgain("c".into())), at(0)));
        assert!(waiting.add(Wish::new(Lookup::Sandbox("a".into())), at(1)));
        assert!(waiting.add(Wish::new(Lookup::Sandbox("b".into())), at(2)));
        let mut taken = |now| waiting.take(at(now)).map(|wish| wish.lookup);
        assert_eq!(taken(50), Some(Lookup::Sandbox("b".into())));
        assert_eq!(taken(50), Some(Lookup::Sandbox("a".into())));
        assert_eq!(taken(50), None);
        assert_eq!(taken(100), Some(Lookup::Container("c".into())), "a little later");
        assert_eq!(taken(100), None);
    }

    #[test]
    fn a_wish_now_overtakes_the_same_wish_for_later() {
        let now = crate::clock::now();
        let mut waiting = Waiting::default();
        waiting.add(Wish::new(Lookup::ContainerAgain("c".into())), now);
        waiting.add(Wish::new(Lookup::Container("c".into())), now);
        assert_eq!(waiting.next(), Some(now));
    }

    #[test]
    fn what_is_not_known_is_asked_for_three_more_times() {
        let mut wish = Some(Wish::new(Lookup::Unexplained("x".into())));
        let mut pauses = Vec::new();
        while let Some(again) = wish.and_then(Wish::again) {
            pauses.push(again.pause.as_millis());
            wish = Some(again);
        }
        assert_eq!(pauses, [100, 200, 400]);
    }

    #[test]
    fn no_more_wait_than_the_bound() {
        let now = crate::clock::now();
        let mut waiting = Waiting::default();
        let wish = |number: usize| Wish::new(Lookup::Unexplained(number.to_string()));
        assert!((0..MOST).all(|number| waiting.add(wish(number), now)));
        assert!(!waiting.add(wish(MOST), now));
        assert!(waiting.add(wish(0), now), "one that waits already needs no room");
    }
}
