//! Runs exec against a small gRPC server over memory, in paused time.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use http_body_util::StreamBody;
use hyper_util::rt::TokioIo;
use tokio::io::duplex;
use tokio_stream::StreamExt;
use tonic::{
    Request, Response, Status,
    codegen::http,
    transport::{Endpoint, Server},
};
use tower::service_fn;

use super::*;
use crate::{
    clock,
    proto::cri::{ExecSyncRequest, ExecSyncResponse, VersionResponse},
    spec::expand::Env,
};

/// What the server does with the request that it is given.
#[derive(Clone)]
pub(crate) enum Runtime {
    Answers {
        exit_code: i32,
        stdout: &'static str,
        stderr: String,
    },
    Refuses(Code),
    /// With the words that it was asked to run.
    NamesTheCommand,
    /// With so many letters, each of which has six bytes in a trailer.
    Complains(usize),
    Hangs,
    /// Answers nothing at all, as if it were stopped.
    Frozen,
    /// Answers who it is, so late; nothing else.
    Slow(Duration),
    /// Answers so late, and who it is at once.
    Late(Duration),
    /// Counts those that were cancelled.
    HangsUntilCancelled(Arc<AtomicU32>),
    ExitsWithTheTimeout,
    /// Begins its answer.
    StopsInTheMiddle,
    /// Prints the command that it was given, one word per line.
    TellsTheCommand,
    /// The nth call gets the nth reply, or the last.
    Follows(Arc<[Reply]>),
}

/// One reply; `$timeout` in it becomes the timeout that was asked for.
#[derive(Clone)]
pub(crate) enum Reply {
    Answer { exit_code: i32, stdout: String, stderr: String },
    Refusal(Code),
}

async fn answer(
    runtime: Runtime,
    asked: u32,
    request: ExecSyncRequest,
) -> Result<Response<ExecSyncResponse>, Status> {
    assert_eq!(request.container_id, "c1");
    let response = |exit_code, stdout: &str, stderr: &str| {
        let bytes = |text: &str| text.as_bytes().to_vec();
        Ok(Response::new(ExecSyncResponse { exit_code, stdout: bytes(stdout), stderr: bytes(stderr) }))
    };
    match runtime {
        Runtime::Answers { exit_code, stdout, stderr } => response(exit_code, stdout, &stderr),
        Runtime::Refuses(code) => Err(Status::new(code, "in its own words")),
        Runtime::Complains(letters) => Err(Status::unknown("\u{e9}".repeat(letters))),
        Runtime::NamesTheCommand => Err(Status::internal(format!("exec: {:?}: no such file", request.cmd))),
        Runtime::Hangs | Runtime::Frozen | Runtime::Slow(_) | Runtime::StopsInTheMiddle => {
            std::future::pending().await
        }
        Runtime::Late(by) => {
            time::sleep(by).await;
            response(0, "", "")
        }
        Runtime::HangsUntilCancelled(counter) => {
            let _guard = Cancelled(counter);
            std::future::pending().await
        }
        Runtime::Follows(replies) => {
            let nth = usize::try_from(asked).unwrap().min(replies.len()) - 1;
            match &replies[nth] {
                Reply::Answer { exit_code, stdout, stderr } => {
                    let stdout = stdout.replace("$timeout", &request.timeout.to_string());
                    response(*exit_code, &stdout, stderr)
                }
                Reply::Refusal(code) => Err(Status::new(*code, "in its own words")),
            }
        }
        Runtime::TellsTheCommand => response(0, &request.cmd.join("\n"), ""),
        Runtime::ExitsWithTheTimeout => response(i32::try_from(request.timeout).unwrap(), "", ""),
    }
}

/// Counts when it is dropped.
struct Cancelled(Arc<AtomicU32>);

