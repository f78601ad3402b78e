//! The link to an embedded runtime that misbehaves.

use super::*;

fn there() -> Link {
    Link { source: EventSource::Containerd, is_up: true, ..Link::default() }
}

#[test]
fn one_slow_answer_costs_no_subscription() {
    let link = watch::Sender::new(there());
    let generation = link.borrow().generation;
    set_down(&link, "no answer to Version".to_owned());
    assert_eq!((link.borrow().is_up, link.borrow().source), (false, EventSource::Containerd));
    set_up(&link, Version::default());
    assert_eq!((link.borrow().is_up, link.borrow().source), (true, EventSource::Containerd));
    assert!(link.borrow().generation > generation, "what passed meanwhile may be unknown");
}
