//! Which images' HEALTHCHECKs are kept while containers run these images: their weights in; those for which there is no
//! room, or is room again, out. Pure.

use std::collections::{BTreeSet, HashMap};

use crate::ids::ImageRef;

/// 16 MiB for all, as for the definitions of all probes: some 370 of the longest ones, or 32,000 usual ones. If they need more,
/// the largest are not kept, and their probes are invalid; each is read again once there is room. So an
/// author of many long ones takes no room from those of usual size.
pub(super) const MOST_BYTES: u64 = 16 << 20;

/// The HEALTHCHECKs that are kept or refused, at most one of each image that is planned.
#[derive(Debug)]
pub(super) struct Held {
    most: u64,
    used: u64,
    weights: HashMap<ImageRef, u64>,
    kept: BTreeSet<(u64, ImageRef)>,
    refused: BTreeSet<(u64, ImageRef)>,
}

impl Default for Held {
    fn default() -> Self {
        Self::new(MOST_BYTES)
    }
}

impl Held {
    /// None yet, and room for so many bytes.
    pub(super) fn new(most: u64) -> Self {
        Self { most, used: 0, weights: HashMap::new(), kept: BTreeSet::new(), refused: BTreeSet::new() }
    }

    /// How much there is room for.
    pub(super) fn most(&self) -> u64 {
        self.most
    }

    /// The HEALTHCHECK of an image was read, and takes so many bytes. Returns the images whose HEALTHCHECK cannot be kept
    /// any more, possibly this one.
    pub(super) fn add(&mut self, image: &ImageRef, weight: u64) -> Vec<ImageRef> {
        self.forget(image);
        self.weights.insert(image.clone(), weight);
        self.kept.insert((weight, image.clone()));
        self.used += weight;
        let mut refused = Vec::new();
        while self.used > self.most
            && let Some((weight, largest)) = self.kept.pop_last()
        {
            self.used -= weight;
            refused.push(largest.clone());
            self.refused.insert((weight, largest));
        }
        refused
    }

    /// That of an image is not needed any more. Returns the images whose HEALTHCHECK was refused and would fit now, the
    /// smallest first.
    pub(super) fn remove(&mut self, image: &ImageRef) -> Vec<ImageRef> {
        self.forget(image);
        let mut room = self.most - self.used;
        let fits =
            |(weight, _): &&(u64, ImageRef)| room.checked_sub(*weight).map(|rest| room = rest).is_some();
        self.refused.iter().take_while(fits).map(|(_, image)| image.clone()).collect()
    }

    fn forget(&mut self, image: &ImageRef) {
        let Some(weight) = self.weights.remove(image) else { return };
        let entry = (weight, image.clone());
        if self.kept.remove(&entry) {
            self.used -= weight;
        }
        self.refused.remove(&entry);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn images(names: &[&str]) -> Vec<ImageRef> {
        names.iter().map(|name| ImageRef::from(*name)).collect()
    }

    #[test]
    fn the_largest_are_refused_and_wanted_again_once_there_is_room() {
        let mut held = Held::new(10);
        assert_eq!(held.add(&"large".into(), 6), []);
        assert_eq!(held.add(&"small".into(), 1), []);
        assert_eq!(held.add(&"other".into(), 4), images(&["large"]));
        assert_eq!(held.add(&"larger".into(), 9), images(&["larger"]));
        assert_eq!(held.remove(&"small".into()), images(&["large"]));
        assert_eq!(held.add(&"large".into(), 6), []);
        assert_eq!(held.remove(&"large".into()), []);
        assert_eq!(held.remove(&"other".into()), images(&["larger"]));
        assert_eq!(held.remove(&"larger".into()), []);
        assert_eq!((held.used, held.weights.len(), held.refused.len()), (0, 0, 0));
    }

    proptest! {
        #[test]
        fn row_03_no_more_is_kept_than_there_is_room_for(
            steps in prop::collection::vec((0_u8..9, prop::option::weighted(0.7, 0_u64..40)), 0..60),
        ) {
            let mut held = Held::new(60);
            for (name, weight) in steps {
                let image = ImageRef::from(name.to_string());
                match weight {
                    Some(weight) => drop(held.add(&image, weight)),
                    None => {
                        for image in held.remove(&image) {
                            let weight = held.weights[&image];
                            prop_assert_eq!(held.add(&image, weight), [], "there is room");
                        }
                    }
                }
                let kept: u64 = held.kept.iter().map(|(weight, _)| weight).sum();
                prop_assert!(kept == held.used && kept <= 60);
                prop_assert_eq!(held.kept.len() + held.refused.len(), held.weights.len());
            }
        }
    }
}
