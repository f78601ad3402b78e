//! The roster's memory of what attempts and acts said: the probe whose attempt ended last in; what exceeds the bound on
//! all of them is forgotten. Pure, as all of the roster.

use super::{Entry, Moment, Outputs, ProbeKey, Roster};
use crate::results::text::BoundedText;

impl Roster {
    /// Keeps in a probe's history what was done because of it.
    pub(super) fn remember_act(&mut self, key: &ProbeKey, text: &BoundedText, now: Moment) {
        let Some(worker) = self.entries.get_mut(key).and_then(|entry| entry.worker.as_mut()) else { return };
        let before = worker.results().output_bytes();
        worker.note_act(text, now.wall);
        self.outputs.changed(before, worker.results().output_bytes());
        self.forget(key);
    }

    /// Forgets what attempts said where all together said too much: of the probe that spoke last, and if that is not
    /// enough of all. Those that speak after that are the only ones above their share, so it is enough.
    pub(super) fn forget(&mut self, last: &ProbeKey) {
        let Some(share) = self.outputs.share(self.working) else { return };
        let of_last = self.entries.get_mut(last);
        of_last.into_iter().for_each(|entry| entry.forget(share, &mut self.outputs));
        if self.outputs.share(self.working).is_some() {
            self.entries.values_mut().for_each(|entry| entry.forget(share, &mut self.outputs));
        }
    }
}

impl Entry {
    /// Forgets what attempts said beyond a share.
    fn forget(&mut self, share: usize, outputs: &mut Outputs) {
        if let Some(worker) = &mut self.worker {
            let before = worker.results().output_bytes();
            worker.forget(share);
            outputs.changed(before, worker.results().output_bytes());
        }
    }
}
