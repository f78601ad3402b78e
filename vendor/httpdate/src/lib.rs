//! Stands in for the crate of this name, whose conversion panics if the clock shows a time before 1970 or after 9999.
//! hyper converts the time for each connection that it serves, also without a `Date` header, so that the API would answer
//! nothing. A time in, the text of a `Date` header out.

use std::{
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

use jiff::{Timestamp, fmt::rfc2822::DateTimePrinter};

/// A time as in HTTP (RFC 9110 5.6.7), from 1970 to 9999. One outside of these is the first or the last of them: hyper has
/// room for four digits of a year.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpDate(Timestamp);

impl From<SystemTime> for HttpDate {
    fn from(at: SystemTime) -> Self {
        let at = at.max(UNIX_EPOCH);
        Self(Timestamp::try_from(at).unwrap_or(Timestamp::MAX))
    }
}

impl fmt::Display for HttpDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = DateTimePrinter::new().timestamp_to_rfc9110_string(&self.0).map_err(|_| fmt::Error)?;
        f.write_str(&text)
    }
}
