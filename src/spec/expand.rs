//! Replaces `$(VAR)` in a command by the container's variables, like the kubelet. Pure; bounded in bytes.
//!
//! One pass from left to right; inserted values are not expanded again. `$$` is a dollar; an unknown name stays as
//! written; there is no nesting and no escape except `$$`. An expanded command is not kept: it is a view of the
//! definition and the environment, which is measured first, and then written where it is needed.

use std::{collections::BTreeSet, fmt, mem, sync::Arc};

/// 2 MiB: what Linux takes as the arguments of one process, all together. A longer command is an error.
pub(crate) const MAX_COMMAND: usize = 2 << 20;

/// 256 KiB: the longest that the command of an annotation or a HEALTHCHECK may become. An annotation of 16 KiB can name a
/// variable 4,000 times, and its author has to leave memory to the other pods. A longer command is an error.
pub(crate) const MAX_PODS_COMMAND: usize = 256 << 10;

/// The command grew beyond so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the command is longer than {0} bytes after its variables were expanded")]
pub(crate) struct TooLong(pub usize);

/// Variables of a container, one value a name, sorted by name: a lookup is quick however many there are. Holds secrets:
/// prints its size only.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Env(Arc<[(String, String)]>);

impl Env {
    /// About how many bytes it takes.
    pub(crate) fn weight(&self) -> usize {
        self.0.iter().map(|(key, value)| size_of::<(String, String)>() + key.len() + value.len()).sum()
    }

    /// How long all values are together.
    pub(crate) fn length(&self) -> usize {
        self.0.iter().map(|(_, value)| value.len()).sum()
    }

    /// The last value given for a name, compared byte for byte.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(key, _)| key.as_str().cmp(name)).ok()?;
        Some(&self.0[at].1)
    }
}

impl FromIterator<(String, String)> for Env {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(pairs: T) -> Self {
        let mut pairs: Vec<_> = pairs.into_iter().collect();
        // Sorting keeps the order of equal names, so that the last value given comes first of them and is kept.
        pairs.reverse();
        pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
        pairs.dedup_by(|(a, _), (b, _)| a == b);
        Self(pairs.into())
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Env({} variables)", self.0.len())
    }
}

/// The names of all variables that a command refers to.
pub(crate) fn names(command: &[String]) -> BTreeSet<&str> {
    command.iter().flat_map(|word| Tokens::of(word)).filter_map(Token::name).collect()
}

/// The arguments that a command becomes whatever variables there are, or `None` if it may name one. `$(date +%s)` is left to
/// a shell: Kubernetes 1.34 allows such a name of a variable, but it is not usual.
pub(crate) fn without_variables(command: &[String]) -> Option<Vec<String>> {
    let literal = |token: Token<'_>| match token {
        Token::Literal(text) => Some(text.to_owned()),
        Token::Reference { name, .. } if is_usual(name) => None,
        Token::Reference { written, .. } => Some(written.to_owned()),
    };
    command.iter().map(|word| Tokens::of(word).map(literal).collect()).collect()
}

/// Whether it is a name of a variable as Kubernetes has always wanted it.
fn is_usual(name: &str) -> bool {
    let is_in_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(is_in_name)
}

/// Whether a command becomes these arguments if its variables have suitable values, whatever these are.
pub(crate) fn may_become<'a>(command: &[String], mut arguments: impl Iterator<Item = &'a str>) -> bool {
    command.iter().all(|word| arguments.next().is_some_and(|argument| word_may_become(word, argument)))
        && arguments.next().is_none()
}

/// As [`may_become`], for one word. The first place where a literal part fits is as good as any later one.
fn word_may_become(word: &str, argument: &str) -> bool {
    let mut literals = vec![String::new()];
    for token in Tokens::of(word) {
        match token {
            Token::Literal(text) => literals.last_mut().expect("there is always one").push_str(text),
            Token::Reference { .. } => literals.push(String::new()),
        }
    }
    let [first, between @ .., last] = &literals[..] else { return literals[0] == argument };
    let Some(rest) = argument.strip_prefix(&**first) else { return false };
    let Some(mut rest) = rest.strip_suffix(&**last) else { return false };
    between.iter().all(|literal| {
        rest.find(&**literal).is_some_and(|at| {
            rest = &rest[at + literal.len()..];
            true
        })
    })
}

/// A command with its variables. Cheap to copy; its words are never longer together than the limit that it was made with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expansion<'a> {
    command: &'a [String],
    /// None where the command is run as it is written.
    env: Option<&'a Env>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Word<'a> {
    defined: &'a str,
    env: Option<&'a Env>,
}

/// A part of an expanded word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
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
    pub(crate) fn new(command: &'a [String], env: &'a Env, limit: usize) -> Result<Self, TooLong> {
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
    pub(crate) fn literal(command: &'a [String]) -> Self {
        Self { command, env: None }
    }

    /// The command as it was defined.
    pub(crate) fn defined(&self) -> &'a [String] {
        self.command
    }

    /// Each element of the command on its own.
    pub(crate) fn words(&self) -> impl Iterator<Item = Word<'a>> + use<'a> {
        let env = self.env;
        self.command.iter().map(move |defined| Word { defined, env })
    }

    #[cfg(test)]
    pub(crate) fn to_argv(self) -> Vec<String> {
        self.words().map(|word| word.pieces().map(Piece::text).collect()).collect()
    }
}

