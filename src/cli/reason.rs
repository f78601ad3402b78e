//! Texts of several lines on one, without the layers that a runtime puts before the reason. JSON keeps it all.

pub(super) use crate::results::layers::plain;

/// The same of a text of several lines on one, with a sign for each break. Empty lines are left out, and what is before
/// and after each line.
pub(super) fn one_line(text: &str) -> String {
    let text = plain(text.trim());
    if !text.contains('\n') {
        return text;
    }
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" \u{23ce} ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_lines_are_one_and_a_control_is_not_touched() {
        for (text, shown) in [
            ("one", "one"),
            ("  one\n", "one"),
            ("one\ntwo", "one \u{23ce} two"),
            ("Traceback:\r\n\n   at x\r\n\tat y\n", "Traceback: \u{23ce} at x \u{23ce} at y"),
            ("a\u{1b}[2J\nb", "a\u{1b}[2J \u{23ce} b"),
            ("a\rb", "a\rb"),
            ("\n\n", ""),
        ] {
            assert_eq!(one_line(text), shown);
        }
    }
}
