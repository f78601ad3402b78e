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
    filter::{FILTERED_AT_ONCE, retain},
    journal::{Journal, JournalEntry},
    pieces::{self, PIECE},
    places::{Following, Place},
    room::{Guess, NoRoom, Room},
    view::MissedView,
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
    /// The newest of those that are kept and chosen; all of them where nothing is said, none when only following.
    pub(super) last: Option<usize>,
    /// Whether to stay for those that come: the right to.
    pub(super) following: Option<Following>,
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
    V: Serialize + Send + 'static,
    F: Fn(&V) -> bool + Send + Sync + 'static,
{
    let weigh = move |kept: &[Arc<T>]| kept.iter().map(|record| size(record) + size_of::<Arc<T>>()).sum();
    let collect = || ready(Ok(journal.follow_after(usize::MAX)));
    let ((mut kept, follower), mut held) = room.hold(place, guess, collect, |(kept, _)| weigh(kept)).await?;
    // The records stay shared until each is written: a view is a copy.
    retain(&mut kept, |record| (window.admits)(&show(record))).await;
    let last = window.last.unwrap_or(if window.following.is_some() { 0 } else { usize::MAX });
    kept.drain(..kept.len().saturating_sub(last));
    held.resize(weigh(&kept));
    let lines = kept.into_iter().map(move |record| line(&show(&record)));
    let body = if let Some(following) = window.following {
        let state = (follower, window.admits, Pace::of(following));
        let live = stream::unfold(state, move |(mut follower, admits, mut pace)| async move {
            loop {
                pace.rest().await;
                let line = match follower.next().await? {
                    JournalEntry::Record(record) => pace.work(|| {
                        let view = show(&record);
                        admits(&view).then(|| line(&view))
                    }),
                    JournalEntry::Missed(missed) => Some(line(&MissedView { missed })),
                };
                if let Some(line) = line {
                    return Some((line, (follower, admits, pace)));
                }
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
