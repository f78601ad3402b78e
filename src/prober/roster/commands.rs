//! What operators want of single probes: commands in, what became of them out. Pure.

use std::time::{Duration, Instant};

use super::Roster;
use crate::{
    handler::go,
    ids::ProbeKey,
    prober::{
        Moment,
        command::{CommandRefusal, ProbeCommand},
        status,
        worker::{Worker, event::WorkerEvent},
    },
};

/// 100 attempts at once, and one more every 20 ms: how many operators may ask for, of all probes together. A script that
/// triggers or resumes probes one by one does not get there; a loop over thousands of probes would delay all others.
const ASKED: (u32, Duration) = (100, Duration::from_millis(20));

/// What operators have asked for lately.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// When all of [`ASKED`] is there again.
    full_at: Option<Instant>,
}

impl Asked {
    /// Takes one attempt, if there is one left.
    fn take(&mut self, now: Instant) -> bool {
        let (burst, refill) = ASKED;
        let full_at = self.full_at.map_or(now, |full_at| full_at.max(now)) + refill;
        let has_left = full_at <= now + refill * burst;
        if has_left {
            self.full_at = Some(full_at);
        }
        has_left
    }
}

impl Roster {
    /// Does what an operator wants of one probe.
    pub(in crate::prober) fn command(
        &mut self,
        key: &ProbeKey,
        command: ProbeCommand,
        now: Moment,
    ) -> Result<(), CommandRefusal> {
        match command {
            ProbeCommand::Pause => self.pause(key, now),
            ProbeCommand::Resume => self.resume(key, now),
            ProbeCommand::Trigger => self.trigger(key, now),
        }
    }

    /// Makes no more attempts of a probe until it is resumed, also on containers to come. One in flight ends, and
    /// changes nothing.
    ///
    /// # Errors
    /// There is no such probe, or it cannot run.
    pub(super) fn pause(&mut self, key: &ProbeKey, now: Moment) -> Result<(), CommandRefusal> {
        self.able(key)?;
        self.pauses.insert(key, now.wall);
        self.saving.note_command(now.at);
        self.send(key, WorkerEvent::Paused(true), now);
        Ok(())
    }

    /// Ends a pause; the next attempt is due at once, or as soon as a trigger would be accepted. If operators have asked for
    /// too many, it is due after a period.
    ///
    /// # Errors
    /// There is no such probe, or it cannot run.
    pub(super) fn resume(&mut self, key: &ProbeKey, now: Moment) -> Result<(), CommandRefusal> {
        let worker = self.able(key)?;
        let (mut rest, period) = (self.rest(worker, now), worker.spec().period);
        let was_paused = self.pauses.since(key).is_some();
        if was_paused && !self.asked.take(now.at) {
            rest = rest.max(period);
        }
        self.pauses.remove(key);
        self.saving.note_command(now.at);
        self.send(key, WorkerEvent::Paused(false), now);
        if was_paused && !rest.is_zero() {
            self.send(key, WorkerEvent::Spread(rest), now);
        }
        Ok(())
    }

    /// Makes the next attempt due now, or as soon as the one in flight ended; the beat counts from it.
    ///
    /// # Errors
    /// There is no such probe, it cannot run, something stands in the way of an attempt, the last one has only just begun,
    /// or operators have asked for too many.
    pub(super) fn trigger(&mut self, key: &ProbeKey, now: Moment) -> Result<(), CommandRefusal> {
        let worker = self.able(key)?;
        if let Some(block) = worker.block(now.at) {
            let (_, reason) = status::blocked(block, worker, self.pauses.since(key));
            return Err(CommandRefusal::NotNow(reason));
        }
        if !self.rest(worker, now).is_zero() {
            let reason = format!("the last attempt began less than {} ago", go::duration(self.spacing));
            return Err(CommandRefusal::NotNow(reason));
        }
        if !self.asked.take(now.at) {
            let reason = "operators have asked for too many attempts: try again in a second".to_owned();
            return Err(CommandRefusal::NotNow(reason));
        }
        self.send(key, WorkerEvent::Triggered, now);
        Ok(())
    }

    /// How long it is until an operator may have another attempt made, so that however many ask, a probe makes no more of
    /// them than the shortest period would.
    fn rest(&self, worker: &Worker, now: Moment) -> Duration {
        worker.attempted().map_or(Duration::ZERO, |at| (at + self.spacing).saturating_duration_since(now.at))
    }

    fn able(&self, key: &ProbeKey) -> Result<&Worker, CommandRefusal> {
        let entry = self.entries.get(key).ok_or(CommandRefusal::Unknown)?;
        entry.worker.as_ref().ok_or_else(|| {
            CommandRefusal::Invalid(
                self.invalid(key, entry).map(|invalid| invalid.reason).unwrap_or_default(),
            )
        })
    }
}
