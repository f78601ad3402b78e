//! Tables of figures: rows in, text for a terminal or Markdown out.

use std::fmt::Write;

/// A table whose first column is text and whose others are numbers.
pub(crate) struct Table<const N: usize> {
    pub(crate) title: String,
    pub(crate) head: [&'static str; N],
    pub(crate) rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// Columns side by side, numbers to the right.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}\n", self.title);
        let widths: Vec<usize> = (0..N).map(|column| self.width(column)).collect();
        let head = self.head.map(str::to_owned);
        for row in std::iter::once(&head).chain(&self.rows) {
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let written = match column {
                    0 => write!(text, "  {cell:width$}"),
                    _ => write!(text, "  {cell:>width$}"),
                };
                written.expect("a string takes what is written");
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        text
    }

    /// The same for a document.
    pub(crate) fn markdown(&self) -> String {
        let mut text =
            format!("### {}\n\n| {} |\n|---{}|\n", self.title, self.head.join(" | "), "|---:".repeat(N - 1));
        for row in &self.rows {
            text += &format!("| {} |\n", row.join(" | "));
        }
        text
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].chars().count());
        cells.chain([self.head[column].chars().count()]).max().unwrap_or(0)
    }
}
