//! Chooses each setting's value by rank and checks it: what was written in, a valid [`Config`] or every error out.
//! Never does IO.

use std::{
    collections::{HashMap, hash_map::Entry},
    net::IpAddr,
    num::NonZeroUsize,
    path::PathBuf,
    time::Duration,
};

use super::{
    ApiConfig, Config, ConfigError, ConfigErrors, Groups, Loaded, LogConfig, LogFormat, LogLevel, Origin,
    Overrides, ProberConfig, Setting,
    key::Key,
    pattern::{self, Of},
    raw::Raw,
    rules::MAX_RULES,
    socket,
};
use crate::{
    document::fault::quoted,
    duration::{self, GoDuration},
    glob::Glob,
    spec::{
        policy::{Limits, Policy},
        rule::Rule,
        validate::MIN_PERIOD,
    },
};

/// The most attempts that may be in flight, of any sort; more are an error.
const MAX_WORKERS: usize = 1024;

/// The most probes that a limit may let in; more is an error.
const MAX_PROBES: usize = 100_000;

/// The most attempts per second that a limit may let in, of a pod and of the node; more is an error.
const MAX_RATES: [usize; 2] = [10_000, 100_000];

/// The least that a slow runtime must be granted to answer past a timeout; less is an error.
const MIN_EXEC_GRACE: Duration = Duration::from_millis(100);

/// The most; more is an error, since a hung exec would hold its slot as long.
const MAX_EXEC_GRACE: Duration = Duration::from_secs(600);

/// The longest period that others may be held to; more is an error.
const MAX_MIN_PERIOD: Duration = Duration::from_secs(3600);

/// 1 s: the least that the longest timeout of others may be: Kubernetes' default must be possible. Less is an error.
const MIN_MAX_TIMEOUT: Duration = Duration::from_secs(1);

/// 1 h: the most that it may be; more is an error, since an attempt that never ends would hold its place as long.
const MAX_MAX_TIMEOUT: Duration = Duration::from_secs(3600);

/// 100 errors are told; more are counted.
const MAX_ERRORS: usize = 100;

/// 1,000 items of a list; more are an error.
const MAX_ITEMS: usize = 1_000;

