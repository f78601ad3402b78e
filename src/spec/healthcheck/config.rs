//! Reads an image's config no further than a HEALTHCHECK needs it: whatever the config contains, no part of the result is
//! larger than a command may be. Pure.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;

use super::{MAX_COMMAND, MOST_WORDS};

/// The fields of a HEALTHCHECK; others are skipped.
const FIELDS: [&str; 6] = ["Test", "Interval", "Timeout", "StartPeriod", "StartInterval", "Retries"];

/// 16 bytes: no word before the command, such as `CMD-SHELL`, is longer.
const MOST_OF_KEYWORD: usize = 16;

/// Of an image's config what is needed.
#[derive(Deserialize)]
pub(super) struct Image {
    pub(super) config: Option<Config>,
}

#[derive(Deserialize)]
pub(super) struct Config {
    #[serde(rename = "Healthcheck")]
    pub(super) healthcheck: Option<Written>,
    #[serde(rename = "Shell")]
    pub(super) shell: Option<Written>,
}

/// A value.
#[derive(Debug)]
pub(super) enum Written {
    /// No list, and no object. Of a text that is longer than a command may be, the beginning.
    Scalar(Value),
    /// A list of texts.
    Words(Words),
    /// A list with other values than texts.
    List,
    /// An object; those of its fields that a HEALTHCHECK has, unless it is inside of another one.
    Object(BTreeMap<&'static str, Written>),
}

/// Texts: all of them, or the first ones of a list that is too long for a command.
#[derive(Clone, Debug, Default)]
pub(super) struct Words {
    pub(super) texts: Vec<String>,
    /// The number of all.
    pub(super) count: usize,
    /// The length of all.
    pub(super) bytes: usize,
}

impl Words {
    /// Keeps the word unless the list is too long by now; the first one always.
    fn push(&mut self, word: String) {
        self.count += 1;
        self.bytes += word.len();
        if self.count <= 1 + MOST_WORDS && self.bytes <= MOST_OF_KEYWORD + MAX_COMMAND || self.count == 1 {
            self.texts.push(word);
        }
    }
}

impl FromIterator<String> for Words {
    fn from_iter<T: IntoIterator<Item = String>>(words: T) -> Self {
        let mut all = Self::default();
        words.into_iter().for_each(|word| all.push(word));
        all
    }
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Reading::Whole.deserialize(deserializer)
    }
}

/// How much of a value is read.
#[derive(Clone, Copy)]
enum Reading {
    /// A HEALTHCHECK or a shell.
    Whole,
    /// One of its fields.
    Field,
    /// A word.
    Element,
}

impl<'de> DeserializeSeed<'de> for Reading {
    type Value = Written;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Written, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reading {
    type Value = Written;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Written, E> {
        Ok(Written::Scalar(Value::Null))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Written, E> {
        Ok(Written::Scalar(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Written, E> {
        Ok(Written::Scalar(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Written, E> {
        Ok(Written::Scalar(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Written, E> {
        Ok(Written::Scalar(value.into()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Written, E> {
        let end = text.floor_char_boundary(text.len().min(2 * MAX_COMMAND));
        Ok(Written::Scalar(text[..end].into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Written, A::Error> {
        let mut words = Words::default();
        let mut is_of_texts = !matches!(self, Self::Element);
        while is_of_texts && let Some(element) = list.next_element_seed(Self::Element)? {
            match element {
                Written::Scalar(Value::String(word)) => words.push(word),
                Written::Scalar(_) | Written::Words(_) | Written::List | Written::Object(_) => {
                    is_of_texts = false;
                }
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(if is_of_texts { Written::Words(words) } else { Written::List })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Written, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some(key) = object.next_key::<String>()? {
            match FIELDS.into_iter().find(|field| matches!(self, Self::Whole) && *field == key) {
                Some(field) => drop(fields.insert(field, object.next_value_seed(Self::Field)?)),
                None => drop(object.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Written::Object(fields))
    }
}
