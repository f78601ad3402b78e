//! Row 10: pods with an empty or copied uid.
