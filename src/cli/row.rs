//! A record as a line: pieces in, text out. Where a terminal is too narrow for it, the record goes on below, and nothing
//! of it is lost that its reader looks for. Elsewhere it is always one line.

use super::{
    screen::{Paint, Screen, fit, width_of},
    wrap::{explaining, words},
};
use crate::report::printable::printable;

/// A record that grows piece by piece.
pub(super) struct Row {
    screen: Screen,
    is_wide: bool,
    pieces: Vec<Piece>,
}

struct Piece {
    /// Without controls.
    text: String,
    at_least: usize,
    paint: Paint,
    /// Whether it begins a line on a terminal.
    is_below: bool,
}

/// Before the second line of a record.
const BELOW: &str = "  └ ";

/// Before the lines after it.
const FURTHER: &str = "    ";

impl Row {
    /// An empty record; one line, however long, if it `is_wide`.
    pub(super) fn new(screen: Screen, is_wide: bool) -> Self {
        Self { screen, is_wide, pieces: Vec::new() }
    }

    /// Adds a text with a minimum width; nothing if the text is empty.
    pub(super) fn column(&mut self, text: &str, at_least: usize, paint: Paint) {
        if !text.is_empty() {
            let text = printable(text).into_owned();
            self.pieces.push(Piece { text, at_least, paint, is_below: false });
        }
    }

    /// Adds a text that begins a line on a terminal, so that the lines above are alike; nothing if the text is empty.
    pub(super) fn below(&mut self, text: &str, paint: Paint) {
        if !text.is_empty() {
            let text = printable(text).into_owned();
            self.pieces.push(Piece { text, at_least: 0, paint, is_below: true });
        }
    }

    /// The record, without an end of line.
    pub(super) fn finish(self) -> String {
        let limit = if self.is_wide { usize::MAX } else { self.screen.width };
        let width: usize =
            self.pieces.iter().map(|piece| width_of(&piece.text).max(piece.at_least) + 1).sum();
        let fits = width <= limit.saturating_add(1) && !self.pieces.iter().any(|piece| piece.is_below);
        let is_one = self.is_wide || !self.screen.is_terminal || fits;
        let text = if is_one { self.line(limit) } else { self.lines(limit) };
        self.screen.legible(text)
    }

    fn line(&self, limit: usize) -> String {
        let mut line = String::new();
        let mut left = limit;
        for piece in &self.pieces {
            self.add(&mut line, &mut left, piece);
        }
        line.truncate(line.trim_end_matches(' ').len());
        line
    }

    /// Adds as much of a piece to a line as there is room for.
    fn add(&self, line: &mut String, left: &mut usize, piece: &Piece) {
        let gap = usize::from(!line.is_empty());
        if *left <= gap {
            return;
        }
        *left -= gap;
        line.extend(std::iter::repeat_n(' ', gap));
        let text = fit(&piece.text, *left);
        let width = width_of(&text).max(piece.at_least).min(*left);
        line.push_str(&self.screen.paint(&text, piece.paint));
        line.extend(std::iter::repeat_n(' ', width - width_of(&text)));
        *left -= width;
    }

    /// As many pieces as fit on each line. A piece that is wider than a line takes as many lines as explanations may.
    fn lines(&self, limit: usize) -> String {
        let room = limit.saturating_sub(FURTHER.len());
        let mut lines = vec![String::new()];
        let mut left = limit;
        for piece in &self.pieces {
            let width = width_of(&piece.text);
            let line = lines.last_mut().expect("there is always a line");
            let gap = usize::from(!line.is_empty());
            if width + gap <= left && !piece.is_below {
                self.add(line, &mut left, piece);
                continue;
            }
            for text in words(piece.text.trim_start(), room, explaining(room)) {
                let indent = if lines.len() == 1 { BELOW } else { FURTHER };
                left = room.saturating_sub(width_of(&text));
                lines.push(format!("{indent}{}", self.screen.paint(&text, piece.paint)));
            }
        }
        lines.iter().map(|line| line.trim_end_matches(' ')).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(screen: Screen, is_wide: bool) -> String {
        let mut row = Row::new(screen, is_wide);
        row.column("10:00:00Z", 0, Paint::Plain);
        row.column("OK", 9, Paint::Plain);
        row.column("", 20, Paint::Plain);
        row.column("default/web/app", 0, Paint::Plain);
        row.column("sh -c 'test -e /tmp/healthy'", 0, Paint::Plain);
        row.finish()
    }

    #[test]
    fn a_record_goes_on_below_only_on_a_terminal_that_is_too_narrow() {
        let whole = "10:00:00Z OK        default/web/app sh -c 'test -e /tmp/healthy'";
        assert_eq!(shown(Screen::plain(64), false), whole);
        assert_eq!(
            shown(Screen::plain(63), false),
            "10:00:00Z OK        default/web/app\n  └ sh -c 'test -e /tmp/healthy'"
        );
        assert_eq!(
            shown(Screen::plain(24), false),
            "10:00:00Z OK\n  └ default/web/app\n    sh -c 'test -e\n    /tmp/healthy'"
        );
        assert_eq!(shown(Screen::plain(24), true), whole);
        assert_eq!(shown(Screen::pipe(), false), whole);
        let narrow = Screen { width: 24, ..Screen::pipe() };
        assert_eq!(shown(narrow, false), "10:00:00Z OK        def…");
    }
}
