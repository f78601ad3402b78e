//! Replaces `$(VAR)` in a command by the container's variables, as the kubelet does. Pure; bounded in bytes.
//!
//! One pass from left to right, and what was put in is never looked at again. `$$` is a dollar; an unknown name stays
//! as written; there is no nesting and no escape but `$$`. An expanded command is not kept: it is a view of the definition
//! and the environment, which is measured first, and then written where it is needed.

use crate::inventory::view::Env;

/// 2 MiB: what Linux takes as the arguments of one process, all together. A longer command is an error.
pub const MAX_COMMAND: usize = 2 << 20;

/// 256 KiB: the longest that the command of an annotation or a HEALTHCHECK may become. An annotation of 16 KiB can name a
/// variable 4,000 times, and its author has to leave memory to the other pods. A longer command is an error.
pub const MAX_PODS_COMMAND: usize = 256 << 10;

/// The command grew beyond so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the command is longer than {0} bytes after its variables were expanded")]
pub struct TooLong(pub usize);

/// A command with its variables. Cheap to copy; its words are never longer together than the limit that it was made with.
#[derive(Clone, Copy, Debug)]
pub struct Expansion<'a> {
    command: &'a [String],
    /// None where the command is run as it is written.
    env: Option<&'a Env>,
}

/// One word of it.
#[derive(Clone, Copy, Debug)]
pub struct Word<'a> {
    defined: &'a str,
    env: Option<&'a Env>,
}

/// A part of an expanded word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// As it was written, but for `$$`, which is one dollar.
    Literal(&'a str),
    /// The value of a variable, and how it was referred to.
    Value {
        /// What the container's environment holds.
        value: &'a str,
        /// `$(NAME)`.
        written: &'a str,
    },
}

impl<'a> Expansion<'a> {
    /// A command whose variables are replaced.
    ///
    /// # Errors
    /// When its words together exceed `limit` bytes.
    pub fn new(command: &'a [String], env: &'a Env, limit: usize) -> Result<Self, TooLong> {
        let expansion = Self { command, env: Some(env) };
        let mut length = 0;
        for piece in expansion.words().flat_map(Word::pieces) {
            length += piece.text().len();
            if length > limit {
                return Err(TooLong(limit));
            }
        }
        Ok(expansion)
    }

    /// A command that is run as it is written.
    pub fn literal(command: &'a [String]) -> Self {
        Self { command, env: None }
    }

    /// The command as it was defined.
    pub fn defined(&self) -> &'a [String] {
        self.command
    }

    /// Each element of the command on its own.
    pub fn words(&self) -> impl Iterator<Item = Word<'a>> + use<'a> {
        let env = self.env;
        self.command.iter().map(move |defined| Word { defined, env })
    }

    /// The whole, copied.
    pub fn to_argv(&self) -> Vec<String> {
        self.words().map(|word| word.pieces().map(Piece::text).collect()).collect()
    }
}

impl<'a> Word<'a> {
    /// As it was written.
    pub fn defined(self) -> &'a str {
        self.defined
    }

    /// Its parts, in order.
    pub fn pieces(self) -> Pieces<'a> {
        Pieces { text: self.defined, at: 0, last_close: self.defined.rfind(')'), env: self.env }
    }

    /// How long it is, in bytes.
    pub fn length(self) -> usize {
        self.pieces().map(|piece| piece.text().len()).sum()
    }
}

impl<'a> Piece<'a> {
    /// As it is run.
    pub fn text(self) -> &'a str {
        match self {
            Self::Literal(text) | Self::Value { value: text, .. } => text,
        }
    }
}

/// The parts of one word.
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    text: &'a str,
    at: usize,
    last_close: Option<usize>,
    env: Option<&'a Env>,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let rest = &self.text[self.at..];
        if rest.is_empty() {
            return None;
        }
        let (Some(env), Some(dollar)) = (self.env, rest.find('$')) else {
            self.at = self.text.len();
            return Some(Piece::Literal(rest));
        };
        if dollar > 0 {
            self.at += dollar;
            return Some(Piece::Literal(&rest[..dollar]));
        }
        let (token, after) = next_token(rest, self.last_close.is_some_and(|close| close > self.at));
        self.at = self.text.len() - after.len();
        Some(match token {
            Token::Literal(text) => Piece::Literal(text),
            Token::Reference { name, written } => {
                env.get(name).map_or(Piece::Literal(written), |value| Piece::Value { value, written })
            }
        })
    }
}

/// What a dollar can begin.
enum Token<'a> {
    /// Stays as it is.
    Literal(&'a str),
    /// `$(name)`, with the whole as written.
    Reference { name: &'a str, written: &'a str },
}

