//! Encodes a message of the CRI that a runtime shows as JSON: its text in, its bytes out, and what of it is not known. The
//! JSON is that of Go's `encoding/json`: the protocol's own names, nothing for a zero, numbers for enums. Pure; no value
//! is shown in an error, because it may be secret.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use prost::encoding::{WireType, encode_key, encode_varint};
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Error, value::RawValue};

use super::messages::{Fields, Kind};
use crate::{proto::trim::fields::put, runtime::environment::ValueForm};

/// 16 names of what is not known are kept, for a person to read; the others are counted in one more line.
const MAX_NAMES: usize = 16;

/// 100 bytes of such a name; a longer one is cut.
const MAX_NAME: usize = 100;

/// What a runtime shows is not what it must be at this place, such as `linux.resources.cpu_quota`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Misfit(pub String);

/// Encodes messages, one after the other.
#[derive(Debug)]
pub(super) struct Encoder {
    /// How the values of variables are shown.
    pub values: ValueForm,
    /// Where it is: that is where an error was, if there is one.
    path: Vec<&'static str>,
    unknown: Vec<String>,
    more: usize,
}

impl Encoder {
    pub(super) fn new(values: ValueForm) -> Self {
        Self { values, path: Vec::new(), unknown: Vec::new(), more: 0 }
    }

    /// Encodes a message whose place is called `name`.
    ///
    /// # Errors
    /// A value is of another type than its field.
    pub(super) fn encode(
        &mut self,
        name: &'static str,
        json: &RawValue,
        fields: Fields,
    ) -> Result<Vec<u8>, Misfit> {
        let mut out = Vec::new();
        self.path = vec![name];
        self.message(json, fields, &mut out).map_err(|_| Misfit(self.path.join(".")))?;
        Ok(out)
    }

    /// The fields that were not known, and were not empty.
    pub(super) fn unknown(self) -> Vec<String> {
        let mut unknown = self.unknown;
        if self.more > 0 {
            unknown.push(format!("and {} more", self.more));
        }
        unknown
    }

    fn message(&mut self, json: &RawValue, fields: Fields, out: &mut Vec<u8>) -> Result<(), Error> {
        entries(json, |name, value| match fields.iter().find(|(known, ..)| *known == name) {
            Some(&(known, tag, kind)) => {
                self.path.push(known);
                self.field(value, tag, kind, out)?;
                self.path.pop();
                Ok(())
            }
            None => {
                self.leave_out(&name, value);
                Ok(())
            }
        })
    }

    fn field(&mut self, json: &RawValue, tag: u32, kind: Kind, out: &mut Vec<u8>) -> Result<(), Error> {
        if json.get() == "null" {
            return Ok(());
        }
        match kind {
            Kind::Text => put_unless_empty(out, tag, text(json)?.as_bytes()),
            Kind::Texts => elements(json, |json| {
                put(out, tag, text(json)?.as_bytes());
                Ok(())
            })?,
            Kind::Flag => put_unless_zero(out, tag, serde_json::from_str::<bool>(json.get())?.into()),
            Kind::Number => put_unless_zero(out, tag, number(json)?),
            Kind::Numbers => {
                let mut packed = Vec::new();
                elements(json, |json| {
                    encode_varint(number(json)?, &mut packed);
                    Ok(())
                })?;
                put_unless_empty(out, tag, &packed);
            }
            Kind::Map => entries(json, |key, value| {
                let mut entry = Vec::new();
                put_unless_empty(&mut entry, 1, key.as_bytes());
                put_unless_empty(&mut entry, 2, text(value)?.as_bytes());
                put(out, tag, &entry);
                Ok(())
            })?,
            Kind::Value => {
                let shown = text(json)?;
                let value = match self.values {
                    ValueForm::Plain => shown.into_bytes(),
                    ValueForm::Base64 => STANDARD.decode(shown).map_err(Error::custom)?,
                };
                put_unless_empty(out, tag, &value);
            }
            // One without content is there, too: user 0 has none.
            Kind::Message(fields) => self.inner(json, tag, fields, out)?,
            Kind::Messages(fields) => elements(json, |json| self.inner(json, tag, fields, out))?,
        }
        Ok(())
    }

    fn inner(&mut self, json: &RawValue, tag: u32, fields: Fields, out: &mut Vec<u8>) -> Result<(), Error> {
        let mut inner = Vec::new();
        self.message(json, fields, &mut inner)?;
        put(out, tag, &inner);
        Ok(())
    }

    fn leave_out(&mut self, name: &str, value: &RawValue) {
        if matches!(value.get(), "null" | "\"\"" | "0" | "false" | "[]") {
            return;
        }
        let path = format!("{}.{}", self.path.join("."), name.escape_debug());
        let path = &path[..path.floor_char_boundary(MAX_NAME)];
        if self.unknown.iter().any(|known| known == path) {
            return;
        }
        if self.unknown.len() < MAX_NAMES {
            self.unknown.push(path.to_owned());
        } else {
            self.more += 1;
        }
    }
}