impl<'a> Word<'a> {
    /// As it was written.
    pub(crate) fn defined(self) -> &'a str {
        self.defined
    }

    /// Its parts, in order.
    pub(crate) fn pieces(self) -> Pieces<'a> {
        Pieces { tokens: Tokens::of(self.defined), env: self.env }
    }

    /// How long it is, in bytes.
    pub(crate) fn length(self) -> usize {
        self.pieces().map(|piece| piece.text().len()).sum()
    }
}

impl<'a> Piece<'a> {
    /// As it is run.
    pub(crate) fn text(self) -> &'a str {
        match self {
            Self::Literal(text) | Self::Value { value: text, .. } => text,
        }
    }
}

/// The parts of one word.
#[derive(Clone, Debug)]
pub(crate) struct Pieces<'a> {
    tokens: Tokens<'a>,
    env: Option<&'a Env>,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let Some(env) = self.env else { return self.tokens.take_rest().map(Piece::Literal) };
        Some(match self.tokens.next()? {
            Token::Literal(text) => Piece::Literal(text),
            Token::Reference { name, written } => {
                env.get(name).map_or(Piece::Literal(written), |value| Piece::Value { value, written })
            }
        })
    }
}

/// What a word is written of.
#[derive(Clone, Debug)]
struct Tokens<'a> {
    rest: &'a str,
    /// How much of the text stands behind its last `)`.
    behind_last_close: Option<usize>,
}

impl<'a> Tokens<'a> {
    fn of(text: &'a str) -> Self {
        Self { rest: text, behind_last_close: text.rfind(')').map(|close| text.len() - close) }
    }

    /// All of it that is left, as it was written.
    fn take_rest(&mut self) -> Option<&'a str> {
        Some(mem::take(&mut self.rest)).filter(|rest| !rest.is_empty())
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let Some(dollar) = self.rest.find('$') else { return self.take_rest().map(Token::Literal) };
        if dollar > 0 {
            let (before, rest) = self.rest.split_at(dollar);
            self.rest = rest;
            return Some(Token::Literal(before));
        }
        let is_closed = self.behind_last_close.is_some_and(|behind| behind < self.rest.len());
        let (token, rest) = next_token(self.rest, is_closed);
        self.rest = rest;
        Some(token)
    }
}

/// What a dollar can begin.
enum Token<'a> {
    /// Stays as it is.
    Literal(&'a str),
    /// `$(name)`, with the whole as written.
    Reference { name: &'a str, written: &'a str },
}

impl<'a> Token<'a> {
    fn name(self) -> Option<&'a str> {
        match self {
            Self::Reference { name, .. } => Some(name),
            Self::Literal(_) => None,
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
    fn a_command_without_names_of_variables_becomes_the_same_whatever_variables_there_are() {
        for (word, expected) in [
            ("test $(date +%s) -gt 1", Some("test $(date +%s) -gt 1")),
            ("echo $((1 + 2)) $HOME ${HOME} $(", Some("echo $((1 + 2)) $HOME ${HOME} $(")),
            ("kill -0 $$$$ $$(HOME) $(2x) $()", Some("kill -0 $$ $(HOME) $(2x) $()")),
            ("$(cat /a) $(HOME)", None),
            ("$(hostname)", None),
            ("a-$(A.b-C_9)", None),
        ] {
            let becomes = without_variables(&[word.to_owned()]);
            assert_eq!(becomes.as_ref().map(|words| &*words[0]), expected, "{word}");
        }
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
        let reported = Expansion::new(&three, &env, MAX_PODS_COMMAND).unwrap_err().to_string();
        assert_eq!(reported, "the command is longer than 262144 bytes after its variables were expanded");
    }

    #[test]
    fn a_command_names_its_variables_once() {
        let command = ["a$(B)$$(C)".to_owned(), "$(D) $(B) $(".to_owned(), "$E".to_owned()];
        assert_eq!(names(&command).into_iter().collect::<Vec<_>>(), ["B", "D"]);
    }

    #[test]
    fn a_command_may_become_what_some_values_make_of_it() {
        for (written, argument, is_possible) in [
            ("plain", "plain", true),
            ("plain", "plainer", false),
            ("$$x", "$x", true),
            ("$(A)", "", true),
            ("-p=$(A)", "-p=secret", true),
            ("-p=$(A)", "-q=secret", false),
            ("$(A)/b/$(C).txt", "x/b/y.txt", true),
            ("$(A)/b/$(C).txt", "x/b.txt", false),
            ("ab$(A)ba", "aba", false),
            ("a$(A)b$(A)b$(A)c", "a1bc", false),
        ] {
            let command = [written.to_owned()];
            assert_eq!(may_become(&command, [argument].into_iter()), is_possible, "{written} {argument}");
        }
        let two = ["a".to_owned(), "$(B)".to_owned()];
        assert!(!may_become(&two, ["a"].into_iter()) && !may_become(&two, ["a", "b", "c"].into_iter()));
    }

    proptest! {
        #[test]
        fn what_a_command_becomes_it_may_become(text in "([$()a]|\\$\\([AB]\\)){0,12}", a in "[a$]{0,3}", b in "[a(]{0,3}") {
            let env: Env = [("A".to_owned(), a), ("B".to_owned(), b)].into_iter().collect();
            let become_ = expand_one(&text, &env).unwrap();
            prop_assert!(may_become(&[text], [&*become_].into_iter()));
        }

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
