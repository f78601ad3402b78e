//! Which changes of verdicts are logged, so that no pod's author can flood the log with a probe that changes its mind ten
//! times a second: pods and moments in, whether a line is due out. Never logs, never reads a clock.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use crate::ids::PodUid;

/// 20 lines of one pod at once: more than its probes need to come up, fail and recover.
const BURST: u32 = 20;

/// 10 s until a pod may have one more line, up to [`BURST`]. Changes beyond that are counted, and the pod's next line says
/// how many there were; the events have them all.
const REFILL: Duration = Duration::from_secs(10);

/// 1,024 pods are remembered before those that were quiet for so long that they have all their lines again are forgotten.
const POD_SWEEP: usize = 1024;

/// The lines that each pod has left.
#[derive(Debug, Default)]
pub(super) struct VerdictLog {
    pods: HashMap<PodUid, PodShare>,
}

#[derive(Debug)]
struct PodShare {
    left: u32,
    /// Since when lines have been coming back.
    since: Instant,
    passed_over: u64,
}

impl VerdictLog {
    /// Whether a change of a pod's verdict is to be logged; with it, how many were not, since the pod's last line.
    pub(super) fn admit(&mut self, pod: &PodUid, now: Instant) -> Option<u64> {
        if self.pods.len() >= POD_SWEEP && !self.pods.contains_key(pod) {
            self.pods.retain(|_, share| {
                share.refill(now);
                share.left < BURST || share.passed_over > 0
            });
        }
        let share =
            self.pods.entry(pod.clone()).or_insert(PodShare { left: BURST, since: now, passed_over: 0 });
        share.refill(now);
        match share.left.checked_sub(1) {
            Some(left) => {
                share.left = left;
                Some(std::mem::take(&mut share.passed_over))
            }
            None => {
                share.passed_over += 1;
                None
            }
        }
    }
}

impl PodShare {
    fn refill(&mut self, now: Instant) {
        let quiet = now.saturating_duration_since(self.since);
        let lines = u32::try_from(quiet.as_millis() / REFILL.as_millis()).unwrap_or(BURST).min(BURST);
        self.left = (self.left + lines).min(BURST);
        // What is left of a full share does not add up.
        self.since = if self.left == BURST { now } else { self.since + REFILL * lines };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn a_pod_that_changes_its_mind_all_the_time_has_a_line_every_ten_seconds() {
        let (mut log, start) = (VerdictLog::default(), clock::now());
        let pods = [PodUid::from("loud"), PodUid::from("calm")];
        let at = |tenths: u32| start + Duration::from_millis(100) * tenths;
        let lines: Vec<_> = (0..6_000).filter_map(|tenth| log.admit(&pods[0], at(tenth))).collect();
        assert_eq!(lines.len() as u32, BURST + 59, "ten minutes, ten changes a second");
        assert_eq!((lines[0], lines[BURST as usize], lines.last()), (0, 80, Some(&99)));
        assert_eq!(log.admit(&pods[1], at(6_000)), Some(0), "another pod has its own");
        let later = at(6_000) + REFILL * BURST;
        assert_eq!(log.admit(&pods[0], later), Some(99));
        let burst = (0..100).filter_map(|_| log.admit(&pods[0], later)).count() as u32;
        assert_eq!(burst, BURST - 1, "after a quiet time as at first");
    }

    #[test]
    fn pods_that_went_are_forgotten() {
        let (mut log, start) = (VerdictLog::default(), clock::now());
        for number in 0..10 * POD_SWEEP as u32 {
            let now = start + Duration::from_millis(10) * number;
            log.admit(&PodUid::from(number.to_string()), now);
            assert!(log.pods.len() <= 2 * POD_SWEEP, "{}", log.pods.len());
        }
    }
}
