//! Rows of the page: probes and pods in, views out, what fails first. Pure. Bounds each text, as JSON, and the number of
//! rows.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use super::{LiveFacts, LiveProbe};
use crate::{
    report::view::{
        ContainerView, DefinitionView, HandlerView, PodView, PortView, ProbePhase, ProbeView, RowProbeView,
        RowView, SplitView, StripPhases, StripView, mode,
    },
    results::{
        AttemptRecord,
        exec_route::ExecRoute,
        history::History,
        layers::plain,
        phases::{Phases, PhasesSlot, Split, is_slow},
    },
};

/// 2,000 rows, those first that fail; of the others it is said how many there are.
const MAX_ROWS: usize = 2_000;

/// 32 attempts of a strip.
const MAX_STRIP: usize = 32;

/// 2 KiB of what an attempt said, as JSON.
const OUTPUT: usize = 2_048;

/// 1 KiB of a reason, as JSON.
const REASON: usize = 1_024;

/// 256 bytes of a name or image, as JSON.
const NAME: usize = 256;

/// 1 KiB of the command of a probe, as JSON; some words of it are left out beyond that.
const COMMAND: usize = 1_024;

/// 8 bytes that a word takes beside its characters.
const WORD: usize = 8;

/// 8 headers of an HTTP request, by name.
const MAX_HEADERS: usize = 8;

/// 5 attempts: one before them says nothing about now.
const RECENT: usize = 5;

/// What a row is about: by number in the facts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Subject {
    Probe(usize),
    Pod(usize),
}

/// The facts, to be looked up.
pub(super) struct Rows<'a> {
    facts: &'a LiveFacts,
    /// By uid.
    pods: HashMap<&'a str, &'a PodView>,
}

impl<'a> Rows<'a> {
    pub(super) fn of(facts: &'a LiveFacts) -> Self {
        let pods = facts.pods.iter().map(|pod| (&*pod.pod_uid, pod)).collect();
        Self { facts, pods }
    }

    /// What is shown, and how much is not.
    pub(super) fn choose(&self) -> (Vec<Subject>, usize) {
        let facts = self.facts;
        let probed: HashSet<_> = facts.probes.iter().map(|probe| &*probe.view.pod_uid).collect();
        let bare = facts.pods.iter().enumerate().filter(|(_, pod)| !probed.contains(&*pod.pod_uid));
        let bare = bare.map(|(at, pod)| {
            let rank = if pod.problems.is_empty() { 2 + u8::from(pod.ready) } else { 1 };
            ((rank, &*pod.namespace, &*pod.pod, "", &*pod.pod_uid), Subject::Pod(at))
        });
        let mut all: Vec<_> = facts
            .probes
            .iter()
            .enumerate()
            .map(|(at, probe)| {
                let view = &probe.view;
                let rank = match view {
                    _ if view.is_failing() => 0,
                    _ if is_invalid(view) => 1,
                    _ => 2 + u8::from(self.pod(view).is_none_or(|pod| pod.ready)),
                };
                ((rank, &*view.namespace, &*view.pod, &*view.container, &*view.key), Subject::Probe(at))
            })
            .chain(bare)
            .collect();
        if all.len() > MAX_ROWS {
            all.select_nth_unstable_by(MAX_ROWS, |(a, _), (b, _)| a.cmp(b));
        }
        let hidden = all.len().saturating_sub(MAX_ROWS);
        all.truncate(MAX_ROWS);
        (all.into_iter().map(|(_, subject)| subject).collect(), hidden)
    }

    /// A row without what [`Rows::finish`] adds, and a print of all that it shows.
    pub(super) fn row(&self, subject: Subject) -> (RowView, u64) {
        let (row, more) = match subject {
            Subject::Probe(at) => {
                let probe = &self.facts.probes[at];
                let newest = probe
                    .view
                    .last
                    .as_ref()
                    .map(|last| (last.at.0, last.duration_seconds.0, last.phases.is_some()));
                let spec = probe.spec.as_ref().map(Arc::as_ptr);
                let more = (newest, probe.history.attempts().len(), spec);
                (of_probe(&probe.view, self.pod(&probe.view)), more)
            }
            Subject::Pod(at) => (of_pod(&self.facts.pods[at]), (None, 0, None)),
        };
        let mut print = DefaultHasher::new();
        (&row, more).hash(&mut print);
        (row, print.finish())
    }

