//! Filters for queries: the query parameters of the API, written by the command line and read by the server.

use std::{fmt::Write as _, mem, time::Duration};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::{sync::Semaphore, task::yield_now};

pub(crate) use super::since::Since;
pub(crate) use crate::glob::Glob;

use super::{
    lookup::shown,
    view::{CallView, EventView, PodView, ProbeView},
};
use crate::{
    clock,
    document::suggest,
    duration::{self, GoDuration},
    ids::{ProbeKind, ProbeType},
    tap::cri::method_names,
};

/// 512 bytes: the longest pattern. Names of Kubernetes have 253 at most. A longer one is answered 400.
const MAX_PATTERN: usize = 512;

/// 32 records are filtered at once; then other tasks have their turn. No pattern takes more than a few µs for a name.
pub(super) const FILTERED_AT_ONCE: usize = 32;

/// 2 lists are filtered at once; others wait.
static FILTERING: Semaphore = Semaphore::const_new(2);

/// Keeps the records that are wanted, in their order.
pub(super) async fn retain<T: Send>(records: &mut Vec<T>, admits: impl Fn(&T) -> bool + Send) {
    let _turn = FILTERING.acquire().await;
    for (number, record) in mem::take(records).into_iter().enumerate() {
        if number % FILTERED_AT_ONCE == FILTERED_AT_ONCE - 1 {
            yield_now().await;
        }
        if admits(&record) {
            records.push(record);
        }
    }
}

/// Parameters of `GET /v1/probes`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct ProbeFilter {
    /// The pod's namespace.
    pub namespace: Option<Glob>,
    /// The pod's name.
    pub pod: Option<Glob>,
    /// The container's name.
    pub container: Option<Glob>,
    /// The probe's type.
    pub kind: Option<Glob>,
    /// Only those whose verdict changed since then, or that have had an attempt that was no success.
    pub since: Option<Since>,
}

/// Parameters of `GET /v1/pods`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct PodFilter {
    /// The pod's namespace.
    pub namespace: Option<Glob>,
    /// The pod's name.
    pub pod: Option<Glob>,
}

/// Parameters of `GET /v1/trace`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct CallFilter {
    /// The method, `Exec*`, in any case; with its service where the pattern holds a slash.
    pub method: Option<Glob>,
    /// The pod's namespace.
    pub namespace: Option<Glob>,
    /// The pod's name.
    pub pod: Option<Glob>,
    /// The container's name.
    pub container: Option<Glob>,
    /// The command, its words with a space between them, as it is shown.
    pub command: Option<Glob>,
    /// The name of the process that called.
    pub caller: Option<Glob>,
    /// Only those that did not end well.
    pub failed: bool,
    /// Only those that took longer: `250ms`, `1s`.
    pub slower: Option<Duration>,
    /// The newest of those that are kept.
    pub last: Option<usize>,
    /// Stay, and report those that come.
    pub follow: bool,
}

/// Parameters of `GET /v1/events`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct EventFilter {
    /// The pod's namespace.
    pub namespace: Option<Glob>,
    /// The pod's name.
    pub pod: Option<Glob>,
    /// The container's name.
    pub container: Option<Glob>,
    /// Only those that happened since then.
    pub since: Option<Since>,
    /// The newest of those that are kept.
    pub last: Option<usize>,
    /// Stay, and report those that come.
    pub follow: bool,
}

impl ProbeFilter {
    /// Whether a probe is wanted.
    pub(crate) fn admits(&self, probe: &ProbeView) -> bool {
        fits(self.namespace.as_ref(), &probe.namespace)
            && fits(self.pod.as_ref(), &probe.pod)
            && fits(self.container.as_ref(), &probe.container)
            && fits(self.kind.as_ref(), &probe.kind)
            && self.since.is_none_or(|since| {
                since.admits(probe.since.0) || probe.unsuccessful_at.is_some_and(|at| since.admits(at.0))
            })
    }

    /// As the query of a URL; empty where nothing is asked for.
    pub(crate) fn to_query(&self) -> String {
        let mut query = Query::default();
        query.names(self.namespace.as_ref(), self.pod.as_ref(), self.container.as_ref());
        query.glob("type", self.kind.as_ref());
        query.since(self.since);
        query.0
    }
}

