//! What the stage shows of itself: changes of single containers in, the whole for readers out.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::sync::watch;

use super::status::{ActEnd, ActRecord, ActsStatus, Current, Place, PlaceStatus, Step};
use crate::ids::ContainerId;

/// 1,024 places are shown with their last act; beyond that, those without a current act make room, the oldest first.
pub(super) const MAX_PLACES: usize = 1024;

/// The sending side of the status. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Board(Arc<watch::Sender<Arc<ActsStatus>>>);

impl Board {
    /// Nothing goes on but what is shown from now on; these are the last acts of former runs.
    pub(super) fn restore(&self, last: impl IntoIterator<Item = (Place, ActRecord)>) {
        let of = |last| PlaceStatus { last: Some(last), ..PlaceStatus::default() };
        let places = last.into_iter().map(|(place, last)| (place, of(last))).collect();
        self.0.send_replace(Arc::new(ActsStatus { places, ..ActsStatus::default() }));
    }

    /// For readers.
    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<ActsStatus>> {
        self.0.subscribe()
    }

    /// Something of the whole changed.
    pub(super) fn update(&self, change: impl FnOnce(&mut ActsStatus)) {
        self.0.send_modify(|status| change(Arc::make_mut(status)));
    }

    /// What goes on at a place is this now; `step` follows the last one.
    pub(super) fn enter(&self, place: &Place, current: Current) {
        self.place(place, |status| {
            status.next_allowed = current.step.until();
            status.current = Some(current);
        });
    }

    /// The next restart at a place waits for so long after the exit.
    pub(super) fn back_off(&self, place: &Place, back_off: Duration) {
        self.place(place, |status| status.back_off = back_off);
    }

    /// The act at a place takes its next step.
    pub(super) fn step(&self, place: &Place, step: Step, now: SystemTime) {
        self.place(place, |status| {
            status.next_allowed = step.until();
            if let Some(current) = &mut status.current {
                (current.step, current.since) = (step, now);
            }
        });
    }

    /// An act began.
    pub(super) fn begin(&self, place: &Place, record: ActRecord) {
        self.place(place, |status| status.last = Some(record));
    }

    /// The act at a place ended; returns its record.
    pub(super) fn end(&self, place: &Place, end: ActEnd, took: Duration) -> Option<ActRecord> {
        let mut ended = None;
        self.place(place, |status| {
            (status.current, status.next_allowed) = (None, None);
            if let Some(last) = &mut status.last {
                (last.end, last.took) = (Some(end), took);
            }
            ended.clone_from(&status.last);
        });
        ended
    }

    /// A demand for a container is not withheld any more.
    pub(super) fn leave_withheld(&self, place: &Place, container: &ContainerId) {
        self.place(place, |status| {
            let is_it = |current: &Current| {
                current.container == *container && matches!(current.step, Step::Withheld { .. })
            };
            if status.current.take_if(|current| is_it(current)).is_some() {
                status.next_allowed = None;
            }
        });
    }

    /// Why acts cannot be recorded, or that they can; returns whether that is news.
    pub(super) fn set_trouble(&self, trouble: &str) -> bool {
        let is_news = self.0.borrow().trouble != trouble;
        if is_news {
            self.update(|status| trouble.clone_into(&mut status.trouble));
        }
        is_news
    }

    /// How many acts there are.
    pub(super) fn summarize(&self, last_minute: usize, in_progress: usize, withheld: usize) {
        let of = |status: &ActsStatus| (status.last_minute, status.in_progress, status.withheld);
        if of(&self.0.borrow()) != (last_minute, in_progress, withheld) {
            self.update(|status| {
                (status.last_minute, status.in_progress, status.withheld) =
                    (last_minute, in_progress, withheld);
            });
        }
    }

    /// Changes the status of a place.
    pub(super) fn place(&self, place: &Place, change: impl FnOnce(&mut PlaceStatus)) {
        self.update(|status| {
            let places = &mut status.places;
            change(places.entry(place.clone()).or_default());
            if places.get(place).is_some_and(|status| *status == PlaceStatus::default()) {
                places.remove(place);
            }
            if places.len() > MAX_PLACES {
                let idle = places.iter().filter(|(_, status)| status.current.is_none());
                let oldest = idle.min_by_key(|(_, status)| status.last.as_ref().map(|last| last.at));
                if let Some(oldest) = oldest.map(|(place, _)| place.clone()) {
                    places.remove(&oldest);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ids::ProbeKind, results::event::ActCause, spec::OnFailure};

    fn record(at: u64) -> ActRecord {
        ActRecord {
            at: SystemTime::UNIX_EPOCH + Duration::from_secs(at),
            container: "c1".into(),
            action: OnFailure::Stop,
            cause: ActCause::Probe(ProbeKind::Liveness),
            end: None,
            took: Duration::ZERO,
            command: None,
        }
    }

    #[test]
    fn the_last_acts_of_many_places_are_kept_and_what_goes_on_always_is() {
        let place = |number: u64| -> Place { (format!("p{number}").into(), "app".into()) };
        let board = Board::default();
        board.restore([(place(0), record(0))]);
        let shown = board.subscribe();
        let current = Current {
            container: "c1".into(),
            action: OnFailure::Stop,
            cause: ActCause::Probe(ProbeKind::Liveness),
            since: SystemTime::UNIX_EPOCH,
            step: Step::Stopping,
        };
        board.enter(&place(0), current);
        for number in 1..=MAX_PLACES as u64 {
            board.begin(&place(number), record(number));
            board.end(&place(number), ActEnd::Stopped, Duration::from_secs(1));
        }
        let places = shown.borrow().places.clone();
        assert_eq!(places.len(), MAX_PLACES);
        assert!(places.contains_key(&place(0)) && !places.contains_key(&place(1)));
        assert_eq!(places[&place(2)].last.as_ref().unwrap().end, Some(ActEnd::Stopped));
        board.leave_withheld(&place(5000), &"c1".into());
        assert!(!shown.borrow().places.contains_key(&place(5000)));
    }
}
