//! Turns a probe as written into a [`ProbeSpec`], or reports all errors: Kubernetes' defaults, rules, paths and words,
//! and the rules of our own keys. Never stops at the first error.
//!
//! Source of the rules: the Kubernetes API's defaulting and validation of `Probe`, as of 1.36.

mod handler;

pub(super) use handler::MOST_WORDS;

use std::{fmt, sync::Arc, time::Duration};

use super::{
    ExecMode, FailureCommand, OnFailure, ProbeSpec, Reach,
    raw::{RawAct, RawHealthcheck, RawProbe},
    rule::{HealthcheckAct, HealthcheckRule},
};
use crate::{
    document::{
        Place,
        fault::{FieldError, quoted},
        fields::Field,
    },
    duration,
    ids::ProbeKind,
};

/// The shortest period; a shorter one is an error.
pub const MIN_PERIOD: Duration = Duration::from_millis(100);

/// 60 s: the longest timeout that others than the operator may ask for, unless the operator decides otherwise; a longer one
/// is refused.
pub(crate) const MAX_TIMEOUT: Duration = Duration::from_secs(60);

/// 30 s, Docker's: the timeout of a HEALTHCHECK that names none.
pub(super) const DOCKERS_TIMEOUT: Duration = Duration::from_secs(30);

/// The shortest timeout; a shorter one is an error.
pub const MIN_TIMEOUT: Duration = Duration::from_millis(1);

/// Why readiness takes no key of an act.
const READINESS_REPORTS: &str = "may not be set for readiness probes: they only report";

/// What Kubernetes' 32-bit seconds and thresholds hold; more is an error.
const MAX_INT32: i64 = i32::MAX as i64;

/// Checks a probe and fills in the defaults; `path` is where it is, empty for an annotation.
///
/// # Errors
/// `errors`, which is what reading it has found, and every rule that it breaks, in Kubernetes' order: handler, times,
/// thresholds, grace period.
pub(crate) fn validate(
    raw: &RawProbe,
    kind: ProbeKind,
    path: &str,
    errors: Vec<FieldError>,
) -> Result<ProbeSpec, Vec<FieldError>> {
    let mut check = Check { path, place: raw.place, errors };
    let handler = check.handler(raw);
    let initial_delay = check.time(&INITIAL_DELAY, &raw.initial_delay_seconds, &raw.initial_delay);
    let timeout = check.time(&TIMEOUT, &raw.timeout_seconds, &raw.timeout);
    let period = check.time(&PERIOD, &raw.period_seconds, &raw.period);
    let success_threshold = check.count("successThreshold", &raw.success_threshold, 1);
    let failure_threshold = check.count("failureThreshold", &raw.failure_threshold, 3);
    let termination_grace = check.termination_grace(kind, &raw.termination_grace_period_seconds);
    check.one_success(kind, &raw.success_threshold);
    let (on_failure, on_failure_command) = check.act(kind, &raw.act);
    let exec_mode = check.exec_mode(raw.handler(), &raw.exec_mode);
    let Check { errors, .. } = check;
    match handler {
        Some(handler) if errors.is_empty() => Ok(ProbeSpec {
            kind,
            handler,
            initial_delay,
            timeout,
            period,
            success_threshold,
            failure_threshold,
            termination_grace,
            on_failure,
            on_failure_command,
            start: None,
            timeout_before_cap: None,
            is_literal: false,
            exec_mode,
            reach: Reach::default(),
        }),
        _ => Err(errors),
    }
}

/// Checks what a rule says of HEALTHCHECKs: what their verdict of failure does, how their commands are run, or both;
/// `path` is where that is. Every rule that it breaks is added to `errors`.
pub(crate) fn validate_healthcheck(
    raw: &RawHealthcheck,
    path: &str,
    errors: &mut Vec<FieldError>,
) -> Option<HealthcheckRule> {
    let RawHealthcheck { place, act, termination_grace_period_seconds: grace, exec_mode } = raw;
    let before = errors.len();
    let mut check = Check { path, place: *place, errors: std::mem::take(errors) };
    let says_act = !act.on_failure.is_absent();
    let termination_grace = check.termination_grace(ProbeKind::Liveness, grace);
    if !says_act && (exec_mode.is_absent() || !grace.is_absent()) {
        let detail = "what a verdict of failure does: stop, kill, restart or report";
        check.errors.push(FieldError::required(check.at("onFailure"), *place, detail));
    }
    let (on_failure, on_failure_command) = check.act(ProbeKind::Liveness, act);
    let act =
        says_act.then(|| Arc::new(HealthcheckAct { on_failure, on_failure_command, termination_grace }));
    let exec_mode = check.exec_mode(Some("exec"), exec_mode);
    *errors = check.errors;
    (errors.len() == before).then_some(HealthcheckRule { act, exec_mode })
}

