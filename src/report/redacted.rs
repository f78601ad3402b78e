//! Redacts what the API answers, on its way out: the one place that all answers and streams pass. In: a response; out: the
//! same, without what the operator's patterns match.
//!
//! Who chooses the texts can make a search slow, so it takes no time of the API's thread: one blocking thread searches, a
//! turn at a time, for half of its time at most. What one reader was shown is remembered for the others.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use axum::{
    body::{Body, Bytes, HttpBody as _},
    extract::State,
    http::header::{CONTENT_LENGTH, CONTENT_TYPE},
    response::Response,
};
use futures_util::{StreamExt as _, stream};
use tokio::{sync::Mutex, task::spawn_blocking, time::sleep};

use crate::{
    clock,
    redact::{JsonRedactor, Memo, Patterns, Redactor},
};

/// The types of answers that are made of JSON: whole, a line each, and as events.
const JSON: [&str; 3] = [WHOLE, "application/x-ndjson", "text/event-stream"];

/// That of answers that are no streams.
const WHOLE: &str = "application/json";

/// 512 bytes are redacted between two looks at the clock. A text that ends within them may have taken longer: patterns may
/// take microseconds a byte.
const AT_ONCE: usize = 512;

/// 2 ms: then it is another one's turn. Small answers are done by then.
const TURN: Duration = Duration::from_millis(2);

/// 2 MiB of texts are remembered: 500 commands of the longest that are shown, or the texts of some thousand probes. One
/// that was forgotten is searched again.
const REMEMBERED: usize = 2 << 20;

/// 8 times the share of one reader: what is redacted for all subscribers of the live stream at once.
const SHARE_OF_ALL: u32 = 8;

/// 30 s: the longest rest, however long a text was searched for.
const LONGEST_REST: Duration = Duration::from_secs(30);

/// Redacts JSON; clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Redacting {
    redactor: Redactor,
    /// Held by the one whose turn it is. Those who wait for it have it in their order.
    memo: Arc<Mutex<Memo>>,
    /// Held besides by one of those that take long, so that small answers wait for one turn of theirs at most.
    slow: Arc<Mutex<()>>,
    /// The shares of all that rest.
    shares: Arc<AtomicU32>,
}

/// What one reader has been shown of its JSON.
#[derive(Debug, Default)]
struct Progress {
    json: JsonRedactor,
    /// For how long it was searched since the reader rested.
    worked: Duration,
    /// Whether it takes long: a stream, or what has taken a whole turn.
    is_slow: bool,
}

/// One that rests has its share, until it is dropped.
struct Resting<'a> {
    shares: &'a AtomicU32,
    share: u32,
}

impl Redacting {
    /// With these patterns, whatever they become.
    pub(super) fn new(redactor: Redactor) -> Self {
        let memo = Arc::new(Mutex::new(Memo::new(REMEMBERED)));
        Self { redactor, memo, slow: Arc::default(), shares: Arc::default() }
    }

    /// The patterns in effect.
    pub(super) fn patterns(&self) -> Patterns {
        self.redactor.patterns()
    }

    /// Searches JSON that many will be shown, so that it costs each of them little.
    pub(super) async fn prepare(&self, json: &str) {
        if !self.patterns().is_empty() {
            self.whole(Bytes::copy_from_slice(json.as_bytes()), SHARE_OF_ALL).await;
        }
    }

    /// The words of a command as they are shown; `None` where that failed.
    pub(super) async fn words(&self, words: &[String]) -> Option<Vec<String>> {
        if self.patterns().is_empty() {
            return Some(words.to_vec());
        }
        let json = [b"{\"command\":", &*super::pieces::json(&words), b"}"].concat();
        let shown = self.whole(json.into(), 1).await?;
        let words = shown.strip_prefix(b"{\"command\":").and_then(|shown| shown.strip_suffix(b"}"))?;
        serde_json::from_slice(words).ok()
    }

    /// What may be shown of JSON that is whole.
    async fn whole(&self, json: Bytes, share: u32) -> Option<Vec<u8>> {
        let (progress, mut shown) = self.show(Progress::of(true), json, false, share).await?;
        shown.extend(self.show(progress, Bytes::new(), true, share).await?.1);
        Some(shown)
    }

