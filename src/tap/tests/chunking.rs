//! Properties: what is reported does not depend on how bytes are cut, and no bytes are too strange.

use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
};

use super::{wire::*, *};

/// Every form of frame and end in one connection.
pub(super) fn long_conversation() -> Vec<Step> {
    conversation(|wire| {
        wire.settings(From::Runtime, &[(1, 8192), (5, 20_000)]);
        wire.settings(From::Client, &[(1, 0)]);
        wire.frame(From::Runtime, SETTINGS, ACK, 0, &[]);
        wire.request(1, VERSION, b"0.1.0");
        let update = wire.resize(From::Runtime, 0);
        let block = wire.block(From::Runtime, &[(":status", "200"), ("content-type", "application/grpc")]);
        wire.frame(From::Runtime, HEADERS, END_HEADERS, 1, &[update, block].concat());
        wire.data(From::Runtime, 1, &framed(b"containerd"), 0);
        wire.trailers(1, "0", "");
        wire.reset(From::Runtime, 1, NO_ERROR);
        // Two at once, one padded, one in many frames.
        let create = "/runtime.v1.RuntimeService/CreateContainer";
        wire.head(3, create, 0);
        let block = wire.block(From::Client, &[(":path", EXEC_SYNC), ("user-agent", "\u{e9}")]);
        wire.frame(
            From::Client,
            HEADERS,
            PADDED | PRIORITY,
            5,
            &[&[2, 0, 0, 0, 0, 9], &block[..2], &[0; 2]].concat(),
        );
        wire.frame(From::Client, CONTINUATION, 0, 5, &block[2..3]);
        wire.frame(From::Client, CONTINUATION, 0, 5, &[]);
        wire.frame(From::Client, CONTINUATION, END_HEADERS, 5, &block[3..]);
        let exec = framed(b"\x0a\x02c1\x12\x02ls\x18\x01");
        wire.data(From::Client, 5, &[&[2], &exec[..3], &[0; 2]].concat(), PADDED);
        let created = framed(b"\x0a\x02s1\x12\x00");
        wire.data(From::Client, 3, &created[..6], 0);
        wire.data(From::Client, 5, &exec[3..], END_STREAM);
        wire.data(From::Client, 3, &created[6..], 0);
        wire.data(From::Client, 3, &[], END_STREAM);
        wire.answer_head(5);
        wire.answer(3, b"\x0a\x02c1");
        let output = framed(&[&[0x0a, 0x90, 0x03][..], &[b'o'; 400], &[0x18, 2]].concat());
        wire.data(From::Runtime, 5, &output[..200], 0);
        wire.data(From::Runtime, 5, &output[200..], 0);
        wire.trailers(5, "0", "");
        wire.request(7, START, b"\x0a\x02c1");
        wire.headers(From::Runtime, 7, &[("grpc-status", "5"), ("grpc-message", "no %22c1%22")], END_STREAM);
        wire.request(9, EXEC_SYNC, b"\x0a\x02c1");
        wire.reset(From::Client, 9, CANCEL);
        wire.answer(9, b"");
        wire.request(11, START, b"\x0a\x02c2");
        wire.request(13, START, b"\x0a\x02c3");
        wire.go_away(From::Runtime, 11);
        wire.frame(From::Client, 6, 0, 0, &[0; 8]);
    })
}

/// The same bytes in other pieces. Each direction stays in order; where one step was passed on before another of the
/// other direction, all of it still is.
fn recut(steps: &[Step], piece: usize) -> Vec<Step> {
    let pieces = |step: &Step| {
        let from = step.from;
        step.bytes.chunks(piece).map(|bytes| Step { from, bytes: bytes.to_vec() }).collect::<Vec<_>>()
    };
    steps.iter().flat_map(pieces).collect()
}

/// Neighbours of one direction put together: as few pieces as there can be.
pub(super) fn join(steps: &[Step]) -> Vec<Step> {
    let mut joined: Vec<Step> = vec![];
    for step in steps {
        match joined.last_mut() {
            Some(last) if last.from == step.from => last.bytes.extend(&step.bytes),
            _ => joined.push(step.clone()),
        }
    }
    joined
}

