//! The demo scenario as data: four pods, what runs in them, the probes in their annotations, and the rule for the one
//! that is restarted. Pure.
//!
//! The commands are POSIX shell with `sleep`, `rm` and `cat`, and name their files relative to the working directory:
//! on the embedded runtime that is the container's own folder, in a real container its root.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::{ids::ProbeKind, proto::cri};

/// The namespace of all the pods.
pub const NAMESPACE: &str = "demo";

/// The name of each pod's one container.
const CONTAINER: &str = "app";

/// The label of the pod that the rule matches; its value is the run's id, so that no pod of others has it.
const RUN_LABEL: &str = "criprobe.dev/demo";

/// The port on which `steady` listens where it can.
const PORT: u16 = 8080;

/// What the containers find around them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Surroundings {
    /// The machine itself with whatever it has: a shell and the coreutils can be counted on, a TCP listener cannot.
    Embedded,
    /// A container of its own with busybox, which has an HTTP server.
    Busybox,
}

/// One pod of the scenario.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DemoPod {
    /// Its name.
    pub(super) name: &'static str,
    /// Whether it is restarted when it fails. Then it has no kubelet, and its probe is the rule's.
    pub(super) is_restarted: bool,
    script: String,
    probes: Vec<(ProbeKind, Value)>,
}

/// The scenario. `steady` is well. `moody` turns bad 8 s after its start and comes back 8 s later, over and over:
/// readiness follows at once, liveness after three attempts. `slow-start` takes 6 s, in which its liveness waits for its
/// startup probe. `fragile` turns bad 8 s after its start and stays so until it is restarted: the first time at once, then
/// with the back-off.
pub(super) fn pods(surroundings: Surroundings) -> Vec<DemoPod> {
    let (listen, is_listening) = match surroundings {
        Surroundings::Embedded => (String::new(), exec(&["test", "-s", "healthy"])),
        Surroundings::Busybox => {
            let listen = format!("mkdir -p www; httpd -f -p {PORT} -h www &\n");
            (listen, json!({ "tcpSocket": { "port": PORT } }))
        }
    };
    vec![
        DemoPod {
            name: "steady",
            is_restarted: false,
            script: script(&format!("{listen}echo fine > healthy\n{FOREVER}")),
            probes: vec![
                (ProbeKind::Readiness, every_second(is_listening, 3)),
                (ProbeKind::Liveness, every_second(exec(&["cat", "healthy"]), 3)),
            ],
        },
        DemoPod {
            name: "moody",
            is_restarted: false,
            script: script(
                "while :; do\n  echo fine > healthy; sleep 8 & wait $!\n  rm -f healthy; sleep 8 & wait $!\ndone\n",
            ),
            probes: vec![
                (ProbeKind::Readiness, every_second(exec(&["cat", "healthy"]), 1)),
                (ProbeKind::Liveness, every_second(exec(&["cat", "healthy"]), 3)),
            ],
        },
        DemoPod {
            name: "slow-start",
            is_restarted: false,
            script: script(&format!("sleep 6 & wait $!\necho up > started\n{FOREVER}")),
            probes: vec![
                (ProbeKind::Startup, every_second(exec(&["cat", "started"]), 30)),
                (ProbeKind::Liveness, every_second(exec(&["cat", "started"]), 3)),
            ],
        },
        DemoPod {
            name: "fragile",
            is_restarted: true,
            script: script(&format!("echo fine > healthy; sleep 8 & wait $!\nrm -f healthy\n{FOREVER}")),
            probes: Vec::new(),
        },
    ]
}

/// The configuration with the rule by which `fragile` is restarted. An annotation would do, but the operator had to let
/// those of the whole namespace act, and on a runtime that others use it may be theirs too.
pub fn configuration(run_id: &str) -> String {
    let mut liveness = every_second(exec(&["cat", "healthy"]), 3);
    liveness["onFailure"] = "restart".into();
    let pod = json!({ "namespace": NAMESPACE, "labels": { RUN_LABEL: run_id } });
    json!({ "rules": [{ "name": "demo", "match": pod, "liveness": liveness }] }).to_string()
}

impl DemoPod {
    /// Its sandbox, with the labels that the kubelet sets; without that of the uid where there is to be no kubelet.
    pub(super) fn sandbox_config(&self, run_id: &str) -> cri::PodSandboxConfig {
        cri::PodSandboxConfig {
            metadata: Some(cri::PodSandboxMetadata {
                name: self.name.to_owned(),
                uid: self.uid(run_id),
                namespace: NAMESPACE.to_owned(),
                attempt: 0,
            }),
            hostname: self.name.to_owned(),
            labels: self.labels(run_id),
            annotations: self.annotations(),
            linux: Some(cri::LinuxPodSandboxConfig::default()),
            ..Default::default()
        }
    }

    /// Its container.
    pub(super) fn container_config(&self, image: &str, run_id: &str) -> cri::ContainerConfig {
        let mut labels = self.labels(run_id);
        labels.insert("io.kubernetes.container.name".to_owned(), CONTAINER.to_owned());
        cri::ContainerConfig {
            metadata: Some(cri::ContainerMetadata { name: CONTAINER.to_owned(), attempt: 0 }),
            image: Some(cri::ImageSpec { image: image.to_owned(), ..Default::default() }),
            command: vec!["sh".to_owned(), "-c".to_owned(), self.script.clone()],
            labels,
            ..Default::default()
        }
    }

