//! What a reader wants to see: the query parameters of the API, written by the command line and read by the server.

use std::{fmt::Write as _, time::Duration};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Deserializer, de};

pub use super::glob::Glob;
use super::view::{CallView, EventView, ProbeView};

/// Parameters of `GET /v1/probes`.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeFilter {
    /// The pod's namespace.
    pub namespace: Option<Glob>,
    /// The pod's name.
    pub pod: Option<Glob>,
    /// The container's name.
    pub container: Option<Glob>,
    /// The probe's type.
    #[serde(rename = "type")]
    pub kind: Option<Glob>,
}

/// Parameters of `GET /v1/trace`.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallFilter {
    /// The method, `Exec*`; with its service where the pattern holds a slash.
    pub method: Option<Glob>,
    /// The pod's namespace.
    pub namespace: Option<Glob>,
    /// The pod's name.
    pub pod: Option<Glob>,
    /// The container's name.
    pub container: Option<Glob>,
    /// Only those that did not end well.
    #[serde(default)]
    pub failed: bool,
    /// Only those that took longer: `250ms`, `1s`.
    #[serde(default, deserialize_with = "duration")]
    pub slower: Option<Duration>,
    /// The newest of those that are kept.
    pub last: Option<usize>,
    /// Stay, and tell of those that come.
    #[serde(default)]
    pub follow: bool,
}

/// Parameters of `GET /v1/events`.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventFilter {
    /// The pod's namespace.
    pub namespace: Option<Glob>,
    /// The pod's name.
    pub pod: Option<Glob>,
    /// The container's name.
    pub container: Option<Glob>,
    /// The newest of those that are kept.
    pub last: Option<usize>,
    /// Stay, and tell of those that come.
    #[serde(default)]
    pub follow: bool,
}

impl ProbeFilter {
    /// Whether a probe is wanted.
    pub fn admits(&self, probe: &ProbeView) -> bool {
        fits(self.namespace.as_ref(), &probe.namespace)
            && fits(self.pod.as_ref(), &probe.pod)
            && fits(self.container.as_ref(), &probe.container)
            && fits(self.kind.as_ref(), &probe.kind)
    }

    /// As the query of a URL; empty where nothing is asked for.
    pub fn to_query(&self) -> String {
        let mut query = Query::default();
        query.names(self.namespace.as_ref(), self.pod.as_ref(), self.container.as_ref());
        query.glob("type", self.kind.as_ref());
        query.0
    }
}

impl CallFilter {
    /// Whether a call is wanted.
    pub fn admits(&self, call: &CallView) -> bool {
        let method = self.method.as_ref().is_none_or(|glob| {
            glob.matches(&call.method)
                || (glob.as_str().contains('/') && glob.matches(&format!("{}/{}", call.service, call.method)))
        });
        method
            && fits(self.namespace.as_ref(), &call.namespace)
            && fits(self.pod.as_ref(), &call.pod)
            && fits(self.container.as_ref(), &call.container)
            && (!self.failed || call.is_failed())
            && self.slower.is_none_or(|limit| call.duration_seconds.0 > limit)
    }

    /// As the query of a URL; empty where nothing is asked for.
    pub fn to_query(&self) -> String {
        let mut query = Query::default();
        query.glob("method", self.method.as_ref());
        query.names(self.namespace.as_ref(), self.pod.as_ref(), self.container.as_ref());
        query.flag("failed", self.failed);
        if let Some(slower) = self.slower {
            query.add("slower", &humantime::format_duration(slower).to_string());
        }
        query.window(self.last, self.follow);
        query.0
    }
}

impl EventFilter {
    /// Whether an event is wanted.
    pub fn admits(&self, event: &EventView) -> bool {
        fits(self.namespace.as_ref(), &event.namespace)
            && fits(self.pod.as_ref(), &event.pod)
            && fits(self.container.as_ref(), &event.container)
    }

    /// As the query of a URL; empty where nothing is asked for.
    pub fn to_query(&self) -> String {
        let mut query = Query::default();
        query.names(self.namespace.as_ref(), self.pod.as_ref(), self.container.as_ref());
        query.window(self.last, self.follow);
        query.0
    }
}

/// Whether a name is wanted: all are where no pattern was given.
fn fits(glob: Option<&Glob>, name: &str) -> bool {
    glob.is_none_or(|glob| glob.matches(name))
}

/// A duration as people write it.
fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    humantime::parse_duration(&text)
        .map(Some)
        .map_err(|error| de::Error::custom(format_args!("{text:?} is no duration, such as 250ms: {error}")))
}

