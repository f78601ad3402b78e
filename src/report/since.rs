//! From when on something is wanted: a duration, a time of day, or a moment in; whether something is recent enough out.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use jiff::Timestamp;

use crate::{
    clock,
    duration::{self, GoDuration},
};

/// What is not read.
const HINT: &str = "not a time: write a duration such as 10m, a time of day in UTC such as 14:05, or a moment such as \
                    2026-11-20T14:05:00Z";

/// A day, in seconds.
const DAY: u64 = 86_400;

/// The moment from which on something is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// So long ago, whenever that is asked.
    Ago(Duration),
    /// At that moment.
    At(SystemTime),
}

impl Since {
    /// Reads a duration (`10m`; a number is one of seconds), a time of day in UTC, today's or else yesterday's (`14:05`), or a
    /// moment as RFC 3339.
    ///
    /// # Errors
    /// What to write instead.
    pub(crate) fn parse(text: &str, now: SystemTime) -> Result<Self, String> {
        let seconds = || text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        if let Some(ago) = duration::parse(text).ok().or_else(seconds) {
            return Ok(Self::Ago(ago));
        }
        let moment = || text.parse::<Timestamp>().ok().map(SystemTime::from);
        time_of_day(text, now).or_else(moment).map(Self::At).ok_or_else(|| HINT.to_owned())
    }

    /// Whether something that happened then is wanted.
    pub(crate) fn admits(self, at: SystemTime) -> bool {
        let begins = match self {
            // Longer ago than the clock goes back is always.
            Self::Ago(ago) => clock::wall().checked_sub(ago),
            Self::At(begins) => Some(begins),
        };
        begins.is_none_or(|begins| at >= begins)
    }
}

/// As it is read.
impl fmt::Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ago(ago) => GoDuration(*ago).fmt(f),
            Self::At(at) => f.write_str(&clock::rfc3339(*at)),
        }
    }
}

/// The last time it was `14:05` or `14:05:30`.
fn time_of_day(text: &str, now: SystemTime) -> Option<SystemTime> {
    let mut parts = text.split(':').map(|part| {
        let is_number = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse::<u64>().ok().filter(|_| is_number)
    });
    let (hours, minutes) = (parts.next()??, parts.next()??);
    let seconds = parts.next().unwrap_or(Some(0))?;
    if hours > 23 || minutes > 59 || seconds > 59 || parts.next().is_some() {
        return None;
    }
    let now = now.duration_since(UNIX_EPOCH).ok()?.as_secs();
    let today = now / DAY * DAY + hours * 3_600 + minutes * 60 + seconds;
    let last = if today <= now { today } else { today.checked_sub(DAY)? };
    Some(UNIX_EPOCH + Duration::from_secs(last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::view::sample;

    /// 2026-11-20T10:00:00Z.
    fn now() -> SystemTime {
        sample::at(0).0
    }

    #[test]
    fn durations_times_of_day_and_moments_are_read() {
        assert_eq!(clock::rfc3339(now()), "2026-11-20T10:00:00.000Z");
        for (text, is) in [
            ("10m", "10m0s"),
            ("90", "1m30s"),
            ("1.5", "1.5s"),
            ("0", "0s"),
            ("09:30", "2026-11-20T09:30:00.000Z"),
            ("10:00", "2026-11-20T10:00:00.000Z"),
            ("10:00:01", "2026-11-19T10:00:01.000Z"),
            ("2026-11-20T09:30:00+01:00", "2026-11-20T08:30:00.000Z"),
        ] {
            let since = Since::parse(text, now()).unwrap();
            assert_eq!(since.to_string(), is, "{text}");
            assert_eq!(Since::parse(is, now()), Ok(since), "{text}");
        }
        for text in [
            "",
            "soon",
            "-5m",
            "-1",
            "24:00",
            "9:30",
            "10:60",
            "10:00:00:00",
            "2026-11-20",
            "NaN",
            "inf",
            "1e400",
        ] {
            assert!(Since::parse(text, now()).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_recent_enough_is_wanted() {
        let wall = clock::wall();
        let ago = |seconds| wall - Duration::from_secs(seconds);
        assert!(Since::Ago(Duration::from_secs(60)).admits(ago(30)));
        assert!(!Since::Ago(Duration::from_secs(60)).admits(ago(90)));
        assert!(Since::Ago(Duration::MAX).admits(UNIX_EPOCH));
        assert!(Since::At(ago(60)).admits(ago(60)) && !Since::At(ago(60)).admits(ago(61)));
    }
}
