//! Real connections, recorded by `tests/tools/record.py`, in any pieces.

use super::{
    chunking::{check_every_cut, join},
    wire::*,
    *,
};

/// Who talked to containerd 1.6, and the bytes.
pub(super) const RECORDINGS: [(&str, &[u8]); 4] = [
    ("grpcgo", include_bytes!("../../../tests/data/recordings/grpcgo.rec")),
    ("grpcio", include_bytes!("../../../tests/data/recordings/grpcio.rec")),
    ("tonic", include_bytes!("../../../tests/data/recordings/tonic.rec")),
    ("ctr", include_bytes!("../../../tests/data/recordings/ctr.rec")),
];

/// The chunks of a recording, in the format that the recorder describes.
pub(super) fn read(recording: &[u8]) -> Vec<Step> {
    let head = recording.windows(2).position(|two| two == b"\n\n").expect("a recording has a head") + 2;
    let mut rest = &recording[head..];
    let mut steps = vec![];
    while let [from, a, b, c, d, tail @ ..] = rest {
        let (bytes, after) = tail.split_at(u32::from_be_bytes([*a, *b, *c, *d]) as usize);
        let from = match from {
            b'C' => From::Client,
            b'R' => From::Runtime,
            _ => panic!("no side is called {from}"),
        };
        steps.push(Step { from, bytes: bytes.to_vec() });
        rest = after;
    }
    assert!(rest.is_empty(), "a recording ends with a chunk");
    steps
}

#[test]
fn recorded_calls_are_told_as_they_were() {
    for (name, recording) in RECORDINGS {
        let reported = watch_all(&read(recording));
        let mut agents: Vec<_> = reported
            .events
            .iter()
            .filter_map(|event| match event {
                TapEvent::Ended(ended) => Some(ended.call.origin.user_agent.to_string()),
                _ => None,
            })
            .collect();
        agents.dedup();
        let text = format!("user agents: {}\n\n{}\n", agents.join(", "), reported.lines().join("\n"));
        insta::with_settings!({ snapshot_path => "snapshots", prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!(name, text);
        });
        assert_eq!(reported.tap.blindness(), None, "{name}");
        assert!(!text.contains("not-a-real-one"), "{name}: the value of a variable shows");
    }
}

#[test]
fn recordings_cut_at_every_position_tell_the_same_calls() {
    for (_, recording) in RECORDINGS {
        let steps = read(recording);
        // Each of thousands of positions is a run of the whole, so only the beginning is cut at each; feeding byte by
        // byte below covers the rest.
        check_every_cut(&steps[..steps.len().min(24)]);
        let reported = watch_all(&steps).lines();
        let joined = join(&steps);
        for piece in [1, 2, 3, 7, 9, 64, 1000] {
            let pieces: Vec<_> = joined
                .iter()
                .flat_map(|step| {
                    step.bytes.chunks(piece).map(|bytes| Step { from: step.from, bytes: bytes.to_vec() })
                })
                .collect();
            assert_eq!(watch_all(&pieces).lines(), reported, "in pieces of {piece}");
        }
    }
}
