//! How many file descriptors clients' connections may take: all but a reserve for the prober, the API and the state
//! file. In: the process's limit, the lowest free descriptor; out: whether one more client may be accepted.

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

/// A quarter of the limit, and 512 at most, are kept from clients: twice the places of the prober and the API by
/// default, and the files beside them. Where clients have taken all others, new ones wait in the socket's backlog until
/// some leave.
const MAX_RESERVE: usize = 512;

/// 2 descriptors a connection: the client's socket and the runtime's. One that is stalled takes another for each stalled
/// direction, but never from the reserve.
const PER_CONNECTION: usize = 2;

/// Raises the process's soft limit of descriptors to its hard one, which is what it may have anyway.
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

/// Whether the machine or the process ran out of something, most likely of descriptors.
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

/// A client that was accepted and has no connection to the runtime yet: its second descriptor is spoken for.
#[derive(Debug)]
pub(super) struct Undialled(Arc<AtomicUsize>);

impl Budget {
    /// Whether one more client may be accepted. `any` is an open descriptor; a copy of it gets the lowest free number,
    /// below which all are taken.
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
