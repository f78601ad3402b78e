//! Any bytes of both sides in any order: the tap survives them, reports each call in order, and the same in other
//! pieces.
//!
//! The input is a script: a byte that says which side speaks (lowest bit) and how it starts (the next: with what opens
//! a connection), a byte of length, and that many bytes; again until it ends.

#![no_main]

use std::{collections::HashSet, sync::Arc};

use criprobe::{
    clock,
    ids::ConnId,
    peer::Peer,
    tap::{Tap, TapEvent},
};
use libfuzzer_sys::fuzz_target;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

fuzz_target!(|script: &[u8]| {
    let steps = steps(script);
    let whole = reported(&steps, usize::MAX);
    let pieces = reported(&steps, 1 + script.len() % 7);
    assert_eq!(whole, pieces, "what is reported depends on the pieces");
});

/// What each side says, in order.
fn steps(mut script: &[u8]) -> Vec<(bool, Vec<u8>)> {
    let mut steps = vec![];
    while let [side, length, rest @ ..] = script {
        let is_client = side & 1 == 0;
        let (bytes, after) = rest.split_at(usize::from(*length).min(rest.len()));
        if side & 2 != 0 {
            steps.push((is_client, if is_client { [PREFACE, SETTINGS].concat() } else { SETTINGS.to_vec() }));
        }
        steps.push((is_client, bytes.to_vec()));
        script = after;
    }
    steps
}

/// What a tap reports of it, fed in pieces of that size.
fn reported(steps: &[(bool, Vec<u8>)], piece: usize) -> Vec<String> {
    let mut tap = Tap::new(ConnId(1), Arc::new(Peer::default()));
    let mut reported = Reported::default();
    for (is_client, bytes) in steps {
        for bytes in bytes.chunks(piece) {
            if *is_client {
                tap.client_bytes(bytes, clock::now(), |event| reported.take(&event));
            } else {
                tap.runtime_bytes(bytes, clock::now(), |event| reported.take(&event));
            }
            let _ = (tap.between_answers(), tap.open_methods(), format!("{tap:?}"));
        }
    }
    tap.closed(clock::now(), |event| reported.take(&event));
    assert!(reported.begun.is_subset(&reported.ended), "what began also ended");
    reported.lines
}

#[derive(Default)]
struct Reported {
    lines: Vec<String>,
    begun: HashSet<u32>,
    ended: HashSet<u32>,
    is_blind: bool,
}

impl Reported {
    fn take(&mut self, event: &TapEvent) {
        assert!(!self.is_blind || matches!(event, TapEvent::Closed { .. }), "a blind tap is silent");
        self.lines.push(match event {
            TapEvent::Begun(call) => {
                assert!(self.begun.insert(call.stream) && !self.ended.contains(&call.stream));
                format!(
                    "{} begun {} {} {}",
                    call.stream,
                    call.method.name,
                    call.request_bytes,
                    event.weight()
                )
            }
            TapEvent::Ended(ended) => {
                let stream = ended.call.stream;
                assert!(self.ended.insert(stream), "a call ends once");
                let (end, code, message) = (ended.end, ended.code, &ended.message);
                assert!(message.len() <= criprobe::tap::call::MAX_MESSAGE);
                format!("{stream} {end:?} {code:?} {message} {} {:?}", ended.response_bytes, ended.response)
            }
            TapEvent::Blinded { reason, .. } => {
                self.is_blind = true;
                format!("blinded: {reason}")
            }
            TapEvent::Resumed(_) => panic!("nothing was carried"),
            TapEvent::Untracked(count) => format!("untracked {count}"),
            TapEvent::Closed { .. } => "closed".to_owned(),
        });
    }
}
