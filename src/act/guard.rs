//! Decides which demands begin, and when: demands, begins, ends and `now` in; the next one to try out, and why the others
//! are withheld. Keeps the budgets of the node, and divides them fairly. Pure.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use super::status::Place;
use crate::ids::{ContainerId, PodUid};

/// 60 s: the window of `act.maxPerMinute`.
const MINUTE: Duration = Duration::from_secs(60);

/// 10 min: for how long the acts of a namespace and of a pod make them yield to others.
const RECENT: Duration = Duration::from_secs(600);

/// 10 min: a demand that is not repeated for so long is dropped: its probe is gone, or fails no more.
const STALE: Duration = Duration::from_secs(600);

/// 1,024 demands wait at most, about 300 KiB. One more takes the place of the newest demand of the namespace that has the
/// most, if its own has fewer; else it is not taken. What is left out comes again.
const MOST_WAITING: usize = 1024;

/// 1,024 acts are remembered for fairness; beyond that the oldest are forgotten. Those of the last minute never are.
const MOST_REMEMBERED: usize = 1024;

/// The budgets of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GuardSettings {
    /// Acts that begin within any 60 s.
    pub max_per_minute: usize,
    /// Acts in progress at once.
    pub max_concurrent: usize,
}

/// A demand, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub place: Place,
    pub container: ContainerId,
    pub namespace: Arc<str>,
}

/// The demands that wait, and the acts of the last minutes.
#[derive(Debug)]
pub(super) struct Guard {
    settings: GuardSettings,
    waiting: HashMap<ContainerId, Waiting>,
    in_progress: HashSet<ContainerId>,
    /// In the order in which they began.
    begun: VecDeque<Begun>,
    /// Numbers the demands.
    count: u64,
}

#[derive(Debug)]
struct Waiting {
    ask: Ask,
    /// Its number: the lower, the older.
    number: u64,
    /// When it was last repeated.
    repeated_at: Instant,
    /// Why and until when it may not be tried, for a reason of the caller's.
    deferred: Option<(String, Instant)>,
}

#[derive(Debug)]
struct Begun {
    at: Instant,
    /// Not known of an act before our start.
    whose: Option<Whose>,
}

/// Whose place among those in progress an act has, or had.
#[derive(Debug)]
struct Whose {
    container: ContainerId,
    namespace: Arc<str>,
    pod: PodUid,
    /// When the act gave its place back.
    released_at: Option<Instant>,
}

impl Begun {
    /// What it counts against the others of its namespace and its pod: the time for which it has had its place, and a second
    /// for itself, so that short acts count, too.
    fn weight(&self, now: Instant) -> Duration {
        let until = self.whose.as_ref().and_then(|whose| whose.released_at).unwrap_or(now);
        until.saturating_duration_since(self.at) + Duration::from_secs(1)
    }
}

impl Guard {
    /// With the acts that began before our start, so long ago.
    pub(super) fn new(
        settings: GuardSettings,
        recent: impl IntoIterator<Item = Duration>,
        now: Instant,
    ) -> Self {
        let mut begun: Vec<_> = recent.into_iter().map(|ago| now.checked_sub(ago).unwrap_or(now)).collect();
        begun.sort_unstable();
        Self {
            settings,
            waiting: HashMap::new(),
            in_progress: HashSet::new(),
            begun: begun.into_iter().map(|at| Begun { at, whose: None }).collect(),
            count: 0,
        }
    }

    /// Other budgets from now on. What is in progress goes on.
    pub(super) fn set(&mut self, settings: GuardSettings) {
        self.settings = settings;
    }

    /// A demand. One for a container that already waits repeats it; one for a container that is acted on is nothing new.
    pub(super) fn ask(&mut self, ask: Ask, now: Instant) {
        self.forget(now);
        if self.in_progress.contains(&ask.container) {
            return;
        }
        if let Some(waiting) = self.waiting.get_mut(&ask.container) {
            waiting.repeated_at = now;
            return;
        }
        if self.waiting.len() >= MOST_WAITING {
            match self.dispensable(&ask.namespace) {
                Some(container) => self.waiting.remove(&container),
                None => return,
            };
        }
        self.count += 1;
        let waiting = Waiting { number: self.count, repeated_at: now, deferred: None, ask };
        self.waiting.insert(waiting.ask.container.clone(), waiting);
    }

    /// Whether a container is asked for, and its act has not begun.
    pub(super) fn waits(&self, container: &ContainerId) -> bool {
        self.waiting.contains_key(container)
    }

    /// It is asked for no more.
    pub(super) fn withdraw(&mut self, container: &ContainerId) {
        self.waiting.remove(container);
    }

    /// The demand that may be tried now, if the budgets allow one: of the namespace whose acts have had their places for the
    /// shortest time in the last 10 minutes, of its pod with the shortest, the oldest. The same until it begins, is deferred or is withdrawn.
    pub(super) fn next(&mut self, now: Instant) -> Option<ContainerId> {
        self.forget(now);
        if self.exhausted(now).is_some() {
            return None;
        }
        let (mut namespaces, mut pods) =
            (HashMap::<&str, Duration>::new(), HashMap::<&PodUid, Duration>::new());
        for begun in &self.begun {
            let Some(Whose { namespace, pod, .. }) = &begun.whose else { continue };
            *namespaces.entry(namespace).or_default() += begun.weight(now);
            *pods.entry(pod).or_default() += begun.weight(now);
        }
        let allowed = self.waiting.values().filter(|waiting| waiting.deferral(now).is_none());
        let first = allowed.min_by_key(|Waiting { ask, number, .. }| {
            let of_namespace = namespaces.get(&*ask.namespace).copied().unwrap_or_default();
            let of_pod = pods.get(&ask.place.0).copied().unwrap_or_default();
            (of_namespace, of_pod, *number)
        })?;
        Some(first.ask.container.clone())
    }

