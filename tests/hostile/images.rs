//! Row 17: images that are known by their id.
