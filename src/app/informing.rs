//! Keeps the service manager informed: whether the daemon relays, in words, and that its threads work. In: the link, the
//! configuration in effect, the beats of the relay's threads. Out: notices.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};

use crate::{
    clock,
    config::health::ConfigHealth,
    manager::{self, Notice},
    relay::RelayHandle,
    runtime::link::Link,
    stage::Tasks,
};

/// 5 s, and half of the watchdog's time if that is longer: how long a thread of the relay may not beat before the watchdog
/// is left to act. A beat comes every second.
const STALLED: Duration = Duration::from_secs(5);

/// What the manager is informed of.
#[derive(Clone)]
pub(super) struct Deps {
    pub(super) link: watch::Receiver<Link>,
    pub(super) config: watch::Receiver<ConfigHealth>,
    pub(super) relay: RelayHandle,
    /// From then on, the state is not described any more.
    pub(super) is_draining: Arc<AtomicBool>,
    /// Why the API is not served, if it is not.
    pub(super) unserved: Option<String>,
}

/// Starts the task.
pub(super) fn spawn(deps: Deps, tasks: &mut Tasks) {
    let run = tasks.supervise("informing", async move || run(deps.clone()).await);
    tasks.spawn(run);
}

async fn run(Deps { mut link, mut config, relay, is_draining, unserved }: Deps) {
    let watchdog = manager::watchdog();
    let mut pulse = Pulse::new(relay.beats(), watchdog.map_or(STALLED, |due| (due / 2).max(STALLED)));
    let mut due = interval(watchdog.map_or(STALLED, |due| due / 3));
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut described = None;
    loop {
        let mut text = describe(&link.borrow_and_update(), &config.borrow_and_update(), clock::wall());
        if let Some(trouble) = &unserved {
            text += &format!("; the API is not served: {trouble}");
        }
        if described.as_ref() != Some(&text) && !is_draining.load(Ordering::Relaxed) {
            manager::send(vec![Notice::status(&text)]).await;
            described = Some(text);
        }
        tokio::select! {
            Ok(()) = link.changed() => {}
            Ok(()) = config.changed() => {}
            _ = due.tick(), if watchdog.is_some() => {
                if pulse.is_regular(&relay.beats(), clock::now()) {
                    manager::send(vec![Notice::Alive]).await;
                } else {
                    tracing::error!("a thread of the relay does not respond: the service manager's watchdog will act");
                }
            }
            else => return,
        }
    }
}

/// The state of the daemon in a sentence.
fn describe(link: &Link, config: &ConfigHealth, now: std::time::SystemTime) -> String {
    let mut text = if link.is_up {
        format!("relaying to {} {}", link.version.name, link.version.version)
    } else {
        let since = clock::short(link.since, now);
        format!("the runtime is away since {since}, and new clients wait for it: {}", link.trouble.text)
    };
    if let Some(error) = config.errors.first() {
        text += &format!("; the configuration is wrong, and the previous one stays in effect: {error}");
    }
    text
}

/// Whether all threads of the relay go on beating.
struct Pulse {
    /// Of each, its last count and when that was new.
    last: Vec<(u64, Option<Instant>)>,
    stalled: Duration,
}

impl Pulse {
    fn new(beats: Vec<u64>, stalled: Duration) -> Self {
        Self { last: beats.into_iter().map(|count| (count, None)).collect(), stalled }
    }

    fn is_regular(&mut self, beats: &[u64], now: Instant) -> bool {
        for ((last, at), count) in self.last.iter_mut().zip(beats) {
            if last != count || at.is_none() {
                (*last, *at) = (*count, Some(now));
            }
        }
        self.last.iter().all(|(_, at)| at.is_some_and(|at| now.duration_since(at) < self.stalled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_stops_beating_is_noticed_after_its_time() {
        let start = clock::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut pulse = Pulse::new(vec![0, 0], STALLED);
        for (seconds, beats, is_regular) in
            [(1, [0, 0], true), (3, [2, 2], true), (7, [6, 2], true), (8, [7, 2], false), (9, [8, 3], true)]
        {
            assert_eq!(pulse.is_regular(&beats, at(seconds)), is_regular, "{seconds} s");
        }
    }
}