impl Drop for Cancelled {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A client of a runtime that behaves so, and the number of requests that it got.
pub(crate) fn exec(runtime: Runtime) -> (Exec, Arc<AtomicU32>) {
    let asked = Arc::new(AtomicU32::new(0));
    let (near, far) = duplex(1 << 20);
    let service = service(runtime, asked.clone());
    tokio::spawn(async move {
        let incoming = tokio_stream::once(Ok::<_, std::io::Error>(far)).chain(tokio_stream::pending());
        Server::builder().serve_with_incoming(service, incoming).await.unwrap();
    });
    let mut near = Some(near);
    let channel =
        Endpoint::from_static("http://runtime").connect_with_connector_lazy(service_fn(move |_| {
            let near = near.take().map(TokioIo::new);
            async move { near.ok_or(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)) }
        }));
    (Exec::new(channel).with_grace(Duration::from_secs(5)), asked)
}

/// The server's part; counts the commands that it was asked to run.
fn service(
    runtime: Runtime,
    counter: Arc<AtomicU32>,
) -> impl tower::Service<
    http::Request<Body>,
    Response = http::Response<Body>,
    Error = std::convert::Infallible,
    Future: Send,
> + Clone
+ Send {
    service_fn(move |request: http::Request<Body>| {
        let is_exec = request.uri().path() == EXEC_SYNC;
        let asked = counter.fetch_add(u32::from(is_exec), Ordering::Relaxed) + u32::from(is_exec);
        let runtime = runtime.clone();
        let (who, stops) = (runtime.clone(), matches!(runtime, Runtime::StopsInTheMiddle));
        let version = service_fn(move |_: Request<VersionRequest>| {
            let pause = match who {
                Runtime::Frozen => Duration::MAX,
                Runtime::Slow(pause) => pause,
                _ => Duration::ZERO,
            };
            async move {
                time::sleep(pause).await;
                Ok::<_, Status>(Response::new(VersionResponse::default()))
            }
        });
        let unary = service_fn(move |request: Request<ExecSyncRequest>| {
            answer(runtime.clone(), asked, request.into_inner())
        });
        async move {
            if !is_exec {
                let codec = tonic_prost::ProstCodec::<VersionResponse, VersionRequest>::default();
                return Ok(tonic::server::Grpc::new(codec).unary(version, request).await);
            }
            if stops {
                let begun = hyper::body::Frame::data(Bytes::from_static(&[0, 0, 0, 0, 5, 10]));
                let begun = tokio_stream::once(Ok::<_, Status>(begun)).chain(tokio_stream::pending());
                return Ok(http::Response::new(Body::new(StreamBody::new(begun))));
            }
            let codec = tonic_prost::ProstCodec::<ExecSyncResponse, ExecSyncRequest>::default();
            Ok::<_, std::convert::Infallible>(tonic::server::Grpc::new(codec).unary(unary, request).await)
        }
    })
}

const SECOND: Duration = Duration::from_secs(1);

async fn attempt(runtime: Runtime, timeout: Duration) -> Result<Outcome, Fault> {
    let defined = ["sh", "-c", "echo $(SECRET)"].map(str::to_owned);
    let env: Env = [("SECRET".to_owned(), "hunter2".to_owned())].into_iter().collect();
    let command = Expansion::new(&defined, &env, usize::MAX).unwrap();
    exec(runtime).0.attempt(&ContainerId::from("c1"), command, timeout, &mut After::default()).await
}

fn failure(text: &str) -> Result<Outcome, Fault> {
    Ok(Outcome::failure(text.to_owned()))
}

