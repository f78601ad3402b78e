//! The packages and the image as users get them, but with the unoptimised binary of the tests.
//!
//! Runs as root on Debian and Ubuntu, which `make test` equips; elsewhere each test that needs that says why not, and passes.

#[path = "../support/mod.rs"]
#[allow(dead_code)]
mod support;

/// Makes them, each once.
mod made;

#[path = "../../examples/man.rs"]
#[allow(dead_code)]
mod man;

/// A real systemd with nothing of criprobe on it.
mod bare;

/// What is in them, and what Debian's own checker says.
mod contents;

/// The Debian package: install, upgrade, remove, purge.
mod deb;

/// The RPM: install, upgrade, erase.
mod rpm;

/// The image.
mod image;

/// What keeps a package from being removed.
mod users;
