//! node.sh on a scratch node: a folder for its /, a script for its systemd, and a fake criprobe with the answers of the test.
//! What is checked is what is on the disk, and what systemd was asked.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

/// A fake criprobe: answers unless its text says not to, or somebody uses it.
const CRIPROBE: &str = r#"#!/bin/sh
# VERSION
case "$*" in
    --version) echo "criprobe VERSION" ;;
    check*) if grep -q wrong "$2"; then echo "$2: error" >&2; exit 1; fi ;;
    *answering) if grep -q '^# .*DEAD' "$NODE/opt/criprobe/bin/criprobe"; then echo "no answer" >&2; exit 1; fi ;;
    *unused) if [ -e "$NODE/in-use" ]; then echo "in use" >&2; exit 1; fi ;;
    *) exit 2 ;;
esac
"#;

/// A fake systemctl: notes what it is asked.
const SYSTEMCTL: &str = r#"#!/bin/sh
echo "$*" >> "$NODE/asked"
case "$*" in
    show*)
        unit=/etc/systemd/system/criprobe.service
        if [ -e "$NODE/fragment" ]; then cat "$NODE/fragment"; elif [ -e "$NODE$unit" ]; then echo $unit; fi ;;
    "restart criprobe.service") if [ -e "$NODE/cut" ]; then kill -9 $PPID; fi ;;
    disable*) [ -e "$NODE/etc/systemd/system/$3" ] ;;
    is-active*) [ ! -e "$NODE/stopped" ] ;;
esac
"#;

/// A fake command that changes files: before the one of this number, everything is killed.
const SHIM: &str = r#"#!/bin/sh
count=$(($(cat "$NODE/../count" 2>/dev/null) + 1))
echo $count > "$NODE/../count"
if [ $count = "$CUT" ]; then kill -9 0; fi
PATH=${PATH#*:}
exec COMMAND "$@"
"#;

const UNIT: &str = "[Service]\nExecStart=/usr/bin/criprobe serve\nRestartKillSignal=SIGUSR1\n";

struct Fleet {
    dir: TempDir,
}

impl Fleet {
    fn new() -> Self {
        let fleet = Self { dir: tempfile::tempdir().unwrap() };
        fleet.image("1");
        fleet.write("systemctl", SYSTEMCTL, 0o755);
        fleet.write("config/config.yaml", "log: {level: info}\n", 0o644);
        fleet.write("rules/web.yaml", "rules: []\n", 0o644);
        fleet.write("node/etc/passwd", "", 0o644);
        fleet
    }

    /// What the next pod brings.
    fn image(&self, version: &str) {
        self.write("image/bin/criprobe", &CRIPROBE.replace("VERSION", version), 0o755);
        self.write("image/units/criprobe.service", UNIT, 0o644);
        self.write("image/units/criprobe.socket", "[Socket]\n", 0o644);
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn write(&self, path: &str, content: &str, mode: u32) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Ends the script with SIGKILL before the Nth command by which it changes files.
    fn run_until(&self, verb: &str, cut: usize) -> Output {
        for command in ["cp", "mkdir", "mv", "rm", "chmod"] {
            self.write(&format!("shims/{command}"), &SHIM.replace("COMMAND", command), 0o755);
        }
        let _ = fs::remove_file(self.at("count"));
        let path = format!("{}:{}", self.at("shims").display(), std::env::var("PATH").unwrap());
        self.command(verb).env("PATH", path).env("CUT", cut.to_string()).process_group(0).output().unwrap()
    }

    fn run(&self, verb: &str) -> Output {
        self.command(verb).output().unwrap()
    }

    fn command(&self, verb: &str) -> Command {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/kubernetes/node.sh");
        let _ = fs::remove_file(self.at("node/asked"));
        let mut command = Command::new(script);
        command
            .arg(verb)
            .env("ROOT", self.at("node"))
            .env("NODE", self.at("node"))
            .env("SOURCE", self.at("image"))
            .env("CONFIG", self.at("config"))
            .env("RULES", self.at("rules"))
            .env("SYSTEMCTL", self.at("systemctl"))
            .env("MARK", self.at("mark"))
            .env("PATIENCE", "0");
        command
    }

    /// All files, with what is in them.
    fn tree(&self) -> Vec<(String, Option<String>)> {
        self.files().into_iter().map(|file| (file.clone(), self.node(&file))).collect()
    }

    /// Runs a verb, which ends with this code, and returns what it says and what systemd was asked.
    fn runs(&self, verb: &str, code: i32) -> (String, String) {
        let output = self.run(verb);
        let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{verb}: {said}");
        (said, fs::read_to_string(self.at("node/asked")).unwrap_or_default())
    }

    fn node(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.at("node").join(path)).ok()
    }

    /// What is on the node, but for what the stand-ins leave there.
    fn files(&self) -> Vec<String> {
        fn walk(folder: &Path, into: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { walk(&path, into) } else { into.push(path) }
            }
        }
        let mut files = Vec::new();
        walk(&self.at("node"), &mut files);
        let node = self.at("node");
        let mut files: Vec<_> =
            files.iter().map(|file| file.strip_prefix(&node).unwrap().display().to_string()).collect();
        files.retain(|file| !matches!(&**file, "asked" | "etc/passwd" | "fragment" | "in-use" | "stopped"));
        files.sort();
        files
    }
}

