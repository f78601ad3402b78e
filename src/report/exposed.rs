//! The metrics of all stages: what they answer in, text out. Series of single probes are made when they are asked for, so
//! they end with their pods.

use std::{collections::HashMap, sync::atomic::Ordering, time::SystemTime};

use tokio::task::yield_now;

use super::{
    metrics::{
        exposition::{Exposition, Format, Labels, Value},
        families::{
            ACCEPTING_PAUSED, ATTEMPT_DURATION, CALLS_IN_FLIGHT, CONNECTIONS, CONNECTIONS_BLIND,
            CONNECTIONS_OPEN, CONTAINERS, CONTAINERS_RUNNING, CPU, DRAINING, EXEC_ATTEMPTS, GAPS,
            LAST_RESYNC, LOOKUPS_WAITING, MAX_FDS, OBSERVATIONS_DROPPED, OBSERVED_PROBES, OBSERVED_SILENT,
            OPEN_FDS, PODS, PROBE_LAG, PROBE_SERIES_OMITTED, PROBE_STATE, PROBER_DURATION, PROBER_PROBES,
            PROBES, PROBES_LATE, RECORD_FILE_OK, RECORDS_DROPPED, RECORDS_WRITTEN, RELAYED_BYTES, RESIDENT,
            RESYNCS, RUNTIME_INFO, RUNTIME_UP, STAGE_ANSWERS, STAGE_RESTARTS, START_TIME, STATE_FILE_OK,
            THREADS, VIRTUAL,
        },
        process,
    },
    stages::Stages,
};
use crate::{
    ids::{PodUid, ProbeType},
    inventory::pod::Container,
    observed::{ObservedStatus, SilentProbe},
    prober::{ProbeCounts, ProbeStatus, status::ProbePhase},
    record_file::RecordStatus,
    results::{Verdict, exec_route::WhySync},
};

/// 2,000 probes of ours have series, 17 each at most: four times what the fullest nodes run. Of more, each namespace in
/// turn has one more, so that no namespace takes the series of others; the rest is counted.
const MAX_PROBES: usize = 2_000;

/// 1,000 observed probes likewise, one series each, and 1,000 that fell silent.
const MAX_OBSERVED: usize = 1_000;

impl Stages {
    /// All metrics. Those of a stage that does not answer are missing, and that is a metric, too: numbers are needed most
    /// when something is stuck.
    pub(super) async fn expose(&self, format: Format) -> String {
        let _turn = self.lists.acquire().await;
        let (counts, probes) = tokio::join!(self.prober.counts(), self.prober.probes());
        let does_answer = counts.is_ok() && probes.is_ok();
        let (counts, probes) = (counts.unwrap_or_default(), probes.unwrap_or_default());
        let (observed, silent) = (self.observed.probes(), self.observed.silent());

        let mut text = Exposition::new(format);
        let ours = fair(&probes, MAX_PROBES, |probe| &probe.namespace);
        write_kubelets(&mut text, &ours);
        yield_now().await;
        let watched = fair(&observed, MAX_OBSERVED, |probe| &probe.container.pod.namespace);
        let omitted = probes.len() + observed.len() - ours.len() - watched.len();
        text.family(&PROBE_STATE, ours.into_iter().map(state).chain(watched.into_iter().map(observed_state)));
        text.number(&PROBE_SERIES_OMITTED, omitted);
        yield_now().await;
        text.number(&OBSERVED_PROBES, observed.len());
        let silent = fair(&silent, MAX_OBSERVED, |probe| &probe.container.pod.namespace);
        text.family(&OBSERVED_SILENT, silent.into_iter().map(silence));
        write_counts(&mut text, &counts);
        self.write_relay(&mut text);
        self.write_inventory(&mut text);
        self.write_daemon(&mut text, does_answer);
        self.metrics.write(&mut text);
        write_process(&mut text, self.started_at);
        text.finish()
    }

    fn write_relay(&self, text: &mut Exposition) {
        let connections = &self.relay.connections;
        let (open, bytes) = (connections.snapshot(), connections.bytes());
        text.number(&CALLS_IN_FLIGHT, connections.calls());
        text.family(
            &RELAYED_BYTES,
            [("to_runtime", bytes.up), ("to_client", bytes.down)]
                .map(|(direction, count)| (Labels::of(&RELAYED_BYTES, &[direction]), Value::count(count))),
        );
        text.number(&CONNECTIONS, connections.total());
        text.number(&CONNECTIONS_OPEN, open.len());
        text.number(
            &CONNECTIONS_BLIND,
            open.iter().filter(|connection| connection.blind().is_some()).count(),
        );
        text.number(&ACCEPTING_PAUSED, connections.accepting_paused_since().is_some());
        text.number(&OBSERVATIONS_DROPPED, self.relay.dropped_observations());
    }

