//! The value of each setting: its text in; the value, or what is wrong with it and what to write, out. Pure.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    num::NonZeroUsize,
    ops::RangeInclusive,
    path::PathBuf,
    time::Duration,
};

use super::{
    Groups, LogFormat, LogLevel, PageAccess,
    pattern::{self, Of},
    socket,
};
use crate::{
    document::fault::quoted,
    duration::{self, GoDuration},
    glob::Glob,
    spec::{ExecModeSetting, acting::RestartOnExit, validate::MIN_PERIOD},
};

/// The maximum number of attempts in flight, of any kind; more are an error.
const MAX_WORKERS: usize = 1024;

/// The maximum value for a limit on probes; more is an error.
const MAX_PROBES: usize = 100_000;

/// The most attempts per second that a limit may allow, for a pod and for the node; more is an error.
pub(super) const MAX_RATES: [usize; 2] = [10_000, 100_000];

/// The minimum time for a slow runtime to answer after a timeout; less is an error.
const MIN_EXEC_GRACE: Duration = Duration::from_millis(100);

/// The maximum; more is an error, because a hung exec would hold its place as long.
const MAX_EXEC_GRACE: Duration = Duration::from_secs(600);

/// The maximum for `minPeriod`; more is an error.
const MAX_MIN_PERIOD: Duration = Duration::from_secs(3600);

/// 1 s: the minimum for `maxTimeout`, because Kubernetes' default must be possible. Less is an error.
const MIN_MAX_TIMEOUT: Duration = Duration::from_secs(1);

/// 1 h: the maximum for `maxTimeout`; more is an error, because an attempt that never ends would hold its place as
/// long.
const MAX_MAX_TIMEOUT: Duration = Duration::from_secs(3600);

/// 600 acts in a minute: ten a second are more than a runtime can stop. More are an error.
pub(super) const MAX_ACTS_PER_MINUTE: usize = 600;

/// 64 acts at once; more are an error, because each holds a call at the runtime for as long as its grace period.
pub(super) const MAX_CONCURRENT_ACTS: usize = 64;

/// 2 s: the shortest grace period, as the kubelet's. Less is an error.
const MIN_ACT_GRACE: Duration = Duration::from_secs(2);

/// 1 h: the longest; more is an error, because the act holds its place as long.
const MAX_ACT_GRACE: Duration = Duration::from_secs(3600);

/// 1,000 attempts of a probe: those of a short period for minutes, of a usual one for hours. More are an error: for each
/// attempt, what it said is looked for among all that are kept.
const HISTORY_ATTEMPTS: RangeInclusive<u16> = 1..=1_000;

/// 10 KiB of what an attempt said, which is all that is ever read of it. More is an error.
const HISTORY_OUTPUT: RangeInclusive<u16> = 0..=10_240;

/// 256 KiB to 1 TiB for a file of records and the one before it: half of less has no room for a long record. Outside is an
/// error.
const RECORD_SIZES: RangeInclusive<u64> = 256 << 10..=1 << 40;

pub(super) fn socket(text: &str) -> Result<PathBuf, String> {
    socket::parse(text).map_err(|error| error.to_string())
}

pub(super) fn folder(text: &str) -> Result<PathBuf, String> {
    if text.starts_with('/') && !text.contains('\0') {
        Ok(text.into())
    } else {
        Err(format!("{} is not an absolute path", quoted(text)))
    }
}

pub(super) fn group(text: &str, groups: Groups<'_>) -> Result<Option<u32>, String> {
    if text.contains(|c: char| c.is_control() || c.is_whitespace() || matches!(c, ':' | ',' | '/')) {
        return Err(format!("{} is not the name of a group", quoted(text)));
    }
    if text.is_empty() {
        return Ok(None);
    }
    let missing =
        || format!("the group {} does not exist on this machine: create it, or name another", quoted(text));
    groups(text)?.map_or_else(|| Err(missing()), |id| Ok(Some(id)))
}

/// A TCP address: `127.0.0.1:9090`, `[::1]:9090`, `localhost:9090`, or `:9090` for all addresses; none if it is empty. No
/// other name is looked up: what it means could change, and with it who can reach the API.
pub(super) fn http(text: &str) -> Result<Option<SocketAddr>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let named = |name, ip: IpAddr| {
        let port = text.strip_prefix(name)?.strip_prefix(':')?;
        port.bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| Some(SocketAddr::new(ip, port.parse().ok()?)))?
    };
    text.parse()
        .ok()
        .or_else(|| named("", Ipv6Addr::UNSPECIFIED.into()))
        .or_else(|| named("localhost", Ipv4Addr::LOCALHOST.into()))
        .map(Some)
        .ok_or_else(|| {
            format!(
                "{} is not a TCP address: write ADDRESS:PORT, such as 127.0.0.1:9090, [::1]:9090, localhost:9090, or \
                 :9090 for all addresses",
                quoted(text)
            )
        })
}

