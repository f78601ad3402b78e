//! exec: a container, a command and a limit in, an outcome out, by one ExecSync of the runtime. Never shows the
//! expanded command: it contains values of the container's environment, including secrets.

mod answer;
mod decoded;
mod mask;
mod request;
pub(crate) mod session;

use std::{error::Error, pin::pin, time::Duration};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use tokio::time;
use tonic::{Code, Status, body::Body, transport::Channel};
use tower::ServiceExt;

use self::{
    answer::{Answer, Reader},
    session::{Asked, Decided, Sessions},
};
use super::{Fault, Judgement, Outcome, go};
use crate::{
    ids::ContainerId,
    phases::{ExecEnd, PhasesHandle},
    proto::{
        cri::{VersionRequest, VersionResponse, runtime_service_server::SERVICE_NAME},
        encoded,
    },
    results::{exec_route::ExecRoute, phases::PhasesSlot, text::BoundedText},
    runtime::socket::SocketError,
    spec::expand::{Expansion, Word},
};

/// The method of CRI that runs a command.
const EXEC_SYNC: &str = "/runtime.v1.RuntimeService/ExecSync";

/// 100 ms: what a runtime that is there has at least to answer who it is, however short the timeout.
const LEAST_PATIENCE: Duration = Duration::from_millis(100);

/// 1 s: what it has at most when the timeout is over. A probe keeps its place meanwhile, and its command runs on.
const MOST_PATIENCE: Duration = Duration::from_secs(1);

/// 256 KiB of an answer are read at once, and as much with each pause after that. A check says a few hundred bytes; one that
/// says 16 MiB, ten times a second, would otherwise keep the runtime and criprobe busy for as long as its pod likes.
const AT_ONCE: usize = 256 << 10;

/// 100 ms: 16 MiB take more than 6 s, so the attempt counts as slow, and has its places among the slow ones.
const PAUSE: Duration = Duration::from_millis(100);

/// What the longest answer takes. One that is longer takes as much, or it would be the cheapest way to have the runtime
/// make up answers without end.
const LONGEST_PAUSE: Duration = PAUSE.saturating_mul((answer::LONGEST / AT_ONCE) as u32);

/// 20 s: how long an answer that has begun may take, three times what the longest takes. The command has ended by then, and
/// so has its timeout; a runtime that stops in the middle of an answer counts as silent.
const READING: Duration = Duration::from_secs(20);

/// A call that the runtime still works at although its timeout is over. It ends when the runtime answers, or is silent past
/// the grace. Dropped, it cancels the command: in the middle of its start that leaves a runtime with work that it may not
/// finish for long, so whoever made the attempt keeps its place until this ends.
pub(crate) type PendingCall = BoxFuture<'static, ()>;

/// 500 ms: no command is cancelled earlier. containerd needs 50 to 300 ms to start one. A command that is cancelled while
/// it starts keeps containerd busy, so that stopping its pod takes tens of seconds.
const LEAST_LIFE: Duration = Duration::from_millis(500);

/// 4,095 bytes: the longest path that Linux accepts (PATH_MAX, with a zero at its end). The kernel runs no program with a
/// longer one, and containerd 1.6 never answers if it has 60,000 bytes.
const LONGEST_PROGRAM: usize = 4095;

/// The whole answer of containerd while it starts. An answer that only contains it may repeat a word of the command.
const NOT_INITIALIZED: &str = "server is not initialized yet";

/// Runs commands through the runtime.
///
/// By hand rather than by tonic's client, as that holds the whole of an answer, twice: sixteen commands that say 16 MiB
/// each would take half a gigabyte.
#[derive(Clone, Debug)]
pub(crate) struct Exec {
    channel: Channel,
    grace: Duration,
    /// Learns of each command.
    phases: PhasesHandle,
    sessions: Sessions,
}

/// What an attempt leaves behind.
#[derive(Default)]
pub(crate) struct After {
    /// What the runtime still does for it.
    pub pending: Option<PendingCall>,
    /// Where its time went.
    pub phases: Option<PhasesSlot>,
    /// The route of the command; none where the runtime is away.
    pub route: Option<ExecRoute>,
}

impl Exec {
    /// Without a grace.
    pub(crate) fn new(channel: Channel) -> Self {
        Self {
            channel,
            grace: Duration::ZERO,
            phases: PhasesHandle::default(),
            sessions: Sessions::default(),
        }
    }

