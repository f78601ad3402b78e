//! Changes one setting of a YAML or JSON text, and nothing else: text in, text out. Comments, order, quotes and line ends
//! stay. Never does IO. What cannot be changed on one line is refused, and each result is parsed again and compared.

use std::ops::Range;

use crate::document::{self, MapEntry, Node, Place, SyntaxError, Value};

/// 1 MiB: the largest text. A longer one is an error; a kubelet's configuration has a few KiB.
pub(crate) const MAX_BYTES: usize = 1 << 20;

/// A byte order mark, which stays where it is.
const MARK: char = '\u{feff}';

/// Why a text cannot be read or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EditError {
    /// It is neither YAML nor JSON.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    /// It is a list or a single value.
    #[error("not a map of settings")]
    NoMap,
    /// The value of the setting is a number, a list, or a map.
    #[error("{}: the value of {key} is not text", at(.place))]
    NotText {
        /// Where.
        place: Option<Place>,
        /// The setting.
        key: String,
    },
    /// It would take more than a change of one line, or change something else.
    #[error("{}: cannot change {key} without a change of other lines: write '{key}: VALUE' on one line", at(.place))]
    Entangled {
        /// Where.
        place: Option<Place>,
        /// The setting.
        key: String,
    },
}

/// Lines that differ between two texts, in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hunk {
    /// The first of them, from 1.
    pub(crate) line: usize,
    /// Those of the text before, without their ends.
    pub(crate) old: Vec<String>,
    /// Those of the text after.
    pub(crate) new: Vec<String>,
}

/// A text that was parsed, and its settings.
#[derive(Debug)]
pub(crate) struct Settings<'a> {
    /// Without its byte order mark.
    text: &'a str,
    root: Node,
}

impl<'a> Settings<'a> {
    /// Parses a text. An empty one has no settings.
    ///
    /// # Errors
    /// It is malformed, or no map.
    pub(crate) fn read(text: &'a str) -> Result<Self, EditError> {
        let text = text.strip_prefix(MARK).unwrap_or(text);
        let root = document::parse(text, MAX_BYTES)?;
        match root.value {
            Value::Map(_) | Value::Null => Ok(Self { text, root }),
            _ => Err(EditError::NoMap),
        }
    }

    /// The text of a setting; `None` if it is missing, null or empty.
    ///
    /// # Errors
    /// It is something other than text.
    pub(crate) fn get(&self, key: &str) -> Result<Option<&str>, EditError> {
        let Some(entry) = self.entry(key) else { return Ok(None) };
        match &entry.node.value {
            Value::Null => Ok(None),
            Value::Text(text) => Ok(Some(&**text).filter(|text| !text.is_empty())),
            _ => Err(EditError::NotText { place: entry.place, key: key.to_owned() }),
        }
    }

    /// The line of a setting, from 1.
    pub(crate) fn line(&self, key: &str) -> Option<u32> {
        Some(self.entry(key)?.place?.line)
    }

    fn entry(&self, key: &str) -> Option<&MapEntry> {
        self.root.entries().iter().find(|entry| entry.name == key)
    }

    /// Whether the settings are written in braces.
    fn is_flow(&self) -> bool {
        let start = self.root.place.and_then(|place| offset(self.text, place));
        start.is_some_and(|start| self.text[start..].starts_with('{'))
    }

    /// What may be replaced, and by what, so that the setting has the value, or is missing: the best first.
    fn splices(&self, key: &str, value: Option<&str>) -> Vec<(Range<usize>, String)> {
        match (self.entry(key), value) {
            (Some(entry), Some(value)) => self.replacing(entry, value).into_iter().collect(),
            (Some(entry), None) => self.removing(entry),
            (None, Some(value)) => self.adding(key, value),
            (None, None) => Vec::new(),
        }
    }

    fn replacing(&self, entry: &MapEntry, value: &str) -> Option<(Range<usize>, String)> {
        let (range, style) = self.value_of(entry)?;
        Some((range, style.write(value)))
    }

