//! Limits the CPU that the servers of a pod can make criprobe use. In: attempts, and what each of their polls used. Out:
//! the same attempts, with pauses once their pod has used more than its share.
//!
//! What an attempt costs is up to its server: heads of ten thousand lines, redirects, TLS handshakes and key updates,
//! frames and header blocks all have limits in bytes, but a byte of one costs a hundred times as much as a byte of another.
//! So the CPU itself is limited, by pod, over all its attempts, their tries and their redirects.

use std::{
    collections::HashMap,
    future::poll_fn,
    pin::{Pin, pin},
    sync::{LazyLock, Mutex, PoisonError},
    task::ready,
    time::{Duration, Instant},
};

use tokio::time::{Sleep, sleep};

use crate::{clock, ids::PodUid};

/// A tenth of a core for each pod, on average. An attempt at a server that behaves takes 0.15 ms, and 0.4 ms over TLS; so
/// the 50 attempts per second that a pod may have by default take a fiftieth.
const SHARE: u32 = 10;

/// 100 ms of CPU at once: more than the 32 probes of a pod take when all are due at the same moment. What exceeds it waits
/// until the share has made up for it, or until its timeout, which is a failure, as with any slow server.
const AT_ONCE: Duration = Duration::from_millis(100);

/// 20 ms: the shortest pause. Many attempts of a pod may wait, and each wakes up after it.
const SHORTEST: Duration = Duration::from_millis(20);

/// 8,192 pods are remembered, each until its share has made up for what it used: more than a node has pods. With uids of up
/// to 512 bytes they take at most 5 MiB. What one more uses is not limited.
const REMEMBERED: usize = 8192;

/// Of the whole process, so that attempts that are asked for through the API count, too.
static USED: LazyLock<Mutex<Used>> = LazyLock::new(Mutex::default);

/// Makes an attempt of `pod` that limits itself to `timeout`. Pauses end then at the latest, so that it comes to its own
/// end.
pub(crate) async fn limit<T>(pod: &PodUid, timeout: Duration, attempt: impl Future<Output = T>) -> T {
    limit_in(&USED, pod, timeout, attempt).await
}

async fn limit_in<T>(
    used: &Mutex<Used>,
    pod: &PodUid,
    timeout: Duration,
    attempt: impl Future<Output = T>,
) -> T {
    let used = || used.lock().unwrap_or_else(PoisonError::into_inner);
    let mut attempt = pin!(attempt);
    let deadline = sleep(timeout).deadline().into_std();
    let mut paused: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| {
        loop {
            if let Some(pause) = &mut paused {
                ready!(pause.as_mut().poll(cx));
                paused = None;
            }
            let now = clock::now();
            let pause = used().pause(pod, now).min(deadline.saturating_duration_since(now));
            if pause.is_zero() {
                break;
            }
            paused = Some(Box::pin(sleep(pause)));
        }
        let before = clock::thread_cpu();
        let polled = attempt.as_mut().poll(cx);
        let cpu = clock::thread_cpu().saturating_sub(before);
        used().add(pod, cpu, clock::now());
        polled
    })
    .await
}

/// By pod: when its share will have made up for all that it used. Pure.
#[derive(Debug, Default)]
struct Used(HashMap<PodUid, Instant>);

impl Used {
    /// How long the attempts of a pod have to pause now.
    fn pause(&self, pod: &PodUid, now: Instant) -> Duration {
        let ahead = self.0.get(pod).map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        match ahead.saturating_sub(AT_ONCE * SHARE) {
            Duration::ZERO => Duration::ZERO,
            excess => excess.max(SHORTEST),
        }
    }

