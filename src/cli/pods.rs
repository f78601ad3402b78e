//! `criprobe pods`: pods with their containers, as a table or for machines.

mod watch;

use std::time::SystemTime;

use super::{
    Context, Error, Exit,
    act::pause_words,
    banner, exits,
    format::{self, Format},
    live::{LiveArgs, item::Item as _},
    nothing,
    probes::verdict_paint,
    reason::one_line,
    screen::{Paint, print},
    select::SelectPods,
    span::age,
    table::{Cell, Column, Table, Tight},
};
use crate::{
    clock, ids,
    report::{
        filter::PodFilter,
        view::{
            ContainerStateView, ContainerView, FailingProbeView, PodView, ProbePhase, ProbesView, Time,
            Verdict, joined,
        },
    },
};

/// Flags of the verb.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct PodsArgs {
    #[command(flatten)]
    select: SelectPods,
    #[command(flatten)]
    live: LiveArgs,
}

const EXAMPLES: &str = "\
Examples:
  criprobe pods                        all pods, one row per container
  criprobe pods 'shop/web-*'           those of namespace shop whose names begin with web-
  criprobe pods -w                     live, what is not ready first
  criprobe pods -o wide                with the last exit and the log file of each container
  criprobe pods -o json | jq -r '.[] | select(.ready | not) | .pod'

STARTED and READY are what the kubelet would report in the pod's status. A container is started
once its startup probe has succeeded, and ready once it is started and its readiness probe succeeds.
Without such a probe, it is started or ready as soon as it runs. A pod is ready when its sandbox is
ready and all its containers are ready. A container that exited with code 0 is not counted: it may
be an init container, and the runtime does not report which containers are. RESTARTS is the
container's attempt number, AGE the time since it started. STATE shows the exit code of a container
that has ended, and OOMKilled where its memory was used up. Lines below a pod say why it is not
ready, which other probes fail or are invalid, and how a container ended that runs again: 'criprobe
describe NAMESPACE/POD' shows more. If several containers have the same name, or a pod has several sandboxes, only the newest is shown.

--failed shows pods that are not ready, have a probe that fails or is invalid, or wrong annotations. -w works as in 'criprobe probes'.";

impl PodsArgs {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, Error> {
        if self.live.sort.is_some_and(|sort| !PodView::SORTS.contains(&sort)) {
            return Err(Error::Usage("pods have no duration: sort them by name, state or since".to_owned()));
        }
        let names = self.select.names()?;
        let filter = PodFilter { namespace: names.namespace.clone(), pod: names.pod.clone() };
        let path = format!("/v1/pods{}", filter.to_query());
        if self.live.watch {
            return self.live.watch::<PodView>(context, &path).await;
        }
        let mut pods: Vec<PodView> = context.client.get(&path).await?;
        let is_known = if pods.is_empty() { nothing::known(context, &names, false).await } else { Ok(()) };
        self.live.choose(&mut pods);
        if is_known.is_ok() || matches!(context.format, Format::Json | Format::Yaml) {
            print(&(banner::text(context).await + &render(&pods, context, clock::wall())))?;
        } else {
            print(&banner::text(context).await)?;
        }
        is_known.map(|()| Exit::Fine)
    }
}

fn render(pods: &[PodView], context: &Context, now: SystemTime) -> String {
    let lines = match context.format {
        Format::Json => return format::json(&pods),
        Format::Yaml => return format::yaml(&pods),
        Format::Table | Format::Wide if pods.is_empty() => return "no pods\n".to_owned(),
        Format::Table => table(pods, now).render(context.screen, Some(context.screen.width)),
        Format::Wide => wide(pods, now).render(context.screen, None),
    };
    lines.join("\n") + "\n"
}

const COLUMNS: [Column; 10] = [
    Column { name: "NAMESPACE/POD", tight: Tight::Shrinks },
    Column { name: "POD-READY", tight: Tight::GoesLast },
    Column { name: "CONTAINER", tight: Tight::Shrinks },
    Column { name: "STATE", tight: Tight::Stays },
    Column { name: "STARTED", tight: Tight::GoesNext },
    Column { name: "READY", tight: Tight::Stays },
    Column { name: "RESTARTS", tight: Tight::GoesNext },
    Column { name: "PROBES", tight: Tight::Shrinks },
    Column { name: "AGE", tight: Tight::GoesFirst },
    Column { name: "IMAGE", tight: Tight::GoesFirst },
];

