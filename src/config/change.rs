//! The differences between two configurations: what took effect, in short, and what only does after a restart. Pure.

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

use super::{Config, Loaded, key::Key};
use crate::spec::rule::Rule;

/// 8 names of what changed are listed, of settings and of rules each; the others are counted.
const LISTED: usize = 8;

/// What differs between two configurations in effect, by name: `changed prober.workers; added rule web`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    settings: Vec<&'static str>,
    added: Vec<String>,
    removed: Vec<String>,
    edited: Vec<String>,
    /// Whether rules that are in both have another order, which decides which of them comes first.
    are_rules_reordered: bool,
}

impl Changes {
    /// From one to the other.
    pub(crate) fn between(from: &Loaded, to: &Loaded) -> Self {
        let before: HashMap<_, _> =
            from.settings.iter().map(|setting| (setting.key, &setting.texts)).collect();
        let settings = to.settings.iter().filter(|setting| before.get(&setting.key) != Some(&&setting.texts));
        let (old, new) = (&from.config.policy.rules, &to.config.policy.rules);
        let by_name = |rules: &'_ [Rule]| rules.iter().map(|rule| rule.name.clone()).collect::<HashSet<_>>();
        let (known, kept) = (by_name(old), by_name(new));
        let known_rules: HashMap<_, _> = old.iter().map(|rule| (&rule.name, rule)).collect();
        let names =
            |rules: &mut dyn Iterator<Item = &Rule>| rules.map(|rule| rule.name.to_string()).collect();
        let order = |rules: &'_ [Rule], others: &HashSet<_>| {
            let names = rules.iter().map(|rule| rule.name.clone());
            names.filter(|name| others.contains(name)).collect::<Vec<_>>()
        };
        Self {
            settings: settings.map(|setting| setting.key.path()).collect(),
            added: names(&mut new.iter().filter(|rule| !known.contains(&rule.name))),
            removed: names(&mut old.iter().filter(|rule| !kept.contains(&rule.name))),
            edited: names(
                &mut new.iter().filter(|rule| known_rules.get(&rule.name).is_some_and(|known| known != rule)),
            ),
            are_rules_reordered: order(old, &kept) != order(new, &known),
        }
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings: Vec<_> = self.settings.iter().map(|&name| name.to_owned()).collect();
        let groups = [
            ("changed", &settings),
            ("added rule", &self.added),
            ("removed rule", &self.removed),
            ("changed rule", &self.edited),
        ];
        let parts = groups.into_iter().filter(|(_, names)| !names.is_empty());
        let mut parts: Vec<_> = parts.map(|(what, names)| format!("{what} {}", listed(names))).collect();
        if self.are_rules_reordered {
            parts.push("changed the order of rules".to_owned());
        }
        if parts.is_empty() {
            f.write_str("nothing in effect changed")
        } else {
            f.write_str(&parts.join("; "))
        }
    }
}

fn listed(names: &[String]) -> String {
    let shown = names[..names.len().min(LISTED)].join(", ");
    match names.len().saturating_sub(LISTED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

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
        Key::ApiHttp => running.api.http != written.api.http,
        Key::ApiPage => running.api.page != written.api.page,
        // Whatever reads the log expects one format.
        Key::LogFormat => running.log.format != written.log.format,
        Key::Workers
        | Key::ExecWorkers
        | Key::ExecGrace
        | Key::ExecMode
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
        | Key::HistoryAttempts
        | Key::HistoryOutputBytes
        | Key::AttemptsFile
        | Key::AttemptsMaxBytes
        | Key::TraceOutput
        | Key::TraceFile
        | Key::TraceMaxBytes
        | Key::TraceRedact
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

    fn loaded(text: &str) -> Loaded {
        let raw = Raw::read(text, Path::new("config.yaml"));
        resolve(&[raw], &Overrides::default(), &|_| Ok(Some(4))).unwrap()
    }

    fn config(text: &str) -> Config {
        loaded(text).config
    }

    #[test]
    fn what_changed_is_named_in_short() {
        let rule = |name: &str, port: u32| {
            format!(
                "  - {{name: {name}, match: {{namespace: shop}}, liveness: {{tcpSocket: {{port: {port}}}}}}}\n"
            )
        };
        let rules = |rules: &[(&str, u32)]| {
            let all: String = rules.iter().map(|(name, port)| rule(name, *port)).collect();
            format!("rules:\n{all}")
        };
        let many: Vec<_> = (0..10).map(|number| format!("r{number}")).collect();
        let many: Vec<_> = many.iter().map(|name| (name.as_str(), 1)).collect();
        for (from, to, shown) in [
            (
                String::new(),
                "listen: unix:///run/criprobe/criprobe.sock".to_owned(),
                "nothing in effect changed",
            ),
            (
                "prober: {workers: 40}".to_owned(),
                "prober: {workers: 30}\nlog: {level: debug}\nannotations: {namespaces: [shop]}".to_owned(),
                "changed prober.workers, annotations.namespaces, log.level",
            ),
            (
                rules(&[("a", 1), ("b", 1), ("c", 1)]),
                rules(&[("b", 2), ("c", 1), ("d", 1)]) + "log: {level: debug}",
                "changed log.level; added rule d; removed rule a; changed rule b",
            ),
            (rules(&[("a", 1), ("b", 1)]), rules(&[("b", 1), ("a", 1)]), "changed the order of rules"),
            (String::new(), rules(&many), "added rule r0, r1, r2, r3, r4, r5, r6, r7 and 2 more"),
        ] {
            assert_eq!(Changes::between(&loaded(&from), &loaded(&to)).to_string(), shown, "{from} -> {to}");
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
            (r#"api: {http: ":9090", page: always}"#, &[Key::ApiHttp, Key::ApiPage]),
            ("log: {format: json, level: debug}", &[Key::LogFormat]),
            ("log: {format: json}\nlisten: /tmp/x", &[Key::Listen, Key::LogFormat]),
            ("prober: {workers: 3, execWorkers: 2, execGrace: 1s, maxPerPod: 2, maxPerNode: 9}", &[]),
            ("prober: {execMode: session, maxRatePerPod: 2, maxRatePerNode: 9}", &[]),
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
            ("history: {attempts: 9, outputBytes: 0}\nattempts: {file: /var/x, maxBytes: 1MiB}", &[]),
        ] {
            assert_eq!(needing_restart(&config(""), &config(text)), keys, "{text}");
        }
    }
}
