//! `criprobe trace`: calls as they end, a line each.

use std::{
    borrow::Cow,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::time::sleep;

use super::{
    Context, Error, Exit,
    client::Lines,
    format::{self, Format},
    nothing::known,
    phases,
    presence::Presence,
    progress::Progress,
    reason::one_line,
    row::Row,
    screen::{Paint, Screen, print, reader_gone},
    select::{Names, Select},
    span::{measured, moment},
};
use crate::{
    clock, ids,
    report::{
        filter::{self, CallFilter, Glob, count, duration, pattern},
        view::{CallEnd, CallView, MissedView, StatusView},
    },
};

/// Flags of the verb.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TraceArgs {
    /// Only these methods of the CRI, case-insensitive: ExecSync, 'exec*'; of any service, known or not: 'SERVICE/METHOD'
    #[arg(long, value_name = "GLOB", value_parser = method)]
    method: Option<Glob>,
    #[command(flatten)]
    select: Select,
    /// Only calls with this command, its words with a space between them: 'pg_isready*', '*--dump*'
    #[arg(long, value_name = "GLOB", value_parser = pattern)]
    command: Option<Glob>,
    /// Only calls of processes with this name: kubelet, crictl
    #[arg(long, value_name = "GLOB", value_parser = pattern)]
    caller: Option<Glob>,
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
  criprobe trace shop/web-0 --method ExecSync         of one pod
  criprobe trace --failed --last 20                   the newest 20 that failed
  criprobe trace --caller crictl --method 'exec*'     what people ran
  criprobe trace --slower 1s -o json >> slow.ndjson   one record per line

Each line shows: time (UTC; with the date unless it is of today), result, method, duration, caller, pod and container, command. The
result is gRPC's code, or the exit code of a command that did not exit with 0. 'opened' is a call
that only opened a stream (Exec, Attach, PortForward), which the runtime serves itself. On containerd a second
line, with the exit code, follows when the process of an Exec has ended. On a narrow terminal a call takes several lines, elsewhere
always one. -o wide cuts nothing.

Shown are the calls of clients: kubelet, crictl. Attempts that criprobe makes itself are not among
them, so --slower and --failed do not find them: see 'criprobe probes' and 'criprobe describe'.
-n, --pod and --container also find calls that name a pod or container only by its ID, or by the
beginning of it. A list of all pods or containers is about none of them.

A daemon that goes away is waited for; standard error says so, and which time is not known.";

impl TraceArgs {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, Error> {
        let names = self.select.names()?;
        let last = Last::new(self.last, self.follow, CallView::KEPT)?;
        let Names { namespace, pod, container } = names.clone();
        let filter = CallFilter {
            method: self.method,
            namespace,
            pod,
            container,
            command: self.command,
            caller: self.caller,
            failed: self.failed,
            slower: self.slower,
            last: self.last,
            follow: self.follow || self.last.is_none(),
        };
        let asked = Asked {
            what: "calls",
            hint: "; --last N prints what is kept",
            follow: filter.follow,
            nothing: nothing(&filter),
            is_since_start: false,
            is_of_names: |_| true,
            names: &names,
            last,
        };
        let path = |last: Option<usize>| {
            let last = last.or(filter.last);
            format!("/v1/trace{}", CallFilter { last, ..filter.clone() }.to_query())
        };
        show(context, path, asked, |call, screen| {
            line(call, screen, context.format == Format::Wide, clock::wall())
        })
        .await
    }
}

/// A pattern of methods of an allowed length.
fn method(text: &str) -> Result<Glob, String> {
    pattern(text)?;
    filter::method(text)
}

/// What is said where no call is shown: whoever looks for the calls of one pod may mean its probes.
fn nothing(filter: &CallFilter) -> &'static str {
    let is_of_pod = filter.namespace.is_some() || filter.pod.is_some() || filter.container.is_some();
    if is_of_pod || filter.slower.is_some() || filter.command.is_some() {
        "no calls of clients (for criprobe's own attempts, see 'criprobe describe')"
    } else {
        "no calls"
    }
}

/// A record of a stream, or a gap with missing records.
#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged)]
enum Record<T> {
    Missed(MissedView),
    View(T),
}

/// What a stream of views is asked for.
pub(super) struct Asked<'a, T> {
    /// What the records are: `calls`.
    pub(super) what: &'static str,
    /// What else to do while none comes, for people who wait.
    pub(super) hint: &'static str,
    /// Whether to stay until Ctrl-C, or until the reader leaves.
    pub(super) follow: bool,
    /// What people see if a stream ends without a record.
    pub(super) nothing: &'a str,
    /// Whether that is so since the daemon started.
    pub(super) is_since_start: bool,
    /// Whether a view is about what was named, and not about the node.
    pub(super) is_of_names: fn(&T) -> bool,
    pub(super) names: &'a Names,
    pub(super) last: Last,
}

/// How many kept records are wanted, and whether so many are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Last {
    is_cut: bool,
    kept: usize,
}

