//! Row 12: a stop whose end was lost.
