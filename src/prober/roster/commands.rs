//! What operators want of single probes: commands in, what became of them out. Pure.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Roster, spread::SPREAD};
use crate::{
    handler::go,
    ids::ProbeKey,
    prober::{
        Moment,
        command::{CommandRefusal, ProbeCommand, TriggerEnd},
        pauses::PauseTerms,
        status,
        worker::{Worker, event::WorkerEvent, outcome::Ended},
    },
    results::event::{Notice, ProbeEvent},
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
    /// The namespace of a probe.
    pub(in crate::prober) fn namespace(&self, key: &ProbeKey) -> Option<&Arc<str>> {
        self.entries.get(key).map(|entry| &entry.view.pod.namespace)
    }

    /// Does what an operator wants of one probe.
    pub(in crate::prober) fn command(
        &mut self,
        key: &ProbeKey,
        command: ProbeCommand,
        now: Moment,
    ) -> Result<(), CommandRefusal> {
        match command {
            ProbeCommand::Pause(terms) => self.pause(key, terms, now),
            ProbeCommand::Resume => self.resume(key, now),
            ProbeCommand::Trigger => self.trigger(key, now),
        }
    }

    /// Makes no more attempts of a probe until it is resumed or the time is over, also on containers to come. One in flight
    /// ends, and changes nothing.
    ///
    /// # Errors
    /// There is no such probe, or it cannot run.
    pub(super) fn pause(
        &mut self,
        key: &ProbeKey,
        terms: PauseTerms,
        now: Moment,
    ) -> Result<(), CommandRefusal> {
        self.able(key)?;
        let notice = Notice::Paused {
            length: terms.length.map(go::duration).unwrap_or_default(),
            reason: terms.reason.clone(),
        };
        if self.pauses.insert(key, terms, now) {
            self.report(key, &notice, now);
        }
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
        self.saving.note_command(now.at);
        if self.pauses.remove(key).is_none() {
            return Ok(());
        }
        if !self.asked.take(now.at) {
            rest = rest.max(period);
        }
        self.report(key, &Notice::Resumed { is_over: false }, now);
        self.send(key, WorkerEvent::Paused(false), now);
        // Also where nothing is to be waited for: the first attempt after a restart of ours would be spread.
        self.send(key, WorkerEvent::Spread(rest), now);
        Ok(())
    }

    /// Ends the pauses whose time is over. Their next attempts are due at once, or where too many end together, within a
    /// period.
    pub(super) fn end_pauses(&mut self, now: Moment) {
        while let Some(key) = self.pauses.take_ended(now.at) {
            self.saving.note_command(now.at);
            let Ok(worker) = self.able(&key) else { continue };
            let (mut rest, beat) = (self.rest(worker, now), worker.beat(now.at));
            if !self.asked.take(now.at) {
                rest = rest.max(self.offset(&key, beat.min(SPREAD)));
            }
            self.report(&key, &Notice::Resumed { is_over: true }, now);
            self.send(&key, WorkerEvent::Paused(false), now);
            self.send(&key, WorkerEvent::Spread(rest), now);
        }
    }

    /// Puts into the journal what an operator wanted of a probe.
    fn report(&mut self, key: &ProbeKey, notice: &Notice, now: Moment) {
        if let Some(entry) = self.entries.get(key) {
            let container = entry.view.id.clone();
            self.events.push(ProbeEvent::new(notice, key.kind, container, &entry.view, now.wall));
        }
    }

    /// Makes the next attempt due now, or as soon as a probe of the shortest period would make one, or the one in flight
    /// ended; the beat counts from it.
    ///
    /// # Errors
    /// There is no such probe, it cannot run, something prevents an attempt, or operators have asked for too
    /// many.
    pub(super) fn trigger(&mut self, key: &ProbeKey, now: Moment) -> Result<(), CommandRefusal> {
        let worker = self.able(key)?;
        if let Some(reason) = self.in_the_way(key, worker, now) {
            return Err(CommandRefusal::NotNow(reason));
        }
        let rest = self.rest(worker, now);
        if !self.asked.take(now.at) {
            let reason = "operators have asked for too many attempts: try again in a second".to_owned();
            return Err(CommandRefusal::NotNow(reason));
        }
        self.send(key, WorkerEvent::Triggered(rest), now);
        Ok(())
    }

    /// What became of an attempt that was triggered then; none while it is still to come or in flight.
    pub(in crate::prober) fn triggered(
        &self,
        key: &ProbeKey,
        then: Instant,
        now: Moment,
    ) -> Option<TriggerEnd> {
        let not_made = |reason: &str| Some(TriggerEnd::NotMade(reason.to_owned()));
        let Some(worker) = self.entries.get(key).and_then(|entry| entry.worker.as_ref()) else {
            return not_made("the probe is gone");
        };
        match worker.ended_since(then) {
            Some(Ended::WithResult) => worker.results().last().cloned().map(TriggerEnd::Made),
            Some(Ended::GivenUp) => {
                not_made("the attempt was given up, because its container ended or was paused")
            }
            None if worker.flight_since().is_some() => None,
            None => self.in_the_way(key, worker, now).map(TriggerEnd::NotMade),
        }
    }

    /// What prevents an attempt, in words.
    fn in_the_way(&self, key: &ProbeKey, worker: &Worker, now: Moment) -> Option<String> {
        let (block, view) = (worker.block(now.at)?, &self.entries.get(key)?.view);
        let (_, reason) = status::blocked(block, worker, view, (self.pauses.get(key), now.wall));
        Some(reason)
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