    /// The same, whose commands are split into phases.
    #[must_use]
    pub(crate) fn with_phases(self, phases: PhasesHandle) -> Self {
        Self { phases, ..self }
    }

    /// The same, which runs commands by these sessions, where that is asked for.
    #[must_use]
    pub(crate) fn with_sessions(self, sessions: Sessions) -> Self {
        Self { sessions, ..self }
    }

    /// The same with this grace: how long after its timeout a command of whole seconds is given up, if the runtime is still
    /// silent.
    #[must_use]
    pub(crate) fn with_grace(&self, grace: Duration) -> Self {
        Self { grace, ..self.clone() }
    }

    /// The way to the runtime.
    pub(crate) fn runtime(&self) -> Channel {
        self.channel.clone()
    }

    /// Runs a command by the session of its container, or, where that cannot be, like [`Exec::attempt`]. `period`: how often
    /// its probe does.
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn attempt_by_session(
        &self,
        container: &ContainerId,
        command: Expansion<'_>,
        (timeout, period): (Duration, Duration),
        after: &mut After,
    ) -> Result<Outcome, Fault> {
        let asked = Asked { container, command, timeout, period };
        let why = match self.sessions.attempt(asked, &mut after.pending).await {
            Ok(decided) => {
                after.route = Some(ExecRoute::Session);
                after.phases = None;
                return Ok(match decided {
                    Decided::Ended { exit_code, output, said } => {
                        // As with ExecSync: much output makes an attempt slow.
                        time::sleep(PAUSE.saturating_mul(u32::try_from(said / AT_ONCE).unwrap_or(u32::MAX)))
                            .await;
                        judged(exit_code, &output)
                    }
                    Decided::TimedOut => timed_out(command, timeout),
                });
            }
            Err(why) => why,
        };
        let outcome = self.attempt(container, command, timeout, after).await;
        after.route = after.route.map(|_| ExecRoute::Fallback(why));
        if let Some(exit_code) = outcome.as_ref().ok().and_then(|outcome| outcome.exit_code) {
            self.sessions.ran_by_sync(container, self.sessions.print(command), exit_code);
        }
        outcome
    }

