//! The banner above tables while the runtime is away: what they show is not of now. Asks the daemon beside the verb's own
//! question.

use std::time::SystemTime;

use super::{
    Context,
    format::Format,
    screen::{Paint, Screen},
    span::age,
    wrap::words as wrapped,
};
use crate::{
    clock,
    report::view::{RuntimeState, RuntimeView},
};

/// What is not of now: HTTP, TCP and gRPC probes go on.
const AS_OF_THEN: &str = "verdicts of exec probes and states of containers are as of then";

/// The banner as lines that fit the screen; none while the runtime answers, for machines, and of a daemon that does not say.
pub(super) async fn lines(context: &Context) -> Vec<String> {
    if matches!(context.format, Format::Json | Format::Yaml) {
        return Vec::new();
    }
    // The verb's own question reports a daemon that is not there.
    let runtime: Result<RuntimeView, _> = context.client.get("/v1/runtime").await;
    runtime.map(|runtime| of(&runtime, context.screen, clock::wall())).unwrap_or_default()
}

/// The same as the beginning of a text.
pub(super) async fn text(context: &Context) -> String {
    lines(context).await.iter().map(|line| format!("{line}\n")).collect()
}

/// What it says, in one line, in whatever format is asked for.
pub(super) async fn words(context: &Context) -> Option<String> {
    let runtime: RuntimeView = context.client.get("/v1/runtime").await.ok()?;
    said(&runtime, clock::wall())
}

/// The banner for what is known of the runtime.
pub(super) fn of(runtime: &RuntimeView, screen: Screen, now: SystemTime) -> Vec<String> {
    let Some(text) = said(runtime, now) else { return Vec::new() };
    wrapped(&text, screen.width, usize::MAX).iter().map(|line| screen.paint(line, Paint::Bad)).collect()
}

fn said(runtime: &RuntimeView, now: SystemTime) -> Option<String> {
    if runtime.state == RuntimeState::Ok {
        return None;
    }
    let since = runtime.since.0;
    let at = clock::short(since, now);
    let reason = if runtime.reason.is_empty() { String::new() } else { format!(": {}", runtime.reason) };
    Some(format!("RUNTIME AWAY since {at} ({}){reason}; {AS_OF_THEN}", age(since, now)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cli::screen::width_of,
        report::view::{Time, sample},
    };

    #[test]
    fn it_says_since_when_and_why_and_that_verdicts_are_old() {
        let mut runtime = sample::status().runtime;
        let now = sample::at(28_000).0;
        assert_eq!(of(&runtime, Screen::plain(200), now), [""; 0]);
        runtime.state = RuntimeState::Away;
        runtime.since = sample::at(0);
        runtime.reason = "the runtime's socket /run/containerd/containerd.sock does not exist".to_owned();
        let line = "RUNTIME AWAY since 10:00:00Z (28s): the runtime's socket /run/containerd/containerd.sock does not exist; \
                    verdicts of exec probes and states of containers are as of then";
        assert_eq!(of(&runtime, Screen::plain(200), now), [line]);
        for width in 20..140 {
            let lines = of(&runtime, Screen::plain(width), now);
            assert!(lines.iter().all(|line| width_of(line) <= width), "{width}: {lines:?}");
            assert_eq!(lines.concat().replace(' ', ""), line.replace(' ', ""));
        }
        let tomorrow = Time(now + std::time::Duration::from_secs(86_400)).0;
        runtime.reason = String::new();
        assert_eq!(
            of(&runtime, Screen::plain(200), tomorrow),
            [format!("RUNTIME AWAY since 2026-11-20T10:00:00Z (1d0h); {AS_OF_THEN}")]
        );
    }
}
