//! The program as people run it: arguments and a daemon in, text and exit codes out. The daemon here is the real API
//! over stages that answer what they were given.
#![allow(clippy::unwrap_used)]

use std::{
    io::{BufRead, BufReader, Read},
    os::unix::net::UnixListener,
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::Arc,
    time::Duration,
};

use criprobe::{
    prober::{Command as ProbeCommand, Input, Operator, ProberSettings, Refusal},
    proto::cri::runtime_service_client::RuntimeServiceClient,
    report::{
        Query, Shown, Sources, api,
        journal::Journal,
        metrics::Metrics,
        view::{CallView, EventView, ProbeView, StatusView},
    },
};
use tokio::{
    runtime::Runtime,
    sync::{mpsc, oneshot, watch},
};

const STATUS: &str = r#"{"version":"0.1.0","pid":7,"startedAt":"2026-11-20T10:00:00.000Z","uptimeSeconds":1.0,
 "listen":"unix:///l","api":"unix:///a","runtime":{"endpoint":"unix:///r","name":"containerd","version":"2.0.1",
 "state":"ok","since":"2026-11-20T10:00:00.000Z","reason":"","eventSource":"containerd"},
 "connections":{"open":1,"total":2,"blind":[]},"calls":{"inFlight":0,"total":3},"gaps":0,
 "inventory":{"pods":1,"containers":1,"running":1,"lastResyncAt":null,"resyncs":0},
 "probes":{"total":0,"states":{},"phases":{}},"config":{"files":[],"workers":64,"execWorkers":16,
 "execGraceSeconds":5.0,"minPeriodSeconds":0.1,"maxPerPod":32,"maxPerNode":5000}}"#;

const PROBE: &str = r#"{"id":"default/web/app/liveness","key":"u/app/liveness","namespace":"default","pod":"web",
 "podUid":"u","sandboxId":"s","container":"app","containerId":"c","attempt":0,"type":"liveness","handler":"exec",
 "source":"annotation","phase":"probing","state":"success","reason":"","since":"2026-11-20T10:00:00.000Z",
 "periodSeconds":10.0,"nextAt":null,"run":{"result":"success","count":1},
 "counts":{"success":1,"warning":0,"failure":0,"error":0},"last":null,"onFailure":"report","shadowed":[]}"#;

const CALL: &str = r#"{"at":"2026-11-20T10:00:00.000Z","durationSeconds":0.027,"service":"runtime.v1.RuntimeService",
 "method":"ExecSync","code":"OK","message":"","end":"complete","peer":{"pid":812,"uid":0,"comm":"kubelet"},
 "requestBytes":91,"responseBytes":12,"namespace":"default","pod":"web","container":"app","containerId":"c",
 "exec":{"command":["cat","/tmp/healthy"],"timeoutSeconds":1,"exitCode":0,"stdoutBytes":0,"stderrBytes":0},
 "traceparent":""}"#;

const EVENT: &str = r#"{"at":"2026-11-20T10:00:00.000Z","type":"Warning","reason":"Unhealthy",
 "message":"Liveness probe failed: gone","namespace":"default","pod":"web","podUid":"u","container":"app",
 "containerId":"c","probe":"liveness"}"#;

/// A daemon's API on a socket in a folder of its own.
struct Daemon {
    dir: tempfile::TempDir,
    /// Taken to end the daemon.
    runtime: Option<Runtime>,
    probes: watch::Sender<Vec<ProbeView>>,
    trace: Journal<dyn Shown>,
    events: Journal<EventView>,
}

impl Daemon {
    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let _entered = runtime.enter();
        let status: StatusView = serde_json::from_str(STATUS).unwrap();
        let (probes, shown) = watch::channel(vec![probe()]);
        let (trace, events) = (Journal::new(1_000), Journal::new(1_000));
        let sources = Sources {
            status: stage(move || status.clone()),
            probes: stage(move || shown.borrow().clone()),
            probe: mpsc::channel(1).0,
            pods: nobody(),
            configuration: nobody(),
            trace: trace.clone(),
            events: events.clone(),
            metrics: Metrics::new("0.1.0"),
            operator: operator(prober()),
        };
        let listener = tokio::net::UnixListener::bind(dir.path().join("api.sock")).unwrap();
        runtime.spawn(api::serve(listener, sources, std::future::pending()));
        Self { dir, runtime: Some(runtime), probes, trace, events }
    }

    fn push(&self, call: CallView) {
        let call: Arc<dyn Shown> = Arc::new(call);
        self.trace.push(call);
    }

    fn run(&self, arguments: &str) -> Output {
        criprobe(&self.dir.path().join("api.sock"), arguments).output().unwrap()
    }

    /// Starts a verb that stays, with its output piped to us.
    fn follow(&self, arguments: &str) -> (Child, BufReader<std::process::ChildStdout>) {
        let mut command = criprobe(&self.dir.path().join("api.sock"), arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        (child, lines)
    }
}

