//! Decides which probes one container has: its facts, its image's HEALTHCHECK and the operator's policy in; definitions
//! and their sources out, valid or not. The same facts always give the same plan. What an annotation defines is
//! read again when it is to run: a plan keeps only what is known of it.

mod merged;

pub(crate) use merged::Merged;

use std::{
    collections::BTreeMap,
    fmt, panic,
    sync::{Arc, OnceLock},
};

use super::{
    ExecMode, OnFailure, ProbeSpec,
    acting::{ActPolicy, Acting},
    annotation, definition,
    identity::Definition,
    image::ImageMatches,
    need::Need,
    policy::{Limits, Policy},
    rule::{HealthcheckRule, HistoryRule, Rule},
};
use crate::{document::fault, ids::ProbeKind, inventory::pod::Container};

pub use super::need::Class;

/// A probe that a container is meant to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Its type.
    pub kind: ProbeKind,
    /// Where its definition was taken from.
    pub source: ProbeSource,
    /// What is known of its definition, or why that cannot be used.
    pub spec: Result<Outline, Invalid>,
    /// What its verdict of failure does to the container.
    pub acting: Acting,
    /// How much is kept of its attempts, as far as a rule says.
    pub history: HistoryRule,
    /// Other definitions of the same type, which this one outranks, in the order of their rank: `pod annotation`.
    pub shadowed: Vec<String>,
}

/// What is kept of a valid definition while it does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    /// Which one it is.
    pub definition: Definition,
    /// Its handler's key: `exec`, `httpGet`, `tcpSocket`, `grpc`.
    pub handler: &'static str,
    /// What the probe takes while it exists.
    pub need: Need,
    /// What its verdict of failure asks for.
    pub on_failure: OnFailure,
    /// How its command is run, if it says: that is no part of `definition`.
    pub exec_mode: Option<ExecMode>,
    /// The definition itself, where all probes from that rule or image share it.
    pub shared: Option<Arc<ProbeSpec>>,
}

/// Where a definition comes from; a better source comes before a lesser one.
///
/// Prints what reports show as the source: `annotation`, `rule:NAME`, `healthcheck`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbeSource {
    /// A rule of the operator's that no pod outranks.
    EnforcedRule(Arc<str>),
    /// An annotation of the container itself.
    ContainerAnnotation,
    /// An annotation of its pod.
    PodAnnotation,
    /// A rule of the operator's.
    Rule(Arc<str>),
    /// The HEALTHCHECK of its image.
    Healthcheck,
}

/// 1 KiB of what is wrong with a definition is kept, logged and shown: a few faults. Of a longer text the beginning.
const MAX_REASON: usize = 1 << 10;

/// Why a definition cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Invalid {
    /// Everything that is wrong, in one line for people, as far as it fits into 1 KiB.
    pub reason: String,
    /// The handler as far as it is known: `exec`, `httpGet`, `tcpSocket`, `grpc`.
    pub handler: Option<&'static str>,
}

/// What the HEALTHCHECK of an image asks for: a liveness probe that only reports, or why it cannot be used. Its outline is
/// made once, and shared by all containers of the image.
pub(crate) type Healthcheck = Result<Outline, Invalid>;

/// What was read of a container's annotations, one definition of each type. To read one may take a millisecond; so it is
/// read once, and not at each change of the container.
#[derive(Debug, Default)]
pub(crate) struct Reads([OnceLock<Result<Outline, Invalid>>; ProbeKind::ALL.len()]);

/// What is known of the image of a container.
#[derive(Clone, Copy, Debug, Default)]
pub struct ImageFacts<'a> {
    /// Its HEALTHCHECK, if it has one.
    pub healthcheck: Option<&'a Healthcheck>,
    /// The patterns that match its names; if `None`, the container's own name for it is matched.
    pub names: Option<&'a ImageMatches>,
    /// What rules have made of its HEALTHCHECK for other containers.
    pub(crate) merged: Option<&'a Merged>,
}

/// The probes of a container, in the kubelet's order: startup, readiness, liveness. The best source wins, also where
/// its definition is invalid. A pod that turned its probes off keeps those of enforced rules.
pub fn plan(container: &Container, policy: &Policy, image: ImageFacts<'_>) -> Vec<Planned> {
    plan_again(container, policy, image, &Reads::default())
}