    /// The act on a container that waits begins: it counts in this minute, and among those in progress.
    pub(super) fn begin(&mut self, container: &ContainerId, now: Instant) {
        let Some(Waiting { ask, .. }) = self.waiting.remove(container) else { return };
        self.in_progress.insert(ask.container.clone());
        let Ask { container, namespace, place: (pod, _) } = ask;
        let whose = Whose { container, namespace, pod, released_at: None };
        self.begun.push_back(Begun { at: now, whose: Some(whose) });
        self.forget(now);
    }

    /// The act may not begin before `until`, for this reason.
    pub(super) fn defer(&mut self, container: &ContainerId, reason: String, until: Instant) {
        if let Some(waiting) = self.waiting.get_mut(container) {
            waiting.deferred = Some((reason, until));
        }
    }

    /// An act that a former run began is in progress, and was counted then.
    pub(super) fn adopt(&mut self, container: ContainerId) {
        self.in_progress.insert(container);
    }

    /// The act ended, or waits: another may be in progress.
    pub(super) fn release(&mut self, container: &ContainerId, now: Instant) {
        self.in_progress.remove(container);
        let acts = self.begun.iter_mut().rev().filter_map(|begun| begun.whose.as_mut());
        if let Some(whose) = acts.into_iter().find(|whose| whose.container == *container) {
            whose.released_at.get_or_insert(now);
        }
    }

    /// Every demand that may not be tried now, and why, in no order.
    pub(super) fn withheld(&self, now: Instant) -> impl Iterator<Item = (&Ask, String)> {
        let exhausted = self.exhausted(now);
        self.waiting.values().filter_map(move |waiting| {
            let reason = waiting.deferral(now).map(str::to_owned).or_else(|| exhausted.clone())?;
            Some((&waiting.ask, reason))
        })
    }

    /// When something may be tried, or is dropped, that is not now; none if nothing waits. What waits for the end of
    /// another act has no time.
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        let is_full = self.in_progress.len() >= self.settings.max_concurrent;
        let free_at = self.free_at(now);
        let times = self.waiting.values().flat_map(|waiting| {
            let deferred = waiting.deferred.as_ref().map_or(now, |(_, until)| *until);
            let tried = (!is_full).then(|| free_at.map(|free| free.max(deferred))).flatten();
            [tried, Some(waiting.repeated_at + STALE)]
        });
        times.flatten().min().map(|at| at.max(now))
    }

    /// How many acts began in the last minute.
    pub(super) fn last_minute(&self, now: Instant) -> usize {
        let is_older = |begun: &Begun| now.saturating_duration_since(begun.at) >= MINUTE;
        self.begun.len() - self.begun.partition_point(is_older)
    }

    /// How many acts are in progress.
    pub(super) fn in_progress(&self) -> usize {
        self.in_progress.len()
    }

    /// Which budget allows no act now, in words.
    fn exhausted(&self, now: Instant) -> Option<String> {
        let acts = |count: usize| if count == 1 { "1 act".to_owned() } else { format!("{count} acts") };
        let last_minute = self.last_minute(now);
        if last_minute >= self.settings.max_per_minute {
            return Some(format!("{} in the last minute (act.maxPerMinute)", acts(last_minute)));
        }
        match self.in_progress.len() {
            count if count < self.settings.max_concurrent => None,
            1 => Some("another act is in progress (act.maxConcurrent)".to_owned()),
            count => Some(format!("{} are in progress (act.maxConcurrent)", acts(count))),
        }
    }

    /// From when on the budget of the minute allows an act; none if it never does.
    pub(super) fn free_at(&self, now: Instant) -> Option<Instant> {
        match self.settings.max_per_minute {
            0 => None,
            most if self.last_minute(now) < most => Some(now),
            most => Some(self.begun[self.begun.len() - most].at + MINUTE),
        }
    }

    /// Whose demand makes room for one of a namespace: the newest of the namespace that has the most, if that has more than
    /// this one will have.
    fn dispensable(&self, namespace: &str) -> Option<ContainerId> {
        let mut namespaces = HashMap::<&str, usize>::new();
        for waiting in self.waiting.values() {
            *namespaces.entry(&waiting.ask.namespace).or_default() += 1;
        }
        let own = namespaces.get(namespace).copied().unwrap_or_default();
        let (most, count) = namespaces.into_iter().max_by_key(|(name, count)| (*count, Reverse(*name)))?;
        let of_most = self.waiting.values().filter(|waiting| &*waiting.ask.namespace == most);
        let newest = of_most.max_by_key(|waiting| waiting.number)?;
        (count > own + 1).then(|| newest.ask.container.clone())
    }

    /// Drops what matters no more.
    fn forget(&mut self, now: Instant) {
        self.waiting.retain(|_, waiting| now.saturating_duration_since(waiting.repeated_at) < STALE);
        while let Some(oldest) = self.begun.front() {
            let age = now.saturating_duration_since(oldest.at);
            if age < RECENT && (age < MINUTE || self.begun.len() <= MOST_REMEMBERED) {
                return;
            }
            self.begun.pop_front();
        }
    }
}

impl Waiting {
    /// Why it may not be tried now, for a reason of the caller's.
    fn deferral(&self, now: Instant) -> Option<&str> {
        self.deferred.as_ref().filter(|(_, until)| *until > now).map(|(reason, _)| reason.as_str())
    }
}

#[cfg(test)]
mod tests;
