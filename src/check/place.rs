//! The place in the file of something within a scalar: the place in a value in, the place in the source out, as far as
//! the notation of the value allows. Verifies its result against the text, and falls back to the start of the scalar.

use crate::document::Place;

/// 256 characters are walked at most to find one by its number.
const STEP: u32 = 256;

/// The lines of a file.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    text: &'a str,
    starts: Vec<Start>,
    /// The byte of every character whose number is a multiple of [`STEP`]: a file may be one line, with thousands of faults.
    marks: Vec<u32>,
}

/// Where a line begins.
#[derive(Clone, Copy, Debug, Default)]
struct Start {
    byte: u32,
    /// The number of its first character in the file.
    character: u32,
    /// How many blanks it begins with.
    indent: u32,
}

impl<'a> Lines<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let (mut starts, mut marks) = (Vec::new(), Vec::new());
        let (mut start, mut is_indent, mut character) = (Start::default(), true, 0);
        for (at, sign) in text.char_indices() {
            let Ok(byte) = u32::try_from(at) else { break };
            if character % STEP == 0 {
                marks.push(byte);
            }
            character += 1;
            is_indent &= sign == ' ';
            start.indent += u32::from(is_indent);
            if sign == '\n' {
                starts.push(start);
                (start, is_indent) = (Start { byte: byte + 1, character, indent: 0 }, true);
            }
        }
        starts.push(start);
        // The end of the text is a place, too.
        if character % STEP == 0 {
            marks.extend(u32::try_from(text.len()));
        }
        Self { text, starts, marks }
    }

    fn start(&self, number: u32) -> Option<Start> {
        self.starts.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
    }

    /// A line by its number, without its end.
    pub(super) fn get(&self, number: u32) -> Option<&'a str> {
        let start = self.start(number)?.byte as usize;
        let end = self.start(number.checked_add(1)?).map_or(self.text.len(), |next| next.byte as usize);
        Some(self.text[start..end].trim_end_matches('\n').trim_end_matches('\r'))
    }

    /// The rest of a line from a place on.
    pub(super) fn from(&self, place: Place) -> Option<&'a str> {
        let (line, start) = (self.get(place.line)?, self.start(place.line)?);
        let character = start.character.checked_add(place.column.checked_sub(1)?)?;
        let mark = *self.marks.get((character / STEP) as usize)? as usize;
        let after = self.text[mark..].char_indices().map(|(at, _)| mark + at).chain([self.text.len()]);
        let at = after.take(STEP as usize + 1).nth((character % STEP) as usize)?;
        self.text.get(at..start.byte as usize + line.len())
    }

    /// Whether only blanks stand before a place in its line.
    pub(super) fn is_indent(&self, place: Place) -> bool {
        self.start(place.line).is_some_and(|start| place.column.saturating_sub(1) <= start.indent)
    }

    /// The place of something at `inner` within the value of a scalar that starts at `start`.
    pub(super) fn within(&self, start: Place, value: &str, inner: Place) -> Place {
        let rest = self.from(start).unwrap_or_default();
        let at = offset(value, inner);
        let found = match rest.chars().next() {
            _ if self.is_block(start, value) => self.in_literal(start, value, inner),
            Some('\'') => in_single_quotes(&rest[1..], at).map(|at| right(start, at + 1)),
            Some('"') => in_double_quotes(&rest[1..], at).map(|at| right(start, at + 1)),
            Some(_) | None => {
                let same = rest.chars().zip(value.chars()).take_while(|(a, b)| a == b).count();
                (same >= at && same > 0).then(|| right(start, at))
            }
        };
        found.or_else(|| self.in_folded(start, at, value)).unwrap_or(start)
    }

    /// Whether the value begins as a literal block (`|`) would: with whole lines behind the same indentation.
    fn is_block(&self, start: Place, value: &str) -> bool {
        let inner = Place { line: 1 + leading(value), column: 1 };
        self.in_literal(start, value, inner).is_some()
    }

    /// `|`: each line of the value is a line of the source behind the same indentation. It starts at its first line, or
    /// at the first of them that is not empty.
    fn in_literal(&self, start: Place, value: &str, inner: Place) -> Option<Place> {
        let blank = start.line.checked_sub(leading(value));
        [Some(start.line), blank].into_iter().flatten().find_map(|first| self.literal(first, value, inner))
    }

    fn literal(&self, first: u32, value: &str, inner: Place) -> Option<Place> {
        let mut found = None;
        for (number, text) in (1..=inner.line).zip(value.split('\n')) {
            let line = first.checked_add(number - 1)?;
            let indent = u32::try_from(self.get(line)?.strip_suffix(text)?.len()).ok()?;
            if indent > self.start(line)?.indent {
                return None;
            }
            let column = inner.column.checked_add(indent)?;
            found = (number == inner.line).then_some(Place { line, column });
        }
        found
    }

    /// `>`: lines at one indentation, joined by blanks; other forms of folding are not followed.
    fn in_folded(&self, start: Place, wanted: usize, value: &str) -> Option<Place> {
        let indent = usize::try_from(start.column).ok()?.checked_sub(1)?;
        let (mut left, mut value, mut line) = (wanted, value, start.line);
        loop {
            let is_indented = self.is_indent(Place { line, ..start });
            let (_, text) = self.get(line)?.split_at_checked(indent).filter(|_| is_indented)?;
            value = value.strip_prefix(text)?;
            let length = text.chars().count();
            if left < length || value.trim_end_matches('\n').is_empty() {
                let column = u32::try_from(indent + left.min(length)).ok()?.checked_add(1)?;
                return Some(Place { line, column });
            }
            value = value.strip_prefix(' ')?;
            left = left.checked_sub(length + 1)?;
            line = line.checked_add(1)?;
        }
    }
}

