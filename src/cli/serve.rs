//! `criprobe serve`: its flags, as given. What they default to, and whether they are right, the configuration says.

use std::path::PathBuf;

/// Flags and environment of the daemon; `None` where neither says anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// Read this file [default: /etc/criprobe/config.yaml, where there is one]
    #[arg(long, value_name = "FILE", env = "CRIPROBE_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,
    /// Where clients connect [default: unix:///run/criprobe/criprobe.sock]
    #[arg(long, value_name = "URL", env = "CRIPROBE_LISTEN", hide_env_values = true)]
    pub listen: Option<String>,
    /// The runtime behind it [default: unix:///run/containerd/containerd.sock]
    #[arg(long, value_name = "URL", env = "CRIPROBE_RUNTIME", hide_env_values = true)]
    pub runtime: Option<String>,
    /// Where the API is: the flag that all verbs have.
    #[arg(skip)]
    pub api: Option<String>,
    /// How to log [default: text]
    #[arg(long, value_name = "FORMAT", env = "CRIPROBE_LOG_FORMAT", hide_env_values = true,
          value_parser = ["text", "json"])]
    pub log_format: Option<String>,
    /// How much to log [default: info]
    #[arg(long, value_name = "LEVEL", env = "CRIPROBE_LOG_LEVEL", hide_env_values = true,
          value_parser = ["error", "warn", "info", "debug", "trace"])]
    pub log_level: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  criprobe serve
  criprobe serve --runtime unix:///run/crio/crio.sock --log-format json
  criprobe serve --listen /tmp/cri.sock --api /tmp/api.sock    bare paths are taken, too

Then point clients at it: kubelet --container-runtime-endpoint=unix:///run/criprobe/criprobe.sock,
or crictl --runtime-endpoint unix:///run/criprobe/criprobe.sock. Here --api says where to listen.";

impl ServeArgs {
    /// An empty variable of the environment is as good as none.
    pub(super) fn without_empty(mut self) -> Self {
        self.config = self.config.filter(|path| !path.as_os_str().is_empty());
        self.listen = self.listen.filter(|url| !url.is_empty());
        self.runtime = self.runtime.filter(|url| !url.is_empty());
        self
    }
}