impl PodFilter {
    /// Whether a pod is wanted.
    pub(crate) fn admits(&self, pod: &PodView) -> bool {
        fits(self.namespace.as_ref(), &pod.namespace) && fits(self.pod.as_ref(), &pod.pod)
    }

    /// As the query of a URL; empty where nothing is asked for.
    pub(crate) fn to_query(&self) -> String {
        let mut query = Query::default();
        query.names(self.namespace.as_ref(), self.pod.as_ref(), None);
        query.0
    }
}

impl CallFilter {
    /// Whether a call is wanted, whatever its command is.
    pub(crate) fn admits(&self, call: &CallView) -> bool {
        let method = self.method.as_ref().is_none_or(|glob| {
            glob.matches_in_any_case(&call.method)
                || (glob.as_str().contains('/')
                    && glob.matches_in_any_case(&format!("{}/{}", call.service, call.method)))
        });
        method
            && fits(self.namespace.as_ref(), &call.namespace)
            && fits(self.pod.as_ref(), &call.pod)
            && fits(self.container.as_ref(), &call.container)
            && fits(self.caller.as_ref(), &call.peer.comm)
            && (!self.failed || call.is_failed())
            && self.slower.is_none_or(|limit| call.duration_seconds.0 > limit)
    }

    /// As the query of a URL; empty where nothing is asked for.
    pub(crate) fn to_query(&self) -> String {
        let mut query = Query::default();
        query.glob("method", self.method.as_ref());
        query.names(self.namespace.as_ref(), self.pod.as_ref(), self.container.as_ref());
        query.glob("command", self.command.as_ref());
        query.glob("caller", self.caller.as_ref());
        query.flag("failed", self.failed);
        if let Some(slower) = self.slower {
            query.add("slower", &GoDuration(slower).to_string());
        }
        query.window(self.last, self.follow);
        query.0
    }
}

impl EventFilter {
    /// Whether an event is wanted. An outage of the runtime is about every pod.
    pub(crate) fn admits(&self, event: &EventView) -> bool {
        let is_named = fits(self.namespace.as_ref(), &event.namespace)
            && fits(self.pod.as_ref(), &event.pod)
            && fits(self.container.as_ref(), &event.container);
        (is_named || event.is_of_runtime()) && self.since.is_none_or(|since| since.admits(event.at.0))
    }

    /// As the query of a URL; empty where nothing is asked for.
    pub(crate) fn to_query(&self) -> String {
        let mut query = Query::default();
        query.names(self.namespace.as_ref(), self.pod.as_ref(), self.container.as_ref());
        query.since(self.since);
        query.window(self.last, self.follow);
        query.0
    }
}

/// Whether a name is wanted: all are where no pattern was given.
pub(super) fn fits(glob: Option<&Glob>, name: &str) -> bool {
    glob.is_none_or(|glob| glob.matches(name))
}

/// A pattern of methods.
///
/// # Errors
/// It matches no method of the CRI: it could only be a slip, and nothing would ever be shown. A pattern with a slash also
/// speaks of services that are not known, so it may be anything.
pub(crate) fn method(text: &str) -> Result<Glob, String> {
    let glob = Glob::from(text);
    if text.contains('/') || method_names().any(|name| glob.matches_in_any_case(name)) {
        return Ok(glob);
    }
    let names: Vec<_> = method_names().collect();
    let word = text.trim_matches(['*', '?']);
    let meant = suggest::nearest(word, &names).map(|meant| format!(": did you mean {meant}?"));
    let meant = meant.unwrap_or_else(|| ".".to_owned());
    Err(format!("no CRI method matches{meant} For a method that criprobe does not know, write '*/NewMethod'"))
}