/// What fits a terminal: a row a container, and a line below a pod that is not ready.
fn table<'a>(pods: impl IntoIterator<Item = &'a PodView>, now: SystemTime) -> Table {
    let mut table = Table::new(COLUMNS.to_vec());
    for pod in pods {
        for row in rows(pod, now) {
            table.row(row);
        }
        if !pod.reason.is_empty() {
            table.note(Cell::new(&one_line(&pod.reason), Paint::Faint));
        }
        let failing = failing(pod);
        for words in failing.iter().take(MOST_FAILING) {
            table.note(Cell::new(words, Paint::Faint));
        }
        if let Some(more @ 1..) = failing.len().checked_sub(MOST_FAILING) {
            let name = joined([&*pod.namespace, &*pod.pod]);
            table.note(Cell::new(&format!("and {more} more: criprobe describe {name}"), Paint::Faint));
        }
        for container in &pod.containers {
            if let Some(last) = exits::recent_failure(container, now) {
                table.note(Cell::new(&format!("{}: last exit: {last}", container.container), Paint::Faint));
            }
        }
        for (note, paint) in notes(pod) {
            table.note(Cell::new(note, paint));
        }
        for words in pauses(pod, now.into()) {
            table.note(Cell::new(&words, Paint::Doubtful));
        }
    }
    table
}

/// 3 failing probes of a pod have a line of their own; of others only the number is shown.
const MOST_FAILING: usize = 3;

/// `app: liveness probe fails since 10:00:00Z (3m): HTTP probe failed with statuscode: 503`, a text for each probe that
/// fails or is invalid: of containers that run first, and what fails before what is invalid. The pod's reason may already
/// explain one of each container.
fn failing(pod: &PodView) -> Vec<String> {
    let all = pod.containers.iter().flat_map(|container| {
        let is_explained = move |probe: &FailingProbeView| !container.ready && probe.kind != LIVENESS;
        // That it has ended badly is in its row, and why.
        let is_over = container.exit_code.is_some_and(|code| code != 0);
        let probes = container.failing_probes.iter();
        let probes = probes.filter(move |probe| {
            !is_over || !probe.reason.starts_with(&format!("{} probe waits: ", probe.kind))
        });
        probes.map(move |probe| (container, probe, is_explained(probe)))
    });
    let mut all: Vec<_> = all
        .map(|(container, probe, is_explained)| {
            let is_over = container.state != ContainerStateView::Running;
            let words = format!("{}: {}", container.container, probe.reason);
            ((is_over, probe.phase == ProbePhase::Invalid), is_explained, words)
        })
        .filter(|(_, is_explained, words)| !is_explained || !pod.reason.contains(words))
        .collect();
    all.sort_by_key(|&(rank, ..)| rank);
    all.into_iter().map(|(.., words)| one_line(&words)).collect()
}

/// What becomes of it is never a reason why its pod is not ready.
const LIVENESS: &str = "liveness";

/// What is said of a pod's annotations.
pub(super) fn notes(pod: &PodView) -> impl Iterator<Item = (&str, Paint)> {
    let off = pod.probes_off.then_some((TURNED_OFF, Paint::Faint));
    off.into_iter().chain(pod.problems.iter().map(|problem| (&**problem, Paint::Doubtful)))
}

/// Of a pod without probes, by its own will.
pub(super) const TURNED_OFF: &str = "probes turned off by annotation (criprobe.dev/probes)";

/// `app: liveness and readiness paused until 10:10:00Z by an operator: kernel upgrade`, a text for each container and pause.
fn pauses(pod: &PodView, now: Time) -> Vec<String> {
    let mut words = Vec::new();
    for container in &pod.containers {
        let mut paused: Vec<(String, String)> = Vec::new();
        for probe in &container.paused_probes {
            let how = pause_words(&probe.pause, now);
            match paused.iter_mut().find(|(known, _)| *known == how) {
                Some((_, kinds)) => *kinds += &format!(" and {}", probe.kind),
                None => paused.push((how, probe.kind.clone())),
            }
        }
        words
            .extend(paused.into_iter().map(|(how, kinds)| format!("{}: {kinds} {how}", container.container)));
    }
    words
}

