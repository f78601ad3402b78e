//! `criprobe node` on a scratch node: its files below a folder, a real relay before the embedded runtime.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

use criprobe::{
    clock,
    demo::{EmbeddedRuntime, Options},
    proto::cri::{
        PodSandboxConfig, PodSandboxMetadata, RunPodSandboxRequest,
        runtime_service_client::RuntimeServiceClient,
    },
};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::text;

const KUBELET: &str = "var/lib/kubelet/config.yaml";
const CRICTL: &str = "etc/crictl.yaml";
const OLD: &str = "unix:///run/containerd/containerd.sock";
const NEW: &str = "unix:///run/criprobe/criprobe.sock";
const CONFIG: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n# the runtime\n\
                      containerRuntimeEndpoint: OLD # by hand\nmaxPods: 110\n";
const CRICTL_CONFIG: &str = "runtime-endpoint: OLD\ntimeout: 2\n";

/// How long a daemon may take to be ready, and to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// A node below a folder.
struct Node {
    daemon: Child,
    /// Dropped before the folder that it lives in.
    runtime: Option<EmbeddedRuntime>,
    tokio: Runtime,
    root: TempDir,
}

impl Node {
    fn start() -> Self {
        let root = tempfile::tempdir().unwrap();
        let tokio = Runtime::new().unwrap();
        let runtime = runtime_at(&tokio, root.path(), "containerd");
        let url = |path: &str| format!("unix://{}/{path}", root.path().display());
        let daemon = Command::new(env!("CARGO_BIN_EXE_criprobe"))
            .args(["serve", "--listen", &url("run/criprobe/criprobe.sock"), "--api", &url("api.sock")])
            .args(["--runtime", &url("run/containerd/containerd.sock")])
            .env("CRIPROBE_STATE", root.path().join("state"))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let node = Self { daemon, runtime: Some(runtime), tokio, root };
        let began = clock::now();
        while !node.command(&["status"]).output().unwrap().status.success() {
            assert!(clock::now() - began < PATIENCE, "the daemon is not ready");
            thread::sleep(Duration::from_millis(10));
        }
        node
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    /// Writes a file, with its folders; OLD and NEW stand for the endpoints.
    fn write(&self, path: &str, content: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, long(content)).unwrap();
    }

    /// Only these two files are there.
    fn reset(&self, kubelet: &str, crictl: &str) {
        for folder in ["etc", "var", "proc", "usr", "lib"] {
            let _ = fs::remove_dir_all(self.at(folder));
        }
        self.write(KUBELET, kubelet);
        self.write(CRICTL, crictl);
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_criprobe"));
        command.args(arguments).env_clear().env("CRIPROBE_API", self.at("api.sock")).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &str) -> Output {
        let root = self.root.path().display().to_string();
        let mut all = vec!["node", "--root", &root];
        all.extend(arguments.split(' '));
        self.command(&all).output().unwrap()
    }

    /// Runs a verb that must work, and returns what it prints.
    fn works(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!((output.status.code(), &*err), (Some(0), ""), "{arguments}: {out}");
        out.replace(&format!("{}", self.root.path().display()), "ROOT")
    }

    /// Runs a verb that must fail in one line, and returns this line.
    fn fails(&self, arguments: &str, code: i32) -> String {
        let output = self.run(arguments);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{arguments}: {out}{err}");
        assert!(err.starts_with("criprobe: ") && err.lines().count() == 1, "{arguments}: {err}");
        err.replace(&format!("{}", self.root.path().display()), "ROOT")
    }

