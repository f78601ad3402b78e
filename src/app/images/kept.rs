//! Cache of image data by image ID. Pure.

use std::{collections::HashMap, sync::Arc};

use crate::spec::{healthcheck, plan::Healthcheck};

/// 256 images are kept, also those that no container has just now: a job that runs every minute is read once. One more
/// takes the place of that which was asked for the longest time ago; should it come again, it is read again.
const KEPT: usize = 256;

/// 2 MiB are kept of them, in the same way: 256 usual HEALTHCHECKs take some 100 KiB, 46 of the longest ones 2 MiB.
const MOST_BYTES: u64 = 2 << 20;

/// 128 bytes: what an entry takes beside the image's id and its HEALTHCHECK.
const OVERHEAD: usize = 128;

/// An image's id never refers to another config, so what was read stays true.
#[derive(Debug, Default)]
pub(super) struct Kept {
    images: HashMap<String, Entry>,
    /// What they take, see [`weight`].
    bytes: u64,
    /// Counts what was asked and put in: the higher, the later.
    turn: u64,
}

#[derive(Debug)]
struct Entry {
    healthcheck: Option<Arc<Healthcheck>>,
    used: u64,
}

impl Kept {
    /// What the image of this id has, if that is kept; the inner one is none where it has nothing.
    pub(super) fn get(&mut self, id: &str) -> Option<Option<Arc<Healthcheck>>> {
        self.turn += 1;
        let entry = self.images.get_mut(id)?;
        entry.used = self.turn;
        Some(entry.healthcheck.clone())
    }

    /// Keeps what was read.
    pub(super) fn put(&mut self, id: String, healthcheck: Option<Arc<Healthcheck>>) {
        self.turn += 1;
        self.remove(&id);
        let entry = Entry { healthcheck, used: self.turn };
        self.bytes += weight(&id, &entry);
        self.images.insert(id, entry);
        while self.images.len() > KEPT || self.bytes > MOST_BYTES {
            let oldest = self.images.iter().min_by_key(|(_, entry)| entry.used).map(|(id, _)| id.clone());
            let Some(oldest) = oldest else { return };
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, id: &str) {
        if let Some(entry) = self.images.remove(id) {
            self.bytes -= weight(id, &entry);
        }
    }
}

/// The memory that an entry takes, in bytes.
fn weight(id: &str, entry: &Entry) -> u64 {
    let healthcheck = entry.healthcheck.as_deref().map_or(0, healthcheck::weight);
    (OVERHEAD + id.len()) as u64 + healthcheck
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_the_bound_the_one_that_nobody_asked_for_the_longest_goes() {
        let mut kept = Kept::default();
        for number in 0..KEPT {
            kept.put(number.to_string(), None);
        }
        assert_eq!(kept.get("0"), Some(None));
        kept.put("new".to_owned(), None);
        kept.put("new".to_owned(), None);
        assert_eq!((kept.get("0"), kept.get("1"), kept.get("2")), (Some(None), None, Some(None)));
        assert_eq!(kept.images.len(), KEPT);
    }

    #[test]
    fn row_03_of_long_healthchecks_fewer_are_kept() {
        let config = format!(
            r#"{{"config": {{"Healthcheck": {{"Test": ["CMD"{}]}}}}}}"#,
            format!(r#","{}""#, "x".repeat(31)).repeat(512)
        );
        let mut kept = Kept::default();
        for number in 0..KEPT {
            kept.put(number.to_string(), healthcheck::read(config.as_bytes()).map(Arc::new));
        }
        let count = kept.images.len();
        assert!((40..100).contains(&count) && kept.bytes <= MOST_BYTES, "{count} take {}", kept.bytes);
        assert!(kept.get(&(KEPT - 1).to_string()).flatten().is_some_and(|one| one.is_ok()));
        (0..2 * KEPT).for_each(|number| kept.put(number.to_string(), None));
        assert_eq!(kept.images.len(), KEPT);
        assert!(kept.bytes < 64 << 10, "{}", kept.bytes);
    }
}
