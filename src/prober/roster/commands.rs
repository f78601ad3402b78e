//! What operators want of single probes: commands in, what became of them out. Pure.

use super::Roster;
use crate::{
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

    /// Ends a pause; the next attempt is due at once.
    ///
    /// # Errors
    /// There is no such probe, or it cannot run.
    pub(super) fn resume(&mut self, key: &ProbeKey, now: Moment) -> Result<(), CommandRefusal> {
        self.able(key)?;
        self.pauses.remove(key);
        self.saving.note_command(now.at);
        self.send(key, WorkerEvent::Paused(false), now);
        Ok(())
    }

    /// Makes the next attempt due now, or as soon as the one in flight ended; the beat counts from it.
    ///
    /// # Errors
    /// There is no such probe, it cannot run, or something stands in the way of an attempt.
    pub(super) fn trigger(&mut self, key: &ProbeKey, now: Moment) -> Result<(), CommandRefusal> {
        if let Some(block) = self.able(key)?.block(now.at) {
            let (_, reason) = status::blocked(block, self.able(key)?, self.pauses.since(key));
            return Err(CommandRefusal::NotNow(reason));
        }
        self.send(key, WorkerEvent::Triggered, now);
        Ok(())
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
