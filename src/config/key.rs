//! The settings by name: their path in the file, their variable, their flag, their default.

/// One setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// The socket that clients connect to.
    Listen,
    /// The socket of the runtime.
    Runtime,
    /// The folder for the state that survives the daemon.
    State,
    /// The socket of the API.
    ApiListen,
    /// The group that can use the API.
    ApiGroup,
    /// The TCP address for metrics, health and the page.
    ApiHttp,
    /// Where TCP serves the page and the reading API.
    ApiPage,
    /// How many attempts may be in flight.
    Workers,
    /// How many exec attempts may be in flight.
    ExecWorkers,
    /// How long after its timeout an exec may stay unanswered.
    ExecGrace,
    /// How the commands of exec probes are run.
    ExecMode,
    /// How many probes one pod may have.
    MaxPerPod,
    /// How many probes all pods may have.
    MaxPerNode,
    /// How many attempts per second one pod may need.
    MaxRatePerPod,
    /// How many attempts per second all pods may need.
    MaxRatePerNode,
    /// The address at which host-network pods are probed.
    NodeIp,
    /// The shortest period that annotations and HEALTHCHECKs may request.
    MinPeriod,
    /// The longest timeout that they may request.
    MaxTimeout,
    /// The networks that their `host` may be in.
    AllowHosts,
    /// The namespaces whose annotations are used.
    AnnotationNamespaces,
    /// Whether HEALTHCHECKs are used.
    HealthcheckEnabled,
    /// The namespaces in which they are used.
    HealthcheckNamespaces,
    /// Whether clients' own probes are observed.
    ObservedEnabled,
    /// How many attempts of a probe are kept.
    HistoryAttempts,
    /// How much of what each said is kept.
    HistoryOutputBytes,
    /// The file that attempts are written to.
    AttemptsFile,
    /// How much it may take.
    AttemptsMaxBytes,
    /// Whether what clients' commands print is recorded.
    TraceOutput,
    /// The file that calls are written to.
    TraceFile,
    /// How much it may take.
    TraceMaxBytes,
    /// What is replaced in all that is shown or written.
    TraceRedact,
    /// Whether verdicts of failure may act.
    ActEnabled,
    /// Whether what they would do is only reported.
    ActDryRun,
    /// The namespaces whose annotations may ask for an act.
    ActNamespaces,
    /// How many acts the node may have in a minute.
    ActMaxPerMinute,
    /// How many acts may be in progress.
    ActMaxConcurrent,
    /// The grace period of containers that have none of their own.
    ActGracePeriod,
    /// Whether containers that exit by themselves are restarted.
    ActRestartOnExit,
    /// The format of a log line.
    LogFormat,
    LogLevel,
}

impl Key {
    /// All of them, in the order of the file.
    pub const ALL: [Self; 40] = [
        Self::Listen,
        Self::Runtime,
        Self::State,
        Self::ApiListen,
        Self::ApiGroup,
        Self::ApiHttp,
        Self::ApiPage,
        Self::Workers,
        Self::ExecWorkers,
        Self::ExecGrace,
        Self::ExecMode,
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
        Self::HistoryAttempts,
        Self::HistoryOutputBytes,
        Self::AttemptsFile,
        Self::AttemptsMaxBytes,
        Self::TraceOutput,
        Self::TraceFile,
        Self::TraceMaxBytes,
        Self::TraceRedact,
        Self::ActEnabled,
        Self::ActDryRun,
        Self::ActNamespaces,
        Self::ActMaxPerMinute,
        Self::ActMaxConcurrent,
        Self::ActGracePeriod,
        Self::ActRestartOnExit,
        Self::LogFormat,
        Self::LogLevel,
    ];

