//! Version, 200 times a second on one connection: a client in, the time of each call out. A call that is late delays no other.

use std::time::{Duration, Instant};

use criprobe::{clock, proto::cri};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{interval, timeout},
};

use super::Cri;

/// 5 ms, for 200 calls a second.
const PACE: Duration = Duration::from_millis(5);

/// 30 s: an answer that takes longer does not come.
const PATIENCE: Duration = Duration::from_secs(30);

/// A call.
pub(crate) struct TimedCall {
    pub(crate) began: Instant,
    pub(crate) took: Duration,
    /// Why it had no answer.
    pub(crate) error: Option<String>,
}

pub(super) async fn steadily(client: Cri, mut is_over: watch::Receiver<bool>) -> Vec<TimedCall> {
    let (mut calls, mut ended, mut due) = (JoinSet::new(), Vec::new(), interval(PACE));
    loop {
        tokio::select! {
            _ = is_over.changed() => break,
            Some(call) = calls.join_next() => ended.extend(call),
            _ = due.tick() => drop(calls.spawn(call(client.clone()))),
        }
    }
    ended.extend(calls.join_all().await);
    ended
}

async fn call(mut client: Cri) -> TimedCall {
    let began = clock::now();
    let answer = timeout(PATIENCE, client.version(cri::VersionRequest::default())).await;
    let error = match answer {
        Ok(Ok(_)) => None,
        Ok(Err(status)) => Some(status.to_string()),
        Err(elapsed) => Some(elapsed.to_string()),
    };
    TimedCall { began, took: clock::now() - began, error }
}