#[test]
fn a_node_is_installed_once_and_left_alone_then() {
    let fleet = Fleet::new();
    let (said, asked) = fleet.runs("install", 0);
    assert!(said.contains("installed criprobe 1"), "{said}");
    assert_eq!(
        fleet.files(),
        [
            "etc/criprobe/conf.d/fleet-web.yaml",
            "etc/criprobe/config.yaml",
            "etc/systemd/system/criprobe.service",
            "etc/systemd/system/criprobe.socket",
            "opt/criprobe/bin/criprobe",
            "opt/criprobe/files",
        ]
    );
    let unit = fleet.node("etc/systemd/system/criprobe.service").unwrap();
    assert_eq!(unit, UNIT.replace("/usr/bin", "/opt/criprobe/bin"));
    let mode = |path: &str| fs::metadata(fleet.at("node").join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("opt/criprobe/bin/criprobe"), mode("etc/criprobe/config.yaml")), (0o755, 0o600));
    assert!(
        asked.ends_with(
            "daemon-reload\nenable criprobe.socket\nenable criprobe.service\nstart criprobe.socket\nrestart criprobe.service\n"
        ),
        "{asked}"
    );
    let (said, asked) = fleet.runs("install", 0);
    assert_eq!((&*said, asked.contains("restart")), ("", false), "{asked}");
}

#[test]
fn a_new_image_or_rule_is_an_upgrade_and_what_is_gone_goes() {
    let fleet = Fleet::new();
    fleet.runs("install", 0);
    fleet.image("2");
    fs::remove_file(fleet.at("rules/web.yaml")).unwrap();
    fs::remove_file(fleet.at("image/units/criprobe.socket")).unwrap();
    fleet.write("rules/shop.yaml", "rules: []\n", 0o644);
    let (said, asked) = fleet.runs("install", 0);
    assert!(said.contains("installed criprobe 2"), "{said}");
    assert!(asked.contains("disable --now criprobe.socket"), "{asked}");
    assert_eq!(fleet.node("etc/criprobe/conf.d/fleet-web.yaml"), None);
    assert!(fleet.node("etc/criprobe/conf.d/fleet-shop.yaml").is_some());
    assert_eq!(fleet.node("etc/systemd/system/criprobe.socket"), None);
}

#[test]
fn a_build_that_the_signal_of_restarts_would_kill_is_stopped_and_any_other_is_not() {
    let fleet = Fleet::new();
    fleet.write("image/units/criprobe.service", "[Service]\nExecStart=/usr/bin/criprobe serve\n", 0o644);
    fleet.runs("install", 0);
    for (version, is_stopped) in [("2", true), ("3", false)] {
        fleet.image(version);
        let (_, asked) = fleet.runs("install", 0);
        assert_eq!(
            asked.ends_with("stop criprobe.service\nrestart criprobe.service\n"),
            is_stopped,
            "{version}: {asked}"
        );
    }
}

