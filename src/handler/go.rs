//! Prints what Go prints, where people know a text from the kubelet: durations, codes, system errors. Pure.

use std::{io, time::Duration};

use crate::duration::GoDuration;

/// A duration as Go's `Duration.String`: `1s`, `1m30s`, `1.5s`, `250ms`.
pub fn duration(of: Duration) -> String {
    GoDuration(of).to_string()
}

/// A gRPC code as Go names it.
pub fn code(of: tonic::Code) -> String {
    match of {
        tonic::Code::Ok => "OK".to_owned(),
        tonic::Code::Cancelled => "Canceled".to_owned(),
        other => format!("{other:?}"),
    }
}

/// A system error as Go prints an errno: the system's own words in lower case, without its number.
pub fn system_error(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_system_errors_print_as_in_go() {
        assert_eq!(code(tonic::Code::NotFound), "NotFound");
        assert_eq!(code(tonic::Code::Cancelled), "Canceled");
        let refused = io::Error::from_raw_os_error(rustix::io::Errno::CONNREFUSED.raw_os_error());
        assert_eq!(system_error(&refused), "connection refused");
    }
}
