//! The demo's display: live probes and below them calls on a terminal, plain lines elsewhere. Queries the daemon like
//! the API; changes nothing.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::Context;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{MissedTickBehavior, interval},
};

use crate::{
    cli::{
        events,
        live::changes::Known,
        probes,
        screen::{Screen, fit, print, print_frame},
        trace,
        wrap::words,
    },
    clock,
    config::Config,
    demo::pods::DemoPods,
    report::{
        Sources,
        journal::JournalEntry,
        view::{EventView, ProbeView, Time},
    },
    results::event::EventReason,
};

/// 500 ms between two looks.
const LOOK: Duration = Duration::from_millis(500);

/// 2 events of acts are shown below the probes: a restart begins and ends with one.
const ACTS: usize = 2;

/// 10 calls are shown below them, where the terminal has room.
const CALLS: usize = 10;

pub(super) struct Show<'a> {
    pub(super) sources: Sources,
    pub(super) config: &'a Config,
    pub(super) is_embedded: bool,
    /// Only they are shown: a runtime that others use has more.
    pub(super) pods: &'a DemoPods,
    pub(super) limit: Option<Duration>,
}

impl Show<'_> {
    /// Shows until it is dropped.
    pub(super) async fn run(&self) -> anyhow::Result<()> {
        let screen = Screen::of_stdout();
        print(&self.headline(screen))?;
        if screen.height.is_some() { self.redraw().await } else { self.print(screen).await }
    }

    async fn redraw(&self) -> anyhow::Result<()> {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut resized = signal(SignalKind::window_change()).context("cannot listen for SIGWINCH")?;
        let (mut drawn, mut size) = (0, Screen::of_stdout());
        loop {
            tokio::select! {
                _ = looks.tick() => {}
                _ = resized.recv() => {}
            }
            let screen = Screen::of_stdout();
            let height = screen.height.unwrap_or(24);
            let mut lines = self.frame(screen).await?;
            lines.truncate(height.saturating_sub(1));
            if screen == size {
                print_frame(&redraw(&lines, drawn))?;
            } else {
                // Some terminals wrap the text that is on them, others do not: how many lines there are now is unknown.
                let all = format!("\u{1b}[H{}{}", redraw(&[], 0), self.headline(screen));
                print_frame(&(all + &redraw(&lines, 0)))?;
            }
            (drawn, size) = (lines.len(), screen);
        }
    }

    async fn frame(&self, screen: Screen) -> anyhow::Result<Vec<String>> {
        let (probes, others) = self.probes().await?;
        let now = clock::wall();
        let sentences = |text: &str| words(text, screen.width, usize::MAX);
        let mut lines = probes::table(&probes, now).render(screen, Some(screen.width));
        lines.extend(warning(others).iter().flat_map(|warning| sentences(warning)));
        let acts = self.acts();
        if !acts.is_empty() {
            lines.push(String::new());
            lines.extend(sentences("What criprobe did to containers, newest last:"));
        }
        for event in acts {
            lines.extend(events::line(&event, screen, false, now).lines().map(str::to_owned));
        }
        lines.push(String::new());
        lines
            .extend(sentences("Calls through the relay, newest last (criprobe's own calls do not pass it):"));
        let room = screen.height.map_or(CALLS, |height| height.saturating_sub(lines.len() + 1));
        let calls = self.sources.trace.last(room.min(CALLS));
        let calls: Vec<_> = calls.iter().map(|call| trace::line(&call.view(), screen, false, now)).collect();
        let calls: Vec<_> = calls.iter().flat_map(|call| call.lines().map(str::to_owned)).collect();
        lines.extend_from_slice(&calls[calls.len().saturating_sub(room.min(CALLS))..]);
        Ok(lines)
    }

    /// Plain lines: every call, every change of a probe, every event.
    async fn print(&self, screen: Screen) -> anyhow::Result<()> {
        let mut known = Known::default();
        let (kept, mut calls) = self.sources.trace.follow_after(usize::MAX);
        let mut happened = self.sources.events.follow();
        for call in kept {
            print(&(trace::line(&call.view(), screen, false, clock::wall()) + "\n"))?;
        }
        let mut looks = interval(LOOK);
        let mut has_warned = false;
        loop {
            let line = tokio::select! {
                _ = looks.tick() => {
                    let (probes, others) = self.probes().await?;
                    let warning = warning(others).filter(|_| !has_warned).map(|warning| warning + "\n");
                    has_warned |= warning.is_some();
                    let now = Time(clock::wall());
                    let changes = known.changes(&probes, |change| fit(&change.line(now), screen.width) + "\n");
                    warning.unwrap_or_default() + &changes
                }
                Some(JournalEntry::Record(call)) = calls.next() => {
                    trace::line(&call.view(), screen, false, clock::wall()) + "\n"
                }
                Some(JournalEntry::Record(event)) = happened.next() => {
                    if !self.is_ours(&event.pod_uid) {
                        continue;
                    }
                    events::line(&event, screen, false, clock::wall()) + "\n"
                }
            };
            print(&line)?;
        }
    }

    /// The demo's own probes, and how many others there are.
    async fn probes(&self) -> anyhow::Result<(Vec<ProbeView>, usize)> {
        let mut probes = self.sources.snapshots.probes().await?;
        let all = probes.len();
        probes.retain(|probe| self.is_ours(&probe.pod_uid));
        let others = all - probes.len();
        Ok((probes, others))
    }

    /// The newest events of acts on the demo's own containers.
    fn acts(&self) -> Vec<Arc<EventView>> {
        let of_acts = [EventReason::Killing, EventReason::Restarted, EventReason::ActFailed];
        let mut acts = self.sources.events.last(usize::MAX);
        acts.retain(|event| {
            self.is_ours(&event.pod_uid) && of_acts.iter().any(|reason| reason.as_str() == event.reason)
        });
        acts.split_off(acts.len().saturating_sub(ACTS))
    }

    /// By the pod, as its containers change.
    fn is_ours(&self, pod_uid: &str) -> bool {
        self.pods.iter().any(|pod| pod.uid.as_str() == pod_uid)
    }

    /// The beginning of the display, with an empty line at its end.
    fn headline(&self, screen: Screen) -> String {
        let (listen, api) = (url(&self.config.listen), url(&self.config.api.listen));
        let runtime = if self.is_embedded {
            "the embedded runtime: containers are plain processes, nothing is isolated".to_owned()
        } else {
            format!("the runtime at {}", url(&self.config.runtime))
        };
        let end = match self.limit {
            Some(limit) => format!("It ends after {}.", humantime::format_duration(limit)),
            None => "Press Ctrl-C to end it.".to_owned(),
        };
        let title = words(&format!("criprobe demo, in front of {runtime}. {end}"), screen.width, usize::MAX);
        format!(
            "{}\n\n\
             From another terminal:\n  \
             export CRIPROBE_API={api}\n  \
             criprobe status\n  \
             criprobe probes -w\n  \
             criprobe trace\n  \
             criprobe events --follow\n  \
             crictl --runtime-endpoint {listen} ps\n\n",
            title.join("\n")
        )
    }
}

/// Moves the cursor to the start of the last frame, clears, and draws again. The terminal cuts lines that are too wide: none
/// takes two.
fn redraw(lines: &[String], drawn: usize) -> String {
    let up = if drawn > 0 { format!("\u{1b}[{drawn}A") } else { String::new() };
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    format!("{up}\r\u{1b}[J\u{1b}[?7l{lines}\u{1b}[?7h")
}

/// What to say of probes that run, but are not shown.
fn warning(others: usize) -> Option<String> {
    let (probes, they) = if others == 1 { ("probe", "it is") } else { ("probes", "they are") };
    (others > 0).then(|| {
        format!("Warning: annotations of other pods on this runtime define {others} {probes}; {they} run, but not shown.")
    })
}

fn url(path: &Path) -> String {
    format!("unix://{}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_replaces_the_one_before() {
        let lines = ["a".to_owned(), "b".to_owned()];
        assert_eq!(redraw(&lines, 0), "\r\u{1b}[J\u{1b}[?7la\nb\n\u{1b}[?7h");
        assert_eq!(redraw(&lines, 4), "\u{1b}[4A\r\u{1b}[J\u{1b}[?7la\nb\n\u{1b}[?7h");
    }
}
