//! Judges what servers of HTTP answer, up to the events that report it: `tests/data/prober/http-verdicts.json`.

use std::{env, process::Command};

use futures_util::future::join_all;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener as Listener, TcpStream},
};
use tokio_rustls::{rustls::version::TLS13, server::TlsStream};

use super::*;
use crate::{
    handler::http::tests::secure::{Secure, of_another_name},
    inventory::pod::Pod,
};

/// One row: what the server does, and what comes of it. `{url}` in what is expected is the one that was asked for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Row {
    id: String,
    rule: String,
    #[serde(default)]
    secure: bool,
    /// A name, instead of the number of the server's port.
    port: Option<String>,
    /// Variables that name a proxy. Such a row plays all others again in a process that has them.
    #[serde(default)]
    environment: Vec<String>,
    #[serde(default)]
    sends: String,
    /// What follows, so many times.
    body: Option<(String, usize)>,
    #[serde(default)]
    then: Then,
    #[serde(default = "five_seconds")]
    timeout_ms: u64,
    result: String,
    output: Option<String>,
    output_times: Option<(String, usize)>,
    /// How many connections the server saw.
    #[serde(default = "once")]
    asked: usize,
    events: Option<Vec<String>>,
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize)]
enum Then {
    #[default]
    #[serde(rename = "closes")]
    Closes,
    #[serde(rename = "holds")]
    Holds,
    #[serde(rename = "closes unasked")]
    ClosesUnasked,
    #[serde(rename = "speaks HTTP/2")]
    SpeaksHttp2,
}

fn five_seconds() -> u64 {
    5000
}

fn once() -> usize {
    1
}

/// Counts what is accepted, for as long as it is kept.
struct Server {
    address: SocketAddr,
    asked: Arc<std::sync::atomic::AtomicUsize>,
}

async fn server(says: Vec<u8>, then: Then) -> Server {
    let asked = Arc::<std::sync::atomic::AtomicUsize>::default();
    let count = Arc::clone(&asked);
    if then == Then::SpeaksHttp2 {
        let serve = move |stream| {
            count.fetch_add(1, Ordering::Relaxed);
            speak_http2(stream)
        };
        let secure = Secure::new(of_another_name(), &TLS13, &["h2", "http/1.1"], serve).await;
        return Server { address: secure.address, asked };
    }
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let says: Arc<[u8]> = says.into();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(answer(stream, Arc::clone(&says), then));
        }
    });
    Server { address, asked }
}

async fn answer(mut stream: TcpStream, says: Arc<[u8]>, then: Then) -> std::io::Result<()> {
    let mut asked = vec![0; 4096];
    if then == Then::ClosesUnasked {
        stream.shutdown().await?;
    } else {
        // A request, and the first word of TLS, come in one piece on loopback.
        assert_ne!(stream.read(&mut asked).await?, 0);
        stream.write_all(&says).await?;
    }
    if then != Then::Closes {
        while stream.read(&mut asked).await? > 0 {}
    }
    Ok(())
}

async fn speak_http2(stream: TlsStream<TcpStream>) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((request, mut answer))) = connection.accept().await {
        let said = format!("{:?}", request.version());
        answer.send_response(::http::Response::new(()), false).unwrap().send_data(said.into(), true).unwrap();
    }
}

async fn check(row: Row) {
    let reported = format!("{}: {}", row.id, row.rule);
    let body = row.body.map(|(text, times)| text.repeat(times)).unwrap_or_default();
    let server = server(format!("{}{body}", row.sends).into_bytes(), row.then).await;
    let port = row.port.map_or(PortRef::Number(server.address.port()), PortRef::Name);
    let scheme = if row.secure { Scheme::Https } else { Scheme::Http };
    let asked = HttpGet { scheme, host: None, port, path: "/".to_owned(), headers: Vec::new() };
    let timeout = Duration::from_millis(row.timeout_ms);
    let spec = ProbeSpec { handler: Handler::HttpGet(asked), timeout, ..spec(ProbeKind::Liveness) };
    let view = view(PodNetwork::Pod(vec![LOCALHOST]));
    // In a pod of its own: the attempts of a pod share a limit of CPU time, which handshakes in a debug build exceed.
    let pod = Pod { uid: row.id.as_str().into(), ..(*view.pod).clone() };
    let (outcome, events) = attempt_and_events(spec, Container { pod: Arc::new(pod), ..view }).await;

    let url = format!("http{}://{}/", if row.secure { "s" } else { "" }, server.address);
    assert_eq!(outcome.result.as_str(), row.result, "{reported}: {}", text(&outcome));
    assert_eq!(server.asked.load(Ordering::Relaxed), row.asked, "{reported}");
    let times = row.output_times.map(|(text, times)| text.repeat(times));
    if let Some(output) = row.output.or(times) {
        assert_eq!(text(&outcome), output.replace("{url}", &url), "{reported}");
    }
    if let Some(expected) = row.events {
        assert_eq!(events, expected, "{reported}");
    }
}

/// One attempt on a container as the prober makes it, and the events of it but for those of verdicts.
async fn attempt_and_events(spec: ProbeSpec, view: Container) -> (AttemptOutcome, Vec<String>) {
    let now = Moment::now();
    let mut roster = Roster::new(&ProberSettings::default(), now);
    let input = Input::Container { view: Arc::new(view), probes: vec![planned(spec)] };
    roster.accept(input, now);
    let [job] = &roster.advance(now)[..] else { panic!("one attempt is due") };
    let handlers = Handlers { exec: exec(Runtime::Hangs).0, exec_mode: ExecModeSetting::Sync, node_ip: None };
    let outcome = handlers.attempt(&job.spec, &job.view, &job.variables, &job.ports).await;
    roster.finish(&job.key, Some(outcome.clone()), now);
    let events = roster.take_events().into_iter().map(|event| event.message).collect();
    (outcome, events)
}

/// Set in the process that a row with variables starts.
const AGAIN: &str = "CRIPROBE_TEST_AGAIN";

#[tokio::test]
async fn an_answer_is_judged_and_told_as_the_kubelet_does() {
    let rows: Vec<Row> =
        serde_json::from_str(include_str!("../../../../tests/data/prober/http-verdicts.json")).unwrap();
    let variables: Vec<_> = rows.iter().flat_map(|row| row.environment.clone()).collect();
    // A timeout must not pass while this thread makes keys for other rows.
    let (in_time, others): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|row| row.timeout_ms < five_seconds());
    join_all(others.into_iter().map(check)).await;
    join_all(in_time.into_iter().map(check)).await;
    if env::var_os(AGAIN).is_some() {
        return;
    }
    assert!(!variables.is_empty());
    let proxy = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let url = format!("http://{}", proxy.local_addr().unwrap());
    let name = "prober::attempt::tests::verdicts::an_answer_is_judged_and_told_as_the_kubelet_does";
    let again = tokio::task::spawn_blocking(move || {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", name]).env(AGAIN, "1");
        command.envs(variables.into_iter().map(|variable| (variable, url.clone()))).output().unwrap()
    });
    let again = again.await.unwrap();
    let said = String::from_utf8_lossy(&again.stdout);
    assert!(again.status.success() && said.contains("1 passed"), "{said}");
    proxy.set_nonblocking(true).unwrap();
    assert!(proxy.accept().is_err(), "F08: the proxy was asked");
}
