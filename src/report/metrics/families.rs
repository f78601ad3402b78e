//! All metrics that exist: their names, types, labels and meaning. docs/metrics.md shows the same table, and a test
//! compares them.

use crate::results::durations::{BOUNDS, OF_KUBELET};

/// A metric with all its series.
#[derive(Debug)]
pub(crate) struct Family {
    /// As it is queried: counters end with `_total`, facts with `_info`; histograms have their own suffixes after it.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) labels: &'static [&'static str],
    /// A sentence without a full stop, quotes or line breaks.
    pub(crate) help: &'static str,
}

impl Family {
    /// Its name without the suffix of its type.
    pub(crate) fn base(&self) -> &'static str {
        let bare = |suffix| self.name.strip_suffix(suffix);
        bare("_total").or_else(|| bare("_info")).unwrap_or(self.name)
    }
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    /// Always 1; its labels are what it says.
    Info,
    /// With the bounds from the first of these to the one before the second.
    Histogram((usize, usize)),
}

/// All bounds.
const ALL_BOUNDS: Kind = Kind::Histogram((0, BOUNDS.len()));

macro_rules! families {
    ($($id:ident = $kind:expr, $name:literal, [$($label:literal),*], $help:literal;)*) => {
        $(pub(crate) const $id: Family = Family { name: $name, kind: $kind, labels: &[$($label),*], help: $help };)*

        /// All of them.
        #[cfg(test)]
        pub(crate) const ALL: &[Family] = &[$($id),*];
    };
}

