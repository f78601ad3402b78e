//! The result of a check for people: per pod a table with a heading, the findings with their places, and a summary.
//! Views in, text out.

use std::collections::BTreeMap;

use super::super::{
    describe::definition,
    reason::plain,
    screen::{Paint, Screen},
    span::configured,
    table::{Cell, Column, Table, Tight},
};
use crate::report::{
    printable::printable,
    view::{
        CheckView, CheckedContainer, CheckedDocument, CheckedFile, CheckedPod, CheckedProbe, DocumentKind,
        Finding, Grade, HandlerView, PlanChange, PortView, Role,
    },
};

/// What is written on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    pub(super) screen: Screen,
    /// Whether nothing is cut.
    pub(super) is_wide: bool,
}

/// Two columns before each row of a table.
const MARGIN: &str = "  ";

impl Page {
    /// All of it.
    pub(super) fn view(self, view: &CheckView) -> String {
        let mut text: String = view.files.iter().map(|file| self.file(file)).collect();
        let count = |count: u64, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        let sum = [
            count(view.files.len() as u64, "file"),
            count(view.probes, "probe"),
            count(view.errors, "error"),
            count(view.warnings, "warning"),
        ];
        text.push_str(&sum.join(", "));
        text.push('\n');
        text
    }

    fn file(self, file: &CheckedFile) -> String {
        let name = printable(&file.file);
        let mut text = String::new();
        let (shown, others): (Vec<_>, Vec<_>) = file.documents.iter().partition(|one| is_telling(one));
        for document in shown {
            text.push_str(&format!("{name}:{}: {}\n", document.line, printable(&heading(document))));
            for pod in &document.pods {
                if document.pods.len() > 1 {
                    text.push_str(&format!("{MARGIN}{}\n", printable(&pod.path)));
                }
                text.push_str(&self.table(pod));
            }
            if !document.rules.is_empty() {
                text.push_str(&self.rules(document));
            }
        }
        if !others.is_empty() {
            text.push_str(
                &self.screen.paint(&format!("{name}: {}", printable(&passed_over(&others))), Paint::Faint),
            );
            text.push('\n');
        }
        for finding in &file.findings {
            text.push_str(&self.finding(&name, finding));
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text
    }

    /// `FILE:LINE:COLUMN: error: MESSAGE`, as compilers write it.
    fn finding(self, name: &str, finding: &Finding) -> String {
        let Finding { severity, line, column, message } = finding;
        let place = match (line, column) {
            (Some(line), Some(column)) => format!(":{line}:{column}"),
            (Some(line), None) => format!(":{line}"),
            (None, _) => String::new(),
        };
        let paint = match severity {
            Grade::Error => Paint::Bad,
            Grade::Warning => Paint::Doubtful,
        };
        let grade = self.screen.paint(severity.as_str(), paint);
        format!("{name}{place}: {grade}: {}\n", printable(message))
    }

    fn table(self, pod: &CheckedPod) -> String {
        if pod.containers.iter().all(is_bare) {
            let names: Vec<_> = pod.containers.iter().map(named).collect();
            return format!("{MARGIN}no probes: {}\n", printable(&names.join(", ")));
        }
        let is_compared = pod.containers.iter().any(|container| container.before.is_some());
        let mut table = Table::new(columns(is_compared, "CONTAINER"));
        for container in &pod.containers {
            let name = named(container);
            if is_bare(container) {
                let cells = [name.as_str().into(), Cell::new("none", Paint::Faint)];
                table.row(is_compared.then(|| "".into()).into_iter().chain(cells).collect());
            }
            for (sign, probe) in rows(container) {
                add(&mut table, is_compared.then_some(sign), &name, probe);
            }
        }
        self.render(&table)
    }

    fn rules(self, document: &CheckedDocument) -> String {
        let mut table = Table::new(columns(false, "RULE"));
        for rule in &document.rules {
            let name = if rule.enforced { format!("{} (enforced)", rule.rule) } else { rule.rule.clone() };
            for probe in &rule.probes {
                add(&mut table, None, &name, probe);
            }
            if let Some(healthcheck) = &rule.healthcheck {
                let healthcheck = definition::healthcheck(healthcheck);
                let source = format!("rule:{}", rule.rule);
                table.row(vec![
                    name.as_str().into(),
                    "healthcheck".into(),
                    source.as_str().into(),
                    healthcheck.into(),
                ]);
            }
        }
        self.render(&table)
    }

    fn render(self, table: &Table) -> String {
        let limit = (!self.is_wide).then(|| self.screen.width.saturating_sub(MARGIN.len()));
        let lines = table.render(self.screen, limit);
        lines.iter().map(|line| format!("{MARGIN}{line}").trim_end().to_owned() + "\n").collect()
    }
}

/// Whether a container has no probes, with rules and without.
fn is_bare(container: &CheckedContainer) -> bool {
    container.probes.is_empty() && container.before.as_ref().is_none_or(Vec::is_empty)
}

/// A container's name, and its role in the pod if that is unusual.
fn named(container: &CheckedContainer) -> String {
    let name = &container.container;
    match container.role {
        Role::Container => name.clone(),
        Role::Sidecar => format!("{name} (sidecar)"),
        Role::Init => format!("{name} (init)"),
    }
}

/// Whether a document has output of its own.
fn is_telling(document: &CheckedDocument) -> bool {
    match document.taken {
        DocumentKind::Configuration | DocumentKind::CrictlPod | DocumentKind::CrictlContainer => true,
        DocumentKind::Manifest => !document.pods.is_empty(),
        DocumentKind::Unknown => false,
    }
}

fn heading(document: &CheckedDocument) -> String {
    let name = &document.name;
    match document.taken {
        DocumentKind::Configuration => "criprobe configuration".to_owned(),
        DocumentKind::CrictlPod => format!("pod for crictl {name}"),
        DocumentKind::CrictlContainer => format!("container for crictl {name}"),
        DocumentKind::Manifest => {
            let pods: Vec<_> =
                document.pods.iter().map(|pod| format!("{}/{}", pod.namespace, pod.pod)).collect();
            format!("{name}, as pod {}", pods.join(", "))
        }
        DocumentKind::Unknown => name.clone(),
    }
}

/// What makes no pods, counted by kind.
fn passed_over(documents: &[&CheckedDocument]) -> String {
    let mut kinds = BTreeMap::new();
    for document in documents {
        let kind = match document.taken {
            DocumentKind::Unknown => "unknown",
            _ => document.name.split(' ').next().unwrap_or_default(),
        };
        *kinds.entry(kind).or_insert(0_usize) += 1;
    }
    let kinds: Vec<_> = kinds.into_iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    format!("objects without pods: {}", kinds.join(", "))
}

const COLUMNS: [Column; 9] = [
    Column { name: "TYPE", tight: Tight::Stays },
    Column { name: "SOURCE", tight: Tight::Stays },
    Column { name: "PROBE", tight: Tight::Shrinks },
    Column { name: "PERIOD", tight: Tight::Stays },
    Column { name: "TIMEOUT", tight: Tight::GoesLast },
    Column { name: "DELAY", tight: Tight::GoesLast },
    Column { name: "SUCCESS", tight: Tight::GoesFirst },
    Column { name: "FAILURE", tight: Tight::GoesLast },
    Column { name: "ON-FAILURE", tight: Tight::GoesFirst },
];

fn columns(is_compared: bool, first: &'static str) -> Vec<Column> {
    let sign = is_compared.then_some(Column { name: "", tight: Tight::Stays });
    sign.into_iter().chain([Column { name: first, tight: Tight::Shrinks }]).chain(COLUMNS).collect()
}

/// The probes of a container, marked with the effect of the rules; a removed probe comes before its replacement.
fn rows(container: &CheckedContainer) -> Vec<(Sign, &CheckedProbe)> {
    let mut rows = Vec::new();
    for probe in &container.probes {
        let before = container.before.iter().flatten().find(|before| before.kind == probe.kind);
        rows.extend(match probe.change {
            None | Some(PlanChange::Same) => vec![(Sign::Same, probe)],
            Some(PlanChange::Added) => vec![(Sign::Comes, probe)],
            Some(PlanChange::Replaced) => {
                before.map(|before| (Sign::Goes, before)).into_iter().chain([(Sign::Comes, probe)]).collect()
            }
            Some(PlanChange::Invalidated) => {
                before.map(|before| (Sign::Goes, before)).into_iter().chain([(Sign::Fails, probe)]).collect()
            }
        });
    }
    rows
}

/// What rules do to a probe.
#[derive(Clone, Copy, Debug)]
enum Sign {
    Same,
    Comes,
    Goes,
    Fails,
}

impl Sign {
    fn cell(self) -> Cell {
        match self {
            Self::Same => "".into(),
            Self::Comes => Cell::new("+", Paint::Good),
            Self::Goes => Cell::new("-", Paint::Doubtful),
            Self::Fails => Cell::new("!", Paint::Bad),
        }
    }
}

fn add(table: &mut Table, sign: Option<Sign>, name: &str, probe: &CheckedProbe) {
    let mut row: Vec<Cell> = sign.map(Sign::cell).into_iter().collect();
    row.extend([name.into(), Cell::from(&*probe.kind), (&*probe.source).into()]);
    match &probe.definition {
        Some(definition) => row.extend([
            handler(&definition.handler, probe.resolved_port).into(),
            configured(definition.period_seconds.0).into(),
            configured(definition.timeout_seconds.0).into(),
            configured(definition.initial_delay_seconds.0).into(),
            definition.success_threshold.to_string().into(),
            definition.failure_threshold.to_string().into(),
            Cell::from(probe.act_refusal.as_ref().map_or(&*definition.on_failure, |_| "report")),
        ]),
        None => row.push(Cell::new(format!("{} invalid", probe.handler).trim_start(), Paint::Bad)),
    }
    table.row(row);
    if !probe.reason.is_empty() {
        table.note(Cell::new(&plain(&probe.reason), Paint::Faint));
    }
    let is_gone = matches!(sign, Some(Sign::Goes));
    let asking = probe.definition.as_ref().filter(|_| !is_gone).zip(probe.act_refusal.as_ref());
    if let Some((definition, reason)) = asking {
        let on_failure = definition::refused(&definition.on_failure, reason);
        table.note(Cell::new(&format!("on failure: {on_failure}"), Paint::Faint));
    }
    if !probe.shadowed.is_empty() && !is_gone {
        table.note(Cell::new(&format!("overrides {}", probe.shadowed.join(", ")), Paint::Faint));
    }
}

/// The handler, and the number of a named port.
fn handler(handler: &HandlerView, resolved: Option<u16>) -> String {
    let name = match handler {
        HandlerView::HttpGet { port: PortView::Name(name), .. } => name,
        HandlerView::TcpSocket { port: PortView::Name(name), .. } => name,
        _ => return definition::handler(handler),
    };
    let resolved = resolved.map(|number| format!(" ({name} is {number})")).unwrap_or_default();
    format!("{}{resolved}", definition::handler(handler))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        check::{CheckInput, check},
        cli::screen::width_of,
    };