#[tokio::test(start_paused = true)]
async fn the_exit_code_judges() {
    for (exit_code, judgement) in [(0, Judgement::Success), (1, Judgement::Failure), (-1, Judgement::Failure)]
    {
        let runtime = Runtime::Answers { exit_code, stdout: "out ", stderr: "err".to_owned() };
        let outcome = attempt(runtime, SECOND).await.unwrap();
        let expected = Outcome { exit_code: Some(exit_code), ..Outcome::of(judgement, "out err") };
        assert_eq!(outcome, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn ten_kibibytes_are_kept() {
    let runtime = Runtime::Answers { exit_code: 0, stdout: "a", stderr: "b".repeat(20_000) };
    let outcome = attempt(runtime, SECOND).await.unwrap();
    assert_eq!(outcome.output.len(), 10_240);
    assert!(outcome.output.starts_with("ab"));
}

#[tokio::test(start_paused = true)]
async fn an_answer_above_what_the_kubelet_accepts_is_an_error() {
    let answers = |size| Runtime::Answers { exit_code: 0, stdout: "", stderr: "b".repeat(size) };
    let outcome = attempt(answers((16 << 20) - 100), SECOND).await.unwrap();
    assert_eq!(outcome.judgement, Judgement::Success);
    let fault = attempt(answers(16 << 20), SECOND).await.unwrap_err();
    assert!(matches!(fault, Fault::Runtime { .. }), "{fault}");
}

#[tokio::test(start_paused = true)]
async fn a_long_answer_takes_its_time_and_is_no_timeout() {
    let answers = |size: usize| Runtime::Answers { exit_code: 3, stdout: "a", stderr: "b".repeat(size) };
    let near = |took: Duration, ms: u128| (ms..ms + 300).contains(&took.as_millis());
    for (size, timeout, ms) in [
        (AT_ONCE - 100, SECOND, 0),
        (AT_ONCE, SECOND, 100),
        (4 << 20, SECOND, 1600),
        ((16 << 20) - 100, SECOND, 6300),
        ((16 << 20) - 100, Duration::from_millis(900), 6300),
    ] {
        let began = clock::now();
        let outcome = attempt(answers(size), timeout).await.unwrap();
        assert_eq!((outcome.judgement, outcome.exit_code), (Judgement::Failure, Some(3)), "{size}");
        assert!(outcome.output.starts_with("ab"));
        assert!(near(clock::now() - began, ms), "{size} bytes took {:?}", clock::now() - began);
    }
    // One too long, and one that the runtime itself does not send.
    for runtime in [answers(16 << 20), Runtime::Refuses(Code::ResourceExhausted)] {
        let began = clock::now();
        assert!(matches!(attempt(runtime, SECOND).await, Err(Fault::Runtime { .. })));
        assert!(near(clock::now() - began, 6400), "it took {:?}", clock::now() - began);
    }
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_stops_in_the_middle_of_an_answer_is_silent() {
    for timeout in [SECOND, Duration::from_millis(900)] {
        let began = clock::now();
        let text = "the runtime stopped in the middle of its answer for 20s";
        assert_eq!(attempt(Runtime::StopsInTheMiddle, timeout).await, Err(Fault::Unanswered(text.into())));
        assert_eq!((clock::now() - began).as_secs(), READING.as_secs());
    }
}

#[tokio::test(start_paused = true)]
async fn the_runtimes_timeout_is_a_failure_that_shows_the_command_as_defined() {
    assert_eq!(
        attempt(Runtime::Refuses(Code::DeadlineExceeded), SECOND).await,
        failure("command timed out: \"sh -c echo $(SECRET)\" timed out after 1s")
    );
}

#[tokio::test(start_paused = true)]
async fn every_other_status_is_an_error() {
    for code in [Code::NotFound, Code::Unavailable, Code::Unknown] {
        let expected = Fault::Runtime { code: go::code(code), message: "in its own words".into() };
        assert_eq!(attempt(Runtime::Refuses(code), SECOND).await, Err(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_names_the_command_tells_no_secret() {
    let reported = attempt(Runtime::NamesTheCommand, SECOND).await.unwrap_err().to_string();
    assert!(reported.ends_with(r#"exec: ["sh", "-c", "echo $(SECRET)"]: no such file"#), "{reported}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_runtime_is_given_up_after_the_grace_as_an_error() {
    let text =
        "no answer within 6s (timeout 1s, grace 5s): the command, or a child of it, keeps its output open";
    for (runtime, fault) in
        [(Runtime::Hangs, Fault::Unanswered(text.into())), (Runtime::Frozen, Fault::Silent)]
    {
        let began = clock::now();
        assert_eq!(attempt(runtime, SECOND).await, Err(fault));
        assert_eq!((clock::now() - began).as_secs(), 6);
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_below_a_second_is_kept_by_us_as_a_failure() {
    let began = clock::now();
    assert_eq!(
        attempt(Runtime::Hangs, Duration::from_millis(250)).await,
        failure("command timed out: \"sh -c echo $(SECRET)\" timed out after 250ms")
    );
    assert_eq!((clock::now() - began).as_millis() / 10, 25);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_that_we_keep_says_nothing_of_a_command_if_the_runtime_shows_no_life() {
    let ms = Duration::from_millis;
    let silent = || Err(Fault::Silent);
    let failed = |after: &str| {
        failure(&format!("command timed out: \"sh -c echo $(SECRET)\" timed out after {after}"))
    };
    let answered = || Ok(Outcome { exit_code: Some(0), ..Outcome::success() });
    for (runtime, timeout, ended, took) in [
        (Runtime::Frozen, 500, silent(), 500),
        (Runtime::Frozen, 900, silent(), 900),
        (Runtime::Frozen, 1500, silent(), 1500),
        (Runtime::Frozen, 10, silent(), 105),
        // It answers, but when the time is over.
        (Runtime::Slow(ms(300)), 500, silent(), 500),
        (Runtime::Slow(ms(90)), 500, failed("500ms"), 590),
        (Runtime::Slow(ms(90)), 10, failed("10ms"), 185),
        (Runtime::Hangs, 1, failed("1ms"), 1),
        (Runtime::Late(ms(400)), 500, answered(), 400),
        (Runtime::Late(ms(700)), 500, failed("500ms"), 500),
    ] {
        let began = clock::now();
        assert_eq!(attempt(runtime, ms(timeout)).await, ended, "{timeout} ms");
        let elapsed = u64::try_from((clock::now() - began).as_millis()).unwrap();
        assert!((took..took + 10).contains(&elapsed), "{timeout} ms took {elapsed} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_outlasts_our_timeout_is_cancelled_but_not_while_its_command_may_be_starting() {
    let ms = Duration::from_millis;
    let hangs = || Runtime::HangsUntilCancelled(Arc::default());
    for (runtime, timeout, judged, ended) in [
        (Runtime::Late(ms(300)), 200, 200, Some(300)),
        (Runtime::Late(ms(400)), 500, 400, None),
        (Runtime::Late(ms(700)), 500, 500, Some(500)),
        (Runtime::Frozen, 300, 300, Some(500)),
        (hangs(), 1, 1, Some(500)),
        (hangs(), 1500, 1500, Some(1500)),
        // Whole seconds are the runtime's to keep.
        (hangs(), 1000, 6000, None),
    ] {
        let (began, mut after) = (clock::now(), After::default());
        let near = |took: u64| (ms(took)..ms(took + 10)).contains(&(clock::now() - began));
        let cancelled = if let Runtime::HangsUntilCancelled(counter) = &runtime {
            counter.clone()
        } else {
            Arc::default()
        };
        let (exec, _asked) = exec(runtime);
        let _ = exec.attempt(&"c1".into(), Expansion::literal(&[]), ms(timeout), &mut after).await;
        assert!(near(judged), "{timeout} ms: judged after {:?}", clock::now() - began);
        assert_eq!(after.pending.is_some(), ended.is_some(), "{timeout} ms");
        if let (Some(pending), Some(ended)) = (after.pending, ended) {
            assert_eq!(cancelled.load(Ordering::Relaxed), 0, "{timeout} ms: cancelled at the timeout");
            pending.await;
            assert!(near(ended), "{timeout} ms: ended after {:?}", clock::now() - began);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_runtime_is_asked_for_whole_seconds_rounded_up() {
    for (timeout, seconds) in [(SECOND, 1), (Duration::from_millis(250), 1), (Duration::from_millis(1500), 2)]
    {
        let outcome = attempt(Runtime::ExitsWithTheTimeout, timeout).await.unwrap();
        assert_eq!(outcome.exit_code, Some(seconds), "{timeout:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_program_whose_path_linux_does_not_accept_never_reaches_the_runtime() {
    let defined = ["$(DIR)/bin/true".to_owned(), "$(LONG)".to_owned()];
    for (length, is_run) in [(4095 - 9, true), (4095 - 8, false), (60_000, false)] {
        let values = [("DIR", "d".repeat(length)), ("LONG", "x".repeat(100_000))];
        let env: Env = values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let command = Expansion::new(&defined, &env, usize::MAX).unwrap();
        let (exec, asked) = exec(Runtime::Answers { exit_code: 0, stdout: "", stderr: String::new() });
        let ended = exec.attempt(&"c1".into(), command, SECOND, &mut After::default()).await;
        assert_eq!((ended.is_ok(), asked.load(Ordering::Relaxed)), (is_run, u32::from(is_run)), "{length}");
        if let Err(fault) = ended {
            let length = length + 9;
            let text = format!("the first word of the command has {length} bytes after expansion");
            assert!(fault.to_string().starts_with(&text), "{fault}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_attempt_asks_once() {
    let (exec, asked) = exec(Runtime::Refuses(Code::NotFound));
    let outcome =
        exec.attempt(&ContainerId::from("c1"), Expansion::literal(&[]), SECOND, &mut After::default()).await;
    assert!(outcome.is_err());
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_given_up_is_cancelled_at_the_runtime() {
    for (timeout, limit) in [(Duration::from_millis(250), 250), (SECOND, 6000)] {
        let cancelled = Arc::new(AtomicU32::new(0));
        let (exec, _) = exec(Runtime::HangsUntilCancelled(cancelled.clone()));
        let began = clock::now();
        let _ = exec
            .attempt(&ContainerId::from("c1"), Expansion::literal(&[]), timeout, &mut After::default())
            .await;
        let deadline = began + Duration::from_millis(limit) + SECOND;
        while cancelled.load(Ordering::Relaxed) == 0 {
            assert!(clock::now() < deadline, "the runtime still runs it");
            time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn trailers_that_break_the_connection_are_no_answer_that_is_too_long() {
    let began = clock::now();
    let fault = attempt(Runtime::Complains(200_000), SECOND).await.unwrap_err();
    assert!(matches!(fault, Fault::Away(_)), "{fault}");
    assert!(clock::now() - began < SECOND, "it kept its place for {:?}", clock::now() - began);
}

#[tokio::test]
async fn an_error_of_hundreds_of_kilobytes_costs_no_other_call_on_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("runtime.sock");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    tokio::spawn(async move {
        // There is only one connection.
        let (stream, _) = listener.accept().await.unwrap();
        let incoming = tokio_stream::once(Ok::<_, std::io::Error>(stream)).chain(tokio_stream::pending());
        let service = service(Runtime::Complains(66_000), Arc::default());
        Server::builder().serve_with_incoming(service, incoming).await.unwrap();
    });
    let exec = Exec::new(crate::runtime::Runtime::new(&socket).commands()).with_grace(Duration::from_secs(5));
    for _ in 0..3 {
        let ended =
            exec.attempt(&"c1".into(), Expansion::literal(&[]), 60 * SECOND, &mut After::default()).await;
        let Err(Fault::Runtime { code: "Unknown", message }) = ended else { panic!("{ended:?}") };
        assert!(message.starts_with('\u{e9}') && message.len() > 5_000, "{}", message.len());
    }
}

#[test]
fn a_runtime_that_starts_is_away_and_a_command_that_says_so_is_not() {
    let starting = "server is not initialized yet";
    for status in [Status::unknown(starting), Status::unavailable(starting)] {
        let fault = super::away(&status).unwrap();
        assert_eq!(fault.to_string(), "the runtime is away: server is not initialized yet");
    }
    for said in ["exec: \"server is not initialized yet\": not found", "ttrpc: closed"] {
        assert_eq!(super::away(&Status::unavailable(said)), None, "{said}");
    }
}

#[tokio::test]
async fn a_runtime_that_is_away_is_named_so_and_its_missing_socket_is_not_the_commands_file() {
    let channel = crate::runtime::channel("/nonexistent/runtime.sock".into());
    let exec = Exec::new(channel).with_grace(Duration::from_secs(5));
    let (command, mut after) = (["cat".to_owned()], After::default());
    let command = Expansion::literal(&command);
    let fault = exec.attempt(&"c".into(), command, SECOND, &mut after).await.unwrap_err();
    let text = "the runtime is away: its socket /nonexistent/runtime.sock does not exist";
    assert_eq!((fault.to_string().as_str(), fault.state()), (text, "unknown"));
    assert_eq!(after.route, None, "the command reached nothing");
    let times = (SECOND, SECOND);
    let fault = exec.attempt_by_session(&"c".into(), command, times, &mut after).await.unwrap_err();
    assert_eq!((fault.to_string().as_str(), after.route), (text, None), "with a session neither");
}
