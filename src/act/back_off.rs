//! When a container may be created again: the exits and failures of a place in, the time to wait out. Pure.
//!
//! The kubelet's crash-loop back-off: the first restart comes at once, the next after 10 s, each further one after twice as
//! long, 300 s at most, counted from the exit; a container that ran for 10 minutes begins from the start.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};

use super::status::Place;
use crate::prober::state::time;

/// 10 s: before the second restart.
const FIRST: Duration = Duration::from_secs(10);

/// 300 s: however often it fails.
pub(super) const MOST: Duration = Duration::from_secs(300);

/// 10 min: a container that ran for so long was well.
const HEALTH: Duration = Duration::from_secs(600);

/// 1,024 places are remembered at most, about 200 KiB; the one that was unused for longest makes room.
const MOST_PLACES: usize = 1024;

/// What is known of all places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BackOff {
    places: HashMap<Place, Progress>,
}

/// How far the back-off of a place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Progress {
    /// Before the next restart, in seconds.
    seconds: u64,
    /// When it was last used.
    #[serde(with = "time")]
    used_at: SystemTime,
}

impl BackOff {
    /// What was saved; the first [`MOST_PLACES`] of it. A delay that is out of bounds is brought back into them.
    pub(super) fn restored(saved: impl IntoIterator<Item = (Place, Progress)>) -> Self {
        let places = saved.into_iter().take(MOST_PLACES).map(|(place, Progress { seconds, used_at })| {
            let seconds = seconds.clamp(FIRST.as_secs(), MOST.as_secs());
            (place, Progress { seconds, used_at })
        });
        Self { places: places.collect() }
    }

    /// All of it, to be saved, in no order.
    pub(super) fn saved(&self) -> impl Iterator<Item = (&Place, Progress)> {
        self.places.iter().map(|(place, progress)| (place, *progress))
    }

    /// The back-off before the next restart; zero if that comes at once.
    pub(super) fn next(&self, place: &Place) -> Duration {
        self.places.get(place).map_or(Duration::ZERO, |progress| Duration::from_secs(progress.seconds))
    }

    /// How long to wait from now on before a container is created in place of one that ran from `started_at` to
    /// `exited_at`, as far as that is known. To be asked once for each exit. Never more than 300 s, wherever the clock was
    /// set meanwhile.
    pub(super) fn delay(
        &mut self,
        place: &Place,
        started_at: Option<SystemTime>,
        exited_at: Option<SystemTime>,
        now: SystemTime,
    ) -> Duration {
        let exited_at = exited_at.map_or(now, |at| at.min(now));
        let used_at = self.places.get(place).map(|progress| progress.used_at);
        let ran = started_at.or(used_at).and_then(|from| exited_at.duration_since(from).ok());
        if ran.is_some_and(|ran| ran >= HEALTH) {
            self.places.remove(place);
        }
        let delay = self.advance(place, now);
        delay.saturating_sub(now.duration_since(exited_at).unwrap_or_default())
    }

    /// How long to wait from now on after a container could not be created or started.
    pub(super) fn failed(&mut self, place: &Place, now: SystemTime) -> Duration {
        match self.advance(place, now) {
            Duration::ZERO => self.advance(place, now),
            delay => delay,
        }
    }

    /// The delay that it is time for; the next one is twice as long.
    fn advance(&mut self, place: &Place, now: SystemTime) -> Duration {
        let delay = self.next(place);
        if !self.places.contains_key(place) && self.places.len() >= MOST_PLACES {
            let unused = self.places.iter().min_by_key(|(_, progress)| progress.used_at);
            if let Some(unused) = unused.map(|(place, _)| place.clone()) {
                self.places.remove(&unused);
            }
        }
        let next = (2 * delay).clamp(FIRST, MOST);
        self.places.insert(place.clone(), Progress { seconds: next.as_secs(), used_at: now });
        delay
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn place(name: &str) -> Place {
        ("u1".into(), name.into())
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds)
    }

