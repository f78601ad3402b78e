//! A definition as a number: the same one over restarts and versions for the same definition. What a definition says,
//! secrets in its command among it, cannot be read from it. Pure.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{FailureCommand, ProbeSpec, StartPeriod};

/// Shows whether a probe was defined as it is now. Written as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition(u64);

impl Definition {
    /// That of a definition: FNV-1a, 64 bits, over all that makes it another probe, see [`ProbeSpec::is_same_probe`]. A key
    /// that Kubernetes or we add later must change nothing where it is not used, or each probe starts again with that
    /// version.
    pub(crate) fn of(spec: &ProbeSpec) -> Self {
        let ProbeSpec {
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
            start,
            is_literal,
            // What its source may ask for, not what it is.
            timeout_before_cap: _,
            reach: _,
            // How it is run.
            exec_mode: _,
        } = spec;
        #[cfg(test)]
        tests::COUNT.set(tests::COUNT.get() + 1);
        let mut digest = Digest(0xcbf2_9ce4_8422_2325);
        let start = start.map(|StartPeriod { length, interval }| format!(" start {length:?} {interval:?}"));
        let before = on_failure_command
            .as_ref()
            .map(|FailureCommand { command, timeout }| format!(" onFailureCommand {command:?} {timeout:?}"));
        // A digest takes any text: this never fails.
        let _ = write!(
            digest,
            "{kind} {handler:?} {initial_delay:?} {timeout:?} {period:?} {success_threshold} {failure_threshold} \
             {termination_grace:?} {}{}{}{}",
            on_failure.as_str(),
            start.unwrap_or_default(),
            if *is_literal { " literal" } else { "" },
            before.unwrap_or_default()
        );
        Self(digest.0)
    }
}

/// FNV-1a of what is written, which is kept nowhere.
struct Digest(u64);

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        Ok(())
    }
}

impl fmt::Display for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Serialize for Definition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Definition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        u64::from_str_radix(&text, 16).map(Self).map_err(de::Error::custom)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::{cell::Cell, time::Duration};

    use super::*;
    use crate::{
        ids::ProbeKind,
        spec::{ExecMode, Handler, OnFailure, Reach, definition},
    };

    thread_local! {
        /// How many definitions this thread read.
        pub(in crate::spec) static COUNT: Cell<usize> = const { Cell::new(0) };
    }

    fn spec(kind: ProbeKind) -> ProbeSpec {
        definition::read(kind, "{tcpSocket: {port: 80}}").unwrap()
    }

    #[test]
    fn the_same_definition_keeps_its_number_over_versions() {
        assert_eq!(Definition::of(&spec(ProbeKind::Liveness)).to_string(), "d66c45478d90ad6c");
    }

    #[test]
    fn whatever_is_defined_otherwise_is_another_definition() {
        let base = || spec(ProbeKind::Liveness);
        let second = Duration::from_secs(17);
        let exec =
            |command: &[&str]| Handler::Exec { command: command.iter().map(ToString::to_string).collect() };
        let others = [
            base(),
            spec(ProbeKind::Readiness),
            ProbeSpec { handler: exec(&["a b"]), ..base() },
            ProbeSpec { handler: exec(&["a", "b"]), ..base() },
            ProbeSpec { initial_delay: second, ..base() },
            ProbeSpec { timeout: second, ..base() },
            ProbeSpec { period: second, ..base() },
            ProbeSpec { success_threshold: 17, ..base() },
            ProbeSpec { failure_threshold: 17, ..base() },
            ProbeSpec { termination_grace: Some(second), ..base() },
            ProbeSpec { on_failure: OnFailure::Stop, ..base() },
            ProbeSpec { start: Some(StartPeriod { length: second, interval: second }), ..base() },
            ProbeSpec { start: Some(StartPeriod { length: second, interval: second / 2 }), ..base() },
            ProbeSpec { is_literal: true, ..base() },
            ProbeSpec {
                on_failure_command: Some(FailureCommand {
                    command: vec!["dump".to_owned()],
                    timeout: second,
                }),
                ..base()
            },
        ];
        for (at, one) in others.iter().enumerate() {
            for other in &others[at + 1..] {
                assert_ne!(Definition::of(one), Definition::of(other), "{one:?} and {other:?}");
                assert!(!one.is_same_probe(other), "{one:?} and {other:?}");
            }
        }
        let of_a_rule = ProbeSpec { reach: Reach::Any, ..base() };
        assert_eq!(Definition::of(&of_a_rule), Definition::of(&base()), "whatever its source");
        assert!(of_a_rule.is_same_probe(&base()));
        let by_session = ProbeSpec { exec_mode: Some(ExecMode::Session), ..base() };
        assert_eq!(Definition::of(&by_session), Definition::of(&base()), "however its command is run");
        assert!(by_session.is_same_probe(&base()));
    }
}
