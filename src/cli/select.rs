//! The flags that choose by pod and container, the same for every verb that has them.

use crate::report::filter::Glob;

/// Which pods and containers.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Select {
    /// Only this namespace; * and ? are wildcards, as in the other filters by name
    #[arg(short, long, value_name = "NS", value_parser = glob)]
    pub(super) namespace: Option<Glob>,
    /// Only this pod
    #[arg(long, value_name = "POD", value_parser = glob)]
    pub(super) pod: Option<Glob>,
    /// Only this container
    #[arg(long, value_name = "CONTAINER", value_parser = glob)]
    pub(super) container: Option<Glob>,
}

/// 1,024 bytes of a pattern: names in Kubernetes have 253 at most, and all patterns must fit into one URL.
const MAX_PATTERN: usize = 1_024;

/// A pattern of an allowed length.
pub(super) fn glob(text: &str) -> Result<Glob, String> {
    if text.len() > MAX_PATTERN {
        return Err(format!("a pattern has at most {MAX_PATTERN} bytes"));
    }
    Ok(text.into())
}
