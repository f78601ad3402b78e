//! `criprobe pods`: pods with their containers, as a table or for machines.

use std::time::SystemTime;

use super::{
    Context, Error, Exit,
    format::{self, Format},
    probes::verdict_paint,
    screen::{Paint, print},
    select::glob,
    span::age,
    table::{Cell, Column, Table, Tight},
};
use crate::{
    clock,
    report::{
        filter::{Glob, PodFilter},
        view::{ContainerStateView, ContainerView, PodView, ProbesView, Verdict},
    },
};

/// Flags of the verb.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct PodsArgs {
    /// Only this namespace; * and ? are wildcards, as in the other filters by name
    #[arg(short, long, value_name = "NS", value_parser = glob)]
    namespace: Option<Glob>,
    /// Only this pod
    #[arg(long, value_name = "POD", value_parser = glob)]
    pod: Option<Glob>,
}

const EXAMPLES: &str = "\
Examples:
  criprobe pods                        all pods, one row per container
  criprobe pods -n shop --pod 'web-*'
  criprobe pods -o json | jq -r '.[] | select(.ready | not) | .pod'

STARTED and READY are what the kubelet would report in the pod's status. A container is started
once its startup probe has succeeded, and ready once it is started and its readiness probe succeeds.
Without such a probe, it is started or ready as soon as it runs. A pod is ready when its sandbox is
ready and all its containers are ready. A container that exited with code 0 is not counted: it may
be an init container, and the runtime does not report which containers are. RESTARTS is the
container's attempt number, AGE the time since it started. If several containers have the same
name, or a pod has several sandboxes, only the newest is shown.";

impl PodsArgs {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, Error> {
        let filter = PodFilter { namespace: self.namespace, pod: self.pod };
        let pods: Vec<PodView> = context.client.get(&format!("/v1/pods{}", filter.to_query())).await?;
        print(&render(&pods, context, clock::wall()))?;
        Ok(Exit::Fine)
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
    Column { name: "POD-READY", tight: Tight::Stays },
    Column { name: "CONTAINER", tight: Tight::Shrinks },
    Column { name: "STATE", tight: Tight::Stays },
    Column { name: "STARTED", tight: Tight::GoesLast },
    Column { name: "READY", tight: Tight::Stays },
    Column { name: "RESTARTS", tight: Tight::GoesLast },
    Column { name: "PROBES", tight: Tight::GoesLast },
    Column { name: "AGE", tight: Tight::GoesFirst },
    Column { name: "IMAGE", tight: Tight::GoesFirst },
];

/// What fits a terminal: a row a container, and a line below a pod that is not ready.
fn table(pods: &[PodView], now: SystemTime) -> Table {
    let mut table = Table::new(COLUMNS.to_vec());
    for pod in pods {
        for row in rows(pod, now) {
            table.row(row);
        }
        if !pod.reason.is_empty() {
            table.note(Cell::new(&pod.reason, Paint::Faint));
        }
    }
    table
}

/// All of it.
fn wide(pods: &[PodView], now: SystemTime) -> Table {
    let more = ["CONTAINER-ID", "SANDBOX-ID", "POD-UID", "REASON"];
    let more = more.map(|name| Column { name, tight: Tight::Stays });
    let mut table = Table::new(COLUMNS.into_iter().chain(more).collect());
    for pod in pods {
        let ids = pod.containers.iter().map(|container| short(&container.container_id));
        let ids = ids.chain(std::iter::repeat(String::new()));
        for (mut row, id) in rows(pod, now).into_iter().zip(ids) {
            row.extend([
                Cell::from(id),
                short(&pod.sandbox_id).into(),
                (&*pod.pod_uid).into(),
                (&*pod.reason).into(),
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

fn cells(container: &ContainerView, now: SystemTime) -> [Cell; 8] {
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
        Cell::new(&probes(&container.probes), probes_paint(&container.probes)),
        container.started_at.map(|at| age(at.0, now)).unwrap_or_default().into(),
        (&*container.image).into(),
    ]
}

/// `running`, `paused`, `exited 137`.
pub(super) fn state(container: &ContainerView) -> String {
    match container.exit_code {
        Some(code) => format!("{} {code}", container.state.as_str()),
        None if container.paused => "paused".to_owned(),
        None => container.state.as_str().to_owned(),
    }
}

/// `1 success, 1 failure`; empty if there are none.
pub(super) fn probes(probes: &ProbesView) -> String {
    let states = probes.states.iter().map(|(state, count)| format!("{count} {}", state.as_str()));
    states.collect::<Vec<_>>().join(", ")
}

fn probes_paint(probes: &ProbesView) -> Paint {
    let is_failing = probes.states.get(&Verdict::Failure).is_some_and(|&count| count > 0);
    if is_failing { verdict_paint(Verdict::Failure) } else { Paint::Plain }
}

fn yes(is_so: bool) -> Cell {
    if is_so { Cell::new("yes", Paint::Good) } else { Cell::new("no", Paint::Doubtful) }
}

/// 13 characters of an id, as crictl shows them.
fn short(id: &str) -> String {
    id.chars().take(13).collect()
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
        report::view::sample,
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
        vec![bare, ready, sample::pod(), acting]
    }

    /// Its only container is being restarted, and the new one cannot be created.
    fn acting() -> PodView {
        let mut pod = PodView { pod: "acting".to_owned(), ..sample::pod() };
        pod.containers.remove(0);
        pod.containers[0].act = Some(sample::act());
        pod.reason = format!("log: {}; {}", sample::act().in_words(), pod.reason);
        pod
    }

    fn shown(format: Format, width: usize) -> String {
        let client = Client::new(Endpoint::default());
        let context = Context { client, format, screen: Screen::plain(width) };
        render(&pods(), &context, sample::at(125_000).0)
    }

    #[tokio::test]
    async fn tables_look_like_this() {
        insta::assert_snapshot!("pods_100", shown(Format::Table, 100));
        insta::assert_snapshot!("pods_80", shown(Format::Table, 80));
        insta::assert_snapshot!("pods_60", shown(Format::Table, 60));
        insta::assert_snapshot!("pods_wide", shown(Format::Wide, 60));
        insta::assert_snapshot!("pods_yaml", shown(Format::Yaml, 60));
        for width in 45..130 {
            let shown = shown(Format::Table, width);
            assert!(shown.lines().all(|line| width_of(line) <= width), "{width}:\n{shown}");
        }
    }

    #[tokio::test]
    async fn json_is_an_array_of_pods() {
        assert_eq!(serde_json::from_str::<Vec<PodView>>(&shown(Format::Json, 100)).unwrap(), pods());
    }
}