    /// All files of the node's configuration, with what is in them.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        fn walk(folder: &Path, into: &mut Vec<(PathBuf, Vec<u8>)>) {
            for entry in fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, into);
                } else {
                    into.push((path.clone(), fs::read(&path).unwrap_or_default()));
                }
            }
        }
        let mut files = Vec::new();
        ["etc", "var"].iter().for_each(|folder| walk(&self.at(folder), &mut files));
        files.sort();
        files
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap()
    }

    fn run_pod(&self, name: &str) {
        let metadata = PodSandboxMetadata {
            name: name.into(),
            namespace: "default".into(),
            uid: format!("uid-{name}"),
            ..PodSandboxMetadata::default()
        };
        let config = PodSandboxConfig { metadata: Some(metadata), ..PodSandboxConfig::default() };
        let socket = self.at("run/containerd/containerd.sock");
        let request = RunPodSandboxRequest { config: Some(config), ..RunPodSandboxRequest::default() };
        let made = self.tokio.block_on(async {
            RuntimeServiceClient::new(criprobe::runtime::channel(socket)).run_pod_sandbox(request).await
        });
        made.unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.daemon);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let began = clock::now();
        while self.daemon.try_wait().is_ok_and(|ended| ended.is_none()) && clock::now() - began < PATIENCE {
            thread::sleep(Duration::from_millis(5));
        }
        let _ = self.daemon.kill();
        if let Some(runtime) = self.runtime.take() {
            self.tokio.block_on(runtime.shutdown());
        }
    }
}

fn runtime_at(tokio: &Runtime, root: &Path, name: &str) -> EmbeddedRuntime {
    let _entered = tokio.enter();
    fs::create_dir_all(root.join("run").join(name)).unwrap();
    let socket = root.join(format!("run/{name}/{name}.sock"));
    EmbeddedRuntime::start(Options::new(socket, root.join(format!("{name}-pods")))).unwrap()
}

fn long(text: &str) -> String {
    text.replace("OLD", OLD).replace("NEW", NEW)
}

#[test]
fn files_are_switched_and_reverted_to_the_byte() {
    let node = Node::start();
    let kind = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    let json = "{\"kind\": \"KubeletConfiguration\", \"apiVersion\": \"kubelet.config.k8s.io/v1beta1\",\n \
                \"containerRuntimeEndpoint\": \"OLD\"}\n";
    for (kubelet, crictl, switched, crictl_switched) in [
        (
            CONFIG.to_owned(),
            CRICTL_CONFIG,
            CONFIG.replace("OLD", "NEW"),
            "runtime-endpoint: NEW\ntimeout: 2\n",
        ),
        (
            kind.replace('\n', "\r\n") + "containerRuntimeEndpoint: \"OLD\"\r\n",
            "timeout: 2 # no endpoint",
            kind.replace('\n', "\r\n") + "containerRuntimeEndpoint: \"NEW\"\r\n",
            "runtime-endpoint: NEW\ntimeout: 2 # no endpoint",
        ),
        (
            json.to_owned(),
            "image-endpoint: /run/containerd/containerd.sock\nruntime-endpoint: 'OLD'\n",
            json.replace("OLD", "NEW"),
            "image-endpoint: NEW\nruntime-endpoint: 'NEW'\n",
        ),
        (
            kind.to_owned() + "maxPods: 110\n",
            "runtime-endpoint: OLD\nimage-endpoint: unix:///run/images.sock\n",
            kind.to_owned() + "containerRuntimeEndpoint: NEW\nmaxPods: 110\n",
            "runtime-endpoint: NEW\nimage-endpoint: unix:///run/images.sock\n",
        ),
    ] {
        node.reset(&kubelet, crictl);
        fs::set_permissions(node.at(KUBELET), fs::Permissions::from_mode(0o604)).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(node.at(KUBELET), Some(7), Some(8)).unwrap();
        }
        let attribute = |path| {
            let mut value = [0; 9];
            rustix::fs::getxattr(path, "user.note", &mut value[..]).map(|length| value[..length].to_vec())
        };
        // Not every file system has them.
        let _ =
            rustix::fs::setxattr(node.at(KUBELET), "user.note", b"by hand", rustix::fs::XattrFlags::empty());
        let note = attribute(node.at(KUBELET));
        let (files, meta) = (node.files(), fs::metadata(node.at(KUBELET)).unwrap());

        let tried = node.works("switch --dry-run");
        assert_eq!(node.files(), files, "{tried}");
        assert!(
            tried.contains("--- ROOT/var/lib/kubelet/config.yaml\n+++ ") && tried.contains(NEW),
            "{tried}"
        );
        assert!(tried.ends_with("nothing was changed\n"), "{tried}");
        node.works("status --check unused");
        node.works("status --check answering");

        let done = node.works("switch");
        assert!(done.contains("systemctl restart kubelet") && done.contains("the same socket"), "{done}");
        assert_eq!((node.read(KUBELET), node.read(CRICTL)), (long(&switched), long(crictl_switched)));
        let now = fs::metadata(node.at(KUBELET)).unwrap();
        assert_eq!((now.mode(), now.uid(), now.gid()), (meta.mode(), meta.uid(), meta.gid()));
        assert_eq!(attribute(node.at(KUBELET)), note);
        let used = node.fails("status --check unused", 1);
        assert!(used.contains("in use: the kubelet points at criprobe in ROOT/var"), "{used}");
        let again = node.works("switch");
        assert!(again.contains("the kubelet points at criprobe already"), "{again}");
        assert_eq!(node.read(KUBELET), long(&switched));

        let tried = node.works("revert --dry-run");
        assert!(tried.contains("nothing was changed") && node.read(KUBELET) == long(&switched), "{tried}");
        let back = node.works("revert");
        assert!(back.contains("restored ROOT/var/lib/kubelet/config.yaml from its backup"), "{back}");
        assert_eq!(node.files(), files);
        assert_eq!(fs::metadata(node.at(KUBELET)).unwrap().ino(), meta.ino());
        assert_eq!(node.works("revert"), "nothing points at criprobe\n");
    }
}

