//! Who can only have one thing: choices in, what follows from them out. Pure.

/// For each of those who choose, what it must have: the only one of its choices that no other one must have. None where there
/// is no choice, where there are several, or where several must have the same; nor one that is not `may_be_had`. From a choice
/// that is not `is_sure`, nothing follows for others.
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

/// 16 who choose among the same things, and 64 choices of theirs. Of more, nothing is concluded from their number.
const MOST: usize = 16;
const MOST_CHOICES: usize = 64;

/// 512 choices in all. Of more, nothing is concluded from the number of those who choose.
const ALL_CHOICES: usize = 512;

fn are_too_many(choices: &[Vec<usize>]) -> bool {
    choices.iter().map(Vec::len).sum::<usize>() > ALL_CHOICES
}

/// Those who compete for the same things, directly or not.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Rivals {
    pub(super) ones: Vec<usize>,
    pub(super) things: Vec<usize>,
}

/// Each group of those that are sure to have one of their choices.
pub(super) fn rivals(choices: &[Vec<usize>], is_sure: impl Fn(usize) -> bool) -> Vec<Rivals> {
    let mut groups: Vec<Rivals> = Vec::new();
    if are_too_many(choices) {
        return groups;
    }
    for (one, things) in
        choices.iter().enumerate().filter(|(one, things)| is_sure(*one) && !things.is_empty())
    {
        let mut joined = Rivals { ones: vec![one], things: things.clone() };
        groups.retain_mut(|group| {
            let is_apart = !group.things.iter().any(|thing| things.contains(thing));
            if !is_apart {
                joined.ones.append(&mut group.ones);
                joined.things.append(&mut group.things);
            }
            is_apart
        });
        joined.things.sort_unstable();
        joined.things.dedup();
        groups.push(joined);
    }
    groups
}

/// Of each one's choices those that it can have if all that are sure have one of theirs. All of them where that is not possible.
pub(super) fn possible(choices: &[Vec<usize>], is_sure: impl Fn(usize) -> bool) -> Vec<Vec<usize>> {
    if choices.iter().all(|choices| choices.len() < 2) || are_too_many(choices) {
        return choices.to_vec();
    }
    let groups = rivals(choices, is_sure);
    let of = |(one, things): (usize, &Vec<usize>)| {
        let near = groups.iter().filter(|group| group.things.iter().any(|thing| things.contains(thing)));
        let others = near.flat_map(|group| &group.ones).filter(|&&other| other != one);
        let others: Vec<&[usize]> = others.map(|other| &choices[*other][..]).collect();
        let choices = others.iter().map(|things| things.len()).sum::<usize>() + things.len();
        if things.len() < 2 || others.len() >= MOST || choices > MOST_CHOICES {
            return things.clone();
        }
        let left: Vec<_> =
            things.iter().copied().filter(|thing| can_all_choose(&others, Some(*thing))).collect();
        if left.is_empty() { things.clone() } else { left }
    };
    choices.iter().enumerate().map(of).collect()
}

/// Whether each can have one of its choices.
pub(super) fn can_all_have_one(choices: &[Vec<usize>]) -> bool {
    let choices: Vec<&[usize]> = choices.iter().map(Vec::as_slice).collect();
    can_all_choose(&choices, None)
}

/// Whether this thing is needed: each of those who choose can have one of its choices, but not without it.
pub(super) fn is_indispensable(choices: &[Vec<usize>], thing: usize) -> bool {
    let connected = connected(choices, thing);
    connected.len() <= MOST && can_all_choose(&connected, None) && !can_all_choose(&connected, Some(thing))
}

/// The choices of those who compete for this thing, directly or not.
fn connected(choices: &[Vec<usize>], thing: usize) -> Vec<&[usize]> {
    let (mut things, mut connected) = (vec![thing], Vec::new());
    let mut others: Vec<&[usize]> = choices.iter().map(Vec::as_slice).collect();
    loop {
        let is_near = |choices: &&[usize]| choices.iter().any(|thing| things.contains(thing));
        let (near, far): (Vec<_>, Vec<_>) = others.into_iter().partition(is_near);
        if near.is_empty() || connected.len() > MOST {
            return connected;
        }
        things.extend(near.iter().copied().flatten());
        things.sort_unstable();
        things.dedup();
        connected.extend(near);
        others = far;
    }
}

/// Whether each can have one of its choices, other than that.
fn can_all_choose(choices: &[&[usize]], other_than: Option<usize>) -> bool {
    let things = choices.iter().copied().flatten().max().map_or(0, |last| last + 1);
    let mut had_by = vec![None; things];
    (0..choices.len()).all(|one| {
        let mut is_tried = vec![false; things];
        other_than.into_iter().filter(|&thing| thing < things).for_each(|thing| is_tried[thing] = true);
        can_choose(one, choices, &mut had_by, &mut is_tried)
    })
}

/// Gives this one a thing; who has it gets another one.
fn can_choose(one: usize, choices: &[&[usize]], had_by: &mut [Option<usize>], is_tried: &mut [bool]) -> bool {
    choices[one].iter().any(|&thing| {
        if std::mem::replace(&mut is_tried[thing], true) {
            return false;
        }
        let is_free = had_by[thing].is_none_or(|other| can_choose(other, choices, had_by, is_tried));
        if is_free {
            had_by[thing] = Some(one);
        }
        is_free
    })
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
        for (choices, indispensable) in [
            (vec![], vec![]),
            (vec![vec![0]], vec![0]),
            (vec![vec![0, 1]], vec![]),
            (vec![vec![0, 1], vec![0, 1]], vec![0, 1]),
            (vec![vec![0, 1], vec![0, 1], vec![2, 3]], vec![0, 1]),
            (vec![vec![0, 1], vec![1, 2], vec![2, 0]], vec![0, 1, 2]),
            (vec![vec![0, 1], vec![1, 2]], vec![]),
            (vec![vec![0, 1], vec![0, 1], vec![1, 2]], vec![0, 1, 2]),
            // They contradict each other.
            (vec![vec![0], vec![0]], vec![]),
            (vec![(0..=MOST).collect(); MOST + 1], vec![]),
            (vec![(0..MOST).collect(); MOST], (0..MOST).collect()),
        ] {
            let all: Vec<_> = (0..=MOST).filter(|&thing| is_indispensable(&choices, thing)).collect();
            assert_eq!(all, indispensable, "{choices:?}");
        }
        assert_eq!(forced(&[vec![0], vec![0, 1]], |thing| thing != 0, |_| true), [None, None]);
        assert_eq!(forced(&[vec![0], vec![0, 1]], |_| true, |one| one != 0), [Some(0), None]);
        assert_eq!(forced(&[vec![0], vec![0, 1], vec![1]], |_| true, |one| one != 0), [None, None, Some(1)]);
    }
}
