//! What is wrong with arguments: clap's error in, one line out. Suggestions are ours: clap proposes whatever is similar, and
//! to pass an unknown option as a name.

use clap::{
    Command,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::report::lookup::suggestion;

/// 3 verbs that have an option are named.
const MOST: usize = 3;

/// Describes the error, whose arguments name this verb, if any.
pub(super) fn describe(error: &clap::Error, command: &Command, verb: Option<&str>) -> String {
    let verb = verb.and_then(|verb| command.find_subcommand(verb));
    let one = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(&**text),
        _ => None,
    };
    let several = |kind| match error.get(kind) {
        Some(ContextValue::Strings(texts)) => &**texts,
        _ => &[],
    };
    let argument = one(ContextKind::InvalidArg);
    match (error.kind(), argument, one(ContextKind::InvalidValue)) {
        (ErrorKind::UnknownArgument, Some(argument), _) if argument.starts_with('-') => {
            unknown_option(argument, command, verb)
        }
        (ErrorKind::UnknownArgument, Some(argument), _) => unexpected(argument, verb),
        (ErrorKind::InvalidSubcommand, ..) => {
            unknown_verb(one(ContextKind::InvalidSubcommand).unwrap_or_default(), command, verb)
        }
        (ErrorKind::InvalidValue, Some(argument), value) => {
            let wrong = match value {
                None | Some("") => format!("'{argument}' needs a value"),
                Some(value) => format!("invalid value '{value}' for '{argument}'"),
            };
            match several(ContextKind::ValidValue) {
                [] => wrong,
                valid => format!("{wrong}: write one of {}", valid.join(", ")),
            }
        }
        (ErrorKind::TooManyValues, Some(argument), _) => format!("'{argument}' takes no value"),
        (ErrorKind::MissingRequiredArgument, ..) => missing(several(ContextKind::InvalidArg)),
        _ => one_line(&error.render().to_string()),
    }
}

/// Whether the error is about a word in the place of a verb.
pub(super) fn is_of_verb(error: &clap::Error, command: &Command, verb: Option<&str>) -> bool {
    let nests = |verb| command.find_subcommand(verb).is_some_and(Command::has_subcommands);
    error.kind() == ErrorKind::InvalidSubcommand && !verb.is_some_and(nests)
}

fn unknown_option(option: &str, command: &Command, verb: Option<&Command>) -> String {
    let common: Vec<_> = options(command).collect();
    let verbs = command.get_subcommands().filter(|verb| options(verb).any(|known| known == option));
    let mut verbs: Vec<_> = verbs.map(|verb| format!("'{}'", verb.get_name())).collect();
    let Some(verb) = verb else {
        let hint = suggestion(option, common.iter().map(String::as_str));
        let hint = if hint.is_empty() && !verbs.is_empty() { "; write it after a verb" } else { &hint };
        return format!("there is no option {option} before a verb{hint}");
    };
    let name = verb.get_name();
    let own: Vec<_> = options(verb).chain(common).collect();
    if own.iter().any(|known| known == option) {
        return format!("unexpected argument '{option}' before the verb: write it after '{name}'");
    }
    let near = suggestion(option, own.iter().map(String::as_str));
    let others = match &*verbs {
        [] => String::new(),
        [one] => format!("; {one} has it"),
        [_, _, ..] if verbs.len() > MOST => {
            verbs.truncate(MOST);
            format!("; {} and others have it", verbs.join(", "))
        }
        [first @ .., last] => format!("; {} and {last} have it", first.join(", ")),
    };
    let hint = if near.is_empty() { others } else { near };
    format!("'{name}' has no option {option}{hint}")
}

/// The options of a command as they are written: `--pod`, `-n`.
fn options(command: &Command) -> impl Iterator<Item = String> {
    let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
    shown.flat_map(|argument| {
        let long = argument.get_long().map(|long| format!("--{long}"));
        long.into_iter().chain(argument.get_short().map(|short| format!("-{short}")))
    })
}

fn unexpected(argument: &str, verb: Option<&Command>) -> String {
    let unexpected = format!("unexpected argument '{argument}'");
    let Some(verb) = verb.filter(|verb| !verb.has_subcommands()) else { return unexpected };
    let places = verb.get_positionals().filter_map(|place| place.get_value_names()?.first().cloned());
    let places: Vec<_> = places.map(|name| name.to_string()).collect();
    match places.is_empty() {
        true => format!("{unexpected}: '{}' takes only options", verb.get_name()),
        false => format!("{unexpected}: '{}' takes {} once", verb.get_name(), places.join(" and ")),
    }
}

/// Of a mistyped verb, those that are near, or else those that have its letters in this order: `tp` is in `top`.
fn unknown_verb(word: &str, command: &Command, verb: Option<&Command>) -> String {
    if let Some(verb) = verb.filter(|verb| verb.has_subcommands()) {
        let words: Vec<_> = verb.get_subcommands().map(Command::get_name).collect();
        return format!("'{}' has no verb '{word}': write one of {}", verb.get_name(), words.join(", "));
    }
    let verbs = || command.get_subcommands().map(Command::get_name);
    let near = suggestion(word, verbs());
    let hint = match near.is_empty() {
        true => verbs().filter(|verb| has_letters(verb, word)).take(MOST).collect::<Vec<_>>().join(" or "),
        false => return format!("there is no verb '{word}'{near}"),
    };
    let hint = if hint.is_empty() { hint } else { format!("; did you mean {hint}?") };
    format!("there is no verb '{word}'{hint}")
}

/// Whether the word begins like the verb, and has only letters of it, in their order.
fn has_letters(verb: &str, word: &str) -> bool {
    let mut letters = verb.chars();
    word.len() > 1
        && word.chars().next() == verb.chars().next()
        && word.chars().all(|one| letters.any(|its| its == one))
}

/// What is not there, the names before the options.
fn missing(wanted: &[String]) -> String {
    let (options, names): (Vec<_>, Vec<_>) =
        wanted.iter().partition(|one| one.trim_start_matches('<').starts_with('-'));
    let one_of = |group: &String| match group.strip_prefix('<').and_then(|group| group.strip_suffix('>')) {
        Some(group) => format!("one of {}", group.replace('|', ", ")),
        None => group.clone(),
    };
    let wanted: Vec<_> = names.into_iter().cloned().chain(options.into_iter().map(one_of)).collect();
    format!("missing: {}", wanted.join("; "))
}

/// clap's message as one line: the error and its hints.
fn one_line(rendered: &str) -> String {
    let mut line = String::new();
    let parts = rendered.lines().map(str::trim).filter(|part| !part.is_empty());
    for part in
        parts.take_while(|part| !part.starts_with("Usage: ") && !part.starts_with("For more information"))
    {
        let part = part.strip_prefix("error: ").unwrap_or(part);
        match line.chars().last() {
            None => {}
            Some(':') => line.push(' '),
            Some(_) => line.push_str("; "),
        }
        line.push_str(part.strip_prefix("tip: ").unwrap_or(part));
    }
    line
}