#[test]
fn a_version_that_does_not_answer_is_undone_and_not_tried_again() {
    let fleet = Fleet::new();
    fleet.runs("install", 0);
    let before = fleet.tree();
    fleet.image("2 DEAD");
    fs::rename(fleet.at("rules/web.yaml"), fleet.at("rules/shop.yaml")).unwrap();
    fs::remove_file(fleet.at("image/units/criprobe.socket")).unwrap();
    let (said, asked) = fleet.runs("install", 1);
    assert!(
        said.contains("the former version answers again") && said.contains("this version was undone"),
        "{said}"
    );
    assert_eq!(asked.matches("restart criprobe.service").count(), 2, "{asked}");
    for (file, content) in before {
        assert_eq!(fleet.node(&file), content, "{file}");
    }
    assert_eq!(fleet.node("etc/criprobe/conf.d/fleet-shop.yaml"), None);
    let (said, asked) = fleet.runs("install", 1);
    assert!(said.contains("this version failed on this node before"), "{said}");
    assert!(!asked.contains("restart"), "{asked}");
    fleet.image("3");
    let (said, _) = fleet.runs("install", 0);
    assert!(said.contains("installed criprobe 3"), "{said}");
}

#[test]
fn a_run_that_was_cut_off_is_finished_or_undone_by_the_next_one() {
    let fleet = Fleet::new();
    fleet.runs("install", 0);
    fleet.image("2 DEAD");
    fleet.write("rules/shop.yaml", "rules: []\n", 0o644);
    fleet.write("node/cut", "", 0o644);
    assert_eq!(fleet.run("install").status.code(), None);
    fs::remove_file(fleet.at("node/cut")).unwrap();
    assert!(fleet.node("opt/criprobe/bin/criprobe").unwrap().contains("# 2 DEAD"));
    let (said, _) = fleet.runs("install", 1);
    assert!(said.contains("the former version answers again"), "{said}");
    assert!(fleet.node("opt/criprobe/bin/criprobe").unwrap().contains("# 1\n"));
    assert_eq!(fleet.node("etc/criprobe/conf.d/fleet-shop.yaml"), None);
    assert_eq!(fleet.node("opt/criprobe/pending"), None);
}

#[test]
fn whichever_step_a_run_is_killed_at_the_next_one_ends_as_if_it_had_not_been() {
    type Change = fn(&Fleet);
    let rows: [(&str, &str, i32, Change); 4] = [
        ("a first installation", "install", 0, |_| ()),
        ("an upgrade with other files", "install", 0, |fleet| {
            fleet.runs("install", 0);
            fleet.image("2");
            fs::rename(fleet.at("rules/web.yaml"), fleet.at("rules/shop.yaml")).unwrap();
            fs::remove_file(fleet.at("image/units/criprobe.socket")).unwrap();
        }),
        ("an upgrade that is undone", "install", 1, |fleet| {
            fleet.runs("install", 0);
            fleet.image("2 DEAD");
            fs::rename(fleet.at("rules/web.yaml"), fleet.at("rules/shop.yaml")).unwrap();
            fs::remove_file(fleet.at("image/units/criprobe.socket")).unwrap();
        }),
        ("a removal", "uninstall", 0, |fleet| drop(fleet.runs("install", 0))),
    ];
    for (what, verb, code, change) in rows {
        let expected = {
            let fleet = Fleet::new();
            change(&fleet);
            fleet.runs(verb, code);
            fleet.tree()
        };
        for cut in (1..).step_by(2) {
            assert!(cut < 200, "{what} never ends");
            let fleet = Fleet::new();
            change(&fleet);
            if fleet.run_until(verb, cut).status.code().is_some() {
                assert!(cut > 5, "{what}: {cut}");
                break;
            }
            fleet.runs(verb, code);
            assert_eq!(fleet.tree(), expected, "{what}, cut before change {cut}");
        }
    }
}

#[test]
fn a_file_that_cannot_be_written_whole_is_not_written_at_all() {
    let fleet = Fleet::new();
    fleet.runs("install", 0);
    fleet.image("2");
    let obstacle = fleet.at("node/opt/criprobe/bin/criprobe.criprobe-new");
    fs::create_dir(&obstacle).unwrap();
    let (said, asked) = fleet.runs("install", 1);
    assert!(
        said.contains("cannot write ") && said.contains("bin/criprobe; the next attempt goes on here"),
        "{said}"
    );
    assert!(fleet.node("opt/criprobe/bin/criprobe").unwrap().contains("# 1\n") && !asked.contains("restart"));
    fs::remove_dir(obstacle).unwrap();
    fleet.runs("install", 0);
    assert!(fleet.node("opt/criprobe/bin/criprobe").unwrap().contains("# 2\n"));
}

