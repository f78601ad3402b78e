//! Reads the names of images and their HEALTHCHECKs: the wanted images in, the results out one by one. Queries the
//! runtime in its own tasks, few at a time, and retries failures later. Makes no decisions about probes.

mod absence;
mod kept;
mod names;

use std::{collections::HashMap, sync::Arc, time::Instant};

use tokio::{
    sync::watch,
    task::{AbortHandle, Id, JoinError, JoinSet},
    time::sleep_until,
};

use absence::Absence;
use kept::Kept;
use names::{KnownNames, Names};

use crate::{
    clock,
    ids::ImageRef,
    runtime::{
        Runtime,
        image::ImageError,
        turns::{Backlog, News, Owner, PATIENCE, TurnLimits, Turns},
    },
    spec::{
        healthcheck,
        image::{ImageMatches, ImagePatterns},
        plan::Healthcheck,
        planner::Depth,
    },
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
    /// Names that these patterns match.
    Names(Arc<ImageMatches>),
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
    names: KnownNames,
    /// Set while the runtime has no image service, as far as it has shown.
    absence: Option<Absence>,
    /// Whether it has shown that it has no content store: then no HEALTHCHECK is asked for until there is a new link to it.
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
    Identified(Result<Names, ImageError>),
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
            names: KnownNames::default(),
            absence: None,
            has_no_store: false,
        }
    }

    /// An image is wanted. If it is asked for already, the answer may be older than what it is wanted for: then it is asked
    /// for once more.
    pub(super) fn want(&mut self, image: ImageRef, depth: Depth) {
        match &mut self.absence {
            Some(absence) => absence.want(image, depth),
            None => self.request(image, depth, clock::now()),
        }
    }

    /// The patterns that the names of images are matched with from now on.
    pub(super) fn match_with(&mut self, patterns: &ImagePatterns) {
        self.names.match_with(patterns);
    }

    /// The runtime may be another one: it may have what the former one did not.
    pub(super) fn on_new_link(&mut self, now: Instant) {
        self.has_no_store = false;
        self.turns.forgive(now);
        self.absence.iter_mut().for_each(|absence| absence.try_now(now));
    }

    /// Forgets those that wait and are not wanted any more.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(&ImageRef) -> bool) {
        self.absence.iter_mut().for_each(|absence| absence.retain(&is_wanted));
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
            let trial = self.absence.as_ref().and_then(Absence::deadline);
            let wake_at = self.turns.deadline().into_iter().chain(trial).min();
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
        if let Some((image, depth)) = self.absence.as_mut().and_then(|absence| absence.trial(now)) {
            self.request(image, depth, now);
        }
        let given_up = self.turns.overdue(now);
        self.asked
            .values()
            .filter(|asked| given_up.contains(&asked.image))
            .for_each(|asked| asked.task.abort());
        while let Some(image) = self.turns.start(now) {
            let depth = self.depths.get(&image).copied().unwrap_or(Depth::Names);
            let (runtime, name, matching) =
                (self.runtime.clone(), image.clone(), self.names.matching(&image));
            let step = async move {
                match runtime.image(name.as_str()).await {
                    Ok(image) => Step::Identified(Ok(matching.names_of(image).await)),
                    Err(error) => Step::Identified(Err(error)),
                }
            };
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
            Ok((_, Step::Identified(Ok(names)))) => {
                self.resume(now);
                if depth == Depth::Healthcheck && !self.has_no_store {
                    self.read(image.clone(), names.id.clone(), now);
                } else {
                    self.turns.answered(&image, now);
                }
                let matches = names.matches.clone();
                self.names.put(image.clone(), names, now);
                return Some(ImageAnswer { image, found: Found::Names(matches) });
            }
            Ok((_, Step::Read(id, Ok(healthcheck)))) => {
                self.kept.put(id, healthcheck.clone());
                self.turns.answered(&image, now);
                return Some(ImageAnswer { image, found: Found::Healthcheck(healthcheck) });
            }
            Ok((_, Step::Identified(Err(ImageError::NoStore)))) => self.end(now),
            Ok((_, Step::Read(_, Err(ImageError::NoStore)))) => {
                if !self.has_no_store {
                    tracing::info!("runtime has no content store: HEALTHCHECKs of images are not read");
                }
                self.has_no_store = true;
                self.turns.answered(&image, now);
            }
            Ok((_, Step::Identified(Err(error)) | Step::Read(_, Err(error)))) => {
                if matches!(error, ImageError::Unknown) {
                    self.resume(now);
                }
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

    /// Puts an image in line.
    fn request(&mut self, image: ImageRef, depth: Depth, now: Instant) {
        let wanted = self.depths.entry(image.clone()).or_insert(depth);
        *wanted = depth.max(*wanted);
        let pause = self.names.pause(&image, now);
        self.turns.add(image, Owner::default(), pause, now);
    }

    /// A runtime without an image service may get one: containerd serves others while its CRI plugin starts. Until then,
    /// one image is asked for from time to time.
    fn end(&mut self, now: Instant) {
        let absence = self.absence.get_or_insert_with(|| {
            tracing::info!("runtime has no image service: neither names nor HEALTHCHECKs of images are read");
            Absence::since(now)
        });
        self.depths.drain().for_each(|(image, depth)| absence.want(image, depth));
        self.turns = Turns::new(AT_ONCE);
        self.asked.clear();
        self.under_way = JoinSet::new();
    }

    /// The runtime has an image service.
    fn resume(&mut self, now: Instant) {
        if let Some(absence) = self.absence.take() {
            tracing::info!("runtime has an image service: names and HEALTHCHECKs of images are read");
            absence.into_wanted().for_each(|(image, depth)| self.request(image, depth, now));
        }
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
