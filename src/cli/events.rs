//! `criprobe events`: events, one per entry.

use std::time::SystemTime;

use super::{
    Context, Error, Exit,
    format::Format,
    reason::plain,
    row::Row,
    screen::{Paint, Screen},
    select::{Names, Select},
    span::{coarse, moment},
    trace::show,
};
use crate::{
    clock,
    report::{
        filter::{EventFilter, Since, count, since},
        view::{EventType, EventView},
    },
};

/// Flags of the verb.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct EventsArgs {
    #[command(flatten)]
    select: Select,
    /// Only events since then: 10m, 14:05 (UTC), 2026-11-20T14:05:00Z
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = since)]
    since: Option<Since>,
    /// Show only the newest N of the events that are kept
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = count)]
    last: Option<usize>,
    /// Keep running and print new events as they happen
    #[arg(short, long)]
    follow: bool,
}

const EXAMPLES: &str = "\
Examples:
  criprobe events                       the events that are kept
  criprobe events shop --follow         those of namespace shop, and new ones as they happen
  criprobe events shop/web-1            those of a pod
  criprobe events --since 10m           what happened in the last 10 minutes
  criprobe events -o json | jq -r .message

Events that repeat each other are one: x494 over 50s is how often it happened, and from the first
to the last. With --follow, repeats are shown every 10 s.";

impl EventsArgs {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, Error> {
        let names = self.select.names()?;
        let Names { namespace, pod, container } = names.clone();
        let last = self.last.or(Some(usize::MAX));
        let filter = EventFilter { namespace, pod, container, since: self.since, last, follow: self.follow };
        let path = format!("/v1/events{}", filter.to_query());
        show(context, &path, (self.follow, "no events", &names), |event, screen| {
            line(event, screen, context.format == Format::Wide, clock::wall())
        })
        .await
    }
}

/// One event: its object and its message, which goes on below on a terminal that is too narrow, unless it `is_wide`.
pub(crate) fn line(event: &EventView, screen: Screen, is_wide: bool, now: SystemTime) -> String {
    let paint = match event.kind {
        EventType::Normal => Paint::Plain,
        EventType::Warning => Paint::Doubtful,
    };
    let mut line = Row::new(screen, is_wide);
    let at = if is_wide { clock::rfc3339(event.at.0) } else { moment(event.at.0, now) };
    line.column(&at, 0, Paint::Faint);
    line.column(event.kind.as_str(), 7, paint);
    line.column(&event.reason, 14, paint);
    // What is about criprobe itself is about no pod.
    let is_ours = event.namespace.is_empty() && event.pod.is_empty();
    let mut about =
        if is_ours { "criprobe".to_owned() } else { format!("{}/{}", event.namespace, event.pod) };
    for part in [&event.container, &event.probe].into_iter().filter(|part| !part.is_empty()) {
        about = format!("{about}/{part}");
    }
    line.column(&about, 0, Paint::Plain);
    if is_wide {
        line.column(&event.pod_uid, 0, Paint::Faint);
        line.column(&event.container_id, 0, Paint::Faint);
    }
    line.column(&(plain(event.message.trim_end()) + &repeated(event)), 0, Paint::Plain);
    line.finish()
}

/// How often an event has happened, after its message: ` x494 over 50s`; nothing of one that happened once.
pub(super) fn repeated(event: &EventView) -> String {
    let span = event.first_at.and_then(|first| event.at.0.duration_since(first.0).ok());
    match (event.count, span) {
        (0 | 1, _) => String::new(),
        (count, None) => format!(" x{count}"),
        (count, Some(span)) => format!(" x{count} over {}", coarse(span)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        cli::screen::width_of,
        report::view::{Time, sample},
    };

    #[test]
    fn lines_look_like_this() {
        let normal = EventView {
            kind: EventType::Normal,
            reason: "Healthy".to_owned(),
            message: "a\n\u{1b}[2Jb".to_owned(),
            probe: String::new(),
            ..sample::event()
        };
        let (namespace, pod, container) = (String::new(), String::new(), String::new());
        let ours = EventView {
            reason: "ConfigurationReloaded".to_owned(),
            message: "the configuration was reloaded".to_owned(),
            pod_uid: String::new(),
            container_id: String::new(),
            namespace,
            pod,
            container,
            ..normal.clone()
        };
        let old = EventView { at: Time(sample::at(0).0 - Duration::from_secs(86_400)), ..sample::event() };
        let events = [sample::event(), normal, ours, old, sample::repeated_event()];
        let shown = |screen, is_wide| {
            let lines =
                events.each_ref().map(|event| line(event, screen, is_wide, sample::at(125_000).0) + "\n");
            lines.concat()
        };
        for width in [40, 80, 140] {
            insta::assert_snapshot!(format!("events_{width}"), shown(Screen::plain(width), false));
        }
        insta::assert_snapshot!("events_wide", shown(Screen::plain(40), true));
        assert_eq!(shown(Screen::pipe(), false).lines().count(), events.len(), "one line for grep");
        for width in 20..130 {
            let shown = shown(Screen::plain(width), false);
            assert!(shown.lines().all(|line| width_of(line) <= width), "{width}:\n{shown}");
        }
    }
}