/// The same, where `reads` has what was read for an earlier plan: of a container for which it [is the
/// same](Reads::are_of), under the same limits.
pub(crate) fn plan_again(
    container: &Container,
    policy: &Policy,
    image: ImageFacts<'_>,
    reads: &Reads,
) -> Vec<Planned> {
    let facts = Facts::of(container, policy, image, reads);
    ProbeKind::ALL.into_iter().filter_map(|kind| facts.plan(kind)).collect()
}

impl Reads {
    /// Whether what was read for the former container holds for this one.
    pub(crate) fn are_of(former: &Container, container: &Container) -> bool {
        let (one, other) = (&former.pod, &container.pod);
        former.name == container.name
            && former.annotations == container.annotations
            && (Arc::ptr_eq(one, other) || one.annotations == other.annotations)
    }

    fn of(
        &self,
        kind: ProbeKind,
        read: impl FnOnce() -> Result<Outline, Invalid>,
    ) -> Result<Outline, Invalid> {
        let place = ProbeKind::ALL.into_iter().zip(&self.0).find(|(of, _)| *of == kind);
        match place {
            Some((_, place)) => place.get_or_init(read).clone(),
            None => read(),
        }
    }
}

/// Whether the HEALTHCHECK of its image says anything of a container: the operator lets it, and the pod too.
pub(crate) fn heeds_healthcheck(container: &Container, policy: &Policy) -> bool {
    policy.honours_healthchecks(&container.pod.namespace) && !is_off(container, policy)
}

/// Whether the pod wants no probes but those that are enforced, and is heard.
fn is_off(container: &Container, policy: &Policy) -> bool {
    policy.honours_annotations(&container.pod.namespace) && annotation::are_off(&container.pod.annotations)
}

impl Planned {
    /// The definition itself, for the container that it was planned for.
    ///
    /// # Errors
    /// It cannot be used.
    pub fn definition(&self, container: &Container) -> Result<Arc<ProbeSpec>, Invalid> {
        let outline = self.spec.as_ref().map_err(Invalid::clone)?;
        if let Some(shared) = &outline.shared {
            return Ok(shared.clone());
        }
        let annotations = match self.source {
            ProbeSource::ContainerAnnotation => &container.annotations,
            ProbeSource::EnforcedRule(_)
            | ProbeSource::PodAnnotation
            | ProbeSource::Rule(_)
            | ProbeSource::Healthcheck => &container.pod.annotations,
        };
        let text = annotation::probe(annotations, self.kind, &container.name).unwrap_or_default();
        guarded(|| define(self.kind, text)).map_err(Invalid::shortened)
    }
}

impl Outline {
    /// Of a definition that an annotation has.
    fn of(spec: &ProbeSpec, class: Class) -> Self {
        let (definition, handler) = (Definition::of(spec), spec.handler.name());
        let (need, on_failure, exec_mode) = (Need::of(spec, class), spec.on_failure, spec.exec_mode);
        Self { definition, handler, need, on_failure, exec_mode, shared: None }
    }

    /// The definition itself, if all probes from its source share it.
    pub(crate) fn spec(&self) -> Option<&Arc<ProbeSpec>> {
        self.shared.as_ref()
    }

    /// Of a definition that is kept elsewhere anyway.
    pub(crate) fn shared(spec: &Arc<ProbeSpec>, class: Class) -> Self {
        Self { shared: Some(spec.clone()), ..Self::of(spec, class) }
    }
}

impl ProbeSource {
    /// How much definitions from here count.
    pub fn class(&self) -> Class {
        match self {
            Self::EnforcedRule(_) => Class::Enforced,
            Self::Rule(_) => Class::Rule,
            Self::ContainerAnnotation | Self::PodAnnotation | Self::Healthcheck => Class::Author,
        }
    }

    /// In full, to distinguish it from the others: `pod annotation`.
    pub fn in_full(&self) -> String {
        match self {
            Self::EnforcedRule(name) => format!("enforced rule:{name}"),
            Self::ContainerAnnotation => "container annotation".to_owned(),
            Self::PodAnnotation => "pod annotation".to_owned(),
            Self::Rule(_) | Self::Healthcheck => self.to_string(),
        }
    }
}