pub(super) fn page(text: &str) -> Result<PageAccess, String> {
    one_of(text, PageAccess::ALL, PageAccess::as_str)
}

pub(super) fn workers(text: &str) -> Result<NonZeroUsize, String> {
    count(text, MAX_WORKERS)
}

pub(super) fn probes(text: &str) -> Result<NonZeroUsize, String> {
    count(text, MAX_PROBES)
}

pub(super) fn count(text: &str, most: usize) -> Result<NonZeroUsize, String> {
    let number: i64 = text.parse().map_err(|_| format!("{} is not a whole number", quoted(text)))?;
    match usize::try_from(number).ok().and_then(NonZeroUsize::new) {
        None => Err(format!("must be at least 1, not {number}")),
        Some(number) if number.get() > most => Err(format!("must be at most {most}, not {number}")),
        Some(number) => Ok(number),
    }
}

pub(super) fn exec_grace(text: &str) -> Result<Duration, String> {
    time(text, MIN_EXEC_GRACE, MAX_EXEC_GRACE)
}

pub(super) fn exec_mode(text: &str) -> Result<ExecModeSetting, String> {
    one_of(text, ExecModeSetting::ALL, ExecModeSetting::as_str)
}

pub(super) fn act_grace(text: &str) -> Result<Duration, String> {
    time(text, MIN_ACT_GRACE, MAX_ACT_GRACE)
}

pub(super) fn history_attempts(text: &str) -> Result<u16, String> {
    within(text, HISTORY_ATTEMPTS)
}

pub(super) fn history_output(text: &str) -> Result<u16, String> {
    within(text, HISTORY_OUTPUT)
}

/// A whole number in a range.
fn within(text: &str, range: RangeInclusive<u16>) -> Result<u16, String> {
    let number: i64 = text.parse().map_err(|_| format!("{} is not a whole number", quoted(text)))?;
    u16::try_from(number)
        .ok()
        .filter(|number| range.contains(number))
        .ok_or_else(|| format!("must be {} to {}, not {number}", range.start(), range.end()))
}

/// The path of a file; none if it is empty.
pub(super) fn file(text: &str) -> Result<Option<PathBuf>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let path = folder(text)?;
    match path.file_name() {
        Some(_) if !text.ends_with(['/', '.']) => Ok(Some(path)),
        Some(_) | None => Err(format!("{} is not the path of a file", quoted(text))),
    }
}

pub(super) fn record_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match text[digits.len()..].trim_start() {
        "" | "B" => Some(1),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        _ => None,
    };
    let number: Option<u64> = digits.parse().ok();
    let Some((number, unit)) = number.zip(unit) else {
        return Err(format!("{} is not a size: write one such as 64MiB, with KiB, MiB or GiB", quoted(text)));
    };
    let size = number.saturating_mul(unit);
    if !RECORD_SIZES.contains(&size) {
        return Err(format!("must be 256KiB to 1024GiB, not {text}"));
    }
    Ok(size)
}

pub(super) fn restart_on_exit(text: &str) -> Result<RestartOnExit, String> {
    one_of(text, RestartOnExit::ALL, RestartOnExit::as_str)
}

/// One of these words.
fn one_of<T: Copy, const N: usize>(
    text: &str,
    all: [T; N],
    name: fn(T) -> &'static str,
) -> Result<T, String> {
    all.into_iter().find(|one| name(*one) == text).ok_or_else(|| {
        let names = all.map(name).join(", ");
        format!("{} is not one of {names}", quoted(text))
    })
}

pub(super) fn min_period(text: &str) -> Result<Duration, String> {
    time(text, MIN_PERIOD, MAX_MIN_PERIOD)
}

pub(super) fn max_timeout(text: &str) -> Result<Duration, String> {
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

pub(super) fn namespace(text: &str) -> Result<Glob, String> {
    pattern::parse(text, Of::Name)
}

pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        other => Err(format!("{} is neither true nor false", quoted(other))),
    }
}

pub(super) fn node_ip(text: &str) -> Result<Option<IpAddr>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let address: IpAddr = text.parse().map_err(|_| format!("{} is not an IP address", quoted(text)))?;
    if address.is_unspecified() || address.is_multicast() {
        return Err(format!("{address} is not the address of a node"));
    }
    Ok(Some(address))
}

pub(super) fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        other => Err(format!("{} is not a log format: one of text, json", quoted(other))),
    }
}

pub(super) fn log_level(text: &str) -> Result<LogLevel, String> {
    let all = [LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace];
    let names = all.map(LogLevel::as_str).join(", ");
    all.into_iter()
        .find(|level| level.as_str() == text)
        .ok_or_else(|| format!("{} is not a log level: one of {names}", quoted(text)))
}