fn text(json: &RawValue) -> Result<String, Error> {
    serde_json::from_str(json.get())
}

/// As it is on the wire: a negative one as its two's complement.
fn number(json: &RawValue) -> Result<u64, Error> {
    let text = json.get();
    if text.starts_with('-') {
        serde_json::from_str::<i64>(text).map(|value| value as u64)
    } else {
        serde_json::from_str(text)
    }
}

fn put_unless_empty(out: &mut Vec<u8>, tag: u32, payload: &[u8]) {
    if !payload.is_empty() {
        put(out, tag, payload);
    }
}

fn put_unless_zero(out: &mut Vec<u8>, tag: u32, value: u64) {
    if value != 0 {
        encode_key(tag, WireType::Varint, out);
        encode_varint(value, out);
    }
}

/// Reads the elements of a list one after the other, so that none is kept.
fn elements<'a>(
    json: &'a RawValue,
    each: impl FnMut(&'a RawValue) -> Result<(), Error>,
) -> Result<(), Error> {
    serde_json::Deserializer::from_str(json.get()).deserialize_seq(Elements(each))
}

/// Likewise the entries of an object.
fn entries<'a>(
    json: &'a RawValue,
    each: impl FnMut(String, &'a RawValue) -> Result<(), Error>,
) -> Result<(), Error> {
    serde_json::Deserializer::from_str(json.get()).deserialize_map(Entries(each))
}

struct Elements<F>(F);

impl<'de, F: FnMut(&'de RawValue) -> Result<(), Error>> Visitor<'de> for Elements<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(element) = list.next_element()? {
            (self.0)(element).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

struct Entries<F>(F);

