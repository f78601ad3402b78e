//! Which call is the next attempt of a rhythm.

use super::*;
use crate::observed::fixtures::Start;

/// Of a second, with attempts that take 50 ms; the last one began at 3 s.
fn rhythm(start: Start) -> Rhythm {
    let attempts: Vec<_> =
        (0..4).map(|n| (start.after(f64::from(n)), start.after(f64::from(n) + 0.05))).collect();
    Rhythm::of(&attempts).unwrap()
}

#[test]
fn a_call_fits_at_a_tick_or_after_a_slow_attempt_or_after_the_usual_rest() {
    let start = Start::now();
    for (rule, ended, began, fit) in [
        ("at its tick", 3.05, 4.0, Some(Fit::Tick)),
        ("a bit early", 3.05, 3.96, Some(Fit::Tick)),
        ("earlier than is usual", 3.05, 3.85, None),
        ("a bit late", 3.05, 4.15, Some(Fit::Tick)),
        ("between two ticks", 3.05, 3.5, None),
        ("another one at once", 3.05, 3.1, None),
        ("two ticks later", 3.05, 5.1, None),
        ("before the last one", 3.05, 1.0, None),
        ("when a slow one ended", 4.45, 4.46, Some(Fit::Late)),
        ("when a slow one ended, at a tick", 4.99, 5.0, Some(Fit::Late)),
        ("long after a slow one ended", 4.3, 4.7, None),
        ("at a tick after a slow one", 4.3, 5.0, None),
        ("after the usual rest", 3.45, 4.4, Some(Fit::Rested)),
    ] {
        let mut rhythm = rhythm(start);
        rhythm.prolong(start.after(ended));
        assert_eq!(rhythm.fit(start.after(began)).map(|(fit, _)| fit), fit, "{rule}");
    }
}

#[test]
fn five_missed_periods_end_it_counted_from_the_end_of_a_slow_attempt() {
    let start = Start::now();
    let mut rhythm = rhythm(start);
    assert!((seconds(start.after(0.0), rhythm.over_at()) - 8.25).abs() < 0.01);
    rhythm.prolong(start.after(63.0));
    assert!((seconds(start.after(0.0), rhythm.over_at()) - 68.2).abs() < 0.01);
}

#[test]
fn a_period_is_shown_with_three_digits() {
    let start = Start::now();
    for (period, shown) in [(9.998_7, 10.0), (1.004, 1.0), (1.0532, 1.05), (0.200_3, 0.2), (123.4, 123.0)] {
        let rhythm =
            Rhythm::of(&[(start.after(0.0), start.after(0.0)), (start.after(period), start.after(period))]);
        assert!((rhythm.unwrap().period().as_secs_f64() - shown).abs() < 1e-6, "{period}");
    }
    assert!(Rhythm::of(&[(start.after(1.0), start.after(2.0))]).is_none());
}

#[test]
fn a_client_that_drifts_is_followed() {
    let start = Start::now();
    let mut rhythm = rhythm(start);
    let mut at = 3.0;
    for n in 0..200 {
        at += 1.0 + 0.3 * f64::from(n.min(100)) / 100.0;
        let (fit, _) = rhythm.fit(start.after(at)).unwrap_or_else(|| panic!("lost at {at}"));
        rhythm.advance(fit, start.after(at), start.after(at + 0.05));
    }
    assert!((rhythm.period().as_secs_f64() - 1.3).abs() < 0.02, "{:?}", rhythm.period());
}