#[test]
fn of_a_file_that_changed_since_only_the_endpoint_is_set_back() {
    let node = Node::start();
    node.reset(CONFIG, CRICTL_CONFIG);
    node.works("switch");
    node.write(KUBELET, &(CONFIG.replace("OLD", "NEW") + "cpuManagerPolicy: none\n"));
    node.write(CRICTL, "runtime-endpoint: unix:///run/elsewhere.sock\n");
    let back = node.works("revert");
    assert!(
        back.contains("config.yaml has changed since the backup was made: only containerRuntimeEndpoint"),
        "{back}"
    );
    assert!(back.contains("crictl.yaml no longer points at criprobe, and is left as it is"), "{back}");
    assert_eq!(node.read(KUBELET), long(&(CONFIG.to_owned() + "cpuManagerPolicy: none\n")));
    assert_eq!(node.files().len(), 2, "no backup is left");

    node.write(KUBELET, &CONFIG.replace("OLD", "NEW"));
    let no_backup = node.fails("revert", 1);
    assert!(no_backup.contains("there is no backup") && no_backup.contains("--to URL"), "{no_backup}");
    node.works("revert --to /run/containerd/containerd.sock");
    assert_eq!((node.read(KUBELET), node.files().len()), (long(CONFIG), 2));
}

