//! Which events repeat each other: events in; the same event, counted, out. Two are one series if they are about the same
//! pod, container and probe, have the same reason, and say the same; of attempts up to figures that differ each time. Pure.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use super::{journal::Repeats, view::EventView};
use crate::results::event::EventReason;

/// How events are kept that repeat each other.
///
/// 20 of one reason of one probe are kept: a probe that says something else each time takes no more room than that, and
/// its oldest go.
pub(crate) const REPEATS: Repeats<EventView> = Repeats { series, merge, most: 20 };

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

/// Stands for a figure.
const FIGURE: &str = "#";

fn series(event: &EventView) -> u64 {
    let mut hasher = DefaultHasher::new();
    about(event).hash(&mut hasher);
    said(event).for_each(|word| word.hash(&mut hasher));
    hasher.finish()
}

fn merge(former: &EventView, event: &EventView) -> Option<Arc<EventView>> {
    let is_same = about(former) == about(event) && said(former).eq(said(event));
    // A clock that was set back ends no series.
    let gap = event.at.0.duration_since(former.at.0).unwrap_or_default();
    (is_same && gap <= SERIES_ENDS).then(|| {
        let count = former.count.saturating_add(event.count);
        Arc::new(EventView { count, first_at: Some(former.first_at.unwrap_or(former.at)), ..event.clone() })
    })
}

/// What an event is about, all but its container's id: a container that is made again fails as the former one did.
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
    use crate::report::view::{Time, sample};

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
    fn what_an_operator_says_is_another_series_even_if_only_a_figure_differs() {
        let paused = |message: &str| EventView { reason: "Paused".to_owned(), ..event_saying(message) };
        let (one, other) = (paused("paused: INC-4711"), paused("paused: INC-4712"));
        assert!(merge(&one, &other).is_none() && merge(&one, &one).is_some());
        assert_ne!(series(&one), series(&other));
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
            EventView { reason: "Killing".to_owned(), ..event.clone() },
        ] {
            assert_eq!(merge(&event, &another), None);
            assert_ne!(series(&event), series(&another));
        }
        let again = EventView { container_id: other(), ..event.clone() };
        assert_eq!(merge(&event, &again).map(|merged| merged.container_id.clone()), Some(other()));
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