/// Checks the mode alone, of a probe whose handler is not known yet. Every rule that it breaks is added to `errors`.
pub(crate) fn validate_exec_mode(field: &Field<String>, errors: &mut Vec<FieldError>) -> Option<ExecMode> {
    let mut check = Check { path: "", place: None, errors: std::mem::take(errors) };
    let mode = check.exec_mode(None, field);
    *errors = check.errors;
    mode
}

/// Why a probe with this handler takes no `execMode`; `None` where it does.
pub(crate) fn exec_mode_refusal(handler: &str) -> Option<String> {
    (handler != "exec").then(|| format!("may not be set for {handler} probes: they run no command"))
}

/// Checks the timeout alone; `None` if there is none, or Kubernetes' zero.
/// Every rule that it breaks is added to `errors`.
pub(crate) fn validate_timeout(raw: &RawProbe, path: &str, errors: &mut Vec<FieldError>) -> Option<Duration> {
    let mut check = Check { path, place: raw.place, errors: std::mem::take(errors) };
    let timeout = check.time(&TIMEOUT, &raw.timeout_seconds, &raw.timeout);
    *errors = check.errors;
    let is_given = raw.timeout.value().is_some() || raw.timeout_seconds.value().is_some_and(|s| *s != 0);
    is_given.then_some(timeout)
}

/// A time that may be written in whole seconds, as Kubernetes has it, or as a duration of ours.
struct Time {
    seconds: &'static str,
    duration: &'static str,
    /// For nothing, and for zero seconds.
    default: Duration,
    /// For our key; Kubernetes' zero is the default.
    least: Duration,
}

const INITIAL_DELAY: Time = Time {
    seconds: "initialDelaySeconds",
    duration: "initialDelay",
    default: Duration::ZERO,
    least: Duration::ZERO,
};
const TIMEOUT: Time = Time {
    seconds: "timeoutSeconds",
    duration: "timeout",
    default: Duration::from_secs(1),
    least: MIN_TIMEOUT,
};
/// 10 s: enough for a thread dump, and no longer than the usual grace period.
const COMMAND_TIMEOUT: Time = Time {
    seconds: "onFailureCommand.timeoutSeconds",
    duration: "onFailureCommand.timeout",
    default: Duration::from_secs(10),
    least: MIN_TIMEOUT,
};
const PERIOD: Time = Time {
    seconds: "periodSeconds",
    duration: "period",
    default: Duration::from_secs(10),
    least: MIN_PERIOD,
};

struct Check<'a> {
    path: &'a str,
    place: Option<Place>,
    errors: Vec<FieldError>,
}

