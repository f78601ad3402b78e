//! Which events repeat each other: events in; the same event, counted, out. Two are one series if they are about the same
//! pod, container and probe, have the same reason, and say the same; of attempts up to figures that differ each time. What
//! changes a state (`Started`, `Exited`, `VerdictChanged`, `RuntimeAway`) repeats nothing, and another container ends a
//! series: so the events of a crash loop, or of several outages, can be read in their order. Of each reason, so many stand
//! alone, and what is older is one. Pure.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use super::{journal::Repeats, view::EventView};
use crate::results::event::EventReason;

/// How events are kept that repeat each other.
///
/// 20 of one reason of one container or probe are kept: a crash loop, or a probe that says something else each time, takes
/// no more room than that. Of more, the oldest two become one where that is no lie, or else the oldest goes.
pub(crate) const REPEATS: Repeats<EventView> = Repeats { series, merge, most: 20, fold };

/// 10 min: an event that comes later than this after the last one of its series begins another.
const SERIES_ENDS: Duration = Duration::from_secs(600);

/// 1 KiB: the beginning of a message decides whether it repeats another, so that a probe that prints much costs little.
/// Of longer messages that differ only beyond it, the newest is shown.
const DECISIVE: usize = 1 << 10;

/// 3 digits: a number by itself of so many is a code, such as an exit code or an HTTP status, and makes a message
/// another one. A longer one is a figure: a pid, a port, a count.
const CODE: usize = 3;

/// 8 hexadecimal digits in a row, not all of them letters, are an id.
const ID: usize = 8;

/// Replaces a figure.
const FIGURE: &str = "#";

fn series(event: &EventView) -> u64 {
    let mut hasher = DefaultHasher::new();
    (about(event), &event.container_id).hash(&mut hasher);
    said(event).for_each(|word| word.hash(&mut hasher));
    hasher.finish()
}

fn merge(former: &EventView, event: &EventView) -> Option<Arc<EventView>> {
    let is_same = about(former) == about(event) && said(former).eq(said(event));
    let is_same = is_same && may_repeat(event) && former.container_id == event.container_id;
    // A clock that was set back ends no series.
    let gap = event.at.0.duration_since(former.at.0).unwrap_or_default();
    (is_same && gap <= SERIES_ENDS).then(|| both(former, event))
}

/// The oldest two of one reason of one container or probe as one, once there are more than are kept. Changes of state say
/// something else each time, if only a number: the newest is shown for them all. What an attempt said is shown only for
/// attempts that said the same.
fn fold(former: &EventView, event: &EventView) -> Option<Arc<EventView>> {
    let (former_subject, subject) = (about(former), about(event));
    let is_one = match may_repeat(event) {
        true => former_subject == subject && said(former).eq(said(event)),
        // A verdict that flaps, or exits with various codes, are Normal and Warning by turns: the last part.
        false => former_subject[..subject.len() - 1] == subject[..subject.len() - 1],
    };
    is_one.then(|| both(former, event))
}

/// Both as the newer one, counted.
fn both(former: &EventView, event: &EventView) -> Arc<EventView> {
    let count = former.count.saturating_add(event.count);
    Arc::new(EventView { count, first_at: Some(former.first_at.unwrap_or(former.at)), ..event.clone() })
}

/// Whether an event may only say again what was said before. All others change a state, and each is news.
fn may_repeat(event: &EventView) -> bool {
    let said_again = [
        EventReason::Unhealthy,
        EventReason::ProbeWarning,
        EventReason::InvalidProbe,
        EventReason::InvalidAnnotation,
        EventReason::ActWithheld,
        EventReason::ActFailed,
        EventReason::WouldAct,
    ];
    event.reason == EventView::CONFIGURATION_REFUSED
        || said_again.iter().any(|reason| event.reason == reason.as_str())
}

/// What an event is about, all but its container's id.
fn about(event: &EventView) -> [&str; 7] {
    let EventView { namespace, pod, pod_uid, container, probe, reason, kind, .. } = event;
    [namespace, pod, pod_uid, container, probe, reason, kind.as_str()]
}

