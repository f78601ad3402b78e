//! `criprobe events`: events, one per entry.

use std::time::SystemTime;

use super::{
    Context, Error, Exit,
    format::Format,
    reason::one_line,
    row::Row,
    screen::{Paint, Screen},
    select::{Names, Select},
    span::{coarse, moment},
    trace::{Asked, Last, show},
    wrap::shorten,
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
    /// Show only the newest N of the 500 events that are kept
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
to the last. With --follow, repeats are shown every 10 s, and a daemon that goes away is waited for.";

impl EventsArgs {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, Error> {
        let names = self.select.names()?;
        let Names { namespace, pod, container } = names.clone();
        let kept = Last::new(self.last, self.follow, EventView::KEPT)?;
        let last = self.last.or(Some(usize::MAX));
        let filter = EventFilter { namespace, pod, container, since: self.since, last, follow: self.follow };
        let asked = Asked {
            what: "events",
            hint: "",
            follow: self.follow,
            nothing: "no events",
            is_since_start: self.since.is_none(),
            is_of_names: |event: &EventView| !event.is_of_runtime(),
            names: &names,
            last: kept,
        };
        let path = |last: Option<usize>| {
            let last = last.or(filter.last);
            format!("/v1/events{}", EventFilter { last, ..filter.clone() }.to_query())
        };
        show(context, path, asked, |event, screen| {
            line(event, screen, context.format == Format::Wide, clock::wall())
        })
        .await
    }
}

/// 100 columns of a pod's name: its container and probe stay visible behind it.
const MOST_OF_NAME: usize = 100;

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
    let is_cut = screen.is_terminal && !is_wide;
    let pod = shorten(&event.pod, if is_cut { MOST_OF_NAME } else { usize::MAX });
    let mut about = if is_ours { "criprobe".to_owned() } else { format!("{}/{pod}", event.namespace) };
    for part in [&event.container, &event.probe].into_iter().filter(|part| !part.is_empty()) {
        about = format!("{about}/{part}");
    }
    line.column(&about, 0, Paint::Plain);
    if is_wide {
        line.column(&event.pod_uid, 0, Paint::Faint);
        line.column(&event.container_id, 0, Paint::Faint);
    }
    line.column(&message(event), 0, Paint::Plain);
    line.finish()
}

/// What happened, and how often: `Liveness probe failed: no output (x494 over 50s)`. The kubelet's words say nothing of a probe
/// that prints nothing.
pub(super) fn message(event: &EventView) -> String {
    let message = one_line(event.message.trim_end());
    let silent = if message.ends_with(" probe failed:") { " no output" } else { "" };
    format!("{message}{silent}{}", repeated(event))
}

/// How often an event has happened, after its message; nothing of one that happened once.
fn repeated(event: &EventView) -> String {
    let span = event.first_at.and_then(|first| event.at.0.duration_since(first.0).ok());
    match (event.count, span) {
        (0 | 1, _) => String::new(),
        (count, None) => format!(" (x{count})"),
        (count, Some(span)) => format!(" (x{count} over {})", coarse(span)),
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
    fn a_probe_that_prints_nothing_is_told_as_such() {
        let said =
            |message: &str| super::message(&EventView { message: message.to_owned(), ..sample::event() });
        assert_eq!(said("Liveness probe failed: "), "Liveness probe failed: no output");
        assert_eq!(said("Liveness probe failed: no"), "Liveness probe failed: no");
        let event = EventView { message: "Liveness probe failed: ".to_owned(), ..sample::repeated_event() };
        assert!(super::message(&event).starts_with("Liveness probe failed: no output (x"));
    }

    #[test]
    fn a_long_name_hides_no_probe() {
        let event = EventView { pod: "p".repeat(253), ..sample::event() };
        let shown = |screen| line(&event, screen, false, sample::at(125_000).0);
        assert!(shown(Screen::pipe()).contains(&format!("default/{}/app/liveness", event.pod)));
        for width in [40, 80, 140] {
            let shown = shown(Screen::plain(width)).replace("\n    ", "");
            assert!(shown.contains("/app/liveness"), "{width}: {shown}");
        }
    }

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
