//! A configuration file as it was written: the text of each setting with its place, its rules, and all errors of the
//! file itself. Never validates a setting's value; `resolve` does that.

use std::path::{Path, PathBuf};

use super::{
    ConfigError, ConfigFile, MAX_FILE, Origin,
    key::Key,
    rules::{self, WrittenRule},
};
use crate::document::{
    self, Place, SyntaxError, Value,
    fields::{self, Field, Fields, Written},
};

/// The format of a socket.
const SOCKET: &str = "write unix:///PATH";

/// The format of a TCP address.
const TCP: &str = "write ADDRESS:PORT, such as 127.0.0.1:9090";

/// The format of a size.
const SIZE: &str = "write a size such as 64MiB";

/// The content of a file; empty by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Raw {
    path: PathBuf,
    settings: Vec<WrittenSetting>,
    rules: Vec<WrittenRule>,
    faults: Vec<(Option<Place>, String)>,
}

/// The value of one setting in a file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WrittenSetting {
    pub(super) key: Key,
    pub(super) place: Option<Place>,
    /// One text; for a list, its items, possibly none.
    pub(super) texts: Vec<Written<String>>,
}

impl Raw {
    /// Reads the text of a file; an empty text sets nothing.
    pub fn read(text: &str, path: &Path) -> Self {
        let mut raw = Self { path: path.into(), ..Self::default() };
        match document::parse(text, MAX_FILE) {
            Ok(node) if node.value == Value::Null => {}
            Ok(node) => {
                let mut errors = Vec::new();
                let mut rules = Vec::new();
                fields::read(&node, "", &mut errors, |top| {
                    raw.settings = settings(top);
                    rules = rules::read(top);
                });
                raw.rules = rules.into_iter().map(|rule| rule.check(&mut errors)).collect();
                raw.faults = errors.iter().map(|error| (error.place, error.to_string())).collect();
            }
            Err(error) => raw = Self::malformed(path, &error),
        }
        raw
    }

    /// A file that is neither YAML nor JSON.
    pub fn malformed(path: &Path, error: &SyntaxError) -> Self {
        Self { path: path.into(), faults: vec![(error.place(), error.reason())], ..Self::default() }
    }

    /// A file that could not be read.
    pub fn unreadable(path: &Path, reason: String) -> Self {
        Self { path: path.into(), faults: vec![(None, reason)], ..Self::default() }
    }

    /// Which file it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The value of a setting, if the file sets it.
    pub(super) fn get(&self, key: Key) -> Option<&WrittenSetting> {
        self.settings.iter().find(|setting| setting.key == key)
    }

    /// Its rules in order, including invalid ones.
    pub(super) fn rules(&self) -> &[WrittenRule] {
        &self.rules
    }

    /// All errors of the file itself; `rank` is its position among the files.
    pub(super) fn errors(&self, rank: usize) -> impl Iterator<Item = ConfigError> {
        self.faults.iter().map(move |(place, reason)| ConfigError {
            origin: self.origin(rank, *place),
            reason: reason.clone(),
        })
    }

    /// A place in it; `rank` is its position among the files.
    pub(super) fn origin(&self, rank: usize, place: Option<Place>) -> Origin {
        Origin::File(ConfigFile { rank, path: self.path.clone() }, place)
    }
}

/// Every setting that has the right type.
fn settings(top: &mut Fields<'_>) -> Vec<WrittenSetting> {
    let mut found = vec![
        one(Key::Listen, top.text_of_form("listen", SOCKET)),
        one(Key::Runtime, top.text_of_form("runtime", SOCKET)),
        one(Key::State, top.text("state")),
    ];
    top.map("api", |api| {
        found.push(one(Key::ApiListen, api.text_of_form("listen", SOCKET)));
        found.push(one(Key::ApiGroup, api.text("group")));
        found.push(one(Key::ApiHttp, api.text_of_form("http", TCP)));
        found.push(one(Key::ApiPage, api.text("page")));
    });
    top.map("prober", |prober| {
        found.push(one(Key::Workers, prober.integer("workers")));
        found.push(one(Key::ExecWorkers, prober.integer("execWorkers")));
        found.push(one(Key::ExecGrace, prober.duration("execGrace")));
        found.push(one(Key::ExecMode, prober.text("execMode")));
        found.push(one(Key::MaxPerPod, prober.integer("maxPerPod")));
        found.push(one(Key::MaxPerNode, prober.integer("maxPerNode")));
        found.push(one(Key::MaxRatePerPod, prober.integer("maxRatePerPod")));
        found.push(one(Key::MaxRatePerNode, prober.integer("maxRatePerNode")));
        found.push(one(Key::MinPeriod, prober.duration("minPeriod")));
        found.push(one(Key::MaxTimeout, prober.duration("maxTimeout")));
        found.push(one(Key::NodeIp, prober.text("nodeIP")));
        found.push(many(Key::AllowHosts, prober.items("allowHosts")));
    });
    top.map("annotations", |annotations| {
        found.push(many(Key::AnnotationNamespaces, annotations.items("namespaces")));
    });
    top.map("healthcheck", |healthcheck| {
        found.push(one(Key::HealthcheckEnabled, healthcheck.boolean("enabled")));
        found.push(many(Key::HealthcheckNamespaces, healthcheck.items("namespaces")));
    });
    top.map("observed", |observed| {
        found.push(one(Key::ObservedEnabled, observed.boolean("enabled")));
    });
    top.map("history", |history| {
        found.push(one(Key::HistoryAttempts, history.integer("attempts")));
        found.push(one(Key::HistoryOutputBytes, history.integer("outputBytes")));
    });
    top.map("attempts", |attempts| {
        found.push(one(Key::AttemptsFile, attempts.text("file")));
        found.push(one(Key::AttemptsMaxBytes, attempts.text_of_form("maxBytes", SIZE)));
    });
    top.map("act", |act| {
        found.push(one(Key::ActEnabled, act.boolean("enabled")));
        found.push(one(Key::ActDryRun, act.boolean("dryRun")));
        found.push(many(Key::ActNamespaces, act.items("namespaces")));
        found.push(one(Key::ActMaxPerMinute, act.integer("maxPerMinute")));
        found.push(one(Key::ActMaxConcurrent, act.integer("maxConcurrent")));
        found.push(one(Key::ActGracePeriod, act.duration("gracePeriod")));
        found.push(one(Key::ActRestartOnExit, act.text("restartOnExit")));
    });
    top.map("trace", |trace| {
        found.push(one(Key::TraceOutput, trace.boolean("output")));
        found.push(one(Key::TraceFile, trace.text("file")));
        found.push(one(Key::TraceMaxBytes, trace.text_of_form("maxBytes", SIZE)));
        found.push(many(Key::TraceRedact, trace.items("redact")));
    });
    top.map("log", |log| {
        found.push(one(Key::LogFormat, log.text("format")));
        found.push(one(Key::LogLevel, log.text("level")));
    });
    found.into_iter().flatten().collect()
}

fn one<T: ToString>(key: Key, field: Field<T>) -> Option<WrittenSetting> {
    match field {
        Field::Absent | Field::Bad => None,
        Field::Given(Written { value, place }) => {
            Some(WrittenSetting { key, place, texts: vec![Written { value: value.to_string(), place }] })
        }
    }
}

fn many(key: Key, field: Field<Vec<Written<String>>>) -> Option<WrittenSetting> {
    match field {
        Field::Absent | Field::Bad => None,
        Field::Given(Written { value, place }) => Some(WrittenSetting { key, place, texts: value }),
    }
}
