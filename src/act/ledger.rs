//! What must survive a crash in the middle of an act: changes in, one file out, written before each step that changes
//! something. Bounded, without values of environments and without outputs. Never decides what is done.

use std::{
    collections::HashMap,
    error::Error,
    fmt, io, iter,
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::timeout,
};

use super::{
    back_off::{BackOff, Progress},
    status::{ActEnd, ActRecord, Place},
};
use crate::{
    clock,
    ids::{ContainerId, PodUid, ProbeKind, SandboxId},
    prober::state::time,
    results::event::ActCause,
    spec::OnFailure,
};

/// 1: what we write, and all that we can read.
const VERSION: u64 = 1;

/// 1 MiB: the longest file that is read or written. A longer one counts as damaged; where it is written, the oldest of the
/// last acts are left out.
pub(crate) const MOST_BYTES: usize = 1 << 20;

/// 1,024 intents are open at most: an act beyond is withheld.
const MOST_INTENTS: usize = 1024;

/// 4,096 times of acts are saved; of more in a minute, the oldest do not count after a restart.
const MOST_RECENT: usize = 4096;

/// 1,024 places have a last act; the one whose act is the oldest makes room.
const MOST_LAST: usize = 1024;

/// 256 bytes of a reason are saved.
const LONGEST_REASON: usize = 256;

/// 60 s: times of acts older than that are dropped.
const MINUTE: Duration = Duration::from_secs(60);

/// 5 s: how long a disk may take. After that the act is withheld; what the disk still does is waited for by the next one.
const PATIENCE: Duration = Duration::from_secs(5);

/// A time of the wall clock, as it is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Wall(#[serde(with = "time")] pub SystemTime);

/// An act that has begun and not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Intent {
    pub container: ContainerId,
    pub sandbox: SandboxId,
    pub pod: PodUid,
    /// The container's name.
    pub name: Arc<str>,
    /// The probe that asked for it.
    pub kind: ProbeKind,
    /// The container's attempt number.
    pub attempt: u32,
    pub action: OnFailure,
    pub cause: ActCause,
    pub step: IntentStep,
    pub began: Wall,
    /// When the grace period ends.
    pub stop_deadline: Option<Wall>,
    /// When the successor may be created.
    pub not_before: Option<Wall>,
    /// The successor, once it is created.
    pub successor: Option<ContainerId>,
}

/// What may have been done of an act. Written before it is done: what it names may have happened or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum IntentStep {
    /// Command and hook; nothing is stopped.
    Begun,
    /// StopContainer.
    Stopping,
    /// It is stopped, and its successor waits for the back-off.
    Stopped,
    /// CreateContainer.
    Creating,
    /// StartContainer; the successor is known.
    Starting,
    /// The successor runs; RemoveContainer of the old one.
    Removing,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    /// The acts that have not ended.
    pub intents: Vec<Intent>,
    pub back_off: BackOff,
    /// When acts began, in the last minute.
    recent: Vec<Wall>,
    last: HashMap<Place, ActRecord>,
}

impl Content {
    /// In place of a damaged one: as if the budget of the minute had just been used up, as it may have been.
    fn damaged(now: SystemTime) -> Self {
        Self { recent: vec![Wall(now); MOST_RECENT], ..Self::default() }
    }

    /// An act begins.
    pub(super) fn begin(&mut self, intent: Intent) {
        let now = intent.began;
        self.recent.retain(|at| is_recent(*at, now.0));
        let surplus = (self.recent.len() + 1).saturating_sub(MOST_RECENT);
        self.recent.drain(..surplus);
        self.recent.push(now);
        self.intents.push(intent);
    }

    /// The intent of a container.
    pub(super) fn intent(&mut self, container: &ContainerId) -> Option<&mut Intent> {
        self.intents.iter_mut().find(|intent| intent.container == *container)
    }

    /// The act on a container ended.
    pub(super) fn end(&mut self, container: &ContainerId) {
        self.intents.retain(|intent| intent.container != *container);
    }