impl fmt::Display for ProbeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ContainerAnnotation | Self::PodAnnotation => f.pad("annotation"),
            Self::EnforcedRule(name) | Self::Rule(name) => f.pad(&format!("rule:{name}")),
            Self::Healthcheck => f.pad("healthcheck"),
        }
    }
}

impl Invalid {
    /// The same with a reason of at most [`MAX_REASON`].
    pub(super) fn shortened(mut self) -> Self {
        if self.reason.len() > MAX_REASON {
            self.reason.truncate(self.reason.floor_char_boundary(MAX_REASON - MORE.len()));
            self.reason.push_str(MORE);
        }
        self.reason.shrink_to_fit();
        self
    }
}

/// Ends a reason that was cut.
const MORE: &str = " ... and more";

/// All that decides, for all types.
struct Facts<'a> {
    container: &'a Container,
    limits: &'a Limits,
    acting: &'a ActPolicy,
    /// Those that fit, in their order.
    rules: Vec<&'a Rule>,
    /// Whether annotations of this pod count.
    is_honoured: bool,
    /// Whether the pod wants no probes but those that are enforced.
    is_off: bool,
    healthcheck: Option<&'a Healthcheck>,
    merged: Option<&'a Merged>,
    reads: &'a Reads,
}

/// One definition, not yet read.
struct Candidate<'a> {
    source: ProbeSource,
    written: Written<'a>,
}

