//! Who makes room when as many commands are followed as may be: how many each pod has, and who asks, in; the pod that gives
//! one up out. Pure.

use std::{cmp::Reverse, collections::HashMap};

use crate::{ids::PodUid, inventory::pod::Pod};

/// The pod that gives up one of its commands for one of another pod: of the namespace that has most the pod that has most,
/// as long as the asking one still has fewer afterwards. Otherwise that is the asking pod itself.
pub(super) fn giving_up<'a>(held: impl Iterator<Item = (&'a Pod, usize)>, asking: &'a Pod) -> &'a PodUid {
    let (mut namespaces, mut pods) = (HashMap::new(), HashMap::new());
    for (pod, count) in held {
        *namespaces.entry(&*pod.namespace).or_default() += count;
        *pods.entry((&*pod.namespace, &pod.uid)).or_default() += count;
    }
    let of = |counts: &HashMap<&str, usize>| counts.get(&*asking.namespace).copied().unwrap_or_default();
    let most = namespaces.iter().max_by_key(|&(name, count)| (count, Reverse(name)));
    let namespace = match most {
        Some((name, count)) if *count > of(&namespaces) + 1 => name,
        _ => &*asking.namespace,
    };
    let in_namespace = pods.iter().filter(|((name, _), _)| *name == namespace);
    let most = in_namespace.max_by_key(|&((_, uid), count)| (count, Reverse(uid)));
    let own: usize = pods.get(&(namespace, &asking.uid)).copied().unwrap_or_default();
    match most {
        Some(((_, uid), count)) if namespace != &*asking.namespace || *count > own + 1 => uid,
        _ => &asking.uid,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::inventory::fixtures;

    fn pod(namespace: u8, number: u8) -> Pod {
        let name = format!("n{namespace}-p{number}");
        Pod {
            uid: name.as_str().into(),
            namespace: format!("n{namespace}").into(),
            name: name.into(),
            ..fixtures::pod()
        }
    }

    proptest! {
        #[test]
        fn row_04_only_a_pod_that_has_more_gives_up_one_and_in_the_end_all_have_their_share(
            counts in prop::collection::vec((0u8..4, 0u8..4, 0usize..9), 1..12),
            asking in (0u8..4, 0u8..4),
        ) {
            let asking = pod(asking.0, asking.1);
            let mut held: HashMap<PodUid, (Pod, usize)> = HashMap::new();
            for (namespace, number, count) in counts {
                let pod = pod(namespace, number);
                held.insert(pod.uid.clone(), (pod, count));
            }
            held.entry(asking.uid.clone()).or_insert((asking.clone(), 0));
            let of_namespace = |held: &HashMap<PodUid, (Pod, usize)>, name: &str| -> usize {
                held.values().filter(|(pod, _)| &*pod.namespace == name).map(|(_, count)| count).sum()
            };
            for _ in 0..200 {
                let uid = giving_up(held.values().map(|(pod, count)| (pod, *count)), &asking).clone();
                let (from, count) = held[&uid].clone();
                let own = (of_namespace(&held, &asking.namespace), held[&asking.uid].1);
                if uid == asking.uid {
                    let mut others = held.values();
                    let has_less = |(other, count): &(Pod, usize)| {
                        let is_ours = other.namespace == asking.namespace;
                        of_namespace(&held, &other.namespace) <= own.0 + 1 && (!is_ours || *count <= own.1 + 1)
                    };
                    prop_assert!(others.all(has_less));
                    return Ok(());
                }
                if from.namespace == asking.namespace {
                    prop_assert!(count > own.1 + 1);
                } else {
                    prop_assert!(of_namespace(&held, &from.namespace) > own.0 + 1);
                }
                held.insert(uid, (from, count - 1));
                held.insert(asking.uid.clone(), (asking.clone(), own.1 + 1));
            }
            prop_assert!(false, "it never ends");
        }
    }
}
