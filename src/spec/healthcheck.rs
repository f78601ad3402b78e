//! Reads the HEALTHCHECK of an image: its config, as in the registry, in; the liveness probe that it defines, why it
//! cannot be used, or nothing if there is none, out. Never fetches anything, never panics on input.
//!
//! Source: `Healthcheck` in the config of Docker's image format, and dockerd's interpretation of it. OCI's format has
//! no such field; Docker, BuildKit and Buildah write the same into both.

mod config;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::Value;

use config::{Image, Words, Written};

use super::{
    Handler, OnFailure, ProbeSpec, Reach, StartPeriod,
    plan::{Class, Healthcheck, Invalid, Outline},
    validate::{DOCKERS_TIMEOUT, MIN_PERIOD, MIN_TIMEOUT, MOST_WORDS},
};
use crate::{
    document::fault::{FieldError, joined, quoted},
    duration::GoDuration,
    ids::ProbeKind,
};

/// 1 MiB: the longest config that is read; usual ones hold some KiB. Of a longer one the HEALTHCHECK cannot be used.
pub(crate) const MAX_CONFIG: usize = 1 << 20;

/// 16 KiB: the longest command, all its words together, as in an annotation. A longer one cannot be used.
const MAX_COMMAND: usize = 16 << 10;

/// Docker's: from one attempt to the next.
const INTERVAL: Duration = Duration::from_secs(30);

/// Docker's: from one attempt to the next in the start period.
const START_INTERVAL: Duration = Duration::from_secs(5);

/// Docker's: failures in a row.
const RETRIES: u32 = 3;

/// What runs a `CMD-SHELL` where the image names no shell of its own.
const SHELL: [&str; 2] = ["/bin/sh", "-c"];

/// What Kubernetes' 32-bit seconds and thresholds hold; more is an error.
const MAX_INT32: i64 = i32::MAX as i64;

/// The HEALTHCHECK of the image with this config; `None` if it has none, or none any more (`NONE`).
pub fn read(config: &[u8]) -> Option<Healthcheck> {
    if config.len() > MAX_CONFIG {
        return Some(too_long());
    }
    let config = match serde_json::from_slice::<Image>(config) {
        Ok(image) => image.config?,
        Err(error) => {
            let place = format!("line {}, column {}", error.line(), error.column());
            return Some(unusable(format!("the image's config cannot be read ({place})")));
        }
    };
    match config.healthcheck? {
        Written::Object(fields) => {
            let mut reader = Reader { fields: &fields, errors: Vec::new() };
            let spec = reader.spec(config.shell.as_ref())?;
            Some(if reader.errors.is_empty() {
                Ok(Outline::shared(&Arc::new(spec), Class::Author))
            } else {
                unusable(joined(&reader.errors))
            })
        }
        other @ (Written::Scalar(_) | Written::Words(_) | Written::List) => {
            let wrong = FieldError::invalid(HEALTHCHECK.to_owned(), None, shown(&other), "must be an object");
            Some(unusable(wrong.to_string()))
        }
    }
}

/// The error for an image whose HEALTHCHECK is not kept, because those of all images need more than so many bytes.
pub(crate) fn too_many(most: u64) -> Healthcheck {
    let most = most >> 10;
    unusable(format!(
        "the HEALTHCHECKs of all images with containers take more than {most} KiB of memory, and this one is among the \
         largest"
    ))
}

/// The memory that a HEALTHCHECK takes, in bytes.
pub(crate) fn weight(healthcheck: &Healthcheck) -> u64 {
    let inner = match healthcheck {
        Ok(outline) => outline.need.bytes,
        Err(Invalid { reason, handler: _ }) => reason.capacity() as u64,
    };
    inner + size_of::<Healthcheck>() as u64
}

/// The error for an image whose config is longer than [`MAX_CONFIG`].
pub(crate) fn too_long() -> Healthcheck {
    unusable(format!("the image's config is longer than {MAX_CONFIG} bytes"))
}

/// How people know it.
const HEALTHCHECK: &str = "HEALTHCHECK";

fn unusable(reason: String) -> Healthcheck {
    Err(Invalid { reason, handler: Some("exec") }.shortened())
}

struct Reader<'a> {
    fields: &'a BTreeMap<&'static str, Written>,
    errors: Vec<FieldError>,
}