/// A stage's task, and the channel to ask it on.
fn stage<T: Send + 'static>(answer: impl Fn() -> T + Send + 'static) -> Query<T> {
    let (query, mut questions) = mpsc::channel::<oneshot::Sender<T>>(4);
    tokio::spawn(async move {
        while let Some(question) = questions.recv().await {
            let _ = question.send(answer());
        }
    });
    query
}

fn criprobe(api: &Path, arguments: &str) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("criprobe"));
    command.args(arguments.split(' ').filter(|word| !word.is_empty()));
    command.env_clear().env("CRIPROBE_API", api).stdin(Stdio::null());
    command
}

fn probe() -> ProbeView {
    serde_json::from_str(PROBE).unwrap()
}

fn failing() -> ProbeView {
    serde_json::from_str(&PROBE.replace(r#""state":"success""#, r#""state":"failure""#)).unwrap()
}

fn call() -> CallView {
    serde_json::from_str(CALL).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn line(lines: &mut impl BufRead) -> String {
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    line
}

/// Sends Ctrl-C, and waits for the end: exit code and standard error.
fn interrupt(mut child: Child) -> (Option<i32>, String) {
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    end(&mut child)
}

fn end(child: &mut Child) -> (Option<i32>, String) {
    let code = child.wait().unwrap().code();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    (code, stderr)
}

#[test]
fn wrong_arguments_end_with_2_and_one_line() {
    for (arguments, says) in [
        ("evnts", "a similar subcommand exists: 'events'"),
        ("probes --colour", "unexpected argument '--colour' found"),
        ("probes --type alive", "not a type: write one of startup, readiness, liveness"),
        ("status -o xml", "invalid value 'xml'"),
        (
            "--api http://localhost status",
            "--api: \"http://localhost\" is not a Unix socket: write unix:///PATH",
        ),
        ("--api api.sock status", "--api: \"api.sock\" is not an absolute path: write unix:///PATH"),
        ("--api= status", "--api: empty: write unix:///PATH"),
        (
            "trace --slower 5",
            "the unit is missing: write a duration such as 250ms, 5s or 1m30s; see 'criprobe trace --help'",
        ),
        (
            "pause web",
            "write NAMESPACE/POD/CONTAINER/TYPE, or POD_UID/CONTAINER/TYPE; see 'criprobe pause --help'",
        ),
        ("run a/b/c", "required arguments were not provided"),
        ("run a/b/c --http-get http://host/", "no host may be named, as the container's pod is asked"),
        ("serve -o json", "choose its form with --log-format; see 'criprobe serve --help'"),
        ("demo --api /a.sock", "choose its folder with --dir; see 'criprobe demo --help'"),
    ] {
        let output = criprobe(Path::new("/nowhere"), arguments).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {stderr}");
        assert!(stderr.starts_with("criprobe: ") && stderr.contains(says), "{arguments}: {stderr}");
        assert_eq!(
            (stderr.lines().count(), text(&output.stdout)),
            (1, String::new()),
            "{arguments}: {stderr}"
        );
    }
}

#[test]
fn help_and_version_end_with_0_and_no_verb_with_2() {
    for (arguments, code) in
        [("--help", 0), ("trace --help", 0), ("help trace", 0), ("--version", 0), ("", 2)]
    {
        let output = criprobe(Path::new("/nowhere"), arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments}");
        assert_eq!(output.stdout.is_empty(), code != 0, "{arguments}");
    }
}

#[test]
fn a_daemon_out_of_reach_ends_with_3_and_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing.sock");
    let dead = dir.path().join("dead.sock");
    drop(UnixListener::bind(&dead).unwrap());
    let foreign = dir.path().join("foreign.sock");
    let listener = UnixListener::bind(&foreign).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ =
                std::io::Write::write_all(&mut stream.unwrap(), b"\0\0\x06\x04\0\0\0\0\0\0\x05\0\0\x40\0");
        }
    });
    for (socket, says) in [
        (&missing, "there is no such socket; is 'criprobe serve' running?"),
        (&dead, "nobody listens there; is 'criprobe serve' running?"),
        (&foreign, "is that criprobe's API socket?"),
    ] {
        for verb in [
            "status",
            "probes",
            "probes -w",
            "trace",
            "events",
            "pause a/b/c/liveness",
            "resume a/b/c/liveness",
            "trigger a/b/liveness",
            "run a/b/c --tcp 80",
        ] {
            let output = criprobe(socket, verb).output().unwrap();
            let stderr = text(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{verb}: {stderr}");
            let start = format!("criprobe: cannot reach the daemon at unix://{}: ", socket.display());
            assert!(stderr.starts_with(&start) && stderr.contains(says), "{stderr}");
            assert_eq!(stderr.lines().count(), 1, "{stderr}");
        }
    }
    let version = criprobe(&missing, "version -o json").output().unwrap();
    assert_eq!(version.status.code(), Some(0));
    assert!(text(&version.stdout).contains(r#""daemon": null"#));
}

#[test]
fn what_the_daemon_tells_is_printed_in_every_format() {
    let daemon = Daemon::start();
    daemon.push(call());
    daemon.events.push(serde_json::from_str::<EventView>(EVENT).unwrap());
    for (arguments, says) in [
        ("status", "containerd 2.0.1 at unix:///r, ok for"),
        ("status -o json", r#""eventSource": "containerd""#),
        ("status -o yaml", "eventSource: containerd"),
        ("probes", "default/web"),
        ("probes -o wide", "annotation"),
        ("probes -o yaml", "- id: default/web/app/liveness"),
        ("probes -n other", "no probes"),
        ("-o json probes -n other", "[]"),
        (
            "trace --last 5",
            "10:00:00.000Z OK               ExecSync           27ms kubelet[812] default/web/app cat",
        ),
        ("trace --last 5 -o yaml", "---\nat: "),
        (
            "events",
            "10:00:00.000Z Warning Unhealthy      default/web/app/liveness\n  └ Liveness probe failed: gone\n",
        ),
        ("events -o json", r#"{"at":"2026-11-20T10:00:00.000Z","type":"Warning","reason":"Unhealthy","#),
        ("version", "daemon   0.1.0, pid 7"),
    ] {
        let output = daemon.run(arguments);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()), "{arguments}");
        assert!(text(&output.stdout).contains(says), "{arguments}: {}", text(&output.stdout));
        assert!(!text(&output.stdout).contains('\u{1b}'), "no colours where there is no terminal");
    }
    let probes: Vec<ProbeView> = serde_json::from_slice(&daemon.run("probes -o json").stdout).unwrap();
    assert_eq!(probes, [probe()]);
    let trace = daemon.run("trace --last 1 --method Exec* -o json");
    assert_eq!(serde_json::from_slice::<CallView>(&trace.stdout).unwrap(), call());
    assert_eq!(text(&daemon.run("trace --last 1 --failed").stdout), "");
}

#[test]
fn what_an_operator_wants_is_done_or_refused_with_an_exit_code_that_tells_whose_fault_it_is() {
    let daemon = Daemon::start();
    let done = daemon.run("pause default/web/app/liveness");
    assert_eq!((done.status.code(), text(&done.stderr)), (Some(0), String::new()));
    assert_eq!(text(&done.stdout), "default/web/app/liveness: probing, success\n");
    let json = daemon.run("pause u/app/liveness -o json");
    assert_eq!(serde_json::from_slice::<ProbeView>(&json.stdout).unwrap(), probe());
    for (arguments, code, says) in [
        (
            "trigger default/web/app/liveness",
            1,
            "default/web/app/liveness: there is nothing to try now: paused by an operator",
        ),
        (
            "resume default/wbe/app/liveness",
            2,
            "no probe default/wbe/app/liveness; did you mean default/web/app/liveness?",
        ),
        ("run default/web/app --probe liveness", 2, "no container default/web/app"),
        (
            "run default/web/app --grpc 0",
            2,
            "grpc.port: Invalid value: 0: must be between 1 and 65535, inclusive",
        ),
    ] {
        let output = daemon.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments}");
        assert_eq!(text(&output.stderr), format!("criprobe: {says}\n"), "{arguments}");
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn a_check_ends_with_1_and_names_what_is_failing() {
    let daemon = Daemon::start();
    assert_eq!(daemon.run("probes --check").status.code(), Some(0));
    daemon.probes.send_replace(vec![failing()]);
    let output = daemon.run("probes --check");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "criprobe: 1 probe is failing: default/web/app/liveness\n");
    assert!(text(&output.stdout).contains("failure"));
    assert_eq!(daemon.run("probes --check --type readiness").status.code(), Some(0));
    assert_eq!(daemon.run("probes").status.code(), Some(0), "nobody asked");
}

#[test]
fn a_stage_that_is_gone_ends_with_1() {
    let mut daemon = Daemon::start();
    let (probes, gone) = mpsc::channel(1);
    drop(gone);
    let other = daemon.dir.path().join("other.sock");
    let runtime = daemon.runtime.as_mut().unwrap();
    let listener = {
        let _entered = runtime.enter();
        tokio::net::UnixListener::bind(&other).unwrap()
    };
    let (trace, events) = (Journal::new(1), Journal::new(1));
    let sources = {
        let _entered = runtime.enter();
        let (probe, operator) = (mpsc::channel(1).0, operator(mpsc::channel(1).0));
        Sources {
            status: nobody(),
            probes,
            probe,
            pods: nobody(),
            configuration: nobody(),
            trace,
            events,
            metrics: Metrics::new("0.1.0"),
            operator,
        }
    };
    runtime.spawn(api::serve(listener, sources, std::future::pending()));
    let output = criprobe(&other, "probes").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "criprobe: the daemon cannot tell: prober does not run\n");
}

/// A prober without containers, whose probes may be paused and do nothing else.
fn prober() -> mpsc::Sender<Input> {
    let (prober, mut inputs) = mpsc::channel(4);
    tokio::spawn(async move {
        while let Some(input) = inputs.recv().await {
            match input {
                Input::Command { command, answer, .. } => {
                    let refusal = Refusal::NotNow("paused by an operator".to_owned());
                    let done = if command == ProbeCommand::Pause { Ok(()) } else { Err(refusal) };
                    let _ = answer.send(done);
                }
                Input::Containers(answer) => {
                    let _ = answer.send(Vec::new());
                }
                other => panic!("{other:?}"),
            }
        }
    });
    prober
}

/// An operator of this prober, before a runtime that is never there.
fn operator(prober: mpsc::Sender<Input>) -> Operator {
    let channel = tonic::transport::Endpoint::from_static("http://nowhere").connect_lazy();
    let settings = watch::channel(ProberSettings::default()).1;
    Operator::new(prober, RuntimeServiceClient::new(channel), settings)
}

fn nobody<T>() -> Query<T> {
    mpsc::channel(1).0
}

#[test]
fn a_trace_is_live_until_ctrl_c() {
    let daemon = Daemon::start();
    daemon.push(call());
    let (child, mut lines) = daemon.follow("trace --follow --last 1 -o json");
    assert_eq!(serde_json::from_str::<CallView>(&line(&mut lines)).unwrap(), call(), "what was kept");
    let next = CallView { method: "Exec".to_owned(), ..call() };
    daemon.push(next.clone());
    assert_eq!(serde_json::from_str::<CallView>(&line(&mut lines)).unwrap(), next, "what came");
    assert_eq!(interrupt(child), (Some(0), String::new()));
}

#[test]
fn a_reader_that_leaves_ends_it_quietly() {
    let daemon = Daemon::start();
    daemon.push(call());
    let (mut child, mut lines) = daemon.follow("trace --last 1 --follow");
    line(&mut lines);
    drop(lines);
    // The first write after that fails; it may take one more for the pipe to tell.
    let has_ended = (0..4_000).any(|_| {
        daemon.push(call());
        std::thread::sleep(Duration::from_millis(5));
        child.try_wait().unwrap().is_some()
    });
    assert!(has_ended, "it still writes to nobody");
    assert_eq!(end(&mut child), (Some(0), String::new()));
}

#[test]
fn a_daemon_that_goes_ends_its_followers_with_3() {
    let mut daemon = Daemon::start();
    daemon.push(call());
    let (mut child, mut lines) = daemon.follow("trace --last 1 --follow");
    line(&mut lines);
    daemon.runtime.take().unwrap().shutdown_background();
    let (code, stderr) = end(&mut child);
    assert_eq!(code, Some(3));
    assert!(
        stderr.contains("ended the stream: it stopped or restarts") && stderr.lines().count() == 1,
        "{stderr}"
    );
}

#[test]
fn a_watch_tells_each_change_on_a_line_where_there_is_no_terminal() {
    let daemon = Daemon::start();
    let (child, mut lines) = daemon.follow("probes -w");
    assert!(line(&mut lines).ends_with(" default/web/app/liveness success probing\n"));
    daemon.probes.send_replace(vec![failing()]);
    assert!(line(&mut lines).ends_with(" success probing -> failure probing\n"));
    daemon.probes.send_replace(Vec::new());
    assert!(line(&mut lines).ends_with(" default/web/app/liveness gone\n"));
    assert_eq!(interrupt(child), (Some(0), String::new()));
}
