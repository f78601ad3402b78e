//! The exits that are kept: exits of containers in; the newest of each container name in its pod out. Pure.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::SystemTime,
};

use super::{Exit, Place};
use crate::ids::ContainerId;

/// 5 earlier exits of a container name are shown. One more is kept, which may be that of the current container.
const SHOWN: usize = 5;

/// 16,384 exits are kept on a node: 5 of each of 3,000 containers. Each takes 300 bytes, 5 MiB together, and 500 more where a
/// runtime reports a reason of any length. Beyond that the oldest go: first those of names that have no container any
/// more.
const MOST: usize = 16_384;

/// All exits, by name and by age.
#[derive(Debug, Default)]
pub(super) struct Kept {
    places: HashMap<Place, OfPlace>,
    /// By whether the name has a container now, then by age.
    by_age: BTreeMap<(bool, u64), Place>,
    /// Counts all that were kept.
    count: u64,
}

#[derive(Debug, Default)]
struct OfPlace {
    /// How many containers of the name there are.
    containers: usize,
    /// Oldest first.
    exits: Vec<KeptExit>,
}

#[derive(Debug)]
struct KeptExit {
    number: u64,
    /// When it was noticed first: a runtime may not report when a container ended.
    noticed: SystemTime,
    exit: Arc<Exit>,
}

impl KeptExit {
    /// After a start of ours they come in no order.
    fn age(&self) -> (SystemTime, u32) {
        (self.exit.finished_at.unwrap_or(self.noticed), self.exit.attempt)
    }
}

impl Kept {
    /// A container of this name came.
    pub(super) fn enter(&mut self, place: &Place) {
        let of_place = self.places.entry(place.clone()).or_default();
        of_place.containers += 1;
        if of_place.containers == 1 {
            Self::reorder(&mut self.by_age, of_place, place);
        }
    }

    /// A container of this name went. Its exit stays.
    pub(super) fn leave(&mut self, place: &Place) {
        let Some(of_place) = self.places.get_mut(place) else { return };
        of_place.containers = of_place.containers.saturating_sub(1);
        if of_place.containers > 0 {
            return;
        }
        if of_place.exits.is_empty() {
            self.places.remove(place);
        } else {
            Self::reorder(&mut self.by_age, of_place, place);
        }
    }

    /// Moves the exits of a name among those of names with or without containers.
    fn reorder(by_age: &mut BTreeMap<(bool, u64), Place>, of_place: &OfPlace, place: &Place) {
        let has_container = of_place.containers > 0;
        for KeptExit { number, .. } in &of_place.exits {
            by_age.remove(&(!has_container, *number));
            by_age.insert((has_container, *number), place.clone());
        }
    }

