//! Calls that hang, of any kind and size: each other call is decoded all the same.

use proptest::{collection::vec, prelude::*, sample::select};

use super::{wire::*, *};

/// What may be kept of all calls that hang here, with the frames' own buffers.
const MOST: usize = 6 << 20;

fn path(method: &str) -> String {
    format!("/runtime.v1.RuntimeService/{method}")
}

/// A message with an id, and as many bytes in the field of that key.
fn message(key: u8, size: usize) -> Vec<u8> {
    let mut message = vec![0x0a, 1, b'c', key];
    prost::encode_length_delimiter(size, &mut message).unwrap();
    message.resize(message.len() + size, b'x');
    message
}

/// Every call that is decoded, from that stream on, and how it reads.
fn others(reported: &mut Reported, first: u32) -> Vec<String> {
    let id = b"\x0a\x01c";
    let command = b"\x0a\x01c\x12\x02ls\x18\x01";
    let methods = [
        "StopContainer",
        "StopPodSandbox",
        "RemoveContainer",
        "RemovePodSandbox",
        "StartContainer",
        "CreateContainer",
        "RunPodSandbox",
        "ExecSync",
    ];
    reported.events.clear();
    let mut wire = Wire::unopened();
    for (at, method) in methods.into_iter().enumerate() {
        let message = match method {
            "RunPodSandbox" => &b"\x0a\x02\x0a\x00"[..],
            "ExecSync" => command,
            _ => id,
        };
        wire.head(first + 2 * at as u32, &path(method), 0);
        wire.data(From::Client, first + 2 * at as u32, &framed(message), END_STREAM);
    }
    show(reported, &wire.steps);
    reported
        .lines()
        .into_iter()
        .filter(|line| line.ends_with("Undecoded") || !line.contains(" begun "))
        .collect()
}

#[test]
fn commands_of_any_size_that_hang_leave_each_other_call_decoded() {
    let mut reported = watch(&conversation(|wire| {
        wire.settings(From::Runtime, &[(5, 1 << 23)]);
        for (at, size) in [350_000; 12].into_iter().chain([20_000; 200]).chain([4_000_000]).enumerate() {
            wire.request(2 * at as u32 + 1, EXEC_SYNC, &message(0x12, size));
        }
    }));
    assert!(reported.lines().iter().all(|line| !line.ends_with("Undecoded")));
    assert!(kept(&reported.tap) <= MOST, "{}", kept(&reported.tap));
    assert_eq!(others(&mut reported, 1001), [""; 0]);
}

#[test]
fn of_a_long_command_all_that_is_ever_shown_is_read() {
    let mut reported = watch(&conversation(|wire| {
        wire.settings(From::Runtime, &[(5, 1 << 23)]);
        let message = [&message(0x12, 2_000_000), &b"\x12\x03end\x18\x07"[..]].concat();
        wire.request(1, EXEC_SYNC, &message);
        wire.answer(1, b"\x18\x02");
    }));
    let Some(TapEvent::Ended(ended)) = reported.events.pop() else { panic!("{:?}", reported.lines()) };
    let CriRequest::ExecSync(command) = &ended.call.request else { panic!("{:?}", ended.call.request) };
    assert_eq!((command.container(), command.timeout_seconds()), ("c", 7));
    let words: Vec<_> = command.arguments().collect();
    assert!(words.len() == 1 && (4096..5000).contains(&words[0].len()), "{}", words.len());
    assert!(command.weight() > 4096, "it is not taken for a short one");
    assert_eq!(ended.call.request_bytes, 2_000_000 + 3 + 4 + 5 + 2);
}

/// A call that hangs: its method, the size of its request, how much of that arrives.
fn hanging() -> impl Strategy<Value = (&'static str, u8, usize, usize)> {
    let calls = vec![
        ("ExecSync", 0x12),
        ("Exec", 0x12),
        ("CreateContainer", 0x7a),
        ("RunPodSandbox", 0x7a),
        ("StartContainer", 0x7a),
        ("StopContainer", 0x7a),
        ("Attach", 0x7a),
        ("Version", 0x7a),
    ];
    let size = prop_oneof![0..700usize, 0..9_000usize, 0..1_000_000usize];
    (select(calls), size).prop_flat_map(|((method, key), size)| {
        (Just(method), Just(key), Just(size), prop_oneof![Just(usize::MAX), 0..=size + 12])
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn calls_that_hang_or_are_half_sent_leave_each_other_call_decoded_whatever_the_pieces(
        calls in vec(hanging(), 0..40),
        piece in 1_000..100_000_usize,
    ) {
        let steps = conversation(|wire| {
            wire.settings(From::Runtime, &[(5, 1 << 22)]);
            for (at, (method, key, size, sent)) in calls.iter().enumerate() {
                let stream = 2 * at as u32 + 1;
                wire.head(stream, &path(method), 0);
                let bytes = framed(&message(*key, *size));
                match bytes.get(..*sent) {
                    Some(part) => wire.data(From::Client, stream, part, 0),
                    None => wire.data(From::Client, stream, &bytes, END_STREAM),
                }
            }
        });
        let mut reported = watch(&steps);
        let mut cut = Reported { events: vec![], tap: tap() };
        for step in &steps {
            for bytes in step.bytes.chunks(piece) {
                show(&mut cut, &[Step { from: step.from, bytes: bytes.to_vec() }]);
                prop_assert!(kept(&cut.tap) <= MOST, "{}", kept(&cut.tap));
            }
        }
        prop_assert_eq!(others(&mut reported, 101), Vec::<String>::new());
        prop_assert_eq!(others(&mut cut, 101), Vec::<String>::new());
        let [whole, pieces] = [reported, cut].map(|Reported { mut events, mut tap }| {
            tap.closed(clock::now(), |event| events.push(event));
            Reported { events, tap }.lines()
        });
        prop_assert_eq!(whole, pieces);
    }
}
