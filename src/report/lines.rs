//! Journals as newline-delimited JSON: the kept records, then new ones, one per line.

use std::{convert::Infallible, future::ready, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::header::{CACHE_CONTROL, CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use futures_util::{FutureExt, Stream, StreamExt, stream};
use serde::Serialize;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    filter::{FILTERED_AT_ONCE, Glob, retain},
    journal::{Journal, JournalEntry},
    pieces::{self, PIECE},
    places::{Following, Place},
    redacted::Redacting,
    room::{Guess, NoRoom, Room},
    view::{CallView, EventView, MissedView},
};
use crate::clock;

/// A journal as it is shown.
pub(super) struct Shown<'a, T: ?Sized, V> {
    pub(super) journal: &'a Journal<T>,
    /// The view of a record.
    pub(super) show: fn(&T) -> V,
    /// What a record takes, in bytes.
    pub(super) size: fn(&T) -> usize,
    /// What all that are kept take.
    pub(super) guess: &'a Guess,
}

/// What part of a journal a reader wants.
pub(super) struct Window<F> {
    /// Chooses the records.
    pub(super) admits: F,
    /// Chooses those of them whose command is wanted.
    pub(super) command: Option<Commands>,
    /// The newest of those that are kept and chosen; all of them where nothing is said, none when only following.
    pub(super) last: Option<usize>,
    /// Whether to stay for those that come: the right to.
    pub(super) following: Option<Following>,
}

/// Chooses records by their commands as they are shown: what is redacted cannot be found out by looking for it.
#[derive(Clone)]
pub(super) struct Commands {
    wanted: Glob,
    redacting: Redacting,
}

/// The view of a record.
pub(super) trait Recorded: Serialize + Send + Sync + 'static {
    /// The command that was run, of a call that ran one.
    fn command(&self) -> Option<&[String]>;
}

impl Recorded for CallView {
    fn command(&self) -> Option<&[String]> {
        self.exec.as_ref().map(|exec| &*exec.command)
    }
}

impl Recorded for EventView {
    fn command(&self) -> Option<&[String]> {
        None
    }
}

impl Commands {
    pub(super) fn new(wanted: Glob, redacting: Redacting) -> Self {
        Self { wanted, redacting }
    }

    async fn admit(&self, record: &impl Recorded) -> bool {
        let Some(command) = record.command() else { return false };
        self.redacting.words(command).await.is_some_and(|words| self.wanted.matches(&words.join(" ")))
    }
}

/// Answers with a window of a journal. One that follows ends when its reader leaves or `drained` is cancelled;
/// where its reader is too slow, a line `{"missed":N}` counts what it lost (before any filter). The records that are
/// kept take up `room` until they are written.
///
/// # Errors
/// There is no room.
pub(super) async fn respond<T, V, F>(
    Shown { journal, show, size, guess }: Shown<'_, T, V>,
    window: Window<F>,
    place: &Arc<Place>,
    room: &Room,
    drained: CancellationToken,
) -> Result<Response, NoRoom>
where
    T: Send + Sync + ?Sized + 'static,
    V: Recorded,
    F: Fn(&V) -> bool + Send + Sync + 'static,
{
    let weigh = move |kept: &[Arc<T>]| kept.iter().map(|record| size(record) + size_of::<Arc<T>>()).sum();
    let collect = || ready(Ok(journal.follow_after(usize::MAX)));
    let ((mut kept, follower), mut held) = room.hold(place, guess, collect, |(kept, _)| weigh(kept)).await?;
    let last = window.last.unwrap_or(if window.following.is_some() { 0 } else { usize::MAX });
    // The records stay shared until each is written: a view is a copy.
    retain(&mut kept, |record| (window.admits)(&show(record))).await;
    if let Some(commands) = &window.command {
        // Those of interest are the newest.
        for record in std::mem::take(&mut kept).into_iter().rev() {
            if kept.len() < last && commands.admit(&show(&record)).await {
                kept.push(record);
            }
        }
        kept.reverse();
    }
    kept.drain(..kept.len().saturating_sub(last));
    held.resize(weigh(&kept));
    let lines = kept.into_iter().map(move |record| line(&show(&record)));
    let body = if let Some(following) = window.following {
        let state = (follower, (window.admits, window.command), Pace::of(following));
        let live = stream::unfold(state, move |(mut follower, (admits, commands), mut pace)| async move {
            loop {
                pace.rest().await;
                let line = match follower.next().await? {
                    JournalEntry::Record(record) => {
                        let view = pace.work(|| Some(show(&record)).filter(&admits));
                        let Some(view) = view else { continue };
                        if let Some(commands) = &commands
                            && !commands.admit(&view).await
                        {
                            continue;
                        }
                        pace.work(|| line(&view))
                    }
                    JournalEntry::Missed(missed) => line(&MissedView { missed }),
                };
                return Some((line, (follower, (admits, commands), pace)));
            }
        });
        let kept = pieces::stream(lines, held);
        let live = joined(live.take_until(drained.cancelled_owned()));
        Body::from_stream(kept.chain(live).map(Ok::<_, Infallible>))
    } else {
        pieces::body(lines, held)
    };
    Ok(([(CONTENT_TYPE, "application/x-ndjson"), (CACHE_CONTROL, "no-store")], body).into_response())
}