    #[test]
    fn a_container_that_always_fails_comes_back_later_each_time() {
        let (mut back_off, app) = (BackOff::default(), place("app"));
        let mut now = 0;
        for seconds in [0, 10, 20, 40, 80, 160, 300, 300, 300] {
            let next = back_off.next(&app);
            let wait = back_off.delay(&app, Some(at(now)), Some(at(now + 5)), at(now + 5));
            assert_eq!((next, wait), (Duration::from_secs(seconds), Duration::from_secs(seconds)));
            now += 5 + seconds;
        }
        assert_eq!(back_off.next(&place("other")), Duration::ZERO);
    }

    #[test]
    fn the_delay_counts_from_the_exit_and_health_resets_it() {
        for (case, started_at, exited_at, now, seconds) in [
            ("it has just exited", Some(100), Some(120), 120, 20),
            ("it exited a while ago", Some(100), Some(110), 122, 8),
            ("it exited long ago", Some(100), Some(110), 500, 0),
            ("when is not known", Some(100), None, 120, 20),
            ("in a time to come", Some(100), Some(9000), 120, 20),
            ("before it was started", Some(120), Some(100), 120, 0),
            ("it ran almost long enough", Some(100), Some(699), 699, 20),
            ("it ran long enough", Some(100), Some(700), 700, 0),
            ("since when is not known, after a short time", None, Some(500), 500, 20),
            ("since when is not known, after a long time", None, Some(612), 612, 0),
            ("the clock was set back", Some(100), Some(110), 0, 20),
        ] {
            let (mut back_off, app) = (BackOff::default(), place("app"));
            back_off.delay(&app, Some(at(0)), Some(at(1)), at(1));
            back_off.delay(&app, Some(at(2)), Some(at(11)), at(11));
            let wait = back_off.delay(&app, started_at.map(at), exited_at.map(at), at(now));
            assert_eq!(wait, Duration::from_secs(seconds), "{case}");
        }
    }

    #[test]
    fn a_failed_creation_doubles_it_too() {
        let (mut back_off, app) = (BackOff::default(), place("app"));
        let mut waits = vec![back_off.failed(&app, at(0))];
        waits.push(back_off.delay(&app, Some(at(10)), Some(at(20)), at(20)));
        waits.extend((0..5).map(|_| back_off.failed(&app, at(40))));
        assert_eq!(waits.iter().map(Duration::as_secs).collect::<Vec<_>>(), [10, 20, 40, 80, 160, 300, 300]);
        back_off.delay(&app, Some(at(100)), Some(at(700)), at(700));
        assert_eq!(back_off.failed(&app, at(700)), FIRST, "the first restart came at once, and failed");
    }

    #[test]
    fn what_is_restored_is_brought_into_bounds() {
        let saved = |seconds| Progress { seconds, used_at: at(0) };
        let places = [("a", 0), ("b", 40), ("c", u64::MAX)];
        let mut back_off = BackOff::restored(places.map(|(name, seconds)| (place(name), saved(seconds))));
        for (name, seconds) in [("a", 10), ("b", 40), ("c", 300)] {
            let wait = back_off.delay(&place(name), Some(at(1)), Some(at(2)), at(2));
            assert_eq!(wait, Duration::from_secs(seconds));
        }
        assert_eq!(
            BackOff::restored(back_off.saved().map(|(place, saved)| (place.clone(), saved))),
            back_off
        );
    }

    #[test]
    fn the_place_that_was_unused_for_longest_makes_room() {
        let mut back_off = BackOff::default();
        for number in 0..=MOST_PLACES as u64 {
            back_off.failed(&place(&number.to_string()), at(number));
            back_off.failed(&place("0"), at(number));
        }
        assert_eq!(back_off.places.len(), MOST_PLACES);
        assert_eq!(back_off.next(&place("1")), Duration::ZERO);
        assert_eq!(back_off.next(&place("0")), MOST);
    }
}