    /// The last act of a place.
    pub(super) fn remember(&mut self, place: Place, mut record: ActRecord) {
        if let Some(ActEnd::GivenUp(reason)) = &mut record.end {
            reason.truncate(reason.floor_char_boundary(LONGEST_REASON));
        }
        record.command = None;
        if !self.last.contains_key(&place) && self.last.len() >= MOST_LAST {
            let oldest = self.last.iter().min_by_key(|(_, record)| record.at).map(|(place, _)| place.clone());
            oldest.and_then(|place| self.last.remove(&place));
        }
        self.last.insert(place, record);
    }

    /// The last acts, in no order.
    pub(super) fn last(&self) -> impl Iterator<Item = (&Place, &ActRecord)> {
        self.last.iter()
    }

    /// How long ago the acts of the last minute began. One in the future, where the clock was set back, began just now.
    pub(super) fn recent(&self, now: SystemTime) -> impl Iterator<Item = Duration> {
        let recent = self.recent.iter().filter(move |at| is_recent(**at, now));
        recent.map(move |at| now.duration_since(at.0).unwrap_or_default())
    }

    fn from_json(text: &[u8]) -> Option<Self> {
        if text.len() > MOST_BYTES {
            return None;
        }
        let Document { version, intents, recent, back_offs, last } = serde_json::from_slice(text).ok()?;
        let is_ours = version == VERSION && intents.len() <= MOST_INTENTS;
        is_ours.then(|| Self {
            intents,
            back_off: BackOff::restored(back_offs),
            recent: recent.into_iter().take(MOST_RECENT).collect(),
            last: last.into_iter().take(MOST_LAST).collect(),
        })
    }

    /// As text, the newest of the last acts first; none if even without these it is too long.
    fn to_json(&self) -> Option<Vec<u8>> {
        if self.intents.len() > MOST_INTENTS {
            return None;
        }
        let mut last: Vec<_> =
            self.last.iter().map(|(place, record)| (place.clone(), record.clone())).collect();
        last.sort_by(|(a, one), (b, other)| other.at.cmp(&one.at).then_with(|| a.cmp(b)));
        let mut document = Document {
            version: VERSION,
            intents: self.intents.clone(),
            recent: self.recent.clone(),
            back_offs: self.back_off.saved().map(|(place, progress)| (place.clone(), progress)).collect(),
            last,
        };
        loop {
            let text = serde_json::to_vec(&document).expect("names, numbers and times can be written");
            match document.last.len() {
                _ if text.len() <= MOST_BYTES => return Some(text),
                0 => return None,
                left => document.last.truncate(left / 2),
            }
        }
    }
}

/// Whether an act counts in the last minute. A time far in the future is none.
fn is_recent(at: Wall, now: SystemTime) -> bool {
    match now.duration_since(at.0) {
        Ok(ago) => ago < MINUTE,
        Err(ahead) => ahead.duration() < MINUTE,
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    version: u64,
    intents: Vec<Intent>,
    recent: Vec<Wall>,
    back_offs: Vec<(Place, Progress)>,
    last: Vec<(Place, ActRecord)>,
}

/// Reads the whole file.
pub(crate) type ReadFile = Box<dyn Fn() -> io::Result<Option<Vec<u8>>> + Send + Sync>;

/// Replaces the whole file.
pub(crate) type WriteFile = Box<dyn Fn(&[u8]) -> io::Result<()> + Send + Sync>;

/// The file, as whoever starts the stage provides it. Both calls block.
pub(crate) struct LedgerFile {
    /// Reads [`MOST_BYTES`] and one more at most; nothing if there is no file. An error of the kind `InvalidData` means that
    /// it will never be readable, and counts as a damaged file.
    pub read: ReadFile,
    /// Returns when the whole of it is on the disk.
    pub write: WriteFile,
}

impl fmt::Debug for LedgerFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LedgerFile")
    }
}

