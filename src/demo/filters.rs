//! Applies CRI filters to sandboxes and containers: a filter in, yes or no out. All criteria of a filter must match;
//! empty ones match everything. Pure.

use std::collections::HashMap;

use super::{
    ids,
    state::{Container, Sandbox, State},
};
use crate::proto::cri;

/// The sandboxes that a filter lets pass, oldest first.
pub(super) fn sandboxes<'a>(state: &'a State, filter: &cri::PodSandboxFilter) -> Vec<&'a Sandbox> {
    let id = Wanted::of(&filter.id, || ids::resolve(&state.sandboxes, &filter.id));
    let mut found: Vec<_> = state
        .sandboxes
        .values()
        .filter(|sandbox| {
            id.holds(&sandbox.id)
                && filter.state.is_none_or(|wanted| wanted.state() == sandbox.cri_state())
                && has_labels(&sandbox.config.labels, &filter.label_selector)
        })
        .collect();
    found.sort_by_key(|sandbox| sandbox.created_at);
    found
}

/// The containers that a filter lets pass, oldest first.
pub(super) fn containers<'a>(state: &'a State, filter: &cri::ContainerFilter) -> Vec<&'a Container> {
    let id = Wanted::of(&filter.id, || ids::resolve(&state.containers, &filter.id));
    let sandbox =
        Wanted::of(&filter.pod_sandbox_id, || ids::resolve(&state.sandboxes, &filter.pod_sandbox_id));
    let mut found: Vec<_> = state
        .containers
        .values()
        .filter(|container| {
            id.holds(&container.id)
                && sandbox.holds(&container.sandbox)
                && filter.state.is_none_or(|wanted| wanted.state() == container.cri_state())
                && has_labels(&container.config.labels, &filter.label_selector)
        })
        .collect();
    found.sort_by_key(|container| container.created_at);
    found
}

/// Which ids a filter's id, or a unique beginning of one, lets pass.
enum Wanted<I> {
    Any,
    One(I),
    None,
}

impl<I: PartialEq> Wanted<I> {
    fn of(text: &str, resolve: impl FnOnce() -> Option<I>) -> Self {
        match text.is_empty() {
            true => Self::Any,
            false => resolve().map_or(Self::None, Self::One),
        }
    }

    fn holds(&self, id: &I) -> bool {
        match self {
            Self::Any => true,
            Self::One(wanted) => wanted == id,
            Self::None => false,
        }
    }
}

fn has_labels(labels: &HashMap<String, String>, selector: &HashMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::state::Phase;
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn state() -> State {
        let mut state = State::default();
        for (at, (id, is_ready, app)) in
            [("pod-aa", true, "web"), ("pod-ab", false, "web"), ("pod-b", true, "db")].into_iter().enumerate()
        {
            let config = cri::PodSandboxConfig {
                labels: labels(&[("app", app), ("tier", "x")]),
                ..Default::default()
            };
            let sandbox = Sandbox {
                id: id.into(),
                config,
                runtime_handler: String::new(),
                created_at: -(at as i64),
                is_ready,
            };
            state.sandboxes.insert(sandbox.id.clone(), sandbox);
            let container = Container {
                id: format!("{id}-c").into(),
                sandbox: id.into(),
                config: cri::ContainerConfig { labels: labels(&[("app", app)]), ..Default::default() },
                created_at: at as i64,
                folder: PathBuf::new(),
                log_path: PathBuf::new(),
                phase: Phase::Created,
            };
            state.containers.insert(container.id.clone(), container);
        }
        state
    }

    #[test]
    fn sandboxes_pass_when_all_that_is_named_holds() {
        use cri::PodSandboxState::{SandboxNotready, SandboxReady};
        let in_state = |state: cri::PodSandboxState| Some(cri::PodSandboxStateValue { state: state.into() });
        let filter = |id: &str, state, selector: &[(&str, &str)]| cri::PodSandboxFilter {
            id: id.to_owned(),
            state,
            label_selector: labels(selector),
        };
        let cases = [
            ("nothing named, youngest id last", filter("", None, &[]), vec!["pod-b", "pod-ab", "pod-aa"]),
            ("an id", filter("pod-aa", None, &[]), vec!["pod-aa"]),
            ("a unique beginning", filter("pod-b", None, &[]), vec!["pod-b"]),
            ("an ambiguous beginning", filter("pod-a", None, &[]), vec![]),
            ("ready", filter("", in_state(SandboxReady), &[]), vec!["pod-b", "pod-aa"]),
            ("not ready", filter("", in_state(SandboxNotready), &[]), vec!["pod-ab"]),
            ("a label", filter("", None, &[("app", "web")]), vec!["pod-ab", "pod-aa"]),
            ("two labels, one wrong", filter("", None, &[("app", "web"), ("tier", "y")]), vec![]),
            ("id and state", filter("pod-ab", in_state(SandboxReady), &[]), vec![]),
        ];
        let state = state();
        for (name, filter, expected) in cases {
            let found: Vec<_> = sandboxes(&state, &filter).into_iter().map(|one| one.id.as_str()).collect();
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn containers_pass_when_all_that_is_named_holds() {
        use cri::ContainerState::{ContainerCreated, ContainerRunning};
        let in_state = |state: cri::ContainerState| Some(cri::ContainerStateValue { state: state.into() });
        let filter = |id: &str, sandbox: &str, state, selector: &[(&str, &str)]| cri::ContainerFilter {
            id: id.to_owned(),
            pod_sandbox_id: sandbox.to_owned(),
            state,
            label_selector: labels(selector),
        };
        let cases = [
            ("nothing named", filter("", "", None, &[]), vec!["pod-aa-c", "pod-ab-c", "pod-b-c"]),
            ("a unique beginning", filter("pod-b", "", None, &[]), vec!["pod-b-c"]),
            ("a sandbox", filter("", "pod-aa", None, &[]), vec!["pod-aa-c"]),
            ("a beginning of a sandbox", filter("", "pod-b", None, &[]), vec!["pod-b-c"]),
            ("an unknown sandbox", filter("", "nope", None, &[]), vec![]),
            ("created", filter("", "", in_state(ContainerCreated), &[("app", "db")]), vec!["pod-b-c"]),
            ("running", filter("", "", in_state(ContainerRunning), &[]), vec![]),
        ];
        let state = state();
        for (name, filter, expected) in cases {
            let found: Vec<_> = containers(&state, &filter).into_iter().map(|one| one.id.as_str()).collect();
            assert_eq!(found, expected, "{name}");
        }
    }
}
