//! Variables of a container, from its verbose status: its id and the variables' names in; their values out. No other
//! value of its environment is kept. The values may be secrets: they are never logged.

mod places;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
    marker::PhantomData,
    str,
    sync::{Arc, LazyLock},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use prost::Message;
use serde::{
    Deserialize,
    de::{Deserializer, SeqAccess, Visitor},
};
use serde_json::value::RawValue;
use thiserror::Error;
use tonic::{Status, codegen::http::uri::PathAndQuery, transport::Channel};

use places::Places;

use super::{QUICK, call::ask};
use crate::proto::cri;

/// 8 MiB: the longest verbose status that is read. A process may have 2 MiB of environment, and containerd writes it
/// twice, once in base64. A longer status is an error: the environment counts as not known.
const MAX_ANSWER: usize = 8 << 20;

/// All such requests share these places.
static PLACES: LazyLock<Places> = LazyLock::new(Places::default);

/// The container whose variables are wanted. Namespaces take turns, and the pods of a namespace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub container: &'a str,
    /// Any value that differs between pods.
    pub pod: &'a str,
    pub namespace: &'a Arc<str>,
}

/// Why a container's variables were not read. After any but the first, the runtime is not asked again for some time.
#[derive(Clone, Debug, Error)]
pub(crate) enum VariablesError {
    /// Too many other statuses are being read, which the runtime does not answer, or answers slowly.
    #[error("too many statuses of containers are being read")]
    NoPlace,
    /// The status does not contain the environment in a form that is known.
    #[error("the runtime does not report it")]
    NotReported,
    /// OutOfRange if the answer is too long, DeadlineExceeded if it does not arrive in time.
    #[error(transparent)]
    Runtime(#[from] Status),
}

/// A `ContainerStatusResponse` without the status; the verbose text is not copied.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
struct Answer {
    #[prost(message, repeated, tag = "2")]
    info: Vec<Entry>,
}

/// One text of the status.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
struct Entry {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// The values of those of these variables that the container has.
///
/// # Errors
/// The runtime does not report environments; it, or the connection to it, returned an error, now or lately; or there was no
/// place for the request.
pub(crate) async fn variables(
    channel: Channel,
    of: Subject<'_>,
    names: &BTreeSet<&str>,
) -> Result<BTreeMap<String, String>, VariablesError> {
    let path = PathAndQuery::from_static("/runtime.v1.RuntimeService/ContainerStatus");
    let request = cri::ContainerStatusRequest { container_id: of.container.to_owned(), verbose: true };
    let read = async {
        let answer: Answer = ask(channel, path, request, QUICK, MAX_ANSWER).await?;
        let info = answer.info.iter().find(|entry| entry.key == "info");
        let values = info.and_then(|info| read(str::from_utf8(&info.value).ok()?, names));
        values.ok_or(VariablesError::NotReported)
    };
    PLACES.run(of, read).await
}

#[derive(Deserialize)]
struct Info<'a> {
    #[serde(borrow)]
    config: Option<Config<'a>>,
    #[serde(borrow, rename = "runtimeSpec")]
    spec: Option<Spec<'a>>,
}

#[derive(Deserialize)]
struct Config<'a> {
    #[serde(borrow)]
    envs: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Spec<'a> {
    #[serde(borrow)]
    process: Option<Process<'a>>,
}

#[derive(Deserialize)]
struct Process<'a> {
    #[serde(borrow)]
    env: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Pair<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(borrow, default)]
    value: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// How a status shows the values of its config's variables: they are bytes in newer versions, which JSON has in base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueForm {
    Plain,
    Base64,
}

/// Variables by their names, with their last values.
type Found = BTreeMap<String, String>;

/// Those of the config, and those of the process, if they are reported.
fn find(info: &str, is_wanted: impl Fn(&str) -> bool) -> Option<(Option<Found>, Option<Found>)> {
    let info: Info<'_> = serde_json::from_str(info).ok()?;
    let mut of_process = None;
    if let Some(process) = info.spec.and_then(|spec| spec.process) {
        let found = of_process.insert(BTreeMap::new());
        each(process.env, |Text(pair): Text<'_>| {
            if let Some((name, value)) = pair.split_once('=').filter(|(name, _)| is_wanted(name)) {
                found.insert(name.to_owned(), value.to_owned());
            }
        })?;
    }
    let Some(config) = info.config else { return Some((None, of_process)) };
    let mut found = BTreeMap::new();
    each(config.envs, |pair: Pair<'_>| {
        if is_wanted(&pair.key) {
            found.insert(pair.key.into_owned(), pair.value.into_owned());
        }
    })?;
    Some((Some(found), of_process))
}

/// From containerd as the client set them (`info["info"]`, the container's config); from a runtime that does not report
/// that, as the process got them. The last value of a name counts.
fn read(info: &str, names: &BTreeSet<&str>) -> Option<Found> {
    let (of_config, of_process) = find(info, |name| names.contains(name))?;
    let Some(mut found) = of_config else { return of_process };
    if of_process.is_some_and(|of_process| compare(&found, &of_process) == Some(ValueForm::Base64)) {
        for value in found.values_mut() {
            if let Some(plain) = base64(value) {
                *value = plain;
            }
        }
    }
    Some(found)
}

/// How a verbose status shows the values of its config's variables; `None` if that cannot be known, because it is malformed,
/// or because no value is the one that the process got, in either form.
pub(crate) fn value_form(info: &str) -> Option<ValueForm> {
    let (of_config, of_process) = find(info, |_| true)?;
    let shown = of_config.unwrap_or_default();
    if shown.values().all(String::is_empty) {
        return Some(ValueForm::Plain);
    }
    compare(&shown, &of_process?)
}

