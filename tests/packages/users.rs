//! What `packaging/maintenance.sh` finds on a node that uses the socket. Needs no root: it looks into a folder.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};

use crate::made::project;

const SOCKET: &str = "unix:///run/criprobe/criprobe.sock";
const KUBELET: &str = "{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration}";

/// Writes these files below a folder, has the script look there, and returns its exit code and what it printed.
fn maintenance(
    verb: &str,
    files: &[(&str, &str)],
    environment: &[(&str, &str)],
) -> Result<(Option<i32>, String)> {
    let root = tempfile::tempdir()?;
    for (path, text) in files {
        let file = root.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(file.parent().context("a file is in a folder")?)?;
        fs::write(
            file,
            text.replace("SOCKET", SOCKET).replace("{KUBELET}", KUBELET.trim_matches(['{', '}'])),
        )?;
    }
    let mut command = Command::new(project().join("packaging/maintenance.sh"));
    command.arg(verb).env_remove("CRIPROBE_FORCE_REMOVE").env("CRIPROBE", env!("CARGO_BIN_EXE_criprobe"));
    let output = command.env("ROOT", root.path()).envs(environment.iter().copied()).output()?;
    ensure!(output.stdout.is_empty(), "{output:?}");
    let here = root.path().display().to_string();
    Ok((output.status.code(), String::from_utf8_lossy(&output.stderr).replace(&here, "")))
}

#[test]
fn each_client_that_would_be_left_without_a_runtime_is_found() -> Result<()> {
    // Files, and the line about them.
    let cases: &[(&[(&str, &str)], &str)] = &[
        // What `criprobe node status` knows.
        (
            &[("/var/lib/kubelet/config.yaml", "{{KUBELET}, containerRuntimeEndpoint: \"SOCKET\"}")],
            "the kubelet points at criprobe in /var/lib/kubelet/config.yaml:1",
        ),
        (
            &[(
                "/var/lib/kubelet/config.yaml",
                "{{KUBELET}, containerRuntimeEndpoint: 'unix:///var/run/criprobe/criprobe.sock'}",
            )],
            "the kubelet points at criprobe in /var/lib/kubelet/config.yaml:1",
        ),
        (
            &[("/var/lib/kubelet/kubeadm-flags.env", "ARGS=\"--container-runtime-endpoint=SOCKET\"")],
            "the kubelet points at criprobe in /var/lib/kubelet/kubeadm-flags.env:1",
        ),
        (
            &[
                ("/proc/31/comm", "kubelet\n"),
                ("/proc/31/cmdline", "kubelet\0--container-runtime-endpoint\0SOCKET\0"),
            ],
            "the kubelet points at criprobe in the running kubelet",
        ),
        (
            &[("/var/lib/kubelet/config.yaml", "containerRuntimeEndpoint: [")],
            "/var/lib/kubelet/config.yaml: ",
        ),
        (
            &[("/etc/crictl.yaml", "\nruntime-endpoint: 'SOCKET'\n")],
            "crictl points at criprobe in /etc/crictl.yaml:2",
        ),
        // What it does not know.
        (
            &[("/etc/rancher/k3s/config.yaml", "a: 1\n  container-runtime-endpoint: SOCKET # ours")],
            "/etc/rancher/k3s/config.yaml:2: container-runtime-endpoint: unix:",
        ),
        (
            &[("/var/snap/microk8s/current/args/kubelet", "--container-runtime-endpoint=SOCKET")],
            "/var/snap/microk8s/current/args/kubelet:1: --container-runtime-endpoint=unix:",
        ),
        (
            &[("/etc/systemd/system/agent.service.d/10.conf", "[Service]\nEnvironment=RUNTIME=SOCKET")],
            "/etc/systemd/system/agent.service.d/10.conf:2: Environment=RUNTIME=unix:",
        ),
        (
            &[("/etc/profile.d/cri.sh", "export CONTAINER_RUNTIME_ENDPOINT=SOCKET")],
            "/etc/profile.d/cri.sh:1: export CONTAINER_RUNTIME_ENDPOINT=unix:",
        ),
        // The socket is somewhere else.
        (
            &[
                ("/etc/criprobe/conf.d/10.yaml", "listen: \"unix:///run/cri.sock\" # ours\n"),
                ("/etc/crictl.yaml", "runtime-endpoint: unix:///run/cri.sock"),
            ],
            "crictl points at criprobe in /etc/crictl.yaml:1",
        ),
        (
            &[
                (
                    "/etc/systemd/system/criprobe.socket.d/a.conf",
                    "[Socket]\nListenStream=\nListenStream=/run/cri.sock",
                ),
                ("/etc/environment", "CONTAINER_RUNTIME_ENDPOINT=unix:///run/cri.sock"),
            ],
            "/etc/environment:1: CONTAINER_RUNTIME_ENDPOINT=unix:",
        ),
    ];
    for (files, line) in cases {
        let (code, refused) = maintenance("may-be-removed", files, &[])?;
        ensure!(code == Some(1), "{files:?}: {code:?}: {refused}");
        let found: Vec<_> = refused.lines().filter_map(|text| text.strip_prefix("  ")).collect();
        let commands = found.iter().filter(|text| text.starts_with("criprobe node revert")).count();
        ensure!(found.len() - commands == 1 && found[0].starts_with(line), "{files:?}: {refused}");
    }
    Ok(())
}

