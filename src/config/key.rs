//! The settings by name: their path in the file, their variable, their flag, their default.

/// One setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// The socket that clients connect to.
    Listen,
    /// The socket of the runtime.
    Runtime,
    /// The folder that keeps what outlives the daemon.
    State,
    /// The socket of the API.
    ApiListen,
    /// The group that may use the API.
    ApiGroup,
    /// How many attempts may be in flight.
    Workers,
    /// How many exec attempts may be in flight.
    ExecWorkers,
    /// How long past its timeout an exec may stay unanswered.
    ExecGrace,
    /// How many probes one pod may have.
    MaxPerPod,
    /// How many probes all pods may have.
    MaxPerNode,
    /// How many attempts per second one pod may have.
    MaxRatePerPod,
    /// How many attempts per second all pods may have.
    MaxRatePerNode,
    /// Where host-network pods are probed.
    NodeIp,
    /// The shortest period that annotations and HEALTHCHECKs may ask for.
    MinPeriod,
    /// The longest timeout that they may ask for.
    MaxTimeout,
    /// Where their `host` may point to.
    AllowHosts,
    /// The namespaces whose annotations count.
    AnnotationNamespaces,
    /// Whether HEALTHCHECKs count.
    HealthcheckEnabled,
    /// The namespaces in which they do.
    HealthcheckNamespaces,
    /// Whether clients' own probes are observed.
    ObservedEnabled,
    /// The form of a line in the log.
    LogFormat,
    /// How much is logged.
    LogLevel,
}

impl Key {
    /// All of them, in the order of the file.
    pub const ALL: [Self; 22] = [
        Self::Listen,
        Self::Runtime,
        Self::State,
        Self::ApiListen,
        Self::ApiGroup,
        Self::Workers,
        Self::ExecWorkers,
        Self::ExecGrace,
        Self::MaxPerPod,
        Self::MaxPerNode,
        Self::MaxRatePerPod,
        Self::MaxRatePerNode,
        Self::NodeIp,
        Self::MinPeriod,
        Self::MaxTimeout,
        Self::AllowHosts,
        Self::AnnotationNamespaces,
        Self::HealthcheckEnabled,
        Self::HealthcheckNamespaces,
        Self::ObservedEnabled,
        Self::LogFormat,
        Self::LogLevel,
    ];

    /// Its path in the file.
    pub fn path(self) -> &'static str {
        self.names().0
    }

    /// Its variable in the environment.
    pub fn variable(self) -> &'static str {
        self.names().1
    }

    /// Its flag, should a command have one.
    pub fn flag(self) -> &'static str {
        self.names().2
    }

    /// Whether it is a list: one in the file, items between commas elsewhere.
    pub fn is_list(self) -> bool {
        matches!(self, Self::AllowHosts | Self::AnnotationNamespaces | Self::HealthcheckNamespaces)
    }

    /// Its value where nobody says anything, as text.
    pub fn default(self) -> &'static str {
        match self {
            Self::Listen => "unix:///run/criprobe/criprobe.sock",
            Self::Runtime => "unix:///run/containerd/containerd.sock",
            Self::State => "/var/lib/criprobe",
            Self::ApiListen => "unix:///run/criprobe/api.sock",
            Self::ApiGroup | Self::NodeIp | Self::AllowHosts => "",
            Self::Workers => "64",
            Self::ExecWorkers => "16",
            Self::ExecGrace => "5s",
            Self::MaxPerPod => "32",
            Self::MaxRatePerPod => "50",
            Self::MaxPerNode | Self::MaxRatePerNode => "5000",
            Self::MinPeriod => "100ms",
            Self::MaxTimeout => "60s",
            Self::AnnotationNamespaces | Self::HealthcheckNamespaces => "*",
            Self::HealthcheckEnabled => "false",
            Self::ObservedEnabled => "true",
            Self::LogFormat => "text",
            Self::LogLevel => "info",
        }
    }

    fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Listen => ("listen", "CRIPROBE_LISTEN", "--listen"),
            Self::Runtime => ("runtime", "CRIPROBE_RUNTIME", "--runtime"),
            Self::State => ("state", "CRIPROBE_STATE", "--state"),
            Self::ApiListen => ("api.listen", "CRIPROBE_API", "--api"),
            Self::ApiGroup => ("api.group", "CRIPROBE_API_GROUP", "--api-group"),
            Self::Workers => ("prober.workers", "CRIPROBE_PROBER_WORKERS", "--prober-workers"),
            Self::ExecWorkers => {
                ("prober.execWorkers", "CRIPROBE_PROBER_EXEC_WORKERS", "--prober-exec-workers")
            }
            Self::ExecGrace => ("prober.execGrace", "CRIPROBE_PROBER_EXEC_GRACE", "--prober-exec-grace"),
            Self::MaxPerPod => ("prober.maxPerPod", "CRIPROBE_PROBER_MAX_PER_POD", "--prober-max-per-pod"),
            Self::MaxPerNode => {
                ("prober.maxPerNode", "CRIPROBE_PROBER_MAX_PER_NODE", "--prober-max-per-node")
            }
            Self::MaxRatePerPod => {
                ("prober.maxRatePerPod", "CRIPROBE_PROBER_MAX_RATE_PER_POD", "--prober-max-rate-per-pod")
            }
            Self::MaxRatePerNode => {
                ("prober.maxRatePerNode", "CRIPROBE_PROBER_MAX_RATE_PER_NODE", "--prober-max-rate-per-node")
            }
            Self::NodeIp => ("prober.nodeIP", "CRIPROBE_PROBER_NODE_IP", "--prober-node-ip"),
            Self::MinPeriod => ("prober.minPeriod", "CRIPROBE_PROBER_MIN_PERIOD", "--prober-min-period"),
            Self::MaxTimeout => ("prober.maxTimeout", "CRIPROBE_PROBER_MAX_TIMEOUT", "--prober-max-timeout"),
            Self::AllowHosts => ("prober.allowHosts", "CRIPROBE_PROBER_ALLOW_HOSTS", "--prober-allow-hosts"),
            Self::AnnotationNamespaces => {
                ("annotations.namespaces", "CRIPROBE_ANNOTATIONS_NAMESPACES", "--annotations-namespaces")
            }
            Self::HealthcheckEnabled => {
                ("healthcheck.enabled", "CRIPROBE_HEALTHCHECK_ENABLED", "--healthcheck-enabled")
            }
            Self::HealthcheckNamespaces => {
                ("healthcheck.namespaces", "CRIPROBE_HEALTHCHECK_NAMESPACES", "--healthcheck-namespaces")
            }
            Self::ObservedEnabled => ("observed.enabled", "CRIPROBE_OBSERVED_ENABLED", "--observed-enabled"),
            Self::LogFormat => ("log.format", "CRIPROBE_LOG_FORMAT", "--log-format"),
            Self::LogLevel => ("log.level", "CRIPROBE_LOG_LEVEL", "--log-level"),
        }
    }
}
