//! What a process leaves of a tap, at any byte of any conversation, and damaged in any way: it is refused, or the tap goes on
//! with whatever comes. What is not damaged is never refused, and no call is missing or reported twice.
//!
//! The input: after how many bytes the tap is left, in two bytes; how many damages there are, in one; each of these: a place
//! in two bytes, and what changes there (0: all from there on is cut off); and a script as in fuzz_targets/tap.rs.

#![no_main]

use std::{sync::Arc, time::Instant};

use criprobe::{
    carry::{Unreadable, Writer},
    clock,
    ids::ConnId,
    peer::Peer,
    tap::{Boundary, Tap, TapEvent},
};
use libfuzzer_sys::fuzz_target;

/// Layout and checksum, which are right here.
const HEAD: usize = 16;

/// Whether the client says it, and what.
type Step<'a> = (bool, &'a [u8]);

/// Calls that began, and that ended.
type Counts = (usize, usize);

fuzz_target!(|input: &[u8]| {
    let Some((&[low, high, count], rest)) = input.split_first_chunk() else { return };
    let (damages, script) = rest.split_at(rest.len().min(3 * usize::from(count)));
    let (at, now) = (usize::from(u16::from_le_bytes([low, high])), clock::now());
    let (before, after) = cut(script, at);
    let mut counts = Counts::default();
    let mut tap = Tap::new(ConnId(1), Arc::new(Peer::default()));
    feed(&mut tap, &before, now, &mut counts);

    let mut left = tap.carry(now);
    damage(&mut left, damages);
    let mut into = Writer::new(Tap::LAYOUT, now);
    into.push(&left[HEAD..]);
    match resume(&into.finish(), now) {
        Err(error) => assert!(!damages.is_empty(), "{error}"),
        Ok(mut resumed) => {
            // What was taken over can be left again.
            let again = resume(&resumed.carry(now), now).expect("a tap reads what a tap has written");
            assert_eq!(again.blindness(), resumed.blindness());
            let mut resumed_counts = counts;
            feed(&mut resumed, &after, now, &mut resumed_counts);
            resumed.closed(now, |event| count_event(&event, &mut resumed_counts));
            feed(&mut tap, &after, now, &mut counts);
            tap.closed(now, |event| count_event(&event, &mut counts));
            assert!(!damages.is_empty() || counts == resumed_counts, "{counts:?}, {resumed_counts:?}");
        }
    }
    if let Some(mut boundary) = script.first_chunk().copied().and_then(Boundary::decode) {
        boundary.pass(script);
        let _ = boundary.is_between_frames();
    }
});

/// What each side says before so many bytes, and after.
fn cut(mut script: &[u8], at: usize) -> (Vec<Step<'_>>, Vec<Step<'_>>) {
    let (mut before, mut after, mut left) = (vec![], vec![], at);
    while let [side, length, rest @ ..] = script {
        let (bytes, others) = rest.split_at(usize::from(*length).min(rest.len()));
        let (first, second) = bytes.split_at(bytes.len().min(left));
        left -= first.len();
        before.push((side & 1 == 0, first));
        after.push((side & 1 == 0, second));
        script = others;
    }
    (before, after)
}

fn feed(tap: &mut Tap, steps: &[Step<'_>], now: Instant, counts: &mut Counts) {
    for (is_client, bytes) in steps {
        if *is_client {
            tap.client_bytes(bytes, now, |event| count_event(&event, counts));
        } else {
            tap.runtime_bytes(bytes, now, |event| count_event(&event, counts));
        }
        let _ = (tap.between_answers(), tap.open_methods(), format!("{tap:?}"));
    }
}

fn count_event(event: &TapEvent, counts: &mut Counts) {
    match event {
        TapEvent::Begun(_) => counts.0 += 1,
        TapEvent::Ended(_) => counts.1 += 1,
        _ => {}
    }
}

fn damage(left: &mut Vec<u8>, damages: &[u8]) {
    for damage in damages.chunks_exact(3) {
        let length = left.len() - HEAD;
        let place = HEAD + usize::from(u16::from_le_bytes([damage[0], damage[1]])) % length.max(1);
        match damage[2] {
            0 => left.truncate(place),
            change => left.get_mut(place).into_iter().for_each(|byte| *byte ^= change),
        }
    }
}

fn resume(left: &[u8], now: Instant) -> Result<Tap, Unreadable> {
    Tap::resume(&Arc::default(), ConnId(1), Arc::new(Peer::default()), left, now, |_| {})
}
