//! A configuration file as it was written: the text of each setting with its place, and all that is wrong with the
//! form of the file. Never judges a value; `resolve` does.

use std::path::{Path, PathBuf};

use super::{ConfigError, MAX_FILE, Origin, key::Key};
use crate::document::{
    self, Place, Value,
    fault::FieldError,
    fields::{self, Field, Fields, Written},
};

/// How a socket is written.
const SOCKET: &str = "write unix:///PATH";

/// What a file says; nothing by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Raw {
    file: PathBuf,
    settings: Vec<(Key, Written<String>)>,
    errors: Vec<ConfigError>,
}

impl Raw {
    /// Reads the text of a file; an empty one says nothing.
    pub fn read(text: &str, file: &Path) -> Self {
        let mut raw = Self { file: file.into(), settings: Vec::new(), errors: Vec::new() };
        match document::parse(text, MAX_FILE) {
            Ok(node) if node.value == Value::Null => {}
            Ok(node) => {
                let mut errors = Vec::new();
                fields::read(&node, "", &mut errors, |top| raw.settings = settings(top));
                raw.errors = errors.into_iter().map(|error| raw.field_error(&error)).collect();
            }
            Err(error) => {
                let origin = Origin::File(file.into(), error.place());
                raw.errors.push(ConfigError { origin, reason: error.reason() });
            }
        }
        raw
    }

    /// What the file says of a setting, and where.
    pub fn get(&self, key: Key) -> Option<(&str, Origin)> {
        let (_, written) = self.settings.iter().find(|(one, _)| *one == key)?;
        Some((&written.value, self.origin(written.place)))
    }

    /// What is wrong with its form.
    pub(super) fn into_errors(self) -> Vec<ConfigError> {
        self.errors
    }

    fn origin(&self, place: Option<Place>) -> Origin {
        Origin::File(self.file.clone(), place)
    }

    fn field_error(&self, error: &FieldError) -> ConfigError {
        ConfigError { origin: self.origin(error.place), reason: error.to_string() }
    }
}

/// Every setting that is written with the right type.
fn settings(top: &mut Fields<'_>) -> Vec<(Key, Written<String>)> {
    let mut found = vec![
        (Key::Listen, top.text_of_form("listen", SOCKET)),
        (Key::Runtime, top.text_of_form("runtime", SOCKET)),
        (Key::State, top.text("state")),
    ];
    top.map("api", |api| {
        found.push((Key::ApiListen, api.text_of_form("listen", SOCKET)));
        found.push((Key::ApiGroup, api.text("group")));
        api.not_supported(&["http", "page"]);
    });
    top.map("prober", |prober| {
        found.push((Key::Workers, number(&prober.integer("workers"))));
        found.push((Key::ExecWorkers, number(&prober.integer("execWorkers"))));
        found.push((Key::ExecGrace, prober.duration("execGrace")));
        found.push((Key::MaxPerPod, number(&prober.integer("maxPerPod"))));
        found.push((Key::MaxPerNode, number(&prober.integer("maxPerNode"))));
        found.push((Key::NodeIp, prober.text("nodeIP")));
        prober.not_supported(&["minPeriod", "allowHosts"]);
    });
    top.map("log", |log| {
        found.push((Key::LogFormat, log.text("format")));
        found.push((Key::LogLevel, log.text("level")));
    });
    top.not_supported(&["annotations", "healthcheck", "rules", "trace", "act"]);
    found
        .into_iter()
        .filter_map(|(key, field)| match field {
            Field::Given(written) => Some((key, written)),
            Field::Absent | Field::Bad => None,
        })
        .collect()
}

fn number(field: &Field<i64>) -> Field<String> {
    match field {
        Field::Absent => Field::Absent,
        Field::Bad => Field::Bad,
        Field::Given(Written { value, place }) => {
            Field::Given(Written { value: value.to_string(), place: *place })
        }
    }
}
