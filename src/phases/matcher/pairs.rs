//! Who can only have one thing: choices in, what follows from them out. Pure.

/// For each of those who choose, what it must have: the only one of its choices that nobody else must have. None of those
/// without choices, with several, or whose only one several must have; nor of what `may_be_had` by nobody. From what
/// one has that is not `is_sure`, nothing follows for others.
pub(super) fn forced(
    choices: &[Vec<usize>],
    may_be_had: impl Fn(usize) -> bool,
    is_sure: impl Fn(usize) -> bool,
) -> Vec<Option<usize>> {
    let things = choices.iter().flatten().max().map_or(0, |last| last + 1);
    let mut forced = vec![None; choices.len()];
    let (mut is_taken, mut is_had) = (vec![false; things], vec![false; things]);
    let mut is_contested = vec![false; things];
    loop {
        let mut claims = vec![Claims::None; things];
        for (one, choices) in choices.iter().enumerate().filter(|(one, _)| forced[*one].is_none()) {
            let mut free = choices.iter().filter(|&&thing| !is_taken[thing]);
            if let (Some(&thing), None) = (free.next(), free.next())
                && may_be_had(thing)
            {
                claims[thing] = match claims[thing] {
                    Claims::None => Claims::One(one),
                    Claims::One(_) | Claims::Several => Claims::Several,
                };
            }
        }
        let mut is_over = true;
        for (thing, claims) in claims.into_iter().enumerate() {
            match claims {
                Claims::One(_) | Claims::Several if is_had[thing] => is_contested[thing] = true,
                Claims::One(one) => {
                    (forced[one], is_taken[thing], is_over) = (Some(thing), is_sure(one), false);
                    is_had[thing] = true;
                }
                Claims::None | Claims::Several => {}
            }
        }
        if is_over {
            return forced.into_iter().map(|had| had.filter(|thing| !is_contested[*thing])).collect();
        }
    }
}

/// Who must have a thing.
#[derive(Clone, Copy)]
enum Claims {
    None,
    One(usize),
    Several,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_from_choices() {
        for (choices, expected) in [
            (vec![], vec![]),
            (vec![vec![0]], vec![Some(0)]),
            (vec![vec![0, 1]], vec![None]),
            (vec![vec![0, 1], vec![1]], vec![Some(0), Some(1)]),
            (vec![vec![0, 1, 2], vec![0, 1], vec![0]], vec![Some(2), Some(1), Some(0)]),
            (vec![vec![0, 1], vec![0, 1]], vec![None, None]),
            // Two that must have the same contradict each other, and nothing follows for a third.
            (vec![vec![0], vec![0], vec![0, 1]], vec![None, None, None]),
            (vec![vec![], vec![2]], vec![None, Some(2)]),
        ] {
            assert_eq!(forced(&choices, |_| true, |_| true), expected, "{choices:?}");
        }
        assert_eq!(forced(&[vec![0], vec![0, 1]], |thing| thing != 0, |_| true), [None, None]);
        assert_eq!(forced(&[vec![0], vec![0, 1]], |_| true, |one| one != 0), [Some(0), None]);
        assert_eq!(forced(&[vec![0], vec![0, 1], vec![1]], |_| true, |one| one != 0), [None, None, Some(1)]);
    }
}
