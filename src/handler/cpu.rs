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
    task::{Context, Poll, ready},
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

/// Makes an attempt of `pod` that limits itself to `timeout`. Pauses end then at the latest, so that it reaches its own
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
    let mut deadline: Option<Instant> = None;
    let mut paused: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| {
        // The first poll is never paused: the attempt's own time begins with it.
        if let Some(deadline) = deadline {
            ready!(wait(&mut paused, cx, |now| {
                used().pause(pod, now).min(deadline.saturating_duration_since(now))
            }));
        } else {
            deadline = Some(sleep(timeout).deadline().into_std());
        }
        let before = clock::thread_cpu();
        let polled = attempt.as_mut().poll(cx);
        let cpu = clock::thread_cpu().saturating_sub(before);
        used().add(pod, cpu, clock::now());
        polled
    })
    .await
}

/// Waits for as long as `pause` says, and asks it again after each wait: others may have used what there was.
fn wait(
    paused: &mut Option<Pin<Box<Sleep>>>,
    cx: &mut Context<'_>,
    pause: impl Fn(Instant) -> Duration,
) -> Poll<()> {
    loop {
        if let Some(pause) = paused {
            ready!(pause.as_mut().poll(cx));
        }
        let pause = pause(clock::now());
        *paused = (!pause.is_zero()).then(|| Box::pin(sleep(pause)));
        if paused.is_none() {
            return Poll::Ready(());
        }
    }
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
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use tokio::{task::yield_now, time::timeout};

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

    /// A pod that has used so much.
    fn after(cpu: Duration) -> (PodUid, Mutex<Used>) {
        let (pod, used) = (PodUid::from("hostile"), Mutex::<Used>::default());
        used.lock().unwrap().add(&pod, cpu, clock::now());
        (pod, used)
    }

    #[tokio::test]
    async fn row_05_attempts_of_a_pod_that_used_too_much_are_paused_and_end_at_their_timeout() {
        let ((hostile, used), polls) = (after(Duration::from_secs(60)), AtomicU32::new(0));
        // As those of handlers, whose time begins when they are polled first.
        let attempt = async |longest| {
            let endless = poll_fn(|cx| {
                polls.fetch_add(1, Relaxed);
                cx.waker().wake_by_ref();
                Poll::<()>::Pending
            });
            timeout(longest, endless).await
        };
        let (longest, began) = (Duration::from_millis(200), clock::now());
        let limited = limit_in(&used, &hostile, longest, attempt(longest));
        let ended = timeout(MINUTE / 2, limited).await.expect("it ends at its timeout");
        assert!(ended.is_err() && clock::now() - began >= longest);
        // Some at the deadline, in the millisecond that a timer may be late by. Unpaused, they are tens of thousands.
        assert!(polls.load(Relaxed) <= 10_000, "{polls:?} polls");
        let pod = PodUid::from("other");
        let other = limit_in(&used, &pod, longest, async {
            yield_now().await;
            1
        });
        assert_eq!(other.await, 1);
    }

    #[tokio::test]
    async fn an_attempt_goes_on_after_its_pause() {
        let ((pod, used), began) = (after(AT_ONCE + Duration::from_millis(10)), clock::now());
        limit_in(&used, &pod, MINUTE, yield_now()).await;
        let took = clock::now() - began;
        assert!((Duration::from_millis(90)..MINUTE / 2).contains(&took), "{took:?}");
    }
}
