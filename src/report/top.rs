//! What runs now, and what the commands of the last minutes cost: sums, calls and names in; ranked rows out. Pure but for the
//! process's own name.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
    hash::Hash,
    process,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use super::{
    convert::shown,
    costs::{Commands, Cost, CostSum, LONGEST, SHORTEST},
    filter::{Glob, Parameters, Query, fits, pattern},
    in_flight::{About, BegunCall},
    journal::{Crowd, group},
    view::{
        CallInFlightView, CostPhasesView, CostView, ExecView, InFlightView, OthersView, PeerView,
        RuntimeCpuView, Seconds, TopView,
    },
};
use crate::{
    ids::{ContainerId, SandboxId},
    inventory::pod::{Container, Pod},
    prober::{ContainerStatus, ProbeStatus},
    spec::{ExecMode, Handler},
    tap::cri::CallKind,
};

/// 100 rows of each kind; all others are summed. Half of them go to those that rank first, and the others are shared fairly: a
/// pod that runs ever new commands, or a namespace with ever new pods, takes no more than half of the rows and its share.
const MOST: usize = 100;

/// 5 minutes: the window where none is asked for.
const WITHIN: Duration = Duration::from_secs(300);

/// 10 calls: with fewer, what the runtime does besides says nothing about the cost of one.
const TELLING: u64 = 10;

/// Parameters of `GET /v1/top`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TopFilter {
    /// How far back costs go; five minutes if it is not given.
    pub(crate) since: Option<Duration>,
    /// The pod's namespace.
    pub(crate) namespace: Option<Glob>,
    /// The pod's name.
    pub(crate) pod: Option<Glob>,
}

impl TopFilter {
    /// How far back costs go.
    pub fn within(&self) -> Duration {
        self.since.unwrap_or(WITHIN)
    }

    /// As the query of a URL; empty where nothing is asked for.
    pub(crate) fn to_query(&self) -> String {
        let mut query = Query::default();
        if let Some(since) = self.since {
            query.add("sinceSeconds", &since.as_secs().to_string());
        }
        query.names(self.namespace.as_ref(), self.pod.as_ref(), None);
        query.0
    }

    fn admits(&self, namespace: &str, pod: &str) -> bool {
        fits(self.namespace.as_ref(), namespace) && fits(self.pod.as_ref(), pod)
    }
}

impl Parameters for TopFilter {
    const NAMES: &'static [&'static str] = &["sinceSeconds", "namespace", "pod"];

    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "namespace" => self.namespace = Some(pattern(value)?),
            "pod" => self.pod = Some(pattern(value)?),
            "sinceSeconds" => {
                let seconds = value.parse().ok().map(Duration::from_secs);
                self.since =
                    Some(seconds.ok_or_else(|| wanted("a number of seconds", "30 to 600")).and_then(window)?);
            }
            _ => return Err("it is not known".to_owned()),
        }
        Ok(())
    }
}

/// A window of which costs are known.
///
/// # Errors
/// It is too short or too long.
pub(crate) fn window(since: Duration) -> Result<Duration, String> {
    if (SHORTEST..=LONGEST).contains(&since) { Ok(since) } else { Err(wanted("a time", "30s to 10m")) }
}

/// `range` is [`SHORTEST`] to [`LONGEST`].
fn wanted(what: &str, range: &str) -> String {
    format!("write {what} from {range}: calls are summed for {} minutes", LONGEST.as_secs() / 60)
}

/// That moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub at: Instant,
    pub wall: SystemTime,
}

/// What is in flight, and the names of what it is about.
#[derive(Clone, Copy)]
pub(super) struct InFlight<'a> {
    /// Those of clients.
    pub calls: &'a [BegunCall],
    /// All containers with their probes, whose attempts may be in flight.
    pub containers: &'a [ContainerStatus],
    pub pods: &'a [Arc<Pod>],
}