impl Check<'_> {
    fn time(&mut self, time: &Time, seconds: &Field<i64>, duration: &Field<String>) -> Duration {
        if !seconds.is_absent() && !duration.is_absent() {
            let detail = format!("may not be set together with {}", time.seconds);
            self.errors.push(FieldError::forbidden(self.at(time.duration), duration.place(), &detail));
        }
        self.in_bounds(time.seconds, seconds);
        let written = match duration.value() {
            Some(text) => self.duration(time, text, duration.place()),
            None => seconds
                .value()
                .and_then(|s| u64::try_from(*s).ok())
                .filter(|s| *s > 0)
                .map(Duration::from_secs),
        };
        written.unwrap_or(time.default)
    }

    fn duration(&mut self, time: &Time, text: &str, place: Option<Place>) -> Option<Duration> {
        let detail = match duration::parse(text) {
            Err(error) => error.to_string(),
            Ok(value) if value < time.least => {
                format!("must be at least {}", duration::GoDuration(time.least))
            }
            Ok(value) if value.as_secs() > i32::MAX as u64 => {
                format!("must be at most {MAX_INT32} seconds")
            }
            Ok(value) => return Some(value),
        };
        self.invalid(time.duration, place, quoted(text), &detail);
        None
    }

    /// A threshold; zero is the default. What is out of bounds is reported, and never used.
    fn count(&mut self, name: &str, field: &Field<i64>, default: u32) -> u32 {
        self.in_bounds(name, field);
        field
            .value()
            .and_then(|value| u32::try_from(*value).ok())
            .filter(|value| *value > 0)
            .unwrap_or(default)
    }

    fn in_bounds(&mut self, name: &str, field: &Field<i64>) {
        match field.value() {
            Some(value) if *value < 0 => {
                self.invalid(name, field.place(), value, "must be greater than or equal to 0");
            }
            Some(value) if *value > MAX_INT32 => {
                self.invalid(name, field.place(), value, "must be less than or equal to 2147483647");
            }
            Some(_) | None => {}
        }
    }

    fn one_success(&mut self, kind: ProbeKind, field: &Field<i64>) {
        match (kind, field.value()) {
            (ProbeKind::Liveness | ProbeKind::Startup, Some(value)) if !matches!(value, 0 | 1) => {
                self.invalid("successThreshold", field.place(), value, "must be 1");
            }
            (ProbeKind::Liveness | ProbeKind::Startup | ProbeKind::Readiness, _) => {}
        }
    }

    fn termination_grace(&mut self, kind: ProbeKind, field: &Field<i64>) -> Option<Duration> {
        let name = "terminationGracePeriodSeconds";
        let value = *field.value()?;
        if value <= 0 {
            self.invalid(name, field.place(), value, "must be greater than 0");
        }
        if kind == ProbeKind::Readiness {
            self.invalid(name, field.place(), value, "must not be set for readinessProbes");
        }
        u64::try_from(value).ok().map(Duration::from_secs)
    }

    /// What a verdict of failure asks for, and what runs before.
    fn act(&mut self, kind: ProbeKind, raw: &RawAct) -> (OnFailure, Option<FailureCommand>) {
        let on_failure = self.on_failure(kind, &raw.on_failure);
        let command = self.failure_command(kind, on_failure, raw);
        (on_failure.unwrap_or_default(), command)
    }

    /// `None` where it is wrong, which has been reported.
    fn on_failure(&mut self, kind: ProbeKind, field: &Field<String>) -> Option<OnFailure> {
        let text = match field {
            Field::Absent => return Some(OnFailure::default()),
            Field::Bad => return None,
            Field::Given(written) => &written.value,
        };
        let path = self.at("onFailure");
        if kind == ProbeKind::Readiness {
            self.errors.push(FieldError::forbidden(path, field.place(), READINESS_REPORTS));
            return None;
        }
        let all = OnFailure::ALL;
        let known = all.into_iter().find(|one| one.as_str() == text);
        if known.is_none() {
            let supported = all.map(OnFailure::as_str);
            self.errors.push(FieldError::unsupported(path, field.place(), text, &supported));
        }
        known
    }

    /// `on_failure` is `None` where it is wrong.
    fn failure_command(
        &mut self,
        kind: ProbeKind,
        on_failure: Option<OnFailure>,
        raw: &RawAct,
    ) -> Option<FailureCommand> {
        let field = &raw.on_failure_command;
        let written = field.value()?;
        let forbidden = match (kind, on_failure) {
            (ProbeKind::Readiness, _) => Some(READINESS_REPORTS),
            (_, Some(OnFailure::Report)) => {
                Some("runs only before an act: set onFailure to stop, kill or restart, or remove the command")
            }
            (_, None | Some(OnFailure::Stop | OnFailure::Kill | OnFailure::Restart)) => None,
        };
        if let Some(detail) = forbidden {
            let path = self.at("onFailureCommand");
            self.errors.push(FieldError::forbidden(path, field.place(), detail));
            return None;
        }
        let command = self.command("onFailureCommand.command", &written.command, field.place());
        let timeout = self.time(&COMMAND_TIMEOUT, &written.timeout_seconds, &written.timeout);
        Some(FailureCommand { command: command?, timeout })
    }

    /// `None` where none is written, or it is wrong, which has been reported.
    fn exec_mode(&mut self, handler: Option<&str>, field: &Field<String>) -> Option<ExecMode> {
        let text = field.value()?;
        let path = self.at("execMode");
        if let Some(detail) = handler.and_then(exec_mode_refusal) {
            self.errors.push(FieldError::forbidden(path, field.place(), &detail));
            return None;
        }
        let all = ExecMode::ALL;
        let known = all.into_iter().find(|one| one.as_str() == text);
        if known.is_none() {
            let supported = all.map(ExecMode::as_str);
            self.errors.push(FieldError::unsupported(path, field.place(), text, &supported));
        }
        known
    }

    fn invalid(&mut self, name: &str, place: Option<Place>, value: impl fmt::Display, detail: &str) {
        self.errors.push(FieldError::invalid(self.at(name), place, value, detail));
    }

    fn at(&self, name: &str) -> String {
        if self.path.is_empty() { name.into() } else { format!("{}.{name}", self.path) }
    }
}

#[cfg(test)]
mod tests;