/// Query parameters that are read one by one.
pub(crate) trait Parameters: Default {
    const NAMES: &'static [&'static str];

    /// Takes one; `name` is one of [`Self::NAMES`].
    ///
    /// # Errors
    /// What is wrong with the value, and what to write instead.
    fn take(&mut self, name: &str, value: &str) -> Result<(), String>;

    /// Reads them from the decoded pairs of a query.
    ///
    /// # Errors
    /// In words: an unknown name, one that is there twice, a value that cannot be.
    fn read(pairs: &[(String, String)]) -> Result<Self, String> {
        let mut read = Self::default();
        for (index, (name, value)) in pairs.iter().enumerate() {
            if !Self::NAMES.contains(&name.as_str()) {
                let unknown = shown(name);
                return Err(match suggest::nearest(name, Self::NAMES) {
                    Some(meant) => format!("unknown parameter {unknown}: did you mean {meant:?}?"),
                    None => {
                        format!(
                            "unknown parameter {unknown}: known parameters are {}",
                            Self::NAMES.join(", ")
                        )
                    }
                });
            }
            if pairs[..index].iter().any(|(before, _)| before == name) {
                return Err(format!("{name} is given twice"));
            }
            read.take(name, value).map_err(|reason| format!("{name}: {}: {reason}", shown(value)))?;
        }
        Ok(read)
    }
}

impl Parameters for ProbeFilter {
    const NAMES: &'static [&'static str] = &["namespace", "pod", "container", "type", "since"];

    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "namespace" => self.namespace = Some(pattern(value)?),
            "pod" => self.pod = Some(pattern(value)?),
            "container" => self.container = Some(pattern(value)?),
            "since" => self.since = Some(since(value)?),
            "type" => self.kind = Some(kind(value)?),
            _ => return Err("it is not known".to_owned()),
        }
        Ok(())
    }
}

impl Parameters for PodFilter {
    const NAMES: &'static [&'static str] = &["namespace", "pod"];

    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "namespace" => self.namespace = Some(pattern(value)?),
            "pod" => self.pod = Some(pattern(value)?),
            _ => return Err("it is not known".to_owned()),
        }
        Ok(())
    }
}

impl Parameters for CallFilter {
    const NAMES: &'static [&'static str] = &[
        "method",
        "namespace",
        "pod",
        "container",
        "command",
        "caller",
        "failed",
        "slower",
        "last",
        "follow",
    ];

    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "method" => self.method = Some(pattern(value).and_then(|_| method(value))?),
            "namespace" => self.namespace = Some(pattern(value)?),
            "pod" => self.pod = Some(pattern(value)?),
            "container" => self.container = Some(pattern(value)?),
            "command" => self.command = Some(pattern(value)?),
            "caller" => self.caller = Some(pattern(value)?),
            "failed" => self.failed = flag(value)?,
            "slower" => self.slower = Some(duration(value)?),
            "last" => self.last = Some(count(value)?),
            "follow" => self.follow = flag(value)?,
            _ => return Err("it is not known".to_owned()),
        }
        Ok(())
    }
}

impl Parameters for EventFilter {
    const NAMES: &'static [&'static str] = &["namespace", "pod", "container", "since", "last", "follow"];

    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "namespace" => self.namespace = Some(pattern(value)?),
            "pod" => self.pod = Some(pattern(value)?),
            "container" => self.container = Some(pattern(value)?),
            "since" => self.since = Some(since(value)?),
            "last" => self.last = Some(count(value)?),
            "follow" => self.follow = flag(value)?,
            _ => return Err("it is not known".to_owned()),
        }
        Ok(())
    }
}

/// A pattern of an allowed length.
///
/// # Errors
/// It is too long.
pub(crate) fn pattern(text: &str) -> Result<Glob, String> {
    match text.len() {
        0..=MAX_PATTERN => Ok(text.into()),
        _ => Err(format!("longer than {MAX_PATTERN} bytes: no name is as long")),
    }
}

/// A duration as people write it, in the configuration too: `250ms`, `1m30s`.
///
/// # Errors
/// What is wrong, and what to write instead.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|error| error.to_string())
}

/// From when on: a duration, a time of day, or a moment.
///
/// # Errors
/// What to write instead.
pub(crate) fn since(text: &str) -> Result<Since, String> {
    Since::parse(text, clock::wall())
}

/// A number of things.
///
/// # Errors
/// What to write instead.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "not a number: write a whole number such as 20".to_owned())
}

