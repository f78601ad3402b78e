//! Row 18: a disk that is full.
