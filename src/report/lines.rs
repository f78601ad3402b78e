//! Journals as newline-delimited JSON: the kept records, then new ones, one per line.

use std::convert::Infallible;

use axum::{
    body::{Body, Bytes},
    http::header::{CACHE_CONTROL, CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use futures_util::{Stream, StreamExt, stream};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::{
    filter::retain,
    journal::{Journal, JournalEntry},
    places::Following,
    view::MissedView,
};

/// What part of a journal a reader wants.
pub(super) struct Window<F> {
    /// Chooses the records.
    pub(super) admits: F,
    /// The newest of those that are kept and chosen; all of them where nothing is said, none when only following.
    pub(super) last: Option<usize>,
    /// Whether to stay for those that come: the right to.
    pub(super) following: Option<Following>,
}

/// At most 16 lines leave in one piece: of the longest, whose every byte is escaped, 1 MiB.
const PIECE: usize = 16;

/// Answers with a window of a journal. One that follows ends when its reader leaves or `drained` is cancelled;
/// where its reader is too slow, a line `{"missed":N}` stands for what it lost (before any filter).
pub(super) async fn respond<T, V, F>(
    journal: &Journal<T>,
    show: fn(&T) -> V,
    window: Window<F>,
    drained: CancellationToken,
) -> Response
where
    T: Send + Sync + ?Sized + 'static,
    V: Serialize + Send + 'static,
    F: Fn(&V) -> bool + Send + Sync + 'static,
{
    let (mut kept, follower) = journal.follow_after(usize::MAX);
    // The records stay shared until each is written: a view is a copy.
    retain(&mut kept, |record| (window.admits)(&show(record))).await;
    let last = window.last.unwrap_or(if window.following.is_some() { 0 } else { usize::MAX });
    kept.drain(..kept.len().saturating_sub(last));
    let kept = stream::iter(kept.into_iter().map(move |record| line(&show(&record))));
    let body = if let Some(following) = window.following {
        let state = (follower, window.admits, following);
        let live = stream::unfold(state, move |(mut follower, admits, following)| async move {
            loop {
                let line = match follower.next().await? {
                    JournalEntry::Record(record) => {
                        let view = show(&record);
                        if !admits(&view) {
                            continue;
                        }
                        line(&view)
                    }
                    JournalEntry::Missed(missed) => line(&MissedView { missed }),
                };
                return Some((line, (follower, admits, following)));
            }
        });
        pieces(kept.chain(live.take_until(drained.cancelled_owned())))
    } else {
        pieces(kept)
    };
    ([(CONTENT_TYPE, "application/x-ndjson"), (CACHE_CONTROL, "no-store")], body).into_response()
}

/// Whatever lines are there at once leave together.
fn pieces(lines: impl Stream<Item = Vec<u8>> + Send + 'static) -> Body {
    Body::from_stream(lines.ready_chunks(PIECE).map(|lines| Ok::<_, Infallible>(Bytes::from(lines.concat()))))
}

fn line<T: Serialize>(record: &T) -> Vec<u8> {
    let mut line = serde_json::to_vec(record).expect("views are maps with text keys, which always serialise");
    line.push(b'\n');
    line
}