#[test]
fn what_cannot_be_done_is_said_in_one_line_and_nothing_is_done() {
    type Break = fn(&Node);
    let node = Node::start();
    let rows: [(&str, Break, &str); 22] = [
        (
            "switch",
            |node| node.write(KUBELET, &(CONFIG.to_owned() + &"# long\n".repeat(200_000))),
            "config.yaml has more than 1024 KiB",
        ),
        (
            "revert",
            |node| {
                node.write(CRICTL, "runtime-endpoint: NEW\n");
                symlink("real.yaml", node.at("etc/crictl.yaml.criprobe-backup")).unwrap();
                node.write("etc/real.yaml", "runtime-endpoint: OLD\n");
            },
            "crictl.yaml.criprobe-backup is a symbolic link to real.yaml",
        ),
        (
            "revert",
            |node| {
                node.write(CRICTL, "runtime-endpoint: NEW\n");
                node.write("etc/crictl.yaml.criprobe-backup", "runtime-endpoint: NEW\n");
            },
            "there is no backup ROOT/etc/crictl.yaml.criprobe-backup that points elsewhere",
        ),
        (
            "switch --kubelet-config /nowhere.yaml",
            |_| (),
            "/nowhere.yaml does not exist: name the kubelet's configuration",
        ),
        (
            "switch",
            |node| node.write(KUBELET, "a: [\n"),
            "ROOT/var/lib/kubelet/config.yaml: not valid YAML or JSON",
        ),
        (
            "switch",
            |node| node.write(CRICTL, "runtime-endpoint: OLD\nruntime-endpoint: OLD\n"),
            "is written twice",
        ),
        ("switch", |node| node.write(KUBELET, "kind: Pod\n"), "is not a KubeletConfiguration"),
        (
            "switch",
            |node| node.write(KUBELET, &CONFIG.replace("OLD", "&one OLD").replace("110", "*one")),
            "line 4: cannot change containerRuntimeEndpoint without a change of other lines",
        ),
        (
            "switch",
            |node| {
                fs::rename(node.at(CRICTL), node.at("etc/real.yaml")).unwrap();
                symlink("real.yaml", node.at(CRICTL)).unwrap();
            },
            "etc/crictl.yaml is a symbolic link to real.yaml",
        ),
        (
            "switch",
            |node| fs::hard_link(node.at(KUBELET), node.at("var/other")).unwrap(),
            "config.yaml has another name (hard link)",
        ),
        (
            "switch",
            |node| fs::set_permissions(node.at("etc"), fs::Permissions::from_mode(0o777)).unwrap(),
            "others can write to ROOT/etc, the folder of the file: run chmod go-w ROOT/etc",
        ),
        ("switch", |node| fs::write(node.at(KUBELET), [0xff, 0xfe]).unwrap(), "not UTF-8 text"),
        (
            "switch",
            |node| {
                fs::remove_file(node.at(CRICTL)).unwrap();
                fs::create_dir(node.at(CRICTL)).unwrap();
            },
            "etc/crictl.yaml is not a regular file",
        ),
        (
            "switch",
            |node| {
                let line = "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=OLD --v=2\"\n";
                node.write("var/lib/kubelet/kubeadm-flags.env", line);
            },
            "ROOT/var/lib/kubelet/kubeadm-flags.env:1: the flag --container-runtime-endpoint takes precedence over the \
             kubelet's configuration file: change it here to --container-runtime-endpoint=NEW",
        ),
        (
            "switch",
            |node| {
                node.write(
                    "usr/lib/systemd/system/kubelet.service",
                    "[Service]\nEnvironmentFile=-/etc/kubelet.env\n",
                );
                node.write("etc/kubelet.env", "# flags\nARGS=--container-runtime-endpoint OLD\n");
            },
            "ROOT/etc/kubelet.env:2: the flag",
        ),
        (
            "switch",
            |node| kubelet_runs(node, 77, "kubelet --container-runtime-endpoint=OLD"),
            "kubelet[77] runs with --container-runtime-endpoint=OLD",
        ),
        (
            "switch",
            |node| {
                kubelet_runs(node, 77, "kubelet");
                fs::remove_file(node.at(KUBELET)).unwrap();
            },
            "kubelet[77] runs, but its configuration file ROOT/var/lib/kubelet/config.yaml does not exist",
        ),
        (
            "switch",
            |node| {
                kubelet_runs(node, 77, "kubelet");
                kubelet_runs(node, 78, "kubelet");
            },
            "several kubelets are running (pids 77, 78)",
        ),
        (
            "switch",
            |node| node.write(KUBELET, &CONFIG.replace("OLD", "unix:///run/gone.sock")),
            "the runtime of the kubelet does not answer at ROOT/run/gone.sock",
        ),
        (
            "switch",
            |node| node.write(CRICTL, "runtime-endpoint: tcp://x\n"),
            "crictl uses tcp://x, which is not a Unix socket",
        ),
        (
            "switch --endpoint unix:///run/x.sock",
            |_| (),
            "not on unix:///run/x.sock: name its socket with --endpoint",
        ),
        (
            "revert",
            |node| node.write(CRICTL, "runtime-endpoint: NEW\n"),
            "there is no backup ROOT/etc/crictl.yaml.criprobe-backup",
        ),
    ];
    for (arguments, break_, says) in rows {
        node.reset(CONFIG, CRICTL_CONFIG);
        break_(&node);
        let files = node.files();
        let error = node.fails(arguments, 1);
        assert!(error.contains(&long(says)), "{says}: {error}");
        assert_eq!(node.files(), files, "{says}");
    }
    node.reset(CONFIG, CRICTL_CONFIG);
    let away = node.fails("--api /nowhere.sock switch", 3);
    assert!(away.contains("cannot reach the daemon at unix:///nowhere.sock"), "{away}");
    let own = node.fails("revert --to /run/criprobe/criprobe.sock", 2);
    assert!(own.contains("is criprobe's own socket: name the runtime's"), "{own}");
    let absent = node.fails("--endpoint /run/gone.sock status --check answering", 1);
    assert!(
        absent.contains("does not answer at ROOT/run/gone.sock: the socket ROOT/run/gone.sock does not"),
        "{absent}"
    );
    let usage = node.fails("switch -o json", 2);
    assert!(usage.contains("'node switch' does not support -o"), "{usage}");
}

