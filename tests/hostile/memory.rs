//! Row 16: labels and annotations of megabytes.
