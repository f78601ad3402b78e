//! Writes metrics as text: families and their samples in, Prometheus' text format 0.0.4 or OpenMetrics 1.0 out. Whatever
//! a label holds, the text keeps its form, and no series appears twice.

use std::{
    borrow::Cow,
    collections::{BTreeMap, btree_map::Entry},
    fmt::Write as _,
};

use super::families::{Family, Kind};
use crate::{
    report::printable::printable,
    results::durations::{BOUNDS, DurationHistogram},
};

/// 253 bytes of a label's value are shown, as long as Kubernetes' longest names; `…` ends a longer one. Values come from
/// clients of the runtime, which may use any names. Series that are equal then are one.
const MAX_VALUE: usize = 253;

/// The two forms of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' own, version 0.0.4.
    Prometheus,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
}

impl Format {
    /// What the text is, for the one who asked.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The labels of one series, as they are written between braces.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Labels(String);

impl Labels {
    /// The family's labels with these values, in its order. An empty value is a label that is missing.
    pub(crate) fn of(family: &Family, values: &[&str]) -> Self {
        debug_assert_eq!(family.labels.len(), values.len(), "{}", family.name);
        let mut text = String::new();
        for (name, value) in family.labels.iter().zip(values).filter(|(_, value)| !value.is_empty()) {
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(name);
            text.push_str("=\"");
            escape(&mut text, &bounded(value));
            text.push('"');
        }
        Self(text)
    }
}

/// What a series holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Number(f64),
    Durations(DurationHistogram),
}

impl Value {
    /// A count.
    pub(crate) fn count(count: u64) -> Self {
        Self::Number(count as f64)
    }
}

/// Text that is being written.
#[derive(Debug)]
pub(crate) struct Exposition {
    format: Format,
    text: String,
}

impl Exposition {
    pub(crate) fn new(format: Format) -> Self {
        Self { format, text: String::new() }
    }

    /// Writes a family that has one series without labels.
    pub(crate) fn number(&mut self, family: &Family, value: impl IntoNumber) {
        self.family(family, [(Labels::default(), Value::Number(value.into_number()))]);
    }

    /// Writes a family with these series, in order of their labels. Of equal labels, counts are added, and the highest of
    /// other numbers stays.
    pub(crate) fn family(&mut self, family: &Family, series: impl IntoIterator<Item = (Labels, Value)>) {
        let mut merged: BTreeMap<Labels, Value> = BTreeMap::new();
        for (labels, value) in series {
            match merged.entry(labels) {
                Entry::Vacant(free) => drop(free.insert(value)),
                Entry::Occupied(taken) => merge(family.kind, taken.into_mut(), &value),
            }
        }
        self.head(family);
        for (labels, value) in &merged {
            match (family.kind, value) {
                (Kind::Histogram(bounds), Value::Durations(durations)) => {
                    self.histogram(family.name, bounds, labels, durations);
                }
                (_, Value::Number(number)) => self.sample(family.name, "", &labels.0, *number),
                (_, Value::Durations(durations)) => {
                    self.sample(family.name, "", &labels.0, durations.count() as f64);
                }
            }
        }
    }

    /// The whole text.
    pub(crate) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }

    fn head(&mut self, family: &Family) {
        let (name, kind) = match (self.format, family.kind) {
            // OpenMetrics names a family without the suffix that its samples have.
            (Format::OpenMetrics, Kind::Counter) => (family.base(), "counter"),
            (Format::OpenMetrics, Kind::Info) => (family.base(), "info"),
            (Format::Prometheus, Kind::Counter) => (family.name, "counter"),
            (Format::Prometheus, Kind::Info) | (_, Kind::Gauge) => (family.name, "gauge"),
            (_, Kind::Histogram(_)) => (family.name, "histogram"),
        };
        self.line(format_args!("# HELP {name} {}", family.help));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn histogram(
        &mut self,
        name: &str,
        bounds: (usize, usize),
        labels: &Labels,
        durations: &DurationHistogram,
    ) {
        let comma = if labels.0.is_empty() { "" } else { "," };
        for (at, bound) in BOUNDS.iter().enumerate().take(bounds.1).skip(bounds.0) {
            let seconds = bound.as_secs_f64();
            // OpenMetrics writes `1.0` where the clients of Prometheus write `1`.
            let le = match self.format {
                Format::Prometheus => format!("{seconds}"),
                Format::OpenMetrics => format!("{seconds:?}"),
            };
            let labels = format!("{}{comma}le=\"{le}\"", labels.0);
            self.sample(name, "_bucket", &labels, durations.within(at) as f64);
        }
        let count = durations.count() as f64;
        self.sample(name, "_bucket", &format!("{}{comma}le=\"+Inf\"", labels.0), count);
        self.sample(name, "_sum", &labels.0, durations.sum().as_secs_f64());
        self.sample(name, "_count", &labels.0, count);
    }

    fn sample(&mut self, name: &str, suffix: &str, labels: &str, value: f64) {
        if labels.is_empty() {
            self.line(format_args!("{name}{suffix} {value}"));
        } else {
            self.line(format_args!("{name}{suffix}{{{labels}}} {value}"));
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string never fails.
        let _ = self.text.write_fmt(line);
        self.text.push('\n');
    }
}

/// What can be a number of a series.
pub(crate) trait IntoNumber {
    fn into_number(self) -> f64;
}

impl IntoNumber for f64 {
    fn into_number(self) -> f64 {
        self
    }
}

impl IntoNumber for u64 {
    fn into_number(self) -> f64 {
        self as f64
    }
}

impl IntoNumber for usize {
    fn into_number(self) -> f64 {
        self as f64
    }
}

impl IntoNumber for bool {
    fn into_number(self) -> f64 {
        f64::from(u8::from(self))
    }
}

fn merge(kind: Kind, value: &mut Value, other: &Value) {
    match (value, other) {
        (Value::Durations(durations), Value::Durations(others)) => durations.add(others),
        (Value::Number(number), Value::Number(other)) if kind == Kind::Counter => *number += other,
        (Value::Number(number), Value::Number(other)) => *number = number.max(*other),
        // A family has one kind of values.
        (Value::Durations(_), Value::Number(_)) | (Value::Number(_), Value::Durations(_)) => {}
    }
}

/// A value that is safe to show, cut to its bound.
fn bounded(value: &str) -> Cow<'_, str> {
    // Escaping makes it longer; a text that is bounded first costs no more than its bound.
    let begin = &value[..value.floor_char_boundary(MAX_VALUE + 1)];
    let shown = printable(begin);
    if begin.len() == value.len() && shown.len() <= MAX_VALUE {
        return shown;
    }
    let kept = shown.floor_char_boundary(MAX_VALUE - '…'.len_utf8());
    Cow::Owned(format!("{}…", &shown[..kept]))
}

