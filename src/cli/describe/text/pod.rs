//! A description of a pod: its containers with their last exits and logs, its probes, its events.

use super::{
    super::super::{exits, pods, probes, table::Table},
    *,
};
use crate::report::view::PodDetailView;

impl Page {
    /// A pod in full.
    pub(in super::super) fn pod(self, PodDetailView { pod, probes, events }: &PodDetailView) -> String {
        let mut text = String::new();
        let mut line = |name, value: &str, paint| self.value(&mut text, name, value, paint);
        line("pod", &format!("{}/{}", pod.namespace, pod.pod), Paint::Plain);
        line("uid", &pod.pod_uid, Paint::Plain);
        let state = if pod.sandbox_ready { "ready" } else { "not ready" };
        line("sandbox", &format!("{}, attempt {}, {state}", pod.sandbox_id, pod.attempt), Paint::Plain);
        let reason =
            if pod.reason.is_empty() { String::new() } else { format!(": {}", one_line(&pod.reason)) };
        let (ready, paint) = if pod.ready { ("yes", Paint::Good) } else { ("no", Paint::Doubtful) };
        line("ready", &format!("{ready}{reason}"), paint);
        for (note, paint) in pods::notes(pod) {
            line("note", note, paint);
        }
        if !pod.containers.is_empty() {
            self.section(&mut text, "containers", &containers(&pod.containers, self.now));
            let earlier = exits::earlier(&pod.containers);
            let exits = |exits: &[_], page: Page| exits::of_pod(exits, (page.is_whole, page.now));
            self.table(&mut text, "earlier exits", &earlier, exits);
            self.logs(&mut text, &pod.containers);
        }
        if !probes.is_empty() {
            self.section(&mut text, "probes", &probes::of_pod(probes, self.now));
        }
        self.table(&mut text, "events", events, of_pod);
        text
    }

    /// Where the output of each container is, none of it cut.
    fn logs(self, text: &mut String, containers: &[ContainerView]) {
        let paths = containers.iter().filter_map(|container| Some((container, container.log_path.as_ref()?)));
        for (number, (container, path)) in paths.enumerate() {
            text.push_str(if number == 0 { "\nlogs\n" } else { "" });
            let lines = indented(&format!("{}: {path}", container.container), self.screen.width);
            lines.iter().for_each(|line| text.push_str(&format!("{line}\n")));
        }
    }

    fn section(self, text: &mut String, title: &str, table: &Table) {
        text.push_str(&format!("\n{title}\n"));
        let width = self.screen.width.saturating_sub(MARGIN.len());
        for line in table.render(self.screen, Some(width)) {
            text.push_str(&format!("{MARGIN}{line}\n"));
        }
    }
}

/// A row a container, and below it how one of its name ended last.
fn containers(all: &[ContainerView], now: SystemTime) -> Table {
    let mut table = Table::new(pods::OF_CONTAINER.to_vec());
    for container in all {
        table.row(pods::cells(container, now).into());
        if let Some(last) = exits::last(container, now) {
            table.note(Cell::new(&format!("last exit: {last}"), Paint::Plain));
        }
        if let Some(message) = &container.exit_message {
            table.note(Cell::new(&format!("message: {}", one_line(message)), Paint::Plain));
        }
    }
    table
}

/// Events with what of the pod they are about.
fn of_pod(events: &[EventView], page: Page) -> Table {
    let column = |name, tight| Column { name, tight };
    let mut table = Table::new(vec![
        column("AT", Tight::Stays),
        column("TYPE", Tight::GoesFirst),
        column("REASON", Tight::Stays),
        column("ABOUT", Tight::GoesLast),
        column("MESSAGE", Tight::Wraps),
    ]);
    for event in events {
        let [at, kind, reason, message] = event_cells(event, page);
        let about = match &*event.probe {
            "" => event.container.clone(),
            probe => format!("{}/{probe}", event.container),
        };
        table.row(vec![at, kind, reason, about.into(), message]);
    }
    table
}