    fn write_inventory(&self, text: &mut Exposition) {
        let health = self.inventory.health();
        text.number(&GAPS, health.gaps);
        text.number(&PODS, health.census.pods);
        text.number(&CONTAINERS, health.census.containers);
        text.number(&CONTAINERS_RUNNING, health.census.running);
        let waiting = [("status", health.waiting.count), ("image", self.images.borrow().count)];
        text.family(
            &LOOKUPS_WAITING,
            waiting.map(|(what, count)| (Labels::of(&LOOKUPS_WAITING, &[what]), Value::count(count as u64))),
        );
        text.number(&RESYNCS, health.resyncs);
        let last = health.last_resync.map(|at| (Labels::default(), Value::Number(seconds(at))));
        text.family(&LAST_RESYNC, last);
    }

    fn write_daemon(&self, text: &mut Exposition, does_prober_answer: bool) {
        // Not borrowed meanwhile: the link would have to wait.
        let link = self.link.borrow().clone();
        text.number(&RUNTIME_UP, link.is_up);
        let described = [&*link.version.name, &*link.version.version, link.source.as_str()];
        text.family(&RUNTIME_INFO, [(Labels::of(&RUNTIME_INFO, &described), Value::Number(1.0))]);
        let files = [("attempts", self.attempts.status()), ("trace", self.trace.status())];
        let files: Vec<_> = files.into_iter().filter_map(|(name, file)| Some((name, file?))).collect();
        let is_ok = |file: &RecordStatus| file.trouble.is_empty().into();
        let counts = [
            (&RECORDS_WRITTEN, (|file| file.written) as fn(&RecordStatus) -> u64),
            (&RECORDS_DROPPED, |file| file.dropped),
            (&RECORD_FILE_OK, is_ok),
        ];
        for (family, count) in counts {
            let each =
                files.iter().map(|(name, file)| (Labels::of(family, &[name]), Value::count(count(file))));
            text.family(family, each);
        }
        text.number(&STATE_FILE_OK, self.state.borrow().trouble.is_empty());
        let answers = Value::Number(f64::from(u8::from(does_prober_answer)));
        text.family(&STAGE_ANSWERS, [(Labels::of(&STAGE_ANSWERS, &["prober"]), answers)]);
        text.family(
            &STAGE_RESTARTS,
            self.restarts.all().iter().map(|restarts| {
                (Labels::of(&STAGE_RESTARTS, &[restarts.stage]), Value::count(restarts.count))
            }),
        );
        text.number(&DRAINING, self.is_draining.load(Ordering::Relaxed));
    }
}

/// The kubelet's two metrics: its names, its labels, its meaning (docs/kubelet-prober.md 10). As there, a series begins
/// with what it counts. Its histogram has no uid, so the pods of one name share one.
fn write_kubelets(text: &mut Exposition, probes: &[&ProbeStatus]) {
    let results = probes.iter().flat_map(|probe| {
        let tally = &probe.tally;
        let counts = [("successful", tally.successes.count()), ("failed", tally.failures)];
        counts.into_iter().filter(|(_, count)| *count > 0).map(|(result, count)| {
            let key = &probe.key;
            let values =
                [key.kind.title(), result, &key.container, &probe.pod, &probe.namespace, key.pod.as_str()];
            (Labels::of(&PROBER_PROBES, &values), Value::count(count))
        })
    });
    text.family(&PROBER_PROBES, results);
    let succeeded = probes.iter().filter(|probe| probe.tally.successes.count() > 0);
    let durations = succeeded.map(|probe| {
        let values = [probe.key.kind.title(), &probe.key.container, &probe.pod, &probe.namespace];
        (Labels::of(&PROBER_DURATION, &values), Value::Durations(probe.tally.successes.clone()))
    });
    text.family(&PROBER_DURATION, durations);
}

fn write_counts(text: &mut Exposition, counts: &ProbeCounts) {
    let by_state = counts.by_state.iter().map(|((state, phase), count)| {
        (Labels::of(&PROBES, &[state.as_str(), phase.as_str()]), Value::count(*count))
    });
    text.family(&PROBES, by_state);
    text.number(&PROBES_LATE, counts.late.len());
    let durations = counts.attempts.durations.iter().map(|((kind, handler, result), durations)| {
        let labels = Labels::of(&ATTEMPT_DURATION, &[kind.as_str(), handler, result.as_str()]);
        (labels, Value::Durations(durations.clone()))
    });
    text.family(&ATTEMPT_DURATION, durations);
    let lags = counts.attempts.lags.iter();
    let lags =
        lags.map(|(kind, lags)| (Labels::of(&PROBE_LAG, &[kind.as_str()]), Value::Durations(lags.clone())));
    text.family(&PROBE_LAG, lags);
    let routes = counts.attempts.routes.iter().map(|(route, count)| {
        let reason = route.why_sync().map(WhySync::code).unwrap_or_default();
        (Labels::of(&EXEC_ATTEMPTS, &[route.as_str(), reason]), Value::count(*count))
    });
    text.family(&EXEC_ATTEMPTS, routes);
}

