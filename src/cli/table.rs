//! Tables as people read them: columns aligned, no borders, cut to the width there is; where that is too narrow for
//! columns, each row as a few short lines. Rows in, text out.

use super::{
    screen::{MARGIN, Paint, Screen, width_of},
    wrap::{explaining, shorten, words},
};
use crate::report::printable::printable;

/// A table while it is filled.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    lines: Vec<Line>,
}

/// How a column behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    /// Its head.
    pub(crate) name: &'static str,
    /// What happens to it if the table is too wide.
    pub(crate) tight: Tight,
}

/// What happens to a column if there is not enough room, in the order in which it is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tight {
    /// It is left out before any other is touched.
    GoesFirst,
    /// It is cut, down to [`NARROWEST`], but down to [`LEGIBLE`] before others are left out for it.
    Shrinks,
    /// The same of the last column, whose texts go on below.
    Wraps,
    /// It is left out when cutting others to [`LEGIBLE`] was not enough.
    GoesNext,
    /// It is left out when that was not enough, either.
    GoesLast,
    /// It stays.
    Stays,
}

#[derive(Clone, Debug)]
enum Line {
    Row(Vec<Cell>),
    /// Explains the row before it.
    Note(Cell),
}

/// A text and its meaning.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    paint: Paint,
}

/// Two spaces between columns.
const GAP: &str = "  ";

/// 18 columns of a name show which one it is: less important columns go before it gives way further. So 80 columns have
/// room for the last attempt of a probe, whatever its pod's name is.
const LEGIBLE: usize = 18;

/// 64 columns of a text that is not cut: a longer one moves the rest of its own row, and of no other.
const ALIGNED: usize = 64;

/// 16 columns: no column gives way further. If this is not enough, a row takes several lines.
const NARROWEST: usize = 16;

impl Cell {
    /// Escapes terminal control characters.
    pub(crate) fn new(text: &str, paint: Paint) -> Self {
        Self { text: printable(text).into_owned(), paint }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::new(text, Paint::Plain)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::new(&text, Paint::Plain)
    }
}

impl Table {
    pub(crate) fn new(columns: Vec<Column>) -> Self {
        Self { columns, lines: Vec::new() }
    }