    /// The row with its strip, and with what its probe does.
    pub(super) fn finish(&self, subject: Subject, mut row: RowView) -> RowView {
        if let (Subject::Probe(at), Some(probe)) = (subject, &mut row.probe) {
            let LiveProbe { history, spec, client, .. } = &self.facts.probes[at];
            let attempts = history.attempts();
            let skipped = attempts.len().saturating_sub(MAX_STRIP);
            probe.attempts = attempts.skip(skipped).map(|attempt| strip(&attempt)).collect();
            (probe.slow, probe.slow_at) = slow(history).map(|(at, words)| (words, at.into())).unzip();
            probe.definition = spec.as_ref().map(|spec| brief(DefinitionView::of(spec, &probe.source)));
            probe.client = client.clone();
            if let Some(client) = &mut probe.client {
                cut_command(&mut client.command);
            }
        }
        row
    }

    fn pod(&self, probe: &ProbeView) -> Option<&'a PodView> {
        self.pods.get(&*probe.pod_uid).copied()
    }
}

/// When the newest slow attempt began and why it was slow, in words, or why that is not known, if it was one of the last.
fn slow(history: &History) -> Option<(SystemTime, String)> {
    let attempts = history.attempts();
    let passed = attempts.len().saturating_sub(RECENT);
    let newest = attempts.skip(passed).filter(|attempt| is_slow(attempt.duration)).last()?;
    let SplitView { culprit, phases_unknown, .. } = SplitView::of(newest.phases?.get()?, newest.duration);
    let unknown = || Some(format!("slow, and its phases are not known: {}", phases_unknown?));
    Some((newest.at, culprit.or_else(unknown)?))
}

/// The definition without what may be secret, and with each text cut.
fn brief(definition: DefinitionView) -> DefinitionView {
    let mut definition = definition.without_secrets();
    let cut_host = |host: &mut Option<String>| *host = host.take().map(|host| cut(&host, NAME));
    let cut_port = |port: &mut PortView| {
        if let PortView::Name(name) = port {
            *name = cut(name, NAME);
        }
    };
    match &mut definition.handler {
        HandlerView::Exec { command } => cut_command(command),
        HandlerView::HttpGet { path, port, host, http_headers, scheme: _ } => {
            *path = cut(path, REASON);
            cut_port(port);
            cut_host(host);
            http_headers.truncate(MAX_HEADERS);
            http_headers.iter_mut().for_each(|header| header.name = cut(&header.name, NAME));
        }
        HandlerView::TcpSocket { port, host } => {
            cut_port(port);
            cut_host(host);
        }
        HandlerView::Grpc { service, port: _ } => *service = cut(service, NAME),
    }
    if let Some(before) = &mut definition.on_failure_command {
        cut_command(&mut before.command);
    }
    definition
}

/// Keeps the first words, with an ellipsis for what is cut off.
fn cut_command(command: &mut Vec<String>) {
    let mut room = COMMAND;
    for at in 0..command.len() {
        let (end, size) = fitting(&command[at], room);
        if end < command[at].len() || size + WORD > room {
            command[at].truncate(end);
            command[at].push('…');
            command.truncate(at + 1);
            break;
        }
        room -= size + WORD;
    }
}

fn is_invalid(probe: &ProbeView) -> bool {
    probe.phase == ProbePhase::Invalid && !probe.stopped_by_client
}

fn of_probe(probe: &ProbeView, pod: Option<&PodView>) -> RowView {
    let container = pod.and_then(|pod| pod.containers.iter().find(|one| one.container == probe.container));
    RowView {
        key: probe.key.clone(),
        namespace: cut(&probe.namespace, NAME),
        pod: cut(&probe.pod, NAME),
        pod_ready: pod.map(|pod| pod.ready),
        container: cut(&probe.container, NAME),
        image: container.map(|container| cut(&container.image, NAME)).unwrap_or_default(),
        container_state: container.map(|container| container.state.as_str()),
        probe: Some(RowProbeView {
            kind: probe.kind.clone(),
            handler: probe.handler.clone(),
            source: cut(&probe.source, NAME),
            state: probe.state,
            phase: probe.phase,
            since: probe.since,
            output: probe.last.as_ref().map(|last| cut(&last.words(), OUTPUT)).unwrap_or_default(),
            period_seconds: probe.period_seconds,
            definition: None,
            client: None,
            route: probe.last.as_ref().map(|last| last.route.clone()).unwrap_or_default(),
            attempts: Vec::new(),
            slow: None,
            slow_at: None,
        }),
        is_failing: probe.is_failing(),
        is_invalid: is_invalid(probe),
        reason: cut(&plain(&probe.reason), REASON),
    }
}

