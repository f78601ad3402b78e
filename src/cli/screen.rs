//! What we print on: how wide, whether it is a terminal, whether in colour. The one place that decides.

use std::{
    env,
    io::{self, IsTerminal, Write},
};

use unicode_width::UnicodeWidthChar;

use crate::report::printable::printable;

/// What we print on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Screen {
    /// Columns that a line may take; no bound where there is no terminal: what reads on can cut by itself.
    pub(crate) width: usize,
    /// Lines that fit, on a terminal whose cursor can be moved; elsewhere nothing can be redrawn.
    pub(crate) height: Option<usize>,
    /// Whether to colour.
    pub(crate) is_coloured: bool,
    /// Whether signs beyond ASCII may stand for something: on a terminal in UTF-8, without `NO_COLOR`.
    pub(crate) has_signs: bool,
}

/// 100 columns where the terminal's width is not known.
const WIDTH: usize = 100;

/// 40 columns: below that a table tells nothing, and a narrower terminal wraps.
const MIN_WIDTH: usize = 40;

/// What a piece of text means, as a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Paint {
    /// As it is.
    #[default]
    Plain,
    /// All is well.
    Good,
    /// Somebody should look.
    Bad,
    /// Not sure.
    Doubtful,
    /// Less important.
    Faint,
}

