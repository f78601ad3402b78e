//! The script in real shells, without a runtime: dash, the ash of busybox, bash.

use std::{
    fs,
    io::{Read, Write},
    os::{
        fd::OwnedFd,
        unix::{fs::PermissionsExt, net::UnixStream, process::CommandExt},
    },
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use proptest::{prelude::*, test_runner::TestRunner};

use super::{capture::Output, *};

/// How to start each of them. `make test` has busybox installed; the others are Debian's own.
const SHELLS: [&[&str]; 3] = [&["dash"], &["busybox", "sh"], &["bash"]];

/// How long one of them may take to answer.
const LIMIT: Duration = Duration::from_secs(20);

/// The script in one of them.
struct Shell {
    child: Child,
    stdin: Option<ChildStdin>,
    outputs: Receiver<(Output, Vec<u8>)>,
    key: Nonce,
}

impl Shell {
    fn start(program: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        Self::start_for(program, &own(&format!("test-{}", COUNT.fetch_add(1, Ordering::Relaxed))))
    }

    fn start_for(program: &[&str], owner: &str) -> Self {
        Self::start_in(program, owner, Path::new("/"), false)
    }

    fn start_in(program: &[&str], owner: &str, folder: &Path, has_socket: bool) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let stderr = if has_socket { OwnedFd::from(theirs).into() } else { Stdio::piped() };
        // As a runtime does, so that it leads a session.
        let mut child = Command::new("setsid")
            .args(program)
            .args(["-c", &script::script(owner)])
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap_or_else(|error| panic!("{program:?}: {error}; run `make test`, which installs it"));
        let (sender, outputs) = channel();
        forward(Output::Stdout, child.stdout.take().unwrap(), sender.clone());
        match child.stderr.take() {
            Some(stderr) => forward(Output::Stderr, stderr, sender),
            None => forward(Output::Stderr, ours, sender),
        }
        let key = Nonce::fresh();
        let mut shell = Self { stdin: child.stdin.take(), child, outputs, key };
        shell.send(&format!("{}\n", shell.key));
        shell
    }

    fn send(&mut self, text: &str) {
        self.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn begin(&mut self, ask: Ask<'_>) -> Capture {
        let nonce = Nonce::fresh();
        self.send(&ask.line(&self.key.clone(), &nonce));
        Capture::new(nonce, 1 << 20)
    }

    fn end(&self, mut capture: Capture) -> End {
        while !capture.has_ended() {
            let (output, octets) = self.outputs.recv_timeout(LIMIT).expect("the shell answers");
            capture.take(output, &octets).unwrap();
        }
        capture.end().unwrap()
    }

    fn run(&mut self, words: &[String]) -> (u32, Bytes) {
        let text = script::command(Expansion::literal(words)).expect("it can be said to a shell");
        let capture = self.begin(Ask::Run(&text));
        let End { exit_code, output, .. } = self.end(capture);
        (exit_code, output)
    }

    fn run_text(&mut self, words: &[&str]) -> (u32, String) {
        let words: Vec<_> = words.iter().map(|&word| word.to_owned()).collect();
        let (exit_code, output) = self.run(&words);
        (exit_code, String::from_utf8_lossy(&output).into_owned())
    }

    /// The shell that runs commands; kills other sessions of the same owner.
    fn runner(&mut self) -> u32 {
        let capture = self.begin(Ask::Hello);
        opening::runner(&self.end(capture).output).expect("it says who it is")
    }

    fn group(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end.
    fn ended(&mut self) {
        let until = clock::now() + LIMIT;
        while self.child.try_wait().unwrap().is_none() {
            assert!(clock::now() < until, "the shell ends");
            thread::yield_now();
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Of this process: another one may run the same tests.
fn own(owner: &str) -> String {
    format!("{owner} of {}", std::process::id())
}

fn forward(output: Output, mut from: impl Read + Send + 'static, to: Sender<(Output, Vec<u8>)>) {
    thread::spawn(move || {
        let mut octets = vec![0; 64 << 10];
        while let Ok(read @ 1..) = from.read(&mut octets) {
            if to.send((output, octets[..read].to_vec())).is_err() {
                return;
            }
        }
    });
}

/// Those that still are in a process group, but for zombies.
fn members(group: u32) -> Vec<String> {
    let stats = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let (state, of) = (fields.next()?, fields.nth(1)?);
        (state != "Z" && of == group.to_string()).then_some(stat.clone())
    });
    stats.collect()
}

/// Waits until a process group has so many.
fn until_members(group: u32, count: usize, program: &[&str]) {
    let until = clock::now() + LIMIT;
    while members(group).len() != count {
        assert!(clock::now() < until, "{program:?}: {:?}", members(group));
        thread::yield_now();
    }
}

#[test]
fn words_reach_a_program_as_they_are_whatever_they_contain() {
    let word = prop_oneof![
        "[ -~\t\n\r]{0,12}",
        r#"['"\\$`!*?~#&|;<>(){}\[\] \n]{0,12}"#,
        "[\u{80}-\u{10ffff}]{0,6}",
        any::<String>().prop_map(|text| text.replace(|letter: char| letter.is_ascii_control(), "")),
    ];
    let words = prop::collection::vec(word, 0..6);
    for program in SHELLS {
        let shell = Mutex::new(Shell::start(program));
        let config = ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() };
        let cases = TestRunner::new(config).run(&words, |words| {
            prop_assume!(!words.iter().any(|word| word.contains("setsid")));
            let command: Vec<_> = ["/usr/bin/printf", "%s\\0", "begin"]
                .map(str::to_owned)
                .into_iter()
                .chain(words.clone())
                .collect();
            let (exit_code, output) = shell.lock().unwrap().run(&command);
            let expected: Vec<u8> =
                command[2..].iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect();
            prop_assert_eq!((exit_code, output), (0, Bytes::from(expected)));
            Ok(())
        });
        cases.unwrap_or_else(|error| panic!("{program:?}: {error}"));
    }
}

#[test]
fn exit_codes_signals_and_both_outputs_come_as_they_are() {
    for program in SHELLS {
        let mut shell = Shell::start(program);
        for code in 0..=255 {
            let command = format!("echo out; echo err >&2; exit {code}");
            assert_eq!(
                shell.run_text(&["/bin/sh", "-c", &command]),
                (code, "out\nerr\n".to_owned()),
                "{program:?}"
            );
        }
        for signal in [1, 2, 3, 6, 9, 11, 13, 14, 15, 34] {
            let command = format!("printf said; kill -{signal} $$");
            assert_eq!(
                shell.run_text(&["/bin/sh", "-c", &command]),
                (128 + signal, "said".to_owned()),
                "{program:?}"
            );
        }
        for missing in ["no-such-program", "exit", "if", "_r", "./", "/etc/passwd"] {
            let (code, _) = shell.run_text(&[missing, "3"]);
            assert!(matches!(code, 126 | 127), "{program:?} {missing}: {code}");
        }
    }
}

#[test]
fn a_command_gets_nothing_of_the_shells_own() {
    for program in SHELLS {
        let mut shell = Shell::start(program);
        let (_, status) = shell.run_text(&["/bin/cat", "/proc/self/status"]);
        let signals = |status: &str| {
            status.lines().filter(|line| line.starts_with("Sig")).skip(1).collect::<Vec<_>>().join("\n")
        };
        let ours = Command::new("/bin/cat").arg("/proc/self/status").output().unwrap().stdout;
        assert_eq!(signals(&status), signals(&String::from_utf8_lossy(&ours)), "{program:?}");
        let (_, descriptors) = shell.run_text(&["/bin/ls", "/proc/self/fd"]);
        let ours = Command::new("/bin/ls").arg("/proc/self/fd").stdin(Stdio::null()).output().unwrap().stdout;
        assert_eq!(descriptors, String::from_utf8_lossy(&ours), "{program:?}");
        let (_, stdin) = shell.run_text(&["/bin/readlink", "/proc/self/fd/0"]);
        assert_eq!(stdin, "/dev/null\n", "{program:?}");
        let (_, names) = shell.run_text(&["/usr/bin/env"]);
        assert!(names.lines().all(|line| !line.starts_with('_') || line.starts_with("_=")), "{names}");
    }
}

#[test]
fn what_a_command_sets_on_its_outputs_ends_with_it() {
    for program in SHELLS {
        let mut shell = Shell::start(program);
        let nonblocking = ["/bin/dd", "oflag=nonblock", "if=/bin/sh", "bs=100", "count=1", "status=none"];
        assert_eq!(shell.run_text(&nonblocking).0, 0, "{program:?}");
        let long = "exec /usr/bin/head -c 900000 /dev/zero";
        let (code, output) = shell.run_text(&["/bin/sh", "-c", long]);
        assert_eq!((code, output.len()), (0, 900_000), "{program:?}");
    }
}

#[test]
fn what_runs_is_killed_with_its_group_and_the_shells_go_on() {
    for program in SHELLS {
        let mut shell = Shell::start(program);
        let pid = shell.group();
        let runner = shell.runner();
        let mut capture = shell.begin(Ask::Run(" '/bin/sh' '-c' 'sleep 1000 & sleep 1000'"));
        until_members(pid, 6, program);
        let (key, pong) = (shell.key.clone(), Nonce::fresh());
        shell.send(&script::ping(&key, runner, &pong));
        capture.asked(pong);
        while !capture.is_answered() {
            let (output, octets) = shell.outputs.recv_timeout(LIMIT).expect("the reader answers");
            capture.take(output, &octets).unwrap();
        }
        shell.send(&script::kill(&key));
        assert_eq!(shell.end(capture).exit_code, 137, "{program:?}");
        until_members(pid, 3, program);
        assert_eq!(shell.run_text(&["/bin/echo", "on"]), (0, "on\n".to_owned()));
    }
}

#[test]
fn a_command_that_signals_its_group_does_not_end_the_shells() {
    for program in SHELLS {
        let mut shell = Shell::start(program);
        for signal in ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "ALRM"] {
            let (code, _) = shell.run_text(&["/bin/sh", "-c", &format!("kill -{signal} 0; sleep 1000")]);
            assert!(code > 128, "{program:?} {signal}: {code}");
            assert_eq!(shell.run_text(&["/bin/echo", "on"]), (0, "on\n".to_owned()), "{program:?} {signal}");
        }
    }
}

#[test]
fn a_command_with_a_group_of_its_own_is_killed_all_the_same() {
    for program in SHELLS {
        let mut shell = Shell::start(program);
        shell.runner();
        let line = "printf %040d 0; sleep 1000";
        let mut capture =
            shell.begin(Ask::Run(&format!(" '/usr/bin/timeout' '1000' '/bin/sh' '-c' '{line}'")));
        while capture.said() == 0 {
            let (output, octets) = shell.outputs.recv_timeout(LIMIT).expect("the command prints");
            capture.take(output, &octets).unwrap();
        }
        shell.send(&script::kill(&shell.key.clone()));
        assert_eq!(shell.end(capture).exit_code, 137, "{program:?}");
        until_members(shell.group(), 3, program);
    }
}

#[test]
fn a_ping_has_no_answer_while_no_command_runs() {
    for program in SHELLS {
        let mut shell = Shell::start(program);
        let runner = shell.runner();
        shell.send(&script::ping(&shell.key.clone(), runner, &Nonce::fresh()));
        assert_eq!(shell.run_text(&["/bin/echo", "on"]), (0, "on\n".to_owned()), "{program:?}");
    }
}

#[test]
fn a_session_ends_where_execsync_would_find_another_folder_or_no_program() {
    for program in SHELLS {
        let within = tempfile::tempdir().unwrap();
        let folder = within.path().join("work");
        fs::create_dir(&folder).unwrap();
        for name in ["empty", "full"] {
            fs::write(folder.join(name), if name == "empty" { "" } else { "#!/bin/sh\nexit 3\n" }).unwrap();
            fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let start = || {
            let mut shell = Shell::start_in(program, &own(&folder.display().to_string()), &folder, false);
            assert_eq!(shell.run_text(&["./full"]).0, 3, "{program:?}");
            shell
        };
        let mut shell = start();
        assert_eq!(shell.run_text(&["./empty"]).0, GIVEN_UP, "{program:?}");
        shell.stdin = None;
        shell.ended();
        let mut shell = start();
        fs::rename(&folder, within.path().join("moved")).unwrap();
        fs::create_dir(&folder).unwrap();
        assert_eq!(shell.run_text(&["/bin/echo", "on"]).0, GIVEN_UP, "{program:?}");
        shell.stdin = None;
        shell.ended();
    }
}

/// The kernel does not open a socket again, as it does a pipe.
#[test]
fn a_command_whose_outputs_cannot_be_opened_is_left_to_execsync() {
    for program in SHELLS {
        let mut shell = Shell::start_in(program, &own("socket"), Path::new("/"), true);
        assert_eq!(shell.run_text(&["/bin/true"]), (127, String::new()), "{program:?}");
    }
}

/// A process may give itself the first line of a session, and a name that looks like the numbers of another process.
#[test]
fn what_looks_like_an_earlier_session_has_no_other_process_killed() {
    for program in SHELLS {
        let owner = own(&format!("imitated {program:?}"));
        let mut victim = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let line = format!(
            "# exec session of criprobe at {owner}\nprintf 'x) S 1 {}\\n' >/proc/$$/comm && echo ready; read ended",
            victim.id()
        );
        let (shell, arguments) = program.split_first().unwrap();
        let mut imitator = Command::new(shell)
            .args(arguments)
            .args(["-c", &line])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        imitator.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        assert_eq!(&ready, b"ready\n", "{program:?}");
        Shell::start_for(program, &owner).runner();
        assert_eq!(victim.try_wait().unwrap(), None, "{program:?}");
        assert_eq!(imitator.try_wait().unwrap(), None, "{program:?}: it leads no session");
        for child in [&mut victim, &mut imitator] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

#[test]
fn all_ends_when_the_stream_closes_also_in_the_middle_of_a_command() {
    for program in SHELLS {
        let mut shell = Shell::start(program);
        let pid = shell.group();
        let _ = shell.begin(Ask::Run(" '/bin/sh' '-c' 'sleep 1000 & sleep 1000'"));
        until_members(pid, 6, program);
        shell.stdin = None;
        shell.ended();
        until_members(pid, 0, program);
    }
}

#[test]
fn a_new_session_removes_stopped_ones_of_the_same_owner_and_no_others() {
    for program in SHELLS {
        let owner = |owner: &str| Shell::start_for(program, &own(&format!("{owner} {program:?}")));
        let (mut stopped, mut other) = (owner("one"), owner("other"));
        stopped.runner();
        let _ = stopped.begin(Ask::Run(" '/bin/sh' '-c' 'kill -STOP 0'"));
        owner("one").runner();
        stopped.ended();
        assert_eq!(other.run_text(&["/bin/echo", "on"]), (0, "on\n".to_owned()), "{program:?}");
    }
}
