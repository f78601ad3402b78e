//! A process that a session runs, beside one that ExecSync runs: what the kernel says of both, line by line.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};

use super::{ENV, SHELLS, Subject, few_at_a_time, rarely};
use crate::support::{
    confined::{Capabilities, Linux, Profile, Resources, SecurityContext},
    containerd::Lab,
    cri::{self, Container},
    daemon::Daemon,
};

/// Commands that show their own process. None of them is a shell, which would have more to say.
const SHOWN: [&[&str]; 12] = [
    &["cat", "/proc/self/status"],
    &["cat", "/proc/self/stat"],
    &["cat", "/proc/self/mountinfo"],
    &["cat", "/proc/self/environ"],
    &["env"],
    &["cat", "/proc/self/cmdline", "/proc/self/comm"],
    &[
        "cat",
        "/proc/self/limits",
        "/proc/self/cgroup",
        "/proc/self/oom_score_adj",
        "/proc/self/coredump_filter",
        "/proc/self/personality",
        "/proc/self/timerslack_ns",
        "/proc/self/loginuid",
        "/proc/self/sessionid",
        "/proc/self/attr/current",
        "/proc/self/uid_map",
        "/proc/self/gid_map",
        "/proc/self/setgroups",
    ],
    &["ls", "/proc/self/fd"],
    &["id"],
    // Where links and descriptors lead, whose that is, and how they are open.
    &[
        "stat",
        "-c",
        "%N",
        "/proc/self/cwd",
        "/proc/self/root",
        "/proc/self/exe",
        "/proc/self/ns/cgroup",
        "/proc/self/ns/ipc",
        "/proc/self/ns/mnt",
        "/proc/self/ns/net",
        "/proc/self/ns/pid",
        "/proc/self/ns/pid_for_children",
        "/proc/self/ns/time",
        "/proc/self/ns/user",
        "/proc/self/ns/uts",
        "/proc/self/fd/0",
        "/proc/self/fd/1",
        "/proc/self/fd/2",
    ],
    &["stat", "-L", "-c", "%F %a %u:%g", "/proc/self/fd/0", "/proc/self/fd/1", "/proc/self/fd/2"],
    &["cat", "/proc/self/fdinfo/0", "/proc/self/fdinfo/1", "/proc/self/fdinfo/2"],
];

/// Lines that may differ: what counts processes, time and memory; the parent, the session and the process group; the number of
/// a pipe, and which of two /dev/null the standard input is. docs/exec-sessions.md has them all.
const DIFFERENT: [&str; 17] = [
    "Pid",
    "Tgid",
    "PPid",
    "NStgid",
    "NSpid",
    "NSpgid",
    "NSsid",
    "SigQ",
    "VmRSS",
    "VmHWM",
    "RssAnon",
    "RssFile",
    "VmPTE",
    "voluntary_ctxt_switches",
    "nonvoluntary_ctxt_switches",
    "ino",
    "mnt_id",
];

/// Fields of `/proc/PID/stat` that may differ for the same reasons, counted from 1 as proc(5) does: processes, group and session;
/// the flag of a process that has made use of a privilege; page faults, times, and the start; memory and addresses; the processor.
const STAT: [usize; 23] =
    [1, 4, 5, 6, 9, 10, 12, 14, 15, 22, 24, 26, 27, 28, 39, 42, 45, 46, 47, 48, 49, 50, 51];