/// The environment of the process shows which form it is: if any value is as shown, they are plain.
fn compare(shown: &Found, of_process: &Found) -> Option<ValueForm> {
    let known = shown.iter().filter(|(_, text)| !text.is_empty());
    let mut form = None;
    for (text, real) in known.filter_map(|(name, text)| Some((text, of_process.get(name)?))) {
        if text == real {
            return Some(ValueForm::Plain);
        }
        if base64(text).is_some_and(|plain| plain == *real) {
            form = Some(ValueForm::Base64);
        }
    }
    form
}

/// Go's JSON writes bytes in standard base64 with padding.
fn base64(text: &str) -> Option<String> {
    STANDARD.decode(text).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads the elements of a JSON list one after the other; `None` if one of them is malformed.
fn each<'a, T: Deserialize<'a>>(list: Option<&'a RawValue>, read: impl FnMut(T)) -> Option<()> {
    let Some(list) = list else { return Some(()) };
    let reader = Each { read, element: PhantomData };
    serde_json::Deserializer::from_str(list.get()).deserialize_seq(reader).ok()
}

struct Each<T, F> {
    read: F,
    element: PhantomData<fn(T)>,
}

impl<'de, T: Deserialize<'de>, F: FnMut(T)> Visitor<'de> for Each<T, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(element) = list.next_element()? {
            (self.read)(element);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_plain_or_in_base64() {
        let rows = [
            (
                "plain",
                r#"{"config":{"envs":[{"key":"A","value":"blue"}]},"runtimeSpec":{"process":{"env":["A=blue"]}}}"#,
            ),
            ("plain that looks like base64", r#"{"config":{"envs":[{"key":"A","value":"blue"}]}}"#),
            (
                "base64",
                r#"{"config":{"envs":[{"key":"A","value":"Ymx1ZQ=="}]},"runtimeSpec":{"process":{"env":["PATH=/bin","A=blue"]}}}"#,
            ),
            (
                "plain that looks like base64, twice",
                r#"{"config":{"envs":[{"key":"A","value":"deep"},{"key":"A","value":"blue"}]},"runtimeSpec":{"process":{"env":["A=blue"]}}}"#,
            ),
            (
                "base64 beside an empty value and one that the process did not get",
                r#"{"config":{"envs":[{"key":"E"},{"key":"X","value":"eA=="},{"key":"A","value":"Ymx1ZQ=="}]},"runtimeSpec":{"process":{"env":["E=","A=blue"]}}}"#,
            ),
            ("only the process's own", r#"{"runtimeSpec":{"process":{"env":["A=blue"]}}}"#),
            ("escaped", r#"{"config":{"envs":[{"key":"\u0041","value":"b\u006cue"}]}}"#),
        ];
        let names = BTreeSet::from(["A", "E", "X"]);
        for (rule, json) in rows {
            assert_eq!(read(json, &names).unwrap()["A"], "blue", "{rule}");
        }
        for nothing in ["not json", "{}", r#"{"config":null}"#, r#"{"config":{"envs":[7]}}"#] {
            assert_eq!(read(nothing, &names), None, "{nothing}");
        }
    }

    #[test]
    fn of_the_others_nothing_is_kept() {
        let json = r#"{"config":{"envs":[{"key":"A","value":"1"},{"key":"B","value":"2"}]},"runtimeSpec":{"process":{"env":["A=1","B=2"]}}}"#;
        let found = read(json, &BTreeSet::from(["B", "C"])).unwrap();
        assert_eq!(found, BTreeMap::from([("B".to_owned(), "2".to_owned())]));
        assert_eq!(read(r#"{"config":{}}"#, &BTreeSet::from(["B"])), Some(BTreeMap::new()));
    }

    #[test]
    fn the_form_of_all_values_is_known_by_those_of_the_process() {
        let json = |envs: &str, env: &str| {
            format!(r#"{{"config":{{"envs":[{envs}]}},"runtimeSpec":{{"process":{{"env":[{env}]}}}}}}"#)
        };
        let plain = r#"{"key":"A","value":"blue"},{"key":"B","value":"deep"}"#;
        let base64 = r#"{"key":"A","value":"Ymx1ZQ=="},{"key":"E"},{"key":"B","value":"/wA="}"#;
        let rows = [
            ("plain", json(plain, r#""A=blue","B=deep""#), Some(ValueForm::Plain)),
            (
                "plain, and the runtime replaced one",
                json(plain, r#""A=blue","B=other""#),
                Some(ValueForm::Plain),
            ),
            ("base64", json(base64, r#""A=blue","B=\ufffd\u0000""#), Some(ValueForm::Base64)),
            (
                "only bytes that are no text",
                json(r#"{"key":"B","value":"/wA="}"#, r#""B=\ufffd\u0000""#),
                Some(ValueForm::Base64),
            ),
            ("neither", json(plain, r#""A=red""#), None),
            ("no value", json(r#"{"key":"E"}"#, ""), Some(ValueForm::Plain)),
            ("no variable", "{}".to_owned(), Some(ValueForm::Plain)),
            (
                "the process is not shown",
                r#"{"config":{"envs":[{"key":"A","value":"blue"}]}}"#.to_owned(),
                None,
            ),
            ("malformed", "{".to_owned(), None),
        ];
        for (rule, json, form) in rows {
            assert_eq!(value_form(&json), form, "{rule}");
        }
    }
}