    /// What may be shown of the next piece, in as many turns as it takes; and of what was held back, at the end. `None` where
    /// the search panicked.
    async fn show(
        &self,
        mut progress: Progress,
        piece: Bytes,
        is_end: bool,
        share: u32,
    ) -> Option<(Progress, Vec<u8>)> {
        let (mut shown, mut done) = (Vec::new(), 0);
        loop {
            if progress.worked >= TURN {
                self.rest(std::mem::take(&mut progress.worked), share).await;
            }
            let _slow = if progress.is_slow { Some(self.slow.lock().await) } else { None };
            let (mut memo, redactor) = (self.memo.clone().lock_owned().await, self.redactor.clone());
            let rest = piece.slice(done..);
            let read;
            (progress, shown, read) = spawn_blocking(move || {
                let began = clock::now();
                let passed = || clock::now().saturating_duration_since(began);
                memo.set(redactor.patterns());
                let mut read = 0;
                for part in rest.chunks(AT_ONCE) {
                    progress.json.feed(&mut *memo, part, &mut shown);
                    read += part.len();
                    if passed() >= TURN {
                        break;
                    }
                }
                if is_end && read == rest.len() {
                    progress.json.finish(&mut *memo, &mut shown);
                }
                progress.worked += passed();
                progress.is_slow |= progress.worked >= TURN;
                (progress, shown, read)
            })
            .await
            .ok()?;
            done += read;
            if done == piece.len() {
                return Some((progress, shown));
            }
        }
    }

    /// Rests so long that all who rest work for half of the time together, each for its share of it.
    async fn rest(&self, worked: Duration, share: u32) {
        let _resting = Resting { shares: &self.shares, share };
        let all = self.shares.fetch_add(share, Ordering::Relaxed) + share;
        sleep((worked * (2 * all) / share).saturating_sub(worked).min(LONGEST_REST)).await;
    }
}

impl Progress {
    fn of(is_slow: bool) -> Self {
        Self { is_slow, ..Self::default() }
    }
}

impl Drop for Resting<'_> {
    fn drop(&mut self) {
        self.shares.fetch_sub(self.share, Ordering::Relaxed);
    }
}

