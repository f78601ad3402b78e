//! Opens the runtime's socket, and puts into words why it cannot be opened: without the path, the system's words read as if
//! a file of the container were missing.

use std::{error::Error, io, iter, path::Path};

use thiserror::Error;
use tokio::net::UnixStream;

/// Why the runtime's socket cannot be opened: `the runtime's socket /run/x.sock does not exist`.
#[derive(Debug, Error)]
#[error("{before}the runtime's {after}")]
pub(crate) struct SocketError {
    before: &'static str,
    after: String,
}

impl SocketError {
    fn new(path: &Path, error: &io::Error) -> Self {
        let path = path.display();
        let (before, after) = match error.kind() {
            io::ErrorKind::NotFound => ("", format!("socket {path} does not exist")),
            io::ErrorKind::ConnectionRefused => ("no process listens on ", format!("socket {path}")),
            io::ErrorKind::PermissionDenied => {
                ("criprobe has no permission to open ", format!("socket {path}"))
            }
            io::ErrorKind::WouldBlock => {
                ("", format!("socket {path} accepts no more connections: its queue is full"))
            }
            _ => ("", format!("socket {path} cannot be opened: {error}")),
        };
        Self { before, after }
    }

    /// The same after words that name the runtime: `its socket /run/x.sock does not exist`.
    pub(crate) fn of_it(&self) -> String {
        format!("{}its {}", self.before, self.after)
    }

    /// That of an error of a call, if the call failed for this reason.
    pub(crate) fn find<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        let mut causes = iter::successors(Some(error), |&cause| cause.source());
        causes.find_map(|cause| cause.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref())
    }
}

/// Opens it.
///
/// # Errors
/// The system's error of the same kind, which contains a [`SocketError`].
pub(super) async fn connect(path: &Path) -> io::Result<UnixStream> {
    let in_words = |error: io::Error| io::Error::new(error.kind(), SocketError::new(path, &error));
    UnixStream::connect(path).await.map_err(in_words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_the_socket_is_said_with_its_path() {
        for (errno, shown, of_it) in [
            (2, "the runtime's socket /r.sock does not exist", "its socket /r.sock does not exist"),
            (
                111,
                "no process listens on the runtime's socket /r.sock",
                "no process listens on its socket /r.sock",
            ),
            (
                13,
                "criprobe has no permission to open the runtime's socket /r.sock",
                "criprobe has no permission to open its socket /r.sock",
            ),
            (
                11,
                "the runtime's socket /r.sock accepts no more connections: its queue is full",
                "its socket /r.sock accepts no more connections: its queue is full",
            ),
            (
                20,
                "the runtime's socket /r.sock cannot be opened: Not a directory (os error 20)",
                "its socket /r.sock cannot be opened: Not a directory (os error 20)",
            ),
        ] {
            let error = SocketError::new(Path::new("/r.sock"), &io::Error::from_raw_os_error(errno));
            assert_eq!((error.to_string().as_str(), error.of_it().as_str()), (shown, of_it));
        }
    }
}
