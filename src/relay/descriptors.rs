//! How many file descriptors clients' connections can use: all but a reserve for the prober, the API and the state
//! file. In: the process's limit and the lowest free descriptor. Out: whether another client can be accepted.

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

/// A quarter of the limit, and at most 512, are reserved from clients: twice the default number of places of the prober
/// and the API, and some files. When clients use all others, new ones wait in the socket's backlog until some leave.
const MAX_RESERVE: usize = 512;

/// 2 descriptors per connection: the client's socket and the runtime's. A stalled connection takes another one for each
/// stalled direction, but never from the reserve.
const PER_CONNECTION: usize = 2;

/// Raises the process's soft limit of file descriptors to its hard limit.
pub(crate) fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    if let Err(error) = raised {
        tracing::debug!(%error, ?current, "cannot raise the limit of file descriptors");
    }
}

/// The process's limit of descriptors; every descriptor is a lower number.
pub(crate) fn limit() -> usize {
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
    undialled: Arc<AtomicUsize>,
}

/// An accepted client that has no connection to the runtime yet: its second descriptor is already counted.
#[derive(Debug)]
pub(super) struct Undialled(Arc<AtomicUsize>);

impl Budget {
    /// Whether another client can be accepted. `any` is an open descriptor; a copy of it gets the lowest free number,
    /// below which all are in use.
    pub(super) fn has_room(&self, any: &impl AsFd) -> bool {
        let undialled = self.undialled.load(Ordering::Relaxed);
        let lowest_free = any.as_fd().try_clone_to_owned().map(|copy| copy.as_raw_fd());
        let lowest_free = lowest_free.ok().and_then(|number| usize::try_from(number).ok());
        lowest_free.is_some_and(|lowest_free| fits(lowest_free, undialled, limit()))
    }

    /// Notes that a client was accepted.
    pub(super) fn accepted(&self) -> Undialled {
        self.undialled.fetch_add(1, Ordering::Relaxed);
        Undialled(Arc::clone(&self.undialled))
    }
}

impl Drop for Undialled {
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
    fn clients_leave_a_quarter_and_at_most_512() {
        for (limit, ceiling_of_clients) in
            [(64, 48), (1024, 768), (65_536, 65_024), (usize::MAX, usize::MAX - 512)]
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
    fn a_client_is_counted_until_it_is_dialled_for() {
        let budget = Budget::default();
        let undialled = [budget.accepted(), budget.accepted()];
        assert_eq!(budget.undialled.load(Ordering::Relaxed), 2);
        drop(undialled);
        assert_eq!(budget.undialled.load(Ordering::Relaxed), 0);
    }
}
