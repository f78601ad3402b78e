//! Chooses each setting's value by precedence and validates it: written values in; a valid [`Config`] or all errors
//! out. Never does IO.

use std::{
    collections::{HashMap, hash_map::Entry},
    num::NonZeroUsize,
    path::PathBuf,
};

use super::{
    ActConfig, ApiConfig, Config, ConfigError, ConfigErrors, Groups, HistoryConfig, Loaded, LogConfig,
    Origin, Overrides, ProberConfig, RecordConfig, Setting, TraceConfig,
    key::Key,
    pattern,
    raw::Raw,
    rules::MAX_RULES,
    value::{self, MAX_ACTS_PER_MINUTE, MAX_CONCURRENT_ACTS, MAX_RATES, boolean, count, namespace},
};
use crate::{
    document::fault::quoted,
    redact::{MAX_PATTERNS, Pattern, Patterns},
    spec::{
        acting::ActPolicy,
        policy::{Limits, Policy},
        rule::Rule,
    },
};

/// 100 errors are reported; the others are counted.
const MAX_ERRORS: usize = 100;

/// 1,000 items of a list; more are an error.
const MAX_ITEMS: usize = 1_000;

/// Resolves files and overrides; later files take precedence over earlier ones. Rules keep the order of the files, and
/// their order within a file. The syntax of a file's values is checked even if an override applies.
///
/// # Errors
/// All errors at once.
pub fn resolve(files: &[Raw], overrides: &Overrides, groups: Groups<'_>) -> Result<Loaded, ConfigErrors> {
    let mut resolver = Resolver { files, overrides, settings: Vec::new(), errors: Vec::new() };
    let listen = resolver.socket(Key::Listen);
    let runtime = resolver.socket(Key::Runtime);
    let state = resolver.value(Key::State, value::folder);
    let api_listen = resolver.socket(Key::ApiListen);
    let group = resolver.value(Key::ApiGroup, |name| value::group(name, groups));
    let http = resolver.value(Key::ApiHttp, value::http);
    let page = resolver.value(Key::ApiPage, value::page);
    let workers = resolver.value(Key::Workers, value::workers);
    let exec_workers = resolver.value(Key::ExecWorkers, value::workers);
    let exec_grace = resolver.value(Key::ExecGrace, value::exec_grace);
    let exec_mode = resolver.value(Key::ExecMode, value::exec_mode);
    let max_per_pod = resolver.value(Key::MaxPerPod, value::probes);
    let max_per_node = resolver.value(Key::MaxPerNode, value::probes);
    let max_rate_per_pod = resolver.value(Key::MaxRatePerPod, |text| count(text, MAX_RATES[0]));
    let max_rate_per_node = resolver.value(Key::MaxRatePerNode, |text| count(text, MAX_RATES[1]));
    let node_ip = resolver.value(Key::NodeIp, value::node_ip);
    let min_period = resolver.value(Key::MinPeriod, value::min_period);
    let max_timeout = resolver.value(Key::MaxTimeout, value::max_timeout);
    let allow_hosts = resolver.list(Key::AllowHosts, pattern::network);
    let annotations = resolver.list(Key::AnnotationNamespaces, namespace);
    let is_healthcheck = resolver.value(Key::HealthcheckEnabled, boolean);
    let healthchecks = resolver.list(Key::HealthcheckNamespaces, namespace);
    let is_observing = resolver.value(Key::ObservedEnabled, boolean);
    let history_attempts = resolver.value(Key::HistoryAttempts, value::history_attempts);
    let history_output = resolver.value(Key::HistoryOutputBytes, value::history_output);
    let attempts_file = resolver.value(Key::AttemptsFile, value::file);
    let attempts_size = resolver.value(Key::AttemptsMaxBytes, value::record_size);
    let trace_output = resolver.value(Key::TraceOutput, boolean);
    let trace_file = resolver.value(Key::TraceFile, value::file);
    let trace_size = resolver.value(Key::TraceMaxBytes, value::record_size);
    let redact = resolver.patterns(Key::TraceRedact);
    resolver.files_differ(&attempts_file, &trace_file);
    let is_acting = resolver.value(Key::ActEnabled, boolean);
    let is_dry_run = resolver.value(Key::ActDryRun, boolean);
    let act_namespaces = resolver.list(Key::ActNamespaces, namespace);
    let max_per_minute = resolver.value(Key::ActMaxPerMinute, |text| count(text, MAX_ACTS_PER_MINUTE));
    let max_concurrent = resolver.value(Key::ActMaxConcurrent, |text| count(text, MAX_CONCURRENT_ACTS));
    let act_grace = resolver.value(Key::ActGracePeriod, value::act_grace);
    let restart_on_exit = resolver.value(Key::ActRestartOnExit, value::restart_on_exit);
    let format = resolver.value(Key::LogFormat, value::log_format);
    let level = resolver.value(Key::LogLevel, value::log_level);
    resolver.sockets_differ(&listen, (Key::Runtime, &runtime));
    resolver.sockets_differ(&api_listen, (Key::Listen, &listen));
    resolver.sockets_differ(&api_listen, (Key::Runtime, &runtime));
    let exec_workers = resolver.exec_workers(&workers, exec_workers);
    let (rules, rule_origins): (Vec<_>, Vec<_>) = resolver.rules().into_iter().unzip();

    let Resolver { settings, mut errors, .. } = resolver;
    errors.extend(files.iter().enumerate().flat_map(|(rank, file)| file.errors(rank)));
    errors.sort_by(|a, b| a.origin.cmp(&b.origin));
    bound_errors(&mut errors);
    let resolved = || {
        Some(Config {
            listen: listen?.value,
            runtime: runtime?.value,
            state: Some(state?.value),
            api: ApiConfig {
                listen: api_listen?.value,
                group: group?.value,
                http: http?.value,
                page: page?.value,
            },
            prober: ProberConfig {
                workers: workers?.value,
                exec_workers: exec_workers?,
                exec_grace: exec_grace?.value,
                exec_mode: exec_mode?.value,
                max_per_pod: max_per_pod?.value,
                max_per_node: max_per_node?.value,
                max_rate_per_pod: max_rate_per_pod?.value,
                max_rate_per_node: max_rate_per_node?.value,
                node_ip: node_ip?.value,
            },
            policy: Policy {
                rules,
                annotations: annotations?,
                healthchecks: if is_healthcheck?.value { healthchecks? } else { Vec::new() },
                limits: Limits {
                    allow_hosts: allow_hosts?,
                    min_period: min_period?.value,
                    max_timeout: max_timeout?.value,
                },
                acting: ActPolicy {
                    is_enabled: is_acting?.value,
                    is_dry_run: is_dry_run?.value,
                    namespaces: act_namespaces?,
                },
            },
            act: ActConfig {
                max_per_minute: max_per_minute?.value,
                max_concurrent: max_concurrent?.value,
                grace: act_grace?.value,
                restart_on_exit: restart_on_exit?.value,
            },
            is_observing: is_observing?.value,
            history: HistoryConfig { attempts: history_attempts?.value, output_bytes: history_output?.value },
            attempts: RecordConfig { file: attempts_file?.value, max_bytes: attempts_size?.value },
            trace: TraceConfig {
                has_output: trace_output?.value,
                record: RecordConfig { file: trace_file?.value, max_bytes: trace_size?.value },
                redact: redact?,
            },
            log: LogConfig { format: format?.value, level: level?.value },
        })
    };
    match resolved() {
        Some(config) if errors.is_empty() => Ok(Loaded {
            config,
            files: files.iter().map(|file| file.path().to_owned()).collect(),
            settings,
            rules: rule_origins,
            notes: Vec::new(),
        }),
        Some(_) | None => Err(ConfigErrors(errors)),
    }
}

