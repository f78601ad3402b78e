//! The only source of time. All other code receives `now` as an argument.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// Monotonic time, as tokio sees it: a test that pauses tokio's clock pauses this one, too.
#[allow(clippy::disallowed_methods)]
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Ends at the deadline; never without one. Loses nothing when it is cancelled.
pub async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// Wall-clock time, for people and for comparing with what the runtime reports; never for measuring.
#[allow(clippy::disallowed_methods)]
pub fn wall() -> SystemTime {
    SystemTime::now()
}

/// The time since the machine started, which all its processes read alike.
pub fn since_boot() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

/// The CPU time that the calling thread has used. Only the difference of two readings on the same thread means anything.
pub fn thread_cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// The CPU time that the whole process has used.
pub fn process_cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// A time as RFC 3339 in UTC with milliseconds, the form of every time in our JSON: `2026-11-20T10:00:00.000Z`. One before
/// the year -9999 or after 9999, which a clock may show that is set wrong, is the first or the last of these.
pub fn rfc3339(at: SystemTime) -> String {
    let nearest = if at < UNIX_EPOCH { Timestamp::MIN } else { Timestamp::MAX };
    format!("{:.3}", Timestamp::try_from(at).unwrap_or(nearest))
}

/// A time in UTC for a sentence: `10:00:00Z`; with its date if that is not today's.
pub fn short(at: SystemTime, now: SystemTime) -> String {
    let (at, now) = (rfc3339(at), rfc3339(now));
    let seconds = at.split_once('.').map_or(&*at, |(seconds, _)| seconds);
    match seconds.split_once('T') {
        Some((date, time)) if now.starts_with(date) => format!("{time}Z"),
        Some(_) | None => format!("{seconds}Z"),
    }
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
        let far = Duration::from_secs(9_000_000_000_000);
        for (at, shown) in [
            (UNIX_EPOCH + far, "9999-12-30T22:00:00.999Z"),
            (UNIX_EPOCH - far, "-009999-01-02T01:59:59.000Z"),
        ] {
            assert_eq!(super::rfc3339(at), shown);
            assert!(shown.parse::<jiff::Timestamp>().is_ok());
        }
    }
}