    /// Its path in the file.
    pub fn path(self) -> &'static str {
        self.names().0
    }

    /// Its environment variable.
    pub fn variable(self) -> &'static str {
        self.names().1
    }

    /// Its command line flag.
    pub fn flag(self) -> &'static str {
        self.names().2
    }

    /// Whether it is a list: a YAML list in the file, items separated by commas elsewhere.
    pub fn is_list(self) -> bool {
        matches!(
            self,
            Self::AllowHosts
                | Self::AnnotationNamespaces
                | Self::HealthcheckNamespaces
                | Self::TraceRedact
                | Self::ActNamespaces
        )
    }

    /// Its default value, as text.
    pub fn default(self) -> &'static str {
        match self {
            Self::Listen => "unix:///run/criprobe/criprobe.sock",
            Self::Runtime => "unix:///run/containerd/containerd.sock",
            Self::State => "/var/lib/criprobe",
            Self::ApiListen => "unix:///run/criprobe/api.sock",
            Self::ApiGroup
            | Self::ApiHttp
            | Self::NodeIp
            | Self::AllowHosts
            | Self::AttemptsFile
            | Self::TraceFile
            | Self::TraceRedact
            | Self::ActNamespaces => "",
            Self::ApiPage => "loopback",
            Self::Workers => "64",
            Self::ExecWorkers => "16",
            Self::ExecGrace => "5s",
            Self::ExecMode => "sync",
            Self::MaxPerPod => "32",
            Self::MaxRatePerPod => "50",
            Self::MaxPerNode | Self::MaxRatePerNode => "5000",
            Self::MinPeriod => "100ms",
            Self::MaxTimeout => "60s",
            Self::AnnotationNamespaces | Self::HealthcheckNamespaces => "*",
            Self::HealthcheckEnabled | Self::TraceOutput | Self::ActEnabled | Self::ActDryRun => "false",
            Self::ObservedEnabled => "true",
            Self::HistoryAttempts => "32",
            Self::HistoryOutputBytes => "256",
            Self::AttemptsMaxBytes => "64MiB",
            Self::TraceMaxBytes => "256MiB",
            Self::ActMaxPerMinute => "6",
            Self::ActMaxConcurrent => "1",
            Self::ActGracePeriod => "10s",
            Self::ActRestartOnExit => "never",
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
            Self::ApiHttp => ("api.http", "CRIPROBE_API_HTTP", "--http"),
            Self::ApiPage => ("api.page", "CRIPROBE_API_PAGE", "--api-page"),
            Self::Workers => ("prober.workers", "CRIPROBE_PROBER_WORKERS", "--prober-workers"),
            Self::ExecWorkers => {
                ("prober.execWorkers", "CRIPROBE_PROBER_EXEC_WORKERS", "--prober-exec-workers")
            }
            Self::ExecGrace => ("prober.execGrace", "CRIPROBE_PROBER_EXEC_GRACE", "--prober-exec-grace"),
            Self::ExecMode => ("prober.execMode", "CRIPROBE_PROBER_EXEC_MODE", "--prober-exec-mode"),
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
            Self::HistoryAttempts => ("history.attempts", "CRIPROBE_HISTORY_ATTEMPTS", "--history-attempts"),
            Self::HistoryOutputBytes => {
                ("history.outputBytes", "CRIPROBE_HISTORY_OUTPUT_BYTES", "--history-output-bytes")
            }
            Self::AttemptsFile => ("attempts.file", "CRIPROBE_ATTEMPTS_FILE", "--attempts-file"),
            Self::AttemptsMaxBytes => {
                ("attempts.maxBytes", "CRIPROBE_ATTEMPTS_MAX_BYTES", "--attempts-max-bytes")
            }
            Self::TraceOutput => ("trace.output", "CRIPROBE_TRACE_OUTPUT", "--trace-output"),
            Self::TraceFile => ("trace.file", "CRIPROBE_TRACE_FILE", "--trace-file"),
            Self::TraceMaxBytes => ("trace.maxBytes", "CRIPROBE_TRACE_MAX_BYTES", "--trace-max-bytes"),
            Self::TraceRedact => ("trace.redact", "CRIPROBE_TRACE_REDACT", "--trace-redact"),
            Self::ActEnabled => ("act.enabled", "CRIPROBE_ACT_ENABLED", "--act-enabled"),
            Self::ActDryRun => ("act.dryRun", "CRIPROBE_ACT_DRY_RUN", "--act-dry-run"),
            Self::ActNamespaces => ("act.namespaces", "CRIPROBE_ACT_NAMESPACES", "--act-namespaces"),
            Self::ActMaxPerMinute => {
                ("act.maxPerMinute", "CRIPROBE_ACT_MAX_PER_MINUTE", "--act-max-per-minute")
            }
            Self::ActMaxConcurrent => {
                ("act.maxConcurrent", "CRIPROBE_ACT_MAX_CONCURRENT", "--act-max-concurrent")
            }
            Self::ActGracePeriod => ("act.gracePeriod", "CRIPROBE_ACT_GRACE_PERIOD", "--act-grace-period"),
            Self::ActRestartOnExit => {
                ("act.restartOnExit", "CRIPROBE_ACT_RESTART_ON_EXIT", "--act-restart-on-exit")
            }
            Self::LogFormat => ("log.format", "CRIPROBE_LOG_FORMAT", "--log-format"),
            Self::LogLevel => ("log.level", "CRIPROBE_LOG_LEVEL", "--log-level"),
        }
    }
}
