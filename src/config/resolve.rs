//! Chooses each setting's value by rank and checks it: what was written in, a valid [`Config`] or every error out.
//! Never does IO.

use std::{net::IpAddr, num::NonZeroUsize, path::PathBuf, time::Duration};

use super::{
    ApiConfig, Config, ConfigError, ConfigErrors, Groups, LogConfig, LogFormat, LogLevel, Origin, Overrides,
    ProberConfig, key::Key, raw::Raw, socket,
};
use crate::{
    document::fault::quoted,
    duration::{self, GoDuration},
};

/// The most attempts that may be in flight, of any sort; more are an error.
const MAX_WORKERS: usize = 1024;

/// The most probes that a limit may let in; more is an error.
const MAX_PROBES: usize = 100_000;

/// The least that a slow runtime must be granted to answer past a timeout; less is an error.
const MIN_EXEC_GRACE: Duration = Duration::from_millis(100);

/// The most; more is an error, since a hung exec would hold its slot as long.
const MAX_EXEC_GRACE: Duration = Duration::from_secs(600);

/// Resolves a file with what stands above it. What a file says is checked for its form even where it is outranked.
///
/// # Errors
/// Everything that is wrong at once.
pub fn resolve(raw: Raw, overrides: &Overrides, groups: Groups<'_>) -> Result<Config, ConfigErrors> {
    let mut resolver = Resolver { raw: &raw, overrides, errors: Vec::new() };
    let listen = resolver.value(Key::Listen, socket);
    let runtime = resolver.value(Key::Runtime, socket);
    let state = resolver.value(Key::State, folder);
    let api_listen = resolver.value(Key::ApiListen, socket);
    let group = resolver.value(Key::ApiGroup, |name| group(name, groups));
    let workers = resolver.value(Key::Workers, workers);
    let exec_workers = resolver.value(Key::ExecWorkers, self::workers);
    let exec_grace = resolver.value(Key::ExecGrace, exec_grace);
    let max_per_pod = resolver.value(Key::MaxPerPod, probes);
    let max_per_node = resolver.value(Key::MaxPerNode, probes);
    let node_ip = resolver.value(Key::NodeIp, node_ip);
    let format = resolver.value(Key::LogFormat, log_format);
    let level = resolver.value(Key::LogLevel, log_level);
    resolver.sockets_differ(&listen, (Key::Runtime, &runtime));
    resolver.sockets_differ(&api_listen, (Key::Listen, &listen));
    resolver.sockets_differ(&api_listen, (Key::Runtime, &runtime));
    let exec_workers = resolver.exec_workers(&workers, exec_workers);

    let Resolver { errors: mut faults, .. } = resolver;
    let mut errors = raw.into_errors();
    errors.append(&mut faults);
    errors.sort_by(|a, b| a.origin.cmp(&b.origin));
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
                node_ip: node_ip?.value,
            },
            log: LogConfig { format: format?.value, level: level?.value },
        })
    };
    match resolved() {
        Some(config) if errors.is_empty() => Ok(config),
        Some(_) | None => Err(ConfigErrors(errors)),
    }
}

struct Resolver<'a> {
    raw: &'a Raw,
    overrides: &'a Overrides,
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
        let said = self.overrides.get(key).or_else(|| self.raw.get(key));
        let (text, origin) = said.unwrap_or((key.default(), Origin::Default));
        match parse(text) {
            Ok(value) => Some(Said { key, value, origin }),
            Err(reason) => {
                self.report(key, origin, &reason);
                None
            }
        }
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
        Some(exec.value.min(workers))
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
    let grace = duration::parse(text).map_err(|error| format!("{}: {error}", quoted(text)))?;
    if grace < MIN_EXEC_GRACE {
        return Err(format!("must be at least {}, not {}", GoDuration(MIN_EXEC_GRACE), GoDuration(grace)));
    }
    if grace > MAX_EXEC_GRACE {
        return Err(format!("must be at most {}, not {}", GoDuration(MAX_EXEC_GRACE), GoDuration(grace)));
    }
    Ok(grace)
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
