//! The process at the other end of a Unix socket, as reported by the kernel. In: a connected socket. Out: pid, uid and
//! command.

use std::{fmt, fs, io, os::fd::AsFd};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

/// The process that opened a connection. The command is as it was then: a pid may be reused later.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Peer {
    /// Its pid in our pid namespace; 0 when the kernel cannot name it there.
    pub pid: i32,
    /// Its effective user id when it connected.
    pub uid: u32,
    /// The kernel's name of the process (at most 15 bytes); empty when it cannot be read.
    pub comm: String,
}

impl Peer {
    /// Reads SO_PEERCRED and `/proc/PID/comm`.
    ///
    /// # Errors
    /// When the kernel does not answer for this socket.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        // rustix reads the same, but into a pid that cannot be 0.
        let credentials = getsockopt(&socket, PeerCredentials)?;
        let pid = credentials.pid();
        Ok(Self { pid, uid: credentials.uid(), comm: comm(pid) })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.comm.as_str() {
            "" => write!(f, "pid {}", self.pid),
            comm => write!(f, "{comm}[{}]", self.pid),
        }
    }
}

/// The name of a process; empty when it is gone or not ours to see.
pub fn comm(pid: i32) -> String {
    if pid <= 0 {
        return String::new();
    }
    fs::read_to_string(format!("/proc/{pid}/comm")).map(|comm| comm.trim_end().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_from_this_process_names_it() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let peer = Peer::of(&ours).unwrap();
        assert_eq!(peer.pid, std::process::id() as i32);
        assert!(!peer.comm.is_empty());
    }
}
