//! Checks criprobe configurations, one by one or as the set of a node. Texts in; findings, rules as views, and the
//! operator's policy out.

use std::path::Path;

use super::{CheckInput, findings::Findings, text};
use crate::{
    config::{Config, ConfigErrors, Loaded, Origin, Overrides, ProberConfig, key::Key, raw::Raw, resolve},
    report::view::{
        CheckedDocument, CheckedFile, CheckedProbe, CheckedRule, DefinitionView, DocumentKind,
        HealthcheckView,
    },
    spec::{
        OnFailure, ProbeSpec,
        acting::{ActPolicy, ActRefusal},
        need::{Budget, Need, Resource},
        policy::Policy,
        rule::Rule,
    },
};

/// The configurations that a node is to have.
pub(super) struct Rules {
    /// What they come to; `None` if there are none, or something is wrong with them.
    pub(super) policy: Option<Policy>,
    /// How many probes there may be; by default if there is no policy.
    pub(super) quota: Quota,
    /// Each of them.
    pub(super) files: Vec<CheckedFile>,
}

/// How many probes a node takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quota {
    pub(super) of_pod: Budget,
    /// Of all pods together.
    pub(super) of_node: Budget,
    /// Probes of all pods together: `prober.maxPerNode`.
    per_node: usize,
    /// Attempts per second of all pods together: `prober.maxRatePerNode`.
    rate_per_node: usize,
}

impl Quota {
    /// The warning about a node's exceeded budget.
    pub(super) fn too_many(&self, over: Resource, used: Need) -> String {
        match over {
            Resource::Rate => format!(
                "there are probes for {} attempts per second: a node makes at most {} (prober.maxRatePerNode), and lists \
                 the others as invalid",
                used.per_second(),
                self.rate_per_node
            ),
            Resource::Places | Resource::Bytes => format!(
                "there are {} probes: a node runs at most {} (prober.maxPerNode), and lists the others as invalid",
                used.places, self.per_node
            ),
        }
    }

    fn of(config: &Config) -> Self {
        let ProberConfig { max_per_pod, max_per_node, max_rate_per_pod, max_rate_per_node, .. } =
            config.prober;
        Self {
            of_pod: Budget::of_pod(max_per_pod.get(), max_rate_per_pod.get()),
            of_node: Budget::of_node(max_per_node.get(), max_rate_per_node.get()),
            per_node: max_per_node.get(),
            rate_per_node: max_rate_per_node.get(),
        }
    }
}

/// Checks files that stand together, in their order.
pub(super) fn rules(inputs: &[&CheckInput]) -> Rules {
    if inputs.is_empty() {
        return Rules { policy: None, quota: by_default(), files: Vec::new() };
    }
    let raws: Vec<_> = inputs.iter().copied().map(raw).collect();
    let mut findings: Vec<_> = inputs.iter().map(|_| Findings::default()).collect();
    let mut quota = by_default();
    let (policy, mut rules) = match resolved(&raws) {
        Ok(loaded) => {
            quota = Quota::of(&loaded.config);
            let mut rules: Vec<_> = inputs.iter().map(|_| Vec::new()).collect();
            for (rule, origin) in loaded.config.policy.rules.iter().zip(&loaded.rules) {
                if let Origin::File(file, _) = origin {
                    rules[file.rank].push(checked(rule));
                    acts(rule, origin, &loaded.config.policy.acting, &mut findings[file.rank]);
                }
            }
            (Some(loaded.config.policy), rules)
        }
        Err(errors) => {
            report(&errors, &mut findings);
            (None, inputs.iter().map(|_| Vec::new()).collect())
        }
    };
    let file = |((input, findings), rules): ((&&CheckInput, Findings), &mut Vec<CheckedRule>)| {
        let (taken, rules) = (DocumentKind::Configuration, std::mem::take(rules));
        let document = CheckedDocument { line: 1, taken, name: String::new(), pods: Vec::new(), rules };
        let (file, findings) = (input.name.clone(), findings.into_sorted());
        CheckedFile { file, documents: vec![document], findings }
    };
    let files = inputs.iter().zip(findings).zip(&mut rules).map(file).collect();
    Rules { policy, quota, files }
}

