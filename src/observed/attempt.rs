//! What one call of a client shows about its probe: a recorded call in, an attempt with the kubelet's verdict out.
//! Pure.

use std::time::{Duration, Instant, SystemTime};

use crate::{
    inventory::TracedCall,
    results::{AttemptRecord, AttemptResult, history::OUTPUT_KEPT, phases::PhasesSlot},
    tap::{
        CallEnd, Code, EndedCall,
        cri::{CriRequest, CriResponse},
    },
};

/// The error of a call that the runtime did not carry out in time.
const DEADLINE_EXCEEDED: Code = Code(4);

/// 3 tries: as often a kubelet makes an attempt that errs (`maxProbeRetries`).
const TRIES: u32 = 3;

/// 1 s: how soon after one try that erred the next one begins, at the latest.
pub(super) const TRIED_AGAIN_WITHIN: Duration = Duration::from_secs(1);

/// An attempt: one call, or the up to three that a client makes where they err.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    /// When it began, on both clocks.
    pub(super) began: Instant,
    pub(super) at: SystemTime,
    /// When its last try ended.
    pub(super) ended: Instant,
    /// As the last try ended.
    pub(super) result: AttemptResult,
    exit_code: Option<i32>,
    /// Why it erred, or failed without an exit code; at most [`OUTPUT_KEPT`] bytes. What a command prints is not kept.
    said: Box<str>,
    /// Whether a try took as long as it may.
    pub(super) is_timeout: bool,
    tries: u32,
    /// Of the last try.
    phases: Option<PhasesSlot>,
}

impl Attempt {
    /// Of a command that ended; none of any other call.
    pub(super) fn of(call: &TracedCall, phases: Option<PhasesSlot>) -> Option<Self> {
        let ended = &call.ended;
        let CriRequest::ExecSync(command) = &ended.call.request else { return None };
        let limit = u64::try_from(command.timeout_seconds()).unwrap_or(0);
        let (began, took) = (ended.call.began, ended.at.saturating_duration_since(ended.call.began));
        let is_timeout = limit > 0 && took >= Duration::from_secs(limit);
        let (result, exit_code, said) = judged(ended, is_timeout);
        let said = said[..said.floor_char_boundary(OUTPUT_KEPT)].into();
        Some(Self {
            began,
            at: call.at,
            ended: ended.at,
            result,
            exit_code,
            said,
            is_timeout,
            tries: 1,
            phases,
        })
    }

    /// Whether a call that began then may be another try of this attempt.
    pub(super) fn may_be_tried_again(&self, began: Instant, within: Duration) -> bool {
        self.is_open()
            && began >= self.ended
            && began.saturating_duration_since(self.ended) <= within.min(TRIED_AGAIN_WITHIN)
    }

    /// Whether another try may come at all.
    pub(super) fn is_open(&self) -> bool {
        self.result == AttemptResult::Error && self.tries < TRIES
    }

    /// Adds a try: what the last one says, holds.
    pub(super) fn tried_again(&mut self, next: Self) {
        let tries = self.tries + next.tries;
        let is_timeout = self.is_timeout || next.is_timeout;
        *self = Self { began: self.began, at: self.at, tries, is_timeout, ..next };
    }

    /// As it is remembered.
    pub(super) fn record(&self) -> AttemptRecord {
        AttemptRecord {
            at: self.at,
            result: self.result,
            duration: self.ended.saturating_duration_since(self.began),
            lag: None,
            exit_code: self.exit_code,
            status: None,
            container_attempt: None,
            is_first: false,
            output: self.said.clone().into(),
            phases: self.phases.clone(),
            route: None,
        }
    }
}

/// As the kubelet judges an exec (docs/kubelet-prober.md 6.3): an exit code is a verdict, so is a deadline that passed;
/// every other status is an error. A client that gives up when the timeout has passed met its own deadline.
fn judged(ended: &EndedCall, is_timeout: bool) -> (AttemptResult, Option<i32>, String) {
    let silent = |result, exit_code| (result, Some(exit_code), String::new());
    match (ended.end, ended.code, &ended.response) {
        (CallEnd::Complete, Some(Code::OK), CriResponse::Exec(result)) => match result.exit_code {
            0 => silent(AttemptResult::Success, 0),
            code => silent(AttemptResult::Failure, code),
        },
        (CallEnd::Complete, Some(Code::OK), _) => {
            (AttemptResult::Error, None, "its answer cannot be decoded".to_owned())
        }
        (CallEnd::Complete, Some(DEADLINE_EXCEEDED), _) => {
            (AttemptResult::Failure, None, ended.message.to_string())
        }
        (CallEnd::Complete, code, _) => {
            let name = code.unwrap_or(Code::UNKNOWN).name();
            let said = format!("rpc error: code = {name} desc = {}", ended.message);
            (AttemptResult::Error, None, said)
        }
        (CallEnd::Cancelled, ..) if is_timeout => {
            (AttemptResult::Failure, None, "the client gave up after the timeout".to_owned())
        }
        (CallEnd::Cancelled, ..) => (AttemptResult::Error, None, "the client cancelled the call".to_owned()),
        (CallEnd::Reset, ..) => (AttemptResult::Error, None, "the runtime aborted the call".to_owned()),
        (CallEnd::Lost, ..) => {
            (AttemptResult::Error, None, "a connection was lost during the call".to_owned())
        }
    }
}

#[cfg(test)]
mod tests;
