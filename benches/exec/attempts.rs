//! The attempts of a daemon's probes in a window of time, as its API shows them.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result};
use criprobe::clock;
use serde_json::Value;

use crate::daemon::Daemon;

/// Those that began in the window.
#[derive(Default)]
pub(crate) struct Attempts {
    /// How many of them went which way.
    pub(crate) routes: BTreeMap<String, usize>,
    /// How many were no success.
    pub(crate) unsuccessful: usize,
    /// Sorted.
    lags: Vec<Duration>,
    durations: Vec<Duration>,
}

impl Attempts {
    /// Reads those of all probes.
    pub(crate) fn of(daemon: &Daemon, from: SystemTime, to: SystemTime) -> Result<Self> {
        // All have the same form, so they compare as text.
        let window = clock::rfc3339(from)..clock::rfc3339(to);
        let mut attempts = Self::default();
        let probes = daemon.get("/v1/probes")?;
        for probe in probes.as_array().context("the probes are no list")? {
            let id = probe["id"].as_str().context("a probe has no id")?;
            let detail = daemon.get(&format!("/v1/probes/{id}"))?;
            for attempt in detail["history"].as_array().context("a probe has no history")? {
                let at = attempt["at"].as_str().context("an attempt has no time")?;
                if window.contains(&at.to_owned()) {
                    attempts.add(attempt);
                }
            }
        }
        attempts.lags.sort_unstable();
        attempts.durations.sort_unstable();
        Ok(attempts)
    }

    fn add(&mut self, attempt: &Value) {
        let seconds = |field: &str| Duration::try_from_secs_f64(attempt[field].as_f64()?).ok();
        *self.routes.entry(attempt["exec"].as_str().unwrap_or("sync").to_owned()).or_default() += 1;
        self.unsuccessful += usize::from(attempt["result"] != "success");
        self.lags.extend(seconds("lagSeconds"));
        self.durations.extend(seconds("durationSeconds"));
    }

    pub(crate) fn count(&self) -> usize {
        self.routes.values().sum()
    }

    /// How many went this way.
    pub(crate) fn by(&self, route: &str) -> usize {
        self.routes.get(route).copied().unwrap_or(0)
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
