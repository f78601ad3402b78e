//! Serializes instances that start at the same time on the same socket: a lock on a file beside it, which only we can
//! open.

use std::{
    fs::{File, TryLockError},
    io, thread,
    time::Duration,
};

use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};

use super::{ListenError, Place, identity_at, identity_of};

/// 2 s: how long to wait for another instance that is starting on the same socket; it needs milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// 20 ms between two checks whether it has finished.
const LOOK: Duration = Duration::from_millis(20);

/// The right to check a socket's path and to bind it. Others wait until it is dropped.
pub(super) struct Turn<'a> {
    place: &'a Place,
    name: String,
    _lock: File,
}

impl<'a> Turn<'a> {
    /// Waits for it.
    pub(super) fn take(place: &'a Place) -> Result<Self, ListenError> {
        let io_error = |source: io::Error| place.io_error(source);
        let name = format!(".{}.lock", place.name.to_string_lossy());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        for _ in 0..PATIENCE.as_millis() / LOOK.as_millis() {
            let lock = openat(&place.folder, &name, flags, Mode::RUSR | Mode::WUSR);
            let lock = File::from(lock.map_err(|errno| io_error(errno.into()))?);
            match lock.try_lock() {
                // The last holder has removed the file: a lock counts only on the file that exists now.
                Ok(()) if is_at(&lock, place, &name) => return Ok(Self { place, name, _lock: lock }),
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => thread::sleep(LOOK),
                Err(TryLockError::Error(error)) => return Err(io_error(error)),
            }
        }
        Err(ListenError::Locked(place.path.with_file_name(name)))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // If it cannot be removed, this does no harm: the lock ends with the descriptor.
        let _ = unlinkat(&self.place.folder, &self.name, AtFlags::empty());
    }
}

fn is_at(file: &File, place: &Place, name: &str) -> bool {
    matches!((identity_of(file), identity_at(&place.folder, name)), (Ok(open), Ok(there)) if open == there)
}
