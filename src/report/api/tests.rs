//! The API over a real socket: routes, answers, streams, refusals, the drain.

use std::{path::PathBuf, time::Duration};

use axum::http::StatusCode;
use http_body_util::{BodyExt, Empty};
use hyper::{Request, Response, body::Incoming};
use hyper_util::client::legacy::Client;
use hyperlocal::{UnixClientExt, UnixConnector, Uri};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
};

use super::*;
use crate::report::{
    Shown,
    journal::Journal,
    metrics::Metrics,
    name::ProbeName,
    view::{
        CallView, EventView, Phase, PodView, ProbeDetailView, ProbeView, RuntimeState, StatusView, probe_key,
        sample,
    },
};
use crate::{
    ids::ProbeKey,
    prober::{Command, Input, Operator, ProberSettings, Refusal},
    proto::cri::runtime_service_client::RuntimeServiceClient,
};

/// The longest that a test waits for anything.
const DEADLINE: Duration = Duration::from_secs(20);

/// A served API with stages that answer what they were given.
struct Api {
    _dir: tempfile::TempDir,
    socket: PathBuf,
    trace: Journal<dyn Shown>,
    events: Journal<EventView>,
    client: Client<UnixConnector, Empty<axum::body::Bytes>>,
    drain: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
}

impl Api {
    fn start(status: StatusView, probes: Vec<ProbeView>) -> Self {
        let (status_query, status_questions) = mpsc::channel(4);
        let (probes_query, probes_questions) = mpsc::channel(4);
        let (probe_query, probe_questions) = mpsc::channel(4);
        let (pods_query, pods_questions) = mpsc::channel(4);
        tokio::spawn(answer(status_questions, status));
        tokio::spawn(answer(probes_questions, probes.clone()));
        tokio::spawn(answer_by_name(probe_questions, probes));
        tokio::spawn(answer(pods_questions, vec![sample::pod()]));
        let (configuration_query, configuration_questions) = mpsc::channel(4);
        tokio::spawn(answer(configuration_questions, sample::configuration()));
        Self::serve(Sources {
            status: status_query,
            probes: probes_query,
            probe: probe_query,
            pods: pods_query,
            configuration: configuration_query,
            trace: Journal::new(1_000),
            events: Journal::new(1_000),
            metrics: Metrics::new("0.1.0"),
            operator: nobody(),
        })
    }

    /// With a prober that answers commands so.
    fn commanded(probes: Vec<ProbeView>, answer: fn(&ProbeKey, Command) -> Result<(), Refusal>) -> Self {
        let (prober, mut inputs) = mpsc::channel(4);
        tokio::spawn(async move {
            while let Some(input) = inputs.recv().await {
                match input {
                    Input::Command { key, command, answer: to } => to.send(answer(&key, command)).unwrap(),
                    Input::Containers(to) => to.send(Vec::new()).unwrap(),
                    other => panic!("{other:?}"),
                }
            }
        });
        let (status, _) = mpsc::channel(1);
        let (probes_query, questions) = mpsc::channel(4);
        tokio::spawn(self::answer(questions, probes.clone()));
        let (trace, events) = (Journal::new(1), Journal::new(1));
        let ((probe, named), pods) = (mpsc::channel(4), mpsc::channel(1).0);
        tokio::spawn(answer_by_name(named, probes));
        let (metrics, operator) = (Metrics::new("0.1.0"), operator(prober));
        let configuration = mpsc::channel(1).0;
        Self::serve(Sources {
            status,
            probes: probes_query,
            probe,
            pods,
            configuration,
            trace,
            events,
            metrics,
            operator,
        })
    }

    fn serve(sources: Sources) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("api.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let (trace, events) = (sources.trace.clone(), sources.events.clone());
        let (drain, drained) = oneshot::channel();
        let served = tokio::spawn(serve(listener, sources, async move {
            let _ = drained.await;
        }));
        Self { _dir: dir, socket, trace, events, client: Client::unix(), drain: Some(drain), served }
    }