/// Why an act cannot be recorded, and so is withheld.
#[derive(Debug, Error)]
pub(super) enum LedgerError {
    #[error("acts cannot be recorded")]
    File(#[source] io::Error),
    #[error("acts cannot be recorded: the disk did not answer within 5 s")]
    Stalled,
    #[error("acts cannot be recorded: too many are open")]
    Full,
}

/// An error with all its causes, in one line.
pub(super) fn describe(error: &LedgerError) -> String {
    let causes = iter::successors(Some(error as &dyn Error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The file, and what is in it.
#[derive(Debug)]
pub(super) struct Ledger {
    file: Arc<LedgerFile>,
    content: Content,
    is_loaded: bool,
    /// Whether the file may have other content.
    is_stale: bool,
    /// What the disk still does.
    pending: Option<JoinHandle<io::Result<Option<Vec<u8>>>>>,
}

impl Ledger {
    /// Touches nothing yet.
    pub(super) fn new(file: LedgerFile) -> Self {
        let (file, content) = (Arc::new(file), Content::default());
        Self { file, content, is_loaded: false, is_stale: false, pending: None }
    }

    /// Reads the file, unless that was done. A damaged one is logged, and is as good as none.
    ///
    /// # Errors
    /// The file could not be read, which may be tried again.
    pub(super) async fn load(&mut self) -> Result<(), LedgerError> {
        if self.is_loaded {
            return Ok(());
        }
        let file = self.file.clone();
        let read = match self.on_disk(move || (file.read)()).await {
            Err(LedgerError::File(error)) if error.kind() == io::ErrorKind::InvalidData => Some(Vec::new()),
            read => read?,
        };
        if let Some(text) = read {
            self.content = Content::from_json(&text).unwrap_or_else(|| {
                tracing::warn!("the record of acts is damaged: what was in progress is not finished");
                Content::damaged(clock::wall())
            });
        }
        self.is_loaded = true;
        Ok(())
    }

    /// What is known.
    pub(super) fn content(&self) -> &Content {
        &self.content
    }

    /// Makes a change, if it can be recorded. It is on the disk then.
    ///
    /// # Errors
    /// Nothing was changed. The file may have the change all the same, until the next one is recorded.
    pub(super) async fn record(&mut self, change: impl FnOnce(&mut Content)) -> Result<(), LedgerError> {
        self.load().await?;
        let mut content = self.content.clone();
        change(&mut content);
        self.write(&content).await?;
        self.content = content;
        Ok(())
    }

    /// Makes a change that has happened, whether it can be recorded or not. It is in the file with the next one at the
    /// latest.
    pub(super) fn note(&mut self, change: impl FnOnce(&mut Content)) {
        change(&mut self.content);
        self.is_stale = true;
    }

    /// Writes what was noted, and what a failed write may have left otherwise.
    ///
    /// # Errors
    /// It could not be written, which may be tried again.
    pub(super) async fn flush(&mut self) -> Result<(), LedgerError> {
        self.load().await?;
        if self.is_stale {
            let content = self.content.clone();
            self.write(&content).await?;
        }
        Ok(())
    }

    async fn write(&mut self, content: &Content) -> Result<(), LedgerError> {
        let text = content.to_json().ok_or(LedgerError::Full)?;
        let file = self.file.clone();
        self.is_stale = true;
        self.on_disk(move || (file.write)(&text).map(|()| None)).await?;
        self.is_stale = false;
        Ok(())
    }

    /// Does what blocks on a thread of its own, after what that still does from before; waits for both together so long as
    /// the disk may take. Dropped, it leaves the rest to the next one.
    async fn on_disk(
        &mut self,
        work: impl FnOnce() -> io::Result<Option<Vec<u8>>> + Send + 'static,
    ) -> Result<Option<Vec<u8>>, LedgerError> {
        let done = async {
            if let Some(earlier) = &mut self.pending {
                // It was reported as stalled, and its end is no news.
                let _ = earlier.await;
            }
            let done = self.pending.insert(spawn_blocking(work)).await;
            self.pending = None;
            done.unwrap_or_else(|panic| Err(io::Error::other(panic)))
        };
        timeout(PATIENCE, done).await.map_err(|_| LedgerError::Stalled)?.map_err(LedgerError::File)
    }
}

#[cfg(test)]
mod tests;