/// All of it, of these costs, which are those of calls that ended in so much time.
pub(super) fn view(
    filter: &TopFilter,
    (mut costs, counted): (Vec<Cost>, Duration),
    in_flight: InFlight<'_>,
    cores: Option<f64>,
    now: Now,
) -> TopView {
    // The CPU time is that of all calls, whatever is asked for. A command in a session costs the runtime next to nothing: what
    // is divided among all would not bound what an ExecSync costs.
    let is_call = |cost: &&Cost| cost.key.route == ExecMode::Sync;
    let calls: u64 = costs.iter().filter(is_call).map(|cost| cost.sum.calls).sum();
    let calls_in_flight = in_flight.view(filter, &costs, now);
    costs.retain(|cost| filter.admits(&cost.key.namespace, &cost.key.pod));
    let (pods, other_pods) = ranked(by_pod(&costs));
    let (commands, other_commands) = ranked(by_command(&costs));
    TopView {
        at: now.wall.into(),
        window_seconds: filter.within().into(),
        in_flight: calls_in_flight,
        pods,
        commands,
        others: OthersView { pods: other_pods, commands: other_commands },
        runtime_cpu: cores.map(|cores| RuntimeCpuView {
            cores: (cores * 1_000.0).round() / 1_000.0,
            seconds_per_exec: (calls >= TELLING).then(|| Seconds(counted.mul_f64(cores / calls as f64))),
        }),
    }
}

/// What a row is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RowName {
    namespace: Arc<str>,
    pod: Arc<str>,
    container: Option<Arc<str>>,
    command: Option<Box<[Box<str>]>>,
    is_probe: bool,
    exec_route: ExecMode,
}

fn by_pod(costs: &[Cost]) -> BTreeMap<RowName, CostSum> {
    sums(costs, |cost| RowName {
        namespace: cost.key.namespace.clone(),
        pod: cost.key.pod.clone(),
        container: None,
        command: None,
        is_probe: cost.is_probe,
        exec_route: cost.key.route,
    })
}

/// One command that several processes call, or a probe of ours and of a client run, is one row for probes and one for others;
/// and one more for what went by sessions.
fn by_command(costs: &[Cost]) -> BTreeMap<RowName, CostSum> {
    sums(costs, |cost| {
        let (container, command) = match &cost.key.commands {
            Commands::One { container, command, .. } => (container.clone(), command.clone()),
            Commands::Others { .. } => ("".into(), Box::default()),
        };
        RowName {
            namespace: cost.key.namespace.clone(),
            pod: cost.key.pod.clone(),
            container: Some(container),
            command: Some(command),
            is_probe: cost.is_probe,
            exec_route: cost.key.route,
        }
    })
}

fn sums(costs: &[Cost], name: impl Fn(&Cost) -> RowName) -> BTreeMap<RowName, CostSum> {
    let mut sums: BTreeMap<RowName, CostSum> = BTreeMap::new();
    for cost in costs {
        sums.entry(name(cost)).or_default().add(&cost.sum);
    }
    sums
}

/// The rows with the longest totals, and the sums of the others.
fn ranked(sums: BTreeMap<RowName, CostSum>) -> (Vec<CostView>, Vec<CostView>) {
    let mut rows: Vec<_> = sums.into_iter().collect();
    rows.sort_by_key(|(_, sum)| Reverse(sum.total));
    let (rows, rest) = shared_out(rows, |(name, _)| (name.namespace.clone(), name.pod.clone()));
    let mut others: BTreeMap<RowName, CostSum> = BTreeMap::new();
    for (name, sum) in rest {
        let name = RowName {
            namespace: "".into(),
            pod: "".into(),
            container: name.container.map(|_| "".into()),
            command: name.command.map(|_| Box::default()),
            ..name
        };
        others.entry(name).or_default().add(&sum);
    }
    (rows.into_iter().map(row).collect(), others.into_iter().map(row).collect())
}

/// Those that have a row, and those that have none, both in their order. The first [`MOST`] / 2 have one. Of the others, the
/// namespace that has most gives way, there the pod that has most, and there the one that ranks last.
fn shared_out<T, N: Hash>(ranked: Vec<T>, of: impl Fn(&T) -> (N, N)) -> (Vec<T>, Vec<T>) {
    let count = ranked.len();
    let mut crowd = Crowd::default();
    for (rank, row) in ranked.iter().enumerate().skip(MOST / 2).rev() {
        let (namespace, pod) = of(row);
        crowd.push(&[group(&namespace), group((&namespace, &pod))], (count - rank) as u64, 0);
    }
    let gone: HashSet<u64> = (MOST..count).filter_map(|_| crowd.pop(false)).collect();
    let numbered = ranked.into_iter().enumerate();
    let (rows, rest): (Vec<_>, Vec<_>) =
        numbered.partition(|(rank, _)| !gone.contains(&((count - rank) as u64)));
    let unnumbered = |rows: Vec<(usize, T)>| rows.into_iter().map(|(_, row)| row).collect();
    (unnumbered(rows), unnumbered(rest))
}