    async fn ask(&self, method: &str, path: &str) -> Response<Incoming> {
        let uri: hyper::Uri = Uri::new(&self.socket, path).into();
        let request = Request::builder().method(method).uri(uri).body(Empty::new()).unwrap();
        tokio::time::timeout(DEADLINE, self.client.request(request)).await.unwrap().unwrap()
    }

    async fn get(&self, path: &str) -> (u16, String) {
        Self::whole(self.ask("GET", path).await).await
    }

    async fn post(&self, path: &str, body: &str) -> (u16, String) {
        let uri: hyper::Uri = Uri::new(&self.socket, path).into();
        let body = axum::body::Body::from(body.to_owned());
        let request = Request::builder().method("POST").uri(uri).body(body).unwrap();
        let client: Client<UnixConnector, axum::body::Body> = Client::unix();
        Self::whole(tokio::time::timeout(DEADLINE, client.request(request)).await.unwrap().unwrap()).await
    }

    async fn whole(response: Response<Incoming>) -> (u16, String) {
        let code = response.status().as_u16();
        let body = tokio::time::timeout(DEADLINE, response.into_body().collect()).await.unwrap().unwrap();
        (code, String::from_utf8(body.to_bytes().to_vec()).unwrap())
    }

    async fn ids(&self, path: &str) -> Vec<String> {
        let (code, body) = self.get(path).await;
        assert_eq!(code, 200, "{path}: {body}");
        serde_json::from_str::<Vec<ProbeView>>(&body).unwrap().into_iter().map(|probe| probe.id).collect()
    }

    async fn drained(mut self) {
        self.drain.take();
        tokio::time::timeout(DEADLINE, self.served).await.unwrap().unwrap();
    }
}

async fn answer<T: Clone>(mut questions: mpsc::Receiver<oneshot::Sender<T>>, answer: T) {
    while let Some(question) = questions.recv().await {
        let _ = question.send(answer.clone());
    }
}

/// An operator whose prober is gone.
fn nobody() -> Operator {
    operator(mpsc::channel(1).0)
}

/// An operator of this prober, before a runtime that is never there.
fn operator(prober: mpsc::Sender<Input>) -> Operator {
    let channel = tonic::transport::Endpoint::from_static("http://nowhere").connect_lazy();
    let settings = watch::channel(ProberSettings::default()).1;
    Operator::new(prober, RuntimeServiceClient::new(channel), settings)
}

/// The last of them that has the name, with all that the sample has.
async fn answer_by_name(
    mut questions: mpsc::Receiver<(ProbeName, oneshot::Sender<Option<ProbeDetailView>>)>,
    probes: Vec<ProbeView>,
) {
    while let Some((name, question)) = questions.recv().await {
        let name = name.to_string();
        let named = probes.iter().rev().find(|probe| probe.id == name || probe.key == name);
        let detail = named.map(|probe| ProbeDetailView {
            probe: probe.clone(),
            events: Vec::new(),
            ..sample::detail()
        });
        let _ = question.send(detail);
    }
}

/// Reads a stream line by line.
struct Lines {
    body: Incoming,
    rest: Vec<u8>,
}

impl Lines {
    fn of(response: Response<Incoming>) -> Self {
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "application/x-ndjson");
        Self { body: response.into_body(), rest: Vec::new() }
    }

    /// The next line; `None` at the end.
    async fn next(&mut self) -> Option<serde_json::Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                let line: Vec<_> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::time::timeout(DEADLINE, self.body.frame()).await.unwrap()?;
            self.rest.extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
    }

    async fn methods(mut self) -> Vec<String> {
        let mut methods = Vec::new();
        while let Some(line) = self.next().await {
            methods.push(line["method"].as_str().unwrap().to_owned());
        }
        methods
    }
}

fn call(method: &str) -> CallView {
    CallView { method: method.to_owned(), ..sample::call() }
}

