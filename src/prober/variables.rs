//! The values of the variables that a probe's command names: a container in; the values out, from the runtime the first
//! time, and kept until the probe is gone or looks at another container. A probe without variables keeps nothing.

mod room;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tonic::{Code, transport::Channel};

use crate::{
    clock,
    handler::{Fault, exec, go},
    ids::ContainerId,
    inventory::pod::{Container, Pod},
    results::text::BoundedText,
    runtime::environment::{self, Subject, VariablesError},
    spec::expand::{Env, TooLong},
};

use room::Lease;
pub(in crate::prober) use room::Room;

/// 30 s: for how long values that found no room are not asked for again, even if there is room meanwhile. Reading a long
/// environment costs the runtime and us some 10 ms, and a probe may be tried ten times a second.
const PAUSE: Duration = Duration::from_secs(30);

/// The values of one probe. They are shared with its attempts, of which there is one at a time.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    state: Mutex<State>,
    /// Where they are kept; none for a single attempt, after which nothing is kept.
    room: Option<Arc<Room>>,
}

/// An environment never changes while its container is there.
#[derive(Debug, Default)]
enum State {
    /// Not asked for yet, or without an answer.
    #[default]
    Unread,
    /// They are kept, in this container, or were.
    Kept { container: ContainerId, lease: Lease },
    /// They are longer in this container than this command may become.
    TooLong { container: ContainerId, limit: usize },
    /// They take so many bytes in this container, for which there was no room; they are not asked for before this moment,
    /// nor before there is room.
    NoRoom { container: ContainerId, bytes: usize, until: Instant },
}

impl Variables {
    /// Those of a probe, which are kept there.
    pub(super) fn within(room: &Arc<Room>) -> Self {
        Self { state: Mutex::default(), room: Some(room.clone()) }
    }

    /// The values of these names, which are always the same ones; `limit` is how long they may be together.
    ///
    /// # Errors
    /// The runtime gave no answer, it does not report environments, or there is no room for the request or the values.
    pub(super) async fn read(
        &self,
        runtime: Channel,
        view: &Container,
        names: &BTreeSet<&str>,
        limit: usize,
    ) -> Result<Env, Fault> {
        if let Some(known) = self.known(view, limit, clock::now()) {
            return known;
        }
        let of = Subject {
            container: view.id.as_str(),
            pod: view.pod.uid.as_str(),
            namespace: &view.pod.namespace,
        };
        match environment::variables(runtime, of, names).await {
            Ok(values) => self.keep(view, values.into_iter().collect(), limit, clock::now()),
            Err(error @ VariablesError::NoPlace) => Err(Fault::Ours(BoundedText::of(error))),
            Err(error @ VariablesError::NotReported) => Err(unknown(error)),
            Err(VariablesError::Runtime(status)) => Err(match (exec::away(&status), status.code()) {
                (Some(away), _) => away,
                (None, Code::OutOfRange) => unknown("it is too large"),
                (None, Code::DeadlineExceeded) => {
                    Fault::Unanswered("the runtime did not report the container's variables in time".into())
                }
                (None, code) => {
                    Fault::Runtime { code: go::code(code), message: BoundedText::of(status.message()) }
                }
            }),
        }
    }

    /// What is known without asking.
    fn known(&self, of: &Container, limit: usize, now: Instant) -> Option<Result<Env, Fault>> {
        let mut state = self.state();
        if let State::Kept { container, lease } = &*state
            && *container == of.id
        {
            if let Some(values) = lease.values() {
                return Some(Ok(values));
            }
            // Their room was taken back: they are read again as soon as there is some.
            *state = State::NoRoom { container: of.id.clone(), bytes: lease.bytes(), until: now };
        }
        match &*state {
            State::TooLong { container, limit: known } if *container == of.id && *known == limit => {
                Some(Err(Fault::target(TooLong(limit))))
            }
            State::NoRoom { container, bytes, until }
                if *container == of.id && (now < *until || !self.has_room(&of.pod, *bytes)) =>
            {
                Some(Err(no_room(*bytes)))
            }
            State::Unread | State::Kept { .. } | State::TooLong { .. } | State::NoRoom { .. } => {
                // What another container had gives its room back before more is read.
                *state = State::Unread;
                None
            }
        }
    }

