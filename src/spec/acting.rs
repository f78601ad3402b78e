//! Whether a verdict of failure may act on its container: what the definition asks for, its source, its pod and the
//! operator's policy in; the action, or why the probe only reports, out. Pure.

use std::fmt;

use super::{OnFailure, need::Class};
use crate::{glob::Glob, inventory::pod::Pod};

/// What the operator allows. By default nothing acts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActPolicy {
    /// Whether anything may act.
    pub is_enabled: bool,
    /// Whether what would be done is only reported.
    pub is_dry_run: bool,
    /// The namespaces whose pods' annotations may ask for an act; one that fits is enough.
    pub namespaces: Vec<Glob>,
}

/// What a probe's verdict of failure does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acting {
    /// What its definition asks for.
    pub asked: OnFailure,
    /// Why that is not done; none where it is, or where nothing but a report is asked for.
    pub refusal: Option<ActRefusal>,
    /// Whether what would be done is only reported.
    pub is_dry_run: bool,
}

/// Why a probe only reports although its definition asks for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActRefusal {
    /// The operator has not enabled acting.
    Disabled,
    /// An annotation asks for it, in a namespace whose annotations may not.
    Namespace,
    /// A kubelet manages the pod, and restarts its containers itself.
    KubeletsPod,
}

impl ActPolicy {
    /// Under which only a pod itself can be the reason that something does not act.
    pub(crate) fn allowing_all() -> Self {
        Self { is_enabled: true, is_dry_run: false, namespaces: vec![Glob::from("*")] }
    }
}

impl Acting {
    /// What a definition from such a source may do to a container of the pod.
    pub fn of(asked: OnFailure, class: Class, pod: &Pod, policy: &ActPolicy) -> Self {
        let refusal = match asked {
            OnFailure::Report => None,
            _ if !policy.is_enabled => Some(ActRefusal::Disabled),
            _ if class == Class::Author
                && !policy.namespaces.iter().any(|one| one.matches(&pod.namespace)) =>
            {
                Some(ActRefusal::Namespace)
            }
            OnFailure::Restart if pod.is_kubelets => Some(ActRefusal::KubeletsPod),
            OnFailure::Stop | OnFailure::Kill | OnFailure::Restart => None,
        };
        Self {
            asked,
            refusal,
            is_dry_run: policy.is_dry_run && asked != OnFailure::Report && refusal.is_none(),
        }
    }

    /// What is done.
    pub fn effective(self) -> OnFailure {
        if self.refusal.is_some() || self.is_dry_run { OnFailure::Report } else { self.asked }
    }

    /// Why only a report is made where more is asked for.
    pub fn why_not(self) -> Option<&'static str> {
        let is_dry = self.is_dry_run.then_some("what would be done is only reported (act.dryRun)");
        self.refusal.map(ActRefusal::as_str).or(is_dry)
    }
}

impl ActRefusal {
    /// In words, with the setting that decides.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disabled => "acting is not enabled (act.enabled)",
            Self::Namespace => "annotations in this namespace may not act (act.namespaces)",
            Self::KubeletsPod => {
                "a kubelet manages this pod and restarts its containers itself: use onFailure: stop"
            }
        }
    }
}

impl fmt::Display for ActRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a container that exits by itself is restarted, where one of its probes restarts it on failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestartOnExit {
    /// It stays as it is.
    #[default]
    Never,
    /// If its exit code is not 0.
    OnFailure,
    /// Whatever its exit code.
    Always,
}

impl RestartOnExit {
    /// In the order in which they are listed.
    pub const ALL: [Self; 3] = [Self::Never, Self::OnFailure, Self::Always];

    /// `never`, `onFailure`, `always`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::OnFailure => "onFailure",
            Self::Always => "always",
        }
    }

    /// Whether an exit with this code is followed by a restart; an unknown code counts as a failure.
    pub fn restarts(self, exit_code: Option<i32>) -> bool {
        match self {
            Self::Never => false,
            Self::OnFailure => exit_code != Some(0),
            Self::Always => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::fixtures;

    #[test]
    fn an_annotation_acts_only_where_the_operator_says_so_and_a_rule_everywhere_but_against_a_kubelet() {
        let policy = |is_enabled, namespaces: &[&str]| ActPolicy {
            is_enabled,
            is_dry_run: false,
            namespaces: namespaces.iter().map(|one| Glob::from(*one)).collect(),
        };
        let pod = |is_kubelets| Pod { namespace: "shop".into(), is_kubelets, ..fixtures::pod() };
        let (off, no_namespace, shop) = (policy(false, &["*"]), policy(true, &[]), policy(true, &["sh*"]));
        for (asked, class, policy, is_kubelets, refusal) in [
            (OnFailure::Report, Class::Author, &off, false, None),
            (OnFailure::Stop, Class::Rule, &off, false, Some(ActRefusal::Disabled)),
            (OnFailure::Stop, Class::Author, &no_namespace, false, Some(ActRefusal::Namespace)),
            (OnFailure::Kill, Class::Rule, &no_namespace, false, None),
            (OnFailure::Restart, Class::Author, &shop, false, None),
            (OnFailure::Restart, Class::Enforced, &shop, true, Some(ActRefusal::KubeletsPod)),
            (OnFailure::Stop, Class::Author, &shop, true, None),
        ] {
            let acting = Acting::of(asked, class, &pod(is_kubelets), policy);
            assert_eq!(acting.refusal, refusal, "{asked:?} {class:?} {policy:?}");
            let effective = if refusal.is_some() { OnFailure::Report } else { asked };
            assert_eq!(acting.effective(), effective);
            assert_eq!(acting.why_not(), refusal.map(ActRefusal::as_str));
        }
        let dry = ActPolicy { is_dry_run: true, ..shop };
        let acting = Acting::of(OnFailure::Stop, Class::Rule, &pod(true), &dry);
        assert_eq!((acting.is_dry_run, acting.effective()), (true, OnFailure::Report));
        assert_eq!(acting.why_not(), Some("what would be done is only reported (act.dryRun)"));
        assert!(!Acting::of(OnFailure::Report, Class::Rule, &pod(true), &dry).is_dry_run);
    }
}
