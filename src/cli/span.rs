//! Durations and moments, short enough for a column.

use std::time::{Duration, SystemTime};

use crate::clock;
pub(super) use crate::duration::coarse;

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

/// The moment in UTC: of today, the time, `10:00:00.000Z`; otherwise with the date, `Nov 20 10:00:00Z`, and of another year,
/// `2025-11-20 10:00:00Z`.
pub(super) fn moment(at: SystemTime, now: SystemTime) -> String {
    let (at, now) = (clock::rfc3339(at), clock::rfc3339(now));
    let Some(((date, time), (today, _))) = at.split_once('T').zip(now.split_once('T')) else { return at };
    if date == today {
        return time.to_owned();
    }
    let seconds = time.split_once('.').map_or(time, |(seconds, _)| seconds);
    let (year, day) = date.split_at(date.len().saturating_sub("-11-20".len()));
    let month = day.get(1..3).and_then(|month| month.parse::<usize>().ok());
    let month = month.and_then(|month| MONTHS.get(month.checked_sub(1)?)).filter(|_| today.starts_with(year));
    match month {
        Some(month) => format!("{month} {} {seconds}Z", &day[4..]),
        None => format!("{date} {seconds}Z"),
    }
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// How long ago that was: the two largest units at most, `5s`, `3m20s`, `2h5m`, `4d7h`; `0s` if it is yet to come.
pub(super) fn age(then: SystemTime, now: SystemTime) -> String {
    coarse(now.duration_since(then).unwrap_or_default())
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
    fn a_moment_has_a_date_unless_it_is_of_today() {
        let day = Duration::from_secs(86_400);
        let at = UNIX_EPOCH + Duration::from_millis(1_795_168_800_120);
        for (now, shown) in [
            (at + Duration::from_secs(5), "10:00:00.120Z"),
            (at + day, "Nov 20 10:00:00Z"),
            (at - day, "Nov 20 10:00:00Z"),
            (at + 60 * day, "2026-11-20 10:00:00Z"),
        ] {
            assert_eq!(moment(at, now), shown);
        }
        let far = UNIX_EPOCH + Duration::from_secs(9_000_000_000_000);
        assert_eq!(moment(far, at), "9999-12-30 22:00:00Z");
        assert_eq!(
            moment(UNIX_EPOCH - Duration::from_secs(9_000_000_000_000), at),
            "-009999-01-02 01:59:59Z"
        );
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
