//! `criprobe probes -w`: polls; redraws in place on a terminal, prints changes elsewhere.

use std::{collections::HashMap, time::Duration};

use super::table;
use crate::{
    cli::{
        Context, Error, Exit,
        format::{self, Format},
        reason::plain,
        screen::{Screen, fit, print},
    },
    clock,
    report::view::{ActStep, AttemptResult, ProbeView, Time},
};

/// 1 s between one look and the next.
const INTERVAL: Duration = Duration::from_secs(1);

/// Watches until Ctrl-C.
pub(super) async fn run(context: &Context, path: &str) -> Result<Exit, Error> {
    tokio::select! {
        ended = watch(context, path) => ended,
        _ = tokio::signal::ctrl_c() => Ok(Exit::Fine),
    }
}

async fn watch(context: &Context, path: &str) -> Result<Exit, Error> {
    let mut looks = tokio::time::interval(INTERVAL);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut known = Known::default();
    let mut drawn = 0;
    loop {
        looks.tick().await;
        let probes: Vec<ProbeView> = context.client.get(path).await?;
        // The terminal may have been resized.
        let screen = if context.screen.height.is_some() { Screen::of_stdout() } else { context.screen };
        match (context.format, screen.height) {
            (Format::Table, Some(height)) => {
                let lines = frame(&probes, screen, height);
                print(&redraw(&lines, drawn))?;
                drawn = lines.len();
            }
            (Format::Table, None) | (Format::Wide, _) => {
                let now = Time(clock::wall());
                let limit = if context.format == Format::Wide { usize::MAX } else { screen.width };
                print(&known.changes(&probes, |change| fit(&change.line(now), limit) + "\n"))?;
            }
            (Format::Json, _) => {
                print(
                    &known.changes(&probes, |change| change.probe.map(format::json_line).unwrap_or_default()),
                )?;
            }
            (Format::Yaml, _) => {
                let document =
                    |change: &ProbeChange<'_>| change.probe.map(format::yaml_document).unwrap_or_default();
                print(&known.changes(&probes, document))?;
            }
        }
    }
}

/// The table, cut to the terminal's height: lines that have scrolled away cannot be redrawn.
fn frame(probes: &[ProbeView], screen: Screen, height: usize) -> Vec<String> {
    let mut lines = if probes.is_empty() {
        vec!["no probes".to_owned()]
    } else {
        table(probes, clock::wall()).render(screen, Some(screen.width))
    };
    let room = height.saturating_sub(1).max(2);
    if lines.len() > room {
        let hidden = lines.len() - room + 1;
        lines.truncate(room - 1);
        let hint = format!("… {hidden} more lines: narrow it with -n, --pod, --type");
        lines.push(fit(&hint, screen.width));
    }
    lines
}

/// Moves the cursor to the start, clears, and draws again. Lines never wrap, because they are cut to the width.
pub(crate) fn redraw(lines: &[String], drawn: usize) -> String {
    let up = if drawn > 0 { format!("\u{1b}[{drawn}A") } else { String::new() };
    format!("{up}\r\u{1b}[J{}\n", lines.join("\n"))
}

/// What was printed already, by key.
#[derive(Default)]
pub(crate) struct Known(HashMap<String, ProbeView>);

/// A probe that came, changed or went.
pub(crate) struct ProbeChange<'a> {
    id: &'a str,
    before: Option<&'a ProbeView>,
    probe: Option<&'a ProbeView>,
}

impl Known {
    /// Prints each probe whose state, phase, last result or act has changed, and remembers it.
    pub(crate) fn changes(
        &mut self,
        probes: &[ProbeView],
        describe: impl Fn(&ProbeChange<'_>) -> String,
    ) -> String {
        let mut lines = String::new();
        for probe in probes {
            let before = self.0.get(&probe.key);
            if before.is_none_or(|before| {
                let stand = |probe: &ProbeView| (probe.state, probe.phase, result(probe), step(probe));
                stand(before) != stand(probe)
            }) {
                lines.push_str(&describe(&ProbeChange { id: &probe.id, before, probe: Some(probe) }));
            }
        }
        let now: HashMap<_, _> = probes.iter().map(|probe| (probe.key.clone(), probe.clone())).collect();
        let mut gone: Vec<_> = self.0.values().filter(|probe| !now.contains_key(&probe.key)).collect();
        gone.sort_by(|a, b| a.id.cmp(&b.id));
        for probe in gone {
            lines.push_str(&describe(&ProbeChange { id: &probe.id, before: Some(probe), probe: None }));
        }
        self.0 = now;
        lines
    }
}

impl ProbeChange<'_> {
    /// `TIME ID STATE PHASE, last RESULT: REASON`, with the previous values in the middle.
    pub(crate) fn line(&self, now: Time) -> String {
        let at = clock::rfc3339(now.0);
        let stand = |probe: &ProbeView| {
            let last = result(probe).map(|last| format!(", last {}", last.as_str())).unwrap_or_default();
            format!("{} {}{last}", probe.state.as_str(), probe.phase.as_str())
        };
        let Some(probe) = self.probe else { return format!("{at} {} gone", self.id) };
        let before = self.before.map(|before| stand(before) + " -> ").unwrap_or_default();
        let reason =
            if probe.reason.is_empty() { String::new() } else { format!(": {}", plain(&probe.reason)) };
        format!("{at} {} {before}{}{reason}", self.id, stand(probe))
    }
}

fn step(probe: &ProbeView) -> Option<ActStep> {
    probe.act.as_ref().map(|act| act.step)
}

fn result(probe: &ProbeView) -> Option<AttemptResult> {
    probe.last.as_ref().map(|last| last.result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::view::{ProbePhase, Verdict, sample};

    #[test]
    fn each_change_is_told_once() {
        let mut known = Known::default();
        let line = |change: &ProbeChange<'_>| change.line(sample::at(0)) + "\n";
        let first = sample::probe();
        let failed = ProbeView {
            state: Verdict::Failure,
            phase: ProbePhase::Held,
            reason: "3 attempts failed".to_owned(),
            ..first.clone()
        };
        let reported = known.changes(std::slice::from_ref(&first), line);
        assert_eq!(
            reported,
            "2026-11-20T10:00:00.000Z default/web/app/liveness success probing, last success\n"
        );
        let counted = ProbeView { attempt: 7, reason: "spaced out".to_owned(), ..first };
        assert_eq!(known.changes(&[counted], line), "");
        let reported = known.changes(&[failed], line);
        assert_eq!(
            reported,
            "2026-11-20T10:00:00.000Z default/web/app/liveness success probing, last success -> failure held, last success: 3 attempts failed\n"
        );
        assert_eq!(known.changes(&[], line), "2026-11-20T10:00:00.000Z default/web/app/liveness gone\n");
        assert_eq!(known.changes(&[], line), "");
    }

    #[test]
    fn a_frame_never_fills_the_terminal_and_the_next_replaces_it() {
        let screen = Screen { height: Some(5), ..Screen::plain(100) };
        let many = vec![sample::probe(); 9];
        let lines = frame(&many, screen, 5);
        assert_eq!((lines.len(), &*lines[3]), (4, "… 7 more lines: narrow it with -n, --pod, --type"));
        assert_eq!(frame(&many[..3], screen, 5).len(), 4);
        assert_eq!(frame(&[], screen, 5), ["no probes"]);
        let lines = ["a".to_owned(), "b".to_owned()];
        assert_eq!(redraw(&lines, 0), "\r\u{1b}[Ja\nb\n");
        assert_eq!(redraw(&lines, 4), "\u{1b}[4A\r\u{1b}[Ja\nb\n");
    }
}
