//! Replaces `$(VAR)` in a command by the container's variables, as the kubelet does. Pure; bounded in bytes.
//!
//! One pass from left to right, and what was put in is never looked at again. `$$` is a dollar; an unknown name stays
//! as written; there is no nesting and no escape but `$$`.

use crate::inventory::view::Env;

/// 2 MiB: what Linux takes as the arguments of one process, all together. A longer command is an error.
pub const MAX_COMMAND: usize = 2 << 20;

/// The command grew beyond [`MAX_COMMAND`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the command is longer than {MAX_COMMAND} bytes after its variables were expanded")]
pub struct TooLong;

/// Expands each element of a command on its own.
///
/// # Errors
/// When the elements together would exceed [`MAX_COMMAND`].
pub fn expand(command: &[String], env: &Env) -> Result<Vec<String>, TooLong> {
    let mut room = MAX_COMMAND;
    command
        .iter()
        .map(|element| {
            let expanded = expand_one(element, env, room)?;
            room -= expanded.len();
            Ok(expanded)
        })
        .collect()
}

fn expand_one(text: &str, env: &Env, room: usize) -> Result<String, TooLong> {
    let mut expanded = String::new();
    let mut rest = text;
    let last_close = text.rfind(')');
    while let Some(dollar) = rest.find('$') {
        let (before, from) = rest.split_at(dollar);
        push(&mut expanded, before, room)?;
        let at = text.len() - from.len();
        let (token, after) = next_token(from, last_close.is_some_and(|close| close > at));
        push(&mut expanded, token.text(env), room)?;
        rest = after;
    }
    push(&mut expanded, rest, room)?;
    Ok(expanded)
}

fn push(text: &mut String, more: &str, room: usize) -> Result<(), TooLong> {
    if text.len() + more.len() > room {
        return Err(TooLong);
    }
    text.push_str(more);
    Ok(())
}

/// What a dollar can begin.
enum Token<'a> {
    /// Stays as it is.
    Literal(&'a str),
    /// `$(name)`, with the whole as written.
    Reference { name: &'a str, written: &'a str },
}

impl<'a> Token<'a> {
    fn text(&self, env: &'a Env) -> &'a str {
        match self {
            Self::Literal(text) => text,
            Self::Reference { name, written } => env.get(name).unwrap_or(written),
        }
    }
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

    #[test]
    fn commands_expand_as_the_vectors_say() {
        for line in include_str!("../../tests/data/prober/expand.jsonl").lines() {
            let vector: Vector = serde_json::from_str(line).unwrap();
            let env: Env = vector.env.into_iter().collect();
            assert_eq!(expand(&vector.command, &env), Ok(vector.argv), "{}", vector.id);
        }
    }

    #[test]
    fn a_command_of_open_references_is_read_once_and_a_variable_is_found_among_many() {
        let open = "$(".repeat(MAX_COMMAND / 4);
        let variables = (0..100_000).map(|n| (format!("V{n}"), n.to_string()));
        let env: Env = variables.chain([("V7".to_owned(), "last".to_owned())]).collect();
        let used = "$(V7)".repeat(100_000);
        // Each of them would take minutes if it were read again from every dollar.
        assert_eq!(expand_one(&open, &env, MAX_COMMAND).as_deref(), Ok(&*open));
        assert_eq!(expand_one(&used, &env, MAX_COMMAND).as_deref(), Ok(&*"last".repeat(100_000)));
    }

    #[test]
    fn a_command_that_grows_too_long_is_an_error_and_not_a_pile_of_memory() {
        let env: Env = [("X".to_owned(), "x".repeat(100_000))].into_iter().collect();
        assert_eq!(expand(&["$(X)".repeat(19), "$(X)".into()], &env).map(|argv| argv.len()), Ok(2));
        assert_eq!(expand(&["$(X)".repeat(19), "$(X)".into(), "$(X)".into()], &env), Err(TooLong));
        assert_eq!(expand(&["$(X)".repeat(4000)], &env), Err(TooLong));
    }

    proptest! {
        #[test]
        fn without_a_dollar_nothing_changes(text in "[^$]*") {
            prop_assert_eq!(expand_one(&text, &Env::default(), MAX_COMMAND), Ok(text));
        }

        #[test]
        fn without_variables_only_pairs_of_dollars_change(text in "[$()a-b£]{0,30}") {
            let expanded = expand_one(&text, &Env::default(), MAX_COMMAND).unwrap();
            prop_assert!(expanded.len() <= text.len());
            prop_assert_eq!(expanded.replace('$', ""), text.replace('$', ""));
        }

        #[test]
        fn no_value_is_looked_at_again(text in "([$()a]|\\$\\(A\\)){0,12}", value in "[$()A]{0,8}") {
            let env: Env = [("A".to_owned(), value.clone())].into_iter().collect();
            let mark: Env = [("A".to_owned(), "\u{1}".to_owned())].into_iter().collect();
            let with_mark = expand_one(&text, &mark, MAX_COMMAND).unwrap();
            prop_assert_eq!(expand_one(&text, &env, MAX_COMMAND).unwrap(), with_mark.replace('\u{1}', &value));
        }
    }
}
