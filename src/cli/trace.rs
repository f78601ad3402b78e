//! `criprobe trace`: calls as they end, a line each.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    Context, Error, Exit,
    format::{self, Format},
    reason::plain,
    screen::{Paint, Screen, fit, print, width_of},
    select::{Select, glob},
    span::measured,
};
use crate::{
    clock,
    report::{
        filter::{CallFilter, Glob, count, duration},
        view::{CallEnd, CallView, MissedView},
    },
};

/// Flags of the verb.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TraceArgs {
    /// Only these methods, case-insensitive: ExecSync, 'exec*'
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    method: Option<Glob>,
    #[command(flatten)]
    select: Select,
    /// Only calls that failed: an error, no answer, or an exit code other than 0
    #[arg(long)]
    failed: bool,
    /// Only calls that took longer: 250ms, 2s
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    slower: Option<Duration>,
    /// Print the newest N of the 1,000 calls that are kept, and exit
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = count)]
    last: Option<usize>,
    /// Keep running and print calls as they end; the default without --last
    #[arg(short, long)]
    follow: bool,
}

const EXAMPLES: &str = "\
Examples:
  criprobe trace                                      every call, live
  criprobe trace --method ExecSync -n shop --pod web-0
  criprobe trace --failed --last 20                   the newest 20 that failed
  criprobe trace --slower 1s -o json >> slow.ndjson   one record per line

Each line shows: time (UTC), code, method, duration, caller, pod and container, command.
-o wide cuts nothing.";

impl TraceArgs {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, Error> {
        let Select { namespace, pod, container } = self.select;
        let filter = CallFilter {
            method: self.method,
            namespace,
            pod,
            container,
            failed: self.failed,
            slower: self.slower,
            last: self.last,
            follow: self.follow || self.last.is_none(),
        };
        let path = format!("/v1/trace{}", filter.to_query());
        show(context, &path, (filter.follow, "no calls"), |call, screen| {
            line(call, screen, context.format == Format::Wide)
        })
        .await
    }
}

/// A record of a stream, or a gap with missing records.
#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged)]
enum Record<T> {
    Missed(MissedView),
    View(T),
}

/// Prints a stream of views, each formatted by `line`, or for machines. With `follow`, it runs until Ctrl-C. If a stream
/// ends without a record, `nothing` is shown on a terminal.
pub(super) async fn show<T: Serialize + DeserializeOwned>(
    context: &Context,
    path: &str,
    (follow, nothing): (bool, &str),
    line: impl Fn(&T, Screen) -> String,
) -> Result<Exit, Error> {
    let shown = async {
        let mut lines = context.client.lines(path).await?;
        let mut is_empty = true;
        while let Some(record) = lines.next::<Record<T>>().await? {
            is_empty = false;
            print(&match (context.format, &record) {
                (Format::Json, record) => format::json_line(record),
                (Format::Yaml, record) => format::yaml_document(record),
                (Format::Table | Format::Wide, Record::View(view)) => line(view, context.screen) + "\n",
                (Format::Table | Format::Wide, Record::Missed(MissedView { missed })) => {
                    format!("-- {missed} records are missing here: they were not read fast enough --\n")
                }
            })?;
        }
        if is_empty && !follow && io::stdout().is_terminal() {
            // If this cannot be written, the empty output says the same.
            let _ = writeln!(io::stderr(), "criprobe: {nothing} to show");
        }
        if follow { Err(Error::Ended(context.client.endpoint().clone())) } else { Ok(Exit::Fine) }
    };
    if !follow {
        return shown.await;
    }
    tokio::select! {
        ended = shown => ended,
        _ = tokio::signal::ctrl_c() => Ok(Exit::Fine),
    }
}

/// One call as a line; cut to the screen's width unless it `is_wide`.
pub(crate) fn line(call: &CallView, screen: Screen, is_wide: bool) -> String {
    let at = clock::rfc3339(call.at.0);
    let at = if is_wide { &*at } else { at.split_once('T').map_or(&*at, |(_, time)| time) };
    let (verdict, paint) = verdict(call);
    let mut line = Row::new(screen, is_wide);
    line.column(at, 0, Paint::Faint);
    let is_narrow = !is_wide && screen.width < 80;
    line.column(verdict, if is_narrow { 9 } else { 16 }, paint);
    line.column(&call.method, 16, Paint::Plain);
    line.column(&format!("{:>6}", measured(call.duration_seconds.0)), 0, Paint::Plain);
    line.column(&format!("{}[{}]", call.peer.comm, call.peer.pid), 12, Paint::Plain);
    if !call.pod.is_empty() || !call.container.is_empty() {
        line.column(&target(call), 0, Paint::Plain);
    } else if !call.container_id.is_empty() {
        line.column(&call.container_id.chars().take(13).collect::<String>(), 0, Paint::Plain);
    }
    if let Some(exec) = &call.exec {
        if let Some(code) = exec.exit_code.filter(|&code| code != 0) {
            line.column(&format!("exit {code}"), 0, Paint::Doubtful);
        }
        line.column(&command(&exec.command), 0, Paint::Plain);
    }
    if !call.message.is_empty() {
        line.column(&format!("— {}", plain(&call.message)), 0, Paint::Bad);
    }
    if is_wide {
        line.column(&format!("{}+{} bytes", call.request_bytes, call.response_bytes), 0, Paint::Faint);
        line.column(&call.service, 0, Paint::Faint);
        line.column(&call.container_id, 0, Paint::Faint);
        line.column(&call.traceparent, 0, Paint::Faint);
    }
    line.finish()
}

