//! What the process of a command may show as its own: the words of a command in, prints to compare it by out. Pure.
//!
//! A process shows the words that it was started with, until it replaces itself: as `env A=b run` does by `run`, and a shell by
//! the last command of its script.

/// A hash of the words of a command.
pub(crate) type CommandPrint = u64;

/// 32 prints of one command, which take 256 bytes. Others of a long script are left out.
const MOST: usize = 32;

/// 4 KiB of a script are read.
const LONGEST_SCRIPT: usize = 4 << 10;

/// What the process of a command may show. The first one is that of the whole command; empty if that is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommandForms(Box<[CommandPrint]>);

impl CommandForms {
    /// Those of a command, of which `print` takes words that each have a NUL at their end.
    pub(super) fn of(words: &[&str], print: impl Fn(&[u8]) -> CommandPrint) -> Self {
        let mut forms = Vec::new();
        let mut add = |words: &[&str]| {
            for first in 0..words.len() {
                if forms.len() < MOST {
                    let terminated = words[first..].iter().flat_map(|word| word.bytes().chain([0]));
                    forms.push(print(&terminated.collect::<Vec<u8>>()));
                }
            }
        };
        add(words);
        for command in script(words).into_iter().flat_map(commands) {
            add(&command);
        }
        Self(forms.into())
    }

    /// Whether a process of this command may show that: prints of all words, and of those without the first word and the first
    /// two, as scripts show their interpreter before them.
    pub(super) fn may_show(&self, [all, script, with_option]: [CommandPrint; 3]) -> bool {
        let is_script = self.0.first().is_some_and(|own| [script, with_option].contains(own));
        is_script || self.0.contains(&all)
    }
}

/// The script of `sh -c SCRIPT`, with any shell, and other options beside.
fn script<'a>(words: &[&'a str]) -> Option<&'a str> {
    let is_option = |word: &str| word.starts_with('-') && !word.starts_with("--") && word.ends_with('c');
    let option = words.iter().position(|word| is_option(word))?;
    words.get(option + 1).copied()
}

/// The simple commands of a script, without quotes and redirections: what a shell replaces itself by, if it does.
fn commands(script: &str) -> Vec<Vec<&str>> {
    let script = script.get(..script.floor_char_boundary(LONGEST_SCRIPT)).unwrap_or_default();
    let mut commands = vec![Vec::new()];
    let mut is_target = false;
    for token in script.split_ascii_whitespace() {
        let redirected = token.trim_start_matches(|char: char| char.is_ascii_digit() || char == '&');
        if std::mem::take(&mut is_target) {
            continue;
        }
        if let Some(target) = redirected.strip_prefix(['<', '>']) {
            is_target = target.trim_start_matches(['<', '>', '&', '|']).is_empty();
            if target.ends_with(';') {
                commands.push(Vec::new());
            }
        } else {
            for (part, word) in token.split([';', '&', '|', '(', ')']).enumerate() {
                if part > 0 {
                    commands.push(Vec::new());
                }
                let word = word.trim_matches(['"', '\'']);
                if let Some(command) = commands.last_mut().filter(|_| !word.is_empty()) {
                    command.push(word);
                }
            }
        }
    }
    commands
}

#[cfg(test)]
mod tests {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};

    use super::*;

    fn print(words: &[u8]) -> CommandPrint {
        let mut hasher = DefaultHasher::new();
        words.hash(&mut hasher);
        hasher.finish()
    }

    /// The prints of what a process shows.
    fn shown(words: &str) -> [CommandPrint; 3] {
        let words: Vec<_> = words.split(' ').collect();
        [0, 1, 2].map(|first| {
            let words = words.get(first..).unwrap_or_default();
            print(&words.iter().flat_map(|word| word.bytes().chain([0])).collect::<Vec<u8>>())
        })
    }

    #[test]
    fn a_process_may_show_what_its_command_was_replaced_by() {
        let cases: [(&[&str], &[&str], &[&str]); 7] = [
            (&["cat", "/x"], &["cat /x", "/bin/sh cat /x", "sh -e cat /x"], &["cat", "cat /y", "cat /x /x"]),
            (&["env", "A=b", "nice", "run", "it"], &["nice run it", "run it"], &["env", "run"]),
            (&["sh", "-c", "sleep 5"], &["sleep 5"], &["sleep 50", "sh sleep 5 5"]),
            (
                &["/bin/sh", "-ec", "cd /a && exec run 'it' >/dev/null 2>&1"],
                &["run it", "cd /a"],
                &["sh", "run"],
            ),
            (&["sh", "-c", "run >/dev/null; wait;"], &["run", "wait"], &["/dev/null", "run wait"]),
            (&["sh", "-c", "(a b|c d)&e f"], &["a b", "c d", "e f"], &["a b c d"]),
            (&["grep", "--basic", "run it"], &[], &["run it"]),
        ];
        for (command, may, may_not) in cases {
            let forms = CommandForms::of(command, print);
            for (words, expected) in
                may.iter().map(|words| (words, true)).chain(may_not.iter().map(|words| (words, false)))
            {
                assert_eq!(forms.may_show(shown(words)), expected, "{command:?} shows {words}");
            }
        }
        assert!(!CommandForms::default().may_show(shown("a")));
    }

    #[test]
    fn a_long_script_has_a_bounded_number_of_prints() {
        let script = "a b c;".repeat(10_000);
        let forms = CommandForms::of(&["sh", "-c", &script], print);
        assert_eq!(forms.0.len(), MOST);
        assert!(forms.may_show(shown("a b c")));
        CommandForms::of(&["sh", "-c", &"ä".repeat(10_000)], print);
    }
}