/// The query of a URL, as it grows.
#[derive(Default)]
struct Query(String);

impl Query {
    fn add(&mut self, name: &str, value: &str) {
        let before = if self.0.is_empty() { '?' } else { '&' };
        let value = utf8_percent_encode(value, NON_ALPHANUMERIC);
        write!(self.0, "{before}{name}={value}").expect("a string takes all text");
    }

    fn glob(&mut self, name: &str, glob: Option<&Glob>) {
        if let Some(glob) = glob {
            self.add(name, glob.as_str());
        }
    }

    fn names(&mut self, namespace: Option<&Glob>, pod: Option<&Glob>, container: Option<&Glob>) {
        self.glob("namespace", namespace);
        self.glob("pod", pod);
        self.glob("container", container);
    }

    fn flag(&mut self, name: &str, is_set: bool) {
        if is_set {
            self.add(name, "true");
        }
    }

    fn window(&mut self, last: Option<usize>, follow: bool) {
        if let Some(last) = last {
            self.add("last", &last.to_string());
        }
        self.flag("follow", follow);
    }
}

#[cfg(test)]
mod tests {
    use axum::extract::Query as Extracted;

    use super::*;
    use crate::report::view::{End, ExecView, Seconds, sample};

    fn parsed<T: de::DeserializeOwned>(query: &str) -> Result<T, String> {
        let uri = format!("http://x/{query}").parse().unwrap();
        Extracted::try_from_uri(&uri).map(|Extracted(filter)| filter).map_err(|error| error.to_string())
    }

    #[test]
    fn what_the_client_asks_is_what_the_server_reads() {
        let calls = CallFilter {
            method: Some("Exec*".into()),
            namespace: Some("a b&c=d%/ü".into()),
            pod: Some("web-?".into()),
            container: None,
            failed: true,
            slower: Some(Duration::from_millis(1_250)),
            last: Some(7),
            follow: true,
        };
        assert_eq!(parsed::<CallFilter>(&calls.to_query()), Ok(calls));
        assert_eq!(parsed::<CallFilter>(&CallFilter::default().to_query()), Ok(CallFilter::default()));
        let probes = ProbeFilter { kind: Some("liveness".into()), ..ProbeFilter::default() };
        assert_eq!(probes.to_query(), "?type=liveness");
        assert_eq!(parsed::<ProbeFilter>(&probes.to_query()), Ok(probes));
        let events = EventFilter { last: Some(0), ..EventFilter::default() };
        assert_eq!(parsed::<EventFilter>(&events.to_query()), Ok(events));
    }

    #[test]
    fn unknown_and_wrong_parameters_are_refused() {
        for query in ["?namespce=x", "?last=-1", "?last=many", "?failed=perhaps", "?slower=soon"] {
            assert!(parsed::<CallFilter>(query).is_err(), "{query}");
        }
        assert!(
            parsed::<CallFilter>("?slower=soon")
                .unwrap_err()
                .contains("\"soon\" is no duration, such as 250ms")
        );
    }

    #[test]
    fn calls_are_chosen_by_method_names_end_and_duration() {
        let plain = CallView { duration_seconds: Seconds(Duration::from_millis(250)), ..sample::call() };
        let cancelled = CallView { end: End::Cancelled, code: String::new(), ..plain.clone() };
        let refused = CallView { code: "NotFound".to_owned(), ..plain.clone() };
        let exec = ExecView { exit_code: Some(1), ..ExecView::default() };
        let exited = CallView { exec: Some(exec), ..plain.clone() };
        for (query, call, admitted) in [
            ("", &plain, true),
            ("?method=Exec*", &plain, true),
            ("?method=List*", &plain, false),
            ("?method=runtime.v1.*/ExecSync", &plain, true),
            ("?namespace=default&pod=w*&container=app", &plain, true),
            ("?namespace=kube-system", &plain, false),
            ("?pod=web2", &plain, false),
            ("?container=ap", &plain, false),
            ("?failed=true", &plain, false),
            ("?failed=true", &cancelled, true),
            ("?failed=true", &refused, true),
            ("?failed=true", &exited, true),
            ("?failed=false", &exited, true),
            ("?slower=249ms", &plain, true),
            ("?slower=250ms", &plain, false),
        ] {
            assert_eq!(parsed::<CallFilter>(query).unwrap().admits(call), admitted, "{query}");
        }
    }
}
