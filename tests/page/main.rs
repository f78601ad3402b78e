//! The page in a real browser: Chromium, driven through WebDriver, in front of the daemon on the embedded runtime.
//!
//! Runs where Chromium and chromedriver are, which `make test` installs on Debian; elsewhere each test says so, and
//! passes.
//! `CRIPROBE_SCREENSHOTS=1 cargo test --test page -- screenshots` writes those in `docs/images/`.

#[path = "../support/mod.rs"]
#[allow(dead_code)]
mod support;

#[path = "../daemon/rig.rs"]
#[allow(dead_code)]
mod rig;

/// One window of a browser, and what can be asked of it.
mod browser;

/// What the page shows, and that it goes on by itself.
mod live;

/// Texts of others stay texts.
mod hostile;

/// Filter, keys, small screens.
mod hands;

/// The pictures in the documentation.
mod screenshots;
