//! Reads the known fields of a map by name and type, and reports all errors at once. Never stops at the first error,
//! never converts a value to another type.

use super::{
    MapEntry, Node, Place, Value,
    fault::{self, FieldError, quoted},
    suggest,
};

/// 32: with so many errors, what an unknown key was meant to be is no longer looked for. That takes 10 us of a key, a
/// hundred times as long as to read it, and an annotation may have hundreds of them.
const MAX_EXPLAINED: usize = 32;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Field<T> {
    /// Absent, or null.
    Absent,
    /// Present with the wrong type; this has been reported.
    Bad,
    /// Present with the right type.
    Given(Written<T>),
}

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Written<T> {
    pub value: T,
    pub place: Option<Place>,
}

/// A number or a text, distinguished as in Kubernetes' `IntOrString`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NumberOrText {
    /// A JSON number.
    Number(i64),
    /// A JSON string, even if it consists of digits.
    Text(String),
}

/// A map while it is read: each field is read once, and fields that were not read are reported as unknown.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    entries: &'a [MapEntry],
    place: Option<Place>,
    path: String,
    known: Vec<&'static str>,
    errors: &'a mut Vec<FieldError>,
}

impl<T> Field<T> {
    /// Whether it is absent.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// The value, if it is valid.
    pub(crate) fn value(&self) -> Option<&T> {
        match self {
            Self::Absent | Self::Bad => None,
            Self::Given(written) => Some(&written.value),
        }
    }

    /// The place of the value, if it is valid.
    pub(crate) fn place(&self) -> Option<Place> {
        match self {
            Self::Absent | Self::Bad => None,
            Self::Given(written) => written.place,
        }
    }
}