    /// Takes note of what a pod used.
    fn add(&mut self, pod: &PodUid, cpu: Duration, now: Instant) {
        let cost = cpu * SHARE;
        if let Some(until) = self.0.get_mut(pod) {
            *until = now.max(*until) + cost;
            return;
        }
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, until| *until > now);
        }
        if self.0.len() < REMEMBERED {
            self.0.insert(pod.clone(), now + cost);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU32, Ordering::Relaxed},
        task::Poll,
    };

    use tokio::time::timeout;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// How much a pod uses in a minute that does so much at once as often as it may, `most` times per second at most.
    fn in_a_minute(cpu: Duration, most: u32) -> (Duration, u32) {
        let (start, pod, mut used) = (clock::now(), PodUid::from("pod"), Used::default());
        let (mut total, mut pauses, mut after) = (Duration::ZERO, 0, Duration::ZERO);
        while after < MINUTE {
            let pause = used.pause(&pod, start + after);
            if pause.is_zero() {
                used.add(&pod, cpu, start + after);
                total += cpu;
                after += Duration::from_secs(1) / most;
            } else {
                pauses += 1;
                after += pause;
            }
        }
        (total, pauses)
    }

    #[test]
    fn probes_that_behave_are_never_paused() {
        for (cpu, per_second) in [(150, 50), (400, 50), (1500, 50), (50_000, 1)] {
            assert_eq!(in_a_minute(Duration::from_micros(cpu), per_second).1, 0, "{cpu} us, {per_second}/s");
        }
        // All probes of a pod at the same moment.
        let (now, pod, mut used) = (clock::now(), PodUid::from("pod"), Used::default());
        for _ in 0..32 {
            assert_eq!(used.pause(&pod, now), Duration::ZERO);
            used.add(&pod, Duration::from_millis(2), now);
        }
    }

    #[test]
    fn row_05_a_pod_uses_a_tenth_of_a_core_whatever_each_answer_costs() {
        for (cpu, per_second) in [(400, 960), (2500, 960), (5000, 1000), (100_000, 10)] {
            let cpu = Duration::from_micros(cpu);
            let total = in_a_minute(cpu, per_second).0;
            assert!(total <= MINUTE / SHARE + AT_ONCE + cpu, "{cpu:?}, {per_second}/s: {total:?}");
            assert!(total >= MINUTE / SHARE * 9 / 10, "{cpu:?}, {per_second}/s: {total:?}");
        }
    }

    #[test]
    fn as_many_pods_are_remembered_as_may_be_and_those_of_late() {
        let (now, mut used) = (clock::now(), Used::default());
        for number in 0..2 * REMEMBERED {
            used.add(&PodUid::from(format!("pod-{number}")), Duration::from_secs(1), now);
        }
        assert_eq!(used.0.len(), REMEMBERED);
        let later = now + MINUTE;
        used.add(&PodUid::from("late"), Duration::from_secs(1), later);
        assert_eq!((used.0.len(), used.pause(&PodUid::from("late"), later)), (1, Duration::from_secs(9)));
    }

    /// Uses that much CPU.
    fn burn(cpu: Duration) {
        let began = clock::thread_cpu();
        while clock::thread_cpu() - began < cpu {}
    }

    #[tokio::test]
    async fn row_05_attempts_that_cost_much_are_paused_and_end_at_their_timeout() {
        let (used, polls, began) = (Mutex::default(), AtomicU32::new(0), clock::now());
        let (cpu, longest) = (Duration::from_millis(5), Duration::from_millis(1500));
        let costly = || {
            poll_fn(|cx| {
                polls.fetch_add(1, Relaxed);
                burn(cpu);
                cx.waker().wake_by_ref();
                Poll::<()>::Pending
            })
        };
        let hostile = PodUid::from("hostile");
        let attempt = || limit_in(&used, &hostile, longest, timeout(longest, costly()));
        let (one, other) = tokio::join!(attempt(), attempt());
        assert!(one.is_err() && other.is_err());
        let (total, took) = (cpu * polls.load(Relaxed), clock::now() - began);
        // Each is polled a few times more at its deadline, so that it ends.
        assert!(total <= AT_ONCE + took / SHARE + 8 * cpu, "{total:?} of CPU in {took:?}");
        assert!(total >= AT_ONCE, "{total:?} of CPU in {took:?}");
        assert!(!used.lock().unwrap().pause(&hostile, clock::now()).is_zero());
        assert_eq!(limit_in(&used, &PodUid::from("other"), longest, async { 1 }).await, 1);
    }
}