fn write_process(text: &mut Exposition, started_at: SystemTime) {
    let process = process::read();
    text.number(&CPU, process.cpu.as_secs_f64());
    for (family, value) in [
        (&RESIDENT, process.resident_bytes),
        (&VIRTUAL, process.virtual_bytes),
        (&THREADS, process.threads),
        (&OPEN_FDS, process.open_descriptors.map(|count| count as u64)),
        (&MAX_FDS, process.max_descriptors),
    ] {
        text.family(family, value.map(|value| (Labels::default(), Value::count(value))));
    }
    text.number(&START_TIME, seconds(started_at));
}

fn state(probe: &ProbeStatus) -> (Labels, Value) {
    let source = probe.source.split(':').next().unwrap_or_default();
    let (container, kind) = (&*probe.key.container, probe.key.kind.as_str());
    state_of(
        [&probe.namespace, &probe.pod],
        &probe.key.pod,
        [container, kind, source],
        probe.state,
        probe.phase,
    )
}

fn observed_state(probe: &ObservedStatus) -> (Labels, Value) {
    let (container, state) = (&*probe.container, probe.results.verdict().unwrap_or(Verdict::Unknown));
    let (pod, kind) = (&*container.pod, probe.kind.to_string());
    let names = [&*container.name, &*kind, "observed"];
    state_of([&pod.namespace, &pod.name], &pod.uid, names, state, ProbePhase::Probing)
}

fn state_of(
    [namespace, pod]: [&str; 2],
    uid: &PodUid,
    [container, kind, source]: [&str; 3],
    state: Verdict,
    phase: ProbePhase,
) -> (Labels, Value) {
    let values = [namespace, pod, uid.as_str(), container, kind, source, state.as_str(), phase.as_str()];
    (Labels::of(&PROBE_STATE, &values), Value::Number(1.0))
}

fn silence(probe: &SilentProbe) -> (Labels, Value) {
    let SilentProbe { container, kind, comm } = probe;
    let Container { pod, name, .. } = &**container;
    let values = [&*pod.namespace, &*pod.name, pod.uid.as_str(), name, &ProbeType::to_string(kind), comm];
    (Labels::of(&OBSERVED_SILENT, &values), Value::Number(1.0))
}

/// All of them in their order, or so many: each namespace in turn gives one more.
fn fair<T>(all: &[T], most: usize, namespace: impl Fn(&T) -> &str) -> Vec<&T> {
    if all.len() <= most {
        return all.iter().collect();
    }
    let mut given: HashMap<&str, usize> = HashMap::new();
    let mut turns: Vec<(usize, usize)> = Vec::with_capacity(all.len());
    for (at, each) in all.iter().enumerate() {
        let turn = given.entry(namespace(each)).or_default();
        turns.push((*turn, at));
        *turn += 1;
    }
    turns.sort_unstable();
    let mut chosen: Vec<_> = turns.into_iter().take(most).map(|(_, at)| at).collect();
    chosen.sort_unstable();
    chosen.into_iter().map(|at| &all[at]).collect()
}

/// Since 1970, to the millisecond.
fn seconds(at: SystemTime) -> f64 {
    let millis = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
    millis as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::exec_route::ExecRoute;

    #[test]
    fn attempts_of_commands_are_counted_by_their_way_and_why_it_was_not_the_one_that_was_asked_for() {
        let mut counts = ProbeCounts::default();
        let fallbacks = WhySync::ALL.map(ExecRoute::Fallback);
        for (route, count) in [ExecRoute::Sync, ExecRoute::Session].into_iter().chain(fallbacks).zip(1..) {
            counts.attempts.routes.insert(route, count);
        }
        let mut text = Exposition::new(Format::OpenMetrics);
        write_counts(&mut text, &counts);
        let text = text.finish();
        let series: Vec<_> =
            text.lines().filter(|line| line.starts_with("criprobe_exec_attempts_total{")).collect();
        assert_eq!(series.len(), 2 + WhySync::ALL.len(), "no two are equal: {series:?}");
        for line in [
            r#"criprobe_exec_attempts_total{route="sync"} 1"#,
            r#"criprobe_exec_attempts_total{route="session"} 2"#,
            r#"criprobe_exec_attempts_total{route="sync",reason="first_attempt"} 3"#,
        ] {
            assert!(series.contains(&line), "{line}: {series:?}");
        }
    }

    #[test]
    fn of_too_many_each_namespace_has_its_share() {
        let all: Vec<(&str, u32)> = [("b", 100), ("a", 2), ("c", 3)]
            .iter()
            .flat_map(|&(it, n)| (0..n).map(move |n| (it, n)))
            .collect();
        let chosen = |most| fair(&all, most, |each| each.0).into_iter().map(|(it, n)| format!("{it}{n}"));
        assert_eq!(chosen(6).collect::<Vec<_>>(), ["b0", "b1", "a0", "a1", "c0", "c1"]);
        assert_eq!(chosen(8).collect::<Vec<_>>(), ["b0", "b1", "b2", "a0", "a1", "c0", "c1", "c2"]);
        assert_eq!((chosen(1_000).count(), chosen(0).count()), (105, 0));
    }
}
