//! The exec probes that clients run themselves, recognised by their rhythm: beginning and ending ExecSync calls, and
//! containers that come and go, in; observed probes with their history out. Runs nothing.
//!
//! ```text
//! call --> group (caller, command, timeout; of one container)
//!            |-- a try of an attempt that erred -----------+
//!            |-- the next attempt of a known rhythm -------+--> probe: rhythm, results
//!            `-- a stray --> strays --> chain: three regular returns or more make a probe
//! ```
//!
//! A probe ends when its container is removed, or after five periods without an attempt. A call costs one lookup in a
//! table; only strays are searched.

mod attempt;
mod chain;
mod group;
mod likely;
mod manifests;
mod probe;
mod rhythm;
mod room;
mod status;
mod watch;

#[cfg(test)]
mod fixtures;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Notify;

pub(crate) use self::{
    likely::{LONGEST_MANIFEST, Manifest, Written},
    manifests::{PodText, ReadText},
    status::{ObservedStatus, SilentProbe},
    watch::StaticPod,
};
use crate::{
    clock,
    ids::PodUid,
    inventory::{Change, TracedCall, pod::Container},
    results::phases::PhasesSlot,
    tap::{Call, cri::CriRequest},
};
use manifests::Source;
use watch::Watch;

/// 100 ms: probes are counted once in that time, so that no flood of questions delays the calls that are observed.
const COUNTED_EVERY: Duration = Duration::from_millis(100);

/// A handle on what is observed; clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObservedHandle {
    /// Held for one call, about a microsecond; for the report of one container's probes; or for copying the pointers of
    /// all containers with observed commands.
    watch: Arc<Mutex<Watch>>,
    /// Wake those who read annotations, and files.
    awaits_texts: Arc<Notify>,
    awaits_files: Arc<Notify>,
    /// How many probes there were, and when.
    counted: Arc<Mutex<Option<(Instant, usize)>>>,
}

impl ObservedHandle {
    /// Observes from now on, or forgets all probes and observes nothing. On at first.
    pub(crate) fn enable(&self, is_on: bool) {
        self.watch().enable(is_on);
    }

    /// A container came, changed, or went.
    pub(crate) fn changed(&self, change: &Change) {
        self.watch().changed(change);
    }

    /// A call began.
    pub(crate) fn begun(&self, call: &Call) {
        self.watch().begun(call);
    }

    /// A call ended; its phases, if it was slow, may be known a little later. Whether it is known to be of a probe: a rhythm
    /// was found in calls of its kind.
    pub(crate) fn ended(&self, call: &TracedCall, phases: Option<PhasesSlot>) -> bool {
        if !matches!(call.ended.call.request, CriRequest::ExecSync(_)) {
            return false;
        }
        let mut watch = self.watch();
        let awaited = watch.ended(call, phases);
        let is_probe = watch.has_rhythm(call);
        drop(watch);
        match awaited {
            Some(Source::Annotation) => self.awaits_texts.notify_one(),
            Some(Source::File) => self.awaits_files.notify_one(),
            None => {}
        }
        is_probe
    }

    /// All observed probes as they are now, in no order.
    pub(crate) fn probes(&self) -> Vec<ObservedStatus> {
        self.probes_in(|_| true)
    }

    /// Likewise those in the containers that are wanted. Container by container, so that calls that are observed wait for
    /// one of them at most.
    pub(crate) fn probes_in(&self, is_wanted: impl Fn(&Container) -> bool) -> Vec<ObservedStatus> {
        let mut containers = self.watch().observed();
        containers.retain(|container| is_wanted(container));
        containers.iter().flat_map(|container| self.watch().probes(&container.id, clock::now())).collect()
    }

    /// The probes that fell silent while their containers run, in no order. Container by container, likewise.
    pub(crate) fn silent(&self) -> Vec<SilentProbe> {
        let containers = self.watch().observed();
        containers.iter().flat_map(|container| self.watch().silent(&container.id, clock::now())).collect()
    }

    /// How many observed probes there are, or were [`COUNTED_EVERY`] ago.
    pub(crate) fn count(&self) -> usize {
        let now = clock::now();
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = counted.filter(|(at, _)| now.saturating_duration_since(*at) < COUNTED_EVERY);
        let (at, count) = fresh.unwrap_or_else(|| (now, self.watch().count(now)));
        *counted = Some((at, count));
        count
    }

    /// How many commands made room for others since the start, as no more may be followed.
    pub(crate) fn displaced(&self) -> u64 {
        self.watch().displaced()
    }

    /// The pod whose annotation is to be read next; waits until there is one. Reading takes milliseconds.
    pub(crate) async fn next_text(&self) -> PodText {
        loop {
            let next = self.watch().next_text(clock::now());
            if let Some(text) = next {
                return text;
            }
            self.awaits_texts.notified().await;
        }
    }

    /// A pod's annotation was read.
    pub(crate) fn learn_text(&self, read: ReadText) {
        self.watch().learn_text(read);
    }

    /// The static pods with observed probes whose manifests are not known; waits until there is one.
    pub(crate) async fn static_pods(&self) -> Vec<StaticPod> {
        loop {
            let awaited = self.watch().static_pods();
            if !awaited.is_empty() {
                return awaited;
            }
            self.awaits_files.notified().await;
        }
    }

    /// What the manifest of a static pod says; none if it cannot be found or read. It is not asked for again.
    pub(crate) fn learn_file(&self, pod: &PodUid, written: Option<Arc<Written>>) {
        self.watch().learn_file(pod, written);
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
