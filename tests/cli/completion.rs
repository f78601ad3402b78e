//! The script for bash, in a real bash: what it completes with a daemon, and without one.

use criprobe::clock;

use super::*;

/// The words that bash would go on with after this line.
fn completed(api: &Path, line: &str) -> (Vec<String>, String) {
    let words: Vec<_> = line.split(' ').collect();
    let script = format!(
        "source <(criprobe completion bash)\nCOMP_WORDS=({line}); [[ '{line}' == *' ' ]] && COMP_WORDS+=('')\n\
         COMP_CWORD={}\nCOMP_TYPE=9\n_clap_complete_criprobe criprobe '{}' '{}'\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.len() - 1,
        words[words.len() - 1],
        words[words.len() - 2],
    );
    let binaries = Path::new(env!("CARGO_BIN_EXE_criprobe")).parent().unwrap().display().to_string();
    let output = Command::new("bash")
        .args(["--noprofile", "--norc", "-c", &script])
        .env_clear()
        .env("PATH", format!("{binaries}:/usr/local/bin:/usr/bin:/bin"))
        .env("CRIPROBE_API", api)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let words = text(&output.stdout).lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
    (words, text(&output.stderr))
}

#[test]
fn bash_completes_what_the_daemon_knows_at_that_moment() {
    let daemon = Daemon::start();
    let api = daemon.dir.path().join("api.sock");
    let hostile = ProbeView {
        id: "default/$(reboot)/app/liveness".to_owned(),
        pod: "$(reboot)".to_owned(),
        key: "v/app/liveness".to_owned(),
        ..probe()
    };
    daemon.probes.send_replace(vec![probe(), hostile]);
    for (line, expected) in [
        ("criprobe trig", vec!["trigger"]),
        (
            "criprobe trigger def",
            vec!["default/web", "default/web/app", "default/web/app/liveness", "default/web/log"],
        ),
        ("criprobe trigger default/web/app/", vec!["default/web/app/liveness"]),
        ("criprobe wait default/we", vec!["default/web", "default/web/app", "default/web/log"]),
        (
            "criprobe pause default/web",
            vec!["default/web", "default/web/app", "default/web/app/liveness", "default/web/log"],
        ),
        ("criprobe probes -n ", vec!["default"]),
        ("criprobe probes --pod w", vec!["web"]),
        ("criprobe probes --type live", vec!["liveness"]),
        ("criprobe wait default/web --for h", vec!["healthy"]),
        ("criprobe probes --output y", vec!["yaml"]),
    ] {
        let (found, stderr) = completed(&api, line);
        assert_eq!(
            (found.iter().map(String::as_str).collect::<Vec<_>>(), &*stderr),
            (expected, ""),
            "{line}"
        );
    }
    daemon.probes.send_replace(Vec::new());
    assert_eq!(completed(&api, "criprobe trigger default/web/app/").0, Vec::<String>::new(), "it is gone");
}

#[test]
fn without_a_daemon_bash_completes_the_rest_without_delay() {
    let dir = tempfile::tempdir().unwrap();
    let silent = dir.path().join("silent.sock");
    let _listener = UnixListener::bind(&silent).unwrap();
    for api in [dir.path().join("missing.sock"), silent] {
        let began = clock::now();
        assert_eq!(completed(&api, "criprobe trigger def"), (Vec::new(), String::new()));
        // 300 ms, and what three processes take on a busy machine; without its own limit, an answer is waited for 10 s.
        assert!(clock::now() - began < Duration::from_secs(8));
        assert_eq!(completed(&api, "criprobe probes --che"), (vec!["--check".to_owned()], String::new()));
    }
}

#[test]
fn a_script_for_each_shell_is_printed_and_nothing_else_is_known() {
    for shell in ["bash", "zsh", "fish"] {
        let output = criprobe(Path::new("/nowhere"), &format!("completion {shell}")).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
        assert!(text(&output.stdout).contains("_CRIPROBE_COMPLETE"), "{shell}");
    }
    for arguments in ["completion tcsh", "completion bash -o json", "completion bash --api /x"] {
        let output = criprobe(Path::new("/nowhere"), arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert_eq!(text(&output.stderr).lines().count(), 1, "{arguments}");
    }
}