/// Resolves files with what stands above them; of these, a later one stands over an earlier one. Rules keep the order of
/// the files, and within a file their own. What a file says is checked for its form even where it is outranked.
///
/// # Errors
/// Everything that is wrong at once.
pub fn resolve(files: &[Raw], overrides: &Overrides, groups: Groups<'_>) -> Result<Loaded, ConfigErrors> {
    let mut resolver = Resolver { files, overrides, settings: Vec::new(), errors: Vec::new() };
    let listen = resolver.socket(Key::Listen);
    let runtime = resolver.socket(Key::Runtime);
    let state = resolver.value(Key::State, folder);
    let api_listen = resolver.socket(Key::ApiListen);
    let group = resolver.value(Key::ApiGroup, |name| group(name, groups));
    let workers = resolver.value(Key::Workers, workers);
    let exec_workers = resolver.value(Key::ExecWorkers, self::workers);
    let exec_grace = resolver.value(Key::ExecGrace, exec_grace);
    let max_per_pod = resolver.value(Key::MaxPerPod, probes);
    let max_per_node = resolver.value(Key::MaxPerNode, probes);
    let max_rate_per_pod = resolver.value(Key::MaxRatePerPod, |text| count(text, MAX_RATES[0]));
    let max_rate_per_node = resolver.value(Key::MaxRatePerNode, |text| count(text, MAX_RATES[1]));
    let node_ip = resolver.value(Key::NodeIp, node_ip);
    let min_period = resolver.value(Key::MinPeriod, min_period);
    let max_timeout = resolver.value(Key::MaxTimeout, max_timeout);
    let allow_hosts = resolver.list(Key::AllowHosts, pattern::network);
    let annotations = resolver.list(Key::AnnotationNamespaces, namespace);
    let is_healthcheck = resolver.value(Key::HealthcheckEnabled, boolean);
    let healthchecks = resolver.list(Key::HealthcheckNamespaces, namespace);
    let is_observing = resolver.value(Key::ObservedEnabled, boolean);
    let format = resolver.value(Key::LogFormat, log_format);
    let level = resolver.value(Key::LogLevel, log_level);
    resolver.sockets_differ(&listen, (Key::Runtime, &runtime));
    resolver.sockets_differ(&api_listen, (Key::Listen, &listen));
    resolver.sockets_differ(&api_listen, (Key::Runtime, &runtime));
    let exec_workers = resolver.exec_workers(&workers, exec_workers);
    let (rules, rule_origins): (Vec<_>, Vec<_>) = resolver.rules().into_iter().unzip();

    let Resolver { settings, mut errors, .. } = resolver;
    errors.extend(files.iter().enumerate().flat_map(|(rank, file)| file.errors(rank)));
    errors.sort_by(|a, b| a.origin.cmp(&b.origin));
    told_up_to_a_bound(&mut errors);
    let resolved = || {
        Some(Config {
            listen: listen?.value,
            runtime: runtime?.value,
            state: Some(state?.value),
            api: ApiConfig { listen: api_listen?.value, group: group?.value },
            prober: ProberConfig {
                workers: workers?.value,
                exec_workers: exec_workers?,
                exec_grace: exec_grace?.value,
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
            },
            is_observing: is_observing?.value,
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

/// Counts what goes beyond the bound.
fn told_up_to_a_bound(errors: &mut Vec<ConfigError>) {
    let untold = errors.split_off(errors.len().min(MAX_ERRORS));
    if let Some(first) = untold.first() {
        let reason = format!("{} more errors from here on", untold.len());
        errors.push(ConfigError { origin: first.origin.clone(), reason });
    }
}

struct Resolver<'a> {
    files: &'a [Raw],
    overrides: &'a Overrides,
    settings: Vec<Setting>,
    errors: Vec<ConfigError>,
}

/// A good value, and who said it.
struct Said<T> {
    key: Key,
    value: T,
    origin: Origin,
}

impl Resolver<'_> {
    fn value<T>(&mut self, key: Key, parse: impl Fn(&str) -> Result<T, String>) -> Option<Said<T>> {
        let (origin, texts) = self.said(key);
        let (text, origin_of_text) = texts.into_iter().next().unwrap_or((String::new(), origin.clone()));
        match parse(&text) {
            Ok(value) => {
                self.settings.push(Setting { key, texts: vec![text], origin: origin.clone() });
                Some(Said { key, value, origin })
            }
            Err(reason) => {
                self.report(key, origin_of_text, &reason);
                None
            }
        }
    }

    /// A socket, shown as a URL however it was written.
    fn socket(&mut self, key: Key) -> Option<Said<PathBuf>> {
        let said = self.value(key, socket)?;
        if let Some(setting) = self.settings.last_mut() {
            setting.texts = vec![format!("unix://{}", said.value.display())];
        }
        Some(said)
    }

    /// A list; each item that is wrong is reported.
    fn list<T>(&mut self, key: Key, parse: impl Fn(&str) -> Result<T, String>) -> Option<Vec<T>> {
        let (origin, texts) = self.said(key);
        if texts.len() > MAX_ITEMS {
            self.report(key, origin, &format!("{} items are too many: at most {MAX_ITEMS}", texts.len()));
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

    /// What the mightiest says of a setting, and who that is: one text, or the items of a list.
    fn said(&self, key: Key) -> (Origin, Vec<(String, Origin)>) {
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

    /// The good rules of all files, and where they stand. No two have one name, and there are not too many.
    fn rules(&mut self) -> Vec<(Rule, Origin)> {
        let mut names: HashMap<&str, Origin> = HashMap::new();
        let mut rules = Vec::new();
        let written = self.files.iter().enumerate();
        let written =
            written.flat_map(|(rank, file)| file.rules().iter().map(move |rule| (rank, file, rule)));
        for (number, (rank, file, written)) in written.enumerate() {
            if number == MAX_RULES {
                let reason =
                    format!("{}: more than {MAX_RULES} rules in all: put some together", written.path);
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
                            "{}.name: Duplicate value: {name}: the rule at {other} has this name",
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

    /// Blames the mightier of the two, which is never the default.
    fn sockets_differ(
        &mut self,
        one: &Option<Said<PathBuf>>,
        (other_key, other): (Key, &Option<Said<PathBuf>>),
    ) {
        let (Some(one), Some(other)) = (one, other) else { return };
        if one.value != other.value {
            return;
        }
        let (blamed, against) = if one.origin >= other.origin { (one, other_key) } else { (other, one.key) };
        let path = one.value.display();
        let reason = match [one.key, other_key] {
            // The same words as where two paths turn out to be one file when it is bound.
            [Key::Listen, Key::Runtime] => {
                format!("{path} is the runtime's own socket: criprobe needs a socket of its own")
            }
            _ => format!("{path} is the socket of {} already: name another", against.path()),
        };
        self.report(blamed.key, blamed.origin.clone(), &reason);
    }

    /// Nobody who lowers the number of workers must know of the other one.
    fn exec_workers(
        &mut self,
        workers: &Option<Said<NonZeroUsize>>,
        exec: Option<Said<NonZeroUsize>>,
    ) -> Option<NonZeroUsize> {
        let (workers, exec) = (workers.as_ref()?.value, exec?);
        if exec.value > workers && exec.origin != Origin::Default {
            let reason = format!("must be at most {workers}, the number of {}", Key::Workers.path());
            self.report(exec.key, exec.origin, &reason);
        }
        let in_force = exec.value.min(workers);
        let setting = self.settings.iter_mut().find(|setting| setting.key == exec.key);
        setting.into_iter().for_each(|setting| setting.texts = vec![in_force.to_string()]);
        Some(in_force)
    }

    fn report(&mut self, key: Key, origin: Origin, reason: &str) {
        let reason = match origin {
            Origin::Environment(_) | Origin::Flag(_) => reason.to_owned(),
            Origin::Default | Origin::File(..) => format!("{}: {reason}", key.path()),
        };
        self.errors.push(ConfigError { origin, reason });
    }
}

fn socket(text: &str) -> Result<PathBuf, String> {
    socket::parse(text).map_err(|error| error.to_string())
}

fn folder(text: &str) -> Result<PathBuf, String> {
    if text.starts_with('/') && !text.contains('\0') {
        Ok(text.into())
    } else {
        Err(format!("{} is not an absolute path", quoted(text)))
    }
}

fn group(text: &str, groups: Groups<'_>) -> Result<Option<u32>, String> {
    if text.contains(|c: char| c.is_control() || c.is_whitespace() || matches!(c, ':' | ',' | '/')) {
        return Err(format!("{} is not the name of a group", quoted(text)));
    }
    if text.is_empty() {
        return Ok(None);
    }
    let missing = || format!("there is no group {} on this machine: make it, or name another", quoted(text));
    groups(text)?.map_or_else(|| Err(missing()), |id| Ok(Some(id)))
}

fn workers(text: &str) -> Result<NonZeroUsize, String> {
    count(text, MAX_WORKERS)
}

fn probes(text: &str) -> Result<NonZeroUsize, String> {
    count(text, MAX_PROBES)
}

fn count(text: &str, most: usize) -> Result<NonZeroUsize, String> {
    let number: i64 = text.parse().map_err(|_| format!("{} is not a whole number", quoted(text)))?;
    match usize::try_from(number).ok().and_then(NonZeroUsize::new) {
        None => Err(format!("must be at least 1, not {number}")),
        Some(number) if number.get() > most => Err(format!("must be at most {most}, not {number}")),
        Some(number) => Ok(number),
    }
}

fn exec_grace(text: &str) -> Result<Duration, String> {
    time(text, MIN_EXEC_GRACE, MAX_EXEC_GRACE)
}

fn min_period(text: &str) -> Result<Duration, String> {
    time(text, MIN_PERIOD, MAX_MIN_PERIOD)
}

fn max_timeout(text: &str) -> Result<Duration, String> {
    time(text, MIN_MAX_TIMEOUT, MAX_MAX_TIMEOUT)
}

fn time(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let time = duration::parse(text).map_err(|error| format!("{}: {error}", quoted(text)))?;
    if time < least {
        return Err(format!("must be at least {}, not {}", GoDuration(least), GoDuration(time)));
    }
    if time > most {
        return Err(format!("must be at most {}, not {}", GoDuration(most), GoDuration(time)));
    }
    Ok(time)
}

fn namespace(text: &str) -> Result<Glob, String> {
    pattern::parse(text, Of::Name)
}

fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        other => Err(format!("{} is neither true nor false", quoted(other))),
    }
}

fn node_ip(text: &str) -> Result<Option<IpAddr>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let address: IpAddr = text.parse().map_err(|_| format!("{} is not an IP address", quoted(text)))?;
    if address.is_unspecified() || address.is_multicast() {
        return Err(format!("{address} is not the address of a node"));
    }
    Ok(Some(address))
}

fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        other => Err(format!("{} is not a log format: one of text, json", quoted(other))),
    }
}

fn log_level(text: &str) -> Result<LogLevel, String> {
    let all = [LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace];
    let names = all.map(LogLevel::as_str).join(", ");
    all.into_iter()
        .find(|level| level.as_str() == text)
        .ok_or_else(|| format!("{} is not a log level: one of {names}", quoted(text)))
}
