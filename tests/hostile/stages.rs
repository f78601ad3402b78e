//! Row 13: a stage that panics is started again, and the relay does not notice.
