//! The events of the live stream.

use serde::{Deserialize, Serialize, Serializer, ser::SerializeSeq as _};

use super::{
    AttemptResult, ClientView, DefinitionView, ExecMode, ExecRouteView, ProbePhase, RuntimeView, Seconds,
    Time, Verdict,
};

/// The first event: who sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HelloView<'a> {
    /// criprobe's own version.
    pub version: &'a str,
    /// The node's hostname; empty where it is not known.
    pub node: &'a str,
    /// Now.
    pub at: Time,
    /// The shortest time between two events of rows.
    pub tick_seconds: u64,
}

/// The state of the daemon, when it changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LiveStatusView {
    /// The runtime.
    pub runtime: RuntimeView,
    /// What needs attention, as `criprobe status` reports it.
    pub trouble: Vec<String>,
}

/// Shows that the stream is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BeatView {
    /// Now.
    pub at: Time,
}

/// Calls that this subscriber was too slow for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissedCallsView {
    /// How many.
    pub calls: u64,
}

/// A row of the page: a probe, or a pod without probes. All texts are as they came, and bounded.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RowView {
    /// `POD_UID/CONTAINER/TYPE`, or `POD_UID`: unique.
    pub key: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// Whether the pod is ready; null where the pod is not known.
    pub pod_ready: Option<bool>,
    /// The container's name; of a pod without probes, absent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub container: String,
    /// As the client named it; of a pod without probes, that of its first container.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// Where the container is in its life; absent where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_state: Option<&'static str>,
    /// What there is of a probe; absent of a pod without probes.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub probe: Option<RowProbeView>,
    /// Whether the verdict is failure or not known any more; what a client stops on purpose does not fail.
    pub is_failing: bool,
    /// Whether the definition of the probe or an annotation of the pod is wrong.
    pub is_invalid: bool,
    /// Why it is so, in words; empty where there is nothing to say.
    pub reason: String,
}

/// What a row shows of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RowProbeView {
    /// `startup`, `readiness`, `liveness`, or `observed-N`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `exec`, `httpGet`, `tcpSocket`, `grpc`; empty if the definition is too broken to know.
    pub handler: String,
    /// Where the definition came from.
    pub source: String,
    /// The verdict after thresholds.
    pub state: Verdict,
    /// What it is doing.
    pub phase: ProbePhase,
    /// Since when `state` is what it is.
    pub since: Time,
    /// From one attempt to the next; absent where the definition is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_seconds: Option<Seconds>,
    /// Its definition, without the values of headers, and with its texts cut; absent where that is wrong, or a client's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definition: Option<DefinitionView>,
    /// Who makes its attempts, and how, of a client's own; absent of all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientView>,
    /// What the newest attempt said; empty before the first.
    pub output: String,
    /// The route of the command of the newest attempt.
    #[serde(flatten)]
    pub route: ExecRouteView,
    /// The newest attempts, oldest first.
    pub attempts: Vec<StripView>,
    /// Why the newest slow attempt was slow, in words; absent if none was, or that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow: Option<String>,
    /// When that attempt began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_at: Option<Time>,
}

/// An attempt as a list: when it began, in milliseconds since 1970; how it ended, by the first letter of its result; how
/// many milliseconds it took; the exit code or HTTP status; a list of its phases, in milliseconds, or why a slow one has
/// none, in words; and, where a session was asked for, its route. What is not known is null, and left out at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StripView {
    /// When it began, in milliseconds since 1970.
    pub at: u64,
    /// How it ended.
    pub result: AttemptResult,
    /// How long it took, in microseconds.
    pub micros: u64,
    /// Exit code or HTTP status.
    pub code: Option<i32>,
    /// Where its time went.
    pub phases: Option<StripPhases>,
    /// The route of its command, if a session was asked for.
    pub route: Option<ExecMode>,
}

/// Where the time of an attempt went, if it ran a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StripPhases {
    /// Queue, start, run and drain, in microseconds.
    Known([Option<u64>; 4]),
    /// Why it is not known.
    Unknown(&'static str),
}

impl Serialize for StripView {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let millis = |micros: u64| micros as f64 / 1_000.0;
        let mut list = to.serialize_seq(None)?;
        list.serialize_element(&self.at)?;
        list.serialize_element(&self.result.as_str()[..1])?;
        list.serialize_element(&millis(self.micros))?;
        if self.code.is_some() || self.phases.is_some() || self.route.is_some() {
            list.serialize_element(&self.code)?;
        }
        match self.phases {
            Some(StripPhases::Known(phases)) => {
                list.serialize_element(&phases.map(|phase| phase.map(millis)))?;
            }
            Some(StripPhases::Unknown(why)) => list.serialize_element(why)?,
            None if self.route.is_some() => list.serialize_element(&())?,
            None => {}
        }
        if let Some(route) = self.route {
            list.serialize_element(route.as_str())?;
        }
        list.end()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn an_attempt_is_a_short_list_and_a_row_is_flat() {
        let attempt = |result, code, phases| StripView {
            at: 1_700_000_000_123,
            result,
            micros: 31_004,
            code,
            phases,
            route: None,
        };
        let by_session =
            StripView { route: Some(ExecMode::Session), ..attempt(AttemptResult::Success, Some(0), None) };
        let phases = Some(StripPhases::Known([Some(1_000), Some(30_004), None, None]));
        let row = RowView {
            key: "u1/app/liveness".to_owned(),
            namespace: "default".to_owned(),
            pod: "web-0".to_owned(),
            pod_ready: Some(true),
            container: "app".to_owned(),
            image: "web:1".to_owned(),
            container_state: Some("running"),
            probe: Some(RowProbeView {
                kind: "liveness".to_owned(),
                handler: "exec".to_owned(),
                source: "annotation".to_owned(),
                state: Verdict::Success,
                phase: ProbePhase::Probing,
                since: Time(UNIX_EPOCH + Duration::from_secs(1_700_000_000)),
                output: "<script>\n".to_owned(),
                attempts: vec![
                    attempt(AttemptResult::Success, None, None),
                    attempt(AttemptResult::Failure, Some(-1), None),
                    attempt(AttemptResult::Warning, None, phases),
                    by_session,
                ],
                route: ExecRouteView { exec_route: Some(ExecMode::Session), exec_reason: None },
                period_seconds: None,
                definition: None,
                client: None,
                slow: None,
                slow_at: None,
            }),
            is_failing: false,
            is_invalid: false,
            reason: String::new(),
        };
        assert_eq!(
            serde_json::to_string(&row).unwrap(),
            r#"{"key":"u1/app/liveness","namespace":"default","pod":"web-0","podReady":true,"container":"app","image":"web:1","containerState":"running","type":"liveness","handler":"exec","source":"annotation","state":"success","phase":"probing","since":"2023-11-14T22:13:20.000Z","output":"<script>\n","execRoute":"session","attempts":[[1700000000123,"s",31.004],[1700000000123,"f",31.004,-1],[1700000000123,"w",31.004,null,[1.0,30.004,null,null]],[1700000000123,"s",31.004,0,null,"session"]],"isFailing":false,"isInvalid":false,"reason":""}"#
        );
        let pod = RowView {
            key: "u2".to_owned(),
            namespace: "n".to_owned(),
            pod: "p".to_owned(),
            ..RowView::default()
        };
        assert_eq!(
            serde_json::to_string(&pod).unwrap(),
            r#"{"key":"u2","namespace":"n","pod":"p","podReady":null,"isFailing":false,"isInvalid":false,"reason":""}"#
        );
    }
}
