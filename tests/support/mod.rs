//! What integration tests share: a daemon, a CRI client, a real containerd, a real systemd, and waiting for what must come.

pub(crate) mod confined;
pub(crate) mod containerd;
pub(crate) mod cri;
pub(crate) mod daemon;
pub(crate) mod lab;
pub(crate) mod node;
pub(crate) mod terminal;

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use criprobe::clock;

/// How long a test waits for what comes within milliseconds on an idle machine; long, as tests run on busy ones.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Asks every 10 ms until the answer is `Some`.
///
/// # Errors
/// What was waited for, when it has not come `within` that time, and what the asking itself ran into.
pub(crate) async fn eventually<T>(
    what: &str,
    within: Duration,
    mut ask: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = clock::now();
    loop {
        if let Some(found) = ask().await? {
            return Ok(found);
        }
        if clock::now() - start > within {
            bail!("not within {within:?}: {what}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Asks every 10 ms for that long, as long as the answer is yes.
///
/// # Errors
/// `what` was to stay and did not, and what the asking itself ran into.
pub(crate) async fn stays(
    what: &str,
    for_: Duration,
    mut ask: impl AsyncFnMut() -> Result<bool>,
) -> Result<()> {
    let start = clock::now();
    while clock::now() - start < for_ {
        ensure!(ask().await?, "not for {for_:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
