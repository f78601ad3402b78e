//! Reports changes in the parts of the file system that determine the configuration. In: the roots, and inotify's
//! events of the folders around them. Out: a notification, and on request whether anything has changed since the last
//! check. Blocks, so it must be called on a thread that may block. Never reads the configuration.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use notify::{
    Event, EventKind, INotifyWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};
use tokio::sync::Notify;

use super::survey::{Stamp, Survey};
use crate::app::source::Roots;

/// 3 looks until one finds what the one before it found: what changes faster is seen by the next one.
const LOOKS: usize = 3;

/// Watches the folders that matter at present.
#[derive(Debug)]
pub(super) struct Watch {
    roots: Roots,
    changed: Arc<Notify>,
    /// The last look, shared with the thread that hears of events.
    survey: Arc<Mutex<Survey>>,
    /// None where the kernel gives none: then looks alone find changes.
    watcher: Option<INotifyWatcher>,
    watched: BTreeMap<PathBuf, Stamp>,
    is_reported: bool,
}

impl Watch {
    /// Watches nothing before the first look. `changed` is notified of what may change what is read.
    pub(super) fn new(roots: Roots, changed: Arc<Notify>) -> Self {
        let (survey, watched) = (Arc::default(), BTreeMap::new());
        Self { roots, changed, survey, watcher: None, watched, is_reported: false }
    }

    /// Looks at the files, watches what is to be watched now, and returns whether anything differs from the last look.
    /// What changes after it is notified.
    pub(super) fn look(&mut self) -> bool {
        let before = self.known();
        for _ in 0..LOOKS {
            let survey = Survey::of(&self.roots);
            let is_settled = survey == self.known();
            *self.survey.lock().unwrap_or_else(PoisonError::into_inner) = survey.clone();
            self.watch(&survey);
            // What changed before a folder was watched is found by another look at it.
            if is_settled {
                break;
            }
        }
        before != self.known()
    }

    fn known(&self) -> Survey {
        self.survey.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn watch(&mut self, survey: &Survey) {
        let trouble = self.try_watch(survey).err();
        if let Some(error) = trouble.as_ref().filter(|_| !self.is_reported) {
            tracing::warn!(%error, "cannot watch the configuration: changes are noticed within 10 s");
        }
        self.is_reported = trouble.is_some();
    }

    fn try_watch(&mut self, survey: &Survey) -> notify::Result<()> {
        let watcher = match &mut self.watcher {
            Some(watcher) => watcher,
            None => {
                let (survey, changed) = (self.survey.clone(), self.changed.clone());
                let hear = move |event: notify::Result<Event>| {
                    if counts(&event, &survey.lock().unwrap_or_else(PoisonError::into_inner)) {
                        changed.notify_one();
                    }
                };
                self.watcher.insert(INotifyWatcher::new(hear, notify::Config::default())?)
            }
        };
        let is_wanted = |folder: &PathBuf, stamp: &Stamp| survey.folders().get(folder) == Some(stamp);
        self.watched.retain(|folder, stamp| {
            let stays = is_wanted(folder, stamp);
            if !stays {
                // Of a folder that is gone the kernel has dropped the watch already.
                let _ = watcher.unwatch(folder);
            }
            stays
        });
        for (folder, stamp) in survey.folders() {
            // Said again it changes nothing, but where a folder was moved away and back and lost its watch.
            watcher.watch(folder, RecursiveMode::NonRecursive)?;
            self.watched.insert(folder.clone(), *stamp);
        }
        Ok(())
    }
}

/// Whether an event may change what is read. To open and read a file changes nothing: we do so ourselves.
fn counts(event: &notify::Result<Event>, survey: &Survey) -> bool {
    let Ok(event) = event else { return true };
    if event.need_rescan() {
        return true;
    }
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => {}
        EventKind::Access(_) => return false,
        EventKind::Any
        | EventKind::Create(_)
        | EventKind::Modify(_)
        | EventKind::Remove(_)
        | EventKind::Other => {}
    }
    event.paths.iter().any(|path| survey.concerns(path))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, time::Duration};

    use notify::event::{CreateKind, Flag, MetadataKind, ModifyKind};
    use tokio::time::timeout;

    use super::*;

    /// Long, as tests run on busy machines.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn place() -> (tempfile::TempDir, Roots) {
        let dir = tempfile::Builder::new().prefix("criprobe-watch-").tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        (dir, Roots { file: root.join("etc/config.yaml"), folder: root.join("etc/conf.d") })
    }

    #[test]
    fn what_we_do_ourselves_and_what_is_not_read_does_not_count() {
        let (dir, roots) = place();
        fs::create_dir(roots.file.parent().unwrap()).unwrap();
        let survey = Survey::of(&roots);
        let of = |kind, path: &Path| Ok(Event::new(kind).add_path(path.to_owned()));
        let close = |mode| EventKind::Access(AccessKind::Close(mode));
        for (event, expected, rule) in [
            (of(EventKind::Create(CreateKind::File), &roots.file), true, "made"),
            (of(EventKind::Modify(ModifyKind::Metadata(MetadataKind::Any)), &roots.file), true, "touched"),
            (of(close(AccessMode::Write), &roots.file), true, "written"),
            (of(close(AccessMode::Read), &roots.file), false, "read"),
            (of(EventKind::Access(AccessKind::Open(AccessMode::Any)), &roots.file), false, "opened"),
            (of(EventKind::Create(CreateKind::File), &dir.path().join("etc/x")), false, "of no interest"),
            (Ok(Event::new(EventKind::Other).set_flag(Flag::Rescan)), true, "something was lost"),
            (Err(notify::Error::generic("odd")), true, "something went wrong"),
        ] {
            assert_eq!(counts(&event, &survey), expected, "{rule}");
        }
    }

    #[tokio::test]
    async fn each_way_of_changing_a_file_is_notified_and_found_by_a_look() {
        let (_dir, roots) = place();
        let changed = Arc::new(Notify::new());
        let mut watch = Watch::new(roots.clone(), changed.clone());
        assert!(watch.look() && !watch.look(), "the first look finds all, the second one nothing");
        let (file, added) = (roots.file.clone(), roots.folder.join("10.yaml"));
        let temporary = file.with_extension("tmp");
        let steps: [(&str, &dyn Fn()); 7] = [
            ("the folder is made", &|| fs::create_dir(file.parent().unwrap()).unwrap()),
            ("the file is made", &|| fs::write(&file, "1").unwrap()),
            ("it is written", &|| fs::write(&file, "22").unwrap()),
            ("another is renamed to it", &|| {
                fs::write(&temporary, "333").unwrap();
                fs::rename(&temporary, &file).unwrap();
            }),
            ("it is removed", &|| fs::remove_file(&file).unwrap()),
            ("the folder is made", &|| fs::create_dir(roots.folder.as_path()).unwrap()),
            ("a file is added", &|| fs::write(&added, "").unwrap()),
        ];
        for (what, step) in steps {
            step();
            assert!(timeout(PATIENCE, changed.notified()).await.is_ok(), "not notified: {what}");
            // An event that came late is of this step still.
            while timeout(Duration::from_millis(20), changed.notified()).await.is_ok() {}
            assert!(watch.look(), "not found: {what}");
            assert!(!watch.look(), "found twice: {what}");
        }
    }
}