/// Cuts every step in two at every position, one after another, and in pieces of every size up to 40 bytes.
pub(super) fn check_every_cut(steps: &[Step]) {
    let reported = watch_all(steps).lines();
    assert_eq!(watch_all(&join(steps)).lines(), reported, "joined");
    for piece in 1..40 {
        assert_eq!(watch_all(&recut(steps, piece)).lines(), reported, "in pieces of {piece}");
    }
    let joined = join(steps);
    for at in 0..joined.len() {
        for cut in 1..joined[at].bytes.len() {
            let mut steps = joined.clone();
            let tail = steps[at].bytes.split_off(cut);
            let from = steps[at].from;
            steps.insert(at + 1, Step { from, bytes: tail });
            assert_eq!(watch_all(&steps).lines(), reported, "step {at} cut at {cut}");
        }
    }
}

#[test]
fn frames_cut_at_every_position_tell_the_same_calls() {
    let steps = long_conversation();
    assert_eq!(
        watch_all(&steps).lines(),
        [
            "1 Version begun Skipped",
            "1 Version complete OK 5+10 B Skipped",
            "5 ExecSync begun ExecSync(\"c1\": [\"ls\"], 1)",
            "3 CreateContainer begun in s1: , image , env []",
            "3 CreateContainer complete OK 6+4 B Container(\"c1\")",
            "5 ExecSync complete OK 10+405 B Exec(exit 2 (400 + 0 bytes))",
            "7 StartContainer begun StartContainer(\"c1\")",
            "7 StartContainer complete NotFound \"no \\\"c1\\\"\" 4+0 B Skipped",
            "9 ExecSync begun ExecSync(\"c1\": [], 0)",
            "9 ExecSync cancelled 4+0 B Skipped",
            "11 StartContainer begun StartContainer(\"c2\")",
            "13 StartContainer begun StartContainer(\"c3\")",
            "13 StartContainer reset 4+0 B Skipped",
            "11 StartContainer lost 4+0 B Skipped",
            "closed",
        ]
    );
    check_every_cut(&steps);
}

/// What one call does, for random connections.
#[derive(Clone, Debug)]
struct Course {
    method: &'static str,
    request: Vec<u8>,
    /// Messages, and whether the last comes with trailers.
    answer: Vec<Vec<u8>>,
    end: u8,
}

fn course() -> impl Strategy<Value = Course> {
    let methods = ["Version", "ExecSync", "CreateContainer", "StartContainer", "Exec", "ListContainers"];
    (select(methods.to_vec()), vec(any::<u8>(), 0..60), vec(vec(any::<u8>(), 0..90), 0..4), 0..6_u8)
        .prop_map(|(method, request, answer, end)| Course { method, request, answer, end })
}

/// The frames of one call, side and bytes each; header blocks are left to the moment when they are sent.
fn play(wire: &mut Wire, stream: u32, course: &Course, step: usize) -> bool {
    let steps = course.answer.len() + 3;
    let path = format!("/runtime.v1.RuntimeService/{}", course.method);
    match step {
        0 => wire.head(stream, &path, 0),
        1 if course.end == 5 => wire.reset(From::Client, stream, CANCEL),
        1 => {
            let bytes = framed(&course.request);
            wire.data(From::Client, stream, &bytes[..bytes.len() / 2], 0);
            wire.data(From::Client, stream, &bytes[bytes.len() / 2..], END_STREAM);
        }
        2 => wire.answer_head(stream),
        step if step < steps => wire.data(From::Runtime, stream, &framed(&course.answer[step - 3]), 0),
        step if step == steps => match course.end {
            0 => wire.reset(From::Client, stream, CANCEL),
            1 => wire.reset(From::Runtime, stream, CANCEL),
            2 => wire.trailers(stream, "4", "late"),
            3 => {}
            _ => wire.trailers(stream, "0", ""),
        },
        _ => return false,
    }
    true
}

/// A connection of random calls, interleaved at random.
pub(super) fn random_conversation() -> impl Strategy<Value = Vec<Step>> {
    (vec(course(), 1..8), vec(any::<Index>(), 0..80)).prop_map(|(courses, turns)| {
        conversation(|wire| {
            let mut at = vec![0; courses.len()];
            for turn in turns {
                let call = turn.index(courses.len());
                // Streams open in the order of their numbers.
                let call =
                    if at[call] == 0 { at.iter().position(|&step| step == 0).unwrap_or(call) } else { call };
                play(wire, 2 * call as u32 + 1, &courses[call], at[call]);
                at[call] += 1;
            }
        })
    })
}