#[tokio::test(flavor = "multi_thread")]
async fn a_process_of_a_session_is_confined_as_one_of_execsync_in_each_shell() -> Result<()> {
    let Some(lab) = Lab::shared_with_shells()? else { return Ok(()) };
    let daemon = Daemon::start(&lab.socket()).await?;
    let confined = SecurityContext {
        capabilities: Some(Capabilities { add: vec!["SYS_TIME".into()], drop: vec!["ALL".into()] }),
        run_as_user: Some(1000),
        run_as_group: Some(1001),
        supplemental_groups: vec![2000, 3000],
        readonly_rootfs: true,
        no_new_privs: true,
        seccomp: Some(Profile::default()),
        ..Default::default()
    };
    let resources = Some(Resources { memory_limit_in_bytes: 64 << 20, oom_score_adj: 900 });
    let linuxes =
        [("root", Linux::default()), ("confined", Linux { resources, security_context: Some(confined) })];
    let (daemon, pod) = (&daemon, &cri::run_pod(&mut daemon.client().await?, "alike", &[]).await?);
    let kinds = SHELLS.into_iter().flat_map(|shell| linuxes.iter().map(move |linux| (shell, linux)));
    let scenes = kinds.map(async |((shell, image), (kind, linux))| {
        let name = &*format!("{shell}-{kind}");
        let container = Container { name, image, env: &ENV, ..Container::IDLE };
        let subject = Subject::beside(daemon, pod, &container, linux.clone()).await?;
        subject.opened().await?;
        let different = differences(&subject, *kind == "confined").await.with_context(|| name.to_owned())?;
        ensure!(different.is_empty(), "{name}: these differ:\n{}", different.join("\n"));
        Ok(())
    });
    few_at_a_time(scenes).await.into_iter().collect()
}

/// In what a process of the session differs from one of ExecSync.
async fn differences(subject: &Subject<'_>, is_confined: bool) -> Result<Vec<String>> {
    let mut different = BTreeSet::new();
    for command in SHOWN {
        let wanted = subject.run("session", command, "10s").await?;
        ensure!(wanted.way.starts_with("sync"), "{command:?}: {wanted:?}");
        let found = rarely("a session runs it", async || {
            let found = subject.run("session", command, "10s").await?;
            Ok((found.way == "session").then_some(found))
        })
        .await?;
        ensure!(wanted.verdict.exit_code == found.verdict.exit_code, "{wanted:?}\n{found:?}");
        if is_confined && command.ends_with(&["/proc/self/status"]) {
            for line in ["Uid:\t1000", "Groups:\t1001 2000 3000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
                ensure!(found.verdict.output.contains(line), "not confined: {found:?}");
            }
        }
        let one = lines(command, &wanted.verdict.output);
        let other = lines(command, &found.verdict.output);
        ensure!(one.len() == other.len(), "{command:?}:\n{one:#?}\n{other:#?}");
        for (one, other) in one.iter().zip(&other).filter(|(one, other)| one != other) {
            different.insert(format!("{command:?}\n  ExecSync: {one}\n  session:  {other}"));
        }
    }
    Ok(different.into_iter().collect())
}

/// The lines of what a command has shown, without what may differ.
fn lines(command: &[&str], shown: &str) -> Vec<String> {
    if command[1..].first() == Some(&"/proc/self/stat") {
        // A name may have blanks; these have none.
        let all = shown.split_whitespace().enumerate().map(|(at, value)| (at + 1, value));
        return all
            .filter(|(at, _)| !STAT.contains(at))
            .map(|(at, value)| format!("{at}: {value}"))
            .collect();
    }
    // A busybox that has its programs in itself runs them by their path.
    let shown =
        if command.contains(&"/proc/self/cmdline") { shown.trim_start_matches("/bin/") } else { shown };
    let may_differ =
        |line: &str| DIFFERENT.iter().any(|key| line.split_once(':').is_some_and(|(of, _)| of == *key));
    let all = shown.split(['\n', '\0']).filter(|line| !may_differ(line));
    let mut all: Vec<_> = all
        .map(|line| match (line.find("pipe:["), line.rfind(']')) {
            (Some(from), Some(to)) if from < to => format!("{}pipe:{}", &line[..from], &line[to + 1..]),
            // Outputs that are opened again have O_LARGEFILE.
            _ if line == "flags:\t0100001" => "flags:\t01".to_owned(),
            _ => line.to_owned(),
        })
        .collect();
    // The order of the variables is the shell's.
    if command == ["env"] || command.contains(&"/proc/self/environ") {
        all.sort();
    }
    all
}
