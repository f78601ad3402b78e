//! What pods were written with: the pods of which probes were found in; which of their texts to read next, and what was
//! read of them. A text is read at most once, whatever the number of containers, and nothing of it is kept but the exec
//! probes. Pure: never reads a file or a clock.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::{Duration, Instant},
};

use super::likely::Written;
use crate::{
    ids::{PodUid, ProbeKind, SandboxId},
    inventory::pod::Pod,
    runtime::turns::{Owner, TurnLimits, Turns},
    tap::cri::ExecCommand,
};

/// What `kubectl apply` leaves on a pod: the pod as it was applied, in JSON.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Where a kubelet has a pod from; `file` is a static pod's.
const SOURCE: &str = "kubernetes.io/config.source";

/// 4,096 pods are known, more than a node has. Of a further one nothing is read until one of them is forgotten.
const MOST_PODS: usize = 4096;

/// 4 MiB are kept of all pods. If there is more, the pods that have most lose theirs, and are not read again.
const MOST_IN_ALL: usize = 4 << 20;

/// One text is read at a time; of those that wait, namespaces take turns.
const TURNS: TurnLimits = TurnLimits { quick: 1, slow: 0, tried: 0, all: MOST_PODS };

/// Where it is written what a pod's probes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// In an annotation of the pod.
    Annotation,
    /// In the file of a static pod.
    File,
}

/// All pods of which probes were found and whose manifests are known or awaited.
#[derive(Debug)]
pub(super) struct Manifests {
    pods: HashMap<PodUid, Known>,
    /// Those with texts to read.
    turns: Turns<PodUid>,
    /// What is kept of all of them.
    weight: usize,
}

#[derive(Debug)]
struct Known {
    source: Source,
    /// The pod as it was when a probe of it was found, until its manifest is read.
    awaited: Option<Arc<Pod>>,
    /// The sandbox whose text was read last. Its annotations never change.
    read_of: Option<SandboxId>,
    /// Identifies that text.
    fingerprint: Option<u64>,
    written: Arc<Written>,
    /// When a container of it was last seen.
    seen_at: Instant,
}

/// A pod whose annotation is to be read.
#[derive(Debug)]
pub(crate) struct PodText {
    pod: Arc<Pod>,
    /// Identifies the text of this pod that was read before.
    known: Option<u64>,
}

/// What was read.
#[derive(Debug)]
pub(crate) struct ReadText {
    pod: PodUid,
    sandbox: SandboxId,
    fingerprint: u64,
    /// None if it is the text that was read before.
    written: Option<Written>,
}

impl PodText {
    /// Reads it, unless it is the text that was read before. Takes milliseconds.
    pub(crate) fn read(&self) -> ReadText {
        let text = self.pod.annotations.get(LAST_APPLIED).map_or("", String::as_str);
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let fingerprint = hasher.finish();
        let written = (self.known != Some(fingerprint)).then(|| Written::read(text));
        ReadText { pod: self.pod.uid.clone(), sandbox: self.pod.sandbox_id.clone(), fingerprint, written }
    }
}

impl Default for Manifests {
    fn default() -> Self {
        Self { pods: HashMap::new(), turns: Turns::new(TURNS), weight: 0 }
    }
}

impl Manifests {
    /// A probe of this pod was found. Returns where its manifest is, if that is not known yet.
    pub(super) fn want(&mut self, pod: &Arc<Pod>, now: Instant) -> Option<Source> {
        let source = source(pod)?;
        if self.pods.len() >= MOST_PODS && !self.pods.contains_key(&pod.uid) {
            return None;
        }
        let known = self.pods.entry(pod.uid.clone()).or_insert_with(|| Known {
            source,
            awaited: None,
            read_of: None,
            fingerprint: None,
            written: Arc::default(),
            seen_at: now,
        });
        known.seen_at = now;
        let is_known = match source {
            Source::Annotation => known.is_read_of(pod),
            Source::File => known.read_of.is_some(),
        };
        if is_known {
            return None;
        }
        (known.source, known.awaited) = (source, Some(Arc::clone(pod)));
        if source == Source::Annotation {
            let owner = Owner { namespace: pod.namespace.clone(), pod: pod.uid.as_str().into() };
            self.turns.add(pod.uid.clone(), owner, Duration::ZERO, now);
        }
        Some(source)
    }

