//! A history in one line: attempts in, a sign each out. Where colours or signs are not wanted, letters do.

use super::super::screen::{Paint, Screen};
use crate::report::view::{AttemptResult, AttemptView};

/// A sign an attempt, in their order, and [`MARK`] where another container begins; each a column wide.
pub(super) fn strip(attempts: &[AttemptView], screen: Screen) -> String {
    let sign = |(at, attempt): (usize, &AttemptView)| {
        let mark = if at > 0 && attempt.first_of_container { MARK } else { "" };
        let sign = screen.paint(sign(attempt.result, screen.has_signs), paint(attempt.result));
        format!("{mark}{sign}")
    };
    attempts.iter().enumerate().map(sign).collect()
}

/// Between the attempts at one container and those at the next.
const MARK: &str = "|";

/// The columns that they take.
pub(super) fn width(attempts: &[AttemptView]) -> usize {
    attempts.len() + attempts.iter().skip(1).filter(|attempt| attempt.first_of_container).count()
}

/// The newest that fit.
pub(super) fn newest(attempts: &[AttemptView], room: usize) -> &[AttemptView] {
    let fits = |from: &usize| width(&attempts[*from..]) <= room;
    let from = (attempts.len().saturating_sub(room)..attempts.len()).find(fits);
    &attempts[from.unwrap_or(attempts.len())..]
}

fn sign(result: AttemptResult, has_signs: bool) -> &'static str {
    match (result, has_signs) {
        (AttemptResult::Success, true) => "\u{2713}",
        (AttemptResult::Success, false) => ".",
        (AttemptResult::Warning, _) => "~",
        (AttemptResult::Failure, true) => "\u{2717}",
        (AttemptResult::Failure, false) => "X",
        (AttemptResult::Error, _) => "?",
    }
}

/// The colour of a result.
pub(super) fn paint(result: AttemptResult) -> Paint {
    match result {
        AttemptResult::Success => Paint::Good,
        AttemptResult::Warning | AttemptResult::Error => Paint::Doubtful,
        AttemptResult::Failure => Paint::Bad,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cli::screen::width_of, report::view::sample};

    #[test]
    fn a_sign_stands_for_an_attempt() {
        let history = sample::detail().history;
        let plain = Screen::plain(80);
        assert_eq!(strip(&history, plain), ".~?XXX");
        let signs = strip(&history, Screen { has_signs: true, ..plain });
        assert_eq!((&*signs, width_of(&signs)), ("\u{2713}~?\u{2717}\u{2717}\u{2717}", history.len()));
        let mut looping = history.clone();
        for at in [0, 2, 5] {
            looping[at].first_of_container = true;
        }
        assert_eq!(strip(&looping, plain), ".~|?XX|X");
        assert_eq!((width(&looping), newest(&looping, 8).len(), newest(&looping, 7).len()), (8, 6, 5));
        assert_eq!((strip(newest(&looping, 5), plain), newest(&looping, 0).len()), ("?XX|X".to_owned(), 0));
        let coloured = strip(&history[..1], Screen { is_coloured: true, ..plain });
        assert_eq!(coloured, "\u{1b}[32m.\u{1b}[0m");
        assert_eq!(strip(&[], plain), "");
    }
}
