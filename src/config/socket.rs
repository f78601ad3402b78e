//! The address of a Unix socket as users write it: text in, an absolute path out. Never accesses the file system.

use std::path::PathBuf;

use crate::document::fault::quoted;

/// 107 bytes: the longest path that Linux accepts in a socket's address (`sun_path`, less its final zero).
pub(crate) const MAX_PATH: usize = 107;

/// Why an address cannot be used, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SocketError {
    /// The text is empty.
    #[error("empty: write unix:///PATH")]
    Empty,
    /// TCP, HTTP and the like.
    #[error("{} is not a Unix socket: write unix:///PATH", quoted(.0))]
    OtherScheme(String),
    /// A socket without a file would have no mode and no owner: anyone could connect.
    #[error("{} is an abstract socket, which any user can connect to: write unix:///PATH (pathname sockets only)", quoted(.0))]
    Abstract(String),
    /// A path that depends on the working directory of the daemon.
    #[error("{} is not an absolute path: write unix:///PATH", quoted(.0))]
    Relative(String),
    /// No socket can be bound or reached there.
    #[error("{} names a folder: write unix:///PATH", quoted(.0))]
    Folder(String),
    /// Linux would not accept it.
    #[error("the path has {0} bytes: the path of a Unix socket has at most {MAX_PATH}")]
    TooLong(usize),
    /// Linux would truncate it there.
    #[error("the path contains a zero byte: write unix:///PATH")]
    ZeroByte,
}

/// Reads `unix:///PATH` or a bare absolute path.
///
/// # Errors
/// The text is anything else, or a path that a Unix socket cannot have.
pub(crate) fn parse(text: &str) -> Result<PathBuf, SocketError> {
    let path = match text.split_once("://") {
        Some(("unix", path)) => path,
        Some(_) if !text.starts_with('/') => return Err(SocketError::OtherScheme(text.into())),
        Some(_) | None => text,
    };
    match path.chars().next() {
        None => Err(SocketError::Empty),
        Some('@' | '\0') => Err(SocketError::Abstract(text.into())),
        Some('/') if path.contains('\0') => Err(SocketError::ZeroByte),
        Some('/') if path.ends_with('/') => Err(SocketError::Folder(text.into())),
        Some('/') if path.len() > MAX_PATH => Err(SocketError::TooLong(path.len())),
        Some('/') => Ok(path.into()),
        Some(_) if path.starts_with("unix-abstract:") => Err(SocketError::Abstract(text.into())),
        Some(_) => Err(SocketError::Relative(text.into())),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reported(text: &str) -> String {
        parse(text).map_or_else(|error| error.to_string(), |path| format!("ok {}", path.display()))
    }

    #[test]
    fn a_url_or_a_bare_path_is_a_path() {
        insta::assert_snapshot!(reported("unix:///run/x.sock"), @"ok /run/x.sock");
        insta::assert_snapshot!(reported("/run/x.sock"), @"ok /run/x.sock");
        insta::assert_snapshot!(reported("/run/odd://x"), @"ok /run/odd://x");
    }

    #[test]
    fn anything_else_is_told_with_what_to_write() {
        insta::assert_snapshot!(reported(""), @"empty: write unix:///PATH");
        insta::assert_snapshot!(reported("unix://"), @"empty: write unix:///PATH");
        insta::assert_snapshot!(reported("unix://run/x.sock"), @r#""unix://run/x.sock" is not an absolute path: write unix:///PATH"#);
        insta::assert_snapshot!(reported("x.sock"), @r#""x.sock" is not an absolute path: write unix:///PATH"#);
        insta::assert_snapshot!(reported("unix:/run/x.sock"), @r#""unix:/run/x.sock" is not an absolute path: write unix:///PATH"#);
        insta::assert_snapshot!(reported(" /run/x.sock"), @r#"" /run/x.sock" is not an absolute path: write unix:///PATH"#);
        insta::assert_snapshot!(reported("tcp://127.0.0.1:1234"), @r#""tcp://127.0.0.1:1234" is not a Unix socket: write unix:///PATH"#);
        insta::assert_snapshot!(reported("UNIX:///run/x"), @r#""UNIX:///run/x" is not a Unix socket: write unix:///PATH"#);
        insta::assert_snapshot!(reported("npipe:////./pipe/x"), @r#""npipe:////./pipe/x" is not a Unix socket: write unix:///PATH"#);
        insta::assert_snapshot!(reported("@x"), @r#""@x" is an abstract socket, which any user can connect to: write unix:///PATH (pathname sockets only)"#);
        insta::assert_snapshot!(reported("unix://@x"), @r#""unix://@x" is an abstract socket, which any user can connect to: write unix:///PATH (pathname sockets only)"#);
        insta::assert_snapshot!(reported("unix-abstract:x"), @r#""unix-abstract:x" is an abstract socket, which any user can connect to: write unix:///PATH (pathname sockets only)"#);
        insta::assert_snapshot!(reported("\0x"), @r#""\0x" is an abstract socket, which any user can connect to: write unix:///PATH (pathname sockets only)"#);
        insta::assert_snapshot!(reported("/run/x\0y"), @"the path contains a zero byte: write unix:///PATH");
        insta::assert_snapshot!(reported("/run/"), @r#""/run/" names a folder: write unix:///PATH"#);
        insta::assert_snapshot!(reported("x\u{1b}[2J"), @r#""x\u{1b}[2J" is not an absolute path: write unix:///PATH"#);
    }

    #[test]
    fn the_bound_of_a_path_is_in_bytes_and_without_the_scheme() {
        let longest = format!("/{}", "x".repeat(MAX_PATH - 1));
        assert!(parse(&format!("unix://{longest}")).is_ok());
        insta::assert_snapshot!(reported(&format!("{longest}x")), @"the path has 108 bytes: the path of a Unix socket has at most 107");
        assert!(parse(&format!("/{}", "\u{e9}".repeat(54))).is_err());
    }

    proptest! {
        #[test]
        fn a_path_that_is_accepted_is_absolute_and_fits(text in "(unix://)?/?[a@/:.\\x00é]{0,120}") {
            if let Ok(path) = parse(&text) {
                prop_assert!(path.is_absolute() && path.as_os_str().len() <= MAX_PATH);
            }
        }
    }
}
