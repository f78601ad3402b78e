//! Tries, targets and refusals, against a small gRPC server and a real listener.

mod health;
mod verdicts;

use std::{
    io::{Read, Write},
    net::TcpListener,
    sync::{OnceLock, atomic::Ordering},
    time::Duration,
};

use serde::Deserialize;

use super::*;
use crate::{
    clock,
    handler::exec::tests::{Reply, Runtime, exec},
    ids::ProbeKind,
    prober::{
        Input, Moment,
        fixtures::{container, planned, spec},
        roster::Roster,
    },
    results::Verdict,
    spec::HttpGet,
};

const LOCALHOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn exec_spec(command: &[&str]) -> ProbeSpec {
    let command = command.iter().map(|&word| word.to_owned()).collect();
    ProbeSpec { handler: Handler::Exec { command }, ..spec(ProbeKind::Liveness) }
}

fn tcp_spec(host: Option<&str>, port: PortRef) -> ProbeSpec {
    ProbeSpec {
        handler: Handler::TcpSocket { host: host.map(str::to_owned), port },
        ..spec(ProbeKind::Liveness)
    }
}

fn http_spec(host: Option<&str>, port: PortRef) -> ProbeSpec {
    let (host, path) = (host.map(str::to_owned), "/live".to_owned());
    let handler = Handler::HttpGet(HttpGet { scheme: Scheme::Http, host, port, path, headers: Vec::new() });
    ProbeSpec { handler, ..spec(ProbeKind::Liveness) }
}

fn grpc_spec(port: u16) -> ProbeSpec {
    ProbeSpec { handler: Handler::Grpc { port, service: String::new() }, ..spec(ProbeKind::Liveness) }
}

fn view(network: PodNetwork) -> Container {
    let view = container("web", "c1", 0);
    Container { pod: Arc::new(crate::inventory::pod::Pod { network, ..(*view.pod).clone() }), ..view }
}

