//! Values and their bytes, whole and damaged.

use std::fmt::Debug;

use proptest::prelude::*;

use super::*;
use crate::clock;

/// One of each.
#[derive(Clone, Debug, PartialEq)]
struct Everything {
    octets: [u8; 3],
    number: u32,
    signed: i32,
    long: u64,
    size: usize,
    is_so: bool,
    bytes: Vec<u8>,
    shared: Arc<[u8]>,
    text: Box<str>,
    shared_text: Arc<str>,
    maybe: Option<Box<Choice>>,
    since: Instant,
    scratch: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq)]
enum Choice {
    Neither,
    One(u8),
    Both { left: u32, right: Option<u64> },
}

carried! {
    struct Everything {
        octets, number, signed, long, size, is_so, bytes, shared, text, shared_text, maybe, since,
    }
    fresh { scratch: vec![] }
    if is_sound
}

carried! { enum Choice { 0 Neither, 1 One(one: u8), 2 Both { left: u32, right: Option<u64> } } }

impl Everything {
    fn is_sound(&self) -> bool {
        self.octets[0] < 200
    }
}

/// A value from the bytes of another one.
pub(crate) fn carried_over<T: Carry>(value: &T) -> Result<T, Unreadable> {
    let now = clock::now();
    read(&write(value, now), now)
}

fn write<T: Carry>(value: &T, now: Instant) -> Vec<u8> {
    let mut into = Writer::new(T::LAYOUT, now);
    value.write(&mut into);
    into.finish()
}

fn read<T: Carry>(bytes: &[u8], now: Instant) -> Result<T, Unreadable> {
    let mut from = Reader::open(bytes, T::LAYOUT, now)?;
    let value = T::read(&mut from)?;
    from.end().map(|()| value)
}

fn everything(now: Instant) -> impl Strategy<Value = Everything> {
    let choice = prop_oneof![
        Just(Choice::Neither),
        any::<u8>().prop_map(Choice::One),
        any::<(u32, Option<u64>)>().prop_map(|(left, right)| Choice::Both { left, right }),
    ];
    let numbers = (any::<[u8; 3]>(), any::<(u32, i32, u64, bool)>(), 0..1_000_000_u64);
    (numbers, any::<Vec<u8>>(), "\\PC{0,9}", prop::option::of(choice)).prop_map(
        move |((mut octets, (number, signed, long, is_so), age), bytes, text, choice)| {
            octets[0] %= 200;
            Everything {
                octets,
                number,
                signed,
                long,
                size: bytes.len(),
                is_so,
                shared: bytes.as_slice().into(),
                shared_text: text.as_str().into(),
                text: text.into(),
                bytes,
                maybe: choice.map(Box::new),
                since: now - Duration::from_micros(age),
                scratch: vec![],
            }
        },
    )
}

proptest! {
    #[test]
    fn what_was_written_is_read(value in everything(clock::now()), pause in 0..1_000_u64) {
        let now = clock::now();
        let later = now + Duration::from_secs(pause);
        let bytes = write(&value, now);
        prop_assert_eq!(read(&bytes, now), Ok(value.clone()));
        // By a clock that counts otherwise, times are as long ago as they were.
        let since = value.since + (later - now);
        prop_assert_eq!(read(&bytes, later), Ok(Everything { since, ..value.clone() }));
        let kept = Everything { scratch: vec![1], ..value.clone() };
        prop_assert_eq!(read(&write(&kept, now), now), Ok(value));
    }

    #[test]
    fn whatever_becomes_of_the_bytes_they_are_refused(
        value in everything(clock::now()),
        at: prop::sample::Index,
        other in 1u8..,
        more in prop::collection::vec(any::<u8>(), 1..20),
    ) {
        let now = clock::now();
        let bytes = write(&value, now);
        let mut changed = bytes.clone();
        changed[at.index(bytes.len())] ^= other;
        let cut = &bytes[..at.index(bytes.len())];
        for damaged in [&changed, cut, &[&bytes, &*more].concat()] {
            prop_assert!(read::<Everything>(damaged, now).is_err());
        }
    }

    #[test]
    fn no_bytes_with_a_checksum_of_their_own_panic_or_allocate_more_than_there_are(
        noise in prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255), any::<u8>()], 0..200),
    ) {
        let now = clock::now();
        let mut into = Writer::new(Everything::LAYOUT, now);
        into.push(&noise);
        if let Ok(value) = read::<Everything>(&into.finish(), now) {
            prop_assert!(value.bytes.capacity() + value.shared.len() + value.text.len() <= noise.len());
        }
    }
}

#[test]
fn lengths_beyond_the_end_and_unknown_tags_are_refused() {
    fn refuses<T: Carry + Debug>(bytes: &[u8]) {
        let now = clock::now();
        let mut into = Writer::new(T::LAYOUT, now);
        into.push(bytes);
        assert_eq!(read::<T>(&into.finish(), now).unwrap_err(), Unreadable::Damaged, "{bytes:?}");
    }
    let endless = &u64::MAX.to_le_bytes();
    refuses::<Vec<u8>>(endless);
    refuses::<Arc<[u8]>>(&[2, 0, 0, 0, 0, 0, 0, 0, 1]);
    refuses::<Box<str>>(&[1, 0, 0, 0, 0, 0, 0, 0, 0xff]);
    refuses::<bool>(&[2]);
    refuses::<Option<u8>>(&[1]);
    refuses::<Choice>(&[3]);
    refuses::<u32>(&[0, 0, 0]);
}

/// Types that differ from [`Choice`] or from each other in one thing each.
mod others {
    #[derive(Debug)]
    pub(super) struct Pair {
        pub(super) left: u32,
        pub(super) right: u32,
    }
    pub(super) mod renamed {
        #[derive(Debug)]
        pub(in super::super) struct Pair {
            pub(in super::super) left: u32,
            pub(in super::super) write: u32,
        }
        carried! { struct Pair { left, write } }
    }
    pub(super) mod retyped {
        #[derive(Debug)]
        pub(in super::super) struct Pair {
            pub(in super::super) left: u32,
            pub(in super::super) right: i32,
        }
        carried! { struct Pair { left, right } }
    }
    pub(super) mod deep {
        #[derive(Debug)]
        pub(in super::super) struct Pair {
            pub(in super::super) left: Option<super::Pair>,
        }
        carried! { struct Pair { left } }
    }
    pub(super) mod deeper {
        #[derive(Debug)]
        pub(in super::super) struct Pair {
            pub(in super::super) left: Option<super::retyped::Pair>,
        }
        carried! { struct Pair { left } }
    }
    carried! { struct Pair { left, right } }
}

#[test]
fn a_layout_changes_with_names_types_and_what_is_within() {
    use others::{Pair, deep, deeper, renamed, retyped};
    let layouts = [
        Pair::LAYOUT,
        renamed::Pair::LAYOUT,
        retyped::Pair::LAYOUT,
        deep::Pair::LAYOUT,
        deeper::Pair::LAYOUT,
    ];
    for (at, layout) in layouts.iter().enumerate() {
        assert!(!layouts[..at].contains(layout), "{at}");
    }
    let now = clock::now();
    let bytes = write(&Pair { left: 1, right: 2 }, now);
    assert_eq!(read::<renamed::Pair>(&bytes, now).unwrap_err(), Unreadable::OtherLayout);
}
