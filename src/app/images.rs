//! Reads the names of images and their HEALTHCHECKs: the wanted images in, the results out one by one. Queries the
//! runtime in its own tasks, few at a time, and retries failures later. Makes no decisions about probes.

mod kept;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::watch,
    task::{AbortHandle, Id, JoinError, JoinSet},
    time::sleep_until,
};

use kept::Kept;

use crate::{
    clock,
    ids::ImageRef,
    runtime::{
        Runtime,
        image::{Image, ImageError},
        turns::{Backlog, News, Owner, PATIENCE, TurnLimits, Turns},
    },
    spec::{healthcheck, image::ImageNames, plan::Healthcheck, planner::Depth},
};

/// 4 images are asked for at once; the others wait their turn. 8 more may be under way that the runtime does not answer at
/// once, 2 of these tried before. As many may wait as containers may.
const AT_ONCE: TurnLimits = TurnLimits { quick: 4, slow: 8, tried: 2, all: 65_536 };

/// What was found of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ImageAnswer {
    pub(super) image: ImageRef,
    /// What it has.
    pub(super) found: Found,
}

/// What an image has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// These names.
    Names(Arc<ImageNames>),
    /// This HEALTHCHECK; `None` if it has none.
    Healthcheck(Option<Arc<Healthcheck>>),
}

/// The images that are asked for, and what is known of others. As bounded as the containers are.
#[derive(Debug)]
pub(super) struct Images {
    runtime: Runtime,
    turns: Turns<ImageRef>,
    /// How much is wanted of those that wait or are asked for.
    depths: HashMap<ImageRef, Depth>,
    asked: HashMap<Id, Asked>,
    /// Shows what waits.
    backlog: watch::Sender<Backlog>,
    /// What went wrong last, and with which image.
    last_failure: String,
    under_way: JoinSet<Step>,
    /// Found together with what was answered last.
    found: Option<ImageAnswer>,
    kept: Kept,
    /// Whether the runtime has shown that it has no images to ask for: then nothing is asked any more.
    has_no_images: bool,
    /// Whether it has shown that it has no content store: then no HEALTHCHECK is asked for any more.
    has_no_store: bool,
}

/// An image that is asked for.
#[derive(Clone, Debug)]
struct Asked {
    image: ImageRef,
    depth: Depth,
    task: AbortHandle,
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
    /// Asks this runtime, and shows what waits.
    pub(super) fn new(runtime: Runtime, backlog: watch::Sender<Backlog>) -> Self {
        Self {
            runtime,
            turns: Turns::new(AT_ONCE),
            depths: HashMap::new(),
            asked: HashMap::new(),
            backlog,
            last_failure: String::new(),
            under_way: JoinSet::new(),
            found: None,
            kept: Kept::default(),
            has_no_images: false,
            has_no_store: false,
        }
    }

    /// An image is wanted. One that is asked for already is not asked for twice, unless more of it is wanted.
    pub(super) fn want(&mut self, image: ImageRef, depth: Depth) {
        let is_asked = self.asked.values().any(|asked| asked.image == image && asked.depth >= depth);
        if !self.has_no_images && !is_asked {
            let wanted = self.depths.entry(image.clone()).or_insert(depth);
            *wanted = depth.max(*wanted);
            self.turns.add(image, Owner::default(), Duration::ZERO, clock::now());
        }
    }