    /// Runs a command and judges it by its exit code.
    ///
    /// Whole seconds of `timeout` are the runtime's to keep, and it answers DeadlineExceeded; other timeouts are sent
    /// rounded up and kept by us, as long as the runtime shows that it is there. Both are failures that name the command
    /// as it was defined. When the timeout is ours, the runtime is still at work then, and `after.pending` becomes its call,
    /// which ends by being cancelled if the runtime does not answer within [`LEAST_LIFE`] of the command.
    ///
    /// # Errors
    /// [`Fault::Runtime`] for every other status of the runtime's, and for an answer above 16 MiB; [`Fault::Away`] when there
    /// is no connection to it;
    /// [`Fault::Unanswered`] when it is silent past the grace or in the middle of its answer; [`Fault::Silent`] when it does
    /// not answer either when it is asked whether it is there;
    /// [`Fault::Target`] when its program has a name that no program can have;
    /// [`Fault::Ours`] when there is no room for the command.
    pub(crate) async fn attempt(
        &self,
        container: &ContainerId,
        command: Expansion<'_>,
        timeout: Duration,
        after: &mut After,
    ) -> Result<Outcome, Fault> {
        after.route = None;
        let program = command.words().next().map_or(0, Word::length);
        if program > LONGEST_PROGRAM {
            return Err(Fault::target(format_args!(
                "the first word of the command has {program} bytes after expansion: the path of a program has at most \
                 {LONGEST_PROGRAM}"
            )));
        }
        let seconds = timeout.as_secs() + u64::from(!is_whole(timeout));
        let asked = i64::try_from(seconds).unwrap_or(i64::MAX);
        let request = request::framed(container, command, asked, timeout).await?;
        let probed = self.phases.probed(container);
        let call = call(self.channel.clone(), request);
        let given_up = Duration::from_secs(seconds).saturating_add(self.grace);
        let answered = if is_whole(timeout) {
            self.until(given_up, call).await
        } else {
            let mut call = Box::pin(call);
            let answered = self.within(timeout, call.as_mut()).await;
            if answered.is_err() {
                let rest = time::timeout(LEAST_LIFE.saturating_sub(timeout), call);
                after.pending = Some(Box::pin(async move { drop(rest.await) }));
            }
            answered
        };
        let ended = match answered {
            Ok(Ok(body)) => time::timeout(READING, read(body)).await.map_err(|_| Late::InTheMiddle),
            Ok(Err(status)) => Ok(Err(status)),
            Err(late) => Err(late),
        };
        after.phases = Some(probed.ended(match &ended {
            Ok(Ok(answer)) => ExecEnd::Answered { exit_code: answer.exit_code },
            Ok(Err(status)) if is_refusal(status) => ExecEnd::Refused,
            Ok(Err(_)) | Err(_) => ExecEnd::Unanswered,
        }));
        if let Ok(Err(status)) = &ended
            && is_too_long(status)
        {
            time::sleep(LONGEST_PAUSE).await;
        }
        let outcome = match ended {
            Ok(Ok(Answer { exit_code, output })) => Ok(judged(exit_code, &output)),
            Ok(Err(status)) if status.code() != Code::DeadlineExceeded => {
                Err(away(&status).unwrap_or_else(|| {
                    let message = mask::masked(status.message(), command);
                    Fault::Runtime { code: go::code(status.code()), message }
                }))
            }
            Ok(Err(_)) | Err(Late::Alive) => Ok(timed_out(command, timeout)),
            Err(Late::Silent) => Err(Fault::Silent),
            Err(Late::Unanswered) => Err(Fault::Unanswered(BoundedText::of(format_args!(
                "no answer within {} (timeout {}, grace {}): the command, or a child of it, keeps its output open",
                go::duration(given_up),
                go::duration(timeout),
                go::duration(self.grace)
            )))),
            Err(Late::InTheMiddle) => Err(Fault::Unanswered(BoundedText::of(format_args!(
                "the runtime stopped in the middle of its answer for {}",
                go::duration(READING)
            )))),
        };
        let is_away = matches!(outcome, Err(Fault::Away(_) | Fault::Silent));
        after.route = (!is_away).then_some(ExecRoute::Sync);
        outcome
    }

    /// Waits so long for the answer of a call whose timeout is the runtime's to keep. In the last second, the runtime is asked
    /// whether it is there.
    async fn until<T>(&self, given_up: Duration, call: impl Future<Output = T>) -> Result<T, Late> {
        let asked = given_up.saturating_sub(MOST_PATIENCE);
        let check = async {
            time::sleep(asked).await;
            tokio::join!(self.is_alive(MOST_PATIENCE), time::sleep(given_up - asked)).0
        };
        let (call, check) = (pin!(call), pin!(check));
        tokio::select! {
            biased;
            answer = call => Ok(answer),
            is_alive = check => Err(if is_alive { Late::Unanswered } else { Late::Silent }),
        }
    }

    /// Waits for the answer of a call whose timeout is ours to keep. A runtime that stands still starts no command and
    /// reports none that ended, so a timeout says nothing of a command unless the runtime answered something else
    /// meanwhile: it is asked for its version when half the time is over, and once more when all is. The call goes on
    /// while it is asked, and an answer to it counts.
    async fn within<T>(&self, timeout: Duration, call: impl Future<Output = T>) -> Result<T, Late> {
        let half = timeout / 2;
        let patience = half.clamp(LEAST_PATIENCE, MOST_PATIENCE);
        let checks = async {
            time::sleep(half).await;
            let rest = timeout - half;
            let (is_alive, ()) = tokio::join!(self.is_alive(rest.max(LEAST_PATIENCE)), time::sleep(rest));
            is_alive && self.is_alive(patience).await
        };
        let (call, checks) = (pin!(call), pin!(checks));
        tokio::select! {
            biased;
            answer = call => Ok(answer),
            is_alive = checks => Err(if is_alive { Late::Alive } else { Late::Silent }),
        }
    }

    /// Whether the runtime answers within so long, be it with an error of its own.
    async fn is_alive(&self, within: Duration) -> bool {
        let request = VersionRequest::default();
        let version = encoded::call::<VersionResponse>(&self.channel, SERVICE_NAME, "Version", &request);
        match time::timeout(within, version).await {
            Ok(Ok(_)) => true,
            // A status with a source is the connection's, not the runtime's.
            Ok(Err(status)) => status.code() != Code::Unavailable && status.source().is_none(),
            Err(_elapsed) => false,
        }
    }
}

