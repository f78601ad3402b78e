//! Waits for a daemon that goes away, for verbs that stay: an error in; on standard error a line when it goes and a line when it
//! is back, with what is not known of the time between.

use std::time::{Duration, SystemTime};

use tokio::time::sleep;

use super::{Context, Error, client::Client, progress::Progress, span::age};
use crate::{
    clock,
    report::view::{StatusView, Time},
};

/// 1 s between two looks, and before the first: so a daemon that fails again and again costs two lines a second at most.
const INTERVAL: Duration = Duration::from_secs(1);

/// 3 s: a daemon that has just started may not have listed all pods and planned all probes before.
const SETTLING: Duration = Duration::from_secs(3);

/// What a verb that stays knows of its daemon.
pub(super) struct Presence<'a> {
    context: &'a Context,
    /// What is lost while the daemon is away: `events`.
    what: &'static str,
    /// When the daemon was started; none if it has not said so.
    started_at: Option<Time>,
    /// When something last came from it.
    heard_at: SystemTime,
}

impl<'a> Presence<'a> {
    /// Of a daemon that answers. Asks it for its age; if it does not say, a daemon that was started later is another one.
    pub(super) async fn begin(context: &'a Context, what: &'static str) -> Self {
        let started_at = status(context).await.map(|status| status.started_at);
        Self { context, what, started_at, heard_at: clock::wall() }
    }

    /// Something came from the daemon.
    pub(super) fn heard(&mut self) {
        self.heard_at = clock::wall();
    }

    /// Asks the daemon, whichever it is.
    pub(super) fn client(&self) -> &'a Client {
        &self.context.client
    }

    /// Waits until a daemon answers, however long that takes. Whether it is another one than before.
    ///
    /// # Errors
    /// The daemon refuses the question for good.
    pub(super) async fn outlast(&mut self, error: Error) -> Result<bool, Error> {
        if !error.may_pass() {
            return Err(error);
        }
        let left_at = clock::wall();
        let progress = Progress::start("waiting for the daemon (Ctrl-C ends)");
        progress.note(&format!("the daemon is away, waiting for it: {error}"));
        let status = loop {
            sleep(INTERVAL).await;
            if let Some(status) = status(self.context).await.filter(|status| !status.draining) {
                break status;
            }
        };
        let (started, now) = (status.started_at.0, clock::wall());
        let is_other = self.started_at.map_or(started > self.heard_at, |known| known != status.started_at);
        self.started_at = Some(status.started_at);
        let gap = gap(is_other.then_some(started), self.heard_at, left_at, now);
        progress.note(&back(self.what, gap, now));
        self.heard();
        Ok(is_other)
    }

    /// Whether what the daemon does not list is gone: not so while it has just started, or cannot list.
    pub(super) async fn is_settled(&self) -> bool {
        let status = status(self.context).await;
        status.is_some_and(|status| {
            status.inventory.last_resync_at.is_some() && status.uptime_seconds.0 >= SETTLING
        })
    }
}

async fn status(context: &Context) -> Option<StatusView> {
    context.client.get("/v1/status").await.ok()
}

/// Of what time nothing is known: what happened since the start of another daemon, that has kept. If it was started before we
/// saw the former one go, as where our own output was stuck, all that is known of that is when something last came from it.
fn gap(
    other_started: Option<SystemTime>,
    heard_at: SystemTime,
    left_at: SystemTime,
    now: SystemTime,
) -> (SystemTime, SystemTime) {
    match other_started {
        None => (left_at, now),
        Some(started) if started < left_at => (heard_at.min(started), started),
        Some(started) => (left_at, started.min(now)),
    }
}

/// `the daemon is back after 3s: events between 10:00:00Z and 10:00:02Z are not known`.
fn back(what: &str, (left_at, known_since): (SystemTime, SystemTime), now: SystemTime) -> String {
    format!(
        "the daemon is back after {}: {what} between {} and {} are not known",
        age(left_at, now),
        clock::short(left_at, now),
        clock::short(known_since, now),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::view::sample;

    #[test]
    fn what_another_daemon_has_kept_is_known_however_late_the_end_of_the_former_was_seen() {
        let at = |seconds: u64| sample::at(seconds * 1_000).0;
        for (started, expected) in [
            (None, (50, 60)),
            (Some(55), (50, 55)),
            (Some(20), (10, 20)),
            (Some(90), (50, 60)),
            (Some(5), (5, 5)),
        ] {
            let known = gap(started.map(at), at(10), at(50), at(60));
            assert_eq!(known, (at(expected.0), at(expected.1)), "{started:?}");
        }
    }

    #[test]
    fn what_is_not_known_is_named_with_its_time() {
        let at = |millis| sample::at(millis).0;
        for (left, known, now, line) in [
            (
                0,
                2_000,
                3_500,
                "the daemon is back after 3s: events between 10:00:00Z and 10:00:02Z are not known",
            ),
            (
                0,
                90_000_000,
                90_000_000,
                "the daemon is back after 1d1h: events between 2026-11-20T10:00:00Z and 11:00:00Z are not known",
            ),
        ] {
            assert_eq!(back("events", (at(left), at(known)), at(now)), line);
        }
    }
}
