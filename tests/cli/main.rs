//! The program as people run it: arguments and a daemon in, text and exit codes out. The daemon here is the real API
//! over stages that answer what they were given.
#![allow(clippy::unwrap_used)]

mod answers;
mod arguments;
mod check;
mod completion;
mod live;
mod node;
mod streams;
#[path = "../support/terminal.rs"]
mod terminal;

use std::{
    io::{BufRead, BufReader, Read},
    os::unix::net::UnixListener,
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use criprobe::{
    clock,
    prober::{CommandRefusal, ProbeCommand, ProberHandle, ProberSettings, Question},
    redact::Redactor,
    report::{
        JournaledCall, Snapshot, Snapshots, Sources, api,
        journal::{Journal, JournalBounds},
        metrics::Format,
        name::ProbeName,
        top::TopFilter,
        view::{
            CallView, ConfigurationView, EventView, PodView, ProbeDetailView, ProbeView, RuntimeState,
            RuntimeView, StatusView, TopView,
        },
    },
    stage::{Asker, Unanswered},
};
use futures_util::{FutureExt, future::ready};
use tokio::{
    runtime::Runtime,
    sync::{mpsc, watch},
};

const STATUS: &str = r#"{"version":"0.1.0","pid":7,"startedAt":"2026-11-20T10:00:00.000Z","uptimeSeconds":1.0,
 "listen":"unix:///l","api":"unix:///a","runtime":{"endpoint":"unix:///r","name":"containerd","version":"2.0.1",
 "state":"ok","since":"2026-11-20T10:00:00.000Z","reason":"","eventSource":"containerd"},
 "connections":{"open":1,"total":2,"blind":[]},"calls":{"inFlight":0,"total":3},"gaps":0,
 "inventory":{"pods":1,"containers":1,"running":1,"lastResyncAt":"2026-11-20T10:00:00.000Z","resyncs":1},
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

const POD: &str = r#"{"namespace":"default","pod":"web","podUid":"u","sandboxId":"s","attempt":0,"sandboxReady":true,
 "ready":true,"reason":"","containers":[{"container":"app","containerId":"c0ffee","image":"busybox","state":"running",
 "exitCode":null,"createdAt":null,"startedAt":null,"started":true,"ready":true,"restarts":0,
 "probes":{"total":0,"states":{},"phases":{}}},{"container":"log","containerId":"d0d0","image":"busybox",
"state":"running","exitCode":null,"createdAt":null,"startedAt":null,"started":true,"ready":true,"restarts":0,
"probes":{"total":0,"states":{},"phases":{}}}]}"#;

const TOP: &str = r#"{"at":"2026-11-20T10:00:00.000Z","windowSeconds":300.0,"inFlight":{"total":1,"eventStreams":0,
 "calls":[{"began":"2026-11-20T10:00:00.000Z","ageSeconds":0.0,"method":"ExecSync","caller":{"pid":7,"uid":0,
 "comm":"crictl"},"namespace":"default","pod":"web","container":"app","exec":{"command":["sleep","60"]},
 "isProbe":false}]},"pods":[{"namespace":"default","pod":"web","isProbe":true,"calls":12,"failures":0,
 "totalSeconds":0.9,"p50Seconds":0.07,"p99Seconds":0.08},{"namespace":"default","pod":"db","isProbe":true,"calls":30,
 "failures":2,"totalSeconds":0.6,"p50Seconds":0.02,"p99Seconds":0.03}],"commands":[],"others":{"pods":[],
 "commands":[]}}"#;

/// A daemon's API on a socket in a folder of its own.
struct Daemon {
    dir: tempfile::TempDir,
    status: StatusView,
    /// Taken to end the daemon.
    runtime: Option<Runtime>,
    probes: watch::Sender<Vec<ProbeView>>,
    /// When a call began that is in flight, if one is.
    in_flight: watch::Sender<Option<Instant>>,
    trace: Journal<dyn JournaledCall>,
    events: Journal<EventView>,
}

impl Daemon {
    fn start() -> Self {
        Self::with(status())
    }

    fn with(status: StatusView) -> Self {
        let (probes, _) = watch::channel(vec![probe()]);
        let (trace, events) =
            (Journal::new(JournalBounds::records(1_000)), Journal::new(JournalBounds::records(1_000)));
        let dir = tempfile::tempdir().unwrap();
        let (in_flight, _) = watch::channel(None);
        let mut daemon = Self { dir, status, runtime: None, probes, in_flight, trace, events };
        daemon.serve();
        daemon
    }

