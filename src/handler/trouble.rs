//! Decides who is responsible when a server cannot be reached: the server, which is a failure, or criprobe and its
//! node, which says nothing about the server and is an error. In: the kernel's error. Out: an outcome or a fault. Pure.

use std::io;

use rustix::io::Errno;

use super::{Fault, Outcome};

/// Why a server was not reached, in the words of Go's dialler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The server's, its network's, or that of the one who named it.
    Peer(String),
    /// The node's or ours.
    Ours(String),
}

impl Trouble {
    /// What the kernel said, with its text for people.
    pub(crate) fn of(error: &io::Error, text: String) -> Self {
        if is_ours(error) { Self::Ours(text) } else { Self::Peer(text) }
    }

    /// The same in other words.
    #[must_use]
    pub(crate) fn in_words(self, words: impl FnOnce(&str) -> String) -> Self {
        match self {
            Self::Peer(text) => Self::Peer(words(&text)),
            Self::Ours(text) => Self::Ours(words(&text)),
        }
    }

    /// What an attempt comes to that ran into it.
    ///
    /// # Errors
    /// [`Fault::Ours`] where it is our own.
    pub(crate) fn judged(self) -> Result<Outcome, Fault> {
        match self {
            Self::Peer(text) => Ok(Outcome::failure(text)),
            Self::Ours(text) => Err(Fault::Ours(text.into())),
        }
    }
}

impl From<String> for Trouble {
    fn from(text: String) -> Self {
        Self::Peer(text)
    }
}

/// Whether an error of a socket is for want of something on this node, or because this process may not: no descriptor,
/// no memory, no port or address of our own, no such family, refused by a local policy (seccomp, cgroup, firewall).
pub(crate) fn is_ours(error: &io::Error) -> bool {
    let wants = [
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOBUFS,
        Errno::NOMEM,
        Errno::NOSPC,
        Errno::AGAIN,
        Errno::ADDRNOTAVAIL,
        Errno::ADDRINUSE,
        Errno::AFNOSUPPORT,
        Errno::PROTONOSUPPORT,
        Errno::PERM,
        Errno::ACCESS,
    ];
    Errno::from_io_error(error).is_some_and(|errno| wants.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_node_lacks_is_ours_and_what_the_network_says_is_the_peers() {
        for (errno, ours) in [
            (Errno::MFILE, true),
            (Errno::NFILE, true),
            (Errno::NOBUFS, true),
            (Errno::NOMEM, true),
            (Errno::ADDRNOTAVAIL, true),
            (Errno::AGAIN, true),
            (Errno::PERM, true),
            (Errno::ACCESS, true),
            (Errno::CONNREFUSED, false),
            (Errno::CONNRESET, false),
            (Errno::HOSTUNREACH, false),
            (Errno::NETUNREACH, false),
            (Errno::TIMEDOUT, false),
        ] {
            assert_eq!(is_ours(&errno.into()), ours, "{errno}");
        }
        assert!(!is_ours(&io::Error::other("no errno")));
    }

    #[test]
    fn ours_is_an_error_and_the_peers_a_failure() {
        let (ours, peers) = (Trouble::Ours("x".to_owned()), Trouble::from("x".to_owned()));
        assert_eq!(peers.judged(), Ok(Outcome::failure("x")));
        assert_eq!(ours.judged().unwrap_err().to_string(), "criprobe could not make the attempt: x");
    }
}