/// How many empty lines a value begins with.
fn leading(value: &str) -> u32 {
    u32::try_from(value.len() - value.trim_start_matches('\n').len()).unwrap_or(u32::MAX)
}

/// How many characters of a value stand before a place in it.
fn offset(value: &str, inner: Place) -> usize {
    let (lines, columns) = (inner.line.saturating_sub(1) as usize, inner.column.saturating_sub(1) as usize);
    let before: usize = value.split('\n').take(lines).map(|line| line.chars().count() + 1).sum();
    before + columns
}

fn right(start: Place, characters: usize) -> Place {
    let characters = u32::try_from(characters).unwrap_or(0);
    Place { column: start.column.saturating_add(characters), ..start }
}

/// How many characters of the source stand before the character of that number.
fn in_single_quotes(source: &str, wanted: usize) -> Option<usize> {
    let mut characters = source.chars().peekable();
    let mut at = 0;
    for _ in 0..wanted {
        match characters.next()? {
            '\'' if characters.next_if_eq(&'\'').is_some() => at += 2,
            // The end: what is wrong may be that something is missing there.
            '\'' => return Some(at),
            _ => at += 1,
        }
    }
    characters.next().map(|_| at)
}

/// As [`in_single_quotes`], with the escapes of JSON and YAML.
fn in_double_quotes(source: &str, wanted: usize) -> Option<usize> {
    let mut characters = source.chars();
    let mut at = 0;
    for _ in 0..wanted {
        match characters.next()? {
            '"' => return Some(at),
            '\\' => {
                let length = match characters.next()? {
                    'x' => 2,
                    'u' if is_high_surrogate(characters.as_str()) => 10,
                    'u' => 4,
                    'U' => 8,
                    _ => 0,
                };
                at += 2 + length;
                if length > 0 {
                    characters.nth(length - 1)?;
                }
            }
            _ => at += 1,
        }
    }
    characters.next().map(|_| at)
}

