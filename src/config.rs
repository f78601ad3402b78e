//! The configuration of the daemon: files, environment and flags in; one typed, valid [`Config`] or every error out.
//! Reads the files, and nothing else; never looks at sockets or addresses of the machine. Groups are looked up by whoever
//! calls.
//!
//! A flag stands over the environment, that over the files, a later one over an earlier one, these over the default.

pub mod change;
pub mod example;
pub mod files;
pub mod health;
pub mod key;
mod pattern;
pub mod raw;
pub mod resolve;
pub mod rules;
pub mod socket;

use std::{
    fmt,
    net::IpAddr,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};

use key::Key;

use crate::{
    document::{Place, suggest},
    spec::policy::Policy,
};

/// 1 MiB: the longest file that is read. A longer one is an error.
pub const MAX_FILE: usize = 1 << 20;

/// A configuration, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// What is to be done.
    pub config: Config,
    /// The files that were read, in their order.
    pub files: Vec<PathBuf>,
    /// What each setting was told to be, in the order of [`Key::ALL`].
    pub settings: Vec<Setting>,
    /// Where each rule of the policy stands, in their order.
    pub rules: Vec<Origin>,
    /// What was passed over that somebody may have meant to be read, one line each.
    pub notes: Vec<String>,
}

/// What one setting was told to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Which one.
    pub key: Key,
    /// As it was written: one text, or the items of a list. Sockets are URLs.
    pub texts: Vec<String>,
    /// By whom.
    pub origin: Origin,
}

/// What the daemon is told to do. One that exists is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The socket that clients connect to.
    pub listen: PathBuf,
    /// The socket of the runtime; another one than `listen`.
    pub runtime: PathBuf,
    /// The folder that keeps what outlives the daemon; `None` where nothing is to, which no file can ask for.
    pub state: Option<PathBuf>,
    /// The API of the daemon.
    pub api: ApiConfig,
    /// How probes are run.
    pub prober: ProberConfig,
    /// What is probed: rules, whose annotations and HEALTHCHECKs count, and their limits.
    pub policy: Policy,
    /// Whether clients' own probes are observed.
    pub is_observing: bool,
    /// What is logged, and how.
    pub log: LogConfig,
}

/// Where the API is served, and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiConfig {
    /// Its socket; another one than those of the relay.
    pub listen: PathBuf,
    /// The id of the group that may use it beside root; `None` for root alone.
    pub group: Option<u32>,
}

/// How probes are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProberConfig {
    /// How many attempts may be in flight; further ones wait.
    pub workers: NonZeroUsize,
    /// How many of them may be exec; at most `workers`.
    pub exec_workers: NonZeroUsize,
    /// How long past its timeout an exec may stay unanswered before it is cancelled.
    pub exec_grace: Duration,
    /// How many probes one pod may have; further ones are invalid.
    pub max_per_pod: NonZeroUsize,
    /// How many probes all pods may have; further ones are invalid.
    pub max_per_node: NonZeroUsize,
    /// How many attempts per second one pod may come to; probes beyond that are invalid.
    pub max_rate_per_pod: NonZeroUsize,
    /// How many attempts per second all pods may come to; likewise.
    pub max_rate_per_node: NonZeroUsize,
    /// Where host-network pods are probed; `None` for the source address of the default route.
    pub node_ip: Option<IpAddr>,
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// The form of a line.
    pub format: LogFormat,
    /// The least level that is logged.
    pub level: LogLevel,
}

/// The form of a line in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// How much is logged, from little to much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// An operator must act.
    Error,
    /// Something is degraded and heals itself.
    Warn,
    /// Something changed.
    Info,
    /// Every call.
    Debug,
    /// Everything.
    Trace,
}

/// What stands above the file, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    flags: Vec<(Key, String)>,
    environment: Vec<(Key, String)>,
}

/// Everything that is wrong with a configuration, one line each: `config.yaml:7:3: prober.workers: must be ...`;
/// those of a file in the order of their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {reason}")]
pub struct ConfigError {
    /// Where it was said.
    pub origin: Origin,
    /// What is wrong and what to write instead; for a file it begins with the key.
    pub reason: String,
}