/// All of it.
fn wide<'a>(pods: impl IntoIterator<Item = &'a PodView>, now: SystemTime) -> Table {
    let more = ["CONTAINER-ID", "SANDBOX-ID", "POD-UID", "LAST-EXIT", "LOG", "REASON"];
    let more = more.map(|name| Column { name, tight: Tight::Stays });
    let mut table = Table::new(COLUMNS.into_iter().chain(more).collect());
    for pod in pods {
        let containers = pod.containers.iter().map(Some).chain(std::iter::repeat(None));
        let reason = one_line(&pod.reason);
        let reasons = Some(&*reason).filter(|reason| !reason.is_empty()).into_iter();
        let failing = failing(pod);
        let reasons = reasons.chain(failing.iter().map(|words| &**words));
        let pauses = pauses(pod, now.into());
        let reasons =
            reasons.chain(notes(pod).map(|(note, _)| note)).chain(pauses.iter().map(|words| &**words));
        let reasons = reasons.collect::<Vec<_>>().join("; ");
        for (mut row, container) in rows(pod, now).into_iter().zip(containers) {
            row.extend([
                Cell::from(container.map(|known| ids::short(&known.container_id)).unwrap_or_default()),
                ids::short(&pod.sandbox_id).into(),
                (&*pod.pod_uid).into(),
                container.and_then(|known| exits::last(known, now)).unwrap_or_default().into(),
                container.and_then(|known| known.log_path.as_deref()).unwrap_or_default().into(),
                (&*reasons).into(),
            ]);
            table.row(row);
        }
    }
    table
}

/// One row per container; a pod without containers has one row.
fn rows(pod: &PodView, now: SystemTime) -> Vec<Vec<Cell>> {
    let of_pod = || [Cell::from(format!("{}/{}", pod.namespace, pod.pod)), yes(pod.ready)];
    let of_none = || std::iter::repeat_n(Cell::from(""), COLUMNS.len() - 2);
    match &pod.containers[..] {
        [] => vec![of_pod().into_iter().chain(of_none()).collect()],
        some => some.iter().map(|one| of_pod().into_iter().chain(cells(one, now)).collect()).collect(),
    }
}

/// The columns of [`cells`].
pub(super) const OF_CONTAINER: [Column; 8] = {
    let [_, _, of_container @ ..] = COLUMNS;
    of_container
};

/// One container.
pub(super) fn cells(container: &ContainerView, now: SystemTime) -> [Cell; 8] {
    let paint = match (container.state, container.exit_code) {
        (ContainerStateView::Running, _) if container.paused => Paint::Doubtful,
        (ContainerStateView::Running, _) => Paint::Plain,
        (ContainerStateView::Exited, Some(0)) | (ContainerStateView::Created, _) => Paint::Faint,
        (ContainerStateView::Exited, _) => Paint::Bad,
        (ContainerStateView::Unknown, _) => Paint::Doubtful,
    };
    [
        (&*container.container).into(),
        Cell::new(&state(container), paint),
        yes(container.started),
        yes(container.ready),
        container.restarts.to_string().into(),
        Cell::new(&probes(&container.probes), probes_paint(container)),
        container.started_at.map(|at| age(at.0, now)).unwrap_or_default().into(),
        (&*container.image).into(),
    ]
}

/// `running`, `paused`, `exited 137`, `exited 137 OOMKilled`.
pub(super) fn state(container: &ContainerView) -> String {
    match container.exit_code {
        Some(code) => {
            let reason = exits::telling(container.exit_reason.as_deref().unwrap_or_default());
            format!("{} {code} {reason}", container.state.as_str()).trim_end().to_owned()
        }
        None if container.paused => "paused".to_owned(),
        None => container.state.as_str().to_owned(),
    }
}

/// Of probes whose verdict is not known any more.
pub(super) const CANNOT_TRY: &str = "cannot be tried";

