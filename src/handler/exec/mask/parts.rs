//! Finds parts of long values in a message: values in, a table of all their parts out. Pure but for the key of its hash.

use std::{
    hash::{BuildHasher, RandomState},
    ops::Range,
};

use super::{PART, Value};

/// All parts of [`PART`] bytes of long values, in a table of at least twice as many slots. Two parts that differ fall
/// together by chance only: the key of the hash is random, so the author of the values cannot choose them for it.
#[derive(Debug)]
pub(super) struct Parts<'v, 'a> {
    values: &'v [Value<'a>],
    slots: Vec<Slot>,
    key: [u64; 2],
}

/// Where a part is.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// The value, counted from 1; 0 where the slot is free.
    value: u8,
    /// A byte of the hash: few parts have to be compared to see that they differ.
    tag: u8,
    offset: u16,
}

impl<'v, 'a> Parts<'v, 'a> {
    /// Those of the values; none if no value is longer than a part.
    pub(super) fn of(values: &'v [Value<'a>]) -> Option<Self> {
        let long = || (1..).zip(values).filter(|(_, value)| value.text.len() > PART);
        let most: usize = long().map(|(_, value)| value.text.len()).sum();
        if most == 0 {
            return None;
        }
        let random = RandomState::new();
        let key = [random.hash_one(0), random.hash_one(1)];
        let slots = vec![Slot::default(); (2 * most).next_power_of_two()];
        let mut parts = Self { values, slots, key };
        for (value, Value { text, .. }) in long() {
            for (offset, part) in (0..=u16::MAX).zip(text.as_bytes().windows(PART)) {
                let (at, tag) = parts.slot(word(part));
                if parts.slots[at].value == 0 {
                    parts.slots[at] = Slot { value, tag, offset };
                }
            }
        }
        Some(parts)
    }

    /// Where a part is in the table, or would be, and its tag. There is always a free slot.
    fn slot(&self, part: u128) -> (usize, u8) {
        let (high, low) = ((part >> 64) as u64, part as u64);
        let product = u128::from(high ^ self.key[0]) * u128::from(low ^ self.key[1]);
        let hash = (product >> 64) as u64 ^ product as u64;
        let (mask, tag) = (self.slots.len() - 1, (hash >> 56) as u8);
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot.value == 0 || slot.tag == tag && self.part(slot) == part {
                return (at, tag);
            }
            at = (at + 1) & mask;
        }
    }

    fn part(&self, Slot { value, offset, .. }: Slot) -> u128 {
        word(&self.values[usize::from(value) - 1].text.as_bytes()[usize::from(offset)..][..PART])
    }

    /// Notes where parts are, with the number of their value. Those of one value that overlap or touch are one.
    pub(super) fn search(&self, message: &[u8], note: &mut impl FnMut(Range<usize>, usize)) {
        let mut run: Option<(Range<usize>, u8)> = None;
        for (at, part) in message.windows(PART).enumerate() {
            let Slot { value, .. } = self.slots[self.slot(word(part)).0];
            if value == 0 {
                continue;
            }
            match &mut run {
                Some((range, of)) if *of == value && at <= range.end => range.end = at + PART,
                _ => {
                    if let Some((range, of)) = run.replace((at..at + PART, value)) {
                        note(range, usize::from(of) - 1);
                    }
                }
            }
        }
        if let Some((range, of)) = run {
            note(range, usize::from(of) - 1);
        }
    }
}

/// 16 bytes as one.
fn word(part: &[u8]) -> u128 {
    part.try_into().map_or(0, u128::from_le_bytes)
}