fn escape(text: &mut String, value: &str) {
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            _ => text.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const COUNTER: Family = Family { name: "a_total", kind: Kind::Counter, labels: &["x", "y"], help: "As" };
    const GAUGE: Family = Family { name: "b", kind: Kind::Gauge, labels: &["x"], help: "Bs" };
    const INFO: Family = Family { name: "c_info", kind: Kind::Info, labels: &["v"], help: "Cs" };
    const HISTOGRAM: Family =
        Family { name: "d_seconds", kind: Kind::Histogram((8, 10)), labels: &["x"], help: "Ds" };

    fn text(format: Format) -> String {
        let mut text = Exposition::new(format);
        let of = |values: &[&str], number| (Labels::of(&COUNTER, values), Value::Number(number));
        text.family(&COUNTER, [of(&["2", ""], 1.0), of(&["1", "z"], 2.0), of(&["1", "z"], 3.0)]);
        let of = |value: &str, number| (Labels::of(&GAUGE, &[value]), Value::Number(number));
        text.family(&GAUGE, [of("", 0.5), of("\\ \" \n", 2.0), of("\\ \" \n", 1.0)]);
        text.family(&INFO, [(Labels::of(&INFO, &["1.2"]), Value::Number(1.0))]);
        let mut durations = DurationHistogram::default();
        for millis in [700, 1_200, 90_000] {
            durations.note(Duration::from_millis(millis));
        }
        text.family(
            &HISTOGRAM,
            ["", "1"].map(|value| {
                let labels =
                    if value.is_empty() { Labels::default() } else { Labels::of(&HISTOGRAM, &[value]) };
                (labels, Value::Durations(durations.clone()))
            }),
        );
        text.finish()
    }

    #[test]
    fn the_same_in_both_formats() {
        insta::assert_snapshot!("prometheus", text(Format::Prometheus));
        insta::assert_snapshot!("openmetrics", text(Format::OpenMetrics));
    }

    #[test]
    fn a_value_is_cut_at_a_character() {
        for (value, length) in [("a".repeat(253), 253), ("a".repeat(254), 253), ("ä".repeat(200), 253)] {
            let shown = bounded(&value);
            assert_eq!(shown.len(), length, "{shown}");
            assert_eq!(shown.ends_with('…'), value.len() > MAX_VALUE);
        }
        assert!(bounded(&"\u{1}".repeat(10_000)).len() <= MAX_VALUE);
    }

    proptest! {
        /// What a parser of the format reads between the quotes is the value as it is shown; no value ends its line.
        #[test]
        fn no_value_breaks_the_text(value in any::<String>()) {
            let mut text = Exposition::new(Format::Prometheus);
            text.family(&GAUGE, [(Labels::of(&GAUGE, &[&value]), Value::Number(1.0))]);
            let text = text.finish();
            let sample = text.lines().nth(2).unwrap();
            prop_assert_eq!(text.lines().count(), 3);
            if !value.is_empty() {
                let quoted = sample.strip_prefix("b{x=\"").and_then(|rest| rest.strip_suffix("\"} 1")).unwrap();
                let mut read = String::new();
                let mut characters = quoted.chars();
                while let Some(character) = characters.next() {
                    prop_assert!(character != '"');
                    match character {
                        '\\' => read.push(match characters.next().unwrap() { 'n' => '\n', other => other }),
                        _ => read.push(character),
                    }
                }
                prop_assert_eq!(read, bounded(&value).into_owned());
            }
        }
    }
}