/// Redacts a response, if it is made of JSON. One that is whole is left as it is while there are no patterns; a stream may
/// outlast that.
pub(super) async fn redacted(State(redacting): State<Redacting>, response: Response) -> Response {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_json = JSON.iter().any(|json| kind.starts_with(json));
    if !is_json || (response.body().size_hint().exact().is_some() && redacting.patterns().is_empty()) {
        return response;
    }
    let progress = Progress::of(!kind.starts_with(WHOLE));
    let (mut head, body) = response.into_parts();
    head.headers.remove(CONTENT_LENGTH);
    let state = Some((body.into_data_stream(), redacting, progress));
    let pieces = stream::unfold(state, async |state| {
        let (mut pieces, redacting, mut progress) = state?;
        loop {
            let piece = match pieces.next().await {
                Some(Ok(piece)) if redacting.patterns().is_empty() && progress.json.is_plain() => {
                    return Some((Ok(piece), Some((pieces, redacting, progress))));
                }
                Some(Err(error)) => return Some((Err(error), None)),
                next => next.transpose().ok()?,
            };
            let is_end = piece.is_none();
            let Some((next, shown)) = redacting.show(progress, piece.unwrap_or_default(), is_end, 1).await
            else {
                return Some((Err(axum::Error::new("the answer could not be redacted")), None));
            };
            progress = next;
            if is_end {
                return Some((Ok(Bytes::from(shown)), None));
            }
            if !shown.is_empty() {
                return Some((Ok(Bytes::from(shown)), Some((pieces, redacting, progress))));
            }
        }
    });
    Response::from_parts(head, Body::from_stream(pieces))
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;
    use crate::redact::Pattern;

    /// Searches for what is long and never there: each of these takes long for texts of the letter a.
    fn slow() -> Redacting {
        let patterns = ["(?:a?){60}=", "(?:aa?b?c?d?e?){20}=", "a.{0,99}b.{0,99}=(c+)", "secret"];
        let patterns = patterns.into_iter().map(|pattern| Pattern::parse(pattern).unwrap());
        Redacting::new(Redactor::new(patterns.collect()))
    }

    fn event(text: &str) -> String {
        format!(
            "event: call\ndata: {}\n\n",
            serde_json::json!({ "command": [text, "secret"], "x": "secret" })
        )
    }

    /// A stream of these pieces as its reader gets it.
    async fn read(redacting: &Redacting, pieces: Vec<String>) -> String {
        let body = Body::from_stream(stream::iter(pieces.into_iter().map(Ok::<_, std::io::Error>)));
        let response = Response::builder().header(CONTENT_TYPE, "text/event-stream").body(body).unwrap();
        let shown = redacted(State(redacting.clone()), response).await.into_body();
        String::from_utf8(axum::body::to_bytes(shown, usize::MAX).await.unwrap().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn many_readers_of_what_is_slow_to_search_leave_the_thread_to_others() {
        let redacting = slow();
        let began = clock::now();
        redacting.prepare(&event(&"a".repeat(1_500))).await;
        let once = clock::now() - began;
        let wanted = event(&"a".repeat(1_501)).replace("secret", "***");
        let readers: Vec<_> = (0..40)
            .map(|_| {
                let redacting = redacting.clone();
                tokio::spawn(async move { read(&redacting, vec![event(&"a".repeat(1_501))]).await })
            })
            .collect();
        let (mut at, mut longest) = (clock::now(), Duration::ZERO);
        while !readers.iter().all(tokio::task::JoinHandle::is_finished) {
            sleep(Duration::from_millis(1)).await;
            let now = clock::now();
            longest = longest.max(now - at);
            at = now;
        }
        let took = clock::now() - began;
        for reader in readers {
            assert_eq!(reader.await.unwrap(), wanted);
        }
        assert!(longest < once, "others waited for {longest:?}, and one search takes {once:?}");
        assert!(took < 20 * once, "all 40 took {took:?}, and one search takes {once:?}");
        assert_eq!(redacting.shares.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_small_answer_waits_for_no_more_than_one_turn_of_those_that_take_long() {
        let redacting = slow();
        let began = clock::now();
        redacting.prepare(&event(&"a".repeat(1_000))).await;
        let once = clock::now() - began;
        let readers: Vec<_> = (0..40)
            .map(|number| {
                let redacting = redacting.clone();
                tokio::spawn(async move { read(&redacting, vec![event(&"a".repeat(1_001 + number))]).await })
            })
            .collect();
        tokio::task::yield_now().await;
        let began = clock::now();
        let response = Response::builder().header(CONTENT_TYPE, WHOLE).body("[\"a secret\"]".into()).unwrap();
        let shown = redacted(State(redacting), response).await.into_body();
        assert_eq!(axum::body::to_bytes(shown, 100).await.unwrap(), "[\"a ***\"]");
        let took = clock::now() - began;
        readers.iter().for_each(tokio::task::JoinHandle::abort);
        assert!(took < 8 * once, "{took:?}, and one search takes {once:?} with its rest");
    }

    #[tokio::test]
    async fn a_pattern_that_is_set_later_applies_to_what_was_shown_before() {
        let redacting = Redacting::new(Redactor::default());
        let text = event("hunter2");
        for (pattern, shown) in [("hunter2", "***"), ("none", "hunter2"), ("hunter(2)", "hunter***")] {
            redacting.redactor.set([Pattern::parse(pattern).unwrap()].into_iter().collect());
            let pieces = text.as_bytes().chunks(7).map(|piece| String::from_utf8(piece.to_vec()).unwrap());
            assert_eq!(read(&redacting, pieces.collect()).await, text.replace("hunter2", shown));
        }
        redacting.redactor.set(Patterns::default());
        assert_eq!(read(&redacting, vec![text.clone()]).await, text);
    }
}
