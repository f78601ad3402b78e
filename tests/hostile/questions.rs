//! Row 20: too many questions at once, and connections that say nothing.
