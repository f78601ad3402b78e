//! Stops that began and failed among the changes of one batch. In: changes, in order. Out: the same without these stops,
//! of which clients can cancel any number per second. Pure.

use std::collections::{BTreeMap, VecDeque};

use super::{fact::Target, model::Change};

/// Drops each stop that failed after it began among these changes, with its failure. Of each container and pod, at most
/// the failures of stops that began earlier are left, and then the beginnings of stops that are open.
pub(super) fn without_brief_stops(mut changes: Vec<Change>) -> Vec<Change> {
    let mut open: BTreeMap<Target, VecDeque<usize>> = BTreeMap::new();
    let mut is_brief = vec![false; changes.len()];
    for (at, change) in changes.iter().enumerate() {
        let (target, has_begun) = match change {
            Change::ContainerStopping(id) => (Target::Container(id.clone()), true),
            Change::ContainerStopFailed(id) => (Target::Container(id.clone()), false),
            Change::PodStopping(id) => (Target::Sandbox(id.clone()), true),
            Change::PodStopFailed(id) => (Target::Sandbox(id.clone()), false),
            Change::StopsListed(_) => {
                // It counts the stops that began before it.
                open.clear();
                continue;
            }
            Change::Container(_) | Change::ContainerGone(_) | Change::Listed(_) | Change::RuntimeAnswers => {
                continue;
            }
        };
        let begun = open.entry(target).or_default();
        if has_begun {
            begun.push_back(at);
        } else if let Some(first) = begun.pop_front() {
            // The first one, as a container that started in between counts only the stops after that.
            (is_brief[first], is_brief[at]) = (true, true);
        }
    }
    let mut is_brief = is_brief.into_iter();
    changes.retain(|_| !is_brief.next().unwrap_or_default());
    changes
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn row_12_a_stop_that_begins_and_fails_in_one_batch_is_no_change() {
        let begun = || Change::ContainerStopping("c".into());
        let failed = || Change::ContainerStopFailed("c".into());
        let (pod_begun, pod_failed) =
            (|| Change::PodStopping("s".into()), || Change::PodStopFailed("s".into()));
        let listed = || Change::StopsListed(Arc::default());
        let rows = [
            ("at once", vec![begun(), failed()], vec![]),
            ("of others in between", vec![begun(), pod_begun(), failed()], vec![pod_begun()]),
            ("of a pod", vec![pod_begun(), pod_begun(), pod_failed()], vec![pod_begun()]),
            ("of another", vec![begun(), pod_failed()], vec![begun(), pod_failed()]),
            ("of an earlier one", vec![failed(), begun(), begun(), failed()], vec![failed(), begun()]),
            ("begun before a list", vec![begun(), listed(), failed()], vec![begun(), listed(), failed()]),
            (
                "without failures",
                vec![begun(), Change::RuntimeAnswers],
                vec![begun(), Change::RuntimeAnswers],
            ),
            ("a flood", (0..10_000).flat_map(|_| [begun(), failed()]).collect(), vec![]),
        ];
        for (what, changes, left) in rows {
            assert_eq!(without_brief_stops(changes), left, "{what}");
        }
    }
}