    /// Adds a row: a cell for each column.
    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.lines.push(Line::Row(cells));
    }

    /// Adds a line below the row that it explains.
    pub(crate) fn note(&mut self, cell: Cell) {
        self.lines.push(Line::Note(cell));
    }

    /// The lines, headings first; no line is wider than `limit`, if there is one.
    pub(crate) fn render(&self, screen: Screen, limit: Option<usize>) -> Vec<String> {
        let (head, body) = self.parts(screen, limit);
        head.into_iter().chain(body).collect()
    }

    /// The heading, if there is room for columns, and the lines below it.
    pub(crate) fn parts(&self, screen: Screen, limit: Option<usize>) -> (Option<String>, Vec<String>) {
        if !screen.is_terminal && self.lines.iter().any(|line| matches!(line, Line::Note(_))) {
            return self.with_reasons().parts(screen, limit);
        }
        let limit = limit.unwrap_or(usize::MAX);
        let mut widths = self.widths(limit);
        if limit == usize::MAX {
            widths.iter_mut().flatten().for_each(|width| *width = (*width).min(ALIGNED));
        }
        if screen.is_terminal && total(&widths) > limit {
            let lines = self.lines.iter().flat_map(|line| match line {
                Line::Row(cells) => self.record(screen, cells, limit),
                Line::Note(cell) => note(screen, cell, limit),
            });
            return (None, lines.map(|line| screen.legible(line.trim_end_matches(' ').to_owned())).collect());
        }
        let head: Vec<_> = self.columns.iter().map(|column| Cell::new(column.name, Paint::Faint)).collect();
        let lines = self.lines.iter().flat_map(|line| match line {
            Line::Row(cells) if screen.is_terminal => self.wrapped(screen, cells, &widths, limit),
            Line::Row(cells) => vec![row(screen, cells, &widths, limit)],
            Line::Note(cell) => note(screen, cell, limit),
        });
        (Some(row(screen, &head, &widths, limit)), lines.map(|line| screen.legible(line)).collect())
    }

    /// The same with the notes at the end of the rows that they explain.
    fn with_reasons(&self) -> Self {
        let reason = Column { name: "REASON", tight: Tight::Stays };
        let mut table = Self::new(self.columns.iter().copied().chain([reason]).collect());
        for line in &self.lines {
            match (line, table.lines.last_mut()) {
                (Line::Row(cells), _) => {
                    let missing = self.columns.len().saturating_sub(cells.len());
                    let missing = std::iter::repeat_n(Cell::from(""), missing + 1);
                    table.row(cells.iter().cloned().chain(missing).collect());
                }
                (Line::Note(note), Some(Line::Row(cells))) => {
                    let Some(reason) = cells.last_mut() else { continue };
                    let gap = if reason.text.is_empty() { "" } else { "; " };
                    *reason = Cell { text: format!("{}{gap}{}", reason.text, note.text), paint: note.paint };
                }
                (Line::Note(_), _) => {}
            }
        }
        table
    }

    /// A row, and below it the rest of its last text where that wraps, as much as explanations may take.
    fn wrapped(&self, screen: Screen, cells: &[Cell], widths: &[Option<usize>], limit: usize) -> Vec<String> {
        let wraps = self.columns.last().is_some_and(|column| column.tight == Tight::Wraps);
        let (Some((last, before)), Some(&Some(width)), true) = (cells.split_last(), widths.last(), wraps)
        else {
            return vec![row(screen, cells, widths, limit)];
        };
        let mut texts = words(&last.text, width, explaining(width)).into_iter();
        let text = texts.next().unwrap_or_default();
        let first: Vec<_> = before.iter().cloned().chain([Cell { text, paint: last.paint }]).collect();
        let indent = total(widths) - width;
        let further = texts.map(|text| format!("{:indent$}{}", "", screen.paint(&text, last.paint)));
        std::iter::once(row(screen, &first, widths, limit)).chain(further).collect()
    }

    /// A row as a few lines: its first cell, and below it the others with their names, without those that may be left out.
    fn record(&self, screen: Screen, cells: &[Cell], limit: usize) -> Vec<String> {
        let may_go =
            |column: &Column| matches!(column.tight, Tight::GoesFirst | Tight::GoesNext | Tight::GoesLast);
        let cells = self.columns.iter().zip(cells);
        let mut cells = cells.filter(|(column, cell)| !cell.text.is_empty() && !may_go(column));
        let title = cells.next().map(|(_, cell)| words(&cell.text, limit, usize::MAX)).unwrap_or_default();
        let room = limit.saturating_sub(MARGIN.len());
        let mut lines = title;
        let mut left = 0;
        for (column, cell) in cells {
            let name = column.name.to_lowercase();
            let width = width_of(&name) + 1 + width_of(&cell.text);
            let value = screen.paint(&cell.text, cell.paint);
            if let Some(line) = lines.last_mut().filter(|_| width + GAP.len() <= left) {
                line.push_str(&format!("{GAP}{name} {value}"));
                left -= width + GAP.len();
            } else if width <= room {
                lines.push(format!("{MARGIN}{name} {value}"));
                left = room - width;
            } else {
                lines.push(format!("{MARGIN}{name}"));
                let values = words(&cell.text, room.saturating_sub(MARGIN.len()), explaining(limit));
                let paint = |line: String| format!("{MARGIN}{MARGIN}{}", screen.paint(&line, cell.paint));
                lines.extend(values.into_iter().map(paint));
                left = 0;
            }
        }
        lines
    }

    /// The width of each column, `None` for one that is left out: the width of its widest cell, as far as it fits.
    fn widths(&self, limit: usize) -> Vec<Option<usize>> {
        let mut widths: Vec<_> = self.columns.iter().map(|column| Some(width_of(column.name))).collect();
        for line in &self.lines {
            let Line::Row(cells) = line else { continue };
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = (*width).max(Some(width_of(&cell.text)));
            }
        }
        let find = |widths: &[Option<usize>], tight| {
            (0..widths.len()).rev().find(|&at| widths[at].is_some() && self.columns[at].tight == tight)
        };
        while total(&widths) > limit {
            let Some(at) = find(&widths, Tight::GoesFirst) else { break };
            widths[at] = None;
        }
        while total(&self.shrunk(&widths, limit, LEGIBLE)) > limit {
            let next = find(&widths, Tight::GoesNext).or_else(|| find(&widths, Tight::GoesLast));
            let Some(at) = next else { break };
            widths[at] = None;
        }
        self.shrunk(&widths, limit, NARROWEST)
    }

    /// Takes from the widest of those that shrink, until all fit or none can give more.
    fn shrunk(&self, widths: &[Option<usize>], limit: usize, narrowest: usize) -> Vec<Option<usize>> {
        let mut widths = widths.to_vec();
        while total(&widths) > limit {
            let columns = widths.iter_mut().zip(&self.columns);
            let shrinking =
                columns.filter(|(_, column)| matches!(column.tight, Tight::Shrinks | Tight::Wraps));
            let widest = shrinking.filter_map(|(width, _)| width.as_mut()).max_by_key(|width| **width);
            match widest {
                Some(width) if *width > narrowest => *width -= 1,
                Some(_) | None => break,
            }
        }
        widths
    }
}

