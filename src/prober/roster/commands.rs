//! What operators want of single probes: commands in, what became of them out. Pure.

use std::time::Duration;

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

    /// Ends a pause; the next attempt is due at once, or as soon as a trigger would be accepted.
    ///
    /// # Errors
    /// There is no such probe, or it cannot run.
    pub(super) fn resume(&mut self, key: &ProbeKey, now: Moment) -> Result<(), CommandRefusal> {
        let rest = self.rest(self.able(key)?, now);
        let was_paused = self.pauses.since(key).is_some();
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
    /// There is no such probe, it cannot run, something stands in the way of an attempt, or the last one has only just
    /// begun.
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
