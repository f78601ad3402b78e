//! The configuration of the daemon: files, environment and flags in; one typed, valid [`Config`] or all errors out.
//! Reads the files and nothing else; never checks sockets or addresses of the machine. The caller looks up groups.
//!
//! Precedence, highest first: flag, environment variable, later file, earlier file, default.

pub(crate) mod change;
pub(crate) mod example;
pub(crate) mod files;
pub(crate) mod health;
pub(crate) mod key;
mod pattern;
pub mod raw;
pub mod resolve;
pub(crate) mod rules;
pub(crate) mod socket;
mod value;

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};

use key::Key;

use crate::{
    document::{Place, suggest},
    redact::Patterns,
    spec::{ExecModeSetting, acting::RestartOnExit, policy::Policy},
};

/// 1 MiB: the longest file that is read. A longer one is an error.
pub(crate) const MAX_FILE: usize = 1 << 20;

/// A configuration, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The resolved settings.
    pub config: Config,
    /// The files that were read, in order.
    pub files: Vec<PathBuf>,
    /// The value of each setting as it was written, in the order of `Key::ALL`.
    pub settings: Vec<Setting>,
    /// The place of each rule of the policy, in order.
    pub rules: Vec<Origin>,
    /// Ignored files and variables that were possibly meant to be read, one line each.
    pub notes: Vec<String>,
}

/// The value of one setting as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The setting.
    pub key: Key,
    /// As it was written: one text, or the items of a list. Sockets are URLs.
    pub texts: Vec<String>,
    /// Where it was set.
    pub origin: Origin,
}

/// The settings of the daemon. A value of this type is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The socket that clients connect to.
    pub listen: PathBuf,
    /// The socket of the runtime; never the same as `listen`.
    pub runtime: PathBuf,
    /// The folder for the state that survives the daemon; `None` to keep no state, which no file can request.
    pub state: Option<PathBuf>,
    /// The API of the daemon.
    pub api: ApiConfig,
    /// How probes are run.
    pub prober: ProberConfig,
    /// What is probed: rules, whose annotations and HEALTHCHECKs are used, and their limits; whose verdicts may act.
    pub policy: Policy,
    /// How verdicts of failure act.
    pub act: ActConfig,
    /// Whether clients' own probes are observed.
    pub is_observing: bool,
    /// How much each probe keeps of its attempts, where no rule says otherwise.
    pub history: HistoryConfig,
    /// Where attempts are written to.
    pub attempts: RecordConfig,
    /// What is recorded of calls.
    pub trace: TraceConfig,
    /// What is logged, and how.
    pub log: LogConfig,
}

/// Where the API is served, and for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiConfig {
    /// Its socket; never the same as those of the relay.
    pub listen: PathBuf,
    /// The id of the group that can use it in addition to root; `None` for only root.
    pub group: Option<u32>,
    /// The TCP address for metrics, health and the page; `None` for no TCP.
    pub http: Option<SocketAddr>,
    /// Where TCP serves the page and the reading API.
    pub page: PageAccess,
}

/// Where TCP serves the page and the reading API; metrics and health it always does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageAccess {
    /// On an address of loopback.
    Loopback,
    /// On any address.
    Always,
    /// Nowhere.
    Never,
}

impl PageAccess {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Loopback, Self::Always, Self::Never];

    /// `loopback`, `always`, `never`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}

/// How probes are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProberConfig {
    /// How many attempts may be in flight; others wait.
    pub workers: NonZeroUsize,
    /// How many of them may be exec; at most `workers`.
    pub exec_workers: NonZeroUsize,
    /// How long after its timeout an exec may stay unanswered before it is cancelled.
    pub exec_grace: Duration,
    /// Which way the commands of exec probes go whose definitions do not say.
    pub exec_mode: ExecModeSetting,
    /// How many probes one pod may have; those beyond it are invalid.
    pub max_per_pod: NonZeroUsize,
    /// How many probes all pods may have; those beyond it are invalid.
    pub max_per_node: NonZeroUsize,
    /// How many attempts per second one pod may need; probes beyond that are invalid.
    pub max_rate_per_pod: NonZeroUsize,
    /// How many attempts per second all pods may need; likewise.
    pub max_rate_per_node: NonZeroUsize,
    /// The address at which host-network pods are probed; `None` for the source address of the default route.
    pub node_ip: Option<IpAddr>,
}

/// How verdicts of failure act, where the policy lets them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActConfig {
    /// How many acts the node may have in any minute; what is beyond that is withheld until it is allowed.
    pub max_per_minute: NonZeroUsize,
    /// How many acts may be in progress; likewise.
    pub max_concurrent: NonZeroUsize,
    /// The grace period where neither the probe nor the pod has one.
    pub grace: Duration,
    /// Whether containers that exit by themselves are restarted, where one of their probes restarts them on failure.
    pub restart_on_exit: RestartOnExit,
}

/// How much is kept of the attempts of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryConfig {
    /// How many attempts; at least 1.
    pub attempts: u16,
    /// How many bytes of what each said.
    pub output_bytes: u16,
}

/// Where records are written to, a line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordConfig {
    /// The file; `None` to write none.
    pub file: Option<PathBuf>,
    /// What it and the one before it may take together, in bytes.
    pub max_bytes: u64,
}