/// Splits off the token at the start of `text`, which is a dollar. `is_closed`: whether there is a `)` behind it; looked
/// for once, as looking at each of thousands of open `$(` would take a time of its own.
fn next_token(text: &str, is_closed: bool) -> (Token<'_>, &str) {
    let after_dollar = &text[1..];
    match after_dollar.chars().next() {
        None => (Token::Literal(text), ""),
        Some('$') => (Token::Literal("$"), &after_dollar[1..]),
        Some('(') => match is_closed.then(|| after_dollar.find(')')).flatten() {
            Some(end) => {
                let (written, rest) = text.split_at(end + 2);
                (Token::Reference { name: &after_dollar[1..end], written }, rest)
            }
            None => literal(text, 2),
        },
        Some(other) => literal(text, 1 + other.len_utf8()),
    }
}

fn literal(text: &str, length: usize) -> (Token<'_>, &str) {
    let (literal, rest) = text.split_at(length);
    (Token::Literal(literal), rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    /// One line of `tests/data/prober/expand.jsonl`.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Vector {
        id: String,
        command: Vec<String>,
        env: Vec<(String, String)>,
        argv: Vec<String>,
    }

    fn expand_one(text: &str, env: &Env) -> Result<String, TooLong> {
        let command = [text.to_owned()];
        Expansion::new(&command, env, MAX_COMMAND).map(|one| one.to_argv().concat())
    }

    #[test]
    fn commands_expand_as_the_vectors_say() {
        for line in include_str!("../../tests/data/prober/expand.jsonl").lines() {
            let vector: Vector = serde_json::from_str(line).unwrap();
            let env: Env = vector.env.into_iter().collect();
            let expansion = Expansion::new(&vector.command, &env, MAX_COMMAND).unwrap();
            assert_eq!(expansion.to_argv(), vector.argv, "{}", vector.id);
            let lengths: Vec<_> = expansion.words().map(Word::length).collect();
            assert_eq!(lengths, vector.argv.iter().map(String::len).collect::<Vec<_>>(), "{}", vector.id);
        }
    }

    #[test]
    fn a_command_of_open_references_is_read_once_and_a_variable_is_found_among_many() {
        let open = "$(".repeat(MAX_COMMAND / 4);
        let variables = (0..100_000).map(|n| (format!("V{n}"), n.to_string()));
        let env: Env = variables.chain([("V7".to_owned(), "last".to_owned())]).collect();
        let used = "$(V7)".repeat(100_000);
        // Each of them would take minutes if it were read again from every dollar.
        assert_eq!(expand_one(&open, &env).as_deref(), Ok(&*open));
        assert_eq!(expand_one(&used, &env).as_deref(), Ok(&*"last".repeat(100_000)));
    }

    #[test]
    fn a_command_that_grows_too_long_is_an_error_and_not_a_pile_of_memory() {
        let env: Env = [("X".to_owned(), "x".repeat(100_000))].into_iter().collect();
        let long = |command: &[String]| Expansion::new(command, &env, MAX_COMMAND).map(|_| ());
        assert_eq!(long(&["$(X)".repeat(19), "$(X)".into()]), Ok(()));
        assert_eq!(long(&["$(X)".repeat(19), "$(X)".into(), "$(X)".into()]), Err(TooLong(MAX_COMMAND)));
        assert_eq!(long(&["$(X)".repeat(4000)]), Err(TooLong(MAX_COMMAND)));
        let three = ["$(X)".repeat(3)];
        let told = Expansion::new(&three, &env, MAX_PODS_COMMAND).unwrap_err().to_string();
        assert_eq!(told, "the command is longer than 262144 bytes after its variables were expanded");
    }

    proptest! {
        #[test]
        fn without_a_dollar_nothing_changes(text in "[^$]*") {
            prop_assert_eq!(expand_one(&text, &Env::default()), Ok(text));
        }

        #[test]
        fn without_variables_only_pairs_of_dollars_change(text in "[$()a-b£]{0,30}") {
            let expanded = expand_one(&text, &Env::default()).unwrap();
            prop_assert!(expanded.len() <= text.len());
            prop_assert_eq!(expanded.replace('$', ""), text.replace('$', ""));
        }

        #[test]
        fn no_value_is_looked_at_again(text in "([$()a]|\\$\\(A\\)){0,12}", value in "[$()A]{0,8}") {
            let env: Env = [("A".to_owned(), value.clone())].into_iter().collect();
            let mark: Env = [("A".to_owned(), "\u{1}".to_owned())].into_iter().collect();
            let with_mark = expand_one(&text, &mark).unwrap();
            prop_assert_eq!(expand_one(&text, &env).unwrap(), with_mark.replace('\u{1}', &value));
        }
    }
}
