//! Tables as people read them: columns aligned, no borders, cut to the width there is. Rows in, text out.

use super::screen::{Paint, Screen, fit, width_of};
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
    /// It is cut, down to [`NARROWEST`].
    Shrinks,
    /// It is left out when cutting others was not enough.
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

/// 10 columns: no column gives way further.
const NARROWEST: usize = 10;

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
        let limit = limit.unwrap_or(usize::MAX);
        let widths = self.widths(limit);
        let head: Vec<_> = self.columns.iter().map(|column| Cell::new(column.name, Paint::Faint)).collect();
        let mut lines = vec![row(screen, &head, &widths, limit)];
        lines.extend(self.lines.iter().map(|line| match line {
            Line::Row(cells) => row(screen, cells, &widths, limit),
            Line::Note(cell) => {
                let note = fit(&format!("{GAP}└ {}", cell.text), limit);
                screen.paint(&note, cell.paint)
            }
        }));
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
        while total(&self.shrunk(&widths, limit)) > limit {
            let Some(at) = find(&widths, Tight::GoesLast) else { break };
            widths[at] = None;
        }
        self.shrunk(&widths, limit)
    }

    /// Takes from the widest of those that shrink, until all fit or none can give more.
    fn shrunk(&self, widths: &[Option<usize>], limit: usize) -> Vec<Option<usize>> {
        let mut widths = widths.to_vec();
        while total(&widths) > limit {
            let columns = widths.iter_mut().zip(&self.columns);
            let shrinking = columns.filter(|(_, column)| column.tight == Tight::Shrinks);
            let widest = shrinking.filter_map(|(width, _)| width.as_mut()).max_by_key(|width| **width);
            match widest {
                Some(width) if *width > NARROWEST => *width -= 1,
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

fn row(screen: Screen, cells: &[Cell], widths: &[Option<usize>], limit: usize) -> String {
    let mut line = String::new();
    let mut left = limit;
    for (cell, width) in cells.iter().zip(widths) {
        let Some(width) = width.map(|width| width.min(left)) else { continue };
        let text = fit(&cell.text, width);
        line.push_str(&screen.paint(&text, cell.paint));
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
            table.render(Screen::plain(0), Some(50)),
            [
                "NAME                  STATE    WHY",
                "a-name-of-some-leng…  success  because of a long …",
                "  └ and this is why, at length",
            ]
        );
        assert_eq!(
            table.render(Screen::plain(0), Some(24)),
            ["NAME        STATE    WHY", "a-name-of…  success  be…", "  └ and this is why, at…"],
            "what gives way no further is cut at the end"
        );
    }

    #[test]
    fn columns_are_left_out_in_the_order_of_their_worth() {
        let column = |name, tight| Column { name, tight };
        let mut table = Table::new(vec![
            column("FIRST", Tight::GoesFirst),
            column("NAME", Tight::Shrinks),
            column("LAST", Tight::GoesLast),
            column("STAYS", Tight::Stays),
        ]);
        table.row(vec!["1".into(), "twelve-chars".into(), "3".into(), "4".into()]);
        for (limit, head) in [
            (32, "FIRST  NAME          LAST  STAYS"),
            (31, "NAME          LAST  STAYS"),
            (25, "NAME          LAST  STAYS"),
            (24, "NAME         LAST  STAYS"),
            (23, "NAME        LAST  STAYS"),
            (22, "NAME          STAYS"),
            (17, "NAME        STAYS"),
            (15, "NAME        ST…"),
        ] {
            assert_eq!(table.render(Screen::plain(0), Some(limit))[0], head, "{limit}");
        }
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
            limit in 0_usize..120,
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