/// The type of a probe.
///
/// # Errors
/// Those that there are.
pub(crate) fn kind(text: &str) -> Result<Glob, String> {
    match text.parse::<ProbeType>() {
        Ok(kind) => Ok((&*kind.to_string()).into()),
        Err(_) => {
            let known = ProbeKind::ALL.map(ProbeKind::as_str).join(", ");
            Err(format!("not a type: write one of {known}, observed-N"))
        }
    }
}

pub(super) fn flag(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("write true or false".to_owned()),
    }
}

/// The query of a URL, as it grows.
#[derive(Default)]
pub(super) struct Query(pub(super) String);

impl Query {
    pub(super) fn add(&mut self, name: &str, value: &str) {
        let before = if self.0.is_empty() { '?' } else { '&' };
        let value = utf8_percent_encode(value, NON_ALPHANUMERIC);
        write!(self.0, "{before}{name}={value}").expect("a string takes all text");
    }

    fn glob(&mut self, name: &str, glob: Option<&Glob>) {
        if let Some(glob) = glob {
            self.add(name, glob.as_str());
        }
    }

    pub(super) fn names(&mut self, namespace: Option<&Glob>, pod: Option<&Glob>, container: Option<&Glob>) {
        self.glob("namespace", namespace);
        self.glob("pod", pod);
        self.glob("container", container);
    }

