//! Durations as Go writes and reads them: `250ms`, `1.5s`, `1m30s`. Text in, `Duration` out, and back.

use std::{fmt, time::Duration};

/// The longest that is read, in nanoseconds: what Go's signed 64 bits hold, about 292 years. Longer is an error.
const MAX_NANOS: u128 = i64::MAX as u128;

/// Units from the finest up, in nanoseconds; Go accepts both micro signs.
const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Prints a duration as Go's `Duration.String` does: `100ms`, `1s`, `1m30s`, `1h0m0s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GoDuration(pub Duration);

/// Why a text is no duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DurationError {
    /// A number without a unit.
    #[error("the unit is missing: write a duration such as 250ms, 5s or 1m30s")]
    MissingUnit,
    /// Ours are never negative.
    #[error("must not be negative")]
    Negative,
    /// Beyond what Go can hold.
    #[error("too long")]
    TooLong,
    /// Anything else.
    #[error("not a duration: write one such as 250ms, 5s or 1m30s")]
    Malformed,
}

/// Reads a duration of one or more terms, each a decimal number and a unit (`ns`, `us`, `ms`, `s`, `m`, `h`); `0`
/// needs no unit. What is finer than a nanosecond is cut off.
///
/// # Errors
/// When the text is anything else, is negative, or is longer than Go's `time.Duration` can be.
pub(crate) fn parse(text: &str) -> Result<Duration, DurationError> {
    let (is_negative, magnitude) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let duration = parse_magnitude(magnitude)?;
    if is_negative && !duration.is_zero() { Err(DurationError::Negative) } else { Ok(duration) }
}

fn parse_magnitude(text: &str) -> Result<Duration, DurationError> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (mut nanos, mut rest) = (0, text);
    loop {
        let (term, after) = parse_term(rest)?;
        nanos += term;
        if nanos > MAX_NANOS {
            return Err(DurationError::TooLong);
        }
        if after.is_empty() {
            return u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| DurationError::TooLong);
        }
        rest = after;
    }
}

/// One number and its unit, at most [`MAX_NANOS`], and what follows it.
fn parse_term(text: &str) -> Result<(u128, &str), DurationError> {
    let (whole, rest) = digits(text);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), digits);
    if whole.is_empty() && fraction.is_empty() {
        return Err(DurationError::Malformed);
    }
    let end = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    if name.is_empty() {
        return Err(DurationError::MissingUnit);
    }
    let (_, unit) = UNITS.into_iter().find(|(known, _)| *known == name).ok_or(DurationError::Malformed)?;
    let whole =
        if whole.is_empty() { 0 } else { whole.parse::<u64>().map_err(|_| DurationError::TooLong)? };
    let nanos = u128::from(whole) * unit + part_of(fraction, unit);
    if nanos > MAX_NANOS { Err(DurationError::TooLong) } else { Ok((nanos, rest)) }
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// The decimal fraction of a unit. Digits past the 18th are finer than a nanosecond in every unit.
fn part_of(fraction: &str, unit: u128) -> u128 {
    let (mut value, mut scale) = (0_u128, 1_u128);
    for digit in fraction.bytes().take(18) {
        value = value * 10 + u128::from(digit - b'0');
        scale *= 10;
    }
    value * unit / scale
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        match nanos {
            0 => f.write_str("0s"),
            1..1_000 => write!(f, "{nanos}ns"),
            1_000..1_000_000 => write!(f, "{}\u{b5}s", decimal(nanos, 1_000)),
            1_000_000..1_000_000_000 => write!(f, "{}ms", decimal(nanos, 1_000_000)),
            _ => {
                let minutes = self.0.as_secs() / 60;
                if minutes >= 60 {
                    write!(f, "{}h", minutes / 60)?;
                }
                if minutes > 0 {
                    write!(f, "{}m", minutes % 60)?;
                }
                write!(f, "{}s", decimal(nanos % 60_000_000_000, 1_000_000_000))
            }
        }
    }
}

/// `nanos` in units of `unit`, without zeros at the end.
fn decimal(nanos: u128, unit: u128) -> String {
    let width = unit.ilog10() as usize;
    let text = format!("{}.{:0width$}", nanos / unit, nanos % unit);
    text.trim_end_matches('0').trim_end_matches('.').into()
}

/// A duration for people, the two largest units at most: `5s`, `3m20s`, `2h5m`, `4d7h`.
pub(crate) fn coarse(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, 1..10) => format!("{minutes}m{}s", seconds % 60),
        (0, 0, _) => format!("{minutes}m"),
        (0, 1..10, _) => format!("{hours}h{}m", minutes % 60),
        (0, _, _) => format!("{hours}h"),
        (1..10, _, _) => format!("{days}d{}h", hours % 24),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("250ms", 250_000_000),
            ("5s", 5_000_000_000),
            ("+5s", 5_000_000_000),
            ("1.5s", 1_500_000_000),
            (".5s", 500_000_000),
            ("5.s", 5_000_000_000),
            ("1m30s", 90_000_000_000),
            ("1h15m30.918273645s", 4_530_918_273_645),
            ("10ns", 10),
            ("11us", 11_000),
            ("12\u{b5}s", 12_000),
            ("12\u{3bc}s", 12_000),
            ("30s1m", 90_000_000_000),
            ("0.3333333333333333333h", 1_200_000_000_000 - 1),
            ("9223372036854775807ns", i64::MAX as u64),
            ("0.9223372036854775807us", 922),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_its_reason() {
        use DurationError::{Malformed, MissingUnit, Negative, TooLong};
        for (text, error) in [
            ("", Malformed),
            ("5", MissingUnit),
            ("1m5", MissingUnit),
            ("-5s", Negative),
            ("-", Malformed),
            ("-x", Malformed),
            ("--5s", Malformed),
            ("s", Malformed),
            (".s", Malformed),
            ("1d", Malformed),
            ("5 s", Malformed),
            (" 5s", Malformed),
            ("5S", Malformed),
            ("1e3s", Malformed),
            ("9223372036854775808ns", TooLong),
            ("3000000h", TooLong),
            ("99999999999999999999999s", TooLong),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn durations_are_printed_as_go_prints_them() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1\u{b5}s"),
            (2_200_000, "2.2ms"),
            (100_000_000, "100ms"),
            (1_000_000_000, "1s"),
            (250_000_000, "250ms"),
            (1_500_000, "1.5ms"),
            (3_300_000_000, "3.3s"),
            (7_384_005_000_000, "2h3m4.005s"),
            (60_000_000_000, "1m0s"),
            (90_000_000_000, "1m30s"),
            (245_001_000_000, "4m5.001s"),
            (3_600_000_000_000, "1h0m0s"),
            (480_000_000_001, "8m0.000000001s"),
            (i64::MAX as u64, "2562047h47m16.854775807s"),
        ] {
            assert_eq!(GoDuration(Duration::from_nanos(nanos)).to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back_the_same(nanos in 0..=i64::MAX as u64) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse(&GoDuration(duration).to_string()), Ok(duration));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}|[-+0-9.a-zµ]{0,40}") {
            let _ = parse(&text);
        }
    }
}