    fn input(name: &str, text: &str) -> CheckInput {
        CheckInput { name: name.to_owned(), bytes: text.as_bytes().to_vec(), is_named: true }
    }

    fn shown(width: usize, is_wide: bool) -> String {
        let deployment = include_str!("../../../tests/data/check/deployment.yaml");
        let rules = include_str!("../../../tests/data/check/rules/10-shop.yaml");
        let bare =
            "apiVersion: v1\nkind: Pod\nmetadata: {name: bare}\nspec: {containers: [{name: a}, {name: b}]}\n";
        let files = [input("deployment.yaml", deployment), input("bare.yaml", bare), input("empty.yaml", "")];
        let view = check(&files, &[input("10-shop.yaml", rules)], "default");
        Page { screen: Screen::plain(width), is_wide }.view(&view)
    }

    #[test]
    fn it_looks_like_this() {
        for width in [40, 80, 140] {
            insta::assert_snapshot!(format!("check_{width}"), shown(width, false));
        }
        insta::assert_snapshot!("check_wide", shown(usize::MAX, true));
    }

    #[test]
    fn tables_fit_and_nothing_steers() {
        for width in 20..130 {
            for line in shown(width, false).lines().filter(|line| line.starts_with(MARGIN)) {
                assert!(width_of(line) <= width, "{width}: {line}");
            }
        }
        let steering =
            input("\u{1b}[2J.yaml", "apiVersion: v1\nkind: \"\\e[2J\"\nmetadata: {name: \"\\u202e\"}\n");
        let view = check(&[steering], &[], "default");
        let text = Page { screen: Screen::plain(100), is_wide: false }.view(&view);
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text}");
    }
}