    fn since(&mut self, since: Option<Since>) {
        if let Some(since) = since {
            self.add("since", &since.to_string());
        }
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
    use crate::report::view::{CallEnd, ExecView, Seconds, sample};

    fn parsed<T: Parameters>(query: &str) -> Result<T, String> {
        let uri = format!("http://x/{query}").parse().unwrap();
        let Extracted(pairs) = Extracted::<Vec<(String, String)>>::try_from_uri(&uri).unwrap();
        T::read(&pairs)
    }

    #[test]
    fn what_the_client_asks_is_what_the_server_reads() {
        let calls = CallFilter {
            method: Some("Exec*".into()),
            namespace: Some("a b&c=d%/ü".into()),
            pod: Some("web-?".into()),
            container: None,
            command: Some("cat /*".into()),
            caller: Some("crictl".into()),
            failed: true,
            slower: Some(Duration::from_millis(1_250)),
            last: Some(7),
            follow: true,
        };
        assert_eq!(parsed::<CallFilter>(&calls.to_query()), Ok(calls));
        assert_eq!(parsed::<CallFilter>(&CallFilter::default().to_query()), Ok(CallFilter::default()));
        let ago = Some(Since::Ago(Duration::from_secs(90)));
        let probes = ProbeFilter { since: ago, ..ProbeFilter::default() };
        assert_eq!(probes.to_query(), "?since=1m30s");
        assert_eq!(parsed::<ProbeFilter>(&probes.to_query()), Ok(probes));
        let at = Some(Since::At(sample::at(250).0));
        let events = EventFilter { since: at, ..EventFilter::default() };
        assert_eq!(parsed::<EventFilter>(&events.to_query()), Ok(events));
        let probes = ProbeFilter { kind: Some("liveness".into()), ..ProbeFilter::default() };
        assert_eq!(probes.to_query(), "?type=liveness");
        assert_eq!(parsed::<ProbeFilter>(&probes.to_query()), Ok(probes));
        let events = EventFilter { last: Some(0), ..EventFilter::default() };
        assert_eq!(parsed::<EventFilter>(&events.to_query()), Ok(events));
    }

    #[test]
    fn a_pattern_of_methods_matches_one_that_is_known_or_names_a_service() {
        for (pattern, is_good) in [
            ("ExecSync", true),
            ("execsync", true),
            ("exec*", true),
            ("Stream*", true),
            ("*/Frobnicate", true),
            ("runtime.v1.RuntimeService/Frobnicate", true),
            ("Frobnicate", false),
            ("ExceSync*", false),
            ("", false),
        ] {
            assert_eq!(method(pattern).is_ok(), is_good, "{pattern}");
        }
        assert!(method("ExceSync*").unwrap_err().contains("did you mean ExecSync?"));
    }

    #[test]
    fn what_changed_or_failed_lately_is_wanted() {
        let probe = |since, unsuccessful_at| ProbeView {
            since: sample::at(since),
            unsuccessful_at: Some(sample::at(unsuccessful_at)),
            ..sample::probe()
        };
        let filter = ProbeFilter { since: Some(Since::At(sample::at(60_000).0)), ..ProbeFilter::default() };
        for (since, unsuccessful_at, is_wanted) in
            [(0, 0, false), (60_000, 0, true), (0, 60_000, true), (59_999, 59_999, false)]
        {
            assert_eq!(filter.admits(&probe(since, unsuccessful_at)), is_wanted, "{since} {unsuccessful_at}");
        }
        assert!(!filter.admits(&ProbeView { unsuccessful_at: None, ..probe(0, 0) }));
        let events = EventFilter { since: filter.since, ..EventFilter::default() };
        let event = |at| EventView { at: sample::at(at), first_at: Some(sample::at(0)), ..sample::event() };
        assert!(events.admits(&event(60_000)) && !events.admits(&event(59_999)));
    }

    #[test]
    fn unknown_and_wrong_parameters_are_refused() {
        for (query, reported) in [
            ("?namespce=x", r#"unknown parameter "namespce": did you mean "namespace"?"#),
            (
                "?x=1",
                r#"unknown parameter "x": known parameters are method, namespace, pod, container, command, caller, failed, slower, last, follow"#,
            ),
            ("?pod=a&pod=b", "pod is given twice"),
            ("?last=-1", r#"last: "-1": not a number: write a whole number such as 20"#),
            ("?last=many", r#"last: "many": not a number: write a whole number such as 20"#),
            ("?failed=perhaps", r#"failed: "perhaps": write true or false"#),
            ("?follow", r#"follow: "": write true or false"#),
            ("?slower=5", r#"slower: "5": the unit is missing: write a duration such as 250ms, 5s or 1m30s"#),
            (
                "?method=ExceSync",
                r#"method: "ExceSync": no CRI method matches: did you mean ExecSync? For a method that criprobe does not know, write '*/NewMethod'"#,
            ),
            (
                "?method=Frob*",
                r#"method: "Frob*": no CRI method matches. For a method that criprobe does not know, write '*/NewMethod'"#,
            ),
            ("?slower=soon", r#"slower: "soon": not a duration: write one such as 250ms, 5s or 1m30s"#),
        ] {
            assert_eq!(parsed::<CallFilter>(query).unwrap_err(), reported);
        }
        let long = "a*/".repeat(200);
        for name in ["method", "namespace", "pod", "container"] {
            assert!(parsed::<CallFilter>(&format!("?{name}={}", &long[..512])).is_ok());
            let refused = parsed::<CallFilter>(&format!("?{name}={}", &long[..513])).unwrap_err();
            assert_eq!(
                refused,
                format!("{name}: \"{}\"...: longer than 512 bytes: no name is as long", &long[..64])
            );
        }
        assert_eq!(
            parsed::<ProbeFilter>("?type=zzz").unwrap_err(),
            r#"type: "zzz": not a type: write one of startup, readiness, liveness, observed-N"#
        );
    }

    #[test]
    fn calls_are_chosen_by_method_names_end_and_duration() {
        let plain = CallView { duration_seconds: Seconds(Duration::from_millis(250)), ..sample::call() };
        let cancelled = CallView { end: CallEnd::Cancelled, code: String::new(), ..plain.clone() };
        let refused = CallView { code: "NotFound".to_owned(), ..plain.clone() };
        let exec = ExecView { exit_code: Some(1), ..ExecView::default() };
        let exited = CallView { exec: Some(exec), ..plain.clone() };
        for (query, call, admitted) in [
            ("", &plain, true),
            ("?method=Exec*", &plain, true),
            ("?method=List*", &plain, false),
            ("?method=execsync", &plain, true),
            ("?method=RUNTIME.*/exec*", &plain, true),
            ("?method=runtime.v1.*/ExecSync", &plain, true),
            ("?namespace=default&pod=w*&container=app", &plain, true),
            ("?namespace=kube-system", &plain, false),
            ("?pod=web2", &plain, false),
            ("?container=ap", &plain, false),
            ("?caller=kube*", &plain, true),
            ("?caller=crictl", &plain, false),
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