/// A process of this node that looks like a kubelet.
fn kubelet_runs(node: &Node, pid: u32, command: &str) {
    node.write(&format!("proc/{pid}/comm"), "kubelet\n");
    node.write(&format!("proc/{pid}/cmdline"), &command.replace(' ', "\0"));
}

#[test]
fn another_runtime_than_the_one_behind_criprobe_is_found_out() {
    let node = Node::start();
    let other = runtime_at(&node.tokio, node.root.path(), "other");
    node.reset(&CONFIG.replace("OLD", "unix:///run/other/other.sock"), CRICTL_CONFIG);
    let unproven = node.fails("switch", 1);
    assert!(
        unproven.contains("nothing shows that this is the runtime of the kubelet at ROOT/run/other"),
        "{unproven}"
    );
    node.run_pod("web");
    let others = node.fails("switch", 1);
    assert!(
        others.contains("criprobe shows other pods than the runtime of the kubelet at ROOT/run/other"),
        "{others}"
    );
    assert_eq!(node.files().len(), 2);
    // By another name of the same socket, and with a pod.
    fs::hard_link(node.at("run/containerd/containerd.sock"), node.at("run/docker.sock")).unwrap();
    node.reset(&CONFIG.replace("OLD", "/run/docker.sock"), CRICTL_CONFIG);
    let done = node.works("switch");
    assert!(done.contains("criprobe-demo ") && done.contains("1 pod is in both"), "{done}");
    node.tokio.block_on(other.shutdown());
}

#[test]
fn the_drop_in_that_counts_is_the_one_that_is_changed() {
    let node = Node::start();
    let kind = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    let with = |endpoint: &str| format!("{kind}containerRuntimeEndpoint: {endpoint}\n");
    node.reset(&with("/run/first.sock"), CRICTL_CONFIG);
    node.write("etc/kubelet.d/10-runtime.conf", &with("OLD"));
    node.write("etc/kubelet.d/20-pods.conf", &format!("{kind}maxPods: 50\n"));
    node.write("etc/kubelet.d/30.yaml", "no drop-in: [");
    kubelet_runs(&node, 77, "kubelet --config=/var/lib/kubelet/config.yaml --config-dir /etc/kubelet.d");
    let before = node.files();
    node.works("switch");
    assert_eq!(node.read("etc/kubelet.d/10-runtime.conf"), long(&with("NEW")));
    assert_eq!(node.read(KUBELET), with("/run/first.sock"));
    let status = node.works("status");
    assert!(status.contains("kubelet[77]") && status.contains("10-runtime.conf:3"), "{status}");
    node.works("revert");
    assert_eq!(node.files(), before);
}

