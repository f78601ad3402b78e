//! Calls as clients make them, kept as data: `tests/data/observed/calls.json`, which `tests/tools/observed_calls.py`
//! wrote by the rules of a kubelet's worker. What each row's clients did is in it; what is observed is held to that.

use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Recording {
    rule: String,
    timeout: i64,
    /// What there truly was.
    probes: Vec<Truth>,
    /// When it began, how long it took, how it ended; in the order in which they ended.
    calls: Vec<(f64, f64, String)>,
}

#[derive(Deserialize)]
struct Truth {
    period: f64,
    attempts: u64,
}

/// 4: attempts that may be counted for another rhythm of the same command, or for none: triggers, and what came before
/// a rhythm was plain.
const UNSURE: u64 = 4;

#[test]
fn a_kubelets_probes_are_found_and_told_apart_and_nothing_else_is() {
    let text = include_str!("../../../../tests/data/observed/calls.json");
    let recordings: Vec<Recording> = serde_json::from_str(text).unwrap();
    for Recording { rule, timeout, probes: truths, calls } in recordings {
        let (start, mut watch, cat) = (Start::now(), watch("c1"), command("c1", &["cat", "/x"], timeout));
        // The longest that each was seen: a startup probe goes before its container does.
        let mut seen: Vec<(u32, f64, u64)> = Vec::new();
        let mut begins: Vec<f64> = calls.iter().map(|(began, ..)| *began).collect();
        begins.sort_by(f64::total_cmp);
        let mut begins = begins.into_iter().peekable();
        for (began, took, end) in &calls {
            while let Some(begin) = begins.next_if(|begin| *begin <= began + took) {
                watch.begun(&begun(start.after(begin), &cat, "kubelet"));
            }
            watch.ended(&start.call((*began, *took, end), &cat, "kubelet"), None);
            for probe in watch.all_probes(start.after(began + took + 0.000_1)) {
                let ProbeType::Observed(number) = probe.kind else { panic!("{rule}") };
                let (period, attempts) = (probe.period.as_secs_f64(), probe.results.counts().total());
                let known = seen.iter_mut().find(|(other, its_period, its_attempts)| {
                    *other == number && (*its_period / period - 1.0).abs() < 0.2 && *its_attempts <= attempts
                });
                match known {
                    Some(known) => *known = (number, period, attempts),
                    None => seen.push((number, period, attempts)),
                }
            }
        }
        seen.sort_by(|a, b| a.1.total_cmp(&b.1));
        assert_eq!(seen.len(), truths.len(), "{rule}: {seen:?}");
        for (truth, &(_, period, attempts)) in truths.iter().zip(&seen) {
            assert!((period / truth.period - 1.0).abs() < 0.05, "{rule}: {seen:?}");
            assert!(truth.attempts.abs_diff(attempts) <= UNSURE, "{rule}: {seen:?} for {}", truth.attempts);
        }
    }
}
