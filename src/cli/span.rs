//! Durations and moments, short enough for a column.

use std::time::{Duration, SystemTime};

/// A measured time with about three digits: `0.4ms`, `27ms`, `1.03s`, `12.5s`, `2m05s`; `<0.1ms` for less.
pub(super) fn measured(duration: Duration) -> String {
    let millis = duration.as_secs_f64() * 1_000.0;
    match millis {
        ..0.05 => "<0.1ms".to_owned(),
        ..9.95 => format!("{millis:.1}ms"),
        ..999.5 => format!("{millis:.0}ms"),
        ..9_995.0 => format!("{:.2}s", millis / 1_000.0),
        ..59_950.0 => format!("{:.1}s", millis / 1_000.0),
        _ => {
            let seconds = duration.as_secs();
            format!("{}m{:02}s", seconds / 60, seconds % 60)
        }
    }
}

/// A configured duration, exactly: `5s`, `100ms`, `1m30s`.
pub(super) fn configured(duration: Duration) -> String {
    humantime::format_duration(duration).to_string().replace(' ', "")
}

/// How long ago that was: the two largest units at most, `5s`, `3m20s`, `2h5m`, `4d7h`; `0s` if it is yet to come.
pub(super) fn age(then: SystemTime, now: SystemTime) -> String {
    coarse(now.duration_since(then).unwrap_or_default())
}

/// The two largest units at most.
pub(super) fn coarse(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, 1..10) => format!("{minutes}m{}s", seconds % 60),
        (0, 0, _) => format!("{minutes}m"),
        (0, 1..10, _) => format!("{hours}h{}m", minutes % 60),
        (0, _, _) => format!("{hours}h"),
        (1..10, _, _) => format!("{days}d{}h", hours % 24),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn measured_times_keep_what_matters() {
        for (micros, text) in [
            (0, "<0.1ms"),
            (49, "<0.1ms"),
            (50, "0.1ms"),
            (430, "0.4ms"),
            (9_960, "10ms"),
            (27_400, "27ms"),
            (999_600, "1.00s"),
            (1_031_000, "1.03s"),
            (12_540_000, "12.5s"),
            (125_000_000, "2m05s"),
        ] {
            assert_eq!(measured(Duration::from_micros(micros)), text);
        }
    }

    #[test]
    fn what_somebody_set_is_shown_exactly() {
        for (millis, text) in [(5_000, "5s"), (100, "100ms"), (90_000, "1m30s"), (0, "0s")] {
            assert_eq!(configured(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn ages_show_two_units_at_most() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (200, "3m20s"),
            (3_599, "59m"),
            (7_500, "2h5m"),
            (86_399, "23h"),
            (93_784, "1d2h"),
            (2_000_000, "23d"),
        ] {
            assert_eq!(age(UNIX_EPOCH, UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
        assert_eq!(age(UNIX_EPOCH + Duration::from_secs(9), UNIX_EPOCH), "0s", "a clock may step");
    }
}