#[test]
fn a_flag_that_is_not_in_effect_is_no_obstacle() {
    let node = Node::start();
    // Another unit of the same name takes precedence.
    node.reset(CONFIG, CRICTL_CONFIG);
    let unit = "[Service]\nExecStart=/usr/bin/kubelet";
    node.write("lib/systemd/system/kubelet.service", &format!("{unit} --container-runtime-endpoint=OLD\n"));
    node.write("etc/systemd/system/kubelet.service", &format!("{unit} $ARGS\n"));
    node.works("switch");
    assert_eq!(node.read(KUBELET), long(&CONFIG.replace("OLD", "NEW")));
    node.works("revert");
    // A drop-in is hidden, or its variable stands for criprobe already.
    node.write(
        "usr/lib/systemd/system/kubelet.service.d/10.conf",
        &format!("{unit} --container-runtime-endpoint=OLD\n"),
    );
    fs::create_dir_all(node.at("etc/systemd/system/kubelet.service.d")).unwrap();
    symlink("/dev/null", node.at("etc/systemd/system/kubelet.service.d/10.conf")).unwrap();
    node.works("switch");
    node.works("revert");
    node.write(
        "etc/systemd/system/kubelet.service",
        &format!("{unit} --container-runtime-endpoint=$SOCKET\n"),
    );
    assert!(node.fails("switch", 1).contains("kubelet.service:2: the flag"));
    kubelet_runs(&node, 77, &long("kubelet --container-runtime-endpoint=NEW"));
    let done = node.works("switch");
    assert!(done.contains("the kubelet points at criprobe already, by its flag"), "{done}");
    let status = node.works("status");
    assert!(status.contains("kubelet[77]  criprobe") && status.contains("the running kubelet"), "{status}");
    // The kubelet runs without it.
    node.reset(CONFIG, CRICTL_CONFIG);
    node.write("etc/default/kubelet", "ARGS=--container-runtime-endpoint=OLD\n");
    assert!(node.fails("switch", 1).contains("ROOT/etc/default/kubelet:1: the flag"));
    kubelet_runs(&node, 77, "kubelet --v=2");
    let done = node.works("switch");
    assert!(
        done.contains(
            "kubelet:1 contains --container-runtime-endpoint, but kubelet[77] was started without it"
        ),
        "{done}"
    );
    assert_eq!(node.read(KUBELET), long(&CONFIG.replace("OLD", "NEW")));
}

#[test]
fn status_shows_who_points_where_and_who_is_connected() {
    let node = Node::start();
    node.reset(CONFIG, CRICTL_CONFIG);
    node.works("switch");
    let client = std::os::unix::net::UnixStream::connect(node.at("run/criprobe/criprobe.sock")).unwrap();
    let daemon = node.daemon.id();
    let output = node.run("status -o json");
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["kubelet"]["pointsAt"], "criprobe", "{status}");
    assert!(status["kubelet"]["from"].as_str().unwrap().ends_with("config.yaml:4"), "{status}");
    assert_eq!(
        (&status["sockets"][0]["name"], &status["sockets"][1]["name"]),
        (&"criprobe".into(), &"runtime".into())
    );
    assert_eq!(status["sockets"][0]["listeners"][0]["pid"], daemon, "{status}");
    let holds = |socket: usize, pid: u32| {
        let clients = status["sockets"][socket]["clients"].as_array().unwrap();
        clients.iter().any(|client| client["pid"] == pid && client["connections"].as_u64() > Some(0))
    };
    assert!(holds(0, std::process::id()) && holds(1, daemon), "{status}");
    node.works("revert");
    let output = node.run("status -o json");
    let reverted: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&reverted["kubelet"]["pointsAt"], &reverted["crictl"]["pointsAt"]),
        (&"runtime".into(), &"runtime".into())
    );
    let used = node.fails("status --check unused", 1);
    assert!(used.contains(&format!("[{}] is connected", std::process::id())), "{used}");
    drop(client);

    // Through a link, which only a change refuses.
    fs::rename(node.at(CRICTL), node.at("etc/real.yaml")).unwrap();
    symlink("real.yaml", node.at(CRICTL)).unwrap();
    let linked = node.works("status");
    assert!(linked.contains("crictl   runtime") && linked.contains("etc/crictl.yaml:1"), "{linked}");

    node.write(KUBELET, "a: [\n");
    let wrong = node.fails("status", 1);
    assert!(wrong.contains("config.yaml: not valid YAML or JSON"), "{wrong}");
    // What is wrong there is not criprobe's.
    node.works("status --check answering");
    node.fails("status --check unused", 1);
}