/// What is recorded of calls, and what of them and of everything else is not shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceConfig {
    /// Whether the beginnings of what commands print are recorded.
    pub has_output: bool,
    /// Where calls are written to.
    pub record: RecordConfig,
    /// What is replaced in all that is shown or written.
    pub redact: Patterns,
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// The format of a line.
    pub format: LogFormat,
    /// The lowest level that is logged.
    pub level: LogLevel,
}

/// The format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// How much is logged, from least to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// An operator must act.
    Error,
    /// Something is degraded and recovers by itself.
    Warn,
    /// Changes of state.
    Info,
    /// Every call.
    Debug,
    /// Everything.
    Trace,
}

/// Settings from flags and the environment, as text. They take precedence over files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    flags: Vec<(Key, String)>,
    environment: Vec<(Key, String)>,
}

/// All errors of a configuration, one line each: `config.yaml:7:3: prober.workers: must be ...`; those of a file in the
/// order of their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

/// One error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {reason}")]
pub struct ConfigError {
    /// Where the setting was written.
    pub origin: Origin,
    /// What is wrong and what to write instead; for a file, it begins with the key.
    pub reason: String,
}

/// Where a setting comes from, lowest precedence first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The default.
    Default,
    /// The default of a setting that another one limits: which, and where that was set.
    Limited(&'static str, Box<Self>),
    /// A file, and the place in it if known.
    File(ConfigFile, Option<Place>),
    /// An environment variable.
    Environment(&'static str),
    /// A command line flag.
    Flag(&'static str),
}

/// One of the files; later files take precedence over earlier ones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigFile {
    /// Its position among them, from 0.
    pub rank: usize,
    /// Its path.
    pub path: PathBuf,
}

/// Looks up the id of a group by its name; `Ok(None)` if it does not exist, or the reason why the lookup failed.
pub(crate) type Groups<'a> = &'a dyn Fn(&str) -> Result<Option<u32>, String>;

/// Reads the named file, or else [`files::DEFAULT_FILE`] if it exists, then the files of the folder `conf.d` beside it,
/// and resolves them with the overrides and the machine's groups.
///
/// # Errors
/// All errors at once: files that cannot be read, unknown keys, values out of bounds, rules that violate Kubernetes' or
/// our own rules.
pub(crate) fn load(
    file: Option<&Path>,
    overrides: &Overrides,
    groups: Groups<'_>,
) -> Result<Loaded, ConfigErrors> {
    let found = files::read(file);
    match resolve::resolve(&found.raws, overrides, groups) {
        Ok(loaded) => Ok(Loaded { notes: found.notes, ..loaded }),
        Err(errors) => Err(errors.conceal(&found.concealed)),
    }
}

/// The beginning of the name of each variable.
const PREFIX: &str = "CRIPROBE_";

/// At most 10 unknown variables are reported.
const MAX_UNKNOWN: usize = 10;

/// Variable names that look like a setting but are not, one line each. Kubernetes sets CRIPROBE_SERVICE_* and
/// CRIPROBE_PORT* for a service named criprobe; these are not reported.
pub(crate) fn unknown_variables(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut known: Vec<&str> = Key::ALL.into_iter().map(Key::variable).chain(["CRIPROBE_CONFIG"]).collect();
    if cfg!(feature = "faults") {
        known.push("CRIPROBE_FAULTS");
    }
    let is_unknown = |name: &String| {
        name.strip_prefix(PREFIX)
            .is_some_and(|rest| !rest.starts_with("SERVICE_") && !rest.starts_with("PORT"))
            && !known.contains(&name.as_str())
    };
    let mut unknown: Vec<String> = names.into_iter().filter(is_unknown).collect();
    unknown.sort_unstable();
    let line = |name: &String| {
        // What they all begin with makes no two of them alike.
        let own = |name: &'_ str| name.strip_prefix(PREFIX).unwrap_or(name).to_owned();
        let near =
            known.iter().filter_map(|&known| Some((suggest::typing_errors(&own(name), &own(known))?, known)));
        let meant =
            near.min_by_key(|(errors, _)| *errors).map(|(_, known)| format!(": did you mean {known}?"));
        let brief: String = name.chars().take(64).collect();
        format!("{brief:?} is not a setting{}", meant.unwrap_or_default())
    };
    unknown.iter().take(MAX_UNKNOWN).map(line).collect()
}

impl Overrides {
    /// Reads the environment variables; an empty variable counts as not set.
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

    /// The override for a key, if any.
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
    /// Leaves only the places of errors in these files, because the reasons may quote the text.
    fn conceal(mut self, files: &[(PathBuf, String)]) -> Self {
        for error in &mut self.0 {
            if let Origin::File(file, _) = &error.origin
                && let Some((_, why)) = files.iter().find(|(path, _)| *path == file.path)
            {
                error.reason = format!(
                    "wrong, but the reason is not shown, as it may quote the file, and {why}; \
                     'criprobe check' shows it"
                );
            }
        }
        self
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }

    /// Whether all errors are in flags.
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
            Self::Limited(by, origin) => write!(f, "limited by {by} ({origin})"),
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
