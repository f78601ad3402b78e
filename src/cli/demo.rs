//! `criprobe demo`: its flags, as given.

use std::{path::PathBuf, time::Duration};

use crate::report::filter::duration;

/// Flags of the demo.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct DemoArgs {
    /// Use this runtime, with real containers, instead of the embedded one
    #[arg(long, value_name = "URL")]
    pub runtime: Option<String>,
    /// End after this time, such as 20s or 5m [default: run until Ctrl-C]
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Keep sockets and containers in this folder [default: a temporary folder, removed at the end]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  criprobe demo
  criprobe demo --for 20s
  criprobe demo --runtime unix:///run/containerd/containerd.sock    needs root";