/// The code; without one, how the call ended.
fn verdict(call: &CallView) -> (&str, Paint) {
    match call.end {
        CallEnd::Complete if call.is_ok() => (&call.code, Paint::Good),
        CallEnd::Complete => (&call.code, Paint::Bad),
        CallEnd::Cancelled => ("cancelled", Paint::Doubtful),
        CallEnd::Reset => ("reset", Paint::Bad),
        CallEnd::Lost => ("lost", Paint::Bad),
    }
}

fn target(call: &CallView) -> String {
    if call.container.is_empty() {
        format!("{}/{}", call.namespace, call.pod)
    } else {
        format!("{}/{}/{}", call.namespace, call.pod, call.container)
    }
}

/// A command as typed in a shell: words that a shell would split or expand are in quotes.
pub(super) fn command(words: &[String]) -> String {
    let quoted = words.iter().map(|word| {
        let is_plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%^".contains(c);
        if !word.is_empty() && word.chars().all(is_plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// A line that grows column by column until it is full.
pub(super) struct Row {
    screen: Screen,
    /// Columns that are still free.
    left: usize,
    text: String,
}

impl Row {
    /// An empty line, as wide as the screen, or unlimited if it `is_wide`.
    pub(super) fn new(screen: Screen, is_wide: bool) -> Self {
        Self { screen, left: if is_wide { usize::MAX } else { screen.width }, text: String::new() }
    }

    /// Adds a text with a minimum width; nothing if the text is empty.
    pub(super) fn column(&mut self, text: &str, at_least: usize, paint: Paint) {
        let gap = usize::from(!self.text.is_empty());
        if text.is_empty() || self.left <= gap {
            return;
        }
        self.left -= gap;
        let fitted = fit(text, self.left);
        let width = width_of(&fitted).max(at_least).min(self.left);
        let padding = width - width_of(&fitted);
        if gap > 0 {
            self.text.push(' ');
        }
        self.text.push_str(&self.screen.paint(&fitted, paint));
        self.text.extend(std::iter::repeat_n(' ', padding));
        self.left -= width;
    }

    /// The line, without the padding of its last column.
    pub(super) fn finish(mut self) -> String {
        self.text.truncate(self.text.trim_end().len());
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::view::{ExecView, PeerView, Seconds, sample};

    fn calls() -> Vec<CallView> {
        let exec = |code, words: &[&str]| {
            let command = words.iter().map(|&word| word.to_owned()).collect();
            Some(ExecView { command, exit_code: code, ..ExecView::default() })
        };
        vec![
            sample::call(),
            sample::refused_call(),
            CallView { exec: exec(Some(1), &["sh", "-c", "test -f \u{1b}[2J\n'x'"]), ..sample::call() },
            CallView {
                end: CallEnd::Cancelled,
                code: String::new(),
                duration_seconds: Seconds(Duration::from_millis(10_004)),
                exec: exec(None, &["sleep", "60"]),
                ..sample::call()
            },
            CallView {
                method: "RunPodSandbox".to_owned(),
                container: String::new(),
                container_id: String::new(),
                exec: None,
                peer: PeerView { pid: 1, uid: 0, comm: "a-long-name-15b".to_owned() },
                ..sample::call()
            },
        ]
    }

    fn shown(width: usize, is_wide: bool) -> String {
        calls().iter().map(|call| line(call, Screen::plain(width), is_wide) + "\n").collect()
    }

    #[test]
    fn lines_look_like_this() {
        insta::assert_snapshot!("trace_100", shown(100, false));
        insta::assert_snapshot!("trace_60", shown(60, false));
        insta::assert_snapshot!("trace_wide", shown(60, true));
    }

    #[test]
    fn lines_fit_and_hold_nothing_that_steers() {
        for width in 40..130 {
            for line in shown(width, false).lines() {
                assert!(width_of(line) <= width, "{width}: {line}");
                assert!(!line.contains('\u{1b}'));
            }
        }
    }

    #[test]
    fn a_command_can_be_typed_as_it_is_shown() {
        for (words, shown) in [
            (&["cat", "/tmp/healthy"][..], "cat /tmp/healthy"),
            (&["sh", "-c", "a && b"], "sh -c 'a && b'"),
            (&["echo", "it's", ""], r"echo 'it'\''s' ''"),
            (&["$(X)"], "'$(X)'"),
        ] {
            let words: Vec<_> = words.iter().map(|&word| word.to_owned()).collect();
            assert_eq!(command(&words), shown);
        }
    }

    #[test]
    fn a_gap_is_no_call() {
        let gap: Record<CallView> = serde_json::from_str(r#"{"missed":3}"#).unwrap();
        assert!(matches!(gap, Record::Missed(MissedView { missed: 3 })));
        let json = serde_json::to_string(&sample::call()).unwrap();
        let Record::View(call) = serde_json::from_str::<Record<CallView>>(&json).unwrap() else { panic!() };
        assert_eq!(call, sample::call());
        assert_eq!(format::json_line(&Record::View(call)).trim_end(), json);
    }
}
