//! While the runtime has no image service: which images are wanted, and when one of them is asked for to see whether it
//! has one now. Pure.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use crate::{ids::ImageRef, spec::planner::Depth};

/// 2 s to 60 s between two trials, twice as long each time.
const PAUSE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

/// What is wanted meanwhile. As bounded as the containers are.
#[derive(Debug)]
pub(super) struct Absence {
    wanted: HashMap<ImageRef, Depth>,
    trial_at: Instant,
    /// From that trial to the next.
    pause: Duration,
}

impl Absence {
    /// Begins now.
    pub(super) fn since(now: Instant) -> Self {
        Self { wanted: HashMap::new(), trial_at: now + PAUSE.0, pause: PAUSE.0 * 2 }
    }

    /// An image is wanted once there is a service.
    pub(super) fn want(&mut self, image: ImageRef, depth: Depth) {
        let wanted = self.wanted.entry(image).or_insert(depth);
        *wanted = depth.max(*wanted);
    }

    /// Forgets those that are not wanted any more.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(&ImageRef) -> bool) {
        self.wanted.retain(|image, _| is_wanted(image));
    }

    /// There is reason to believe that this is over.
    pub(super) fn try_now(&mut self, now: Instant) {
        (self.trial_at, self.pause) = (now, PAUSE.0);
    }

    /// When [`Self::trial`] has a result next.
    pub(super) fn deadline(&self) -> Option<Instant> {
        (!self.wanted.is_empty()).then_some(self.trial_at)
    }

    /// The image to ask for now, if one is due.
    pub(super) fn trial(&mut self, now: Instant) -> Option<(ImageRef, Depth)> {
        let (image, depth) = self.wanted.iter().next().filter(|_| self.trial_at <= now)?;
        self.trial_at = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSE.1);
        Some((image.clone(), *depth))
    }

    /// It is over: the images to ask for.
    pub(super) fn into_wanted(self) -> impl Iterator<Item = (ImageRef, Depth)> {
        self.wanted.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_image_is_tried_ever_later_and_at_once_with_a_new_link() {
        let began = crate::clock::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut absence = Absence::since(began);
        assert_eq!((absence.deadline(), absence.trial(at(900))), (None, None), "none is wanted");
        for image in ["a", "b"] {
            absence.want(image.into(), Depth::Names);
        }
        let trials = |absence: &mut Absence, seconds: std::ops::Range<u64>| -> Vec<u64> {
            seconds.filter(|second| absence.trial(at(*second)).is_some()).collect()
        };
        assert_eq!(trials(&mut absence, 0..250), [2, 6, 14, 30, 62, 122, 182, 242]);
        absence.try_now(at(250));
        assert_eq!(trials(&mut absence, 250..260), [250, 252, 256]);
        absence.want("a".into(), Depth::Healthcheck);
        absence.retain(|image| image.as_str() == "a");
        let wanted: Vec<_> = absence.into_wanted().collect();
        assert_eq!(wanted, [("a".into(), Depth::Healthcheck)]);
    }
}