/// Checks a file alone. Its rules, where nothing is wrong with it.
pub(super) fn check(text: &str, name: &str, findings: &mut Findings) -> Vec<CheckedRule> {
    match resolved(&[Raw::read(text, Path::new(name))]) {
        Ok(loaded) => {
            let Policy { rules, acting, .. } = &loaded.config.policy;
            // Another file of the node may enable what this one does not speak of.
            let mut settings = loaded.settings.iter().filter(|setting| setting.origin != Origin::Default);
            if settings.any(|setting| setting.key == Key::ActEnabled) {
                let rules = rules.iter().zip(&loaded.rules);
                rules.for_each(|(rule, origin)| acts(rule, origin, acting, findings));
            }
            rules.iter().map(checked).collect()
        }
        Err(errors) => {
            report(&errors, std::slice::from_mut(findings));
            Vec::new()
        }
    }
}

fn raw(input: &CheckInput) -> Raw {
    let path = Path::new(&input.name);
    match text(&input.bytes) {
        Ok(text) => Raw::read(text, path),
        Err(error) => Raw::malformed(path, &error),
    }
}

/// With the defaults for all that they do not say. Which groups there are is the node's affair.
fn resolved(raws: &[Raw]) -> Result<Loaded, ConfigErrors> {
    resolve::resolve(raws, &Overrides::default(), &|_| Ok(Some(0)))
}

/// The quota of a node without any configuration.
fn by_default() -> Quota {
    Quota::of(&resolved(&[]).expect("the defaults are valid").config)
}

fn report(errors: &ConfigErrors, findings: &mut [Findings]) {
    for error in errors.iter() {
        let (rank, place) = match &error.origin {
            Origin::File(file, place) => (file.rank, *place),
            Origin::Default | Origin::Limited(..) | Origin::Environment(_) | Origin::Flag(_) => (0, None),
        };
        if let Some(findings) = findings.get_mut(rank) {
            findings.error(place, error.reason.clone());
        }
    }
}

/// Warns of what a rule asks for and the operator does not enable.
fn acts(rule: &Rule, origin: &Origin, acting: &ActPolicy, findings: &mut Findings) {
    let Origin::File(_, place) = origin else { return };
    let probes = rule.probes.iter().map(|spec| (spec.kind.as_str(), spec.on_failure));
    let all = probes.chain(rule.healthcheck.act.iter().map(|act| ("healthcheck", act.on_failure)));
    for (what, asked) in all.filter(|(_, asked)| *asked != OnFailure::Report && !acting.is_enabled) {
        let (asked, reason) = (asked.as_str(), ActRefusal::Disabled);
        findings.warning(
            *place,
            format!("rule:{}: {what} asks for {asked}, but only reports: {reason}", rule.name),
        );
    }
}

fn checked(rule: &Rule) -> CheckedRule {
    let source = format!("rule:{}", rule.name);
    CheckedRule {
        rule: rule.name.to_string(),
        enforced: rule.is_enforced,
        probes: rule.probes.iter().map(|spec| probe(spec, &source)).collect(),
        healthcheck: HealthcheckView::of(&rule.healthcheck),
    }
}

fn probe(spec: &ProbeSpec, source: &str) -> CheckedProbe {
    CheckedProbe {
        kind: spec.kind.as_str().to_owned(),
        source: source.to_owned(),
        valid: true,
        reason: String::new(),
        handler: spec.handler.name().to_owned(),
        definition: Some(DefinitionView::of(spec, source)),
        act_refusal: None,
        resolved_port: None,
        line: None,
        column: None,
        shadowed: Vec::new(),
        change: None,
    }
}