impl Last {
    /// # Errors
    /// None is wanted, and none that comes.
    pub(super) fn new(last: Option<usize>, follow: bool, kept: usize) -> Result<Self, Error> {
        if last == Some(0) && !follow {
            return Err(Error::Usage(
                "--last 0 shows nothing: write 1 or more, or add --follow to see only what is new".to_owned(),
            ));
        }
        Ok(Self { is_cut: last.is_some_and(|last| last > kept), kept })
    }

    /// `at most 1000 calls are kept: older ones are not shown`; nothing where no more are wanted.
    fn note(self, what: &str) -> Option<String> {
        self.is_cut.then(|| format!("at most {} {what} are kept: older ones are not shown", self.kept))
    }
}

/// Prints a stream of views, each formatted by `line`, or for machines. The path depends on how many kept records it begins
/// with, if that is not up to the arguments. One that follows waits for a daemon that is restarted.
pub(super) async fn show<T: Serialize + DeserializeOwned>(
    context: &Context,
    path: impl Fn(Option<usize>) -> String,
    Asked { what, hint, follow, nothing, is_since_start, is_of_names, names, last }: Asked<'_, T>,
    line: impl Fn(&T, Screen) -> String,
) -> Result<Exit, Error> {
    let shown = async {
        let mut lines = context.client.lines(&path(None)).await?;
        let mut presence = None;
        let (mut is_empty, mut is_unknown) = (true, true);
        let mut waiting = None;
        if follow {
            if let Some(note) = last.note(what) {
                Exit::Fine.because(&note);
            }
            presence = Some(Presence::begin(context, what).await);
            waiting = Some(Progress::start(&format!("waiting for {what} (Ctrl-C ends{hint})")));
        }
        loop {
            let record = match (lines.next::<Record<T>>().await, &mut presence) {
                (Ok(Some(record)), presence) => {
                    presence.iter_mut().for_each(Presence::heard);
                    record
                }
                (Ok(None), None) => break,
                (Err(error), None) => return Err(error),
                (Err(error), Some(_)) if !matches!(error, Error::Ended(_)) => return Err(error),
                (Ok(None) | Err(_), Some(presence)) => {
                    waiting = None;
                    lines = follow_again(presence, &path).await?;
                    continue;
                }
            };
            is_empty = false;
            is_unknown &= matches!(&record, Record::View(view) if !is_of_names(view));
            waiting = None;
            print(&match (context.format, &record) {
                (Format::Json, record) => format::json_line(record),
                (Format::Yaml, record) => format::yaml_document(record),
                (Format::Table | Format::Wide, Record::View(view)) => line(view, context.screen) + "\n",
                (Format::Table | Format::Wide, Record::Missed(MissedView { missed })) => {
                    format!("-- {missed} records are missing here: they were not read fast enough --\n")
                }
            })?;
        }
        drop(waiting);
        if let Some(note) = last.note(what).filter(|_| !is_empty) {
            Exit::Fine.because(&note);
        }
        if is_unknown && !names.is_empty() {
            known(context, names, false).await?;
        }
        if is_empty && matches!(context.format, Format::Table | Format::Wide) {
            let since = if is_since_start { started(context).await } else { String::new() };
            print(&format!("{nothing}{since}\n"))?;
        }
        Ok(Exit::Fine)
    };
    if !follow {
        return shown.await;
    }
    tokio::select! {
        ended = shown => ended,
        _ = tokio::signal::ctrl_c() => Ok(Exit::Fine),
        () = reader_gone() => Ok(Exit::Fine),
    }
}

/// ` since criprobe started at 10:00:00Z`; nothing of a daemon that does not say.
async fn started(context: &Context) -> String {
    let status: Result<StatusView, _> = context.client.get("/v1/status").await;
    let at = status.map(|status| clock::short(status.started_at.0, clock::wall()));
    at.map(|at| format!(" since criprobe started at {at}")).unwrap_or_default()
}

/// Follows again once a daemon is there: another one with all that it has kept, the same one from now on.
async fn follow_again<'a>(
    presence: &mut Presence<'a>,
    path: &impl Fn(Option<usize>) -> String,
) -> Result<Lines<'a>, Error> {
    let client = presence.client();
    let mut error = Error::Ended(client.endpoint().clone());
    let mut is_other = false;
    loop {
        is_other |= presence.outlast(error).await?;
        let kept = if is_other { usize::MAX } else { 0 };
        error = loop {
            match client.lines(&path(Some(kept))).await {
                Ok(lines) => return Ok(lines),
                // It has no place for another follower yet.
                Err(Error::Refused(_)) => sleep(NO_PLACE).await,
                Err(again) => break again,
            }
        };
    }
}

/// 1 s until a daemon without a place for another follower is asked again.
const NO_PLACE: Duration = Duration::from_secs(1);

/// 120 columns have room for what a call is about beside the columns before it.
const BESIDE: usize = 120;