/// Where a setting comes from; the mightiest comes last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Nobody said it.
    Default,
    /// A file, and a place in it where one can be told.
    File(ConfigFile, Option<Place>),
    /// A variable of the environment.
    Environment(&'static str),
    /// A flag of the command line.
    Flag(&'static str),
}

/// One of the files; a later one stands over an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigFile {
    /// Its place among them, from 0.
    pub rank: usize,
    /// Its path.
    pub path: PathBuf,
}

/// Looks up the id of a group by its name; `Ok(None)` where there is none, or else why that cannot be told.
pub type Groups<'a> = &'a dyn Fn(&str) -> Result<Option<u32>, String>;

/// Reads the file that is named, or else [`files::DEFAULT_FILE`] if it exists, then those of the folder `conf.d` beside
/// it, and resolves them with what stands above them and with the machine's groups.
///
/// # Errors
/// Everything that is wrong at once: a file that cannot be read, keys that are unknown, values that are out of bounds,
/// rules that break a rule of Kubernetes' or ours.
pub fn load(file: Option<&Path>, overrides: &Overrides, groups: Groups<'_>) -> Result<Loaded, ConfigErrors> {
    let found = files::read(file);
    let loaded = resolve::resolve(&found.raws, overrides, groups)?;
    Ok(Loaded { notes: found.notes, ..loaded })
}

/// 10 variables that mean nothing are named at most.
const MAX_UNKNOWN: usize = 10;

/// What looks like a setting among these names of variables and is none, one line each. Kubernetes sets CRIPROBE_SERVICE_*
/// and CRIPROBE_PORT* where a service is called criprobe: these are nobody's mistake.
pub fn unknown_variables(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut known: Vec<&str> = Key::ALL.into_iter().map(Key::variable).chain(["CRIPROBE_CONFIG"]).collect();
    if cfg!(feature = "faults") {
        known.push("CRIPROBE_FAULTS");
    }
    let is_unknown = |name: &String| {
        name.strip_prefix("CRIPROBE_")
            .is_some_and(|rest| !rest.starts_with("SERVICE_") && !rest.starts_with("PORT"))
            && !known.contains(&name.as_str())
    };
    let mut unknown: Vec<String> = names.into_iter().filter(is_unknown).collect();
    unknown.sort_unstable();
    let line = |name: &String| {
        let meant = suggest::nearest(name, &known).map(|meant| format!(": did you mean {meant}?"));
        let brief: String = name.chars().take(64).collect();
        format!("{brief:?} is no setting{}", meant.unwrap_or_default())
    };
    unknown.iter().take(MAX_UNKNOWN).map(line).collect()
}

impl Overrides {
    /// Takes what the environment says; an empty variable says nothing.
    pub fn from_environment(get: impl Fn(&'static str) -> Option<String>) -> Self {
        let said = Key::ALL.into_iter().filter_map(|key| Some((key, get(key.variable())?)));
        Self { flags: Vec::new(), environment: said.filter(|(_, text)| !text.is_empty()).collect() }
    }

    /// Adds a flag, if it was given.
    #[must_use]
    pub fn flag(mut self, key: Key, text: Option<String>) -> Self {
        self.flags.extend(text.map(|text| (key, text)));
        self
    }

    /// What outranks the file for a key.
    fn get(&self, key: Key) -> Option<(&str, Origin)> {
        let find = |settings: &'_ [(Key, String)]| settings.iter().rposition(|(one, _)| *one == key);
        match (find(&self.flags), find(&self.environment)) {
            (Some(at), _) => Some((&self.flags[at].1, Origin::Flag(key.flag()))),
            (None, Some(at)) => Some((&self.environment[at].1, Origin::Environment(key.variable()))),
            (None, None) => None,
        }
    }
}

impl ConfigErrors {
    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }

    /// Whether nothing but flags is wrong.
    pub fn are_usage(&self) -> bool {
        self.0.iter().all(|error| matches!(error.origin, Origin::Flag(_)))
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}

impl std::error::Error for ConfigErrors {}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            write!(f, "{}{error}", if index == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(file, None) => write!(f, "{}", file.path.display()),
            Self::File(file, Some(place)) => write!(f, "{}:{place}", file.path.display()),
            Self::Environment(name) | Self::Flag(name) => f.write_str(name),
        }
    }
}

impl LogLevel {
    /// `error`, `warn`, `info`, `debug`, `trace`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

#[cfg(test)]
mod tests;
