//! Row 19: a clock that is set back.
