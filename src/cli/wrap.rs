//! Text in lines of a given width: broken between words, cut where a reader misses least. Controls are escaped.

use unicode_width::UnicodeWidthChar;

use super::screen::{MARGIN, Paint, Screen, fit, width_of};
use crate::report::printable::printable;

/// 320 columns of a text that only explains, at least 2 lines: what is longer is cut, and `-o wide` shows it whole. Advice is
/// at the end of such a text, and narrow lines hold less of it, as they break between words.
pub(super) fn explaining(width: usize) -> usize {
    (320 / width.max(1)).max(2)
}

/// The text as at most `most` lines of at most `width` columns, broken between words: none of it is lost but blanks at
/// the breaks, unless there are more lines.
pub(crate) fn words(text: &str, width: usize, most: usize) -> Vec<String> {
    let text = printable(text);
    let (width, mut rest) = (width.max(1), &*text);
    let mut lines = Vec::new();
    loop {
        let end = prefix(rest, width);
        if end == rest.len() || lines.len() + 1 >= most {
            lines.push(if end == rest.len() { rest.to_owned() } else { clip(rest, width) });
            return lines;
        }
        let at = break_in(rest, end);
        lines.push(rest[..at].trim_end_matches(' ').to_owned());
        rest = rest[at..].trim_start_matches(' ');
    }
}

/// The lines of an output in at most `width` columns, each behind the margin, so that none looks like one of ours. Controls
/// are escaped.
pub(super) fn indented(output: &str, width: usize) -> Vec<String> {
    let room = width.saturating_sub(MARGIN.len());
    let lines = output.trim_end().split('\n').flat_map(|line| words(line, room, usize::MAX));
    lines.map(|line| format!("{MARGIN}{line}").trim_end_matches(' ').to_owned()).collect()
}

/// Where to break a text of which `end` bytes fit: before a blank, or else after a sign that joins the parts of a name.
fn break_in(text: &str, end: usize) -> usize {
    let fitting = &text[..end];
    if text[end..].starts_with(' ') {
        return end;
    }
    let blank = fitting.rfind(' ').filter(|&at| !fitting[..at].trim_start().is_empty());
    let joint = || fitting.rfind(['/', '-', ',', ';', ':', '=']).map(|at| at + 1).filter(|&at| at > end / 2);
    blank.or_else(joint).unwrap_or(end)
}

/// The text in at most `width` columns; if it is cut, then between words where that costs little, and it ends in `…`.
pub(crate) fn clip(text: &str, width: usize) -> String {
    let text = printable(text);
    if prefix_within(&text, width) == text.len() {
        return text.into_owned();
    }
    let (fitting, rest) = text.split_at(prefix_within(&text, width.saturating_sub(1)));
    let blank =
        fitting.rfind(' ').filter(|&at| !rest.starts_with(' ') && at > fitting.len() - fitting.len() / 4);
    let cut = fitting[..blank.unwrap_or(fitting.len())].trim_end();
    if width == 0 { String::new() } else { format!("{cut}…") }
}

/// A name in at most `width` columns; if it is cut, then in its middle, because names of replicas differ at their ends.
/// A text of several words is cut at its end.
pub(super) fn shorten(text: &str, width: usize) -> String {
    let text = printable(text);
    if prefix_within(&text, width) == text.len() {
        return text.into_owned();
    }
    if text.contains(' ') {
        return clip(&text, width);
    }
    let tail = width.saturating_sub(1) / 2;
    if tail < 4 {
        return fit(&text, width);
    }
    let mut left = tail;
    let end = text.char_indices().rev().take_while(|(_, character)| {
        let columns = character.width().unwrap_or(0);
        let is_in = columns <= left;
        left = left.saturating_sub(columns);
        is_in
    });
    let from = end.last().map_or(text.len(), |(at, _)| at);
    let head = &text[..prefix_within(&text, width - 1 - width_of(&text[from..]))];
    format!("{head}…{}", &text[from..])
}

/// So many bytes of the text take at most `width` columns; of a text that is not empty, at least one character.
fn prefix(text: &str, width: usize) -> usize {
    let first = text.chars().next().map_or(0, char::len_utf8);
    prefix_within(text, width).max(first)
}

