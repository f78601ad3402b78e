//! `criprobe serve`: its flags, as given. The configuration adds defaults and validates them.

use std::path::PathBuf;

/// Flags of the daemon; `None` if not given.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// Read this file, then conf.d/*.yaml beside it [default: /etc/criprobe/config.yaml, if it exists]
    #[arg(long, value_name = "FILE", env = "CRIPROBE_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,
    /// The socket for clients [default: unix:///run/criprobe/criprobe.sock]
    #[arg(long, value_name = "URL")]
    pub listen: Option<String>,
    /// The runtime's socket [default: unix:///run/containerd/containerd.sock]
    #[arg(long, value_name = "URL")]
    pub runtime: Option<String>,
    /// Where the API is: the flag that all verbs have.
    #[arg(skip)]
    pub api: Option<String>,
    /// Also serve metrics and health at this TCP address, and on loopback the page: 127.0.0.1:9090, or :9090
    /// for all addresses [default: no TCP]
    #[arg(long, value_name = "ADDR")]
    pub http: Option<String>,
    /// Log format [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "json"])]
    pub log_format: Option<String>,
    /// Log level [default: info]
    #[arg(long, value_name = "LEVEL", value_parser = ["error", "warn", "info", "debug", "trace"])]
    pub log_level: Option<String>,
}

/// The help of `--api` for `serve`, where it is the address to serve on.
pub(super) const API: &str = "The socket for the API, as a URL or a path; the other verbs read the variable, too \
     [env: CRIPROBE_API] [default: unix:///run/criprobe/api.sock]";

const EXAMPLES: &str = "\
Examples:
  criprobe serve
  criprobe serve --runtime unix:///run/crio/crio.sock --log-format json
  criprobe serve --listen /run/try/cri.sock --api /run/try/api.sock    paths work, too
  criprobe serve --http 127.0.0.1:9090                                 with the page

Every setting can also be in the configuration file, or in the environment: CRIPROBE_LISTEN,
CRIPROBE_RUNTIME, CRIPROBE_API, CRIPROBE_LOG_FORMAT, CRIPROBE_LOG_LEVEL, CRIPROBE_PROBER_WORKERS, ...

Then configure clients: kubelet --container-runtime-endpoint=unix:///run/criprobe/criprobe.sock,
or crictl --runtime-endpoint unix:///run/criprobe/criprobe.sock.";
