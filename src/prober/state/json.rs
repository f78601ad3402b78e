//! What is saved as text and back: JSON with a version, a probe a line. Pure: bytes in, a state or an error out, whatever
//! the bytes are. Fields that it does not know are passed over.

use std::{fmt, sync::Arc, time::SystemTime};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, SeqAccess, Visitor},
};
use thiserror::Error;

use super::{Checkpoint, MAX_BYTES, MAX_PROBES, OUTPUTS, Saved, SavedProbe};
use crate::{
    ids::{PodUid, ProbeKey, ProbeKind},
    prober::pauses::{MAX_REASON, Pause},
    results::Counts,
};

/// 1: what we write, and all that we can read.
const VERSION: u64 = 1;

/// 2^53: the largest count that is taken, as JSON's numbers are exact up to there. A larger one becomes this one.
const MAX_COUNT: u64 = 1 << 53;

const HEAD: &[u8] = b"{\"version\":1,\"probes\":[";
const TAIL: &[u8] = b"\n]}\n";

/// Why a text cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum SavedError {
    /// It is longer than [`MAX_BYTES`].
    #[error("it is larger than {} MiB", MAX_BYTES >> 20)]
    TooLarge,
    /// Another version wrote it.
    #[error("it has version {0}, but only version {VERSION} is supported")]
    Version(u64),
    /// It is no state at all, or has more than [`MAX_PROBES`] probes. What it says instead is not repeated.
    #[error("it is damaged at line {line}, column {column}")]
    Damaged {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
    },
}

impl From<serde_json::Error> for SavedError {
    fn from(error: serde_json::Error) -> Self {
        Self::Damaged { line: error.line(), column: error.column() }
    }
}

impl Saved {
    /// Reads a text.
    ///
    /// # Errors
    /// It is too large, of another version, or damaged.
    pub(crate) fn from_json(text: &[u8]) -> Result<Self, SavedError> {
        if text.len() > MAX_BYTES {
            return Err(SavedError::TooLarge);
        }
        let Versioned { version } = serde_json::from_slice(text)?;
        if version != VERSION {
            return Err(SavedError::Version(version));
        }
        let Document { probes } = serde_json::from_slice(text)?;
        Ok(Self { probes })
    }

    /// As text; the same for the same probes in whatever order. Leaves out what exceeds the bounds.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let mut order: Vec<_> = self.probes.iter().collect();
        order.sort_by(|a, b| (a.pause.is_none(), &a.key).cmp(&(b.pause.is_none(), &b.key)));
        let mut text = HEAD.to_vec();
        let mut separator: &[u8] = b"\n";
        let share = OUTPUTS / order.len().max(1);
        for probe in order.into_iter().take(MAX_PROBES) {
            let mut line = Line::from(probe);
            let last = line.checkpoint.as_mut().and_then(|checkpoint| checkpoint.last.as_mut());
            last.into_iter().for_each(|last| shorten(&mut last.output, share));
            let line = serde_json::to_vec(&line).expect("names, numbers, texts and times can be written");
            if text.len() + separator.len() + line.len() + TAIL.len() > MAX_BYTES {
                break;
            }
            text.extend_from_slice(separator);
            text.extend_from_slice(&line);
            separator = b",\n";
        }
        text.extend_from_slice(TAIL);
        text
    }
}

/// Cuts a text to so many bytes as it is written: a quote takes two of them, and a control character six.
fn shorten(text: &mut Arc<str>, most: usize) {
    let mut written = 0;
    let end = text.char_indices().find(|(_, c)| {
        written += match c {
            '"' | '\\' => 2,
            '\0'..='\u{1f}' => 6,
            other => other.len_utf8(),
        };
        written > most
    });
    if let Some((end, _)) = end {
        *text = text[..end].into();
    }
}

#[derive(Deserialize)]
struct Versioned {
    version: u64,
}

#[derive(Deserialize)]
struct Document {
    #[serde(deserialize_with = "bounded")]
    probes: Vec<SavedProbe>,
}

/// One probe as it is written.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    pod: PodUid,
    container: Arc<str>,
    #[serde(rename = "type")]
    kind: ProbeKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    paused_since: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    paused_until: Option<Time>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pause_reason: Arc<str>,
    #[serde(default, rename = "stand", skip_serializing_if = "Option::is_none")]
    checkpoint: Option<Checkpoint>,
}

#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct Time(#[serde(with = "time")] SystemTime);

impl From<&SavedProbe> for Line {
    fn from(SavedProbe { key, pause, checkpoint }: &SavedProbe) -> Self {
        let pause = pause.as_ref();
        Self {
            pod: key.pod.clone(),
            container: key.container.clone(),
            kind: key.kind,
            paused_since: pause.map(|pause| Time(pause.since)),
            paused_until: pause.and_then(|pause| pause.until).map(Time),
            pause_reason: pause.map(|pause| pause.reason.clone()).unwrap_or_default(),
            checkpoint: checkpoint.clone(),
        }
    }
}

impl From<Line> for SavedProbe {
    fn from(line: Line) -> Self {
        let Line { pod, container, kind, paused_since, paused_until, pause_reason, checkpoint } = line;
        let pause = paused_since.map(|Time(since)| Pause {
            since,
            until: paused_until.map(|Time(at)| at),
            reason: pause_reason[..pause_reason.floor_char_boundary(MAX_REASON)].into(),
        });
        Self { key: ProbeKey { pod, container, kind }, pause, checkpoint }
    }
}

/// A time as RFC 3339 in UTC, to the nanosecond.
pub(crate) mod time {
    use std::time::SystemTime;

    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(at: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
        // A time that no calendar has is as good as none.
        serializer.collect_str(&Timestamp::try_from(*at).unwrap_or(Timestamp::UNIX_EPOCH))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
        let text = String::deserialize(deserializer)?;
        let at: Timestamp = text.parse().map_err(de::Error::custom)?;
        Ok(at.into())
    }
}

/// Reads counts; one beyond [`MAX_COUNT`] becomes that.
pub(super) fn bounded_counts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Counts, D::Error> {
    let Counts { success, warning, failure, error } = Counts::deserialize(deserializer)?;
    Ok(Counts {
        success: success.min(MAX_COUNT),
        warning: warning.min(MAX_COUNT),
        failure: failure.min(MAX_COUNT),
        error: error.min(MAX_COUNT),
    })
}

/// Reads probes, and fails at the first beyond [`MAX_PROBES`] instead of keeping it.
fn bounded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SavedProbe>, D::Error> {
    struct Probes;

    impl<'de> Visitor<'de> for Probes {
        type Value = Vec<SavedProbe>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("probes")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let mut probes = Vec::new();
            while let Some(line) = seq.next_element::<Line>()? {
                if probes.len() == MAX_PROBES {
                    return Err(de::Error::custom("too many probes"));
                }
                probes.push(line.into());
            }
            Ok(probes)
        }
    }

    deserializer.deserialize_seq(Probes)
}

#[cfg(test)]
mod tests;
