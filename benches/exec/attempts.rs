//! The attempts of a daemon's probes in a window of time, from the file that it writes them to.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result};
use criprobe::clock;
use serde_json::Value;

/// Those that began in the window.
#[derive(Default)]
pub(crate) struct Attempts {
    /// How many of them took which route: `session`, `sync`, `sync (no shell in the image)`.
    pub(crate) routes: BTreeMap<String, usize>,
    /// How many were no success.
    pub(crate) unsuccessful: usize,
    /// Sorted.
    lags: Vec<Duration>,
    durations: Vec<Duration>,
}

impl Attempts {
    /// Finds them among all lines of the file.
    pub(crate) fn of(lines: &str, from: SystemTime, to: SystemTime) -> Result<Self> {
        // All times have the same form, so they compare as text.
        let (from, to) = (clock::rfc3339(from), clock::rfc3339(to));
        let mut attempts = Self::default();
        for line in lines.lines() {
            let attempt: Value = serde_json::from_str(line).context("an attempt is no JSON")?;
            let at = attempt["at"].as_str().context("an attempt has no time")?;
            if (&*from..&*to).contains(&at) {
                attempts.add(&attempt);
            }
        }
        attempts.lags.sort_unstable();
        attempts.durations.sort_unstable();
        Ok(attempts)
    }

    fn add(&mut self, attempt: &Value) {
        let seconds = |field: &str| Duration::try_from_secs_f64(attempt[field].as_f64()?).ok();
        let mut route = attempt["execRoute"].as_str().unwrap_or("sync").to_owned();
        if let Some(why) = attempt["execReason"].as_str() {
            route += &format!(" ({why})");
        }
        *self.routes.entry(route).or_default() += 1;
        self.unsuccessful += usize::from(attempt["result"] != "success");
        self.lags.extend(seconds("lagSeconds"));
        self.durations.extend(seconds("durationSeconds"));
    }

    pub(crate) fn count(&self) -> usize {
        self.routes.values().sum()
    }

    /// How many went by a session.
    pub(crate) fn by_session(&self) -> usize {
        self.routes.get("session").copied().unwrap_or(0)
    }

    /// How late they began, of which so many of a hundred did not exceed this.
    pub(crate) fn lag(&self, percent: usize) -> Option<Duration> {
        quantile(&self.lags, percent)
    }

    /// How long they took.
    pub(crate) fn duration(&self, percent: usize) -> Option<Duration> {
        quantile(&self.durations, percent)
    }
}

fn quantile(sorted: &[Duration], percent: usize) -> Option<Duration> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}
