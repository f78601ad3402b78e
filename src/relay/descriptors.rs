//! How many connections clients may have, and how many file descriptors these can use: all but a reserve for the prober,
//! the API and the state file. In: the process's limit, the lowest free descriptor and the open connections. Out: whether
//! another client can be accepted.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use rustix::{
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

/// 1,024 connections of clients are open at once; a node's clients have some ten. Each takes memory, so without a bound
/// many idle ones would take hundreds of megabytes. Further clients wait in the socket's backlog until some leave.
pub(super) const MAX_CONNECTIONS: usize = 1_024;

/// A quarter of the limit, and at most 768, are reserved from clients: twice the default number of places of the prober
/// and the API, also over TCP, and some files. When clients use all others, new ones wait in the socket's backlog until some leave.
const MAX_RESERVE: usize = 768;

/// 2 descriptors per connection: the client's socket and the runtime's. A stalled connection takes another one for each
/// stalled direction, but never from the reserve.
const PER_CONNECTION: usize = 2;

/// Raises the process's soft limit of file descriptors to its hard limit.
pub fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    if let Err(error) = raised {
        tracing::debug!(%error, ?current, "cannot raise the limit of file descriptors");
    }
}

/// The process's limit of descriptors; every descriptor is a lower number.
pub fn limit() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// Whether this descriptor belongs to the reserve.
pub(super) fn is_reserved(descriptor: &impl AsFd) -> bool {
    usize::try_from(descriptor.as_fd().as_raw_fd()).is_ok_and(|number| number >= ceiling(limit()))
}

/// Whether the machine or the process ran out of a resource, most likely file descriptors.
pub(super) fn is_shortage(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}

fn ceiling(limit: usize) -> usize {
    limit - (limit / 4).min(MAX_RESERVE)
}

/// What is left for clients.
#[derive(Debug, Default)]
pub(super) struct Budget {
    open: Arc<AtomicUsize>,
    undialled: Arc<AtomicUsize>,
}

/// Why no client can be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shortage {
    /// As many connections are open as may be.
    Connections,
    /// All descriptors but the reserve are in use.
    Descriptors,
}

/// One of those that are counted, until it is dropped.
#[derive(Debug)]
pub(super) struct Counted(Arc<AtomicUsize>);

/// An accepted client.
#[derive(Debug)]
pub(super) struct Place {
    /// For as long as the connection is open.
    pub(super) open: Counted,
    /// Until it has a connection to the runtime: its second descriptor is already counted.
    pub(super) undialled: Counted,
}

impl Budget {
    /// Why no other client can be accepted, if so. `any` is an open descriptor; a copy of it gets the lowest free number,
    /// below which all are in use.
    pub(super) fn shortage(&self, any: &impl AsFd) -> Option<Shortage> {
        if self.open.load(Ordering::Relaxed) >= MAX_CONNECTIONS {
            return Some(Shortage::Connections);
        }
        let undialled = self.undialled.load(Ordering::Relaxed);
        let lowest_free = any.as_fd().try_clone_to_owned().map(|copy| copy.as_raw_fd());
        let lowest_free = lowest_free.ok().and_then(|number| usize::try_from(number).ok());
        let has_room = lowest_free.is_some_and(|lowest_free| fits(lowest_free, undialled, limit()));
        (!has_room).then_some(Shortage::Descriptors)
    }

    /// Notes that a client was accepted.
    pub(super) fn accepted(&self) -> Place {
        Place { open: Counted::one(&self.open), undialled: Counted::one(&self.undialled) }
    }
}

impl Counted {
    fn one(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn fits(lowest_free: usize, undialled: usize, limit: usize) -> bool {
    lowest_free.saturating_add(undialled).saturating_add(PER_CONNECTION) <= ceiling(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_a_quarter_and_at_most_768() {
        for (limit, ceiling_of_clients) in
            [(64, 48), (1024, 768), (65_536, 64_768), (usize::MAX, usize::MAX - 768)]
        {
            assert_eq!(ceiling(limit), ceiling_of_clients);
        }
    }

    #[test]
    fn one_more_fits_with_both_its_descriptors_and_those_that_are_spoken_for() {
        for (lowest_free, undialled, is_room) in
            [(46, 0, true), (47, 0, false), (40, 6, true), (40, 7, false)]
        {
            assert_eq!(fits(lowest_free, undialled, 64), is_room, "{lowest_free} {undialled}");
        }
        assert!(!fits(usize::MAX, 1, 64));
    }

    #[test]
    fn a_client_is_counted_until_it_is_dialled_for_and_until_it_leaves() {
        let budget = Budget::default();
        let counts =
            |budget: &Budget| [&budget.undialled, &budget.open].map(|count| count.load(Ordering::Relaxed));
        let mut places = vec![budget.accepted(), budget.accepted()];
        assert_eq!(counts(&budget), [2, 2]);
        let Some(Place { open, undialled }) = places.pop() else { panic!("two were accepted") };
        drop(undialled);
        assert_eq!(counts(&budget), [1, 2]);
        drop((open, places));
        assert_eq!(counts(&budget), [0, 0]);
    }

    #[test]
    fn above_the_bound_on_connections_clients_wait() {
        let (budget, any) = (Budget::default(), std::io::stdin());
        let mut places: Vec<_> = (0..MAX_CONNECTIONS).map(|_| budget.accepted().open).collect();
        assert_eq!(budget.shortage(&any), Some(Shortage::Connections));
        places.pop();
        assert_ne!(budget.shortage(&any), Some(Shortage::Connections));
    }
}
