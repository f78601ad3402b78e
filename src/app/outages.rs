//! Reports outages of the runtime, each once: the state of the link in; an event and a line of the log out when an outage
//! begins, and when it ends. What is an outage, [`Outages`] decides.

use std::time::Duration;

use tokio::sync::watch;

use crate::{
    clock,
    duration::coarse,
    report::{
        journal::Journal,
        view::{EventType, EventView},
    },
    runtime::{
        link::{Link, LinkTrouble, TroubleCause},
        outage::{OutageReport, Outages},
    },
    stage::Tasks,
};

/// Starts the task that follows the link.
pub(super) fn spawn(link: watch::Receiver<Link>, journal: Journal<EventView>, tasks: &mut Tasks) {
    tasks.spawn(tasks.supervise("outages", async move || follow(link.clone(), &journal).await));
}

async fn follow(mut link: watch::Receiver<Link>, journal: &Journal<EventView>) {
    let mut outages = Outages::default();
    loop {
        loop {
            let now = link.borrow_and_update().clone();
            let Some(report) = outages.on(&now, clock::now()) else { break };
            log(&report, &now);
            if let Some(event) = event(&report, &now) {
                journal.push(event);
            }
        }
        let deadline = outages.deadline();
        tokio::select! {
            changed = link.changed() => if changed.is_err() { return },
            () = clock::until(deadline) => {}
        }
    }
}

fn log(report: &OutageReport, link: &Link) {
    let (runtime, version) = (&link.version.name, &link.version.version);
    match report {
        OutageReport::Found if link.trouble.text.is_empty() => {
            tracing::info!(runtime, version, "runtime answers");
        }
        OutageReport::Found => {
            tracing::warn!(trouble = link.trouble.text, "runtime answers, but does not report its version");
        }
        OutageReport::Began { at, trouble: LinkTrouble { cause: TroubleCause::Silence, .. } } => {
            let unanswered = lasted(clock::now().saturating_duration_since(*at));
            tracing::warn!(unanswered, "runtime is away: it accepts connections, but does not answer calls");
        }
        OutageReport::Began { trouble, .. } => {
            tracing::warn!(trouble = trouble.text, "runtime is away: connections wait for it");
        }
        OutageReport::Ended { lasted: time, times } => {
            let (after, times) = (lasted(*time), (*times > 1).then_some(*times));
            tracing::info!(runtime, version, after, times, "runtime answers again");
        }
    }
}

/// That the runtime was found is no news.
fn event(report: &OutageReport, link: &Link) -> Option<EventView> {
    let (kind, reason, message) = match report {
        OutageReport::Found => return None,
        OutageReport::Began { trouble, .. } => {
            (EventType::Warning, "RuntimeAway", format!("the runtime is away: {}", trouble.text))
        }
        OutageReport::Ended { lasted: time, times } => {
            let times = if *times > 1 { format!("; it went away {times} times") } else { String::new() };
            let message = format!("the runtime answers again after {}{times}", lasted(*time));
            let name = match &*link.version.name {
                "" => String::new(),
                name => format!(": {name} {}", link.version.version),
            };
            (EventType::Normal, "RuntimeBack", message + &name)
        }
    };
    Some(EventView::of_node(kind, reason, message, clock::wall().into()))
}

/// `300ms`, `2.3s`, `1m20s`: no more figures than matter.
fn lasted(time: Duration) -> String {
    match time.as_millis() {
        millis @ ..1_000 => format!("{millis}ms"),
        millis @ 1_000..10_000 if millis % 1_000 >= 100 => {
            format!("{}.{}s", millis / 1_000, millis % 1_000 / 100)
        }
        _ => coarse(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Version;

    #[test]
    fn events_say_why_the_runtime_is_away_and_for_how_long_it_was() {
        let version = Version { name: "containerd".to_owned(), version: "2.4.0".to_owned() };
        let named = |mut link: Link| {
            link.version = version;
            link
        };
        let link = named(Link::default());
        let shown = |report| {
            let event = event(&report, &link)?;
            assert_eq!((&*event.namespace, &*event.pod, &*event.container), ("", "", ""));
            Some(format!("{} {}: {}", event.kind.as_str(), event.reason, event.message))
        };
        let ended = |millis, times| OutageReport::Ended { lasted: Duration::from_millis(millis), times };
        let trouble = "the runtime's socket /r.sock does not exist".to_owned().into();
        for (report, expected) in [
            (OutageReport::Found, None),
            (
                OutageReport::Began { at: clock::now(), trouble },
                Some("Warning RuntimeAway: the runtime is away: the runtime's socket /r.sock does not exist"),
            ),
            (
                ended(28_900, 1),
                Some("Normal RuntimeBack: the runtime answers again after 28s: containerd 2.4.0"),
            ),
            (
                ended(2_345, 3),
                Some(
                    "Normal RuntimeBack: the runtime answers again after 2.3s; it went away 3 times: containerd 2.4.0",
                ),
            ),
            (
                ended(312, 1),
                Some("Normal RuntimeBack: the runtime answers again after 312ms: containerd 2.4.0"),
            ),
        ] {
            assert_eq!(shown(report).as_deref(), expected);
        }
    }
}