families! {
    PROBER_PROBES = Kind::Counter, "prober_probe_total",
        ["probe_type", "result", "container", "pod", "namespace", "pod_uid"],
        "Attempts of probes that ended with a result, by result: successful or failed; as the kubelet counts its own";
    PROBER_DURATION = Kind::Histogram(OF_KUBELET), "prober_probe_duration_seconds",
        ["probe_type", "container", "pod", "namespace"],
        "How long successful attempts of probes took, tries together; as the kubelet measures its own";

    PROBE_STATE = Kind::Gauge, "criprobe_probe_state",
        ["namespace", "pod", "pod_uid", "container", "type", "source", "state", "phase"],
        "1 for the current verdict and phase of each probe; observed probes have the source observed";
    PROBE_SERIES_OMITTED = Kind::Gauge, "criprobe_probe_series_omitted", [],
        "Probes without series of their own, because there are too many; they are in criprobe_probes";
    PROBES = Kind::Gauge, "criprobe_probes", ["state", "phase"],
        "Probes that criprobe runs, by verdict and phase";
    PROBES_LATE = Kind::Gauge, "criprobe_probes_late", [],
        "Probes that have waited for a place for more than two of their periods";
    ATTEMPT_DURATION = ALL_BOUNDS, "criprobe_probe_attempt_duration_seconds", ["type", "handler", "result"],
        "How long attempts of all probes took, by type, handler and result: success, warning, failure or error";
    PROBE_LAG = ALL_BOUNDS, "criprobe_probe_lag_seconds", ["type"],
        "How long after they were due attempts began";
    EXEC_ATTEMPTS = Kind::Counter, "criprobe_exec_attempts_total", ["route", "reason"],
        "Attempts of exec probes by route, session or sync, and by the reason why a session that was asked for did not serve \
         them";
    EXEC_SESSIONS = Kind::Gauge, "criprobe_exec_sessions", [], "Exec sessions that are open";
    EXEC_SESSIONS_OPENED = Kind::Counter, "criprobe_exec_sessions_opened_total", [],
        "Exec sessions that were opened";
    EXEC_SESSIONS_FAILED = Kind::Counter, "criprobe_exec_sessions_failed_total", [],
        "Exec sessions that could not be opened";
    EXEC_SESSIONS_ENDED = Kind::Counter, "criprobe_exec_sessions_ended_total", [],
        "Exec sessions that ended although they were in use or waited for commands";
    EXEC_SESSIONS_CLOSED = Kind::Counter, "criprobe_exec_sessions_closed_total", [],
        "Exec sessions that criprobe closed because they were idle, or because their container was being stopped";
    OBSERVED_PROBES = Kind::Gauge, "criprobe_observed_probes", [],
        "Exec probes that clients such as the kubelet run themselves";
    OBSERVED_SILENT = Kind::Gauge, "criprobe_observed_probe_silent",
        ["namespace", "pod", "pod_uid", "container", "type", "client"],
        "1 for each observed probe that ended while its container runs and is not being stopped";

    CALLS = Kind::Counter, "criprobe_calls_total", ["method", "code"],
        "Calls of clients that ended, by method and code: that of gRPC, or cancelled, reset or lost";
    CALL_DURATION = ALL_BOUNDS, "criprobe_call_duration_seconds", ["method"],
        "How long calls of clients took, by method";
    EXEC_PHASE = ALL_BOUNDS, "criprobe_exec_phase_seconds", ["caller", "phase"],
        "Where the time of commands in containers went, by caller (client or probe) and phase: queue, start, run or drain; of \
         those for which containerd reported it";
    CALLS_IN_FLIGHT = Kind::Gauge, "criprobe_calls_in_flight", [],
        "Calls of clients that have not ended";
    RELAYED_BYTES = Kind::Counter, "criprobe_relayed_bytes_total", ["direction"],
        "Bytes relayed to the runtime and to clients";
    CONNECTIONS = Kind::Counter, "criprobe_connections_total", [],
        "Connections of clients that were accepted";
    CONNECTIONS_OPEN = Kind::Gauge, "criprobe_connections_open", [],
        "Connections of clients that are open";
    CONNECTIONS_BLIND = Kind::Gauge, "criprobe_connections_blind", [],
        "Open connections that are relayed and cannot be decoded";
    CONNECTIONS_BLINDED = Kind::Counter, "criprobe_connections_blinded_total", [],
        "Connections that went blind while calls were open";
    ACCEPT_PAUSES = Kind::Counter, "criprobe_accept_pauses_total", [],
        "Times that new clients had to wait because there were too many or their share of file descriptors was used up";
    ACCEPTING_PAUSED = Kind::Gauge, "criprobe_accepting_paused", [],
        "1 while new clients have to wait";
    GAPS = Kind::Counter, "criprobe_gaps_total", [],
        "Times that criprobe did not see everything that happened, and read the lists of the runtime again";
    OBSERVATIONS_DROPPED = Kind::Counter, "criprobe_observations_dropped_total", [],
        "Decoded calls that were dropped because the queue to the inventory was full";

    PODS = Kind::Gauge, "criprobe_pods", [], "Pods on the node";
    CONTAINERS = Kind::Gauge, "criprobe_containers", [], "Containers on the node";
    CONTAINERS_RUNNING = Kind::Gauge, "criprobe_containers_running", [], "Containers that run";
    LOOKUPS_WAITING = Kind::Gauge, "criprobe_lookups_waiting", ["what"],
        "Containers and pods whose status, and images whose configuration, the runtime has not reported yet";
    RESYNCS = Kind::Counter, "criprobe_resyncs_total", [], "Times that the lists of the runtime were applied";
    LAST_RESYNC = Kind::Gauge, "criprobe_last_resync_timestamp_seconds", [],
        "When the lists of the runtime were last applied";
    RUNTIME_UP = Kind::Gauge, "criprobe_runtime_up", [], "1 while the runtime answers, 0 while it is away";
    RUNTIME_INFO = Kind::Info, "criprobe_runtime_info", ["name", "version", "event_source"],
        "The runtime as it last described itself, and where its events come from";

    CONFIG_SUCCESSFUL = Kind::Gauge, "criprobe_config_last_reload_successful", [],
        "1 if the configuration files are in effect, 0 if they are wrong and the previous configuration stays in effect";
    CONFIG_LOADED = Kind::Gauge, "criprobe_config_last_reload_success_timestamp_seconds", [],
        "When the configuration was last read without an error";
    CONFIG_RELOADS = Kind::Counter, "criprobe_config_reloads_total", ["result"],
        "Reloads of the configuration, by result: success or failure";
    ACTS = Kind::Counter, "criprobe_acts_total", ["action", "result"],
        "Acts on containers that ended, by action and result: done, failed, given_up or dry_run";
    ACTS_WITHHELD = Kind::Gauge, "criprobe_acts_withheld", [], "Acts that are asked for and withheld now";

    LOG_LINES_DROPPED = Kind::Counter, "criprobe_log_lines_dropped_total", [],
        "Log lines that were dropped because standard error was not read fast enough";
    RECORDS_WRITTEN = Kind::Counter, "criprobe_records_written_total", ["file"],
        "Lines written to the files that an operator names, by file: attempts or trace";
    RECORDS_DROPPED = Kind::Counter, "criprobe_records_dropped_total", ["file"],
        "Records that are missing in these files because the disk was too slow or in trouble";
    RECORD_FILE_OK = Kind::Gauge, "criprobe_record_file_ok", ["file"],
        "1 if the file can be written to";
    STATE_FILE_OK = Kind::Gauge, "criprobe_state_file_ok", [],
        "1 if the state file can be read and written";
    STAGE_ANSWERS = Kind::Gauge, "criprobe_stage_answers", ["stage"],
        "0 if the stage did not answer in time and its metrics are missing, otherwise 1";
    STAGE_RESTARTS = Kind::Counter, "criprobe_stage_restarts_total", ["stage"],
        "Times that a stage panicked and was restarted, by stage";
    DRAINING = Kind::Gauge, "criprobe_draining", [], "1 while the daemon ends";
    BUILD = Kind::Info, "criprobe_build_info", ["version"], "The version of criprobe";

    CPU = Kind::Counter, "process_cpu_seconds_total", [], "CPU time that criprobe has used";
    RESIDENT = Kind::Gauge, "process_resident_memory_bytes", [], "Memory of criprobe that is in RAM";
    VIRTUAL = Kind::Gauge, "process_virtual_memory_bytes", [], "Virtual memory of criprobe";
    THREADS = Kind::Gauge, "process_threads", [], "Threads of criprobe";
    OPEN_FDS = Kind::Gauge, "process_open_fds", [], "File descriptors that criprobe has open";
    MAX_FDS = Kind::Gauge, "process_max_fds", [], "File descriptors that criprobe may have open; missing if unlimited";
    START_TIME = Kind::Gauge, "process_start_time_seconds", [], "When criprobe was started";
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fmt::Write as _};

    use super::*;

    /// The names that samples of a family have, and in OpenMetrics the family itself.
    fn names(family: &Family) -> Vec<String> {
        let base = family.base();
        match family.kind {
            Kind::Histogram(_) => {
                ["", "_bucket", "_sum", "_count"].map(|suffix| format!("{base}{suffix}")).to_vec()
            }
            Kind::Counter => ["", "_total", "_created"].map(|suffix| format!("{base}{suffix}")).to_vec(),
            Kind::Info => ["", "_info"].map(|suffix| format!("{base}{suffix}")).to_vec(),
            Kind::Gauge => vec![base.to_owned()],
        }
    }

    #[test]
    fn no_two_families_share_a_name_in_any_format_and_each_is_named_by_its_type() {
        let all: Vec<_> = ALL.iter().flat_map(names).collect();
        let distinct: BTreeSet<_> = all.iter().collect();
        assert_eq!(all.len(), distinct.len(), "{all:?}");
        for Family { name, kind, help, .. } in ALL {
            assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
            assert_eq!(name.ends_with("_info"), *kind == Kind::Info, "{name}");
            assert!(!help.contains(['\\', '"', '\n']) && !help.ends_with('.'), "{name}: {help}");
        }
    }

    #[test]
    fn the_documentation_has_the_same_table() {
        let mut table = String::new();
        for Family { name, kind, labels, help } in ALL {
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Info => "info",
                Kind::Histogram(_) => "histogram",
            };
            let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
            writeln!(table, "| `{name}` | {kind} | {} | {help} |", labels.join(", ")).unwrap();
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let rows = |text: &str| -> Vec<String> {
            let rows =
                text.lines().filter(|line| line.starts_with("| `criprobe_") || line.starts_with("| `pro"));
            rows.map(str::to_owned).collect()
        };
        assert!(rows(&text) == rows(&table), "the rows of docs/metrics.md are to be:\n{table}");
    }
}
