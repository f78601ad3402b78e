//! Lookups that wait for their turn: wishes in, the one whose turn it is out. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use super::super::fact::Lookup;

/// 4,096 lookups wait at most: those of a node that is adopted with 3,000 containers. Above that a wish finds no room.
const MOST: usize = 4_096;

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

/// The lookups that wait, each once: by what they are about, and by when their turn comes.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    wishes: BTreeMap<Lookup, (Instant, Wish)>,
    turns: BTreeSet<(Instant, Lookup)>,
}

impl Waiting {
    /// Lets a wish wait; one for the same thing makes it no later. Says whether there was room.
    pub(super) fn add(&mut self, wish: Wish, now: Instant) -> bool {
        let at = now + wish.pause;
        if let Some((known, _)) = self.wishes.get_mut(&wish.lookup) {
            if at < *known {
                self.turns.remove(&(*known, wish.lookup.clone()));
                self.turns.insert((at, wish.lookup));
                *known = at;
            }
            return true;
        }
        let has_room = self.wishes.len() < MOST;
        if has_room {
            self.turns.insert((at, wish.lookup.clone()));
            self.wishes.insert(wish.lookup.clone(), (at, wish));
        }
        has_room
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.wishes.is_empty()
    }

    /// When the next one's turn comes.
    pub(super) fn next(&self) -> Option<Instant> {
        self.turns.first().map(|(at, _)| *at)
    }

    /// The one whose turn it is: of those whose time has come, the one that has waited longest.
    pub(super) fn take(&mut self, now: Instant) -> Option<Wish> {
        if self.next()? > now {
            return None;
        }
        let (_, lookup) = self.turns.pop_first()?;
        self.wishes.remove(&lookup).map(|(_, wish)| wish)
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
        assert!(waiting.is_empty() && waiting.next().is_none());
    }

    #[test]
    fn a_wish_now_overtakes_the_same_wish_for_later() {
        let now = crate::clock::now();
        let mut waiting = Waiting::default();
        waiting.add(Wish::new(Lookup::ContainerAgain("c".into())), now);
        waiting.add(Wish::new(Lookup::Container("c".into())), now);
        assert_eq!(waiting.next(), Some(now));
        assert!(waiting.take(now).is_some() && waiting.take(now + PAUSE).is_none(), "it waits once");
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
