//! Turns text in YAML or JSON into a tree in which every value has its place; invalid text becomes one error with its
//! place. Never does IO, never panics on input, never uses more time or memory than the bounds below allow.
//!
//! One parser reads both languages: YAML 1.2 contains JSON. Only `true` and `false` are booleans.

pub(crate) mod fault;
pub(crate) mod fields;
pub(crate) mod stream;
pub(crate) mod suggest;

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{
    DefaultMessageFormatter, DuplicateKeyPolicy, Error, Location, MessageFormatter, Options, Spanned,
};

/// How deep lists and maps may nest by default; a probe needs 5, a rule 6. Deeper text is an error.
pub(crate) const MAX_DEPTH: usize = 16;

/// How many anchors, and how many aliases, a text may have. More are an error.
const MAX_ANCHORS: usize = 100;

/// How many values the aliases of a text may repeat in all. More are an error: this prevents alias bombs.
const MAX_REPEATED: usize = 10_000;

/// How many values a text may have by default. More are an error.
const MAX_NODES: usize = 50_000;

/// The bounds for a text. Exceeding one is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The maximum length.
    pub bytes: usize,
    /// The maximum depth of lists and maps.
    pub depth: usize,
    /// The maximum number of values.
    pub nodes: usize,
}

/// A place in the text; both numbers count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
}

/// One value and its place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    /// Where it starts; `None` if the parser does not know.
    pub place: Option<Place>,
    pub value: Value,
}

/// A value of YAML or JSON.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// `null`, `~`, or nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Integer(i128),
    /// Any other number; always finite.
    Float(f64),
    /// Quoted text, or plain text that is none of the above.
    Text(String),
    /// In order.
    List(Vec<Node>),
    /// In order; names are unique.
    Map(Vec<MapEntry>),
}

/// One name of a map with its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MapEntry {
    /// The name as text.
    pub name: String,
    /// The place of the name.
    pub place: Option<Place>,
    /// Its value.
    pub node: Node,
}

/// Why a text could not be read at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxError {
    /// It was not parsed.
    #[error("{size} bytes, but at most {limit} are allowed")]
    TooLong {
        /// Its size.
        size: usize,
        /// The bound that it exceeds.
        limit: usize,
    },
    /// Its bytes are not text.
    #[error("not UTF-8 text{}: {reason}", at(.place))]
    NotText {
        /// The place of the first invalid byte.
        place: Option<Place>,
        /// One line.
        reason: String,
    },
    /// It is neither YAML nor JSON, or exceeds a bound.
    #[error("not valid YAML or JSON{}: {reason}", at(.place))]
    Malformed {
        /// Where parsing stopped.
        place: Option<Place>,
        /// One line.
        reason: String,
    },
}

impl Node {
    /// The entries of a map; none of anything else.
    pub(crate) fn entries(&self) -> &[MapEntry] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The items of a list; none of anything else.
    pub(crate) fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// The text, if it is one.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value of a name in a map; null counts as absent.
    pub(crate) fn get(&self, name: &str) -> Option<&Node> {
        let entry = self.entries().iter().find(|entry| entry.name == name)?;
        Some(&entry.node).filter(|node| node.value != Value::Null)
    }

    /// The value at a path of nested names.
    pub(crate) fn at(&self, names: &[&str]) -> Option<&Node> {
        names.iter().try_fold(self, |node, name| node.get(name))
    }
}

impl Node {
    /// The bytes of all texts and names in it; nests no deeper than [`Bounds::depth`].
    fn text_bytes(&self) -> usize {
        match &self.value {
            Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) => 0,
            Value::Text(text) => text.len(),
            Value::List(nodes) => nodes.iter().map(Self::text_bytes).sum(),
            Value::Map(entries) => {
                entries.iter().map(|entry| entry.name.len() + entry.node.text_bytes()).sum()
            }
        }
    }
}

impl SyntaxError {
    /// Where parsing stopped.
    pub fn place(&self) -> Option<Place> {
        match self {
            Self::TooLong { .. } => None,
            Self::NotText { place, .. } | Self::Malformed { place, .. } => *place,
        }
    }

    /// The message without the place.
    pub fn reason(&self) -> String {
        match self {
            Self::TooLong { .. } => self.to_string(),
            Self::NotText { reason, .. } => format!("not UTF-8 text: {reason}"),
            Self::Malformed { reason, .. } => format!("not valid YAML or JSON: {reason}"),
        }
    }
}

/// Reads a file's bytes as text.
///
/// # Errors
/// They are not UTF-8: the place of the first byte that is not.
pub fn decode(bytes: &[u8]) -> Result<&str, SyntaxError> {
    let not_text = |place, reason: &str| SyntaxError::NotText { place, reason: reason.to_owned() };
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(not_text(Some(Place { line: 1, column: 1 }), "this looks like UTF-16: save it as UTF-8"));
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let (good, bad) = bytes.split_at(error.valid_up_to());
        let reason = format!("the byte 0x{:02x} is not allowed here: save the file as UTF-8", bad[0]);
        not_text(Some(place_after(good)), &reason)
    })
}