/// Whether four digits are the first half of a character that JSON writes as two escapes.
fn is_high_surrogate(digits: &str) -> bool {
    let unit = digits.get(..4).and_then(|digits| u16::from_str_radix(digits, 16).ok());
    unit.is_some_and(|unit| (0xd800..0xdc00).contains(&unit))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        clock,
        document::{Node, parse},
    };

    fn place(line: u32, column: u32) -> Place {
        Place { line, column }
    }

    /// Where the first `%` of the value of `a` is found, and where it really is.
    fn found(text: &str) -> (Place, Place) {
        let node = parse(text, 1 << 16).unwrap();
        let scalar: &Node = node.get("a").unwrap();
        let value = scalar.text().unwrap();
        let inner = position(value);
        (Lines::of(text).within(scalar.place.unwrap(), value, inner), position(text))
    }

    fn position(text: &str) -> Place {
        let before = &text[..text.find('%').unwrap()];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap().chars().count() + 1;
        place(u32::try_from(line).unwrap(), u32::try_from(column).unwrap())
    }

    #[test]
    fn a_place_within_a_scalar_is_found_in_the_source() {
        for text in [
            "a: x%",
            "b: 1\na:   x:%\n",
            "a: 'it''s %'",
            "a: 'ü''''%'",
            r#"a: "x \" \\ \n \u00e9 \x41 \U0001f600 %""#,
            r#"{"b": 1, "a": "{\"x\": \"\ud83d\ude00\", \"y\": %}"}"#,
            "a: |\n  x\n    y: %\n",
            "a: |\r\n  x\r\n    y: %\r\n",
            "a: |-\n\n  x\n\n  ü %\n",
            "a: |2 # why\n    %\n",
            "a: >-\n  {x: y,\n  z: %}\n",
            "a: >\n  %\n",
        ] {
            let (found, truth) = found(text);
            assert_eq!(found, truth, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_followed_is_told_where_the_scalar_starts() {
        for (text, start) in [
            ("a: 'x\n  y %'\n", place(1, 4)),
            ("a: \"x\n  y %\"\n", place(1, 4)),
            ("a: >\n  x\n\n  y %\n", place(2, 3)),
            ("a: x\n  y %\n", place(1, 4)),
            ("b: &x\n  y %\na: *x\n", place(3, 4)),
        ] {
            assert_eq!(found(text).0, start, "{text}");
        }
    }

    #[test]
    fn a_place_behind_the_end_is_that_of_the_end() {
        let lines = Lines::of("a: '{x: 1'\nb: \"{x\"\n");
        assert_eq!(lines.within(place(1, 4), "{x: 1", place(1, 7)), place(1, 10));
        assert_eq!(lines.within(place(2, 4), "{x", place(1, 9)), place(2, 7));
        assert_eq!(lines.within(place(9, 4), "{x", place(1, 9)), place(9, 4), "no such line");
    }

    #[test]
    fn places_on_one_long_line_are_found_without_walking_it_for_each() {
        const ITEMS: u32 = 400_000;
        let blanks = " ".repeat(1 << 20);
        let text = format!("{blanks}{}", "\"ü%\", ".repeat(ITEMS as usize));
        let (lines, began) = (Lines::of(&text), clock::now());
        for item in (0..ITEMS).step_by(200) {
            let start = place(1, (1 << 20) + 1 + 6 * item);
            assert_eq!(lines.within(start, "ü%", place(1, 2)), place(1, start.column + 2));
        }
        let took = clock::now() - began;
        assert!(took < Duration::from_secs(5), "{took:?}");
    }

    proptest! {
        #[test]
        fn no_text_and_no_place_panics(
            text in "[a |>'\"\\\\xuU\n\r%:]{0,30}", value in "[a %\n]{0,20}",
            line in 0_u32..9, column in 0_u32..40, inner_line in any::<u32>(), inner_column in any::<u32>(),
        ) {
            let _ = Lines::of(&text).within(place(line, column), &value, place(inner_line, inner_column));
        }

        #[test]
        fn what_is_quoted_is_followed(before in "[ -$&-~\u{e9}]{0,20}") {
            let value = format!("{before}%");
            let json = serde_json::to_string(&std::collections::BTreeMap::from([("a", value)])).unwrap();
            let (at, truth) = found(&json);
            prop_assert_eq!(at, truth);
            let (at, truth) = found(&format!("a: '{}%'", before.replace('\'', "''")));
            prop_assert_eq!(at, truth);
        }
    }
}
