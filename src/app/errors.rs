//! An error as one line for users: its chain, each cause once, and what to do if the system refused.

use std::io;

/// Describes an error in one line. A cause that its effect already quotes is left out.
pub(super) fn describe_error(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        match line.as_str() {
            "" => line = cause,
            said if said.contains(&cause) => {}
            _ => line = format!("{line}: {cause}"),
        }
    }
    let refused = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    match refused.and_then(|refused| advice(refused.kind())) {
        Some(advice) => format!("{line}; {advice}"),
        None => line,
    }
}

/// Whether what reads us has left.
pub(super) fn is_reader_gone(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    causes.any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

fn advice(kind: io::ErrorKind) -> Option<&'static str> {
    match kind {
        io::ErrorKind::PermissionDenied => Some("run it as root, or choose a path that you can write to"),
        io::ErrorKind::ReadOnlyFilesystem => {
            Some("choose a path on a writable file system, or allow it with ReadWritePaths= in the unit")
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            Some("a part of the path is a file, not a folder: choose another path")
        }
        io::ErrorKind::StorageFull => Some("free some space, or choose another path"),
        // What has no advice speaks for itself.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;
    use crate::listen::ListenError;

    #[test]
    fn each_cause_is_told_once_with_what_to_do() {
        let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
        let listen = ListenError::Io { path: "/run/x.sock".into(), source: refused() };
        assert_eq!(
            describe_error(&listen.into()),
            "cannot create the socket /run/x.sock: permission denied; run it as root, or choose a path that you can write to"
        );
        let error = anyhow::Error::from(io::Error::from(io::ErrorKind::TimedOut)).context("cannot ask");
        assert_eq!(describe_error(&error), "cannot ask: timed out");
        let left =
            Err::<(), _>(io::Error::from(io::ErrorKind::BrokenPipe)).context("cannot print").unwrap_err();
        assert!(is_reader_gone(&left) && !is_reader_gone(&error));
    }
}
