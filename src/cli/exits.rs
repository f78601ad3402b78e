//! How a container ended, in words: its view in, a line or a table out.

use std::time::SystemTime;

use super::{
    screen::Paint,
    span::{age, coarse, moment},
    table::{Cell, Column, Table, Tight},
};
use crate::{
    clock,
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

/// `OOMKilled, exit code 137, 2m ago (ran 1m20s)`: the last end of a container of this name; `None` if there was none.
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

/// Earlier ends, oldest first.
pub(super) fn table(exits: &[ExitView], (is_whole, now): (bool, SystemTime)) -> Table {
    let names = ["AT", "ATTEMPT", "CODE", "REASON", "RAN", "CONTAINER-ID"];
    let tight = |name| if name == "CONTAINER-ID" { Tight::GoesFirst } else { Tight::Stays };
    let mut table = Table::new(names.map(|name| Column { name, tight: tight(name) }).into());
    for view in exits {
        let exit = Exit::from(view);
        let at = view.finished_at.map(|at| if is_whole { clock::rfc3339(at.0) } else { moment(at.0, now) });
        let id =
            if is_whole { view.container_id.clone() } else { view.container_id.chars().take(13).collect() };
        table.row(vec![
            at.unwrap_or_default().into(),
            view.attempt.to_string().into(),
            Cell::new(
                &view.exit_code.map(|code| code.to_string()).unwrap_or_default(),
                paint(view.exit_code),
            ),
            (&*view.reason).into(),
            exit.ran().into(),
            id.into(),
        ]);
    }
    table
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
        assert_eq!(last(log, now).unwrap(), "OOMKilled, exit code 137, 10s ago (ran 1m20s)");
        assert_eq!(recent_failure(log, now), None, "its state says it");
        let again = ContainerView { state: ContainerStateView::Running, exit_code: None, ..log.clone() };
        assert_eq!(recent_failure(&again, now).unwrap(), "OOMKilled, exit code 137, 1m31s ago (ran 24s)");
        assert_eq!(recent_failure(&again, now + RECENT), None);
        let mut well = again;
        well.exits.truncate(2);
        assert_eq!(last(&well, now).unwrap(), "exit code 0, 1m56s ago (ran 4s)");
        assert_eq!(recent_failure(&well, now), None);
        let bare =
            ExitView { exit_code: None, finished_at: None, reason: String::new(), ..well.exits[0].clone() };
        well.exits = vec![bare];
        assert_eq!(last(&well, now).unwrap(), "no exit code");
    }
}