/// A change to some bytes.
#[derive(Clone, Debug)]
enum Harm {
    Set(Index, Index, u8),
    Remove(Index, Index),
    Insert(Index, Index, Vec<u8>),
    Repeat(Index),
    Swap(Index, Index),
}

fn harm() -> impl Strategy<Value = Harm> {
    let places = || (any::<Index>(), any::<Index>());
    prop_oneof![
        (places(), any::<u8>()).prop_map(|((step, at), byte)| Harm::Set(step, at, byte)),
        places().prop_map(|(step, at)| Harm::Remove(step, at)),
        (places(), vec(any::<u8>(), 1..20)).prop_map(|((step, at), bytes)| Harm::Insert(step, at, bytes)),
        any::<Index>().prop_map(Harm::Repeat),
        places().prop_map(|(one, other)| Harm::Swap(one, other)),
    ]
}

fn apply(steps: &mut Vec<Step>, harm: Harm) {
    let count = steps.len();
    match harm {
        Harm::Set(step, at, byte) => {
            let bytes = &mut steps[step.index(count)].bytes;
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        Harm::Remove(step, at) => {
            let bytes = &mut steps[step.index(count)].bytes;
            if !bytes.is_empty() {
                bytes.remove(at.index(bytes.len()));
            }
        }
        Harm::Insert(step, at, more) => {
            let bytes = &mut steps[step.index(count)].bytes;
            let at = at.index(bytes.len() + 1);
            bytes.splice(at..at, more);
        }
        Harm::Repeat(step) => {
            let step = step.index(count);
            steps.insert(step, steps[step].clone());
        }
        Harm::Swap(one, other) => steps.swap(one.index(count), other.index(count)),
    }
}

/// Each call is reported once or twice, in order, and nothing after the tap went blind but the connection's end.
fn check_order(events: &[TapEvent]) -> Result<(), TestCaseError> {
    let mut begun = std::collections::HashSet::new();
    let mut ended = std::collections::HashSet::new();
    let mut is_blind = false;
    for event in events {
        let is_closed = matches!(event, TapEvent::Closed { .. });
        prop_assert!(!is_blind || is_closed);
        match event {
            TapEvent::Begun(call) => prop_assert!(!ended.contains(&call.stream) && begun.insert(call.stream)),
            TapEvent::Ended(call) => prop_assert!(ended.insert(call.call.stream)),
            TapEvent::Blinded { .. } => is_blind = true,
            TapEvent::Resumed(_) => prop_assert!(false, "nothing was carried"),
            TapEvent::Untracked(_) | TapEvent::Closed { .. } => {}
        }
    }
    prop_assert!(begun.is_subset(&ended), "what began also ended");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_is_told_does_not_depend_on_the_pieces(
        steps in random_conversation(),
        sizes in vec(1..200_usize, 1..20),
    ) {
        let reported = watch_all(&steps);
        check_order(&reported.events)?;
        let mut sizes = sizes.iter().cycle();
        let mut pieces = vec![];
        for Step { from, bytes } in join(&steps) {
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
                pieces.push(Step { from, bytes: piece.to_vec() });
                rest = after;
            }
        }
        prop_assert_eq!(watch_all(&pieces).lines(), reported.lines());
    }

    #[test]
    fn harmed_bytes_are_survived_and_told_in_order(
        harms in vec(harm(), 1..6),
        piece in 1..200_usize,
    ) {
        let mut steps = long_conversation();
        for harm in harms {
            apply(&mut steps, harm);
        }
        let reported = watch_all(&steps);
        check_order(&reported.events)?;
        prop_assert_eq!(watch_all(&recut(&steps, piece)).lines(), reported.lines());
        prop_assert_eq!(reported.tap.open_calls(), 0);
    }

    #[test]
    fn random_bytes_are_survived(steps in vec((any::<bool>(), vec(any::<u8>(), 0..300)), 0..20), is_opened: bool) {
        let mut all = if is_opened { conversation(|wire| wire.request(1, VERSION, b"")) } else { vec![] };
        all.extend(steps.into_iter().map(|(is_client, bytes)| {
            Step { from: if is_client { From::Client } else { From::Runtime }, bytes }
        }));
        check_order(&watch_all(&all).events)?;
    }
}