/// `1 failure, 3 invalid, 1 success`, as what is cut off matters least; empty if there are none. An invalid probe has no
/// verdict. `1 cannot be tried (2 success)` where a verdict is not known any more: that probe is among the others, too.
pub(super) fn probes(probes: &ProbesView) -> String {
    let invalid = probes.phases.get(&ProbePhase::Invalid).copied().unwrap_or_default();
    let of = |state| probes.states.get(&state).copied().unwrap_or_default();
    let counts = [
        (of(Verdict::Failure), Verdict::Failure.as_str()),
        (invalid, ProbePhase::Invalid.as_str()),
        (of(Verdict::Unknown).saturating_sub(invalid), Verdict::Unknown.as_str()),
        (of(Verdict::Success), Verdict::Success.as_str()),
    ];
    let counts = counts.into_iter().filter(|&(count, _)| count > 0);
    let counts = counts.map(|(count, name)| format!("{count} {name}")).collect::<Vec<_>>().join(", ");
    match probes.cannot_try {
        0 => counts,
        untried => format!("{untried} {CANNOT_TRY} ({counts})"),
    }
}

/// Whether one has the verdict failure, or cannot be tried.
pub(super) fn is_any_failing(probes: &ProbesView) -> bool {
    probes.cannot_try > 0 || probes.states.get(&Verdict::Failure).is_some_and(|&count| count > 0)
}

/// Whether one of its probes fails that is not stopped on purpose.
fn has_failing(container: &ContainerView) -> bool {
    container.failing_probes.iter().any(|probe| probe.phase != ProbePhase::Invalid)
}

fn probes_paint(container: &ContainerView) -> Paint {
    if has_failing(container) { verdict_paint(Verdict::Failure) } else { Paint::Plain }
}

