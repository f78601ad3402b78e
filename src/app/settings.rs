//! Splits a configuration into the parts of the stages. Asks the kernel only for the address of the default route.

use std::{
    net::{IpAddr, UdpSocket},
    sync::Arc,
};

use crate::{
    act::ActSettings,
    config::{Config, RecordConfig},
    prober::ProberSettings,
    record_file::RecordSettings,
    results::history::HistoryLimits,
    spec::policy::Policy,
};

/// The prober's part; `seed` spreads probes that would come due together.
pub(super) fn prober(config: &Config, seed: u64) -> ProberSettings {
    let prober = &config.prober;
    ProberSettings {
        workers: prober.workers.get(),
        exec_workers: prober.exec_workers.get(),
        exec_grace: prober.exec_grace,
        exec_mode: prober.exec_mode,
        max_per_pod: prober.max_per_pod.get(),
        max_per_node: prober.max_per_node.get(),
        max_rate_per_pod: prober.max_rate_per_pod.get(),
        max_rate_per_node: prober.max_rate_per_node.get(),
        node_ip: prober.node_ip.or_else(default_address),
        limits: config.policy.limits.clone(),
        history: HistoryLimits {
            attempts: config.history.attempts,
            output_bytes: config.history.output_bytes,
        },
        seed,
    }
}

/// The part of the stage that acts.
pub(super) fn act(config: &Config) -> ActSettings {
    let act = &config.act;
    ActSettings {
        is_enabled: config.policy.acting.is_enabled,
        max_per_minute: act.max_per_minute.get(),
        max_concurrent: act.max_concurrent.get(),
        grace: act.grace,
        restart_on_exit: act.restart_on_exit,
    }
}

/// Where attempts are written to.
pub(super) fn attempts(config: &Config) -> RecordSettings {
    record(&config.attempts)
}

/// Where calls are written to.
pub(super) fn trace(config: &Config) -> RecordSettings {
    record(&config.trace.record)
}

fn record(RecordConfig { file, max_bytes }: &RecordConfig) -> RecordSettings {
    RecordSettings { path: file.clone(), max_bytes: *max_bytes }
}

/// The planner's part.
pub(super) fn policy(config: &Config) -> Arc<Policy> {
    Arc::new(config.policy.clone())
}

/// The source address of the default route. Connecting a UDP socket sends nothing; the addresses are those that
/// RFC 5737 and RFC 3849 keep for documentation.
fn default_address() -> Option<IpAddr> {
    let source = |from: &str, to: &str| {
        let socket = UdpSocket::bind(from).ok()?;
        socket.connect(to).ok()?;
        Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_unspecified())
    };
    source("0.0.0.0:0", "192.0.2.1:9").or_else(|| source("[::]:0", "[2001:db8::1]:9"))
}
