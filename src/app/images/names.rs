//! What the names of images match: an answer of the runtime in, the patterns out. An answer that is the same as the one
//! before is not matched again. Never asks the runtime.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::task;

use crate::{
    ids::ImageRef,
    runtime::image::Image,
    spec::image::{ImageMatches, ImagePatterns},
};

/// 200 ms: an image is asked for again at most this often, however many containers of it are made.
const SPACING: Duration = Duration::from_millis(200);

/// 4,096 images: with one more, all results are forgotten, and the next answers are matched again.
const MOST: usize = 4_096;

/// What the last answers had.
#[derive(Debug, Default)]
pub(super) struct KnownNames {
    patterns: ImagePatterns,
    images: HashMap<ImageRef, (Instant, Names)>,
    /// Its keys are random: two answers that look the same by chance cannot be made.
    hasher: RandomState,
}

/// An image, and which patterns match its names.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// The image's ID.
    pub(super) id: String,
    /// Those of the patterns that match a name or the ID.
    pub(super) matches: Arc<ImageMatches>,
    patterns: ImagePatterns,
    /// Of all names.
    hash: u64,
}

/// Matches one answer.
#[derive(Debug)]
pub(super) struct Matching {
    patterns: ImagePatterns,
    former: Option<Names>,
    hasher: RandomState,
}

impl KnownNames {
    /// The patterns from now on.
    pub(super) fn match_with(&mut self, patterns: &ImagePatterns) {
        if !self.patterns.are_still(patterns) {
            self.patterns = patterns.clone();
        }
    }

    /// How long to wait before an image is asked for.
    pub(super) fn pause(&self, image: &ImageRef, now: Instant) -> Duration {
        let answered = self.images.get(image).map(|(at, _)| now.saturating_duration_since(*at));
        answered.map_or(Duration::ZERO, |since| SPACING.saturating_sub(since))
    }

    /// Keeps what an answer had.
    pub(super) fn put(&mut self, image: ImageRef, names: Names, now: Instant) {
        if self.images.len() >= MOST && !self.images.contains_key(&image) {
            self.images.clear();
        }
        self.images.insert(image, (now, names));
    }

    /// What the next answer about an image is matched with.
    pub(super) fn matching(&self, image: &ImageRef) -> Matching {
        let former = self.images.get(image).map(|(_, names)| names.clone());
        Matching { patterns: self.patterns.clone(), former, hasher: self.hasher.clone() }
    }
}

impl Matching {
    /// Matches all names: authors choose some of them, and none may hide another. There may be 10,000, so other tasks of
    /// the thread have their turn after each.
    pub(super) async fn names_of(self, image: Image) -> Names {
        let hash = self.hasher.hash_one((&image.id, &image.names));
        let is_former = |former: &Names| former.hash == hash && former.patterns.are_still(&self.patterns);
        if let Some(former) = self.former.filter(is_former) {
            return former;
        }
        let mut matches = ImageMatches::default();
        self.patterns.add_matching_id(&image.id, &mut matches);
        for name in &image.names {
            self.patterns.add_matching_name(name, &mut matches);
            task::yield_now().await;
        }
        Names { id: image.id, matches: Arc::new(matches), patterns: self.patterns, hash }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock, glob::Glob};

    fn patterns(pattern: &str) -> ImagePatterns {
        [Glob::from(pattern)].iter().collect()
    }

    async fn answered(known: &mut KnownNames, names: &[String], now: Instant) -> Arc<ImageMatches> {
        let image = Image { id: "sha256:1".to_owned(), names: names.to_vec() };
        let found = known.matching(&"a".into()).names_of(image).await;
        known.put("a".into(), found.clone(), now);
        found.matches
    }

    #[tokio::test]
    async fn row_17_an_answer_is_matched_again_only_if_it_or_the_rules_changed() {
        let (mut known, now) = (KnownNames::default(), clock::now());
        known.match_with(&patterns("db:*"));
        let mut names: Vec<_> = (0..1_000).map(|number| format!("a.io/copy:{number}")).collect();
        let first = answered(&mut known, &names, now).await;
        assert_eq!(first.iter().count(), 0);
        let second = answered(&mut known, &names, now).await;
        assert!(Arc::ptr_eq(&first, &second), "nothing changed");
        names.push("docker.io/library/db:1".to_owned());
        let third = answered(&mut known, &names, now).await;
        assert_eq!(third.iter().collect::<Vec<_>>(), ["db:*"]);
        known.match_with(&patterns("a.io/copy:99?"));
        let fourth = answered(&mut known, &names, now).await;
        assert_eq!(fourth.iter().collect::<Vec<_>>(), ["a.io/copy:99?"]);
    }

    #[tokio::test]
    async fn an_image_is_asked_for_again_no_sooner_than_a_moment_after_its_last_answer() {
        let (mut known, now) = (KnownNames::default(), clock::now());
        assert_eq!(known.pause(&"a".into(), now), Duration::ZERO, "never before");
        answered(&mut known, &[], now).await;
        assert_eq!(known.pause(&"a".into(), now), SPACING);
        assert_eq!(known.pause(&"a".into(), now + SPACING), Duration::ZERO);
    }

    #[tokio::test]
    async fn no_more_images_than_the_bound_are_known() {
        let (mut known, now) = (KnownNames::default(), clock::now());
        let image = Image { id: "sha256:1".to_owned(), names: Vec::new() };
        let names = known.matching(&"a".into()).names_of(image).await;
        for number in 0..=MOST {
            known.put(number.to_string().as_str().into(), names.clone(), now);
            known.put(number.to_string().as_str().into(), names.clone(), now);
        }
        assert_eq!(known.images.len(), 1);
    }
}
