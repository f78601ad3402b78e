//! What we print on: how wide, whether it is a terminal, whether in colour. The one place that decides.

use std::{
    env,
    io::{self, IsTerminal, Write},
    os::fd::AsRawFd,
};

use tokio::io::{Interest, unix::AsyncFd};
use unicode_width::UnicodeWidthChar;

use crate::report::printable::printable;

/// What we print on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Screen {
    /// The maximum width of a line; unlimited without a terminal, because other programs can cut lines themselves.
    pub(crate) width: usize,
    /// The height of a terminal whose cursor can be moved; `None` if nothing can be redrawn.
    pub(crate) height: Option<usize>,
    /// Whether to colour.
    pub(crate) is_coloured: bool,
    /// Whether non-ASCII symbols can be used: on a terminal in UTF-8, without `NO_COLOR`.
    pub(crate) has_signs: bool,
    /// Whether it is a terminal. Elsewhere each record is one line, so that `grep` finds it whole.
    pub(crate) is_terminal: bool,
    /// The characters that can be shown.
    pub(crate) letters: Letters,
}

/// The characters that can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Letters {
    /// All.
    All,
    /// Our own signs are ASCII; what containers print stays as it is: a pipe in no UTF-8 locale, `NO_COLOR`, or a dumb
    /// terminal.
    OursAscii,
    /// Only ASCII: a terminal in no UTF-8 locale.
    Ascii,
}

/// 100 columns if the terminal's width is unknown.
const WIDTH: usize = 100;

/// 10 columns: a narrower terminal wraps our lines.
const MIN_WIDTH: usize = 10;

/// What a piece of text means, as a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Paint {
    /// As it is.
    #[default]
    Plain,
    /// All is well.
    Good,
    /// Needs attention.
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

    /// The width of standard error, for a line that must not wrap.
    pub(crate) fn of_stderr_width() -> usize {
        let columns = rustix::termios::tcgetwinsize(io::stderr()).ok().map(|size| usize::from(size.ws_col));
        columns.filter(|&columns| columns > 0).unwrap_or(WIDTH)
    }

    /// From a terminal's columns and lines (0 if unknown), and the environment.
    fn new(size: Option<(usize, usize)>, is_terminal: bool, var: impl Fn(&str) -> Option<String>) -> Self {
        let is_capable = is_terminal && var("TERM").is_none_or(|term| term != "dumb");
        let given = var("COLUMNS").and_then(|columns| columns.parse().ok());
        // A variable may be older than the terminal's size, and a line wider than the terminal wraps.
        let columns = [given, size.map(|(columns, _)| columns)];
        let columns = columns.into_iter().flatten().filter(|&columns| columns > 0).min();
        let is_utf8 = is_utf8(&var);
        let is_plain = var("NO_COLOR").is_some() || var("TERM").is_some_and(|term| term == "dumb");
        Self {
            width: columns.unwrap_or(if is_terminal { WIDTH } else { usize::MAX }).max(MIN_WIDTH),
            height: size.map(|(_, lines)| lines).filter(|&lines| is_capable && lines > 1),
            is_coloured: is_capable && var("NO_COLOR").is_none(),
            has_signs: is_capable && var("NO_COLOR").is_none() && is_utf8,
            is_terminal,
            letters: match (is_utf8, is_plain) {
                (true, false) => Letters::All,
                (false, _) if is_terminal => Letters::Ascii,
                (true, true) | (false, _) => Letters::OursAscii,
            },
        }
    }

    /// The line in the characters that can be shown, as wide as it was.
    pub(crate) fn legible(self, line: String) -> String {
        if self.letters == Letters::All || line.is_ascii() {
            return line;
        }
        let mut shown = String::with_capacity(line.len());
        for character in line.chars() {
            match character {
                '…' => shown.push('~'),
                '└' => shown.push('>'),
                '—' => shown.push('-'),
                '\u{23ce}' => shown.push('|'),
                _ if character.is_ascii() || self.letters == Letters::OursAscii => shown.push(character),
                _ => shown.extend(std::iter::repeat_n('?', character.width().unwrap_or(0))),
            }
        }
        shown
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

/// Two columns before each row below a heading, and each line of an output.
pub(crate) const MARGIN: &str = "  ";

/// The width of a text in columns: the sum over its characters, so that a part is never wider than the whole. Sequences
/// that some terminals draw wider or narrower count as their parts.
pub(crate) fn width_of(text: &str) -> usize {
    text.chars().filter_map(UnicodeWidthChar::width).sum()
}

/// The text in at most `width` columns; if it is cut, its last column is `…`. Controls are escaped.
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

/// Writes a frame to a terminal. One that can shows it only once it is complete; others ignore what asks for that.
///
/// # Errors
/// As [`print()`].
pub(crate) fn print_frame(frame: &str) -> io::Result<()> {
    print(&format!("\u{1b}[?2026h{frame}\u{1b}[?2026l"))
}

/// Registers a standard stream with the kernel for one kind of event.
#[expect(
    deprecated,
    reason = "what is wrong with it cannot happen here: no code closes a standard stream, and the replacement needs unsafe \
              code"
)]
pub(crate) fn watch<T: AsRawFd>(stream: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(stream, interest)
}

/// Waits until the reader of standard output has left; without end where there is no reader, as with a file.
pub(crate) async fn reader_gone() {
    match watch(io::stdout(), Interest::ERROR) {
        Ok(stdout) => drop(stdout.ready(Interest::ERROR).await.map(|mut ready| ready.retain_ready())),
        Err(_) => std::future::pending().await,
    }
}

#[cfg(test)]
impl Screen {
    /// A terminal of this width, without colours and signs.
    pub(crate) fn plain(width: usize) -> Self {
        let letters = Letters::All;
        Self { width, height: None, is_coloured: false, has_signs: false, is_terminal: true, letters }
    }

    /// No terminal.
    pub(crate) fn pipe() -> Self {
        Self { is_terminal: false, ..Self::plain(usize::MAX) }
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
            (terminal, true, &[("COLUMNS", "132")], (80, Some(24), true)),
            (Some((5, 9)), true, &[], (10, Some(9), true)),
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
    fn what_cannot_be_shown_is_replaced_in_its_width() {
        let terminal = Some((80, 24));
        for (is_terminal, vars, shown) in [
            (true, &[("LANG", "C.UTF-8")][..], "└ über 漢 — …"),
            (true, &[("LANG", "C.UTF-8"), ("NO_COLOR", "1")], "> über 漢 - ~"),
            (true, &[("LANG", "C.UTF-8"), ("TERM", "dumb")], "> über 漢 - ~"),
            (true, &[("LANG", "C")], "> ?ber ?? - ~"),
            (true, &[], "> ?ber ?? - ~"),
            (false, &[], "> über 漢 - ~"),
            (false, &[("LANG", "C.UTF-8")], "└ über 漢 — …"),
        ] {
            let screen = screen(terminal, is_terminal, vars);
            assert_eq!(screen.legible("└ über 漢 — …".to_owned()), shown, "{is_terminal} {vars:?}");
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
