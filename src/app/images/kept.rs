//! Cache of image data by image ID. Pure.

use std::{collections::HashMap, sync::Arc};

use crate::spec::plan::Healthcheck;

/// 256 images are kept, also those that no container has just now: a job that runs every minute is read once. One more
/// takes the place of that which was asked for the longest time ago; should it come again, it is read again.
const KEPT: usize = 256;

/// An image's id never stands for another config, so what was read stays true.
#[derive(Debug, Default)]
pub(super) struct Kept {
    images: HashMap<String, Entry>,
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
        if self.images.len() >= KEPT && !self.images.contains_key(&id) {
            let oldest = self.images.iter().min_by_key(|(_, entry)| entry.used).map(|(id, _)| id.clone());
            oldest.into_iter().for_each(|oldest| drop(self.images.remove(&oldest)));
        }
        self.images.insert(id, Entry { healthcheck, used: self.turn });
    }
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
}
