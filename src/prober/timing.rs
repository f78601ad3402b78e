//! When a container's first attempt is due, and when the next one. Pure: the time is an argument.

use std::time::{Duration, Instant, SystemTime};

use super::Moment;

/// The end of the start delay, at most the whole delay from now. The kubelet compares whole seconds, of a start that is cut
/// to whole seconds (step 8); so do we for delays of whole seconds, others are exact. A start that is not known yet counts
/// from now, and so does one that is ahead of the clock: the clock was set back since.
pub(super) fn probe_from(delay: Duration, started_at: Option<SystemTime>, now: Moment) -> Instant {
    let Some(started_at) = started_at.filter(|at| *at <= now.wall) else { return now.at + delay };
    let is_whole = delay.subsec_nanos() == 0;
    let start = match started_at.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) if is_whole => SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs()),
        Ok(_) | Err(_) => started_at,
    };
    let age = now.wall.duration_since(start).unwrap_or_default();
    now.at + delay.saturating_sub(age)
}

/// The end of the start period. A start that is not known yet, or ahead of the clock, counts from now.
pub(super) fn start_until(length: Duration, started_at: Option<SystemTime>, now: Moment) -> Instant {
    let age = started_at.and_then(|at| now.wall.duration_since(at).ok()).unwrap_or_default();
    now.at + length.saturating_sub(age)
}

/// The first of the ticks `due + n * period`, n at least 1, that is not past.
pub(super) fn tick_after(due: Instant, period: Duration, now: Instant) -> Instant {
    let late = now.saturating_duration_since(due).as_nanos();
    let ticks = late.div_ceil(period.as_nanos().max(1)).max(1);
    due + period.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::clock;

    const SECOND: Duration = Duration::from_secs(1);

    /// One row of `tests/data/prober/delay.json`: milliseconds past a whole second.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    struct Row {
        id: String,
        rule: String,
        delay_ms: u64,
        started_ms: u64,
        now_ms: u64,
        wait_ms: u64,
    }

    #[test]
    fn the_start_delay_is_counted_as_the_kubelet_counts() {
        let rows: Vec<Row> =
            serde_json::from_str(include_str!("../../tests/data/prober/delay.json")).unwrap();
        for Row { id, rule, delay_ms, started_ms, now_ms, wait_ms } in rows {
            let whole = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
            let past = |ms| whole + Duration::from_millis(ms);
            let at = Moment { at: clock::now(), wall: past(now_ms) };
            let from = probe_from(Duration::from_millis(delay_ms), Some(past(started_ms)), at);
            assert_eq!(from - at.at, Duration::from_millis(wait_ms), "{id}: {rule}");
        }
        let at = Moment::now();
        assert_eq!(probe_from(SECOND, None, at), at.at + SECOND, "an unknown start counts from now");
    }

    #[test]
    fn whatever_the_clock_says_a_delay_is_never_longer_than_it_is() {
        let epoch = SystemTime::UNIX_EPOCH;
        let years = |years: u32| years * 365 * 24 * 3600 * SECOND;
        for wall in [epoch - years(10), epoch - SECOND, epoch, epoch + SECOND / 2, epoch + years(56)] {
            let now = Moment { at: clock::now(), wall };
            for started_at in [epoch - years(20), epoch, wall, wall + 7200 * SECOND, wall + years(10)] {
                for delay in [Duration::ZERO, SECOND / 4, 30 * SECOND] {
                    let wait = probe_from(delay, Some(started_at), now) - now.at;
                    assert!(wait <= delay, "{started_at:?} at {wall:?} waits {wait:?}");
                }
                assert!(start_until(SECOND, Some(started_at), now) <= now.at + SECOND);
            }
            let long = years(100);
            assert_eq!(now.wall_of(now.at), wall);
            assert_eq!(now.wall_of(now.at + long), wall + long, "and no time is out of reach");
        }
    }

    #[test]
    fn the_start_period_is_counted_from_the_start_and_never_longer_than_it_is() {
        let now = Moment::now();
        for (started_at, left) in [
            (None, 30),
            (Some(now.wall), 30),
            (Some(now.wall - 12 * SECOND), 18),
            (Some(now.wall - 30 * SECOND), 0),
            (Some(now.wall - 300 * SECOND), 0),
            (Some(now.wall + 300 * SECOND), 30),
        ] {
            assert_eq!(start_until(30 * SECOND, started_at, now), now.at + left * SECOND, "{started_at:?}");
        }
    }
}
