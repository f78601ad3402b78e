//! Whether clients that connect at a path reach the listener that was passed for it. A listener and a path in, an answer out.

use std::{os::unix::net::UnixListener, path::Path};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with},
};

/// Whether that is so, as far as it can be told: not while clients are waiting already. Two socket units with one path each
/// have a listener, and the last one has the file, from which nothing shows whose it is. Leaves a connection that has ended.
pub(super) fn is_reached(listener: &UnixListener, path: &Path) -> bool {
    if is_waited_for(listener) {
        return true;
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let connected = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .and_then(|socket| connect(&socket, &SocketAddrUnix::new(path)?).map(|()| socket));
    match connected {
        Ok(_socket) => is_waited_for(listener),
        // Nobody listens, or the other one's queue is full.
        Err(Errno::CONNREFUSED | Errno::AGAIN) => false,
        Err(_) => true,
    }
}

/// Whether a client waits to be accepted. A queue that cannot be asked is taken to have one.
fn is_waited_for(listener: &UnixListener) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&now)).map_or(true, |ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::net::UnixStream};

    use super::*;

    #[test]
    fn a_file_that_another_listener_has_taken_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let first = UnixListener::bind(&path).unwrap();
        assert!(is_reached(&first, &path));
        drop(first.accept().unwrap());
        fs::remove_file(&path).unwrap();
        let second = UnixListener::bind(&path).unwrap();
        assert!(!is_reached(&first, &path) && is_reached(&second, &path));
        drop(second);
        assert!(!is_reached(&first, &path), "nobody listens");
        fs::remove_file(&path).unwrap();
        let third = UnixListener::bind(&path).unwrap();
        let _waits = UnixStream::connect(&path).unwrap();
        assert!(is_reached(&third, &path), "it cannot be told");
    }
}