    /// Where the value of an entry is, on the line of its key.
    fn value_of(&self, entry: &MapEntry) -> Option<(Range<usize>, Style)> {
        let start = offset(self.text, entry.place?)?;
        let line = until_line_end(&self.text[start..]);
        let key = match line.chars().next()? {
            '"' | '\'' => quoted_length(line)?,
            _ => line.starts_with(&entry.name).then_some(entry.name.len())?,
        };
        let colon = key + line[key..].find(|c| !is_blank(c))?;
        let mut rest = line[colon..].strip_prefix(':')?;
        let after_colon = start + colon + 1;
        rest = rest.trim_start_matches(is_blank);
        // An anchor or a tag belongs to the value and stays.
        while rest.starts_with(['&', '!']) {
            rest = rest[rest.find(is_blank)?..].trim_start_matches(is_blank);
        }
        let at = start + line.len() - rest.len();
        let range = |length: usize| at..at + length;
        match rest.chars().next() {
            None | Some('#') if entry.node.value == Value::Null => {
                Some((after_colon..after_colon, Style::After))
            }
            None | Some('#' | '|' | '>') => None,
            Some('"') => Some((range(quoted_length(rest)?), Style::Double)),
            Some('\'') => Some((range(quoted_length(rest)?), Style::Single)),
            Some(_) => {
                let ends = |(index, c): &(usize, char)| match c {
                    '#' => rest[..*index].ends_with(is_blank),
                    ',' | '}' | ']' => self.is_flow(),
                    _ => false,
                };
                let end = rest.char_indices().find(ends).map_or(rest.len(), |(index, _)| index);
                Some((range(rest[..end].trim_end_matches(is_blank).len()), Style::Plain))
            }
        }
    }

    fn removing(&self, entry: &MapEntry) -> Vec<(Range<usize>, String)> {
        let Some(start) = entry.place.and_then(|place| offset(self.text, place)) else { return Vec::new() };
        let mut splices = Vec::new();
        let line = self.text[..start].rfind('\n').map_or(0, |end| end + 1);
        let end = self.text[start..].find('\n').map_or(self.text.len(), |end| start + end + 1);
        if !self.is_flow() {
            splices.push((line..end, String::new()));
        }
        if let Some((value, _)) = self.value_of(entry) {
            let after = &self.text[value.end..];
            let comma = after.trim_start_matches(is_blank).strip_prefix(',');
            let rest = comma.map_or(after, |rest| rest.trim_start_matches(is_blank));
            splices.push((start..self.text.len() - rest.len(), String::new()));
        }
        splices
    }

    fn adding(&self, key: &str, value: &str) -> Vec<(Range<usize>, String)> {
        let entries = self.root.entries();
        let end = if self.text.contains("\r\n") { "\r\n" } else { "\n" };
        let at = |entry: &MapEntry| entry.place.and_then(|place| offset(self.text, place));
        let Some(first) = entries.first().and_then(at) else {
            let break_ = if self.text.is_empty() || self.text.ends_with('\n') { "" } else { end };
            let line = format!("{break_}{key}: {}{end}", Style::Plain.write(value));
            return vec![(self.text.len()..self.text.len(), line)];
        };
        if self.is_flow() {
            return vec![(first..first, format!("{key:?}: {}, ", Style::Double.write(value)))];
        }
        let start = self.text[..first].rfind('\n').map_or(0, |end| end + 1);
        let line = format!("{}{key}: {}", &self.text[start..first], Style::Plain.write(value));
        // Behind what says of which kind the text is, or else first.
        let header = entries.iter().filter(|entry| matches!(&*entry.name, "apiVersion" | "kind"));
        let behind = header.filter_map(at).max().map(|header| match self.text[header..].find('\n') {
            Some(length) => (header + length + 1..header + length + 1, format!("{line}{end}")),
            None => (self.text.len()..self.text.len(), format!("{end}{line}")),
        });
        behind.into_iter().chain([(start..start, format!("{line}{end}"))]).collect()
    }
}

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Plain,
    /// Plain, behind a colon that nothing follows.
    After,
    Single,
    Double,
}

impl Style {
    fn write(self, value: &str) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/:._-@+".contains(c);
        match self {
            Self::Plain if value.starts_with(['/', 'u']) && value.chars().all(is_plain) => value.to_owned(),
            Self::After => format!(" {}", Self::Plain.write(value)),
            Self::Single => format!("'{}'", value.replace('\'', "''")),
            Self::Plain | Self::Double => serde_json::to_string(value).expect("a text always serialises"),
        }
    }
}

