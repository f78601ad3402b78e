//! The only source of time. Everything else is handed its `now`.

use std::time::{Instant, SystemTime};

/// Monotonic time, as tokio sees it: a test that pauses tokio's clock pauses this one, too.
#[allow(clippy::disallowed_methods)]
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Wall-clock time, for people and for comparing with what the runtime reports; never for measuring.
#[allow(clippy::disallowed_methods)]
pub fn wall() -> SystemTime {
    SystemTime::now()
}

/// A time as RFC 3339 in UTC with milliseconds, the form of every time in our JSON: `2026-11-20T10:00:00.000Z`.
pub fn rfc3339(at: SystemTime) -> String {
    jiff::Timestamp::try_from(at).map(|at| format!("{at:.3}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn times_show_milliseconds_and_utc() {
        assert_eq!(
            super::rfc3339(UNIX_EPOCH + Duration::from_millis(1_700_000_000_120)),
            "2023-11-14T22:13:20.120Z"
        );
    }
}
