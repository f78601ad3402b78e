//! The text's form, what is passed over, what is refused, and that no bytes do harm.

use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;

use super::*;
use crate::{
    prober::{
        fixtures::spec,
        state::{Definition, SavedErrors},
    },
    results::{Run, Verdict, errors::Errors},
};

fn key(pod: &str, kind: ProbeKind) -> ProbeKey {
    ProbeKey { pod: pod.into(), container: "app".into(), kind }
}

fn checkpoint() -> Checkpoint {
    Checkpoint {
        container: "c1".into(),
        definition: Definition::of(&spec(ProbeKind::Liveness)),
        verdict: Some(Verdict::Success),
        since: UNIX_EPOCH + Duration::from_millis(1_795_168_800_250),
        run: Run { verdict: Verdict::Failure, count: 2 },
        counts: Counts { success: 12, warning: 0, failure: 2, error: 1 },
        is_held: false,
        run_here: None,
        last: None,
        errors: None,
    }
}

fn paused(pod: &str) -> SavedProbe {
    let pause = Some((UNIX_EPOCH + Duration::from_secs(1_795_168_800)).into());
    SavedProbe { key: key(pod, ProbeKind::Readiness), pause, checkpoint: None }
}

#[test]
fn it_is_a_probe_a_line_the_paused_ones_first() {
    let working =
        SavedProbe { key: key("p1", ProbeKind::Liveness), pause: None, checkpoint: Some(checkpoint()) };
    let saved = Saved { probes: vec![working, paused("p2")] };
    let text = String::from_utf8(saved.to_json()).unwrap();
    insta::assert_snapshot!(text, @r#"
    {"version":1,"probes":[
    {"pod":"p2","container":"app","type":"readiness","pausedSince":"2026-11-20T10:00:00Z"},
    {"pod":"p1","container":"app","type":"liveness","stand":{"containerId":"c1","definition":"d66c45478d90ad6c","state":"success","since":"2026-11-20T10:00:00.25Z","run":{"result":"failure","count":2},"counts":{"success":12,"warning":0,"failure":2,"error":1},"held":false}}
    ]}
    "#);
    let read = Saved::from_json(text.as_bytes()).unwrap();
    assert_eq!(read.probes.into_iter().rev().collect::<Vec<_>>(), saved.probes);
    assert_eq!(Saved::from_json(&Saved::default().to_json()), Ok(Saved::default()));
}

#[test]
fn what_is_not_known_is_passed_over_and_what_is_not_meant_is_refused() {
    let probe = |fields: &str| format!(r#"{{"pod":"p","container":"c","type":"startup"{fields}}}"#);
    let checkpoint = |state: &str, result: &str| {
        probe(&format!(
            r#","stand":{{"containerId":"c1","definition":"00000000000000ff","state":{state},"since":"2026-11-20T10:00:00Z",
            "run":{{"result":"{result}","count":1}},"counts":{{"success":1,"warning":0,"failure":0,"error":0}},"held":true}}"#
        ))
    };
    let document = |probes: &str| format!(r#"{{"version":1,"savedBy":"x","probes":[{probes}]}}"#);
    let rows = [
        ("unknown fields", document(&probe(r#","mood":{"deep":[1]}"#)), Ok(1)),
        ("no verdict", document(&checkpoint("null", "success")), Ok(1)),
        ("a verdict", document(&checkpoint(r#""unknown""#, "failure")), Ok(1)),
        ("no such verdict", document(&checkpoint(r#""fine""#, "failure")), Err("damaged at line 1")),
        ("a run of nothing", document(&checkpoint("null", "unknown")), Err("damaged at line 2")),
        ("no such type", document(r#"{"pod":"p","container":"c","type":"x"}"#), Err("damaged at line 1")),
        ("no such time", document(&probe(r#","pausedSince":"soon""#)), Err("damaged at line 1")),
        ("half of it", document("")[..20].to_owned(), Err("damaged at line 1")),
        ("something after it", document("") + "{}", Err("damaged at line 1")),
        ("nothing", String::new(), Err("damaged at line 1")),
        ("another version", r#"{"version":2,"probes":{"by":"key"}}"#.to_owned(), Err("version 2")),
        ("no version", r#"{"probes":[]}"#.to_owned(), Err("damaged at line 1")),
        ("no depth", "[".repeat(100_000), Err("damaged at line 1")),
        ("too large", " ".repeat(MAX_BYTES + 1), Err("larger than 16 MiB")),
    ];
    for (what, text, expected) in rows {
        match (Saved::from_json(text.as_bytes()), expected) {
            (Ok(saved), Ok(probes)) => assert_eq!(saved.probes.len(), probes, "{what}"),
            (Err(error), Err(words)) => {
                assert!(error.to_string().contains(words), "{what}: {error}");
                assert!(error.to_string().len() < 80, "nothing of the text is repeated: {error}");
            }
            (found, expected) => panic!("{what}: {found:?} is not {expected:?}"),
        }
    }
}

#[test]
fn probes_beyond_the_bounds_are_refused_when_read_and_left_out_when_written() {
    let many = |pods: usize| (0..pods).map(|pod| paused(&pod.to_string())).collect::<Vec<_>>();
    let lines: Vec<_> = many(MAX_PROBES + 1)
        .iter()
        .map(|probe| {
            serde_json::to_string(&Line::from(probe))
                .unwrap()
                .replace("2026-11-20T10:00:00Z", "2026-11-20T10Z")
        })
        .map(|line| line.replace(r#","pausedSince":"2026-11-20T10Z""#, ""))
        .collect();
    let document = |lines: &[String]| format!(r#"{{"version":1,"probes":[{}]}}"#, lines.join(","));
    assert_eq!(Saved::from_json(document(&lines[1..]).as_bytes()).unwrap().probes.len(), MAX_PROBES);
    assert!(matches!(Saved::from_json(document(&lines).as_bytes()), Err(SavedError::Damaged { .. })));

    let written = Saved { probes: many(MAX_PROBES + 1) }.to_json();
    assert_eq!(Saved::from_json(&written).unwrap().probes.len(), MAX_PROBES);

    let long = "x".repeat(MAX_BYTES / 10);
    let working = |pod: usize| SavedProbe {
        key: key(&format!("{pod}{long}"), ProbeKind::Liveness),
        pause: None,
        checkpoint: Some(checkpoint()),
    };
    let mut probes: Vec<_> = (0..10).map(working).collect();
    probes.push(paused("p"));
    let written = Saved { probes }.to_json();
    assert!(written.len() <= MAX_BYTES);
    let read = Saved::from_json(&written).unwrap().probes;
    assert_eq!((read.len(), read[0].pause.is_some()), (10, true), "a pause is left out last");
}

/// One with an end and a reason.
fn bounded_pause() -> Pause {
    Pause {
        until: Some(UNIX_EPOCH + Duration::from_secs(9)),
        reason: "deploy \"v2\"".into(),
        ..UNIX_EPOCH.into()
    }
}

fn verdicts() -> impl Strategy<Value = Verdict> {
    prop_oneof![Just(Verdict::Success), Just(Verdict::Failure)]
}

prop_compose! {
    fn checkpoints()(
        container in "\\PC{0,8}", verdict in proptest::option::of(prop_oneof![verdicts(), Just(Verdict::Unknown)]),
        nanos in 0..4_000_000_000_000_000_000u64, run in verdicts(), count: u32, numbers: [u32; 4], is_held: bool,
        errors in proptest::option::of(any::<(u32, bool)>()), run_here in proptest::option::of(any::<u32>()),
    ) -> Checkpoint {
        let [success, warning, failure, error] = numbers.map(u64::from);
        Checkpoint {
            container: container.as_str().into(),
            since: UNIX_EPOCH + Duration::from_nanos(nanos),
            verdict,
            run: Run { verdict: run, count },
            counts: Counts { success, warning, failure, error },
            is_held,
            run_here,
            errors: errors.map(|(count, is_reported)| {
                let since = UNIX_EPOCH + Duration::from_nanos(nanos);
                SavedErrors::of(Errors { count, since }, count / 2, is_reported)
            }),
            ..checkpoint()
        }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        probes in proptest::collection::btree_map("\\PC{0,8}", (proptest::option::of(checkpoints()), any::<bool>()), 0..5),
    ) {
        let probes = probes.into_iter().map(|(pod, (checkpoint, is_paused))| SavedProbe {
            key: key(&pod, ProbeKind::Startup), pause: is_paused.then(bounded_pause), checkpoint,
        });
        let mut saved = Saved { probes: probes.collect() };
        saved.probes.sort_by_key(|probe| probe.pause.is_none());
        prop_assert_eq!(Saved::from_json(&saved.to_json()), Ok(saved));
    }

    #[test]
    fn any_bytes_are_a_state_or_an_error(bytes: Vec<u8>, at: usize, byte: u8) {
        let _ = Saved::from_json(&bytes);
        let mut text = Saved { probes: vec![
            SavedProbe { checkpoint: Some(checkpoint()), ..paused("p") },
        ] }.to_json();
        let at = at % text.len();
        text[at] = byte;
        if let Ok(saved) = Saved::from_json(&text) {
            prop_assert_eq!(Saved::from_json(&saved.to_json()), Ok(saved));
        }
        text.truncate(at.min(text.len() - 2));
        prop_assert!(Saved::from_json(&text).is_err());
    }
}

fn saying(pod: &str, output: &str) -> SavedProbe {
    let last = crate::results::AttemptRecord {
        at: UNIX_EPOCH + Duration::from_secs(1_795_168_800),
        result: crate::results::AttemptResult::Failure,
        duration: Duration::from_millis(31),
        lag: None,
        exit_code: Some(1),
        status: None,
        container_attempt: None,
        is_first: false,
        output: output.into(),
        phases: None,
        route: None,
    };
    let checkpoint = Checkpoint { last: Some((&last).into()), ..checkpoint() };
    SavedProbe { key: key(pod, ProbeKind::Liveness), pause: None, checkpoint: Some(checkpoint) }
}

#[test]
fn the_last_attempt_is_a_part_of_it() {
    let text = String::from_utf8(Saved { probes: vec![saying("p", "no\n\u{1b}")] }.to_json()).unwrap();
    let last = text.split("\"last\":").nth(1).unwrap();
    let expected = r#"{"at":"2026-11-20T10:00:00Z","result":"failure","micros":31000,"exitCode":1,"output":"no\n\u001b"}}"#;
    assert!(last.starts_with(expected), "{last}");
    let read = Saved::from_json(text.as_bytes()).unwrap();
    assert_eq!(read.probes, [saying("p", "no\n\u{1b}")]);
}

#[test]
fn what_all_outputs_take_is_bounded_whatever_they_hold_and_each_probe_has_its_share() {
    let all = |count: usize, output: &str| {
        let probes = (0..count).map(|pod| saying(&format!("p{pod:06}"), output)).collect();
        Saved { probes }.to_json()
    };
    let cost = |count, output: &str| all(count, output).len() - all(count, "").len();
    // Names and quotes of the key come on top.
    let of_key = r#","output":"""#.len();
    for (count, output) in
        [(5_000, "x"), (10_000, "x"), (20_000, "\u{1}"), (20_000, "\""), (20_000, "\u{20ac}")]
    {
        let cost = cost(count, &output.repeat(300)) - count * of_key;
        assert!(cost <= OUTPUTS, "{count} {output:?}: {cost}");
        assert!(cost >= OUTPUTS / 2, "{count} {output:?}: {cost}");
    }
    let long = format!("{}\u{20ac}", "a".repeat(255));
    let read = Saved::from_json(&all(1, &long)).unwrap();
    assert_eq!(read.probes, [saying("p000000", &"a".repeat(255))], "it is cut between characters");
}