fn row((name, sum): (RowName, CostSum)) -> CostView {
    let RowName { namespace, pod, container, command, is_probe, exec_route } = name;
    let phases = sum.phases;
    CostView {
        namespace: namespace.to_string(),
        pod: pod.to_string(),
        container: container.map(|container| container.to_string()),
        command: command.map(|words| shown(words.iter().map(|word| &**word))),
        is_probe,
        exec_route,
        calls: sum.calls,
        failures: sum.failures,
        total_seconds: Seconds(sum.total),
        p50_seconds: Seconds(sum.quantile(50)),
        p99_seconds: Seconds(sum.quantile(99)),
        phases: (phases.calls > 0).then_some(CostPhasesView {
            calls: phases.calls,
            queue_seconds: Seconds(phases.queue),
            start_seconds: Seconds(phases.start),
            run_seconds: Seconds(phases.run),
            drain_seconds: Seconds(phases.drain),
        }),
    }
}

impl InFlight<'_> {
    /// The oldest that are wanted, each pod with its share. A client's call is a probe's if calls of its kind are known to be.
    fn view(&self, filter: &TopFilter, costs: &[Cost], now: Now) -> InFlightView {
        let containers: HashMap<&ContainerId, &Container> =
            self.containers.iter().map(|status| (&status.view.id, &*status.view)).collect();
        let pods: HashMap<&SandboxId, &Pod> = self.pods.iter().map(|pod| (&pod.sandbox_id, &**pod)).collect();
        let probes: Vec<&Cost> = costs.iter().filter(|cost| cost.is_probe).collect();
        let (streams, calls): (Vec<_>, Vec<_>) = self.calls.iter().partition(|call| call.is_event_stream());
        let of_clients =
            calls.into_iter().map(|call| (Self::of_client(call, &containers, &pods, now), Some(call)));
        let ours = self.containers.iter().flat_map(|status| &status.probes);
        let ours = ours.filter_map(|probe| Some((of_probe(probe, now)?, None)));
        let mut all: Vec<_> =
            of_clients.chain(ours).filter(|(view, _)| filter.admits(&view.namespace, &view.pod)).collect();
        all.sort_by_key(|(view, _)| Reverse(view.age_seconds));
        let total = all.len() as u64;
        let (shown, _) = shared_out(all, |(view, _)| (view.namespace.clone(), view.pod.clone()));
        let calls = shown.into_iter().map(|(view, call)| {
            let is_probe = view.is_probe || call.is_some_and(|call| view.is_of_one(call, &probes));
            CallInFlightView { is_probe, ..view }
        });
        let calls = calls.collect();
        InFlightView { total, event_streams: streams.len() as u64, calls }
    }

    fn of_client(
        call: &BegunCall,
        containers: &HashMap<&ContainerId, &Container>,
        pods: &HashMap<&SandboxId, &Pod>,
        now: Now,
    ) -> CallInFlightView {
        let [namespace, pod, container] = call.about.names(containers, pods);
        let exec = call.command.as_ref();
        CallInFlightView {
            id: call.id(),
            began: now.ago(call.began).into(),
            age_seconds: Seconds(now.at.saturating_duration_since(call.began)),
            method: call.method.name.to_string(),
            caller: (&*call.peer).into(),
            is_probe: false,
            exec: exec.map(|command| ExecView { command: command.shown(), ..ExecView::default() }),
            namespace,
            pod,
            container,
        }
    }
}

/// An attempt of ours that is in flight, if it runs a command.
fn of_probe(probe: &ProbeStatus, now: Now) -> Option<CallInFlightView> {
    let began = probe.in_flight_since?;
    let Handler::Exec { command } = &probe.spec.as_ref()?.handler else { return None };
    let pid = i32::try_from(process::id()).unwrap_or_default();
    Some(CallInFlightView {
        id: String::new(),
        began: now.ago(began).into(),
        age_seconds: Seconds(now.at.saturating_duration_since(began)),
        method: "ExecSync".to_owned(),
        caller: PeerView {
            pid,
            uid: rustix::process::geteuid().as_raw(),
            comm: env!("CARGO_PKG_NAME").to_owned(),
        },
        namespace: probe.namespace.to_string(),
        pod: probe.pod.to_string(),
        container: probe.key.container.to_string(),
        exec: Some(ExecView { command: shown(command.iter().map(String::as_str)), ..ExecView::default() }),
        is_probe: true,
    })
}