#[tokio::test]
async fn status_and_probes_are_what_the_stages_answer() {
    let api = Api::start(sample::status(), vec![sample::probe()]);
    let (code, body) = api.get("/v1/status").await;
    assert_eq!((code, serde_json::from_str::<StatusView>(&body).unwrap()), (200, sample::status()));
    let (code, body) = api.get("/v1/probes").await;
    assert_eq!((code, serde_json::from_str::<Vec<ProbeView>>(&body).unwrap()), (200, vec![sample::probe()]));
    api.drained().await;
}

#[tokio::test]
async fn probes_are_filtered_and_come_in_the_order_of_names_and_types() {
    let mut newer = sample::named_probe("b", "web", "app", "startup");
    newer.pod_uid = "another".to_owned();
    newer.attempt = 9;
    let probes = vec![
        sample::named_probe("b", "web", "app", "liveness"),
        sample::named_probe("b", "web", "app", "startup"),
        sample::named_probe("b", "web", "app", "readiness"),
        sample::named_probe("b", "web", "app", "observed-1"),
        sample::named_probe("a", "web", "app", "liveness"),
        newer,
    ];
    let api = Api::start(sample::status(), probes);
    assert_eq!(
        api.ids("/v1/probes").await,
        [
            "a/web/app/liveness",
            "b/web/app/startup",
            "b/web/app/readiness",
            "b/web/app/liveness",
            "b/web/app/observed-1",
            "b/web/app/startup",
        ]
    );
    assert_eq!(api.ids("/v1/probes?namespace=a").await, ["a/web/app/liveness"]);
    assert_eq!(
        api.ids("/v1/probes?pod=w*&type=liveness").await,
        ["a/web/app/liveness", "b/web/app/liveness"]
    );
    assert_eq!(api.ids("/v1/probes?container=none").await, [""; 0]);
    let (code, body) = api.get("/v1/probes/b/web/app/startup").await;
    assert_eq!(code, 200);
    assert_eq!(
        serde_json::from_str::<ProbeView>(&body).unwrap().attempt,
        9,
        "the newest sandbox of that name"
    );
    api.drained().await;
}