/// Keeps all followers of the socket together to half of the API's time, and those of TCP to a quarter, however many records come and whatever they filter: each rests
/// as long as it has worked, times their number. One that falls behind misses records.
struct Pace {
    following: Following,
    records: usize,
    worked: Duration,
}

impl Pace {
    fn of(following: Following) -> Self {
        Self { following, records: 0, worked: Duration::ZERO }
    }

    fn work<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let began = clock::now();
        let done = work();
        self.records += 1;
        self.worked += clock::now().saturating_duration_since(began);
        done
    }

    /// Rests once it has worked on a few.
    async fn rest(&mut self) {
        if self.records >= FILTERED_AT_ONCE {
            sleep(self.worked * self.following.rest()).await;
            (self.records, self.worked) = (0, Duration::ZERO);
        }
    }
}

/// Whatever lines are there at once leave together, until they are a piece.
fn joined(lines: impl Stream<Item = Vec<u8>> + Send + 'static) -> impl Stream<Item = Bytes> + Send + 'static {
    stream::unfold(Box::pin(lines), async |mut lines| {
        let mut piece = lines.next().await?;
        while piece.len() < PIECE
            && let Some(Some(line)) = lines.next().now_or_never()
        {
            piece.extend(line);
        }
        Some((Bytes::from(piece), lines))
    })
}

fn line<T: Serialize>(record: &T) -> Vec<u8> {
    let mut line = pieces::json(record);
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        redact::{Pattern, Redactor},
        report::view::{ExecView, sample},
    };

    #[tokio::test]
    async fn a_command_is_looked_for_as_it_is_shown() {
        let command = ["mysql", "--password", "hunter2"].map(str::to_owned).to_vec();
        let call = CallView { exec: Some(ExecView { command, ..ExecView::default() }), ..sample::call() };
        let other = CallView { exec: None, ..sample::call() };
        let patterns = [Pattern::parse(r"--password (\S+)").unwrap()].into_iter().collect();
        let (plain, redacted) = (Redactor::default(), Redactor::new(patterns));
        for (glob, is_plain, is_redacted) in [
            ("mysql*", true, true),
            ("*hunter*", true, false),
            ("*[*][*][*]", false, false),
            ("mysql", false, false),
        ] {
            for (redactor, is_wanted) in [(&plain, is_plain), (&redacted, is_redacted)] {
                let commands = Commands::new(glob.into(), Redacting::new(redactor.clone()));
                assert_eq!(commands.admit(&call).await, is_wanted, "{glob}");
                assert!(!commands.admit(&other).await);
            }
        }
    }
}
