//! The differences between two configurations that only take effect after a restart. Pure.

use super::{Config, key::Key};

/// The settings that differ and that a running daemon cannot change, in the order of the file.
pub(crate) fn needing_restart(running: &Config, written: &Config) -> Vec<Key> {
    Key::ALL.into_iter().filter(|key| needs_restart(*key, running, written)).collect()
}

fn needs_restart(key: Key, running: &Config, written: &Config) -> bool {
    match key {
        // Sockets are bound, and folders opened, once.
        Key::Listen => running.listen != written.listen,
        Key::Runtime => running.runtime != written.runtime,
        Key::State => running.state != written.state,
        Key::ApiListen => running.api.listen != written.api.listen,
        Key::ApiGroup => running.api.group != written.api.group,
        // Whatever reads the log expects one format.
        Key::LogFormat => running.log.format != written.log.format,
        Key::Workers
        | Key::ExecWorkers
        | Key::ExecGrace
        | Key::MaxPerPod
        | Key::MaxPerNode
        | Key::MaxRatePerPod
        | Key::MaxRatePerNode
        | Key::NodeIp
        | Key::MinPeriod
        | Key::MaxTimeout
        | Key::AllowHosts
        | Key::AnnotationNamespaces
        | Key::HealthcheckEnabled
        | Key::HealthcheckNamespaces
        | Key::ObservedEnabled
        | Key::ActEnabled
        | Key::ActDryRun
        | Key::ActNamespaces
        | Key::ActMaxPerMinute
        | Key::ActMaxConcurrent
        | Key::ActGracePeriod
        | Key::ActRestartOnExit
        | Key::LogLevel => false,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Overrides, raw::Raw, resolve::resolve};

    fn config(text: &str) -> Config {
        {
            let raw = Raw::read(text, Path::new("config.yaml"));
            resolve(&[raw], &Overrides::default(), &|_| Ok(Some(4))).unwrap().config
        }
    }

    #[test]
    fn sockets_folders_and_the_form_of_the_log_need_a_restart_and_nothing_else_does() {
        for (text, keys) in [
            ("", &[][..]),
            ("listen: unix:///run/criprobe/criprobe.sock", &[]),
            ("listen: /tmp/x", &[Key::Listen]),
            ("runtime: /tmp/x", &[Key::Runtime]),
            ("state: /tmp/x", &[Key::State]),
            ("api: {listen: /tmp/x}", &[Key::ApiListen]),
            ("api: {group: adm}", &[Key::ApiGroup]),
            ("log: {format: json, level: debug}", &[Key::LogFormat]),
            ("log: {format: json}\nlisten: /tmp/x", &[Key::Listen, Key::LogFormat]),
            ("prober: {workers: 3, execWorkers: 2, execGrace: 1s, maxPerPod: 2, maxPerNode: 9}", &[]),
            ("prober: {maxRatePerPod: 2, maxRatePerNode: 9}", &[]),
            ("prober: {nodeIP: 10.0.0.1}\nlog: {level: trace}", &[]),
            (
                "prober: {minPeriod: 2s, maxTimeout: 5s, allowHosts: [10.0.0.0/8]}\nannotations: {namespaces: [shop]}",
                &[],
            ),
            ("healthcheck: {enabled: true, namespaces: [shop]}\nobserved: {enabled: false}", &[]),
            (
                "act: {enabled: true, dryRun: true, namespaces: [shop], maxPerMinute: 1, maxConcurrent: 2}",
                &[],
            ),
            ("act: {gracePeriod: 5s, restartOnExit: always}", &[]),
        ] {
            assert_eq!(needing_restart(&config(""), &config(text)), keys, "{text}");
        }
    }
}