/// What is compared of a message: of what an attempt said, all but its figures; of anything else all, as the figure in an
/// operator's reason may be the number of an incident.
fn said(event: &EventView) -> impl Iterator<Item = &str> {
    let is_of_attempt = [EventReason::Unhealthy, EventReason::ProbeWarning]
        .iter()
        .any(|reason| event.reason == reason.as_str());
    let (text, whole) = if is_of_attempt { (&*event.message, None) } else { ("", Some(&*event.message)) };
    words(text).chain(whole)
}

/// The words of the beginning of a message and what is between them, with [`FIGURE`] for each figure.
fn words(message: &str) -> impl Iterator<Item = &str> {
    let text = &message[..message.floor_char_boundary(DECISIVE)];
    let mut at = 0;
    std::iter::from_fn(move || {
        let begins = at;
        let is_word = text.as_bytes().get(begins)?.is_ascii_alphanumeric();
        let rest = &text.as_bytes()[begins..];
        let length = rest.iter().position(|byte| byte.is_ascii_alphanumeric() != is_word);
        at = length.map_or(text.len(), |length| begins + length);
        let is_figure = is_word && is_figure(text.as_bytes(), begins, at);
        Some(if is_figure { FIGURE } else { &text[begins..at] })
    })
}

/// Whether the word from one place to another is a figure: `340ms`, `8080`, an id, a part of `10:00:05` or `10.0.0.1`.
/// `http2`, `503` and `-1` are not.
fn is_figure(text: &[u8], begins: usize, ends: usize) -> bool {
    let word = &text[begins..ends];
    let is_id =
        word.len() >= ID && word.iter().all(u8::is_ascii_hexdigit) && word.iter().any(u8::is_ascii_digit);
    if is_id || !word[0].is_ascii_digit() {
        return is_id;
    }
    let joins = |byte: &u8| matches!(byte, b'.' | b':' | b'-' | b'/');
    let is_digit = |at: Option<usize>| at.and_then(|at| text.get(at)).is_some_and(u8::is_ascii_digit);
    let after_figure = begins > 0 && joins(&text[begins - 1]) && is_digit(begins.checked_sub(2));
    let before_figure = text.get(ends).is_some_and(joins) && is_digit(Some(ends + 1));
    word.len() > CODE || !word.iter().all(u8::is_ascii_digit) || after_figure || before_figure
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::report::{
        journal::{Journal, JournalBounds},
        view::{Time, sample},
    };

    fn event_saying(message: &str) -> EventView {
        EventView { message: message.to_owned(), ..sample::event() }
    }

    #[test]
    fn messages_that_differ_only_in_figures_are_one_series_and_others_are_not() {
        for (one, other, is_one) in [
            ("refused", "refused", true),
            ("took 340ms", "took 12.5s", false),
            ("took 340ms", "took 1200ms", true),
            ("took 3.40s", "took 12.51s", true),
            ("pid 4711 is gone", "pid 1204711 is gone", true),
            ("dial tcp 10.0.0.7:8080: refused", "dial tcp 10.12.0.9:41234: refused", true),
            ("at 2026-11-20T10:00:05Z", "at 2027-01-02T03:04:59Z", true),
            ("at 10:00:05", "at 11:59:06", true),
            ("container 3f2a90bc41de gone", "container deadbeef0042 gone", true),
            ("HTTP probe failed with statuscode: 503", "HTTP probe failed with statuscode: 404", false),
            ("exited with code 1", "exited with code 137", false),
            ("exited with code -1", "exited with code 1", false),
            ("http1 refused", "http2 refused", false),
            ("deadbeef", "faceface", false),
            ("a # b", "a 5000 b", false),
            ("", "x", false),
            ("\u{20ac}5000\u{20ac}", "\u{20ac}6000\u{20ac}", true),
        ] {
            let (one, other) = (event_saying(one), event_saying(other));
            assert_eq!(merge(&one, &other).is_some(), is_one, "{:?} {:?}", one.message, other.message);
            assert_eq!(series(&one) == series(&other), is_one, "{:?} {:?}", one.message, other.message);
        }
    }

    #[test]
    fn what_is_no_attempt_is_another_series_even_if_only_a_figure_differs() {
        let withheld =
            |message: &str| EventView { reason: "ActWithheld".to_owned(), ..event_saying(message) };
        let (one, other) = (withheld("withheld: INC-4711"), withheld("withheld: INC-4712"));
        assert!(merge(&one, &other).is_none() && merge(&one, &one).is_some());
        assert_ne!(series(&one), series(&other));
    }

    #[test]
    fn what_changes_a_state_repeats_nothing() {
        for (reason, repeats) in [
            ("Started", false),
            ("Exited", false),
            ("OOMKilled", false),
            ("Replaced", false),
            ("Restarted", false),
            ("Killing", false),
            ("Paused", false),
            ("Resumed", false),
            ("VerdictChanged", false),
            ("RuntimeAway", false),
            ("RuntimeBack", false),
            ("ConfigurationReloaded", false),
            ("ConfigurationRefused", true),
            ("InvalidProbe", true),
            ("InvalidAnnotation", true),
            ("ActWithheld", true),
            ("ActFailed", true),
            ("WouldAct", true),
            ("ProbeWarning", true),
            ("Unhealthy", true),
        ] {
            let event = EventView { reason: reason.to_owned(), ..event_saying("same") };
            assert_eq!(merge(&event, &event).is_some(), repeats, "{reason}");
        }
    }

    /// Seconds, reason, container, message; of those that are kept also how many they are, and since when.
    type Row = (u64, &'static str, &'static str, &'static str);

    fn kept(rows: impl IntoIterator<Item = (u64, String, String, String)>) -> Vec<Arc<EventView>> {
        let bounds = JournalBounds {
            groups: Some(EventView::groups),
            size: EventView::size,
            repeats: Some(REPEATS),
            ..JournalBounds::records(500)
        };
        let journal = Journal::new(bounds);
        for (seconds, reason, container_id, message) in rows {
            let probe = if ["Unhealthy", "VerdictChanged"].contains(&&*reason) { "liveness" } else { "" };
            let (at, probe) = (sample::at(seconds * 1_000), probe.to_owned());
            journal.push(EventView { at, reason, container_id, message, probe, ..sample::event() });
        }
        journal.last(usize::MAX)
    }

    fn in_brief(events: &[Arc<EventView>]) -> Vec<String> {
        let brief = |event: &Arc<EventView>| {
            let count = if event.count > 1 { format!(" x{}", event.count) } else { String::new() };
            format!("{} {}{count}", event.reason, event.container_id)
        };
        events.iter().map(brief).collect()
    }

    #[test]
    fn crash_loops_and_outages_stay_in_their_order() {
        let rows: &[Row] = &[
            (0, "Started", "c0", "Container app started"),
            (1, "Unhealthy", "c0", "Liveness probe failed: refused"),
            (2, "Unhealthy", "c0", "Liveness probe failed: refused"),
            (3, "Exited", "c0", "Container app exited with code 3 after 3s"),
            (4, "Replaced", "c1", "Container app was replaced by a new one, attempt 1"),
            (4, "Started", "c1", "Container app started, attempt 1"),
            (5, "Unhealthy", "c1", "Liveness probe failed: refused"),
            (6, "Unhealthy", "c1", "Liveness probe failed: refused"),
            (7, "Unhealthy", "c1", "Liveness probe failed: refused"),
            (8, "Exited", "c1", "Container app exited with code 3 after 3s"),
            (9, "RuntimeAway", "", "the runtime is away: gone"),
            (12, "RuntimeBack", "", "the runtime answers again after 2s"),
            (13, "RuntimeAway", "", "the runtime is away: gone"),
            (15, "RuntimeBack", "", "the runtime answers again after 2s"),
        ];
        let owned = |&(seconds, reason, id, message): &Row| {
            (seconds, reason.to_owned(), id.to_owned(), message.to_owned())
        };
        assert_eq!(
            in_brief(&kept(rows.iter().map(owned))),
            [
                "Started c0",
                "Unhealthy c0 x2",
                "Exited c0",
                "Replaced c1",
                "Started c1",
                "Unhealthy c1 x3",
                "Exited c1",
                "RuntimeAway ",
                "RuntimeBack ",
                "RuntimeAway ",
                "RuntimeBack ",
            ]
        );
    }

    #[test]
    fn a_long_crash_loop_takes_no_more_than_its_share_and_its_oldest_cycles_are_one() {
        let cycles = (0..300_u64).flat_map(|cycle| {
            let id = format!("c{cycle}");
            let row = |reason: &str, message: String| (cycle * 10, reason.to_owned(), id.clone(), message);
            [
                row("Started", format!("Container app started, attempt {cycle}")),
                row("Unhealthy", "Liveness probe failed: refused".to_owned()),
                row("Exited", "Container app exited with code 3 after 9s".to_owned()),
            ]
        });
        let events = kept(cycles);
        let brief = in_brief(&events);
        assert_eq!(events.len(), 60);
        assert_eq!(
            brief[..4],
            ["Started c280 x281", "Unhealthy c280 x281", "Exited c280 x281", "Started c281"]
        );
        assert_eq!(brief[57..], ["Started c299", "Unhealthy c299", "Exited c299"]);
        assert_eq!((events[0].first_at, events[0].at), (Some(sample::at(0)), sample::at(2_800_000)));
        assert_eq!(events[0].message, "Container app started, attempt 280");
        assert_eq!(
            (events[0].size(), events[0].count),
            (EventView { count: 1, ..(*events[0]).clone() }.size(), 281)
        );
    }

    #[test]
    fn what_says_something_else_each_time_is_not_folded() {
        let rows = (0..60_u64).map(|number| {
            let word: String =
                [b'a' + (number % 26) as u8, b'a' + (number / 26) as u8].map(char::from).iter().collect();
            (number, "Unhealthy".to_owned(), "c".to_owned(), format!("Liveness probe failed: {word}"))
        });
        let events = kept(rows);
        assert!(events.len() == 20 && events.iter().all(|event| event.count == 1), "{events:?}");
    }

    #[test]
    fn what_is_about_something_else_is_another_series_whatever_it_says() {
        let event = event_saying("same");
        let other = || "other".to_owned();
        for another in [
            EventView { namespace: other(), ..event.clone() },
            EventView { pod_uid: other(), ..event.clone() },
            EventView { container: other(), ..event.clone() },
            EventView { probe: other(), ..event.clone() },
            EventView { reason: "ProbeWarning".to_owned(), ..event.clone() },
        ] {
            assert_eq!(merge(&event, &another), None);
            assert_ne!(series(&event), series(&another));
        }
        let again = EventView { container_id: other(), ..event.clone() };
        assert_eq!(merge(&event, &again), None, "the next container begins another");
        assert_ne!(series(&event), series(&again), "so that followers are shown the last of this one");
    }

    #[test]
    fn a_series_counts_and_ends_when_nothing_came_for_long() {
        let at = |seconds: u64| EventView { at: sample::at(seconds * 1_000), ..event_saying("same") };
        let two = merge(&at(0), &at(600)).unwrap();
        let three = merge(&two, &at(1_200)).unwrap();
        assert_eq!((three.count, three.first_at, three.at), (3, Some(at(0).at), at(1_200).at));
        assert_eq!(merge(&three, &at(1_801)), None);
        assert_eq!(merge(&three, &at(0)).map(|merged| merged.count), Some(4), "a clock may be set back");
        let json = serde_json::to_value(&*three).unwrap();
        assert_eq!(json["count"], 3);
        assert_eq!(serde_json::from_value::<EventView>(json).unwrap(), *three);
        let Time(_) = three.first_at.unwrap();
    }

    proptest! {
        #[test]
        fn any_message_has_words_and_repeats_itself(message in any::<String>(), other in any::<String>()) {
            let length: usize = words(&message).map(str::len).sum();
            prop_assert!(length <= message.len());
            prop_assert!(merge(&event_saying(&message), &event_saying(&message)).is_some());
            let is_one = merge(&event_saying(&message), &event_saying(&other)).is_some();
            prop_assert_eq!(is_one, series(&event_saying(&message)) == series(&event_saying(&other)));
        }
    }
}