/// Replaces the errors beyond the bound with their number.
fn bound_errors(errors: &mut Vec<ConfigError>) {
    let omitted = errors.split_off(errors.len().min(MAX_ERRORS));
    if let Some(first) = omitted.first() {
        let reason = format!("{} more errors from here on", omitted.len());
        errors.push(ConfigError { origin: first.origin.clone(), reason });
    }
}

struct Resolver<'a> {
    files: &'a [Raw],
    overrides: &'a Overrides,
    settings: Vec<Setting>,
    errors: Vec<ConfigError>,
}

/// A valid value with its key, and where it was set.
struct SourcedValue<T> {
    key: Key,
    value: T,
    origin: Origin,
}

impl Resolver<'_> {
    fn value<T>(&mut self, key: Key, parse: impl Fn(&str) -> Result<T, String>) -> Option<SourcedValue<T>> {
        let (origin, texts) = self.texts(key);
        let (text, origin_of_text) = texts.into_iter().next().unwrap_or((String::new(), origin.clone()));
        match parse(&text) {
            Ok(value) => {
                self.settings.push(Setting { key, texts: vec![text], origin: origin.clone() });
                Some(SourcedValue { key, value, origin })
            }
            Err(reason) => {
                self.report(key, origin_of_text, &reason);
                None
            }
        }
    }

    /// A socket, always shown as a URL.
    fn socket(&mut self, key: Key) -> Option<SourcedValue<PathBuf>> {
        let socket = self.value(key, value::socket)?;
        if let Some(setting) = self.settings.last_mut() {
            setting.texts = vec![format!("unix://{}", socket.value.display())];
        }
        Some(socket)
    }

    /// A list; each invalid item is reported.
    fn list<T>(&mut self, key: Key, parse: impl Fn(&str) -> Result<T, String>) -> Option<Vec<T>> {
        let (origin, texts) = self.texts(key);
        if texts.len() > MAX_ITEMS {
            self.report(
                key,
                origin,
                &format!("too many items: {}, at most {MAX_ITEMS} are allowed", texts.len()),
            );
            return None;
        }
        let mut values = Vec::new();
        for (text, origin) in &texts {
            match parse(text) {
                Ok(value) => values.push(value),
                Err(reason) => self.report(key, origin.clone(), &reason),
            }
        }
        let is_good = values.len() == texts.len();
        let texts = texts.into_iter().map(|(text, _)| text).collect();
        self.settings.push(Setting { key, texts, origin });
        is_good.then_some(values)
    }

    /// Patterns of what is not shown.
    fn patterns(&mut self, key: Key) -> Option<Patterns> {
        let patterns = self.list(key, Pattern::parse)?;
        if patterns.len() > MAX_PATTERNS {
            let reason = format!("too many patterns: {}, at most {MAX_PATTERNS} are allowed", patterns.len());
            let (origin, _) = self.texts(key);
            self.report(key, origin, &reason);
            return None;
        }
        Some(patterns.into_iter().collect())
    }

    /// Two files of records would overwrite each other.
    fn files_differ(
        &mut self,
        attempts: &Option<SourcedValue<Option<PathBuf>>>,
        trace: &Option<SourcedValue<Option<PathBuf>>>,
    ) {
        let (Some(attempts), Some(trace)) = (attempts, trace) else { return };
        let (Some(one), Some(other)) = (&attempts.value, &trace.value) else { return };
        // A file that is full becomes the one before it.
        let before = |file: &PathBuf| PathBuf::from(format!("{}.1", file.display()));
        if one == other || *one == before(other) || *other == before(one) {
            let reason = format!(
                "{} would overwrite the file of {}: name another",
                other.display(),
                attempts.key.path()
            );
            self.report(trace.key, trace.origin.clone(), &reason);
        }
    }

    /// The value of a setting with the highest precedence, and where it was set: one text, or the items of a list.
    fn texts(&self, key: Key) -> (Origin, Vec<(String, Origin)>) {
        let split = |text: &str, origin: Origin| {
            let items: Vec<_> = match key.is_list() {
                false => vec![text],
                true => text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect(),
            };
            let items = items.into_iter().map(|item| (item.to_owned(), origin.clone())).collect();
            (origin, items)
        };
        if let Some((text, origin)) = self.overrides.get(key) {
            return split(text, origin);
        }
        let written = self.files.iter().enumerate().rev().find_map(|(rank, file)| {
            let setting = file.get(key)?;
            let texts = setting.texts.iter();
            let texts = texts.map(|text| (text.value.clone(), file.origin(rank, text.place)));
            Some((file.origin(rank, setting.place), texts.collect()))
        });
        written.unwrap_or_else(|| split(key.default(), Origin::Default))
    }

    /// The valid rules of all files, and their places. Their names are unique, and their number is bounded.
    fn rules(&mut self) -> Vec<(Rule, Origin)> {
        let mut names: HashMap<&str, Origin> = HashMap::new();
        let mut rules = Vec::new();
        let written = self.files.iter().enumerate();
        let written =
            written.flat_map(|(rank, file)| file.rules().iter().map(move |rule| (rank, file, rule)));
        for (number, (rank, file, written)) in written.enumerate() {
            if number == MAX_RULES {
                let reason = format!("{}: more than {MAX_RULES} rules in all: combine some", written.path);
                self.errors.push(ConfigError { origin: file.origin(rank, written.place), reason });
                break;
            }
            if let Some(name) = &written.name {
                let origin = file.origin(rank, name.place);
                match names.entry(&name.value) {
                    Entry::Vacant(free) => drop(free.insert(origin)),
                    Entry::Occupied(taken) => {
                        let (name, other) = (quoted(&name.value), taken.get());
                        let reason = format!(
                            "{}.name: Duplicate value: {name}: the rule at {other} has the same name",
                            written.path
                        );
                        self.errors.push(ConfigError { origin, reason });
                    }
                }
            }
            rules.extend(written.rule.clone().map(|rule| (rule, file.origin(rank, written.place))));
        }
        rules
    }

    /// Reports the one with the higher precedence, which is never the default.
    fn sockets_differ(
        &mut self,
        one: &Option<SourcedValue<PathBuf>>,
        (other_key, other): (Key, &Option<SourcedValue<PathBuf>>),
    ) {
        let (Some(one), Some(other)) = (one, other) else { return };
        if one.value != other.value {
            return;
        }
        let (blamed, against) = if one.origin >= other.origin { (one, other_key) } else { (other, one.key) };
        let path = one.value.display();
        let reason = match [one.key, other_key] {
            // The same words as when two paths turn out to be one file when it is bound.
            [Key::Listen, Key::Runtime] => {
                format!("{path} is the runtime's own socket: choose another one for criprobe")
            }
            _ => format!("{path} is already the socket of {}: use another path", against.path()),
        };
        self.report(blamed.key, blamed.origin.clone(), &reason);
    }

    /// An operator who lowers the number of workers need not know about the other setting.
    fn exec_workers(
        &mut self,
        workers: &Option<SourcedValue<NonZeroUsize>>,
        exec: Option<SourcedValue<NonZeroUsize>>,
    ) -> Option<NonZeroUsize> {
        let (limit, exec) = (workers.as_ref()?, exec?);
        let workers = limit.value;
        if exec.value > workers && exec.origin != Origin::Default {
            let reason = format!("must be at most {workers}, the number of {}", Key::Workers.path());
            self.report(exec.key, exec.origin, &reason);
        }
        let in_force = exec.value.min(workers);
        let setting = self.settings.iter_mut().find(|setting| setting.key == exec.key);
        if let Some(setting) = setting {
            setting.texts = vec![in_force.to_string()];
            if in_force < exec.value {
                setting.origin = Origin::Limited(Key::Workers.path(), Box::new(limit.origin.clone()));
            }
        }
        Some(in_force)
    }

    fn report(&mut self, key: Key, origin: Origin, reason: &str) {
        let reason = match origin {
            Origin::Environment(_) | Origin::Flag(_) => reason.to_owned(),
            Origin::Default | Origin::Limited(..) | Origin::File(..) => format!("{}: {reason}", key.path()),
        };
        self.errors.push(ConfigError { origin, reason });
    }
}
