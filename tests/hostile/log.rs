//! Row 6: a log that nobody reads holds nobody up.