/// The text with the setting at this value, or without it.
///
/// # Errors
/// The text is malformed, or the setting cannot be changed alone.
pub(crate) fn set(text: &str, key: &str, value: Option<&str>) -> Result<String, EditError> {
    let before = Settings::read(text)?;
    if before.get(key)? == value {
        return Ok(text.to_owned());
    }
    let is_right = |after: &str| {
        let after = Settings::read(after).ok()?;
        (after.get(key).ok()? == value && same_but(&before.root, &after.root, key)).then_some(())
    };
    let mark = &text[..text.len() - before.text.len()];
    let apply = |(range, new): (Range<usize>, String)| {
        format!("{}{new}{}", &before.text[..range.start], &before.text[range.end..])
    };
    let candidates = before.splices(key, value).into_iter().map(apply);
    let edited = candidates.into_iter().find(|after| is_right(after).is_some());
    edited.map(|edited| format!("{mark}{edited}")).ok_or_else(|| EditError::Entangled {
        place: before.entry(key).and_then(|entry| entry.place),
        key: key.to_owned(),
    })
}

/// The lines that differ between two texts: each for itself where there are as many lines as before, otherwise all from the
/// first to the last.
pub(crate) fn hunks(before: &str, after: &str) -> Vec<Hunk> {
    let lines = |text: &str| text.split_inclusive('\n').map(str::to_owned).collect::<Vec<_>>();
    let shown = |lines: &[String]| lines.iter().map(|line| line.trim_end().to_owned()).collect();
    let (old, new) = (lines(before), lines(after));
    if old.len() == new.len() {
        let pairs = old.chunks(1).zip(new.chunks(1)).enumerate().filter(|(_, (old, new))| old != new);
        return pairs
            .map(|(at, (old, new))| Hunk { line: at + 1, old: shown(old), new: shown(new) })
            .collect();
    }
    let same = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let (old, new) = (&old[same..], &new[same..]);
    let end = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
    vec![Hunk { line: same + 1, old: shown(&old[..old.len() - end]), new: shown(&new[..new.len() - end]) }]
}

/// Whether two maps have the same entries in the same order, but for this one.
fn same_but(before: &Node, after: &Node, key: &str) -> bool {
    let others =
        |node: &Node| node.entries().iter().filter(|entry| entry.name != key).cloned().collect::<Vec<_>>();
    same_entries(&others(before), &others(after))
}

fn same_entries(before: &[MapEntry], after: &[MapEntry]) -> bool {
    let pairs = || before.iter().zip(after);
    before.len() == after.len() && pairs().all(|(a, b)| a.name == b.name && same(&a.node, &b.node))
}

/// Whether two values are equal, wherever they are.
fn same(before: &Node, after: &Node) -> bool {
    match (&before.value, &after.value) {
        (Value::Map(before), Value::Map(after)) => same_entries(before, after),
        (Value::List(before), Value::List(after)) => {
            before.len() == after.len() && before.iter().zip(after).all(|(before, after)| same(before, after))
        }
        (before, after) => before == after,
    }
}

/// Where a place is in the text, in bytes.
fn offset(text: &str, place: Place) -> Option<usize> {
    let line = usize::try_from(place.line).ok()?.checked_sub(1)?;
    let column = usize::try_from(place.column).ok()?.checked_sub(1)?;
    let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    let rest = text.get(start..)?;
    let within = rest.char_indices().map(|(index, _)| index).chain([rest.len()]).nth(column)?;
    Some(start + within)
}

fn until_line_end(text: &str) -> &str {
    let line = text.split('\n').next().unwrap_or_default();
    line.strip_suffix('\r').unwrap_or(line)
}

/// How long the quoted text is that a line begins with, with its quotes; `None` if it does not end there.
fn quoted_length(line: &str) -> Option<usize> {
    let quote = line.chars().next()?;
    let mut is_escaped = false;
    let mut rest = line.char_indices().skip(1).peekable();
    while let Some((index, c)) = rest.next() {
        if is_escaped {
            is_escaped = false;
        } else if c == '\\' && quote == '"' {
            is_escaped = true;
        } else if c == quote && quote == '\'' && rest.next_if(|(_, next)| *next == quote).is_some() {
            // Two quotes in a row are one that is quoted.
        } else if c == quote {
            return Some(index + 1);
        }
    }
    None
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

fn at(place: &Option<Place>) -> String {
    place.map_or_else(|| "the file".to_owned(), |place| format!("line {}", place.line))
}

#[cfg(test)]
mod tests;