fn prefix_within(text: &str, width: usize) -> usize {
    let mut left = width;
    for (at, character) in text.char_indices() {
        let columns = character.width().unwrap_or(0);
        if columns > left {
            return at;
        }
        left -= columns;
    }
    text.len()
}

/// 40 columns: on a narrower screen, a value is below its name.
const BESIDE: usize = 40;

/// `NAME  VALUE`, the value behind so many columns; a long one continues on the next lines. The name may begin with
/// blanks.
pub(super) fn entry(
    screen: Screen,
    (name, columns): (&str, usize),
    value: &str,
    paint: Paint,
) -> Vec<String> {
    let is_beside = screen.width >= BESIDE || value.is_empty();
    let indent = if is_beside { columns } else { name.len() - name.trim_start().len() + 2 };
    let values = words(value, screen.width.saturating_sub(indent), usize::MAX);
    let mut name = name;
    let mut lines = Vec::new();
    if !is_beside {
        lines.push(name.to_owned());
        name = "";
    }
    for value in values {
        let line = format!("{name:indent$}{}", screen.paint(&value, paint));
        lines.push(line.trim_end_matches(' ').to_owned());
        name = "";
    }
    lines.into_iter().map(|line| screen.legible(line)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_break_between_words_and_else_at_joints() {
        for (text, width, most, lines) in [
            ("", 5, 9, &[""][..]),
            ("one two three", 7, 9, &["one two", "three"]),
            ("one two three", 8, 9, &["one two", "three"]),
            ("kube-system/dns-7c9f", 14, 9, &["kube-system/", "dns-7c9f"]),
            ("abcdefgh", 3, 9, &["abc", "def", "gh"]),
            ("  indented text", 10, 9, &["  indented", "text"]),
            ("one two three four", 7, 2, &["one two", "three…"]),
            ("漢字漢", 1, 9, &["漢", "字", "漢"]),
            ("a\u{1b}b", 80, 9, &["a\\u{1b}b"]),
        ] {
            assert_eq!(words(text, width, most), lines, "{text:?} in {width}");
        }
    }

    #[test]
    fn a_name_keeps_its_end_and_a_text_its_beginning() {
        for (text, width, shown) in [
            ("kube-system/dns-7c9f6b8d9c-x2x2x", 20, "kube-syste…d9c-x2x2x"),
            ("short", 5, "short"),
            ("abcdefgh", 5, "abcd…"),
            ("漢字漢字漢字漢字", 11, "漢字漢…漢字"),
            ("because of a long and winding reason", 22, "because of a long and…"),
            ("because of a long", 14, "because of a…"),
            ("unbelievably long", 10, "unbelieva…"),
            ("x", 0, ""),
        ] {
            assert_eq!(shorten(text, width), shown, "{text:?} in {width}");
        }
    }

    #[test]
    fn a_value_stands_beside_its_name_where_there_is_room() {
        let lines = |width| {
            entry(Screen::plain(width), ("runtime", 10), "containerd at unix:///run/x.sock", Paint::Plain)
        };
        assert_eq!(lines(80), ["runtime   containerd at unix:///run/x.sock"]);
        assert_eq!(lines(40), ["runtime   containerd at", "          unix:///run/x.sock"]);
        assert_eq!(lines(20), ["runtime", "  containerd at", "  unix:///run/x.sock"]);
        assert_eq!(entry(Screen::plain(20), ("x", 10), "", Paint::Plain), ["x"]);
    }

    proptest! {
        #[test]
        fn no_line_is_too_wide_and_only_blanks_get_lost(text in "[a-z/ .漢-]{0,80}", width in 2_usize..40) {
            let lines = words(&text, width, usize::MAX);
            for line in &lines {
                prop_assert!(width_of(line) <= width, "{line:?}");
            }
            let solid = |text: &str| text.replace(' ', "");
            prop_assert_eq!(solid(&lines.concat()), solid(&text));
            prop_assert!(words(&text, width, 2).len() <= 2);
            prop_assert!(width_of(&shorten(&text, width)) <= width);
            prop_assert!(width_of(&clip(&text, width)) <= width);
        }
    }
}