#[test]
fn what_does_not_use_the_socket_is_no_reason() -> Result<()> {
    let cases: &[&[(&str, &str)]] = &[
        &[],
        &[(
            "/etc/crictl.yaml",
            "runtime-endpoint: unix:///run/containerd/containerd.sock # not SOCKET\n#SOCKET\n",
        )],
        &[("/etc/environment", "  # CONTAINER_RUNTIME_ENDPOINT=SOCKET\n")],
        &[("/etc/rancher/k3s/config.yaml", "container-runtime-endpoint: SOCKET.old\n")],
        // Our own units, settings and processes.
        &[("/etc/systemd/system/criprobe.socket", "ListenStream=/run/criprobe/criprobe.sock\n")],
        &[("/etc/systemd/system/criprobe.service.d/a.conf", "Environment=CRIPROBE_LISTEN=SOCKET\n")],
        &[("/etc/criprobe/config.yaml", "listen: SOCKET\n")],
        &[("/proc/7/comm", "criprobe\n"), ("/proc/7/cmdline", "criprobe\0serve\0--listen\0SOCKET\0")],
    ];
    for files in cases {
        assert_eq!(maintenance("may-be-removed", files, &[])?, (Some(0), String::new()), "{files:?}");
    }
    Ok(())
}

#[test]
fn a_refusal_says_how_to_switch_back_to_the_configured_runtime_and_how_to_force_it() -> Result<()> {
    let files: &[(&str, &str)] = &[
        ("/etc/crictl.yaml", "runtime-endpoint: unix:///run/cri.sock"),
        (
            "/etc/criprobe/config.yaml",
            "runtime: unix:///var/run/crio/crio.sock\nlisten: unix:///run/cri.sock\n",
        ),
    ];
    let (code, refused) = maintenance("may-be-removed", files, &[])?;
    assert_eq!(code, Some(1));
    for what in [
        "NOT removed",
        "unix:///run/crio/crio.sock",
        "criprobe node revert --endpoint unix:///run/cri.sock &&",
        "CRIPROBE_FORCE_REMOVE=1",
    ] {
        ensure!(refused.contains(what), "{what} is not in: {refused}");
    }
    let (code, forced) = maintenance("may-be-removed", files, &[("CRIPROBE_FORCE_REMOVE", "1")])?;
    assert_eq!(code, Some(0));
    ensure!(forced.contains("/etc/crictl.yaml:1") && !forced.contains("NOT removed"), "{forced}");

    // A binary that does not run, and one that does not answer.
    assert_eq!(maintenance("may-be-removed", files, &[("CRIPROBE", "/nowhere")])?, (Some(0), String::new()));
    let (code, refused) = maintenance("may-be-removed", &[], &[("CRIPROBE", "/bin/grep")])?;
    ensure!(code == Some(1), "{refused}");
    Ok(())
}

#[test]
fn other_units_that_are_in_the_way_are_named() -> Result<()> {
    let socket = "[Socket]\nListenStream=/run/criprobe/criprobe.sock\n";
    for (path, text, expected) in [
        (
            "/etc/systemd/system/criprobe.service",
            "[Service]\n",
            Some("/etc/systemd/system/criprobe.service hides"),
        ),
        (
            "/usr/lib/systemd/system/other.socket",
            socket,
            Some("/usr/lib/systemd/system/other.socket listens on"),
        ),
        ("/etc/systemd/system/criprobe.service.d/a.conf", "[Service]\n", None),
        ("/usr/lib/systemd/system/criprobe.socket", socket, None),
        ("/usr/lib/systemd/system/other.socket", "[Socket]\nListenStream=/run/other.sock\n", None),
    ] {
        let (code, warnings) = maintenance("warnings", &[(path, text)], &[])?;
        assert_eq!(code, Some(0));
        ensure!(warnings.lines().count() == usize::from(expected.is_some()), "{path}: {warnings}");
        ensure!(warnings.contains(expected.unwrap_or_default()), "{path}: {warnings}");
    }
    Ok(())
}

#[test]
fn the_scripts_are_sound() -> Result<()> {
    if !crate::support::lab::is_available("packagers.sh")? {
        return Ok(());
    }
    let mut scripts = Vec::new();
    for folder in ["packaging", "packaging/deb", "packaging/rpm"] {
        for file in fs::read_dir(project().join(folder))? {
            let file = file?.path();
            let is_script = file.extension().is_some_and(|kind| kind == "sh")
                || fs::read(&file).is_ok_and(|text| text.starts_with(b"#!/bin/sh"));
            scripts.extend(is_script.then_some(file));
        }
    }
    ensure!(scripts.len() >= 8, "{scripts:?}");
    crate::made::output(
        Command::new("shellcheck").args(["--shell", "sh"]).args(scripts.iter().map(Path::new)),
    )?;
    Ok(())
}
