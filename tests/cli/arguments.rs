//! Arguments: wrong ones, help, and a daemon out of reach.

use super::*;

#[test]
fn wrong_arguments_end_with_2_and_one_line() {
    for (arguments, says) in [
        ("evnts", "there is no verb 'evnts'; did you mean events?"),
        ("probes --colour", "'probes' has no option --colour"),
        ("probes --type alive", "not a type: write one of startup, readiness, liveness"),
        ("status -o xml", "invalid value 'xml'"),
        (
            "--api http://localhost status",
            "--api: \"http://localhost\" is not a Unix socket: write unix:///PATH",
        ),
        ("--api api.sock status", "--api: \"api.sock\" is not an absolute path: write unix:///PATH"),
        ("--api= status", "--api: empty: write unix:///PATH"),
        (
            "trace --slower 5",
            "the unit is missing: write a duration such as 250ms, 5s or 1m30s; see 'criprobe trace --help'",
        ),
        (
            "pause web",
            "write NAMESPACE/POD, NAMESPACE/POD/CONTAINER, NAMESPACE/POD/CONTAINER/TYPE or POD_UID/CONTAINER/TYPE; see 'criprobe pause --help'",
        ),
        ("run a/b/c", "missing: one of --probe <TYPE>"),
        ("run a/b/c --http-get host/", "the scheme is missing before the host"),
        ("serve -o json", "choose the log format with --log-format; see 'criprobe serve --help'"),
        ("demo --api /a.sock", "choose the folder with --dir; see 'criprobe demo --help'"),
    ] {
        let output = criprobe(Path::new("/nowhere"), arguments).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {stderr}");
        assert!(stderr.starts_with("criprobe: ") && stderr.contains(says), "{arguments}: {stderr}");
        assert_eq!(
            (stderr.lines().count(), text(&output.stdout)),
            (1, String::new()),
            "{arguments}: {stderr}"
        );
    }
}

#[test]
fn a_configuration_in_this_folder_is_read_as_one_in_any_other() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("bad.yaml"), "prober: {workers: many}\n").unwrap();
    for file in ["bad.yaml", "./bad.yaml"] {
        let mut serve = Command::new(env!("CARGO_BIN_EXE_criprobe"));
        let output = serve.args(["serve", "--config", file]).current_dir(dir.path()).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(78), "{file}: {stderr}");
        assert!(stderr.contains("prober.workers"), "{file}: {stderr}");
    }
}

#[test]
fn help_and_version_end_with_0_and_no_verb_with_2() {
    for (arguments, code) in
        [("--help", 0), ("trace --help", 0), ("help trace", 0), ("--version", 0), ("", 2)]
    {
        let output = criprobe(Path::new("/nowhere"), arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments}");
        assert_eq!(output.stdout.is_empty(), code != 0, "{arguments}");
    }
}

#[test]
fn a_daemon_out_of_reach_ends_with_3_and_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing.sock");
    let dead = dir.path().join("dead.sock");
    drop(UnixListener::bind(&dead).unwrap());
    let foreign = dir.path().join("foreign.sock");
    let listener = UnixListener::bind(&foreign).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ =
                std::io::Write::write_all(&mut stream.unwrap(), b"\0\0\x06\x04\0\0\0\0\0\0\x05\0\0\x40\0");
        }
    });
    for (socket, says) in [
        (&missing, "the socket does not exist; is 'criprobe serve' running?"),
        (&dead, "no process listens on it; is 'criprobe serve' running?"),
        (&foreign, "is this criprobe's API socket?"),
    ] {
        for verb in [
            "status",
            "probes",
            "probes -w",
            "trace",
            "events",
            "pods",
            "describe a/b/c",
            "config show",
            "pause a/b",
            "wait a/b --for ready",
            "pause a/b/c/liveness",
            "resume a/b/c/liveness",
            "trigger a/b/liveness",
            "run a/b/c --tcp 80",
        ] {
            let output = criprobe(socket, verb).output().unwrap();
            let stderr = text(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{verb}: {stderr}");
            let start = format!("criprobe: cannot reach the daemon at unix://{}: ", socket.display());
            assert!(stderr.starts_with(&start) && stderr.contains(says), "{stderr}");
            assert_eq!(stderr.lines().count(), 1, "{stderr}");
        }
    }
    let version = criprobe(&missing, "version -o json").output().unwrap();
    assert_eq!(version.status.code(), Some(0));
    assert!(text(&version.stdout).contains(r#""daemon": null"#));
}