    /// Keeps an exit, noticed now. One of the same container replaces what was known of it.
    pub(super) fn keep(&mut self, place: &Place, exit: Exit, now: SystemTime) {
        let Some(of_place) = self.places.get_mut(place) else { return };
        let has_container = of_place.containers > 0;
        let known = of_place.exits.iter().position(|known| known.exit.container == exit.container);
        let exit = Arc::new(exit);
        let kept = if let Some(at) = known {
            KeptExit { exit, ..of_place.exits.remove(at) }
        } else {
            let number = self.count;
            self.count += 1;
            self.by_age.insert((has_container, number), place.clone());
            KeptExit { number, noticed: now, exit }
        };
        let at = of_place.exits.partition_point(|known| known.age() <= kept.age());
        of_place.exits.insert(at, kept);
        if of_place.exits.len() > SHOWN + 1 {
            let oldest = of_place.exits.remove(0);
            self.by_age.remove(&(has_container, oldest.number));
        }
        if self.by_age.len() > MOST {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some(((_, number), place)) = self.by_age.pop_first() else { return };
        let Some(of_place) = self.places.get_mut(&place) else { return };
        of_place.exits.retain(|known| known.number != number);
        if of_place.exits.is_empty() && of_place.containers == 0 {
            self.places.remove(&place);
        }
    }

    /// Whether there is, or was, a container of this name.
    pub(super) fn knows(&self, place: &Place) -> bool {
        self.places.contains_key(place)
    }

    /// The newest exits of other containers of this name, oldest first.
    pub(super) fn others(&self, place: &Place, current: &ContainerId) -> Vec<Arc<Exit>> {
        let of_place = self.places.get(place).into_iter().flat_map(|of_place| &of_place.exits);
        let mut others: Vec<_> =
            of_place.map(|kept| &kept.exit).filter(|exit| exit.container != *current).cloned().collect();
        others.drain(..others.len().saturating_sub(SHOWN));
        others
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn exit(number: u64) -> Exit {
        Exit {
            container: number.to_string().into(),
            attempt: 0,
            started_at: None,
            finished_at: Some(at(number)),
            exit_code: Some(1),
            reason: "Error".into(),
        }
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn place(name: &str) -> Place {
        ("u".into(), name.into())
    }

    fn numbers(kept: &Kept, name: &str, current: u64) -> Vec<String> {
        let others = kept.others(&place(name), &current.to_string().into());
        others.iter().map(|exit| exit.container.to_string()).collect()
    }

    #[test]
    fn the_newest_of_a_name_are_kept_in_order_however_they_come() {
        let mut kept = Kept::default();
        kept.enter(&place("app"));
        for number in [3, 1, 7, 2, 5, 4, 6] {
            kept.keep(&place("app"), exit(number), at(9));
        }
        assert_eq!(numbers(&kept, "app", 7), ["2", "3", "4", "5", "6"]);
        assert_eq!(numbers(&kept, "app", 8), ["3", "4", "5", "6", "7"]);
        let again = Exit { reason: "OOMKilled".into(), ..exit(7) };
        kept.keep(&place("app"), again, at(9));
        assert_eq!(&*kept.others(&place("app"), &"8".into())[4].reason, "OOMKilled");
        kept.leave(&place("app"));
        assert_eq!(numbers(&kept, "app", 8).len(), 5, "they stay when the last container is gone");
        assert_eq!((kept.by_age.len(), kept.places.len()), (6, 1));
    }

    #[test]
    fn an_exit_that_the_runtime_does_not_date_is_as_old_as_its_notice_until_it_is_dated() {
        let mut kept = Kept::default();
        kept.enter(&place("app"));
        for number in 1..=6 {
            kept.keep(&place("app"), exit(number), at(number));
        }
        let undated = Exit { finished_at: None, ..exit(7) };
        kept.keep(&place("app"), undated, at(7));
        assert_eq!(numbers(&kept, "app", 8), ["3", "4", "5", "6", "7"]);
        let dated = Exit { finished_at: Some(at(4)), ..exit(7) };
        kept.keep(&place("app"), dated, at(9));
        assert_eq!(numbers(&kept, "app", 8), ["3", "4", "7", "5", "6"]);
        assert_eq!(kept.by_age.len(), 6);
    }

    #[test]
    fn a_full_node_forgets_the_oldest_and_first_those_of_names_without_containers() {
        let mut kept = Kept::default();
        kept.enter(&place("old"));
        kept.keep(&place("old"), exit(0), at(9));
        for number in 1..=MOST as u64 {
            let name = number.to_string();
            kept.enter(&place(&name));
            kept.keep(&place(&name), exit(number), at(9));
            kept.leave(&place(&name));
        }
        assert_eq!(kept.by_age.len(), MOST);
        assert_eq!(numbers(&kept, "old", 1).len(), 1, "its container is still there");
        assert_eq!((numbers(&kept, "1", 0).len(), numbers(&kept, "2", 0).len()), (0, 1));
        assert_eq!(kept.places.len(), MOST, "nothing is left of what was forgotten");
    }
}