    pub(super) fn uid(&self, run_id: &str) -> String {
        format!("{run_id}-{}", self.name)
    }

    fn labels(&self, run_id: &str) -> HashMap<String, String> {
        let label = |key: &str, value: &str| (format!("io.kubernetes.pod.{key}"), value.to_owned());
        let whose = match self.is_restarted {
            true => (RUN_LABEL.to_owned(), run_id.to_owned()),
            false => label("uid", &self.uid(run_id)),
        };
        [label("name", self.name), label("namespace", NAMESPACE), whose].into()
    }

    fn annotations(&self) -> HashMap<String, String> {
        let annotation = |(kind, probe): &(ProbeKind, Value)| {
            (format!("{kind}.criprobe.dev/{CONTAINER}"), probe.to_string())
        };
        self.probes.iter().map(annotation).collect()
    }
}

/// Waits for ever. As every wait here it sleeps beside the shell, which so can end the moment it is asked to.
const FOREVER: &str = "while :; do sleep 3600 & wait $!; done\n";

fn script(body: &str) -> String {
    format!("trap 'exit 0' TERM\n{body}")
}

fn exec(command: &[&str]) -> Value {
    json!({ "exec": { "command": command } })
}

fn every_second(mut probe: Value, failure_threshold: u32) -> Value {
    probe["periodSeconds"] = 1.into();
    probe["failureThreshold"] = failure_threshold.into();
    probe
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order of keys says nothing.
    fn parsed(json: &str) -> serde_json::Value {
        serde_json::from_str(json).unwrap()
    }

    fn annotations(surroundings: Surroundings) -> Vec<(String, serde_json::Value)> {
        let mut all: Vec<_> = pods(surroundings)
            .iter()
            .flat_map(|pod| {
                let annotations = pod.annotations().into_iter();
                annotations.map(|(key, value)| (format!("{} {key}", pod.name), parsed(&value)))
            })
            .collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    #[test]
    fn the_probes_are_kubernetes_probes_in_json() {
        let cat_healthy = r#"{"exec":{"command":["cat","healthy"]},"failureThreshold":3,"periodSeconds":1}"#;
        let cat_started = r#"{"exec":{"command":["cat","started"]},"failureThreshold":3,"periodSeconds":1}"#;
        let expected = [
            ("moody liveness.criprobe.dev/app", cat_healthy),
            (
                "moody readiness.criprobe.dev/app",
                r#"{"exec":{"command":["cat","healthy"]},"failureThreshold":1,"periodSeconds":1}"#,
            ),
            ("slow-start liveness.criprobe.dev/app", cat_started),
            (
                "slow-start startup.criprobe.dev/app",
                r#"{"exec":{"command":["cat","started"]},"failureThreshold":30,"periodSeconds":1}"#,
            ),
            ("steady liveness.criprobe.dev/app", cat_healthy),
            (
                "steady readiness.criprobe.dev/app",
                r#"{"exec":{"command":["test","-s","healthy"]},"failureThreshold":3,"periodSeconds":1}"#,
            ),
        ];
        let expected = expected.map(|(key, value)| (key.to_owned(), parsed(value)));
        assert_eq!(annotations(Surroundings::Embedded), expected);
    }

    #[test]
    fn busybox_listens_and_is_probed_over_tcp() {
        let steady = pods(Surroundings::Busybox).remove(0);
        let readiness = &steady.annotations()["readiness.criprobe.dev/app"];
        let expected = r#"{"failureThreshold":3,"periodSeconds":1,"tcpSocket":{"port":8080}}"#;
        assert_eq!(parsed(readiness), parsed(expected));
        assert!(steady.script.contains("httpd -f -p 8080"));
    }

    #[test]
    fn runs_share_no_uids() {
        let pod = &pods(Surroundings::Embedded)[0];
        let uid = |run_id| pod.sandbox_config(run_id).metadata.unwrap().uid;
        assert_ne!(uid("one"), uid("two"));
    }

    #[test]
    fn the_one_that_is_restarted_has_no_kubelet_and_only_it_has_the_label_of_the_rule() {
        for pod in pods(Surroundings::Embedded) {
            let (sandbox, container) = (pod.sandbox_config("7"), pod.container_config("any", "7"));
            for labels in [sandbox.labels, container.labels] {
                assert_eq!(labels.contains_key("io.kubernetes.pod.uid"), !pod.is_restarted, "{}", pod.name);
                assert_eq!(
                    labels.get(RUN_LABEL).is_some_and(|run| run == "7"),
                    pod.is_restarted,
                    "{}",
                    pod.name
                );
            }
        }
        let rule = concat!(
            r#"{"rules":[{"liveness":{"exec":{"command":["cat","healthy"]},"failureThreshold":3,"#,
            r#""onFailure":"restart","periodSeconds":1},"#,
            r#""match":{"labels":{"criprobe.dev/demo":"7"},"namespace":"demo"},"name":"demo"}]}"#,
        );
        assert_eq!(parsed(&configuration("7")), parsed(rule));
    }
}
