//! Any bytes as what a process leaves of a tap: they are refused, or the tap goes on with whatever comes.
//!
//! The input: how many bytes are the tap's, in two bytes; these; what the client and the runtime send then, halves each.

#![no_main]

use std::sync::Arc;

use criprobe::{
    carry::Writer,
    clock,
    ids::ConnId,
    peer::Peer,
    tap::{Boundary, Tap},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((length, rest)) = input.split_first_chunk() else { return };
    let (left, sent) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes(*length))));
    let now = clock::now();
    let mut into = Writer::new(Tap::LAYOUT, now);
    into.push(left);
    let (up, down) = sent.split_at(sent.len() / 2);
    let resumed =
        Tap::resume(&Arc::default(), ConnId(1), Arc::new(Peer::default()), &into.finish(), now, |_| {});
    if let Ok(mut tap) = resumed {
        // What was taken over can be left again.
        let again = tap.carry(now);
        let peer = Arc::new(Peer::default());
        let is_blind = Tap::resume(&Arc::default(), ConnId(1), peer, &again, now, |_| {})
            .expect("a tap reads what a tap has written")
            .blindness();
        assert_eq!(is_blind, tap.blindness());
        tap.client_bytes(up, now, |_| {});
        tap.runtime_bytes(down, now, |_| {});
        let _ = (tap.between_answers(), tap.open_methods(), format!("{tap:?}"));
        tap.closed(now, |_| {});
    }
    if let Some(mut boundary) = left.first_chunk().copied().and_then(Boundary::decode) {
        boundary.pass(sent);
        let _ = boundary.is_between_frames();
    }
});