/// With one port declared, as the kubelet writes it.
fn declaring(port: u16, mut view: Container) -> Container {
    let ports = format!(r#"[{{"containerPort":{port},"protocol":"TCP"}}]"#);
    view.annotations.insert("io.kubernetes.container.ports".to_owned(), ports);
    view
}

fn text(outcome: &AttemptOutcome) -> &str {
    &outcome.output
}

/// One row of `tests/data/prober/exec.json` and `retries.json`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ExecRow {
    id: String,
    rule: String,
    #[serde(default = "all_kinds")]
    kinds: Vec<ProbeKind>,
    #[serde(default = "true_command")]
    command: Vec<String>,
    #[serde(default = "a_second")]
    timeout_ms: u64,
    answers: Vec<ExecAnswer>,
    result: String,
    /// How often the runtime was asked.
    asked: u32,
    output: Option<String>,
    output_times: Option<(String, usize)>,
    /// Everything that is reported; `{type}` and `{Type}` are replaced by the probe's.
    events: Option<Vec<String>>,
    /// How much of the output the first event carries.
    event_output_bytes: Option<usize>,
    /// `initial`: the verdict is still that of the beginning.
    state: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", untagged)]
enum ExecAnswer {
    #[serde(rename_all = "camelCase")]
    Answer {
        exit_code: i32,
        stdout: String,
        stderr: String,
        stdout_times: Option<(String, usize)>,
    },
    Refusal {
        code: String,
    },
}

fn all_kinds() -> Vec<ProbeKind> {
    ProbeKind::ALL.to_vec()
}

fn true_command() -> Vec<String> {
    vec!["true".to_owned()]
}

fn a_second() -> u64 {
    1000
}

impl From<ExecAnswer> for Reply {
    fn from(answer: ExecAnswer) -> Self {
        match answer {
            ExecAnswer::Answer { exit_code, stdout, stderr, stdout_times } => {
                let stdout = stdout_times.map_or(stdout, |(text, times)| text.repeat(times));
                Self::Answer { exit_code, stdout, stderr }
            }
            ExecAnswer::Refusal { code } => {
                let codes = (0..17).map(tonic::Code::from);
                Self::Refusal(codes.into_iter().find(|known| format!("{known:?}") == code).expect("a code"))
            }
        }
    }
}

async fn play(rows: &str) {
    let rows: Vec<ExecRow> = serde_json::from_str(rows).unwrap();
    for row in rows {
        let replies: Arc<[Reply]> = row.answers.into_iter().map(Reply::from).collect();
        // By sessions, a command goes to ExecSync where there are none, and the first time.
        let modes = [ExecModeSetting::Sync, ExecModeSetting::Session];
        for (kind, exec_mode) in row.kinds.iter().flat_map(|kind| modes.map(|mode| (*kind, mode))) {
            let reported = format!("{} {kind} {exec_mode:?}: {}", row.id, row.rule);
            let (exec, counter) = exec(Runtime::Follows(replies.clone()));
            let handlers = Handlers { exec, exec_mode, node_ip: None };
            let command: Vec<_> = row.command.iter().map(String::as_str).collect();
            let timeout = Duration::from_millis(row.timeout_ms);
            let spec = ProbeSpec { kind, timeout, ..exec_spec(&command) };

            let now = Moment::now();
            let mut roster = Roster::new(&ProberSettings::default(), now);
            let view = Arc::new(container("web", "c1", 0));
            roster.accept(Input::Container { view, probes: vec![planned(spec)] }, now);
            let [job] = &roster.advance(now)[..] else { panic!("{reported}: one attempt") };
            let outcome = handlers.attempt(&job.spec, &job.view, &job.variables, &job.ports).await;

            assert_eq!(outcome.result.as_str(), row.result, "{reported}");
            assert_eq!(counter.load(Ordering::Relaxed), row.asked, "{reported}: how often it was asked");
            let output = row.output_times.as_ref().map(|(text, times)| text.repeat(*times));
            if let Some(output) = output.or_else(|| row.output.clone()) {
                assert_eq!(text(&outcome), output, "{reported}");
            }
            roster.finish(&job.key, Some(outcome), now);
            let events: Vec<_> = roster.take_events().into_iter().map(|event| event.message).collect();
            if let Some(expected) = &row.events {
                let filled =
                    |event: &String| event.replace("{Type}", kind.title()).replace("{type}", kind.as_str());
                assert_eq!(events, expected.iter().map(filled).collect::<Vec<_>>(), "{reported}");
            }
            if let Some(bytes) = row.event_output_bytes {
                assert_eq!(
                    events[0].len(),
                    kind.title().len() + " probe failed: ".len() + bytes,
                    "{reported}"
                );
            }
            if let Some(state) = &row.state {
                assert_eq!(state, "initial", "{reported}");
                assert_eq!(roster.statuses(now)[0].state, Verdict::initial(kind), "{reported}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_runtime_answers_is_judged_as_the_kubelet_judges() {
    play(include_str!("../../../tests/data/prober/exec.json")).await;
}

#[tokio::test(start_paused = true)]
async fn only_an_error_is_tried_again_and_three_times_at_most() {
    play(include_str!("../../../tests/data/prober/retries.json")).await;
}

#[tokio::test(start_paused = true)]
async fn an_error_is_tried_once_where_the_next_attempt_comes_within_a_second() {
    for (period, tries) in [(999, 1), (1000, 3)] {
        let (exec, asked) = exec(Runtime::Refuses(tonic::Code::Unknown));
        let spec = ProbeSpec { period: Duration::from_millis(period), ..exec_spec(&["true"]) };
        let handlers = Handlers { exec, exec_mode: ExecModeSetting::Sync, node_ip: None };
        let outcome = handlers
            .attempt(&spec, &container("web", "c1", 0), &Variables::default(), &OnceLock::new())
            .await;
        assert_eq!((outcome.tries, asked.load(Ordering::Relaxed)), (tries, tries), "{period} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_probes_own_mode_takes_precedence_over_the_setting_unless_that_is_never() {
    let first = Some(ExecRoute::Fallback(WhySync::FirstAttempt));
    let off = Some(ExecRoute::Fallback(WhySync::Off));
    for (setting, own, route) in [
        (ExecModeSetting::Sync, None, Some(ExecRoute::Sync)),
        (ExecModeSetting::Sync, Some(ExecMode::Session), first),
        (ExecModeSetting::Session, None, first),
        (ExecModeSetting::Session, Some(ExecMode::Sync), Some(ExecRoute::Sync)),
        (ExecModeSetting::Never, None, Some(ExecRoute::Sync)),
        (ExecModeSetting::Never, Some(ExecMode::Sync), Some(ExecRoute::Sync)),
        (ExecModeSetting::Never, Some(ExecMode::Session), off),
    ] {
        let (exec, asked) = exec(Runtime::TellsTheCommand);
        let spec = ProbeSpec { exec_mode: own, ..exec_spec(&["true"]) };
        let handlers = Handlers { exec, exec_mode: setting, node_ip: None };
        let outcome = handlers
            .attempt(&spec, &container("web", "c1", 0), &Variables::default(), &OnceLock::new())
            .await;
        assert_eq!(outcome.route, route, "{setting:?}, {own:?}");
        assert!(asked.load(Ordering::Relaxed) > 0, "ExecSync decided: {setting:?}, {own:?}");
    }
}

#[tokio::test]
async fn an_attempt_is_small_as_it_is_moved_several_times_before_it_begins() {
    let (exec, _) = exec(Runtime::Refuses(tonic::Code::Unknown));
    let (handlers, view, spec) = (
        Handlers { exec, exec_mode: ExecModeSetting::Sync, node_ip: None },
        container("web", "c1", 0),
        exec_spec(&["true"]),
    );
    let (variables, ports) = (Variables::default(), OnceLock::new());
    let attempt = handlers.judge(&spec, &view, &variables, &ports);
    assert!(size_of_val(&attempt) <= 4096, "{} bytes", size_of_val(&attempt));
}

/// One row of `tests/data/prober/tcp.json`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct TcpRow {
    id: String,
    rule: String,
    peer: String,
    timeout_ms: u64,
    result: String,
    output: String,
}

/// A peer that behaves so, for as long as what keeps it is kept.
async fn peer(name: &str) -> (SocketAddr, Box<dyn std::any::Any>) {
    let bind = |ip: &str| TcpListener::bind(format!("{ip}:0")).unwrap();
    match name {
        "closed" => (bind("127.0.0.1").local_addr().unwrap(), Box::new(())),
        "closed on ::1" => ("[::1]:1".parse().unwrap(), Box::new(())),
        // It is not asked, so it answers nothing.
        "answers 500" | "named" => {
            let listener = bind("127.0.0.1");
            (listener.local_addr().unwrap(), Box::new(listener))
        }
        // A listener whose backlog is full drops further SYNs: the kernel's own silent peer.
        "silent" => {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let listener = socket.listen(1).unwrap();
            let address = listener.local_addr().unwrap();
            let mut held = Vec::new();
            let patience = Duration::from_millis(100);
            while let Ok(Ok(stream)) =
                tokio::time::timeout(patience, tokio::net::TcpStream::connect(address)).await
            {
                held.push(stream);
                assert!(held.len() < 16, "the backlog never fills");
            }
            (address, Box::new((listener, held)))
        }
        other => panic!("no such peer: {other}"),
    }
}

#[tokio::test]
async fn a_connection_is_judged_as_the_kubelet_judges() {
    let rows: Vec<TcpRow> =
        serde_json::from_str(include_str!("../../../tests/data/prober/tcp.json")).unwrap();
    for row in rows {
        let (address, _kept) = peer(&row.peer).await;
        let port = match &*row.peer {
            "named" => PortRef::Name("missing".to_owned()),
            _ => PortRef::Number(address.port()),
        };
        let handlers =
            Handlers { exec: exec(Runtime::Hangs).0, exec_mode: ExecModeSetting::Sync, node_ip: None };
        let spec = ProbeSpec { timeout: Duration::from_millis(row.timeout_ms), ..tcp_spec(None, port) };
        let outcome = handlers
            .attempt(
                &spec,
                &view(PodNetwork::Pod(vec![address.ip()])),
                &Variables::default(),
                &OnceLock::new(),
            )
            .await;
        let output = row
            .output
            .replace("{address}", &address.to_string())
            .replace("{port}", &address.port().to_string());
        assert_eq!(
            (outcome.result.as_str(), text(&outcome)),
            (&*row.result, &*output),
            "{}: {}",
            row.id,
            row.rule
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_runtime_is_not_asked_again_so_that_the_place_is_free_at_once() {
    let (exec, asked) = exec(Runtime::Hangs);
    let began = clock::now();
    let handlers = Handlers { exec, exec_mode: ExecModeSetting::Sync, node_ip: None };
    let outcome = handlers
        .attempt(&exec_spec(&["true"]), &container("web", "c1", 0), &Variables::default(), &OnceLock::new())
        .await;
    assert_eq!(
        (outcome.result, outcome.is_unanswered, text(&outcome)),
        (
            AttemptResult::Error,
            true,
            "no answer within 6s (timeout 1s, grace 5s): the command, or a child of it, keeps its output open"
        )
    );
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    assert_eq!((clock::now() - began).as_secs(), 6, "1 s of timeout and 5 s of grace");
}

#[tokio::test(start_paused = true)]
async fn a_command_with_variables_is_not_run_before_they_are_known() {
    let (exec, asked) = exec(Runtime::Refuses(tonic::Code::NotFound));
    let handlers = Handlers { exec, exec_mode: ExecModeSetting::Sync, node_ip: None };
    let outcome = handlers
        .attempt(
            &exec_spec(&["cat", "$(FILE)"]),
            &container("web", "c1", 0),
            &Variables::default(),
            &OnceLock::new(),
        )
        .await;
    assert_eq!((outcome.result, asked.load(Ordering::Relaxed)), (AttemptResult::Error, 0));
}

#[tokio::test]
async fn a_pod_is_dialled_at_its_own_address_or_at_the_nodes_or_not_at_all() {
    let listener = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let number = listener.local_addr().unwrap().port();
    let port = PortRef::Number(number);
    let (success, error) = (AttemptResult::Success, AttemptResult::Error);
    let rows = [
        ("its own", PodNetwork::Pod(vec![LOCALHOST]), None, success),
        ("the node's", PodNetwork::Host, Some(LOCALHOST), success),
        ("the node's, which is not known", PodNetwork::Host, None, error),
        ("unknown: never loopback", PodNetwork::Unknown, Some(LOCALHOST), error),
    ];
    for (name, network, node_ip, result) in rows {
        let handlers = Handlers { exec: exec(Runtime::Hangs).0, exec_mode: ExecModeSetting::Sync, node_ip };
        let spec = ProbeSpec { timeout: Duration::from_secs(5), ..tcp_spec(None, port.clone()) };
        let outcome = handlers
            .attempt(&spec, &declaring(number, view(network)), &Variables::default(), &OnceLock::new())
            .await;
        assert_eq!(outcome.result, result, "{name}: {}", text(&outcome));
    }
}

#[tokio::test]
async fn a_pod_in_the_nodes_network_aims_at_no_port_that_its_container_does_not_declare() {
    let listener = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let number = listener.local_addr().unwrap().port();
    let handlers =
        Handlers { exec: exec(Runtime::Hangs).0, exec_mode: ExecModeSetting::Sync, node_ip: Some(LOCALHOST) };
    let other = declaring(number ^ 1, view(PodNetwork::Host));
    for port in [PortRef::Number(number), PortRef::Name(number.to_string())] {
        for view in [&view(PodNetwork::Host), &other] {
            let outcome = handlers
                .attempt(&tcp_spec(None, port.clone()), view, &Variables::default(), &OnceLock::new())
                .await;
            assert_eq!(outcome.result, AttemptResult::Error, "{port:?}");
            assert!(
                text(&outcome).starts_with(&format!("the container does not declare port {number}:")),
                "{}",
                text(&outcome)
            );
        }
    }
}

#[tokio::test]
async fn declared_ports_are_read_by_the_first_attempt_that_needs_them() {
    let listener = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let number = listener.local_addr().unwrap().port();
    let handlers =
        Handlers { exec: exec(Runtime::Hangs).0, exec_mode: ExecModeSetting::Sync, node_ip: Some(LOCALHOST) };
    let (view, ports) = (declaring(number, view(PodNetwork::Host)), OnceLock::new());
    let by_rule = ProbeSpec { reach: Reach::Any, ..tcp_spec(None, PortRef::Number(number)) };
    for (spec, is_read) in [(by_rule, false), (tcp_spec(None, PortRef::Number(number)), true)] {
        let tried = handlers.attempt(&spec, &view, &Variables::default(), &ports).await;
        assert_eq!((tried.result, ports.get().is_some()), (AttemptResult::Success, is_read));
    }
    let read_elsewhere = OnceLock::from(DeclaredPorts::default());
    let spec = tcp_spec(None, PortRef::Number(number));
    let tried = handlers.attempt(&spec, &view, &Variables::default(), &read_elsewhere).await;
    assert_eq!(tried.result, AttemptResult::Error, "they are not read again");
}

#[tokio::test]
async fn an_operators_rule_may_aim_at_any_port_of_a_pod_in_the_nodes_network() {
    let listener = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let number = listener.local_addr().unwrap().port();
    let handlers =
        Handlers { exec: exec(Runtime::Hangs).0, exec_mode: ExecModeSetting::Sync, node_ip: Some(LOCALHOST) };
    let spec = ProbeSpec { reach: Reach::Any, ..tcp_spec(None, PortRef::Number(number)) };
    let outcome =
        handlers.attempt(&spec, &view(PodNetwork::Host), &Variables::default(), &OnceLock::new()).await;
    assert_eq!(outcome.result, AttemptResult::Success, "{}", text(&outcome));
}

#[tokio::test]
async fn a_host_is_dialled_instead_of_the_pod_by_address_or_by_name() {
    let listener = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let number = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let mut hosts = Vec::new();
        for stream in listener.incoming().take(4) {
            let (mut stream, mut request) = (stream.unwrap(), [0; 4096]);
            let length = stream.read(&mut request).unwrap();
            // A tcpSocket probe says nothing.
            if length > 0 {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                hosts.extend(request.lines().nth(1).map(str::to_owned));
            }
        }
        hosts
    });
    let handlers = Handlers { exec: exec(Runtime::Hangs).0, exec_mode: ExecModeSetting::Sync, node_ip: None };
    for host in ["127.0.0.1", "localhost"] {
        for spec in
            [tcp_spec(Some(host), PortRef::Number(number)), http_spec(Some(host), PortRef::Number(number))]
        {
            let spec = ProbeSpec { timeout: Duration::from_secs(5), ..spec };
            let outcome = handlers
                .attempt(&spec, &view(PodNetwork::Unknown), &Variables::default(), &OnceLock::new())
                .await;
            assert_eq!(outcome.result, AttemptResult::Success, "{host}: {}", text(&outcome));
        }
    }
    let hosts = server.join().unwrap();
    assert_eq!(hosts, [format!("Host: 127.0.0.1:{number}"), format!("Host: localhost:{number}")]);
}

#[tokio::test]
async fn a_server_is_asked_at_the_pods_address_and_its_stalling_body_is_an_error_three_times() {
    let listener = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let ends: [&[u8]; 4] = [b"ok", b"", b"", b""];
        ends.map(|body| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n").unwrap();
            stream.write_all(body).unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        })
    });
    let spec = http_spec(None, PortRef::Number(address.port()));
    let spec = ProbeSpec { timeout: Duration::from_secs(5), ..spec };
    let handlers = Handlers { exec: exec(Runtime::Hangs).0, exec_mode: ExecModeSetting::Sync, node_ip: None };
    let view = view(PodNetwork::Pod(vec![LOCALHOST]));
    let outcome = handlers.attempt(&spec, &view, &Variables::default(), &OnceLock::new()).await;
    assert_eq!((outcome.result, text(&outcome)), (AttemptResult::Success, "ok"));
    let outcome = handlers.attempt(&spec, &view, &Variables::default(), &OnceLock::new()).await;
    assert_eq!((outcome.result, text(&outcome)), (AttemptResult::Error, "unexpected EOF"));
    let requests = server.join().unwrap();
    assert!(
        requests[0]
            .starts_with(&format!("GET /live HTTP/1.1\r\nHost: {address}\r\nUser-Agent: kube-probe/1.36"))
    );
}

#[tokio::test]
async fn what_cannot_be_dialled_is_an_error_that_says_why() {
    let handlers = Handlers { exec: exec(Runtime::Hangs).0, exec_mode: ExecModeSetting::Sync, node_ip: None };
    let rows = [
        (tcp_spec(None, PortRef::Name("http".to_owned())), "the container declares no port named \"http\""),
        (grpc_spec(80), "the pod's address is not known"),
        (http_spec(None, PortRef::Name("http".to_owned())), "the container declares no port named \"http\""),
    ];
    for (spec, reason) in rows {
        let outcome = handlers
            .attempt(&spec, &view(PodNetwork::Unknown), &Variables::default(), &OnceLock::new())
            .await;
        assert_eq!((outcome.result, text(&outcome)), (AttemptResult::Error, reason), "F30, H10");
    }
}

#[tokio::test]
async fn a_literal_command_is_run_as_it_is_written_and_needs_no_environment() {
    let command = ["sh", "-c", "test $$ = $(A) || echo $(B)"];
    let handlers =
        Handlers { exec: exec(Runtime::TellsTheCommand).0, exec_mode: ExecModeSetting::Sync, node_ip: None };
    let spec = ProbeSpec { is_literal: true, ..exec_spec(&command) };
    let view = container("web", "c1", 0);
    assert_eq!(
        text(&handlers.attempt(&spec, &view, &Variables::default(), &OnceLock::new()).await),
        command.join("\n")
    );
}
