//! Splits a stream of YAML documents and parses each one separately, so that an invalid document does not affect the
//! others. A text in; trees with their places in the whole text out. Never reads beyond its bounds.

use super::{Bounds, Node, Place, SyntaxError, Value, parse_within};

/// 10,000: the maximum number of documents of a stream. Further ones are left out, and this is reported.
pub(crate) const MAX_DOCUMENTS: usize = 10_000;

/// One document of a stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Document {
    /// The line in which it begins, from 1.
    pub line: u32,
    /// Its content, or why it cannot be parsed.
    pub node: Result<Node, SyntaxError>,
}

/// All documents of a stream except empty ones, and whether there were more than [`MAX_DOCUMENTS`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stream {
    /// In order.
    pub documents: Vec<Document>,
    /// Whether some were left out.
    pub is_cut: bool,
}

/// Reads a stream; `bounds` applies to all documents together, except for the depth.
///
/// A line that begins with `---` or `...`, followed by a blank or the end of the line, ends a document wherever it
/// occurs (YAML 1.2, 9.1.2), so looking at lines is enough.
///
/// # Errors
/// The whole text is too long: then nothing is parsed.
pub(crate) fn read(text: &str, bounds: &Bounds) -> Result<Stream, SyntaxError> {
    if text.len() > bounds.bytes {
        return Err(SyntaxError::TooLong { size: text.len(), limit: bounds.bytes });
    }
    let mut left = *bounds;
    let mut stream = Stream { documents: Vec::new(), is_cut: false };
    for (line, text) in parts(text) {
        if stream.documents.len() == MAX_DOCUMENTS {
            stream.is_cut = true;
            break;
        }
        let node = match parse_within(text, &left) {
            Ok(Node { value: Value::Null, .. }) => continue,
            Ok(mut node) => {
                left.nodes = left.nodes.saturating_sub(moved_down(&mut node, line - 1));
                Ok(node)
            }
            Err(SyntaxError::Malformed { place, reason }) => {
                let place = place.map(|place| below(place, line - 1));
                Err(SyntaxError::Malformed { place, reason })
            }
            Err(other) => Err(other),
        };
        stream.documents.push(Document { line, node });
    }
    Ok(stream)
}

/// The texts of the documents that contain more than blanks and comments, each with its first line. A text includes the
/// marker that starts it, and the directives before that.
fn parts(text: &str) -> impl Iterator<Item = (u32, &str)> {
    let mut parts = Vec::new();
    let mut part = Part::default();
    let (mut number, mut at) = (0_u32, 0);
    for line in text.split_inclusive('\n') {
        number = number.saturating_add(1);
        match marker(line) {
            Some(Marker::Open) if part.has_opened || part.has_content => {
                parts.extend(part.text(text, at));
                part =
                    Part { start: at, line: number, has_opened: true, has_content: has_content(&line[3..]) };
            }
            Some(Marker::Open) => {
                part.has_opened = true;
                part.has_content = has_content(&line[3..]);
            }
            Some(Marker::End) => {
                parts.extend(part.text(text, at));
                part = Part { start: at + line.len(), line: number.saturating_add(1), ..Part::default() };
            }
            // A directive is not content before the marker.
            None => part.has_content |= has_content(line) && (part.has_opened || !line.starts_with('%')),
        }
        at += line.len();
    }
    parts.extend(part.text(text, at));
    parts.into_iter()
}

/// One document while its lines are counted.
struct Part {
    start: usize,
    line: u32,
    has_opened: bool,
    has_content: bool,
}

impl Default for Part {
    fn default() -> Self {
        Self { start: 0, line: 1, has_opened: false, has_content: false }
    }
}

impl Part {
    fn text<'a>(&self, text: &'a str, end: usize) -> Option<(u32, &'a str)> {
        self.has_content.then(|| (self.line, &text[self.start..end]))
    }
}

enum Marker {
    Open,
    End,
}

fn marker(line: &str) -> Option<Marker> {
    let is_marker = |sign| {
        let rest: Option<&str> = line.strip_prefix(sign);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
    };
    if is_marker("---") { Some(Marker::Open) } else { is_marker("...").then_some(Marker::End) }
}

fn has_content(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with('#')
}

/// Shifts all places; returns the number of values.
fn moved_down(node: &mut Node, lines: u32) -> usize {
    node.place = node.place.map(|place| below(place, lines));
    1 + match &mut node.value {
        Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Text(_) => 0,
        Value::List(items) => items.iter_mut().map(|item| moved_down(item, lines)).sum(),
        Value::Map(entries) => entries
            .iter_mut()
            .map(|entry| {
                entry.place = entry.place.map(|place| below(place, lines));
                moved_down(&mut entry.node, lines)
            })
            .sum(),
    }
}