/// One call as a line; on a terminal that is too narrow for it, it goes on below, unless it `is_wide`.
pub(crate) fn line(call: &CallView, screen: Screen, is_wide: bool, now: SystemTime) -> String {
    let at = if is_wide { clock::rfc3339(call.at.0) } else { moment(call.at.0, now) };
    let (verdict, paint) = verdict(call);
    let mut line = Row::new(screen, is_wide);
    line.column(&at, 0, Paint::Faint);
    // The widest code is `DeadlineExceeded`, and `UpdateContainerResources` a rare method; a caller is `kubelet[4194304]` at
    // most. A narrow terminal has no room to align all, and none beside these for what the call is about.
    let (code, method, caller) = match screen.width {
        _ if is_wide => (16, 16, 16),
        BESIDE.. => (16, 16, 16),
        72.. => (9, 16, 16),
        _ => (9, 12, 12),
    };
    let is_below = (72..BESIDE).contains(&screen.width);
    line.column(&verdict, code, paint);
    line.column(&call.method, method, Paint::Plain);
    line.column(&format!("{:>6}", measured(call.duration_seconds.0)), 0, Paint::Plain);
    line.column(&format!("{}[{}]", call.peer.comm, call.peer.pid), caller, Paint::Plain);
    let target = if !call.pod.is_empty() || !call.container.is_empty() {
        target(call).into()
    } else {
        Cow::Borrowed(ids::short(&call.container_id))
    };
    if is_below {
        line.below(&target, Paint::Plain);
    } else {
        line.column(&target, 0, Paint::Plain);
    }
    if let Some(exec) = &call.exec {
        line.column(&command(&exec.command), 0, Paint::Plain);
    }
    if !call.message.is_empty() {
        line.column(&format!("— {}", one_line(&call.message)), 0, Paint::Bad);
    }
    if let Some(exec) = call.exec.as_ref().filter(|_| is_wide)
        && let Some(words) = phases::of_call(exec, call.duration_seconds.0)
    {
        line.column(&format!("[{words}]"), 0, Paint::Faint);
    }
    if is_wide {
        line.column(&format!("{}+{} bytes", call.request_bytes, call.response_bytes), 0, Paint::Faint);
        line.column(&call.service, 0, Paint::Faint);
        line.column(&call.container_id, 0, Paint::Faint);
        line.column(&call.traceparent, 0, Paint::Faint);
        let outputs = call.exec.iter().flat_map(|exec| [("stdout", &exec.stdout), ("stderr", &exec.stderr)]);
        for (name, output) in outputs.filter_map(|(name, output)| Some((name, output.as_ref()?))) {
            line.column(&format!("{name}: {}", one_line(output)), 0, Paint::Faint);
        }
    }
    line.finish()
}

/// The result: the code, or what a code of OK does not say; without a code, how the call ended.
fn verdict(call: &CallView) -> (Cow<'_, str>, Paint) {
    let exit_code = call.exec.as_ref().and_then(|exec| exec.exit_code);
    let exit_code = exit_code.filter(|&code| code != 0 || call.session.is_some());
    match (call.end, exit_code) {
        (CallEnd::Complete, Some(code)) if call.is_ok() => {
            (format!("exit {code}").into(), if code == 0 { Paint::Good } else { Paint::Doubtful })
        }
        (CallEnd::Complete, _) if call.stream_opened => ("opened".into(), Paint::Good),
        (CallEnd::Complete, _) if call.is_ok() => ((&*call.code).into(), Paint::Good),
        (CallEnd::Complete, _) => ((&*call.code).into(), Paint::Bad),
        (CallEnd::Cancelled, _) => ("cancelled".into(), Paint::Doubtful),
        (CallEnd::Reset, _) => ("reset".into(), Paint::Bad),
        (CallEnd::Lost, _) => ("lost".into(), Paint::Bad),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cli::screen::width_of,
        report::view::{ExecView, PeerView, Seconds, SessionView, sample},
    };

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
                method: "Exec".to_owned(),
                stream_opened: true,
                exec: exec(None, &["sh"]),
                ..sample::call()
            },
            CallView {
                method: "Exec".to_owned(),
                duration_seconds: Seconds(Duration::from_secs(3_725)),
                session: Some(SessionView { opened_at: sample::at(0) }),
                exec: exec(Some(0), &["sh"]),
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
        let now = sample::at(125_000).0;
        calls().iter().map(|call| line(call, Screen::plain(width), is_wide, now) + "\n").collect()
    }

    #[test]
    fn lines_look_like_this() {
        for width in [40, 80, 140] {
            insta::assert_snapshot!(format!("trace_{width}"), shown(width, false));
        }
        insta::assert_snapshot!("trace_wide", shown(60, true));
    }

    #[test]
    fn lines_fit_and_hold_nothing_that_steers() {
        for width in 20..130 {
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
    fn more_calls_than_are_kept_get_a_note_and_none_at_all_is_refused() {
        let note = "at most 1000 calls are kept: older ones are not shown";
        for (last, follow, expected) in [
            (None, false, Some(None)),
            (Some(1_000), false, Some(None)),
            (Some(1_001), false, Some(Some(note))),
            (Some(5_000), true, Some(Some(note))),
            (Some(0), true, Some(None)),
            (Some(0), false, None),
        ] {
            let noted = Last::new(last, follow, CallView::KEPT).ok().map(|last| last.note("calls"));
            let noted = noted.as_ref().map(|note| note.as_deref());
            assert_eq!(noted, expected, "{last:?} {follow}");
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
