//! Times and durations in JSON: typed on both sides, text and numbers in between.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::clock;

/// A moment, in JSON as RFC 3339 in UTC with milliseconds: `"2026-11-20T10:00:00.000Z"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub SystemTime);

impl From<SystemTime> for Time {
    fn from(at: SystemTime) -> Self {
        Self(at)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&clock::rfc3339(self.0))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let at: jiff::Timestamp = text.parse().map_err(de::Error::custom)?;
        Ok(Self(at.into()))
    }
}

/// A duration, in JSON as a number of seconds, to the microsecond: `0.031`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seconds(pub Duration);

impl From<Duration> for Seconds {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let whole_micros = Duration::new(self.0.as_secs(), self.0.subsec_micros() * 1_000);
        to.serialize_f64(whole_micros.as_secs_f64())
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(from)?;
        Duration::try_from_secs_f64(seconds).map(Self).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_time_is_text_in_utc_and_a_duration_is_a_number_of_seconds() {
        let at = Time(UNIX_EPOCH + Duration::from_millis(1_700_000_000_120));
        assert_eq!(serde_json::to_string(&at).unwrap(), r#""2023-11-14T22:13:20.120Z""#);
        assert_eq!(serde_json::to_string(&Seconds(Duration::from_nanos(31_000_999))).unwrap(), "0.031");
        assert_eq!(serde_json::to_string(&Seconds(Duration::from_secs(10))).unwrap(), "10.0");
    }

    #[test]
    fn what_is_neither_is_refused() {
        assert!(serde_json::from_str::<Time>(r#""yesterday""#).is_err());
        assert!(serde_json::from_str::<Seconds>("-1.0").is_err());
        assert!(serde_json::from_str::<Seconds>("1e300").is_err());
    }

    proptest! {
        #[test]
        fn both_come_back_as_they_went(millis in 0_u64..4_000_000_000_000, micros in 0_u64..10_000_000_000) {
            let at = Time(UNIX_EPOCH + Duration::from_millis(millis));
            prop_assert_eq!(serde_json::from_str::<Time>(&serde_json::to_string(&at).unwrap()).unwrap(), at);
            let json = serde_json::to_string(&Seconds(Duration::from_micros(micros))).unwrap();
            let back = serde_json::from_str::<Seconds>(&json).unwrap();
            prop_assert!(back.0.abs_diff(Duration::from_micros(micros)) < Duration::from_nanos(500));
        }
    }
}
