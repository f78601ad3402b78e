//! Saves what survives the daemon: the prober's state in, a file out, and back at the next start. Errors are reported
//! once and have no other effect: the state is never required. Blocking calls run on separate threads, and only the two
//! tasks here wait for them.

mod file;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, ready},
};
use tokio::{
    sync::watch,
    task::{JoinError, spawn_blocking},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use self::file::{StateError, StateFile};
use super::errors::describe_error;
use crate::{
    act::ledger::{self, LedgerFile},
    clock,
    prober::Saved,
    redact::Redactor,
    report::view::StateFileView,
    stage::{TaskEnd, Tasks},
};

/// 5 s: how long the file is waited for at the start. After that the prober begins without it. It is longer than a
/// daemon that ends may take to write it for the last time, when its socket is free already and its folder is not.
const LOAD: Duration = Duration::from_secs(5);

/// 50 ms: how soon a folder that another daemon uses is looked at again at the start.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// 10 s: how long after a failure the same is tried again, if nothing new is to be saved.
const RETRY: Duration = Duration::from_secs(10);

/// 10 s: a disk that takes longer for a save hangs. That is shown; the save goes on.
const HANGS: Duration = Duration::from_secs(10);

/// What a restart is left without.
const LOST: &str = "state cannot be saved: a restart of criprobe would lose verdicts and pauses";

/// The state of this run: what the last one saved, and where to send what is to be saved next.
pub(super) struct State {
    /// Resolves to what was saved before; to nothing if no state is kept.
    pub load: BoxFuture<'static, Saved>,
    /// The newest value is written.
    pub saves: watch::Sender<Arc<Saved>>,
    /// The condition of the file.
    pub health: watch::Receiver<StateFileView>,
    /// The record of acts, in the same folder.
    pub ledger: LedgerFile,
    /// Resolves after the last save, once `saves` is gone; at once if no state is kept.
    pub saved: TaskEnd,
}

/// Starts the task that keeps the state in a folder, until it is stopped and `saves` is gone. Without a folder, no state is
/// kept.
pub(super) fn spawn(
    folder: Option<&Path>,
    redactor: Redactor,
    stop: CancellationToken,
    tasks: &mut Tasks,
) -> State {
    let saves = watch::Sender::<Arc<Saved>>::default();
    let Some(store) = folder.map(|folder| Store::new(folder, redactor)) else {
        let (load, health) = (ready(Saved::default()).boxed(), watch::Sender::default().subscribe());
        let ledger = LedgerFile {
            read: Box::new(|| Ok(None)),
            write: Box::new(|_| Err(io::Error::other("no folder for the state is set (state)"))),
        };
        return State { load, saves, health, ledger, saved: tasks.spawn(ready(())) };
    };
    let (reader, writer) = (store.clone(), store.clone());
    let ledger = LedgerFile {
        read: Box::new(move || reader.file.load_acts(ledger::MOST_BYTES).map_err(into_io)),
        write: Box::new(move |text| writer.file.save_acts(text).map_err(into_io)),
    };
    let (load, health, mut to_save) =
        (store.clone().load().boxed(), store.health.subscribe(), saves.subscribe());
    let saved =
        tasks.spawn(tasks.supervise_until("state", stop, async move || store.keep(&mut to_save).await));
    State { load, saves, health, ledger, saved }
}

/// The file, and its condition.
#[derive(Debug)]
struct Store {
    file: StateFile,
    health: watch::Sender<StateFileView>,
    /// What probes said passes it.
    redactor: Redactor,
}

impl Store {
    /// That of a folder. Touches nothing yet.
    fn new(folder: &Path, redactor: Redactor) -> Arc<Self> {
        let file = StateFile::new(folder);
        let health = StateFileView { file: file.path().display().to_string(), ..StateFileView::default() };
        Arc::new(Self { file, health: watch::Sender::new(health), redactor })
    }

    fn path(&self) -> PathBuf {
        self.file.path()
    }

    /// What was saved before; nothing if there is no file, none that can be used, or another daemon uses it. Makes
    /// the folder.
    async fn load(self: Arc<Self>) -> Saved {
        let mut in_use = None;
        let reading = async {
            loop {
                let store = self.clone();
                let read = spawn_blocking(move || match store.file.prepare() {
                    Err(error @ StateError::InUse(_)) => (Err(error), Ok(Saved::default())),
                    prepared => (prepared, store.file.load()),
                });
                match read.await {
                    Ok((Err(error @ StateError::InUse(_)), _)) => in_use = Some(error),
                    read => return read,
                }
                sleep(LOOK_AGAIN).await;
            }
        };
        let read = timeout(LOAD, reading).await;
        let (prepared, loaded) = match read {
            Ok(Ok((prepared, loaded))) => (words(Ok(prepared)), loaded),
            Ok(Err(panic)) => (words(Err(panic)), Ok(Saved::default())),
            Err(_) => match in_use {
                Some(in_use) => {
                    self.give_up().await;
                    (words(Ok(Err(in_use))), Ok(Saved::default()))
                }
                None => (format!("no answer within {} s", LOAD.as_secs()), Ok(Saved::default())),
            },
        };
        self.note(prepared, LOST);
        match loaded {
            Ok(saved) => {
                let (path, probes) = (self.path(), saved.probes.len());
                tracing::debug!(path = %path.display(), probes, "state was read");
                saved
            }
            Err(error) => {
                self.note(words(Ok(Err(error))), "state was not read: probes start again");
                Saved::default()
            }
        }
    }

    /// Leaves the folder to the daemon that had it at our start, for good: taken over while that one restarts, it would
    /// lose what it has saved. An attempt to take the lock may be under way; this waits for it, not for a disk that hangs.
    async fn give_up(self: &Arc<Self>) {
        let store = self.clone();
        let giving_up = spawn_blocking(move || store.file.give_up());
        // It is done all the same, once the disk answers.
        let _ = timeout(LOOK_AGAIN, giving_up).await;
    }

    /// Writes what is to be saved, the newest of it, until all senders are gone.
    async fn keep(self: &Arc<Self>, saves: &mut watch::Receiver<Arc<Saved>>) {
        let mut is_written = true;
        loop {
            tokio::select! {
                saved = saves.changed() => if saved.is_err() { return },
                () = sleep(RETRY), if !is_written => {}
            }
            let saved = saves.borrow_and_update().clone();
            is_written = self.write(saved).await;
        }
    }

    /// Writes the file; returns whether nothing is left to do.
    async fn write(self: &Arc<Self>, saved: Arc<Saved>) -> bool {
        let store = self.clone();
        let mut saving = spawn_blocking(move || {
            let text = store.redactor.patterns().json(saved.to_json());
            store.file.save(&text)
        });
        let saved = match timeout(HANGS, &mut saving).await {
            Ok(saved) => saved,
            Err(_) => {
                self.note(format!("the disk does not respond within {} s", HANGS.as_secs()), LOST);
                saving.await
            }
        };
        let trouble = words(saved);
        if !trouble.is_empty() {
            self.note(trouble, LOST);
            return false;
        }
        let mut is_back = false;
        self.health.send_modify(|health| {
            is_back = health.saved_at.is_some() && !health.trouble.is_empty();
            health.saved_at = Some(clock::wall().into());
            health.trouble = trouble;
        });
        if is_back {
            tracing::info!(path = %self.path().display(), "state can be saved again");
        }
        true
    }

    /// Logs trouble, if there is any and it was not logged just before.
    fn note(&self, trouble: String, message: &str) {
        let is_known = self.health.borrow().trouble == trouble;
        if is_known || trouble.is_empty() {
            return;
        }
        tracing::warn!(path = %self.path().display(), trouble, "{message}");
        self.health.send_modify(|health| health.trouble = trouble);
    }
}

/// One that cannot change by itself means that the file is damaged.
fn into_io(error: StateError) -> io::Error {
    let kind = match &error {
        StateError::NotAFile(_) | StateError::NotOurs(_) | StateError::Content(..) => {
            io::ErrorKind::InvalidData
        }
        StateError::Folder(..) | StateError::InUse(_) | StateError::Write(..) | StateError::Read(..) => {
            io::ErrorKind::Other
        }
    };
    io::Error::new(kind, describe_error(&error.into()))
}

/// What went wrong, in words; nothing if nothing did.
fn words(ended: Result<Result<(), StateError>, JoinError>) -> String {
    match ended {
        Ok(Ok(())) => String::new(),
        Ok(Err(error)) => describe_error(&error.into()),
        Err(panic) => panic.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, time::SystemTime};

    use super::*;
    use crate::{
        ids::{ProbeKey, ProbeKind},
        prober::state::SavedProbe,
    };

    fn saved(pod: &str) -> Arc<Saved> {
        let key = ProbeKey { pod: pod.into(), container: "app".into(), kind: ProbeKind::Liveness };
        let probe = SavedProbe { key, pause: Some(SystemTime::UNIX_EPOCH.into()), checkpoint: None };
        Arc::new(Saved { probes: vec![probe] })
    }

    #[tokio::test]
    async fn the_last_save_is_written_before_the_end_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path(), Redactor::default());
        assert_eq!(store.clone().load().await, Saved::default());
        let saves = watch::Sender::default();
        let (keeper, mut kept) = (store.clone(), saves.subscribe());
        let keeping = tokio::spawn(async move { keeper.keep(&mut kept).await });
        for pod in ["a", "b", "c"] {
            saves.send_replace(saved(pod));
        }
        drop(saves);
        keeping.await.unwrap();
        assert_eq!(store.clone().load().await, *saved("c"));
        assert!(store.health.borrow().saved_at.is_some());
    }

    // In a time that does not pass while a thread blocks, so that a slow disk uses up none of the patience.
    #[tokio::test(start_paused = true)]
    async fn a_folder_that_a_daemon_still_uses_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let first = Store::new(dir.path(), Redactor::default());
        assert_eq!(first.clone().load().await, Saved::default());
        let second = Store::new(dir.path(), Redactor::default());
        let loading = tokio::spawn(second.clone().load());
        sleep(2 * LOOK_AGAIN).await;
        assert!(first.write(saved("a")).await, "the last save of one that ends");
        assert!(!loading.is_finished());
        drop(first);
        assert_eq!(loading.await.unwrap(), *saved("a"));
        assert_eq!(second.health.borrow().trouble, "");
        let third = Store::new(dir.path(), Redactor::default());
        assert_eq!(third.clone().load().await, Saved::default(), "it is used on");
        let trouble = third.health.borrow().trouble.clone();
        assert!(trouble.starts_with("another criprobe keeps its state in "), "{trouble}");
        drop(second);
        assert!(!third.write(saved("c")).await);
        assert_eq!(
            Store::new(dir.path(), Redactor::default()).load().await,
            *saved("a"),
            "it is left alone for good"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_could_not_be_written_is_tried_again_though_nothing_new_comes() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("state");
        fs::write(&folder, "in the way").unwrap();
        let store = Store::new(&folder, Redactor::default());
        let mut health = store.health.subscribe();
        assert_eq!(store.clone().load().await, Saved::default());
        let trouble = health.borrow_and_update().trouble.clone();
        assert!(trouble.starts_with("cannot use the folder "), "{trouble}");
        let saves = watch::Sender::default();
        let (keeper, mut kept) = (store.clone(), saves.subscribe());
        tokio::spawn(async move { keeper.keep(&mut kept).await });
        saves.send_replace(saved("a"));
        sleep(RETRY / 2).await;
        assert!(!health.has_changed().unwrap(), "the same trouble is no news");
        fs::remove_file(&folder).unwrap();
        health.wait_for(|health| health.trouble.is_empty() && health.saved_at.is_some()).await.unwrap();
        assert_eq!(store.load().await, *saved("a"));
    }
}
