//! How long a container has to end by itself when an act stops it: a definition, annotations and a setting in, a time out.
//! Pure.

use std::{collections::BTreeMap, time::Duration};

use crate::runtime::condition::{DELETION_GRACE, POD_GRACE};

/// 2 s: what is left to a container even if its hook took all of its time; the kubelet's.
pub(super) const LEAST: Duration = Duration::from_secs(2);

/// 24 h: a longer grace period is cut to this. Kubernetes has no such bound, but the act keeps its place among those in
/// progress for as long, and one pod's author could keep it for good.
pub(super) const MOST: Duration = Duration::from_secs(24 * 60 * 60);

/// The whole time, hook included; zero if there is no time for a hook. That of a pod that is deleted, that of the probe, that
/// of the pod, and then `default`, which is `act.gracePeriod`. An annotation that holds no such number is as if it were not
/// there.
pub(super) fn period(
    probe: Option<Duration>,
    annotations: &BTreeMap<String, String>,
    default: Duration,
) -> Duration {
    let annotated = |key| annotations.get(key)?.parse().ok().map(Duration::from_secs);
    annotated(DELETION_GRACE).or(probe).or_else(|| annotated(POD_GRACE)).unwrap_or(default).min(MOST)
}

/// What is left to the container after a hook that took so long.
pub(super) fn rest(period: Duration, hook_took: Duration) -> Duration {
    period.saturating_sub(hook_took).clamp(LEAST, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::fixtures::texts;

    #[test]
    fn the_first_of_deletion_probe_pod_and_setting_counts() {
        for (deletion, probe, pod, seconds) in [
            ("", None, "", 10),
            ("", None, "30", 30),
            ("", Some(45), "30", 45),
            ("", Some(5), "", 5),
            ("7", Some(45), "30", 7),
            ("0", None, "30", 0),
            ("seven", Some(45), "30", 45),
            ("-1", None, "30", 30),
            ("", None, "1.5", 10),
            ("", None, "99999999999999999999", 10),
            ("", None, " 30", 10),
            ("", None, "9223372036854775807", 86_400),
            ("", Some(u64::MAX), "", 86_400),
        ] {
            let annotations: Vec<_> = [(DELETION_GRACE, deletion), (POD_GRACE, pod)]
                .into_iter()
                .filter(|(_, text)| !text.is_empty())
                .collect();
            let probe = probe.map(Duration::from_secs);
            let found = period(probe, &texts(&annotations), Duration::from_secs(10));
            assert_eq!(found, Duration::from_secs(seconds), "{deletion:?} {probe:?} {pod:?}");
        }
    }

    #[test]
    fn a_container_has_what_its_hook_left_of_it_and_two_seconds_at_least() {
        for (period, took, rest) in [
            (30_000, 0, 30),
            (30_000, 4_400, 25),
            (30_000, 29_500, 2),
            (30_000, 60_000, 2),
            (0, 0, 2),
            (2_500, 0, 2),
        ] {
            let [period, took] = [period, took].map(Duration::from_millis);
            assert_eq!(super::rest(period, took).as_secs(), rest, "{period:?} {took:?}");
        }
        assert_eq!(rest(Duration::MAX, Duration::ZERO), MOST);
    }
}
