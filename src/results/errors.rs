//! Attempts that could not be made, one after the other: how many, and since when. Pure.

use std::time::SystemTime;

/// The newest attempts of a container, where they were errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errors {
    /// How many in a row.
    pub count: u32,
    /// When the first of them began.
    pub since: SystemTime,
}

impl Errors {
    /// One more, which began then.
    pub(super) fn and(former: Option<Self>, at: SystemTime) -> Self {
        let Self { count, since } = former.unwrap_or(Self { count: 0, since: at });
        Self { count: count.saturating_add(1), since }
    }

    /// `7 errors in a row`.
    pub(super) fn counted(count: u32) -> String {
        if count == 1 { "1 error".to_owned() } else { format!("{count} errors in a row") }
    }

    /// `cannot be tried since 10:00:00Z (7 attempts)`; `since` as it is shown.
    /// Without the number where none was made yet: while the runtime is away.
    pub fn in_words(count: u32, since: &str) -> String {
        if count == 0 {
            return format!("cannot be tried since {since}");
        }
        format!("cannot be tried since {since} ({count} attempt{})", if count == 1 { "" } else { "s" })
    }
}
