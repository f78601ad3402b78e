//! Reads the names of images and their HEALTHCHECKs: which are wanted in, what they have out, one after the other. Asks
//! the runtime in tasks of its own, few at once, and again later where it failed. Decides nothing about probes.

mod kept;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    task::{Id, JoinError, JoinSet},
    time::sleep_until,
};

use kept::Kept;

use crate::{
    clock,
    ids::ImageRef,
    runtime::{
        Runtime,
        image::{Image, ImageError},
    },
    spec::{healthcheck, image::ImageNames, plan::Healthcheck, planner::Depth},
};

/// 4 images are asked for at once; the others wait their turn.
const AT_ONCE: usize = 4;

/// 1 s to 1 min between two tries of one image, twice as long each time.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// 3 tries that failed are worth a warning: one or two are those of a runtime that is restarted.
const WORTH_A_WARNING: u32 = 3;

/// What was found of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// Which image.
    pub(super) image: ImageRef,
    /// What it has.
    pub(super) found: Found,
}

/// What an image has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// These names.
    Names(Arc<ImageNames>),
    /// This HEALTHCHECK; `None` where it has none.
    Healthcheck(Option<Arc<Healthcheck>>),
}

/// The images that are asked for, and what is known of others. As bounded as the containers are.
#[derive(Debug)]
pub(super) struct Images {
    runtime: Runtime,
    waiting: BTreeMap<ImageRef, Wish>,
    asked: HashMap<Id, (ImageRef, Wish)>,
    under_way: JoinSet<Step>,
    /// Found together with what was answered last.
    found: Option<Answer>,
    kept: Kept,
    /// Whether the runtime has shown that it has no images to ask for: then nothing is asked any more.
    has_no_images: bool,
    /// Whether it has shown that it has no content store: then no HEALTHCHECK is asked for any more.
    has_no_store: bool,
}

/// An image that is to be asked for.
#[derive(Clone, Copy, Debug)]
struct Wish {
    depth: Depth,
    due: Instant,
    failures: u32,
}

/// One of two questions, answered.
#[derive(Debug)]
enum Step {
    /// What the runtime calls the image.
    Identified(Result<Image, ImageError>),
    /// What the image of this id has.
    Read(String, Result<Option<Arc<Healthcheck>>, ImageError>),
}

impl Images {
    /// Asks this runtime.
    pub(super) fn new(runtime: Runtime) -> Self {
        Self {
            runtime,
            waiting: BTreeMap::new(),
            asked: HashMap::new(),
            under_way: JoinSet::new(),
            found: None,
            kept: Kept::default(),
            has_no_images: false,
            has_no_store: false,
        }
    }

    /// An image is wanted. One that is asked for already is not asked for twice, unless more of it is wanted.
    pub(super) fn want(&mut self, image: ImageRef, depth: Depth) {
        let is_asked = self.asked.values().any(|(asked, wish)| *asked == image && wish.depth >= depth);
        if !self.has_no_images && !is_asked {
            let wish = self.waiting.entry(image).or_insert(Wish { depth, due: clock::now(), failures: 0 });
            wish.depth = wish.depth.max(depth);
        }
    }