/// What a row takes, gaps and all.
fn total(widths: &[Option<usize>]) -> usize {
    let shown = widths.iter().flatten();
    shown.clone().sum::<usize>() + GAP.len() * shown.count().saturating_sub(1)
}

/// The note, in as many lines as explanations may take.
fn note(screen: Screen, note: &Cell, limit: usize) -> Vec<String> {
    let lines = words(&note.text, limit.saturating_sub(MARGIN.len() * 2), explaining(limit));
    let signs = std::iter::once("└ ").chain(std::iter::repeat(MARGIN));
    let line = |(sign, line): (&str, &String)| screen.paint(&format!("{MARGIN}{sign}{line}"), note.paint);
    signs.zip(&lines).map(line).collect()
}

fn row(screen: Screen, cells: &[Cell], widths: &[Option<usize>], limit: usize) -> String {
    let mut line = String::new();
    let mut left = limit;
    for (cell, width) in cells.iter().zip(widths) {
        let Some(width) = width.map(|width| width.min(left)) else { continue };
        let text = if limit == usize::MAX { cell.text.clone() } else { shorten(&cell.text, width) };
        line.push_str(&screen.paint(&text, cell.paint));
        let width = width.max(width_of(&text));
        line.extend(std::iter::repeat_n(' ', (width + GAP.len()).min(left) - width_of(&text)));
        left = left.saturating_sub(width + GAP.len());
    }
    line.truncate(line.trim_end_matches(' ').len());
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(rows: &[[&str; 3]]) -> Table {
        let column = |name, tight| Column { name, tight };
        let mut table = Table::new(vec![
            column("NAME", Tight::Shrinks),
            column("STATE", Tight::Stays),
            column("WHY", Tight::Shrinks),
        ]);
        for cells in rows {
            table.row(cells.iter().map(|&text| text.into()).collect());
        }
        table
    }

    #[test]
    fn a_last_column_that_wraps_goes_on_below_itself() {
        let column = |name, tight| Column { name, tight };
        let mut table = Table::new(vec![column("AT", Tight::Stays), column("MESSAGE", Tight::Wraps)]);
        table.row(vec!["10:00".into(), "the runtime is away: no process".into()]);
        table.row(vec!["10:01".into(), "back".into()]);
        assert_eq!(
            table.render(Screen::plain(25), Some(25)),
            ["AT     MESSAGE", "10:00  the runtime is", "       away: no process", "10:01  back"]
        );
        let whole = table.render(Screen::plain(25), None);
        assert_eq!(whole[1], "10:00  the runtime is away: no process");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let table = table(&[["a", "ok", ""], ["漢字", "failure", "it broke"]]);
        assert_eq!(
            table.render(Screen::plain(100), Some(100)),
            ["NAME  STATE    WHY", "a     ok", "漢字  failure  it broke"]
        );
    }

    #[test]
    fn the_widest_gives_way_first() {
        let mut table =
            table(&[["a-name-of-some-length", "success", "because of a long and winding reason"]]);
        table.note("and this is why, at length".into());
        assert_eq!(
            table.render(Screen::plain(0), Some(56)),
            [
                "NAME                   STATE    WHY",
                "a-name-of-some-length  success  because of a long and…",
                "  └ and this is why, at length",
            ]
        );
        assert_eq!(
            table.render(Screen::plain(0), Some(43)),
            [
                "NAME              STATE    WHY",
                "a-name-o…-length  success  because of a lo…",
                "  └ and this is why, at length",
            ]
        );
    }

    #[test]
    fn a_row_takes_several_lines_where_columns_do_not_fit() {
        let mut table =
            table(&[["a-name-of-some-length", "success", "because of a long and winding reason"]]);
        table.row(vec!["b".into(), "ok".into(), "".into()]);
        table.note("and this is why, at length".into());
        assert_eq!(
            table.render(Screen::plain(0), Some(30)),
            [
                "a-name-of-some-length",
                "  state success",
                "  why",
                "    because of a long and",
                "    winding reason",
                "b",
                "  state ok",
                "  └ and this is why, at length",
            ]
        );
        assert_eq!(table.render(Screen::plain(0), Some(20))[..2], ["a-name-of-some-", "length"]);
    }

    #[test]
    fn without_a_terminal_each_row_is_one_line_with_its_notes() {
        let mut table = table(&[["a", "ok", ""], ["b", "bad", "it broke"]]);
        table.note("and this is why".into());
        table.note("and this".into());
        assert_eq!(
            table.render(Screen::pipe(), None),
            ["NAME  STATE  WHY       REASON", "a     ok", "b     bad    it broke  and this is why; and this"]
        );
    }

    #[test]
    fn where_nothing_is_cut_a_long_name_moves_only_its_own_row() {
        let long = "n".repeat(100);
        let table = table(&[["a", "ok", "x"], [&long, "bad", "y"]]);
        for screen in [Screen::pipe(), Screen::plain(80)] {
            let lines = table.render(screen, None);
            assert_eq!(lines[1], format!("a{:63}  ok     x", ""));
            assert_eq!(lines[2], format!("{long}  bad    y"));
        }
    }

    #[test]
    fn columns_are_left_out_in_the_order_of_their_worth() {
        let column = |name, tight| Column { name, tight };
        let mut table = Table::new(vec![
            column("FIRST", Tight::GoesFirst),
            column("NAME", Tight::Shrinks),
            column("LAST", Tight::GoesLast),
            column("NEXT", Tight::GoesNext),
            column("STAYS", Tight::Stays),
        ]);
        let name = "a-name-of-thirty-two-characters-";
        table.row(["1", name, "3", "5", "4"].map(Cell::from).into());
        for (limit, head) in [
            (58, format!("FIRST  NAME{}LAST  NEXT  STAYS", " ".repeat(30))),
            (57, format!("NAME{}LAST  NEXT  STAYS", " ".repeat(30))),
            (37, format!("NAME{}LAST  NEXT  STAYS", " ".repeat(16))),
            (36, format!("NAME{}LAST  STAYS", " ".repeat(21))),
            (31, format!("NAME{}LAST  STAYS", " ".repeat(16))),
            (30, format!("NAME{}STAYS", " ".repeat(21))),
            (23, format!("NAME{}STAYS", " ".repeat(14))),
        ] {
            assert_eq!(table.render(Screen::plain(0), Some(limit))[0], head, "{limit}");
        }
        let lines = ["a-name-of-thirty-two-", "characters-", "  stays 4"];
        assert_eq!(table.render(Screen::plain(0), Some(22)), lines);
    }

    #[test]
    fn colours_do_not_count_as_width() {
        let mut table = table(&[]);
        table.row(vec!["a".into(), Cell::new("ok", Paint::Good), "why".into()]);
        let coloured = Screen { is_coloured: true, ..Screen::plain(100) };
        assert_eq!(table.render(coloured, None)[1], "a     \u{1b}[32mok\u{1b}[0m     why");
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_the_limit(
            rows in prop::collection::vec(["\\PC{0,30}", "[a-z]{0,9}", "\\PC{0,200}"], 0..4),
            limit in 8_usize..120,
        ) {
            let mut filled = table(&[]);
            for cells in &rows {
                filled.row(cells.iter().map(|text| text.as_str().into()).collect());
            }
            for line in filled.render(Screen::plain(limit), Some(limit)) {
                prop_assert!(width_of(&line) <= limit, "{line:?}");
                prop_assert!(!line.ends_with(' ') || line.contains('└'), "{line:?}");
            }
        }
    }
}