    /// Keeps values that were read, if they are not too long and there is room.
    fn keep(&self, view: &Container, values: Env, limit: usize, now: Instant) -> Result<Env, Fault> {
        let container = view.id.clone();
        // Each is in the command at least once.
        if values.length() > limit {
            *self.state() = State::TooLong { container, limit };
            return Err(Fault::target(TooLong(limit)));
        }
        let Some(room) = &self.room else { return Ok(values) };
        let bytes = values.weight();
        let Some(lease) = room.keep(&view.pod, values.clone()) else {
            *self.state() = State::NoRoom { container, bytes, until: now + PAUSE };
            return Err(no_room(bytes));
        };
        *self.state() = State::Kept { container, lease };
        Ok(values)
    }

    fn has_room(&self, pod: &Pod, bytes: usize) -> bool {
        self.room.as_ref().is_none_or(|room| room.has(pod, bytes))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_room(bytes: usize) -> Fault {
    unknown(format_args!("its variables have {bytes} bytes, and there is no room for them"))
}

fn unknown(reason: impl std::fmt::Display) -> Fault {
    Fault::target(format_args!(
        "the command refers to the container's environment, which is not known: {reason}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prober::fixtures::container;

    const LARGE: usize = 8 << 10;

    fn values(bytes: usize) -> Env {
        Env::from_iter([("A".to_owned(), "x".repeat(bytes))])
    }

    #[test]
    fn row_16_what_is_kept_is_that_of_the_container_and_gives_its_room_back_with_the_probe() {
        let (room, now) = (Arc::new(Room::default()), clock::now());
        let variables = Variables::within(&room);
        let view = container("web", "c1", 0);
        let kept = variables.keep(&view, values(LARGE), LARGE, now).unwrap();
        assert_eq!(variables.known(&view, LARGE, now), Some(Ok(kept)));
        assert!(room.in_all() > LARGE);
        assert_eq!(variables.known(&container("web", "c2", 0), LARGE, now), None);
        assert_eq!(room.in_all(), 0, "before those of another container are read");
        drop(variables.keep(&view, values(LARGE), LARGE, now));
        drop(variables);
        assert_eq!(room.in_all(), 0);
    }

    #[test]
    fn row_20_values_that_are_too_long_are_read_once_in_a_container() {
        let (variables, now) = (Variables::within(&Arc::default()), clock::now());
        let view = container("web", "c1", 0);
        let refused = variables.keep(&view, values(LARGE), LARGE / 2, now).unwrap_err();
        let text = "the command is longer than 4096 bytes after its variables were expanded";
        assert_eq!(refused.to_string(), text);
        let later = now + 1000 * PAUSE;
        assert_eq!(variables.known(&view, LARGE / 2, later), Some(Err(refused)));
        assert_eq!(variables.known(&view, LARGE, later), None, "a rule allows longer commands");
    }

    #[test]
    fn row_20_values_without_room_are_read_again_after_a_pause_and_when_there_is_room() {
        let (room, now) = (Arc::new(Room::default()), clock::now());
        let mut others: Vec<_> = (0..3).map(|_| Variables::within(&room)).collect();
        let most = 16 << 20;
        let view = container("web", "c1", 0);
        others[0].keep(&view, values(most - 2 * LARGE), most, now).unwrap();
        let same = container("web", "c3", 0);
        let refused = others[1].keep(&same, values(2 * LARGE), most, now).unwrap_err();
        assert!(refused.to_string().ends_with("bytes, and there is no room for them"));
        assert_eq!(others[1].known(&same, most, now + PAUSE), Some(Err(refused.clone())), "still none");
        // Another pod holds less, and takes the room of the first.
        others[2].keep(&container("shop", "c2", 0), values(3 * LARGE), most, now).unwrap();
        let given_way = others[0].known(&view, most, now).and_then(Result::err);
        assert!(given_way.is_some_and(|fault| fault.to_string().ends_with("there is no room for them")));
        assert_eq!(others[1].known(&same, most, now), Some(Err(refused)), "there is a pause");
        assert_eq!(others[1].known(&same, most, now + PAUSE), None, "there is room");
        drop(others.pop());
        assert_eq!(others[0].known(&view, most, now), None, "there is room, and it was never refused");
    }
}
