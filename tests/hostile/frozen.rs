//! Rows 15a and 19a: a runtime that stands still.