impl Screen {
    /// Standard output, as the terminal, `COLUMNS`, `NO_COLOR` and `TERM` say.
    pub(crate) fn of_stdout() -> Self {
        let stdout = io::stdout();
        let is_terminal = stdout.is_terminal();
        let size = is_terminal.then(|| rustix::termios::tcgetwinsize(&stdout).ok()).flatten();
        let size = size.map(|size| (usize::from(size.ws_col), usize::from(size.ws_row)));
        Self::new(size, is_terminal, |name| env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// From a terminal's columns and lines (0 where it does not know them), and the environment.
    fn new(size: Option<(usize, usize)>, is_terminal: bool, var: impl Fn(&str) -> Option<String>) -> Self {
        let is_capable = is_terminal && var("TERM").is_none_or(|term| term != "dumb");
        let given = var("COLUMNS").and_then(|columns| columns.parse().ok());
        let columns = given.or(size.map(|(columns, _)| columns)).filter(|&columns| columns > 0);
        Self {
            width: columns.unwrap_or(if is_terminal { WIDTH } else { usize::MAX }).max(MIN_WIDTH),
            height: size.map(|(_, lines)| lines).filter(|&lines| is_capable && lines > 1),
            is_coloured: is_capable && var("NO_COLOR").is_none(),
            has_signs: is_capable && var("NO_COLOR").is_none() && is_utf8(&var),
        }
    }

    /// The text in the colour of its meaning.
    pub(crate) fn paint(self, text: &str, paint: Paint) -> String {
        let code = match paint {
            Paint::Plain => return text.to_owned(),
            Paint::Good => "32",
            Paint::Bad => "31",
            Paint::Doubtful => "33",
            Paint::Faint => "2",
        };
        if self.is_coloured && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Whether the locale's characters are UTF-8: the first variable that is set decides (locale(7)).
fn is_utf8(var: impl Fn(&str) -> Option<String>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(var).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// The text as lines of at most `width` columns, none of it lost. Controls are escaped.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut left = width;
    for character in printable(text).chars() {
        let columns = character.width().unwrap_or(0);
        if columns > left && left < width {
            lines.push(String::new());
            left = width;
        }
        left = left.saturating_sub(columns);
        if let Some(line) = lines.last_mut() {
            line.push(character);
        }
    }
    lines
}

/// Two columns before each row below a heading, and each line of an output.
pub(crate) const MARGIN: &str = "  ";

/// The lines of an output in at most `width` columns, each behind the margin, so that none looks like one of ours. Controls
/// are escaped.
pub(crate) fn indented(output: &str, width: usize) -> Vec<String> {
    let room = width.saturating_sub(MARGIN.len());
    let lines = output.trim_end().split('\n').flat_map(|line| wrapped(line, room));
    lines.map(|line| format!("{MARGIN}{line}").trim_end_matches(' ').to_owned()).collect()
}

/// The columns that a text takes: those of its characters, so that a part never takes more than the whole. Sequences that
/// some terminals draw wider or narrower count as what they are made of.
pub(crate) fn width_of(text: &str) -> usize {
    text.chars().filter_map(UnicodeWidthChar::width).sum()
}

/// The text in at most `width` columns; where it is cut, its last column is `…`. Controls are escaped.
pub(crate) fn fit(text: &str, width: usize) -> String {
    let text = printable(text);
    if width_of(&text) <= width {
        return text.into_owned();
    }
    let mut left = width.saturating_sub(1);
    let mut cut = String::new();
    for character in text.chars() {
        let columns = character.width().unwrap_or(0);
        if columns > left {
            break;
        }
        left -= columns;
        cut.push(character);
    }
    if width > 0 {
        cut.push('…');
    }
    cut
}

/// Writes to standard output, and has it appear at once.
///
/// # Errors
/// What reads us has left, or a disk is full.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

#[cfg(test)]
impl Screen {
    /// No terminal, this wide.
    pub(crate) fn plain(width: usize) -> Self {
        Self { width, height: None, is_coloured: false, has_signs: false }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn screen(size: Option<(usize, usize)>, is_terminal: bool, vars: &[(&str, &str)]) -> Screen {
        Screen::new(size, is_terminal, |name| {
            vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_terminal_and_the_environment_decide() {
        let terminal = Some((80, 24));
        for (size, is_terminal, vars, expected) in [
            (None, false, &[][..], (usize::MAX, None, false)),
            (None, true, &[], (100, None, true)),
            (terminal, true, &[], (80, Some(24), true)),
            (terminal, true, &[("NO_COLOR", "1")], (80, Some(24), false)),
            (terminal, true, &[("TERM", "dumb")], (80, None, false)),
            (terminal, true, &[("COLUMNS", "60")], (60, Some(24), true)),
            (None, false, &[("COLUMNS", "132")], (132, None, false)),
            (None, false, &[("COLUMNS", "many")], (usize::MAX, None, false)),
            (Some((0, 0)), true, &[], (100, None, true)),
            (Some((5, 9)), true, &[], (40, Some(9), true)),
        ] {
            let screen = screen(size, is_terminal, vars);
            assert_eq!((screen.width, screen.height, screen.is_coloured), expected, "{size:?} {vars:?}");
        }
    }

    #[test]
    fn signs_are_for_terminals_in_utf8() {
        let terminal = Some((80, 24));
        for (is_terminal, vars, has_signs) in [
            (true, &[("LANG", "en_US.UTF-8")][..], true),
            (true, &[("LC_ALL", "C.utf8"), ("LANG", "C")], true),
            (true, &[("LC_ALL", "C"), ("LANG", "C.UTF-8")], false),
            (true, &[], false),
            (true, &[("LANG", "C.UTF-8"), ("NO_COLOR", "1")], false),
            (true, &[("LANG", "C.UTF-8"), ("TERM", "dumb")], false),
            (false, &[("LANG", "C.UTF-8")], false),
        ] {
            assert_eq!(screen(terminal, is_terminal, vars).has_signs, has_signs, "{vars:?}");
        }
    }

    #[test]
    fn a_wrapped_text_loses_nothing() {
        for (text, width, lines) in [
            ("", 5, &[""][..]),
            ("short", 5, &["short"]),
            ("longer", 5, &["longe", "r"]),
            ("漢字漢", 5, &["漢字", "漢"]),
            ("a\tb", 2, &["a\\", "tb"]),
            ("漢", 1, &["漢"]),
            ("ab", usize::MAX, &["ab"]),
        ] {
            assert_eq!(wrapped(text, width), lines, "{text:?}");
        }
    }

    #[test]
    fn colours_stand_around_text_only_where_wanted() {
        let coloured = Screen { is_coloured: true, ..Screen::plain(80) };
        assert_eq!(coloured.paint("x", Paint::Bad), "\u{1b}[31mx\u{1b}[0m");
        assert_eq!(coloured.paint("x", Paint::Plain), "x");
        assert_eq!(coloured.paint("", Paint::Bad), "");
        assert_eq!(Screen::plain(80).paint("x", Paint::Bad), "x");
    }

    #[test]
    fn a_cut_text_ends_in_an_ellipsis() {
        for (text, width, fitted) in [
            ("short", 5, "short"),
            ("longer", 5, "long…"),
            ("漢字漢字", 5, "漢字…"),
            ("漢字漢字", 4, "漢…"),
            ("x", 0, ""),
            ("a\nb", 9, "a\\nb"),
            ("\u{1b}[31m", 6, "\\u{1b…"),
        ] {
            assert_eq!(fit(text, width), fitted);
        }
    }

    proptest! {
        #[test]
        fn no_text_takes_more_than_it_may(text in any::<String>(), width in 0_usize..60) {
            prop_assert!(width_of(&fit(&text, width)) <= width);
        }
    }
}