    /// Forgets those that wait and that nobody wants any more.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(&ImageRef) -> bool) {
        self.waiting.retain(|image, _| is_wanted(image));
    }

    /// Asks what is due and waits for the next answer. Safe to be dropped and called again.
    pub(super) async fn next(&mut self) -> Answer {
        if let Some(found) = self.found.take() {
            return found;
        }
        loop {
            let now = clock::now();
            while self.under_way.len() < AT_ONCE && self.ask_next(now) {}
            let wake_at = self.due().filter(|_| self.under_way.len() < AT_ONCE);
            tokio::select! {
                () = async { sleep_until(wake_at.unwrap_or(now).into()).await }, if wake_at.is_some() => {}
                Some(ended) = self.under_way.join_next_with_id() => {
                    if let Some(answer) = self.on_ended(ended, clock::now()) {
                        return answer;
                    }
                }
                else => std::future::pending().await,
            }
        }
    }

    fn due(&self) -> Option<Instant> {
        self.waiting.values().map(|wish| wish.due).min()
    }

    /// Asks for the image that is due for the longest; tells whether there was one.
    fn ask_next(&mut self, now: Instant) -> bool {
        let next = self.waiting.iter().min_by_key(|(_, wish)| wish.due);
        let Some((image, wish)) =
            next.filter(|(_, wish)| wish.due <= now).map(|(image, wish)| (image.clone(), *wish))
        else {
            return false;
        };
        self.waiting.remove(&image);
        let (runtime, name) = (self.runtime.clone(), image.clone());
        let task = self.under_way.spawn(async move { Step::Identified(runtime.image(name.as_str()).await) });
        self.asked.insert(task.id(), (image, wish));
        true
    }

    fn on_ended(&mut self, ended: Result<(Id, Step), JoinError>, now: Instant) -> Option<Answer> {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let (image, wish) = self.asked.remove(&id)?;
        match ended {
            Ok((_, Step::Identified(Ok(identified)))) => {
                let names = ImageNames::of_runtime(&identified.id, &identified.names);
                if wish.depth == Depth::Healthcheck && !self.has_no_store {
                    self.read(image.clone(), wish, identified.id);
                }
                return Some(Answer { image, found: Found::Names(Arc::new(names)) });
            }
            Ok((_, Step::Read(id, Ok(healthcheck)))) => {
                self.kept.put(id, healthcheck.clone());
                return Some(Answer { image, found: Found::Healthcheck(healthcheck) });
            }
            Ok((_, Step::Identified(Err(ImageError::NoStore)))) => self.end(),
            Ok((_, Step::Read(_, Err(ImageError::NoStore)))) => {
                if !self.has_no_store {
                    tracing::info!("runtime has no content store: HEALTHCHECKs of images are not read");
                }
                self.has_no_store = true;
            }
            Ok((_, Step::Identified(Err(error)) | Step::Read(_, Err(error)))) => {
                self.again(image, wish, &error.to_string(), now);
            }
            Err(panicked) => self.again(image, wish, &panicked.to_string(), now),
        }
        None
    }

    /// Reads the HEALTHCHECK of the image with this id, unless it is kept.
    fn read(&mut self, image: ImageRef, wish: Wish, id: String) {
        if let Some(healthcheck) = self.kept.get(&id) {
            self.found = Some(Answer { image, found: Found::Healthcheck(healthcheck) });
        } else {
            let task = self.under_way.spawn(read(self.runtime.clone(), id));
            self.asked.insert(task.id(), (image, wish));
        }
    }

    fn again(&mut self, image: ImageRef, wish: Wish, error: &str, now: Instant) {
        let failures = wish.failures.saturating_add(1);
        let pause = BACKOFF.0.saturating_mul(2u32.saturating_pow(wish.failures)).min(BACKOFF.1);
        if failures == WORTH_A_WARNING {
            tracing::warn!(
                image = image.as_str(),
                error,
                "image's names or HEALTHCHECK cannot be read: trying again"
            );
        } else {
            tracing::debug!(image = image.as_str(), error, "image's names or HEALTHCHECK cannot be read");
        }
        let depth = self.waiting.get(&image).map_or(wish.depth, |other| other.depth.max(wish.depth));
        self.waiting.insert(image, Wish { depth, due: now + pause, failures });
    }

    /// A runtime that has no image service will not get one.
    fn end(&mut self) {
        tracing::info!("runtime has no image service: neither names nor HEALTHCHECKs of images are read");
        self.has_no_images = true;
        self.waiting.clear();
        self.asked.clear();
        self.under_way = JoinSet::new();
    }
}

async fn read(runtime: Runtime, id: String) -> Step {
    let found = match runtime.image_config(&id, healthcheck::MAX_CONFIG).await {
        Ok(config) => Ok(healthcheck::read(&config).map(Arc::new)),
        Err(ImageError::TooLong(_)) => Ok(Some(Arc::new(healthcheck::too_long()))),
        Err(error) => Err(error),
    };
    Step::Read(id, found)
}

#[cfg(test)]
mod tests;