#[tokio::test]
async fn names_with_slashes_and_more_are_found_percent_encoded() {
    let key = probe_key("uid-50% off", "ü?#&", "liveness");
    let odd = ProbeView { key, ..sample::named_probe("a/b", "50% off", "ü?#&", "liveness") };
    let api = Api::start(sample::status(), vec![odd.clone()]);
    let (code, body) = api.get("/v1/probes/a%2Fb/50%25%20off/%C3%BC%3F%23%26/liveness").await;
    assert_eq!((code, serde_json::from_str::<ProbeView>(&body).unwrap()), (200, odd.clone()));
    let (code, body) = api.get("/v1/probes/uid-50%25%20off/%C3%BC%3F%23%26/liveness").await;
    assert_eq!((code, serde_json::from_str::<ProbeDetailView>(&body).unwrap().probe.pod), (200, odd.pod));
    assert_eq!(api.ids("/v1/probes?namespace=a%2Fb&pod=50%25+off").await.len(), 1);
    let (code, body) = api.get("/v1/probes/a%2Fb/web/app/liveness").await;
    assert_eq!((code, body.as_str()), (404, r#"{"error":"no probe a%2Fb/web/app/liveness"}"#));
    let (code, _) = api.get("/v1/probes/%FF/web/app/liveness").await;
    assert_eq!(code, 400);
    api.drained().await;
}

#[tokio::test]
async fn one_probe_is_told_in_full_with_its_own_events() {
    let api = Api::start(sample::status(), vec![sample::probe()]);
    let mine = sample::event();
    for event in [
        EventView { pod_uid: "another".to_owned(), ..mine.clone() },
        EventView { container: "another".to_owned(), ..mine.clone() },
        EventView { probe: "readiness".to_owned(), ..mine.clone() },
        mine.clone(),
    ] {
        api.events.push(event);
    }
    let expected = ProbeDetailView { probe: sample::probe(), events: vec![mine], ..sample::detail() };
    for path in ["/v1/probes/default/web/app/liveness", "/v1/probes/uid-1/app/liveness"] {
        let (code, body) = api.get(path).await;
        assert_eq!(code, 200, "{path}: {body}");
        assert_eq!(serde_json::from_str::<ProbeDetailView>(&body).unwrap(), expected, "{path}");
    }
    api.drained().await;
}

#[tokio::test]
async fn pods_are_filtered_by_their_names() {
    let api = Api::start(sample::status(), Vec::new());
    for (query, pods) in
        [("", 1), ("?namespace=default&pod=w*", 1), ("?pod=other", 0), ("?namespace=shop", 0)]
    {
        let (code, body) = api.get(&format!("/v1/pods{query}")).await;
        assert_eq!(code, 200, "{query}: {body}");
        let expected = vec![sample::pod(); pods];
        assert_eq!(serde_json::from_str::<Vec<PodView>>(&body).unwrap(), expected, "{query}");
    }
    api.drained().await;
}

#[tokio::test]
async fn wrong_questions_are_refused_with_a_reason_in_json() {
    let api = Api::start(sample::status(), Vec::new());
    for (method, path, code, reason) in [
        ("GET", "/", 404, "nothing is at /"),
        ("GET", "/v1/pod", 404, "nothing is at /v1/pod"),
        ("GET", "/v1/pods?container=app", 400, "known are namespace, pod"),
        ("GET", "/v1/probes/default/web/app/liveness", 404, "no probe default/web/app/liveness"),
        ("GET", "/v1/probes/u%2F1/app/liveness", 404, "no probe u%2F1/app/liveness"),
        ("POST", "/v1/status", 405, "/v1/status cannot be asked with POST"),
        ("GET", "/v1/probes?podd=x", 400, "did you mean \"pod\"?"),
        ("GET", "/v1/probes?type=zzz", 400, "startup, readiness, liveness"),
        ("GET", "/v1/probes/%FF/web/app/liveness", 400, "the path is not UTF-8"),
        ("GET", "/v1/trace?slower=soon", 400, "not a duration: write one such as 250ms"),
        ("GET", "/v1/trace?last=-1", 400, "last"),
        ("GET", "/v1/events?follow=perhaps", 400, "follow"),
    ] {
        let response = api.ask(method, path).await;
        assert_eq!(response.status(), code, "{path}");
        assert_eq!(response.headers()["content-type"], "application/json", "{path}");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let error = serde_json::from_slice::<crate::report::view::ErrorView>(&body).unwrap().error;
        assert!(error.contains(reason), "{path}: {error}");
    }
    api.drained().await;
}

#[tokio::test]
async fn commands_reach_the_probe_that_is_meant_and_refusals_come_back_with_their_code() {
    let probes = vec![
        sample::probe(),
        sample::named_probe("a/b", "odd", "app", "liveness"),
        sample::named_probe("default", "late", "app", "readiness"),
        sample::named_probe("default", "bad", "app", "startup"),
        sample::named_probe("default", "gone", "app", "startup"),
        sample::named_probe("default", "web", "app", "observed-1"),
    ];
    let api = Api::commanded(probes, |key, command| match (key.pod.as_str(), command) {
        ("uid-1" | "uid-odd", _) => Ok(()),
        ("uid-late", Command::Trigger) => Err(Refusal::NotNow("start delay of 5s".to_owned())),
        ("uid-bad", _) => Err(Refusal::Invalid("exec.command: Required value".to_owned())),
        _ => Err(Refusal::Unknown),
    });
    for (path, code, told) in [
        ("default/web/app/liveness/pause", 200, r#"{"id":"default/web/app/liveness","#),
        ("default/web/app/liveness/resume", 200, r#"{"id":"default/web/app/liveness","#),
        ("uid-1/app/liveness/trigger", 200, r#"{"id":"default/web/app/liveness","#),
        ("a%2Fb/odd/app/liveness/pause", 200, r#"{"id":"a%2Fb/odd/app/liveness","#),
        (
            "default/late/app/readiness/trigger",
            409,
            "default/late/app/readiness: there is nothing to try now: start delay of 5s",
        ),
        (
            "default/bad/app/startup/pause",
            409,
            "default/bad/app/startup: the probe is invalid: exec.command: Required value",
        ),
        ("default/gone/app/startup/pause", 404, "default/gone/app/startup: there is no such probe"),
        ("default/web/app/observed-1/pause", 409, "a client's own probe"),
        (
            "default/wbe/app/liveness/pause",
            404,
            "no probe default/wbe/app/liveness; did you mean default/web/app/liveness?",
        ),
        ("uid-one/app/livenes/pause", 404, "no probe uid-one/app/livenes"),
        ("%FF/web/app/liveness/pause", 400, "the path is not UTF-8"),
        ("default/web/app/liveness/stop", 404, "nothing is at /v1/probes/default/web/app/liveness/stop"),
    ] {
        let (found, body) = api.post(&format!("/v1/probes/{path}"), "").await;
        assert_eq!(found, code, "{path}: {body}");
        assert!(body.contains(told), "{path}: {body}");
    }
    let (code, body) = api.get("/v1/probes/default/web/app/liveness/pause").await;
    assert_eq!((code, body.contains("cannot be asked with GET")), (405, true), "{body}");
    assert_eq!(api.get("/v1/probes/uid-late/app/readiness").await.0, 200, "by its key");
    let (code, body) = api.get("/v1/probes/default/wbe/app/liveness").await;
    assert_eq!((code, body.contains("did you mean default/web/app/liveness?")), (404, true), "{body}");
    api.drained().await;
}

#[tokio::test]
async fn a_run_that_cannot_be_is_refused_before_anything_is_tried() {
    let api = Api::commanded(Vec::new(), |_, _| Ok(()));
    for (body, code, told) in [
        ("", 400, "must be a map of keys and values"),
        ("{", 400, "not valid YAML or JSON"),
        (
            r#"{"container": "a/b/c"}"#,
            400,
            "must specify what to try: probe, exec, httpGet, tcpSocket or grpc",
        ),
        (
            r#"{"container": "a/b/c", "tcpSocket": {"port": 0}, "timeout": "x"}"#,
            400,
            r#"{"error":"tcpSocket.port: Invalid value: 0: must be between 1 and 65535, inclusive; timeout: Invalid value: \"x\": not a duration"#,
        ),
        (r#"{"container": "a/b", "probe": "liveness"}"#, 400, "write NAMESPACE/POD/CONTAINER"),
        (r#"{"container": "a/b/c", "probe": "liveness"}"#, 404, r#"{"error":"no container a/b/c"}"#),
        (&"x".repeat(64 * 1024 + 1), 413, "the body is longer than 65536 bytes"),
    ] {
        let (found, answer) = api.post("/v1/run", body).await;
        assert_eq!(found, code, "{answer}");
        assert!(answer.contains(told), "{answer}");
    }
    let (code, body) = api.get("/v1/run").await;
    assert_eq!((code, body.as_str()), (405, r#"{"error":"/v1/run cannot be asked with GET"}"#));
    api.drained().await;
}

#[tokio::test]
async fn a_prober_that_is_gone_is_told_to_operators() {
    let api = Api::start(sample::status(), vec![sample::probe()]);
    for (path, body) in [
        ("/v1/probes/default/web/app/liveness/pause", ""),
        ("/v1/run", r#"{"container": "a/b/c", "probe": "liveness"}"#),
    ] {
        let answer = api.post(path, body).await;
        assert_eq!(answer, (503, r#"{"error":"prober does not run"}"#.to_owned()), "{path}");
    }
    api.drained().await;
}

#[tokio::test]
async fn a_body_over_the_bound_is_refused_with_a_reason_in_json() {
    let api = Api::start(sample::status(), Vec::new());
    let mut stream = UnixStream::connect(&api.socket).await.unwrap();
    stream.write_all(b"POST /v1/status HTTP/1.1\r\nhost: x\r\ncontent-length: 65537\r\n\r\n").await.unwrap();
    let mut answer = vec![0; 4_096];
    let length = tokio::time::timeout(DEADLINE, stream.read(&mut answer)).await.unwrap().unwrap();
    let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
    assert!(
        answer.starts_with("HTTP/1.1 413 ") && answer.contains("content-type: application/json"),
        "{answer}"
    );
    assert!(answer.ends_with(r#"{"error":"the body is longer than 65536 bytes"}"#), "{answer}");
    api.drained().await;
}

#[tokio::test]
async fn readiness_follows_the_runtime_and_the_first_list() {
    let ready = sample::status();
    let mut away = sample::status();
    away.runtime.state = RuntimeState::Away;
    away.runtime.reason = "connection refused".to_owned();
    let mut unlisted = sample::status();
    unlisted.inventory.last_resync_at = None;
    let mut doubtful = sample::status();
    doubtful.config.errors = vec!["c.yaml:1:1: wrong".to_owned()];
    for (status, code, text, verbose) in [
        (ready, 200, "ok\n", "[+] runtime ok\n[+] inventory ok\n[+] config ok\n"),
        (
            away,
            503,
            "the runtime is away: connection refused\n",
            "[-] runtime failed: the runtime is away: connection refused\n[+] inventory ok\n[+] config ok\n",
        ),
        (
            unlisted,
            503,
            "the runtime's pods and containers have not been listed yet\n",
            "[+] runtime ok\n[-] inventory failed: the runtime's pods and containers have not been listed yet\n\
             [+] config ok\n",
        ),
        (
            doubtful,
            200,
            "ok\n",
            "[+] runtime ok\n[+] inventory ok\n\
             [!] config doubtful: c.yaml:1:1: wrong; the former configuration stays in force\n",
        ),
    ] {
        let api = Api::start(status, Vec::new());
        assert_eq!(api.get("/livez").await, (200, "ok\n".to_owned()));
        assert_eq!(api.get("/readyz").await, (code, text.to_owned()));
        assert_eq!(api.get("/readyz?verbose").await, (code, verbose.to_owned()));
        api.drained().await;
    }
}

#[tokio::test]
async fn a_stage_that_does_not_answer_costs_its_readers_an_answer_only() {
    let (status, mut stuck) = mpsc::channel(1);
    let (probes, gone) = mpsc::channel(1);
    drop(gone);
    let (probe, pods) = (mpsc::channel(1).0, mpsc::channel(1).0);
    let (trace, events) = (Journal::new(1), Journal::new(1));
    let (configuration, metrics, operator) = (mpsc::channel(1).0, Metrics::new("0.1.0"), nobody());
    let api =
        Api::serve(Sources { status, probes, probe, pods, configuration, trace, events, metrics, operator });
    let (code, body) = api.get("/v1/probes").await;
    assert_eq!((code, body.as_str()), (503, r#"{"error":"prober does not run"}"#));
    let (late, livez) = tokio::join!(api.get("/v1/status"), api.get("/livez"));
    assert_eq!(late, (503, r#"{"error":"status did not answer within 2s"}"#.to_owned()));
    assert_eq!(livez.0, 200);
    stuck.close();
    api.drained().await;
}

#[tokio::test]
async fn a_journal_is_told_from_the_newest_that_fit() {
    let api = Api::start(sample::status(), Vec::new());
    for method in ["Version", "ExecSync", "Exec", "Status", "ExecSync"] {
        push(&api.trace, call(method));
    }
    for (path, methods) in [
        ("/v1/trace", &["Version", "ExecSync", "Exec", "Status", "ExecSync"][..]),
        ("/v1/trace?last=2", &["Status", "ExecSync"]),
        ("/v1/trace?last=2&method=Exec*", &["Exec", "ExecSync"]),
        ("/v1/trace?last=0", &[]),
        ("/v1/trace?failed=true", &[]),
        ("/v1/events", &[]),
    ] {
        assert_eq!(Lines::of(api.ask("GET", path).await).methods().await, methods, "{path}");
    }
    api.drained().await;
}

#[tokio::test]
async fn a_follower_sees_what_comes_and_ends_with_the_daemon() {
    let api = Api::start(sample::status(), Vec::new());
    push(&api.trace, call("Version"));
    let mut live = Lines::of(api.ask("GET", "/v1/trace?follow=true&method=Exec*").await);
    let kept_too = Lines::of(api.ask("GET", "/v1/trace?follow=true&last=9").await);
    for method in ["Status", "ExecSync"] {
        push(&api.trace, call(method));
    }
    assert_eq!(live.next().await.unwrap()["method"], "ExecSync");
    api.drained().await;
    assert_eq!(live.next().await, None);
    assert_eq!(kept_too.methods().await, ["Version", "Status", "ExecSync"]);
}

#[tokio::test]
async fn a_slow_follower_is_told_what_it_missed_and_holds_up_nobody() {
    let api = Api::start(sample::status(), Vec::new());
    let mut slow = Lines::of(api.ask("GET", "/v1/trace?follow=true").await);
    let output = "x".repeat(64 * 1024);
    let total = 4_000;
    for n in 0..total {
        push(&api.trace, CallView { message: output.clone(), request_bytes: n, ..call("ExecSync") });
        if n % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(api.get("/livez").await.0, 200);
    let (mut seen, mut missed, mut newest) = (0, 0, 0);
    while seen + missed < total {
        let line = slow.next().await.unwrap();
        if let Some(lost) = line["missed"].as_u64() {
            missed += lost;
        } else {
            newest = line["requestBytes"].as_u64().unwrap();
            assert_eq!(newest, seen + missed, "records come in order, and each lost one is counted");
            seen += 1;
        }
    }
    assert!(missed > 0, "the reader was slower than the socket could hold");
    assert_eq!(newest, total - 1);
    api.drained().await;
}

#[tokio::test]
async fn a_client_that_breaks_off_or_talks_nonsense_harms_itself_only() {
    let api = Api::start(sample::status(), vec![sample::probe()]);
    for bytes in [&b"GET /v1/st"[..], b"\x16\x03\x01\x02\x00", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b""] {
        let mut stream = UnixStream::connect(&api.socket).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        tokio::time::timeout(DEADLINE, stream.read_to_end(&mut rest)).await.unwrap().unwrap();
    }
    let mut endless = UnixStream::connect(&api.socket).await.unwrap();
    let head = format!("GET /v1/status HTTP/1.1\r\nhost: x\r\nx: {}", "y".repeat(2 * MAX_HEAD));
    let _ = endless.write_all(head.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(DEADLINE, endless.read_to_end(&mut answer)).await.unwrap();
    assert_eq!(api.get("/v1/status").await.0, 200);
    api.drained().await;
}

#[tokio::test]
async fn a_drain_does_not_wait_for_ever_for_a_reader_that_stands_still() {
    let api = Api::start(sample::status(), vec![ProbeView { phase: Phase::Held, ..sample::probe() }; 20_000]);
    let mut still = UnixStream::connect(&api.socket).await.unwrap();
    still.write_all(b"GET /v1/probes HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    still.readable().await.unwrap();
    api.drained().await;
}

fn push(journal: &Journal<dyn Shown>, call: CallView) {
    let call: std::sync::Arc<dyn Shown> = std::sync::Arc::new(call);
    journal.push(call);
}