fn yes(is_so: bool) -> Cell {
    if is_so { Cell::new("yes", Paint::Good) } else { Cell::new("no", Paint::Doubtful) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cli::{
            client::Client,
            endpoint::Endpoint,
            screen::{Screen, width_of},
        },
        report::view::{PauseView, PausedProbeView, sample},
    };

    fn pods() -> Vec<PodView> {
        let mut ready = PodView { ready: true, reason: String::new(), ..sample::pod() };
        ready.pod = "cart-6f9c8d5b7-x2x2x".to_owned();
        ready.containers.truncate(1);
        let bare = PodView {
            pod: "bare".to_owned(),
            reason: "there are no containers".to_owned(),
            containers: Vec::new(),
            ..sample::pod()
        };
        let acting = acting();
        let mut wrong = PodView { pod: "wrong".to_owned(), probes_off: true, ..ready.clone() };
        wrong.problems = vec![
            r#"annotation "livenes.criprobe.dev/app": unknown type: did you mean "liveness"?"#.to_owned(),
            r#"annotation "liveness.criprobe.dev/ap": the pod has no container "ap": it has "app""#
                .to_owned(),
        ];
        vec![bare, ready, sample::pod(), acting, wrong, looping(), failing_pod()]
    }

    fn failing_probe(kind: &str, phase: ProbePhase, reason: &str) -> FailingProbeView {
        FailingProbeView { kind: kind.to_owned(), phase, since: sample::at(0), reason: reason.to_owned() }
    }

    /// Probes of both of its containers fail or are invalid; one of them is why it is not ready.
    fn failing_pod() -> PodView {
        let mut pod = PodView {
            pod: "a-pod-with-a-name-of-many-characters".to_owned(),
            reason: "app: readiness probe fails since 10:00:00Z (2m5s): 503; containers with unready status: [app log]"
                .to_owned(),
            ..sample::pod()
        };
        let app = &mut pod.containers[0];
        app.ready = false;
        app.probes = ProbesView::count([
            (Verdict::Failure, ProbePhase::Probing),
            (Verdict::Failure, ProbePhase::Probing),
            (Verdict::Unknown, ProbePhase::Invalid),
        ]);
        app.failing_probes = vec![
            failing_probe(
                "liveness",
                ProbePhase::Probing,
                "liveness probe fails since 10:00:00Z (2m5s): a\nb",
            ),
            failing_probe(
                "readiness",
                ProbePhase::Probing,
                "readiness probe fails since 10:00:00Z (2m5s): 503",
            ),
            failing_probe(
                "startup",
                ProbePhase::Invalid,
                "startup probe is invalid: unknown field \"tcpSockets\"",
            ),
        ];
        pod.containers[1].failing_probes = vec![
            failing_probe("liveness", ProbePhase::Waiting, "liveness probe waits: the container exited"),
            failing_probe("readiness", ProbePhase::Invalid, "readiness probe is invalid: no handler"),
        ];
        pod
    }

    #[test]
    fn each_failing_probe_is_explained_once_and_the_most_important_first() {
        let pod = failing_pod();
        let words: Vec<_> = failing(&pod);
        let order = ["app: liveness", "app: startup probe is invalid", "log: readiness probe is invalid"];
        assert_eq!(words.len(), order.len(), "{words:?}");
        assert!(words.iter().zip(order).all(|(words, begin)| words.starts_with(begin)), "{words:?}");
        // Its row says that it has exited; one that ended well may be waited for.
        let mut done = pod.clone();
        done.containers[1].exit_code = Some(0);
        assert_eq!(failing(&done)[2], "log: liveness probe waits: the container exited");
        // What one probe prints hides no other, as its container's author might wish.
        let mut sly = pod;
        sly.reason = sly.containers[0].failing_probes[0].reason.clone() + &words.join(" ");
        assert!(failing(&sly)[0].starts_with("app: liveness"));
    }

    /// Its only container is being restarted, and the new one cannot be created.
    fn acting() -> PodView {
        let mut pod = PodView { pod: "acting".to_owned(), ..sample::pod() };
        pod.containers.remove(0);
        pod.containers[0].act = Some(sample::act());
        pod.reason = format!("log: {}; {}", sample::act().in_words(), pod.reason);
        pod
    }

    /// Its only container runs again, after it was OOM-killed; its probes are invalid, but one.
    fn looping() -> PodView {
        let mut pod =
            PodView { pod: "looping".to_owned(), ready: true, reason: String::new(), ..sample::pod() };
        let log = pod.containers.remove(1);
        pod.containers[0].exits = log.exits;
        pod.containers[0].restarts = 3;
        let invalid = (Verdict::Unknown, ProbePhase::Invalid);
        pod.containers[0].probes =
            ProbesView::count([invalid, invalid, invalid, (Verdict::Unknown, ProbePhase::Probing)]);
        pod
    }

    fn shown(format: Format, width: usize) -> String {
        let client = Client::new(Endpoint::default());
        let context = Context { client, format, screen: Screen::plain(width) };
        render(&pods(), &context, sample::at(125_000).0)
    }

    #[tokio::test]
    async fn tables_look_like_this() {
        for width in [40, 80, 140] {
            insta::assert_snapshot!(format!("pods_{width}"), shown(Format::Table, width));
        }
        insta::assert_snapshot!("pods_wide", shown(Format::Wide, 60));
        insta::assert_snapshot!("pods_yaml", shown(Format::Yaml, 60));
        for width in 20..130 {
            let shown = shown(Format::Table, width);
            assert!(shown.lines().all(|line| width_of(line) <= width), "{width}:\n{shown}");
        }
    }

    #[test]
    fn what_is_paused_takes_a_line_for_each_container_and_pause() {
        let pause = |reason: &str| PauseView {
            since: sample::at(0),
            until: Some(sample::at(600_000)),
            reason: reason.to_owned(),
        };
        let paused =
            |kind: &str, reason: &str| PausedProbeView { kind: kind.to_owned(), pause: pause(reason) };
        let mut pod = sample::pod();
        pod.containers[0].paused_probes =
            vec![paused("startup", "a"), paused("readiness", "b"), paused("liveness", "a")];
        assert_eq!(
            pauses(&pod, sample::at(0)),
            [
                "app: startup and liveness paused until 10:10:00Z by an operator: a",
                "app: readiness paused until 10:10:00Z by an operator: b",
            ]
        );
    }

    #[test]
    fn verdicts_that_are_not_known_any_more_are_failing() {
        let well = ProbesView::count([(Verdict::Success, ProbePhase::Probing); 2]);
        let untried = ProbesView { cannot_try: 1, ..well.clone() };
        assert_eq!((probes(&well), is_any_failing(&well)), ("2 success".to_owned(), false));
        let shown = "1 cannot be tried (2 success)".to_owned();
        assert_eq!((probes(&untried), is_any_failing(&untried)), (shown, true));
    }

    #[tokio::test]
    async fn json_is_an_array_of_pods() {
        assert_eq!(serde_json::from_str::<Vec<PodView>>(&shown(Format::Json, 100)).unwrap(), pods());
    }
}
