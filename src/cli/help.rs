//! The ends of help texts: examples stay as they are, because they are there to be copied, and sentences take the width
//! there is. clap would break both at its width, and what is broken already once more.

use std::fmt::Write;

use clap::Command;

use super::wrap::words;

/// Encloses the name of a command in a help text whose end belongs there.
const MARK: char = '\u{e000}';

/// 6 columns before the explanation of an example that has no room beside it.
const EXPLAINED: &str = "      ";

/// The command with marks instead of the ends of its help texts.
pub(super) fn marked(command: Command) -> Command {
    let name = command.get_name().to_owned();
    let command = command.mut_subcommands(marked);
    if command.get_after_help().is_some() {
        command.after_help(format!("{MARK}{name}{MARK}"))
    } else {
        command
    }
}

/// A help text of the marked command with its end, which is that of `command`.
pub(super) fn ended(help: &str, command: &Command, width: usize) -> String {
    let mut parts = help.splitn(3, MARK);
    let (Some(begin), Some(name), Some(end)) = (parts.next(), parts.next(), parts.next()) else {
        return help.to_owned();
    };
    let named = if command.get_name() == name { Some(command) } else { command.find_subcommand(name) };
    let epilogue = named.and_then(Command::get_after_help).map(ToString::to_string).unwrap_or_default();
    format!("{begin}{}{end}", laid_out(&epilogue, width))
}

/// Sentences, which may span lines, in lines of at most `width` columns; indented lines as they are, but for explanations
/// behind two blanks or more, which go below where there is no room.
fn laid_out(epilogue: &str, width: usize) -> String {
    let mut text = String::new();
    let mut sentences = String::new();
    for line in epilogue.lines().chain([""]) {
        let is_sentence = !line.is_empty() && !line.starts_with(' ');
        if is_sentence {
            if !sentences.is_empty() {
                sentences.push(' ');
            }
            sentences.push_str(line);
            continue;
        }
        if !sentences.is_empty() {
            let _ = writeln!(text, "{}", words(&sentences, width, usize::MAX).join("\n"));
            sentences.clear();
        }
        let _ = writeln!(text, "{}", example(line, width));
    }
    text.truncate(text.trim_end().len());
    text
}

fn example(line: &str, width: usize) -> String {
    let is_short = line.chars().count() <= width;
    match line.trim_start().split_once("  ") {
        Some((command, explanation)) if !is_short => {
            let explained =
                words(explanation.trim_start(), width.saturating_sub(EXPLAINED.len()), usize::MAX);
            format!("  {command}\n{EXPLAINED}{}", explained.join(&format!("\n{EXPLAINED}")))
        }
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_take_the_width_and_examples_stay() {
        let epilogue = "Examples:\n  a verb --flag       what it does here\n  a very long command that is copied\n\nOne \
                        sentence of\nseveral lines.\nAnother.";
        assert_eq!(
            laid_out(epilogue, 30),
            "Examples:\n  a verb --flag\n      what it does here\n  a very long command that is copied\n\nOne sentence of \
             several lines.\nAnother."
        );
        assert_eq!(
            laid_out(epilogue, 100),
            "Examples:\n  a verb --flag       what it does here\n  a very long command that is copied\n\nOne sentence of \
             several lines. Another."
        );
    }

    #[test]
    fn a_text_without_a_mark_stays() {
        assert_eq!(ended("plain", &Command::new("x"), 80), "plain");
        let command = Command::new("x").after_help("End.");
        let help = marked(command.clone()).render_help().to_string();
        assert!(ended(&help, &command, 80).ends_with("\n\nEnd.\n"), "{help}");
    }
}
