//! `criprobe events`: events, one per entry.

use super::{
    Context, Error, Exit,
    format::Format,
    reason::plain,
    screen::{Paint, Screen},
    select::Select,
    trace::{Row, show},
};
use crate::{
    clock,
    report::{
        filter::{EventFilter, count},
        printable::printable,
        view::{EventType, EventView},
    },
};

/// Flags of the verb.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct EventsArgs {
    #[command(flatten)]
    select: Select,
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
  criprobe events -n shop --follow      these, and new ones as they happen
  criprobe events -o json | jq -r .message";

impl EventsArgs {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, Error> {
        let Select { namespace, pod, container } = self.select;
        let last = self.last.or(Some(usize::MAX));
        let filter = EventFilter { namespace, pod, container, last, follow: self.follow };
        let path = format!("/v1/events{}", filter.to_query());
        show(context, &path, (self.follow, "no events"), |event, screen| {
            line(event, screen, context.format == Format::Wide)
        })
        .await
    }
}

/// One event: its object, and below it the complete message. A line of it may be wider than the screen.
pub(crate) fn line(event: &EventView, screen: Screen, is_wide: bool) -> String {
    let paint = match event.kind {
        EventType::Normal => Paint::Plain,
        EventType::Warning => Paint::Doubtful,
    };
    let mut line = Row::new(screen, is_wide);
    let at = clock::rfc3339(event.at.0);
    let at = if is_wide { &*at } else { at.split_once('T').map_or(&*at, |(_, time)| time) };
    line.column(at, 0, Paint::Faint);
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
    let message = plain(event.message.trim_end());
    format!("{}\n  └ {}", line.finish(), printable(&message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::view::sample;

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
            reason: "ConfigReloaded".to_owned(),
            message: "the configuration was reloaded".to_owned(),
            pod_uid: String::new(),
            container_id: String::new(),
            namespace,
            pod,
            container,
            ..normal.clone()
        };
        let lines = [sample::event(), normal, ours].map(|event| {
            line(&event, Screen::plain(90), false) + "\n" + &line(&event, Screen::plain(90), true) + "\n"
        });
        insta::assert_snapshot!("events", lines.concat());
    }
}