/// A definition as it was found.
#[derive(Clone, Copy)]
enum Written<'a> {
    /// The text of an annotation.
    Text(&'a str),
    /// That of a rule: valid, and the operator's own.
    Rule(&'a Arc<ProbeSpec>),
    Image(&'a Healthcheck),
}

impl<'a> Facts<'a> {
    fn of(container: &'a Container, policy: &'a Policy, image: ImageFacts<'a>, reads: &'a Reads) -> Self {
        let namespace = &container.pod.namespace;
        let is_honoured = policy.honours_annotations(namespace);
        Self {
            container,
            limits: &policy.limits,
            acting: &policy.acting,
            rules: policy.rules.iter().filter(|rule| rule.matcher.fits(container, image.names)).collect(),
            is_honoured,
            is_off: is_off(container, policy),
            healthcheck: image.healthcheck.filter(|_| heeds_healthcheck(container, policy)),
            merged: image.merged,
            reads,
        }
    }

    fn plan(&self, kind: ProbeKind) -> Option<Planned> {
        let mut candidates = self.candidates(kind).into_iter();
        let Some(best) = candidates.next() else { return self.dishonoured(kind) };
        let shadowed = candidates.map(|one| one.source.in_full()).chain(self.passed_over(kind)).collect();
        let spec = self.define(kind, &best);
        let asked = spec.as_ref().map_or_else(|_| OnFailure::default(), |outline| outline.on_failure);
        let class = match best.source {
            // Only a rule makes it act.
            ProbeSource::Healthcheck => Class::Rule,
            ProbeSource::EnforcedRule(_)
            | ProbeSource::ContainerAnnotation
            | ProbeSource::PodAnnotation
            | ProbeSource::Rule(_) => best.source.class(),
        };
        let acting = Acting::of(asked, class, &self.container.pod, self.acting);
        Some(Planned { kind, spec, source: best.source, acting, history: self.history(), shadowed })
    }

    /// What the first rule that says anything of it lets its probes keep.
    fn history(&self) -> HistoryRule {
        self.rules.iter().map(|rule| rule.history).find(|history| !history.is_empty()).unwrap_or_default()
    }

    /// All that count, the best first.
    fn candidates(&self, kind: ProbeKind) -> Vec<Candidate<'a>> {
        let mut found = Vec::new();
        found.extend(self.ruled(kind, true));
        if !self.is_off {
            if self.is_honoured {
                found.extend(self.annotated(kind));
            }
            found.extend(self.ruled(kind, false));
            let healthcheck = self.healthcheck.filter(|_| kind == ProbeKind::Liveness);
            found.extend(
                healthcheck.map(|image| Candidate {
                    source: ProbeSource::Healthcheck,
                    written: Written::Image(image),
                }),
            );
        }
        found
    }

    fn ruled(&self, kind: ProbeKind, is_enforced: bool) -> impl Iterator<Item = Candidate<'a>> {
        self.rules.iter().filter(move |rule| rule.is_enforced == is_enforced).filter_map(move |rule| {
            let name = rule.name.clone();
            let source = if is_enforced { ProbeSource::EnforcedRule(name) } else { ProbeSource::Rule(name) };
            Some(Candidate { source, written: Written::Rule(rule.probe(kind)?) })
        })
    }

    fn annotated(&self, kind: ProbeKind) -> impl Iterator<Item = Candidate<'a>> {
        let of = |source, annotations: &'a BTreeMap<String, String>| {
            let text = annotation::probe(annotations, kind, &self.container.name)?;
            Some(Candidate { source, written: Written::Text(text) })
        };
        let own = of(ProbeSource::ContainerAnnotation, &self.container.annotations);
        own.into_iter().chain(of(ProbeSource::PodAnnotation, &self.container.pod.annotations))
    }

    /// The sources of annotations that do not count here, and so shadow nothing.
    fn passed_over(&self, kind: ProbeKind) -> impl Iterator<Item = String> {
        let written = (!self.is_honoured).then(|| self.annotated(kind)).into_iter().flatten();
        written.map(|one| format!("{} (not honoured)", one.source.in_full()))
    }

    /// An annotation that does not count, where nothing else does: its author learns why nothing happens.
    fn dishonoured(&self, kind: ProbeKind) -> Option<Planned> {
        let source = (!self.is_honoured).then(|| self.annotated(kind).next())??.source;
        let namespace = fault::quoted(&self.container.pod.namespace);
        let reason =
            format!("annotations of namespace {namespace} are not honoured (annotations.namespaces)");
        let spec = Err(Invalid { reason, handler: None });
        let (acting, history) = (Acting::default(), HistoryRule::default());
        Some(Planned { kind, source, spec, acting, history, shadowed: Vec::new() })
    }

    fn define(&self, kind: ProbeKind, best: &Candidate<'_>) -> Result<Outline, Invalid> {
        let class = best.source.class();
        match best.written {
            // The operator's own words: no limit holds.
            Written::Rule(spec) => Ok(Outline::shared(spec, class)),
            Written::Image(healthcheck) => {
                let outline = healthcheck.clone()?;
                let Some(spec) = outline.spec() else { return Ok(outline) };
                let cap = self.limits.cap(spec);
                match cap {
                    Some(timeout) => self.permit(&ProbeSpec { timeout, ..(**spec).clone() })?,
                    None => self.permit(spec)?,
                }
                let by = HealthcheckRule::first_of(&self.rules);
                if by.is_empty() && cap.is_none() {
                    return Ok(outline);
                }
                Ok(self.merged.unwrap_or(&Merged::default()).outline(spec, &by, cap))
            }
            Written::Text(text) => self.reads.of(kind, || {
                let read = || {
                    let spec = define(kind, text)?;
                    self.permit(&spec)?;
                    Ok(Outline::of(&spec, class))
                };
                guarded(read).map_err(Invalid::shortened)
            }),
        }
    }

    /// Whether a definition that is not the operator's keeps the limits.
    fn permit(&self, spec: &ProbeSpec) -> Result<(), Invalid> {
        let refused = |reason| Err(Invalid { reason, handler: Some(spec.handler.name()) }.shortened());
        self.limits.refusal(spec).map_or(Ok(()), refused)
    }
}

/// An annotation is any pod author's text, and parsers are not all ours: a panic costs this definition and no other.
fn guarded<T>(define: impl FnOnce() -> Result<T, Invalid>) -> Result<T, Invalid> {
    panic::catch_unwind(panic::AssertUnwindSafe(define)).unwrap_or_else(|_| {
        let reason = "an internal error of criprobe prevented reading the definition: see its log";
        Err(Invalid { reason: reason.to_owned(), handler: None })
    })
}

fn define(kind: ProbeKind, text: &str) -> Result<Arc<ProbeSpec>, Invalid> {
    definition::read(kind, text)
        .map(Arc::new)
        .map_err(|wrong| Invalid { reason: wrong.to_string(), handler: wrong.handler })
}

#[cfg(test)]
mod tests;