#[test]
fn a_first_version_that_does_not_answer_leaves_no_trace_and_may_try_again() {
    let fleet = Fleet::new();
    fleet.image("1 DEAD");
    let (said, asked) = fleet.runs("install", 1);
    assert!(said.contains("this version was undone"), "{said}");
    assert!(asked.contains("disable --now criprobe.service"), "{asked}");
    assert_eq!(fleet.files(), [""; 0]);
    fleet.image("1");
    fleet.runs("install", 0);
}

#[test]
fn what_is_wrong_is_found_before_anything_changes() {
    type Break = fn(&Fleet);
    let rows: [(Break, &str); 8] = [
        (
            |fleet| fleet.write("rules/shop.yml", "rules: []\n", 0o644),
            "criprobe-rules: rename shop.yml to NAME.yaml",
        ),
        (
            |fleet| fleet.write("node/etc/criprobe/conf.d/own.yaml", "wrong\n", 0o600),
            "own.yaml is wrong: nothing was installed",
        ),
        (
            |fleet| fleet.write("image/bin/criprobe", "#!/bin/sh\nexit 127\n", 0o755),
            "bin/criprobe does not run in this pod",
        ),
        (
            |fleet| fleet.write("node/etc/criprobe/config.yaml", "log: {level: debug}\n", 0o600),
            "/etc/criprobe/config.yaml is there already, and was not installed by this",
        ),
        (|fleet| fleet.write("rules/web.yaml", "wrong\n", 0o644), "web.yaml is wrong: nothing was installed"),
        (
            |fleet| fleet.write("node/fragment", "/usr/lib/systemd/system/criprobe.service\n", 0o644),
            "criprobe is installed on this node as /usr/lib/systemd/system/criprobe.service",
        ),
        (
            |fleet| fleet.write("node/fragment", "/etc/systemd/system/criprobe.service\n", 0o644),
            "was not installed by this",
        ),
        (|fleet| fs::remove_file(fleet.at("image/bin/criprobe")).unwrap(), "there is no criprobe at"),
    ];
    for (break_, says) in rows {
        let fleet = Fleet::new();
        break_(&fleet);
        let before = fleet.files();
        let (said, asked) = fleet.runs("install", 1);
        assert!(said.contains(says), "{says}: {said}");
        assert!(fleet.files() == before && !asked.contains("restart"), "{says}: {:?} {asked}", fleet.files());
    }
}

#[test]
fn a_criprobe_that_somebody_has_stopped_is_not_started() {
    let fleet = Fleet::new();
    fleet.runs("install", 0);
    fleet.write("node/stopped", "", 0o644);
    let (said, asked) = fleet.runs("install", 1);
    assert!(said.contains("criprobe is stopped on this node") && !asked.contains("restart"), "{said}{asked}");
}

#[test]
fn a_node_that_uses_criprobe_keeps_it_and_another_is_cleared() {
    let fleet = Fleet::new();
    fleet.runs("install", 0);
    let files = fleet.files();
    fs::remove_file(fleet.at("node/etc/passwd")).unwrap();
    let (said, _) = fleet.runs("uninstall", 1);
    assert!(said.contains("cannot see where the kubelet points"), "{said}");
    fleet.write("node/etc/passwd", "", 0o644);
    fleet.write("node/in-use", "", 0o644);
    let (said, asked) = fleet.runs("uninstall", 1);
    assert!(said.contains("switch back first: 'criprobe node revert'"), "{said}");
    assert_eq!((fleet.files(), asked), (files, String::new()));
    fs::remove_file(fleet.at("node/in-use")).unwrap();
    let (said, asked) = fleet.runs("uninstall", 0);
    assert!(
        said.contains("uninstalled") && asked.contains("disable --now criprobe.service"),
        "{said}{asked}"
    );
    assert_eq!(fleet.files(), [""; 0]);
    let (said, _) = fleet.runs("uninstall", 0);
    assert!(said.contains("nothing is installed"), "{said}");
}