    /// The pod whose text is to be read next. It may be asked for while another one is being read.
    pub(super) fn next_text(&mut self, now: Instant) -> Option<PodText> {
        while let Some(uid) = self.turns.start(now) {
            // If the reader fails, the text is wanted again when the next probe is found.
            self.turns.answered(&uid, now);
            let Some(known) = self.pods.get_mut(&uid) else { continue };
            if let Some(pod) = known.awaited.take_if(|_| known.source == Source::Annotation)
                && !known.is_read_of(&pod)
            {
                return Some(PodText { pod, known: known.fingerprint });
            }
        }
        None
    }

    /// A pod's text was read.
    pub(super) fn learn_text(&mut self, read: ReadText) {
        let Some(known) = self.pods.get_mut(&read.pod) else { return };
        known.read_of = Some(read.sandbox);
        known.fingerprint = Some(read.fingerprint);
        if let Some(written) = read.written {
            self.keep(&read.pod, Arc::new(written));
        }
    }

    /// The static pods whose files are to be read.
    pub(super) fn awaited_files(&self) -> impl Iterator<Item = &Arc<Pod>> {
        let files = self.pods.values().filter(|known| known.source == Source::File);
        files.filter_map(|known| known.awaited.as_ref())
    }

    /// A static pod's file was read; none if it cannot be found or read. It is not asked for again.
    pub(super) fn learn_file(&mut self, pod: &PodUid, written: Option<Arc<Written>>) {
        let Some(known) = self.pods.get_mut(pod) else { return };
        let Some(awaited) = known.awaited.take_if(|_| known.source == Source::File) else { return };
        known.read_of = Some(awaited.sandbox_id.clone());
        self.keep(pod, written.unwrap_or_default());
    }

    /// The likely type of a probe; see [`Written::likely`].
    pub(super) fn likely(
        &self,
        (pod, container): (&PodUid, &str),
        command: &ExecCommand,
        period: Duration,
    ) -> Option<ProbeKind> {
        self.pods.get(pod)?.written.likely(container, command, period)
    }

    /// Forgets the pods without such containers that were not seen for that long: a container that fails may be started
    /// again minutes later.
    pub(super) fn sweep(&mut self, is_there: impl Fn(&PodUid) -> bool, patience: Duration, now: Instant) {
        let weight = &mut self.weight;
        self.pods.retain(|uid, known| {
            if is_there(uid) {
                known.seen_at = now;
            }
            let is_kept = now.saturating_duration_since(known.seen_at) <= patience;
            if !is_kept {
                *weight -= known.written.weight();
            }
            is_kept
        });
    }

    fn keep(&mut self, pod: &PodUid, written: Arc<Written>) {
        let Some(known) = self.pods.get_mut(pod) else { return };
        self.weight = self.weight - known.written.weight() + written.weight();
        known.written = written;
        while self.weight > MOST_IN_ALL
            && let Some(most) = self.pods.values_mut().max_by_key(|known| known.written.weight())
        {
            self.weight -= most.written.weight();
            most.written = Arc::default();
        }
    }
}

impl Known {
    fn is_read_of(&self, pod: &Pod) -> bool {
        self.read_of.as_ref() == Some(&pod.sandbox_id)
    }
}

fn source(pod: &Pod) -> Option<Source> {
    match (pod.annotations.get(LAST_APPLIED), pod.annotations.get(SOURCE)) {
        (Some(_), _) => Some(Source::Annotation),
        (None, Some(source)) if source == "file" => Some(Source::File),
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests;
