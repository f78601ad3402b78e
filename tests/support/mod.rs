//! What integration tests share: waiting for what must come, and the real containerd.

pub(crate) mod containerd;
pub(crate) mod cri;

use std::time::Duration;

use anyhow::{Result, bail};
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