impl CallInFlightView {
    fn is_of_one(&self, call: &BegunCall, probes: &[&Cost]) -> bool {
        let Some(exec) = call.command.as_ref().filter(|_| call.method.kind == CallKind::ExecSync) else {
            return false;
        };
        let words = exec.beginning();
        probes.iter().any(|cost| match &cost.key.commands {
            Commands::One { container, command, caller } => {
                caller.as_deref() == Some(&*self.caller.comm)
                    && *command == words
                    && **container == *self.container
                    && *cost.key.pod == *self.pod
                    && *cost.key.namespace == *self.namespace
            }
            Commands::Others { .. } => false,
        })
    }
}

impl About {
    /// Namespace, pod and container. Clients may write only the beginning of an id.
    fn names(
        &self,
        containers: &HashMap<&ContainerId, &Container>,
        pods: &HashMap<&SandboxId, &Pod>,
    ) -> [String; 3] {
        match self {
            Self::Node => [const { String::new() }; 3],
            Self::New(names) => names.each_ref().map(ToString::to_string),
            Self::Container(id) => {
                let exact = containers.get(id).copied();
                let found =
                    exact.or_else(|| only(containers, |known| known.as_str().starts_with(id.as_str())));
                found.map_or_else(Default::default, |container| {
                    let pod = &container.pod;
                    [&*pod.namespace, &*pod.name, &*container.name].map(str::to_owned)
                })
            }
            Self::Sandbox(id) => {
                let exact = pods.get(id).copied();
                let found = exact.or_else(|| only(pods, |known| known.as_str().starts_with(id.as_str())));
                found
                    .map_or_else(Default::default, |pod| [&*pod.namespace, &*pod.name, ""].map(str::to_owned))
            }
        }
    }
}

/// What is wanted, if only one is.
fn only<'a, K, T>(all: &HashMap<&K, &'a T>, is_wanted: impl Fn(&K) -> bool) -> Option<&'a T> {
    let mut wanted = all.iter().filter(|(key, _)| is_wanted(key));
    let (_, found) = wanted.next()?;
    wanted.next().is_none().then_some(*found)
}