/// Reads a whole document or a part of one; `path` is the prefix of its fields' paths.
///
/// Returns `None`, and reports an error, if the node is not a map.
pub(crate) fn read<T>(
    node: &Node,
    path: &str,
    errors: &mut Vec<FieldError>,
    read: impl FnOnce(&mut Fields<'_>) -> T,
) -> Option<T> {
    let Value::Map(entries) = &node.value else {
        errors.push(wrong(path.into(), node, "must be a map of keys and values"));
        return None;
    };
    let mut fields = Fields { entries, place: node.place, path: path.into(), known: Vec::new(), errors };
    let value = read(&mut fields);
    fields.report_unknown();
    Some(value)
}

impl<'a> Fields<'a> {
    /// Where the map starts.
    pub(crate) fn place(&self) -> Option<Place> {
        self.place
    }

    /// The prefix of its fields' paths; empty for a whole document.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// `true` or `false`.
    pub(crate) fn boolean(&mut self, name: &'static str) -> Field<bool> {
        self.take(name, |node, path, errors| match &node.value {
            Value::Bool(value) => Some(*value),
            Value::Text(text) if matches!(text.as_str(), "true" | "false") => {
                errors.push(wrong(path, node, "must be true or false: write it without quotes"));
                None
            }
            Value::Text(text) if matches!(text.to_lowercase().as_str(), "yes" | "no" | "on" | "off") => {
                errors.push(wrong(path, node, "must be true or false, as in YAML 1.2"));
                None
            }
            _ => {
                errors.push(wrong(path, node, "must be true or false"));
                None
            }
        })
    }

    /// A string.
    pub(crate) fn text(&mut self, name: &'static str) -> Field<String> {
        self.take(name, |node, path, errors| text(node, path, errors).map(String::from))
    }

    /// A string with a specific format; `hint` describes it, for users who wrote a number.
    pub(crate) fn text_of_form(&mut self, name: &'static str, hint: &str) -> Field<String> {
        self.take(name, |node, path, errors| match &node.value {
            Value::Text(text) => Some(text.clone()),
            _ => {
                errors.push(wrong(path, node, hint));
                None
            }
        })
    }

    /// The text of a duration, not parsed yet.
    pub(crate) fn duration(&mut self, name: &'static str) -> Field<String> {
        self.text_of_form(name, "write a duration such as 250ms, 5s or 1m30s")
    }

    /// A whole number.
    pub(crate) fn integer(&mut self, name: &'static str) -> Field<i64> {
        self.take(name, |node, path, errors| match &node.value {
            Value::Integer(number) => Some(saturate(*number)),
            other => {
                errors.push(wrong(path, node, whole_number_hint(other)));
                None
            }
        })
    }

    /// A whole number or a string.
    pub(crate) fn number_or_text(&mut self, name: &'static str) -> Field<NumberOrText> {
        self.take(name, |node, path, errors| match &node.value {
            Value::Integer(number) => Some(NumberOrText::Number(saturate(*number))),
            Value::Text(text) => Some(NumberOrText::Text(text.clone())),
            _ => {
                errors.push(wrong(path, node, "must be a whole number or a string"));
                None
            }
        })
    }

    /// A list of strings.
    pub(crate) fn texts(&mut self, name: &'static str) -> Field<Vec<String>> {
        self.take(name, |node, path, errors| {
            list(node, path, "must be a list of strings", errors, |node, path, errors| {
                text(node, path, errors).map(String::from)
            })
        })
    }

    /// A list of strings, each with its place.
    pub(crate) fn items(&mut self, name: &'static str) -> Field<Vec<Written<String>>> {
        self.take(name, |node, path, errors| {
            list(node, path, "must be a list of strings", errors, written_text)
        })
    }

    /// A map with arbitrary names and string values; each name with its place.
    pub(crate) fn pairs(&mut self, name: &'static str) -> Field<Vec<(Written<String>, Written<String>)>> {
        self.take(name, |node, path, errors| {
            let Value::Map(entries) = &node.value else {
                errors.push(wrong(path, node, "must be a map of names to strings"));
                return None;
            };
            let pair = |entry: &MapEntry, errors: &mut Vec<FieldError>| {
                let name = Written { value: entry.name.clone(), place: entry.place };
                let path = format!("{path}[{}]", quoted(&entry.name));
                Some((name, written_text(&entry.node, path, errors)?))
            };
            let pairs: Vec<_> = entries.iter().map(|entry| pair(entry, errors)).collect();
            pairs.into_iter().collect()
        })
    }

    /// A list of maps, each read by `read`; items that are not maps are reported and left out.
    pub(crate) fn each_map<T>(
        &mut self,
        name: &'static str,
        read_one: impl Fn(&mut Fields<'_>) -> T,
    ) -> Vec<T> {
        let items = self.take(name, |node, path, errors| {
            list(node, path, "must be a list of maps", errors, |node, path, errors| {
                Some(read(node, &path, errors, &read_one))
            })
        });
        match items {
            Field::Absent | Field::Bad => Vec::new(),
            Field::Given(items) => items.value.into_iter().flatten().collect(),
        }
    }

    /// A list of maps, each read by `read`.
    pub(crate) fn maps<T>(
        &mut self,
        name: &'static str,
        read_one: impl Fn(&mut Fields<'_>) -> T,
    ) -> Field<Vec<T>> {
        self.take(name, |node, path, errors| {
            list(node, path, "must be a list of maps", errors, |node, path, errors| {
                read(node, &path, errors, &read_one)
            })
        })
    }

    /// A map, read by `read`.
    pub(crate) fn map<T>(
        &mut self,
        name: &'static str,
        read_it: impl FnOnce(&mut Fields<'_>) -> T,
    ) -> Field<T> {
        self.take(name, |node, path, errors| read(node, &path, errors, read_it))
    }

    fn take<T>(
        &mut self,
        name: &'static str,
        convert: impl FnOnce(&'a Node, String, &mut Vec<FieldError>) -> Option<T>,
    ) -> Field<T> {
        self.known.push(name);
        let Some(entry) = self.entries.iter().find(|entry| entry.name == name) else {
            return Field::Absent;
        };
        if entry.node.value == Value::Null {
            return Field::Absent;
        }
        match convert(&entry.node, join(&self.path, name), self.errors) {
            Some(value) => Field::Given(Written { value, place: entry.node.place }),
            None => Field::Bad,
        }
    }

    fn report_unknown(self) {
        for entry in self.entries.iter().filter(|entry| !self.known.contains(&entry.name.as_str())) {
            let name = fault::key(&entry.name);
            let reason = if self.errors.len() >= MAX_EXPLAINED {
                format!("unknown key {name}")
            } else if let Some(meant) = suggest::nearest(&entry.name, &self.known) {
                format!("unknown key {name}: did you mean {meant:?}?")
            } else {
                format!("unknown key {name}: known keys are {}", self.known.join(", "))
            };
            self.errors.push(FieldError { path: self.path.clone(), reason, place: entry.place });
        }
    }
}

fn list<'a, T>(
    node: &'a Node,
    path: String,
    expected: &str,
    errors: &mut Vec<FieldError>,
    mut convert: impl FnMut(&'a Node, String, &mut Vec<FieldError>) -> Option<T>,
) -> Option<Vec<T>> {
    let Value::List(items) = &node.value else {
        errors.push(wrong(path, node, expected));
        return None;
    };
    let converted: Vec<_> = items
        .iter()
        .enumerate()
        .map(|(index, item)| convert(item, format!("{path}[{index}]"), errors))
        .collect();
    converted.into_iter().collect()
}

fn text<'a>(node: &'a Node, path: String, errors: &mut Vec<FieldError>) -> Option<&'a str> {
    if let Value::Text(text) = &node.value {
        return Some(text);
    }
    let hint = match node.value {
        Value::Bool(_) | Value::Integer(_) | Value::Float(_) => "must be a string: put it in quotes",
        Value::Null | Value::Text(_) | Value::List(_) | Value::Map(_) => "must be a string",
    };
    errors.push(wrong(path, node, hint));
    None
}

fn written_text(node: &Node, path: String, errors: &mut Vec<FieldError>) -> Option<Written<String>> {
    text(node, path, errors).map(|text| Written { value: text.to_owned(), place: node.place })
}

fn whole_number_hint(value: &Value) -> &'static str {
    match value {
        Value::Text(text) if text.parse::<i64>().is_ok() => "must be a whole number: write it without quotes",
        _ => "must be a whole number",
    }
}

fn wrong(path: String, node: &Node, detail: &str) -> FieldError {
    match &node.value {
        Value::Null => FieldError::invalid(path, node.place, "null", detail),
        Value::Bool(value) => FieldError::invalid(path, node.place, value, detail),
        Value::Integer(value) => FieldError::invalid(path, node.place, value, detail),
        Value::Float(value) => FieldError::invalid(path, node.place, format_args!("{value:?}"), detail),
        Value::Text(value) => FieldError::invalid(path, node.place, quoted(value), detail),
        Value::List(_) => FieldError::invalid(path, node.place, "a list", detail),
        Value::Map(_) => FieldError::invalid(path, node.place, "a map", detail),
    }
}

/// Numbers beyond 64 bits exceed all our bounds, and still do so after this.
fn saturate(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.into() } else { format!("{path}.{name}") }
}