fn of_pod(pod: &PodView) -> RowView {
    let first: Option<&ContainerView> = pod.containers.first();
    let reasons = pod.problems.iter().chain(Some(&pod.reason).filter(|reason| !reason.is_empty()));
    RowView {
        key: pod.pod_uid.clone(),
        namespace: cut(&pod.namespace, NAME),
        pod: cut(&pod.pod, NAME),
        pod_ready: Some(pod.ready),
        image: first.map(|container| cut(&container.image, NAME)).unwrap_or_default(),
        container_state: first.map(|container| container.state.as_str()),
        is_invalid: !pod.problems.is_empty(),
        reason: cut(&reasons.map(|reason| plain(reason)).collect::<Vec<_>>().join("; "), REASON),
        ..RowView::default()
    }
}

fn strip(attempt: &AttemptRecord) -> StripView {
    let since_epoch = attempt.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    StripView {
        at: u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX),
        result: attempt.result,
        micros: u64::try_from(attempt.duration.as_micros()).unwrap_or(u64::MAX),
        code: attempt.exit_code.or(attempt.status.map(i32::from)),
        phases: attempt.phases.as_ref().and_then(PhasesSlot::get).and_then(|split| match split {
            Split::Known(phases) => Some(StripPhases::Known(micros(phases))),
            Split::Unknown(why, _) => is_slow(attempt.duration).then(|| StripPhases::Unknown(why.as_str())),
        }),
        route: attempt.route.filter(|route| *route != ExecRoute::Sync).map(mode),
    }
}

fn micros(phases: Phases) -> [Option<u64>; 4] {
    let Phases { queue, start, run, drain } = phases;
    [Some(queue), start, run, drain]
        .map(|took| took.map(|took| u64::try_from(took.as_micros()).unwrap_or(u64::MAX)))
}

/// A text that takes at most so many bytes as JSON, with an ellipsis for what is cut off.
fn cut(text: &str, most: usize) -> String {
    let (end, _) = fitting(text, most);
    if end < text.len() { format!("{}…", &text[..end]) } else { text.to_owned() }
}