impl Now {
    fn ago(self, at: Instant) -> SystemTime {
        self.wall.checked_sub(self.at.saturating_duration_since(at)).unwrap_or(self.wall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock,
        report::costs::{CostKey, beginning},
    };

    fn cost(pod: &str, command: &str, caller: Option<&str>, is_probe: bool, seconds: u64) -> Cost {
        let commands = Commands::One {
            container: "app".into(),
            command: beginning(command.split(' ')),
            caller: caller.map(Into::into),
        };
        let key = CostKey { namespace: "default".into(), pod: pod.into(), route: ExecMode::Sync, commands };
        let sum = CostSum::of(Duration::from_secs(seconds), false);
        Cost { key: Arc::new(key), is_probe, sum }
    }

    fn shown_of(filter: &TopFilter, costs: Vec<Cost>, cores: Option<f64>) -> TopView {
        let now = Now { at: clock::now(), wall: SystemTime::UNIX_EPOCH };
        view(
            filter,
            (costs, Duration::from_secs(300)),
            InFlight { calls: &[], containers: &[], pods: &[] },
            cores,
            now,
        )
    }

    fn read(pairs: &[(&str, &str)]) -> Result<TopFilter, String> {
        let pairs: Vec<_> = pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        TopFilter::read(&pairs)
    }

    #[test]
    fn probes_and_people_have_rows_of_their_own_and_the_longest_total_comes_first() {
        let costs = vec![
            cost("web", "true", Some("kubelet"), true, 1),
            cost("web", "true", None, true, 2),
            cost("web", "true", Some("crictl"), false, 5),
            cost("db", "ls", Some("crictl"), false, 4),
        ];
        let top = shown_of(&TopFilter::default(), costs.clone(), None);
        let rows = |rows: &[CostView]| -> Vec<_> {
            rows.iter().map(|row| (row.pod.clone(), row.is_probe, row.calls)).collect()
        };
        let expected =
            [("web".to_owned(), false, 1), ("db".to_owned(), false, 1), ("web".to_owned(), true, 2)];
        assert_eq!(rows(&top.pods), expected);
        assert_eq!(rows(&top.commands), expected);
        assert_eq!(top.commands[2].command.as_deref(), Some(&["true".to_owned()][..]));
        assert_eq!(top.pods[0].command, None);
        let filter = read(&[("pod", "d*"), ("sinceSeconds", "60")]).unwrap();
        let top = shown_of(&filter, costs, None);
        assert_eq!((rows(&top.pods).len(), top.window_seconds.0.as_secs()), (1, 60));
        assert_eq!(filter.to_query(), "?sinceSeconds=60&pod=d%2A");
    }

    #[test]
    fn a_command_that_went_both_ways_has_two_rows_and_sessions_make_no_exec_look_cheaper() {
        let by_session = |cost: Cost| {
            let key = CostKey { route: ExecMode::Session, ..CostKey::clone(&cost.key) };
            Cost { key: Arc::new(key), ..cost }
        };
        let calls = (0..20).map(|_| cost("web", "true", None, true, 3));
        let costs: Vec<_> = calls.clone().chain(calls.take(10).map(by_session)).collect();
        let top = shown_of(&TopFilter::default(), costs, Some(0.5));
        for rows in [&top.pods, &top.commands] {
            let rows: Vec<_> = rows.iter().map(|row| (row.exec_route, row.is_probe, row.calls)).collect();
            assert_eq!(rows, [(ExecMode::Sync, true, 20), (ExecMode::Session, true, 10)]);
        }
        let each = top.runtime_cpu.unwrap().seconds_per_exec;
        assert_eq!(each, Some(Seconds(Duration::from_millis(7_500))), "150 s of CPU time for 20 calls");
    }

    #[test]
    fn beyond_a_hundred_rows_the_rest_is_summed_apart_for_probes() {
        let costs = (0..130).map(|number| cost(&format!("p{number}"), "true", None, number % 2 == 0, number));
        let top = shown_of(&TopFilter::default(), costs.collect(), None);
        assert_eq!(
            (top.pods.len(), top.pods[0].pod.as_str(), top.pods[99].pod.as_str()),
            (100, "p129", "p30")
        );
        let others: Vec<_> = top.others.commands.iter().map(|row| (row.is_probe, row.calls)).collect();
        assert_eq!(others, [(false, 15), (true, 15)]);
        assert_eq!(top.others.pods[0].container, None);
        assert_eq!(top.others.commands[0].command.as_deref(), Some(&[][..]));
    }

    #[test]
    fn one_pod_or_namespace_with_most_rows_leaves_those_of_others() {
        let mut rows: Vec<(&str, String, u64)> = Vec::new();
        rows.extend((0..1_000).map(|number| ("evil", "one".to_owned(), 10_000 - number)));
        rows.extend((0..1_000).map(|number| ("many", format!("p{number}"), 5_000 - number)));
        rows.extend((0..30).map(|number| ("shop", format!("web-{number}"), 100 - number)));
        rows.push(("late", "db".to_owned(), 1));
        let (shown, rest) =
            shared_out(rows.clone(), |(namespace, pod, _)| ((*namespace).to_owned(), pod.clone()));
        assert_eq!((shown.len(), shown.len() + rest.len()), (MOST, rows.len()));
        for rows in [&shown, &rest] {
            assert!(rows.is_sorted_by_key(|(_, _, total)| Reverse(*total)));
        }
        let of = |wanted: &str| shown.iter().filter(|(namespace, ..)| *namespace == wanted).count();
        assert_eq!([of("evil"), of("many"), of("shop"), of("late")], [50 + 17, 16, 16, 1]);
        assert_eq!(shown[..50], rows[..50], "the first half");
        let few =
            shared_out(rows[..MOST].to_vec(), |(namespace, pod, _)| ((*namespace).to_owned(), pod.clone()));
        assert_eq!(few, (rows[..MOST].to_vec(), vec![]));
    }

    #[test]
    fn the_runtimes_cpu_time_per_exec_is_shown_where_there_are_enough_of_them() {
        let costs =
            |count: u64| (0..count).map(|at| cost("web", &format!("x {at}"), None, true, 1)).collect();
        assert_eq!(shown_of(&TopFilter::default(), costs(20), None).runtime_cpu, None);
        let few = shown_of(&TopFilter::default(), costs(9), Some(0.5)).runtime_cpu.unwrap();
        assert_eq!((few.cores, few.seconds_per_exec), (0.5, None));
        let many = shown_of(&TopFilter::default(), costs(300), Some(0.5)).runtime_cpu.unwrap();
        assert_eq!(many.seconds_per_exec, Some(Seconds(Duration::from_millis(500))));
    }

    #[test]
    fn a_window_is_from_half_a_minute_to_ten() {
        for (seconds, is_fine) in [("30", true), ("600", true), ("29", false), ("601", false), ("-1", false)]
        {
            assert_eq!(read(&[("sinceSeconds", seconds)]).is_ok(), is_fine, "{seconds}");
        }
        let error = read(&[("sinceSeconds", "5m")]).unwrap_err();
        assert!(
            error.contains("write a number of seconds from 30 to 600: calls are summed for 10 minutes"),
            "{error}"
        );
    }
}