impl Reader<'_> {
    /// All of it, or `None` where nothing is to be run. What is wrong is among the errors.
    fn spec(&mut self, shell: Option<&Written>) -> Option<ProbeSpec> {
        let command = self.command(shell)?;
        let period = self.time("Interval", MIN_PERIOD).unwrap_or(INTERVAL);
        let timeout = self.time("Timeout", MIN_TIMEOUT).unwrap_or(DOCKERS_TIMEOUT);
        let length = self.time("StartPeriod", Duration::ZERO);
        let interval = self.time("StartInterval", MIN_PERIOD).unwrap_or(START_INTERVAL);
        let start = length.map(|length| StartPeriod { length, interval });
        Some(ProbeSpec {
            kind: ProbeKind::Liveness,
            handler: Handler::Exec { command },
            // Docker waits before its first attempt as before all others, and who wrote the image counts on that.
            initial_delay: start.map_or(period, |start| start.interval),
            timeout,
            period,
            success_threshold: 1,
            failure_threshold: self.count("Retries").unwrap_or(RETRIES),
            termination_grace: None,
            on_failure: OnFailure::Report,
            on_failure_command: None,
            start,
            timeout_before_cap: None,
            is_literal: true,
            exec_mode: None,
            reach: Reach::default(),
        })
    }

    /// What to run; `None` where nothing is. A wrong one is empty, and among the errors.
    fn command(&mut self, shell: Option<&Written>) -> Option<Vec<String>> {
        let test = match self.fields.get("Test") {
            None | Some(Written::Scalar(Value::Null)) => return None,
            Some(Written::Words(test)) => test,
            Some(other) => {
                self.wrong("Test", shown(other), "must be a list of strings");
                return Some(Vec::new());
            }
        };
        let (how, rest) = test.texts.split_first()?;
        let shell = match (how.as_str(), shell) {
            ("NONE", _) => return None,
            ("CMD", _) => Words::default(),
            ("CMD-SHELL", Some(Written::Words(own))) if own.count > 0 => own.clone(),
            ("CMD-SHELL", _) => SHELL.into_iter().map(str::to_owned).collect(),
            (other, _) => {
                self.wrong("Test[0]", quoted(other), "must be NONE, CMD or CMD-SHELL");
                return Some(Vec::new());
            }
        };
        if test.count == 1 {
            let path = format!("{HEALTHCHECK}.Test[1]");
            self.errors.push(FieldError::required(path, None, "there is no command"));
        }
        let count = shell.count + test.count - 1;
        if count > MOST_WORDS {
            self.wrong("Test", count, &format!("must have at most {MOST_WORDS} words"));
            return Some(Vec::new());
        }
        if shell.bytes + test.bytes - how.len() > MAX_COMMAND {
            let path = format!("{HEALTHCHECK}.Test");
            let detail = format!("the command is longer than {MAX_COMMAND} bytes");
            self.errors.push(FieldError::forbidden(path, None, &detail));
            return Some(Vec::new());
        }
        Some([shell.texts.as_slice(), rest].concat())
    }

    /// Nanoseconds; `None` where they are zero, which means the default, or wrong, which is among the errors.
    fn time(&mut self, name: &str, least: Duration) -> Option<Duration> {
        let nanoseconds = self.number(name, "must be a whole number of nanoseconds")?;
        let time = Duration::from_nanos(u64::try_from(nanoseconds).ok()?);
        let detail = match time {
            time if time < least => format!("must be at least {}", GoDuration(least)),
            time if time.as_secs() > i32::MAX as u64 => format!("must be at most {MAX_INT32} seconds"),
            time => return Some(time),
        };
        self.wrong(name, nanoseconds, &detail);
        None
    }

    fn count(&mut self, name: &str) -> Option<u32> {
        let count = self.number(name, "must be a whole number")?;
        if count > MAX_INT32 {
            self.wrong(name, count, &format!("must be less than or equal to {MAX_INT32}"));
        }
        u32::try_from(count).ok()
    }

    /// A number above zero; `None` where it is zero or missing, or wrong, which is among the errors.
    fn number(&mut self, name: &str, detail: &str) -> Option<i64> {
        let value = self.fields.get(name)?;
        let number = match value {
            Written::Scalar(Value::Null) => return None,
            Written::Scalar(value) => value.as_i64(),
            Written::Words(_) | Written::List | Written::Object(_) => None,
        };
        match number {
            Some(0) => None,
            Some(number @ 1..) => Some(number),
            Some(number) => {
                self.wrong(name, number, "must be greater than or equal to 0");
                None
            }
            None => {
                self.wrong(name, shown(value), detail);
                None
            }
        }
    }

    fn wrong(&mut self, name: &str, value: impl std::fmt::Display, detail: &str) {
        self.errors.push(FieldError::invalid(format!("{HEALTHCHECK}.{name}"), None, value, detail));
    }
}

/// A value as it may be shown: a long or nested one in a word.
fn shown(value: &Written) -> String {
    match value {
        Written::Scalar(Value::String(text)) => quoted(text),
        Written::Scalar(other) => other.to_string(),
        Written::Words(_) | Written::List => "a list".to_owned(),
        Written::Object(_) => "an object".to_owned(),
    }
}

#[cfg(test)]
mod tests;