    /// Forgets those that wait and are not wanted any more.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(&ImageRef) -> bool) {
        self.turns.retain(is_wanted);
        self.depths.retain(|image, _| self.turns.contains(image));
    }

    /// Asks what is due and waits for the next answer. Safe to be dropped and called again.
    pub(super) async fn next(&mut self) -> ImageAnswer {
        if let Some(found) = self.found.take() {
            return found;
        }
        loop {
            self.ask(clock::now());
            let wake_at = self.turns.deadline();
            tokio::select! {
                () = async { sleep_until(wake_at.unwrap_or_else(clock::now).into()).await }, if wake_at.is_some() => {}
                Some(ended) = self.under_way.join_next_with_id() => {
                    if let Some(answer) = self.on_ended(ended, clock::now()) {
                        return answer;
                    }
                }
                else => std::future::pending().await,
            }
        }
    }

    /// Asks for the images whose turn it is, gives up those that take too long, and shows what waits.
    fn ask(&mut self, now: Instant) {
        let given_up = self.turns.overdue(now);
        self.asked
            .values()
            .filter(|asked| given_up.contains(&asked.image))
            .for_each(|asked| asked.task.abort());
        while let Some(image) = self.turns.start(now) {
            let depth = self.depths.get(&image).copied().unwrap_or(Depth::Names);
            let (runtime, name) = (self.runtime.clone(), image.clone());
            let step = async move { Step::Identified(runtime.image(name.as_str()).await) };
            let task = self.under_way.spawn(step);
            self.asked.insert(task.id(), Asked { image, depth, task });
        }
        match self.turns.news(now) {
            Some(News::Began(Backlog { count, .. })) => {
                let last_failure = self.last_failure.as_str();
                tracing::warn!(
                    count,
                    last_failure,
                    "names or HEALTHCHECKs of images cannot be read: trying again"
                );
            }
            Some(News::Ended) => tracing::info!("names and HEALTHCHECKs of images can be read again"),
            None => {}
        }
        let backlog = self.turns.backlog();
        self.backlog.send_if_modified(|shown| std::mem::replace(shown, backlog) != backlog);
    }

    fn on_ended(&mut self, ended: Result<(Id, Step), JoinError>, now: Instant) -> Option<ImageAnswer> {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let Asked { image, depth, .. } = self.asked.remove(&id)?;
        match ended {
            Ok((_, Step::Identified(Ok(identified)))) => {
                let names = ImageNames::of_runtime(&identified.id, &identified.names);
                if depth == Depth::Healthcheck && !self.has_no_store {
                    self.read(image.clone(), identified.id, now);
                } else {
                    self.turns.answered(&image, now);
                }
                return Some(ImageAnswer { image, found: Found::Names(Arc::new(names)) });
            }
            Ok((_, Step::Read(id, Ok(healthcheck)))) => {
                self.kept.put(id, healthcheck.clone());
                self.turns.answered(&image, now);
                return Some(ImageAnswer { image, found: Found::Healthcheck(healthcheck) });
            }
            Ok((_, Step::Identified(Err(ImageError::NoStore)))) => self.end(),
            Ok((_, Step::Read(_, Err(ImageError::NoStore)))) => {
                if !self.has_no_store {
                    tracing::info!("runtime has no content store: HEALTHCHECKs of images are not read");
                }
                self.has_no_store = true;
                self.turns.answered(&image, now);
            }
            Ok((_, Step::Identified(Err(error)) | Step::Read(_, Err(error)))) => {
                self.again(&image, &error.to_string(), now);
            }
            Err(error) if error.is_cancelled() => {
                self.again(&image, &format!("no answer within {} s", PATIENCE.as_secs()), now);
            }
            Err(panicked) => self.again(&image, &panicked.to_string(), now),
        }
        None
    }

    /// Reads the HEALTHCHECK of the image with this id, unless it is kept.
    fn read(&mut self, image: ImageRef, id: String, now: Instant) {
        if let Some(healthcheck) = self.kept.get(&id) {
            self.turns.answered(&image, now);
            self.found = Some(ImageAnswer { image, found: Found::Healthcheck(healthcheck) });
        } else {
            let task = self.under_way.spawn(read(self.runtime.clone(), id));
            self.asked.insert(task.id(), Asked { image, depth: Depth::Healthcheck, task });
        }
    }

    fn again(&mut self, image: &ImageRef, error: &str, now: Instant) {
        tracing::debug!(image = image.as_str(), error, "image's names or HEALTHCHECK cannot be read");
        self.last_failure = format!("{}: {error}", image.as_str());
        self.turns.failed(image, now);
    }

    /// A runtime that has no image service will not get one.
    fn end(&mut self) {
        tracing::info!("runtime has no image service: neither names nor HEALTHCHECKs of images are read");
        self.has_no_images = true;
        self.turns = Turns::new(AT_ONCE);
        self.depths.clear();
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