/// The place after a text.
fn place_after(text: &[u8]) -> Place {
    let last = text.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let bounded = |count: usize| u32::try_from(count + 1).unwrap_or(u32::MAX);
    Place {
        line: bounded(text.iter().filter(|byte| **byte == b'\n').count()),
        column: bounded(String::from_utf8_lossy(last).chars().count()),
    }
}

/// Reads one document; an empty text is [`Value::Null`]. A byte order mark and either line end are accepted.
///
/// # Errors
/// The text is longer than `limit` bytes, is malformed, repeats a key, has a second document, or exceeds a bound of
/// this module.
pub(crate) fn parse(text: &str, limit: usize) -> Result<Node, SyntaxError> {
    parse_within(text, &Bounds { bytes: limit, depth: MAX_DEPTH, nodes: MAX_NODES })
}

/// Reads one document within the caller's bounds; otherwise like [`parse`].
///
/// # Errors
/// As [`parse`].
pub(crate) fn parse_within(text: &str, bounds: &Bounds) -> Result<Node, SyntaxError> {
    if text.len() > bounds.bytes {
        return Err(SyntaxError::TooLong { size: text.len(), limit: bounds.bytes });
    }
    let node = serde_saphyr::from_str_with_options::<Node>(text, options(bounds)).map_err(|error| {
        let error = error.without_snippet();
        let place = error.location().and_then(known);
        SyntaxError::Malformed { place, reason: reason(error, bounds) }
    })?;
    // An alias of a few bytes can repeat a text of any length.
    if node.text_bytes() > bounds.bytes {
        let reason = format!("aliases repeat more than {} bytes of text", bounds.bytes);
        return Err(SyntaxError::Malformed { place: None, reason });
    }
    Ok(node)
}

fn options(bounds: &Bounds) -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: bounds.depth,
            flow_nesting_limit: bounds.depth,
            max_nodes: bounds.nodes,
            max_events: bounds.nodes.saturating_mul(4),
            max_anchors: MAX_ANCHORS,
            max_aliases: MAX_ANCHORS,
            max_merge_keys: MAX_ANCHORS,
            max_recorded_anchor_events: MAX_REPEATED,
            max_recorded_anchor_bytes: 1 << 20,
            max_documents: 2,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_REPEATED,
            max_replay_stack_depth: 8,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}

/// The parser's message if it is meant for users; ours if it refers to the parser's own settings.
fn reason(error: &Error, bounds: &Bounds) -> String {
    match error {
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("{} is written twice", fault::key(key))
        }
        Error::DuplicateMappingKey { key: None, .. } => "a key is written twice".into(),
        Error::MultipleDocuments { .. } => "a second document follows: only one is read".into(),
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            let depth = bounds.depth;
            format!("too deeply nested, or too many values, anchors or aliases (at most {depth} levels)")
        }
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            "an alias refers to an anchor that contains it".into()
        }
        Error::AliasError { error, .. } => reason(error, bounds),
        other => match fault::one_line(&DefaultMessageFormatter.format_message(other)) {
            // The scanner's own bound for flow lists, which applies before the budget's.
            limit if limit.contains("recursion limit") => {
                format!("too deeply nested (at most {} levels)", bounds.depth)
            }
            message => cut(message),
        },
    }
}

/// 512 bytes: how much of a parser's message is kept, because it may quote the text. The rest becomes an ellipsis.
const MAX_REASON: usize = 512;

fn cut(mut message: String) -> String {
    if message.len() > MAX_REASON {
        message.truncate(message.floor_char_boundary(MAX_REASON));
        message.push_str("...");
    }
    message
}

fn known(location: Location) -> Option<Place> {
    let line = u32::try_from(location.line()).ok().filter(|line| *line > 0)?;
    let column = u32::try_from(location.column()).ok().filter(|column| *column > 0)?;
    Some(Place { line, column })
}

fn at(place: &Option<Place>) -> String {
    place.map(|place| format!(" (line {}, column {})", place.line, place.column)).unwrap_or_default()
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self { place: known(spanned.referenced), value: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(Value::Integer(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        if value.is_finite() { Ok(Value::Float(value)) } else { Err(E::custom("not a finite number")) }
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.into()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(node) = items.next_element()? {
            list.push(node);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some(name) = entries.next_key::<Spanned<String>>()? {
            map.push(MapEntry {
                name: name.value,
                place: known(name.referenced),
                node: entries.next_value()?,
            });
        }
        Ok(Value::Map(map))
    }
}

#[cfg(test)]
mod tests;
