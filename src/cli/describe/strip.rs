//! A history in one line: attempts in, a sign each out. Where colours or signs are not wanted, letters do.

use super::super::screen::{Paint, Screen};
use crate::report::view::{AttemptResult, AttemptView};

/// A sign an attempt, in their order; each a column wide.
pub(super) fn strip(attempts: &[AttemptView], screen: Screen) -> String {
    let sign =
        |attempt: &AttemptView| screen.paint(sign(attempt.result, screen.has_signs), paint(attempt.result));
    attempts.iter().map(sign).collect()
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
        let coloured = strip(&history[..1], Screen { is_coloured: true, ..plain });
        assert_eq!(coloured, "\u{1b}[32m.\u{1b}[0m");
        assert_eq!(strip(&[], plain), "");
    }
}