/// Where the part of a text ends that takes at most so many bytes as JSON, and how many it takes.
fn fitting(text: &str, most: usize) -> (usize, usize) {
    let mut size = 0;
    for (at, character) in text.char_indices() {
        let more = match character {
            '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
            '\0'..='\u{1f}' => 6,
            other => other.len_utf8(),
        };
        if size + more > most {
            return (at, size);
        }
        size += more;
    }
    (text.len(), size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::view::{HeaderView, sample};

    fn facts(probes: Vec<ProbeView>, pods: Vec<PodView>) -> LiveFacts {
        LiveFacts::without_history(probes, pods)
    }

    fn shown(facts: &LiveFacts) -> Vec<RowView> {
        let rows = Rows::of(facts);
        rows.choose().0.into_iter().map(|subject| rows.finish(subject, rows.row(subject).0)).collect()
    }

    #[test]
    fn a_row_is_what_fails_of_a_probe_or_a_pod_without_one() {
        let pod = sample::pod();
        let bare = PodView { pod_uid: "bare".to_owned(), pod: "bare".to_owned(), ..sample::pod() };
        let probe = ProbeView { pod_uid: pod.pod_uid.clone(), ..sample::failing_probe() };
        let facts = facts(vec![probe.clone(), sample::invalid_probe()], vec![pod, bare]);
        let rows = shown(&facts);
        let of = |key: &str| rows.iter().find(|row| row.key == key).unwrap();
        let failing = of(&probe.key);
        assert!(failing.is_failing && !failing.is_invalid && failing.pod_ready.is_some());
        assert!(of(&sample::invalid_probe().key).is_invalid);
        assert!(of("bare").probe.is_none() && of("bare").pod == "bare");
        assert_eq!(rows.len(), 3, "a pod with probes has no row of its own");
    }

    #[test]
    fn the_print_changes_with_whatever_the_row_shows_and_not_with_what_it_does_not() {
        let print = |probe: ProbeView| {
            let facts = facts(vec![probe], Vec::new());
            Rows::of(&facts).row(Subject::Probe(0)).1
        };
        let probe = sample::probe;
        let mut later = probe();
        later.last.as_mut().unwrap().at = sample::at(99_999);
        assert_ne!(print(later), print(probe()));
        assert_ne!(print(ProbeView { state: crate::results::Verdict::Failure, ..probe() }), print(probe()));
        assert_ne!(print(ProbeView { reason: "other".to_owned(), ..probe() }), print(probe()));
        assert_eq!(print(ProbeView { next_at: None, ..probe() }), print(probe()));
    }

    #[test]
    fn where_there_are_too_many_those_that_fail_are_shown() {
        let mut probes: Vec<_> = (0..MAX_ROWS + 10)
            .map(|number| ProbeView { key: format!("u/{number}"), ..sample::probe() })
            .collect();
        probes.push(ProbeView { namespace: "zzz".to_owned(), ..sample::failing_probe() });
        let facts = facts(probes, Vec::new());
        let rows = Rows::of(&facts);
        let (chosen, hidden) = rows.choose();
        assert_eq!((chosen.len(), hidden), (MAX_ROWS, 11));
        assert!(chosen.iter().any(|subject| rows.row(*subject).0.namespace == "zzz"));
    }

    #[test]
    fn a_definition_is_shown_without_what_may_be_secret_or_long() {
        let definition = |handler| DefinitionView { handler, ..sample::detail().definition.unwrap() };
        for handler in sample::handlers() {
            let json = serde_json::to_string(&brief(definition(handler.clone()))).unwrap();
            assert!(!json.contains("s3cret"), "{json}");
        }
        let long = || "\u{1}".repeat(20_000);
        let (name, value) = ("X".repeat(5_000), "s3cret".to_owned());
        for handler in [
            HandlerView::Exec { command: vec![long(); 100] },
            HandlerView::Exec { command: vec![String::new(); 5_000] },
            HandlerView::HttpGet {
                path: long(),
                port: PortView::Name(long()),
                host: Some(long()),
                scheme: "HTTP".to_owned(),
                http_headers: vec![HeaderView { name, value }; 100],
            },
            HandlerView::TcpSocket { port: PortView::Name(long()), host: Some(long()) },
            HandlerView::Grpc { port: 1, service: long() },
        ] {
            let json = serde_json::to_string(&brief(definition(handler))).unwrap();
            assert!(json.len() < 6_000 && !json.contains("s3cret"), "{} bytes: {json}", json.len());
        }
    }

    #[test]
    fn a_command_is_cut_after_so_many_bytes_and_says_so() {
        for (command, expected) in [
            (vec!["cat".to_owned(), String::new()], vec!["cat".to_owned(), String::new()]),
            (vec!["x".repeat(2_000), "y".to_owned()], vec!["x".repeat(COMMAND) + "…"]),
            (
                vec!["x".repeat(COMMAND - WORD), "yz".to_owned()],
                vec!["x".repeat(COMMAND - WORD), "…".to_owned()],
            ),
        ] {
            let mut cut = command;
            cut_command(&mut cut);
            assert_eq!(cut, expected);
        }
    }

    #[test]
    fn a_text_is_cut_by_what_it_takes_as_json() {
        for (text, most, expected) in [
            ("short", 5, "short"),
            ("longer", 5, "longe…"),
            ("äöü", 5, "äö…"),
            ("\u{1b}[0m", 8, "\u{1b}[0…"),
            ("\"\"\"", 5, "\"\"…"),
            ("<script>", 100, "<script>"),
        ] {
            assert_eq!(cut(text, most), expected);
            let json = serde_json::to_string(&cut(text, most)).unwrap();
            assert!(json.len() <= most + 2 + "…".len(), "{json}");
        }
    }
}
