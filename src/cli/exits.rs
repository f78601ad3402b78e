//! How a container ended, in words: its view in, a line or a table out.

use std::time::SystemTime;

use super::{
    screen::Paint,
    span::{age, coarse, moment},
    table::{Cell, Column, Table, Tight},
};
use crate::{
    clock, ids,
    report::view::{ContainerStateView, ContainerView, ExitView, Time},
};

/// One end of a container, whichever view it comes from.
struct Exit<'a> {
    started_at: Option<Time>,
    finished_at: Option<Time>,
    exit_code: Option<i32>,
    reason: &'a str,
}

impl<'a> From<&'a ExitView> for Exit<'a> {
    fn from(exit: &'a ExitView) -> Self {
        let ExitView { started_at, finished_at, exit_code, reason, .. } = exit;
        Self { started_at: *started_at, finished_at: *finished_at, exit_code: *exit_code, reason }
    }
}

impl<'a> Exit<'a> {
    /// That of a container, or of the last one of its name before it.
    fn last(container: &'a ContainerView) -> Option<Self> {
        if container.state != ContainerStateView::Exited {
            return container.exits.last().map(Into::into);
        }
        Some(Self {
            started_at: container.started_at,
            finished_at: container.finished_at,
            exit_code: container.exit_code,
            reason: container.exit_reason.as_deref().unwrap_or_default(),
        })
    }

    /// How long the container ran; empty if that is not known.
    fn ran(&self) -> String {
        let ran = self.started_at.zip(self.finished_at);
        let ran = ran.and_then(|(from, to)| to.0.duration_since(from.0).ok());
        ran.map(coarse).unwrap_or_default()
    }
}

/// The runtime's word for an end, where it says more than the exit code.
pub(super) fn telling(reason: &str) -> &str {
    if matches!(reason, "Error" | "Completed") { "" } else { reason }
}

/// `OOMKilled, exit code 137, 2m ago (ran 1m20s), 4 restarts`: the last end of a container of this name; `None` if there was none.
pub(super) fn last(container: &ContainerView, now: SystemTime) -> Option<String> {
    let exit = Exit::last(container)?;
    let mut words = telling(exit.reason).to_owned();
    if !words.is_empty() {
        words += ", ";
    }
    match exit.exit_code {
        Some(code) => words += &format!("exit code {code}"),
        None => words += "no exit code",
    }
    if let Some(at) = exit.finished_at {
        words += &format!(", {} ago", age(at.0, now));
    }
    let ran = exit.ran();
    if !ran.is_empty() {
        words += &format!(" (ran {ran})");
    }
    match container.restarts {
        0 => {}
        1 => words += ", 1 restart",
        restarts => words += &format!(", {restarts} restarts"),
    }
    if container.stopped_by_client && container.state == ContainerStateView::Exited {
        words += ": a client stopped it";
    }
    Some(words)
}

/// 10 min: how long an earlier container's end explains what one sees now.
const RECENT: std::time::Duration = std::time::Duration::from_secs(600);

/// The last end of a container that runs again, or is about to, where that was a failure a short time ago.
pub(super) fn recent_failure(container: &ContainerView, now: SystemTime) -> Option<String> {
    let earlier = container.exits.last().filter(|_| container.state != ContainerStateView::Exited)?;
    let is_failure = earlier.exit_code.is_some_and(|code| code != 0);
    let at = earlier.finished_at?.0;
    let is_recent = now.duration_since(at).is_ok_and(|ago| ago < RECENT);
    last(container, now).filter(|_| is_failure && is_recent)
}

/// How red an end is.
pub(super) fn paint(exit_code: Option<i32>) -> Paint {
    match exit_code {
        Some(0) | None => Paint::Plain,
        Some(_) => Paint::Bad,
    }
}

/// The earlier ends of all containers of a pod with their names, oldest first.
pub(super) fn earlier(containers: &[ContainerView]) -> Vec<(&str, &ExitView)> {
    let mut all = Vec::new();
    for container in containers {
        all.extend(container.exits.iter().map(|exit| (&*container.container, exit)));
    }
    all.sort_by_key(|(_, exit): &(&str, &ExitView)| exit.finished_at);
    all
}

/// Columns of a table of ends.
const COLUMNS: [Column; 7] = [
    Column { name: "CONTAINER", tight: Tight::Shrinks },
    Column { name: "AT", tight: Tight::Stays },
    Column { name: "ATTEMPT", tight: Tight::Stays },
    Column { name: "CODE", tight: Tight::Stays },
    Column { name: "REASON", tight: Tight::Stays },
    Column { name: "RAN", tight: Tight::Stays },
    Column { name: "CONTAINER-ID", tight: Tight::GoesFirst },
];

/// Those of a pod.
pub(super) fn of_pod(exits: &[(&str, &ExitView)], page: (bool, SystemTime)) -> Table {
    let mut table = Table::new(COLUMNS.into());
    for (container, exit) in exits {
        table.row([Cell::from(*container)].into_iter().chain(cells(exit, page)).collect());
    }
    table
}

/// Those of one container.
pub(super) fn table(exits: &[ExitView], page: (bool, SystemTime)) -> Table {
    let mut table = Table::new(COLUMNS[1..].into());
    exits.iter().for_each(|exit| table.row(cells(exit, page).into()));
    table
}

fn cells(view: &ExitView, (is_whole, now): (bool, SystemTime)) -> [Cell; 6] {
    let exit = Exit::from(view);
    let at = view.finished_at.map(|at| if is_whole { clock::rfc3339(at.0) } else { moment(at.0, now) });
    let id = if is_whole { &*view.container_id } else { ids::short(&view.container_id) };
    [
        at.unwrap_or_default().into(),
        view.attempt.to_string().into(),
        Cell::new(&view.exit_code.map(|code| code.to_string()).unwrap_or_default(), paint(view.exit_code)),
        (&*view.reason).into(),
        exit.ran().into(),
        id.into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::view::sample;

    #[test]
    fn the_last_end_is_its_own_or_that_of_the_container_before() {
        let now = sample::at(125_000).0;
        let [app, log] = &sample::pod().containers[..] else { panic!() };
        assert_eq!(last(app, now), None);
        let its = "OOMKilled, exit code 137, 10s ago (ran 1m20s)";
        assert_eq!(last(log, now).unwrap(), format!("{its}, 3 restarts"));
        let stopped = ContainerView { stopped_by_client: true, restarts: 0, ..log.clone() };
        assert_eq!(last(&stopped, now).unwrap(), format!("{its}: a client stopped it"));
        assert_eq!(recent_failure(log, now), None, "its state says it");
        let again = ContainerView { state: ContainerStateView::Running, exit_code: None, ..log.clone() };
        assert_eq!(
            recent_failure(&again, now).unwrap(),
            "OOMKilled, exit code 137, 1m31s ago (ran 24s), 3 restarts"
        );
        assert_eq!(recent_failure(&again, now + RECENT), None);
        let mut well = again;
        well.exits.truncate(2);
        assert_eq!(last(&well, now).unwrap(), "exit code 0, 1m56s ago (ran 4s), 3 restarts");
        assert_eq!(recent_failure(&well, now), None);
        let bare =
            ExitView { exit_code: None, finished_at: None, reason: String::new(), ..well.exits[0].clone() };
        well.exits = vec![bare];
        assert_eq!(last(&well, now).unwrap(), "no exit code, 3 restarts");
    }
}