impl<'de, F: FnMut(String, &'de RawValue) -> Result<(), Error>> Visitor<'de> for Entries<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut object: A) -> Result<(), A::Error> {
        while let Some((key, value)) = object.next_entry()? {
            (self.0)(key, value).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;
    use serde_json::json;

    use super::*;
    use crate::{
        act::recipe::messages::{CONTAINER, SANDBOX},
        proto::cri,
    };

    fn encode(json: &serde_json::Value, fields: Fields) -> (Result<Vec<u8>, Misfit>, Vec<String>) {
        let mut encoder = Encoder::new(ValueForm::Plain);
        let json = RawValue::from_string(json.to_string()).unwrap();
        let encoded = encoder.encode("config", &json, fields);
        (encoded, encoder.unknown())
    }

    #[test]
    fn each_type_is_encoded_as_protobuf_has_it() {
        let rows: [(&str, serde_json::Value, &[u8]); 14] = [
            ("nothing", json!({}), b""),
            ("null", json!({"command": null, "linux": null}), b""),
            ("text", json!({"working_dir": "/a", "log_path": ""}), b"\x2a\x02/a"),
            (
                "texts, empty ones too",
                json!({"command": ["a", "", "\u{e9}"]}),
                b"\x1a\x01a\x1a\0\x1a\x02\xc3\xa9",
            ),
            ("flags", json!({"stdin": true, "tty": false}), b"\x60\x01"),
            ("a number", json!({"stop_signal": 300}), b"\x90\x01\xac\x02"),
            ("a map", json!({"labels": {"a": "b", "e": ""}}), b"\x4a\x06\x0a\x01a\x12\x01b\x4a\x03\x0a\x01e"),
            ("an empty value", json!({"envs": [{"key": "E"}]}), b"\x32\x03\x0a\x01E"),
            ("a value", json!({"envs": [{"key": "A", "value": "YQ=="}]}), b"\x32\x09\x0a\x01A\x12\x04YQ=="),
            (
                "user 0",
                json!({"linux": {"security_context": {"run_as_user": {}}}}),
                b"\x7a\x04\x12\x02\x2a\0",
            ),
            (
                "a negative number",
                json!({"linux": {"resources": {"oom_score_adj": -1}}}),
                b"\x7a\x0d\x0a\x0b\x28\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            ),
            (
                "packed numbers",
                json!({"linux": {"security_context": {"supplemental_groups": [1, 300]}}}),
                b"\x7a\x07\x12\x05\x42\x03\x01\xac\x02",
            ),
            (
                "messages",
                json!({"mounts": [{"host_path": "/h", "readonly": true}, {}]}),
                b"\x3a\x06\x12\x02/h\x18\x01\x3a\0",
            ),
            ("devices by name", json!({"CDI_devices": [{"name": "v/c=1"}]}), b"\x8a\x01\x07\x0a\x05v/c=1"),
        ];
        for (rule, json, expected) in rows {
            let (encoded, unknown) = encode(&json, CONTAINER);
            assert_eq!((encoded.as_deref(), unknown), (Ok(expected), vec![]), "{rule}");
        }
    }

    #[test]
    fn values_in_base64_are_decoded() {
        let json =
            RawValue::from_string(r#"{"envs":[{"key":"A","value":"/wA="},{"key":"E"}]}"#.into()).unwrap();
        let encoded = Encoder::new(ValueForm::Base64).encode("config", &json, CONTAINER).unwrap();
        let envs = cri::ContainerConfig::decode(&*encoded).unwrap().envs;
        assert_eq!((&envs[0].value[..], &envs[1].value[..]), (&b"\xff\0"[..], &b""[..]));
        let json = RawValue::from_string(r#"{"envs":[{"key":"A","value":"hunter2"}]}"#.into()).unwrap();
        let encoded = Encoder::new(ValueForm::Base64).encode("config", &json, CONTAINER);
        assert_eq!(encoded, Err(Misfit("config.envs.value".into())));
    }

    #[test]
    fn what_is_not_known_is_named_once_unless_it_is_empty() {
        let json = json!({
            "zero": 0, "none": null, "no": false, "list": [], "text": "", "new": 1, "odd\n": "x",
            "mounts": [{"novel": {}}, {"novel": {}, "container_path": "/x"}],
            "linux": {"resources": {"pressure": [1]}},
        });
        let (encoded, mut unknown) = encode(&json, CONTAINER);
        unknown.sort();
        let names = ["config.linux.resources.pressure", "config.mounts.novel", "config.new", "config.odd\\n"];
        assert_eq!(unknown, names);
        assert_eq!(
            cri::ContainerConfig::decode(&*encoded.unwrap()).unwrap(),
            cri::ContainerConfig::default()
        );

        let many: serde_json::Map<_, _> =
            (0..100).map(|at| (format!("{at}{}", "é".repeat(99)), json!(1))).collect();
        let (_, unknown) = encode(&many.into(), SANDBOX);
        assert_eq!((unknown.len(), unknown.last().unwrap().as_str()), (MAX_NAMES + 1, "and 84 more"));
        assert!(unknown.iter().all(|name| name.len() <= MAX_NAME), "{unknown:?}");
    }

    #[test]
    fn what_is_of_another_type_is_an_error_that_names_the_place_and_no_value() {
        let rows = [
            (json!([]), "config"),
            (json!({"command": "sh"}), "config.command"),
            (json!({"command": [null]}), "config.command"),
            (json!({"tty": 1}), "config.tty"),
            (json!({"stop_signal": 1.5}), "config.stop_signal"),
            (json!({"labels": {"a": 1}}), "config.labels"),
            (json!({"mounts": [[]]}), "config.mounts"),
            (json!({"envs": [{"value": {"secret": 1}}]}), "config.envs.value"),
            (json!({"linux": {"resources": {"cpu_quota": "1"}}}), "config.linux.resources.cpu_quota"),
        ];
        for (json, place) in rows {
            assert_eq!(encode(&json, CONTAINER).0, Err(Misfit(place.into())), "{json}");
        }
    }

    #[test]
    fn no_number_and_no_name_comes_twice() {
        fn check(fields: Fields) -> usize {
            for (at, (name, tag, _)) in fields.iter().enumerate() {
                let is_same = |(other, number, _): &(&str, u32, Kind)| other == name || number == tag;
                assert!(!fields[at + 1..].iter().any(is_same), "{name} {tag}");
            }
            let inner = fields.iter().map(|(.., kind)| match kind {
                Kind::Message(fields) | Kind::Messages(fields) => check(fields),
                _ => 0,
            });
            fields.len() + inner.sum::<usize>()
        }
        assert!(check(CONTAINER) > 80 && check(SANDBOX) > 60);
    }

    /// JSON with names of fields in it.
    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<f64>().prop_map(Into::into),
            "\\PC{0,9}".prop_map(Into::into),
        ];
        let name = prop::sample::select(vec![
            "linux",
            "resources",
            "envs",
            "key",
            "value",
            "labels",
            "mounts",
            "image",
            "metadata",
            "command",
            "other",
        ]);
        leaf.prop_recursive(5, 60, 6, move |inner| {
            let object =
                prop::collection::btree_map(name.clone().prop_map(str::to_owned), inner.clone(), 0..6);
            prop_oneof![
                prop::collection::vec(inner, 0..4).prop_map(Into::into),
                object.prop_map(|object| object.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_json_panics_and_what_is_encoded_is_such_a_message(json in json()) {
            if let (Ok(encoded), _) = encode(&json, CONTAINER) {
                prop_assert!(cri::ContainerConfig::decode(&*encoded).is_ok());
            }
            if let (Ok(encoded), _) = encode(&json, SANDBOX) {
                prop_assert!(cri::PodSandboxConfig::decode(&*encoded).is_ok());
            }
        }
    }
}