/// What is known of a runtime that has not answered a call in time.
enum Late {
    /// It answers, and kept our timeout.
    Alive,
    /// It answers, but not this call, although all the time that it gets is over.
    Unanswered,
    /// It has begun to answer this call, and does not go on.
    InTheMiddle,
    /// It answers nothing.
    Silent,
}

/// A command that ended is judged by its exit code.
fn judged(exit_code: i32, output: &[u8]) -> Outcome {
    let judgement = if exit_code == 0 { Judgement::Success } else { Judgement::Failure };
    Outcome { exit_code: Some(exit_code), ..Outcome::of(judgement, BoundedText::lossy(output)) }
}

/// One that did not is named as it was defined.
fn timed_out(command: Expansion<'_>, timeout: Duration) -> Outcome {
    let (command, timeout) = (command.defined().join(" "), go::duration(timeout));
    let text = format_args!("command timed out: \"{command}\" timed out after {timeout}");
    Outcome::failure(BoundedText::of(text))
}

/// Asks, and waits until the answer begins: the command has ended then. Dropped, it cancels the command.
async fn call(channel: Channel, request: Bytes) -> Result<Body, Status> {
    let request = Request::post(EXEC_SYNC)
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .body(Body::new(Full::new(request)))
        .expect("constants make a valid request");
    let answer = channel.oneshot(request).await.map_err(|error| Status::from_error(error.into()))?;
    match Status::from_header_map(answer.headers()) {
        None => Ok(answer.into_body()),
        // There is no answer behind headers that say how the call ended.
        Some(status) if status.code() == Code::Ok => Err(Status::internal("there was no answer")),
        Some(status) => Err(status),
    }
}

/// Reads an answer as it comes, but no faster than [`AT_ONCE`] and [`PAUSE`] allow. What is not read fills the window of its
/// stream, and the runtime waits.
async fn read(mut body: Body) -> Result<Answer, Status> {
    let mut reader = Reader::default();
    let (mut ended, mut read, mut until) = (None, 0, AT_ONCE);
    while let Some(frame) = body.frame().await {
        let octets = match frame?.into_data() {
            Ok(octets) => octets,
            Err(frame) => {
                ended = frame.trailers_ref().and_then(Status::from_header_map);
                continue;
            }
        };
        reader.take(&octets)?;
        read += octets.len();
        if read >= until {
            time::sleep(PAUSE).await;
            until = read + AT_ONCE;
        }
    }
    match ended {
        Some(status) if status.code() == Code::Ok => reader.end(),
        Some(status) => Err(status),
        None => Err(Status::internal("the runtime did not report how the call ended")),
    }
}

/// [`Fault::Away`] where a status is not the runtime's own, which has no source, but that of the connection to it. The
/// runtime's reset of one call leaves the connection as it is.
pub(crate) fn away(status: &Status) -> Option<Fault> {
    if status.message() == NOT_INITIALIZED {
        return Some(Fault::Away(BoundedText::of(NOT_INITIALIZED)));
    }
    let mut cause = status.source()?;
    if let Some(error) = SocketError::find(cause) {
        return Some(Fault::Away(error.of_it().into()));
    }
    loop {
        if cause.downcast_ref::<h2::Error>().is_some_and(h2::Error::is_reset) {
            return None;
        }
        match cause.source() {
            Some(deeper) => cause = deeper,
            None => break,
        }
    }
    Some(Fault::Away(BoundedText::of(format_args!("the connection to its socket broke: {cause}"))))
}

/// Whether the answer was longer than [`answer::LONGEST`]: than we read, or than the runtime sends. A status of the connection
/// says nothing of the answer, although some have the same code.
fn is_too_long(status: &Status) -> bool {
    status.source().is_none() && matches!(status.code(), Code::OutOfRange | Code::ResourceExhausted)
}

/// Whether the runtime has ended the call with an error of its own, and does nothing more for it.
fn is_refusal(status: &Status) -> bool {
    status.source().is_none() && !matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled)
}

fn is_whole(timeout: Duration) -> bool {
    timeout.subsec_nanos() == 0
}

#[cfg(test)]
pub(crate) mod tests;
