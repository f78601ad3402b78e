//! What the demo shows: probes live and the calls below them on a terminal, plain lines elsewhere. Asks the daemon as
//! the API does; changes nothing.

use std::{path::Path, time::Duration};

use tokio::time::{MissedTickBehavior, interval};

use crate::{
    cli::{
        events, probes,
        screen::{Screen, fit, print},
        trace,
        watch::{Known, redraw},
    },
    clock,
    config::Config,
    report::{
        Sources, ask,
        journal::Entry,
        view::{ProbeView, Time},
    },
};

/// 500 ms between two looks.
const LOOK: Duration = Duration::from_millis(500);

/// 10 calls are shown below the probes, where the terminal has room.
const CALLS: usize = 10;

pub(super) struct Show<'a> {
    pub(super) sources: Sources,
    pub(super) config: &'a Config,
    pub(super) is_embedded: bool,
    pub(super) limit: Option<Duration>,
}

impl Show<'_> {
    /// Shows until it is dropped.
    pub(super) async fn run(&self) -> anyhow::Result<()> {
        let screen = Screen::of_stdout();
        print(&(self.headline() + "\n"))?;
        if screen.height.is_some() { self.redraw().await } else { self.tell(screen).await }
    }

    async fn redraw(&self) -> anyhow::Result<()> {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut drawn = 0;
        loop {
            looks.tick().await;
            let screen = Screen::of_stdout();
            let height = screen.height.unwrap_or(24);
            let mut lines = self.frame(screen).await?;
            lines.truncate(height.saturating_sub(1));
            print(&redraw(&lines, drawn))?;
            drawn = lines.len();
        }
    }

    async fn frame(&self, screen: Screen) -> anyhow::Result<Vec<String>> {
        let probes = self.probes().await?;
        let mut lines = probes::table(&probes, clock::wall()).render(screen, Some(screen.width));
        lines.push(String::new());
        lines.push(
            "Calls through the relay, the newest last (ours to the runtime are not among them):".to_owned(),
        );
        for call in self.sources.trace.last(CALLS) {
            lines.push(trace::line(&call.view(), screen, false));
        }
        Ok(lines)
    }

    /// Plain lines: every call, every change of a probe, every event.
    async fn tell(&self, screen: Screen) -> anyhow::Result<()> {
        let mut known = Known::default();
        let (kept, mut calls) = self.sources.trace.follow_after(usize::MAX);
        let mut happened = self.sources.events.follow();
        for call in kept {
            print(&(trace::line(&call.view(), screen, false) + "\n"))?;
        }
        let mut looks = interval(LOOK);
        loop {
            let line = tokio::select! {
                _ = looks.tick() => {
                    let probes = self.probes().await?;
                    let now = Time(clock::wall());
                    known.changes(&probes, |change| fit(&change.line(now), screen.width) + "\n")
                }
                Some(Entry::Record(call)) = calls.next() => trace::line(&call.view(), screen, false) + "\n",
                Some(Entry::Record(event)) = happened.next() => events::line(&event, screen, false) + "\n",
            };
            print(&line)?;
        }
    }

    async fn probes(&self) -> anyhow::Result<Vec<ProbeView>> {
        Ok(ask(&self.sources.probes, "prober").await?)
    }

    fn headline(&self) -> String {
        let (listen, api) = (url(&self.config.listen), url(&self.config.api.listen));
        let runtime = if self.is_embedded {
            "the embedded runtime: containers are plain processes, nothing is isolated".to_owned()
        } else {
            format!("the runtime at {}", url(&self.config.runtime))
        };
        let end = match self.limit {
            Some(limit) => format!("Ends after {}.", humantime::format_duration(limit)),
            None => "Ends with Ctrl-C.".to_owned(),
        };
        format!(
            "criprobe demo, before {runtime}. {end}\n\n\
             From another terminal:\n  \
             export CRIPROBE_API={api}\n  \
             criprobe status\n  \
             criprobe probes -w\n  \
             criprobe trace\n  \
             criprobe events --follow\n  \
             crictl --runtime-endpoint {listen} ps\n"
        )
    }
}

fn url(path: &Path) -> String {
    format!("unix://{}", path.display())
}