    /// Starts to answer, or does so again.
    fn serve(&mut self) {
        let runtime = Runtime::new().unwrap();
        let socket = self.socket();
        let _ = std::fs::remove_file(&socket);
        {
            let _entered = runtime.enter();
            let sources = sources(
                Stages {
                    status: self.status.clone(),
                    probes: Some(self.probes.subscribe()),
                    in_flight: self.in_flight.subscribe(),
                },
                prober(),
            );
            let sources = Sources { trace: self.trace.clone(), events: self.events.clone(), ..sources };
            let listener = tokio::net::UnixListener::bind(socket).unwrap();
            runtime.spawn(api::serve(listener, sources, std::future::pending()));
        }
        self.runtime = Some(runtime);
    }

    fn socket(&self) -> std::path::PathBuf {
        self.dir.path().join("api.sock")
    }

    fn push(&self, call: CallView) {
        let call: Arc<dyn JournaledCall> = Arc::new(call);
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

/// What the daemon answers; without probes its prober does not run.
#[derive(Debug)]
struct Stages {
    status: StatusView,
    probes: Option<watch::Receiver<Vec<ProbeView>>>,
    in_flight: watch::Receiver<Option<Instant>>,
}

impl Snapshots for Stages {
    fn status(&self) -> Snapshot<'_, StatusView> {
        ready(Ok(self.status.clone())).boxed()
    }

    fn probes(&self) -> Snapshot<'_, Vec<ProbeView>> {
        let probes = self.probes.as_ref().map(|probes| probes.borrow().clone());
        ready(probes.ok_or(Unanswered::Stopped("prober"))).boxed()
    }

    fn probe(&self, name: ProbeName) -> Snapshot<'_, Option<ProbeDetailView>> {
        let Some(probes) = &self.probes else { return ready(Err(Unanswered::Stopped("prober"))).boxed() };
        let name = name.to_string();
        let probe = probes.borrow().iter().find(|probe| [&probe.id, &probe.key].contains(&&name)).cloned();
        let detail = probe.map(|probe| ProbeDetailView {
            probe,
            client: None,
            definition: None,
            acts: None,
            acted: vec![],
            history: vec![],
            changes: vec![],
            events: vec![],
        });
        ready(Ok(detail)).boxed()
    }

    fn pods(&self) -> Snapshot<'_, Vec<PodView>> {
        ready(Ok(vec![serde_json::from_str(POD).unwrap()])).boxed()
    }

    fn runtime(&self) -> RuntimeView {
        self.status.runtime.clone()
    }

    /// One call in flight while there is one, and two pods that cost something.
    fn top(&self, filter: TopFilter) -> Snapshot<'_, TopView> {
        let mut top: TopView = serde_json::from_str(TOP).unwrap();
        let began = *self.in_flight.borrow();
        top.window_seconds = filter.within().into();
        match began {
            Some(began) => top.in_flight.calls[0].age_seconds = (clock::now() - began).into(),
            None => (top.in_flight.total, top.in_flight.calls) = (0, Vec::new()),
        }
        ready(Ok(top)).boxed()
    }

    fn configuration(&self) -> Snapshot<'_, ConfigurationView> {
        ready(Err(Unanswered::Stopped("config"))).boxed()
    }

    fn metrics(&self, _: Format) -> Snapshot<'_, String> {
        ready(Err(Unanswered::Stopped("metrics"))).boxed()
    }
}

fn sources(stages: Stages, prober: ProberHandle) -> Sources {
    Sources {
        snapshots: Arc::new(stages),
        trace: Journal::new(JournalBounds::records(1_000)),
        events: Journal::new(JournalBounds::records(1_000)),
        prober,
        redactor: Redactor::default(),
        node: "node-1".into(),
    }
}

fn status() -> StatusView {
    serde_json::from_str(STATUS).unwrap()
}

fn criprobe(api: &Path, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_criprobe"));
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

/// A prober without containers, whose probes may be paused and do nothing else, before a runtime that is never there.
fn prober() -> ProberHandle {
    let (asker, mut questions) = Asker::channel("prober");
    tokio::spawn(async move {
        while let Some(question) = questions.recv().await {
            match question {
                Question::Command { command, answer, .. } => {
                    let refusal = CommandRefusal::NotNow("paused by an operator".to_owned());
                    let done = if matches!(command, ProbeCommand::Pause(_)) { Ok(()) } else { Err(refusal) };
                    let _ = answer.send(done);
                }
                Question::Trigger { answer, .. } => {
                    let refusal = CommandRefusal::NotNow("paused by an operator".to_owned());
                    let _ = answer.send(Err(refusal));
                }
                Question::Plans(answer) => {
                    let _ = answer.send(Arc::default());
                }
                other => panic!("{other:?}"),
            }
        }
    });
    let channel = tonic::transport::Endpoint::from_static("http://nowhere").connect_lazy();
    let settings = watch::channel(ProberSettings::default()).1;
    ProberHandle::new(mpsc::channel(1).0, asker, channel, settings)
}