fn below(place: Place, lines: u32) -> Place {
    Place { line: place.line.saturating_add(lines), ..place }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOUNDS: Bounds = Bounds { bytes: 1 << 20, depth: 64, nodes: 100_000 };

    /// Each document's first line and its content: the place of its first key, or of the error.
    fn shown(text: &str) -> Vec<String> {
        let place = |place: Option<Place>| place.map_or("?".to_owned(), |place| place.to_string());
        let shown = |document: &Document| match &document.node {
            Ok(node) => match node.entries().first() {
                Some(entry) => {
                    format!("{}: {}@{}", document.line, entry.name, place(entry.node.place.or(entry.place)))
                }
                None => format!("{}: {:?}", document.line, node.value),
            },
            Err(error) => format!("{}: error@{}", document.line, place(error.place())),
        };
        read(text, &BOUNDS).unwrap().documents.iter().map(shown).collect()
    }

    #[test]
    fn a_stream_is_taken_apart_at_its_markers() {
        for (text, documents) in [
            ("", &[][..]),
            ("# nothing\n\n---\n# still\n...\n", &[]),
            ("a: 1", &["1: a@1:4"]),
            ("---\na: 1\n---\n\nb:\n  2\n", &["1: a@2:4", "3: b@6:3"]),
            ("a: 1\n--- # why\nb: 2\n...\n---\nc: 3\n", &["1: a@1:4", "2: b@3:4", "5: c@6:4"]),
            ("%YAML 1.2\n---\na: 1\n...\n%YAML 1.2\n---\nb: 2\n", &["1: a@3:4", "5: b@7:4"]),
            ("--- {a: 1}\n--- {b: 2}\n", &["1: a@1:9", "2: b@2:9"]),
            ("a: |\n  ---\n  x\n", &["1: a@2:3"]),
            ("a: ---x\n---x: 1\n", &["1: a@1:4"]),
            ("a: 1\r\n---\r\nb: 2\r\n", &["1: a@1:4", "2: b@3:4"]),
            ("a: [\n---\nb: 2\n", &["1: error@1:4", "2: b@3:4"]),
            ("{\"a\": 1}\n{\"b\": 2}\n", &["1: error@2:1"]),
            ("x\n---\ny\n", &["1: Text(\"x\")", "2: Text(\"y\")"]),
        ] {
            assert_eq!(shown(text), documents, "{text:?}");
        }
    }

    #[test]
    fn the_bounds_hold_for_the_whole_stream() {
        let many = "---\na: 1\n".repeat(MAX_DOCUMENTS + 1);
        let stream = read(&many, &BOUNDS).unwrap();
        assert_eq!((stream.documents.len(), stream.is_cut), (MAX_DOCUMENTS, true));
        let few = Bounds { nodes: 20, ..BOUNDS };
        let stream = read(&"---\n[1, 2, 3]\n".repeat(9), &few).unwrap();
        let read_well = stream.documents.iter().filter(|document| document.node.is_ok()).count();
        assert!((2..=5).contains(&read_well), "{read_well}");
        let deep = |depth| format!("a: 1\n---\n{}{}\n", "[".repeat(depth), "]".repeat(depth));
        // Deep texts need much stack in unoptimised builds.
        let checked =
            move || [63, 65].map(|depth| read(&deep(depth), &BOUNDS).unwrap().documents[1].node.is_ok());
        let thread = std::thread::Builder::new().stack_size(16 << 20).spawn(checked).unwrap();
        assert_eq!(thread.join().unwrap(), [true, false]);
        assert!(matches!(
            read("abcd", &Bounds { bytes: 3, ..BOUNDS }),
            Err(SyntaxError::TooLong { size: 4, limit: 3 })
        ));
    }

    proptest! {
        #[test]
        fn documents_read_in_a_stream_as_they_do_alone(texts in prop::collection::vec("[a-c]: [x1]\n(# y\n)?|\\[1, 2\\]\n|\\{\n", 0..6)) {
            let stream = read(&texts.join("---\n"), &BOUNDS).unwrap();
            let alone: Vec<_> = texts.iter().flat_map(|text| read(text, &BOUNDS).unwrap().documents).collect();
            prop_assert_eq!(stream.documents.len(), alone.len());
            for (one, other) in stream.documents.iter().zip(&alone) {
                prop_assert_eq!(one.node.is_ok(), other.node.is_ok());
            }
        }

        #[test]
        fn no_text_panics(text in r#"([-\[\]{},:?&*!|>'"%@`#~<=. \t\r\n\u{feff}ab01]|\n---|\n\.\.\.|\n  ){0,60}"#) {
            let _ = read(&text, &BOUNDS);
        }
    }
}
