//! The API over a real socket, before stages that answer what they were given.

mod acting;
mod bounds;
mod health;
mod reading;
mod streams;

use std::{path::PathBuf, sync::Arc, time::Duration};

use axum::http::StatusCode;
use futures_util::{FutureExt, future::ready};
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
use crate::redact::Redactor;
use crate::report::{
    JournaledCall, Snapshot, Snapshots,
    journal::{Journal, JournalBounds},
    metrics::Format,
    name::ProbeName,
    top::TopFilter,
    view::{
        CallView, ConfigurationView, EventView, LateView, PodDetailView, PodView, ProbeDetailView,
        ProbePhase, ProbeView, RuntimeState, RuntimeView, StatusView, TopView, probe_key, sample,
    },
};
use crate::{
    ids::ProbeKey,
    prober::{CommandRefusal, ProbeCommand, ProberHandle, ProberSettings, Question, TriggerEnd},
    stage::{Asker, Unanswered},
};

/// The longest that a test waits for anything.
const DEADLINE: Duration = Duration::from_secs(20);

/// A served API with stages that answer what they were given.
struct Api {
    _dir: tempfile::TempDir,
    socket: PathBuf,
    trace: Journal<dyn JournaledCall>,
    events: Journal<EventView>,
    client: Client<UnixConnector, Empty<axum::body::Bytes>>,
    drain: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
}

impl Api {
    fn start(status: StatusView, probes: Vec<ProbeView>) -> Self {
        let (pods, configuration) = (Ok(vec![sample::pod()]), Ok(sample::configuration()));
        let snapshots = Fixed { status: Ok(status), probes: Ok(probes), pods, configuration };
        Self::before(snapshots, prober(Asker::channel("prober").0))
    }

    /// With a prober that answers commands so.
    fn commanded(
        probes: Vec<ProbeView>,
        answer: fn(&ProbeKey, ProbeCommand) -> Result<(), CommandRefusal>,
    ) -> Self {
        let (asker, mut questions) = Asker::channel("prober");
        tokio::spawn(async move {
            while let Some(question) = questions.recv().await {
                match question {
                    Question::Command { key, command, answer: to } => to.send(answer(&key, command)).unwrap(),
                    Question::Trigger { key, answer: to } => {
                        let end = answer(&key, ProbeCommand::Trigger).map(|()| {
                            let (end, ended) = oneshot::channel();
                            drop(end.send(TriggerEnd::NotMade("the probe is gone".to_owned())));
                            ended
                        });
                        to.send(end).unwrap();
                    }
                    Question::Plans(to) => to.send(Arc::default()).unwrap(),
                    other => panic!("{other:?}"),
                }
            }
        });
        let pods = Ok(vec![sample::pod()]);
        Self::before(Fixed { probes: Ok(probes), pods, ..Fixed::default() }, prober(asker))
    }

    fn before(snapshots: Fixed, prober: ProberHandle) -> Self {
        Self::serve(Sources {
            snapshots: Arc::new(snapshots),
            trace: Journal::new(JournalBounds::records(1_000)),
            events: Journal::new(JournalBounds::records(1_000)),
            prober,
            redactor: Redactor::default(),
            node: "node-1".into(),
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

/// Snapshots that a test made up. By default no stage runs.
#[derive(Clone, Debug)]
struct Fixed {
    status: Result<StatusView, Unanswered>,
    probes: Result<Vec<ProbeView>, Unanswered>,
    pods: Result<Vec<PodView>, Unanswered>,
    configuration: Result<ConfigurationView, Unanswered>,
}

impl Default for Fixed {
    fn default() -> Self {
        let prober = Unanswered::Stopped("prober");
        let (status, pods) = (Err(prober), Err(Unanswered::Stopped("inventory")));
        Self { status, probes: Err(prober), pods, configuration: Err(prober) }
    }
}

impl Snapshots for Fixed {
    fn status(&self) -> Snapshot<'_, StatusView> {
        ready(self.status.clone()).boxed()
    }

    fn probes(&self) -> Snapshot<'_, Vec<ProbeView>> {
        ready(self.probes.clone()).boxed()
    }

    /// The last of them that has the name, with all that the sample has.
    fn probe(&self, name: ProbeName) -> Snapshot<'_, Option<ProbeDetailView>> {
        let name = name.to_string();
        let detail = self.probes.clone().map(|probes| {
            let named = probes.into_iter().rev().find(|probe| probe.id == name || probe.key == name);
            named.map(|probe| ProbeDetailView { probe, events: Vec::new(), ..sample::detail() })
        });
        ready(detail).boxed()
    }

    fn pods(&self) -> Snapshot<'_, Vec<PodView>> {
        ready(self.pods.clone()).boxed()
    }

    fn runtime(&self) -> RuntimeView {
        self.status.as_ref().map_or_else(|_| sample::status().runtime, |status| status.runtime.clone())
    }

    fn top(&self, filter: TopFilter) -> Snapshot<'_, TopView> {
        ready(Ok(TopView { window_seconds: filter.within().into(), ..sample::top() })).boxed()
    }

    fn configuration(&self) -> Snapshot<'_, ConfigurationView> {
        ready(self.configuration.clone()).boxed()
    }

    fn metrics(&self, format: Format) -> Snapshot<'_, String> {
        ready(Ok(format!("{format:?}\n").repeat(10_000))).boxed()
    }
}

/// A prober that is asked so, before a runtime that is never there.
fn prober(questions: Asker<Question>) -> ProberHandle {
    let channel = tonic::transport::Endpoint::from_static("http://nowhere").connect_lazy();
    let settings = watch::channel(ProberSettings::default()).1;
    ProberHandle::new(mpsc::channel(1).0, questions, channel, settings)
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

fn push(journal: &Journal<dyn JournaledCall>, call: CallView) {
    let call: std::sync::Arc<dyn JournaledCall> = std::sync::Arc::new(call);
    journal.push(call);
}
