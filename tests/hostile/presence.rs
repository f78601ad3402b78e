//! Rows 7, 8 and 11: runtimes that answer in unusual ways.
