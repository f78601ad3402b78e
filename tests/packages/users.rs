//! What `packaging/maintenance.sh` finds of a node's settings that use the socket. Needs no root: it looks into a folder.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};

use crate::made::project;

const SOCKET: &str = "unix:///run/criprobe/criprobe.sock";

/// Writes these files below a folder, has the script look there, and returns its exit code and what it printed.
fn users(files: &[(&str, &str)], verb: &str, force: bool) -> Result<(Option<i32>, String, String)> {
    let root = tempfile::tempdir()?;
    for (path, text) in files {
        let file = root.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(file.parent().context("a file is in a folder")?)?;
        // \0 separates the words of a command line.
        fs::write(file, text.replace("SOCKET", SOCKET))?;
    }
    let mut command = Command::new(project().join("packaging/maintenance.sh"));
    command.arg(verb).env("ROOT", root.path()).env_remove("CRIPROBE_FORCE_REMOVE");
    if force {
        command.env("CRIPROBE_FORCE_REMOVE", "1");
    }
    let output = command.output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.code(), text(&output.stdout), text(&output.stderr)))
}

#[test]
fn each_setting_that_names_the_socket_is_found() -> Result<()> {
    // Files, and how the one line begins that is printed.
    let cases: &[(&[(&str, &str)], &str)] = &[
        (
            &[("/var/lib/kubelet/config.yaml", "a: 1\ncontainerRuntimeEndpoint: SOCKET\n")],
            "/var/lib/kubelet/config.yaml:2: ",
        ),
        (
            &[(
                "/var/lib/kubelet/config.yaml",
                "containerRuntimeEndpoint: \"unix:///var/run/criprobe/criprobe.sock\"",
            )],
            "/var/lib/kubelet/config.yaml:1: ",
        ),
        (
            &[("/var/lib/kubelet/instance-config.yaml", "containerRuntimeEndpoint: SOCKET")],
            "/var/lib/kubelet/instance-config.yaml:1: ",
        ),
        (
            &[(
                "/etc/kubernetes/kubelet.conf.d/a/10-runtime.conf",
                "containerRuntimeEndpoint: SOCKET # ours",
            )],
            "/etc/kubernetes/kubelet.conf.d/a/10-runtime.conf:1: ",
        ),
        (
            &[("/etc/kubernetes/kubelet-config.json", "{\"containerRuntimeEndpoint\": \"SOCKET\"}")],
            "/etc/kubernetes/kubelet-config.json:1: ",
        ),
        (
            &[("/var/lib/kubelet/kubeadm-flags.env", "ARGS=\"--container-runtime-endpoint=SOCKET\"")],
            "/var/lib/kubelet/kubeadm-flags.env:1: ",
        ),
        (
            &[("/etc/default/kubelet", "ARGS='--container-runtime-endpoint SOCKET'")],
            "/etc/default/kubelet:1: ",
        ),
        (
            &[(
                "/usr/lib/systemd/system/kubelet.service",
                "ExecStart=kubelet \\\n --container-runtime-endpoint=SOCKET",
            )],
            "/usr/lib/systemd/system/kubelet.service:2: ",
        ),
        (
            &[("/etc/systemd/system/agent.service.d/10.conf", "[Service]\nEnvironment=RUNTIME=SOCKET")],
            "/etc/systemd/system/agent.service.d/10.conf:2: ",
        ),
        // A configuration in another place, named by a unit, a file of variables that a unit names, or a process.
        (
            &[
                ("/etc/systemd/system/kubelet.service", "ExecStart=/bin/kubelet --config /opt/k/kubelet.cfg"),
                ("/opt/k/kubelet.cfg", "containerRuntimeEndpoint: SOCKET"),
            ],
            "/opt/k/kubelet.cfg:1: ",
        ),
        (
            &[
                ("/etc/systemd/system/kubelet.service.d/5.conf", "EnvironmentFile=-/opt/kubelet.env"),
                ("/opt/kubelet.env", "KUBELET_ARGS=\"--v=2 --config-dir=/opt/drop-ins\""),
                ("/opt/drop-ins/10.conf", "containerRuntimeEndpoint: SOCKET"),
            ],
            "/opt/drop-ins/10.conf:1: ",
        ),
        (
            &[
                ("/proc/31/comm", "kubelet\n"),
                ("/proc/31/cmdline", "/usr/bin/kubelet\0--config=/opt/kubelet.yaml\0"),
                ("/opt/kubelet.yaml", "containerRuntimeEndpoint: SOCKET"),
            ],
            "/opt/kubelet.yaml:1: ",
        ),
        (
            &[
                ("/proc/31/comm", "kubelet\n"),
                ("/proc/31/cmdline", "kubelet\0--container-runtime-endpoint\0SOCKET\0"),
            ],
            "process 31: ",
        ),
        (&[("/etc/crictl.yaml", "runtime-endpoint: 'SOCKET'\n")], "/etc/crictl.yaml:1: "),
        (
            &[("/etc/profile.d/cri.sh", "export CONTAINER_RUNTIME_ENDPOINT=SOCKET")],
            "/etc/profile.d/cri.sh:1: ",
        ),
        // The socket is somewhere else.
        (
            &[
                ("/etc/criprobe/conf.d/10.yaml", "listen: \"unix:///run/cri.sock\" # ours\n"),
                ("/etc/crictl.yaml", "runtime-endpoint: unix:///run/cri.sock"),
            ],
            "/etc/crictl.yaml:1: ",
        ),
        (
            &[
                (
                    "/etc/systemd/system/criprobe.socket.d/a.conf",
                    "[Socket]\nListenStream=\nListenStream=/run/cri.sock",
                ),
                ("/etc/crictl.yaml", "image-endpoint: unix:///run/cri.sock"),
            ],
            "/etc/crictl.yaml:1: ",
        ),
    ];
    for (files, line) in cases {
        let (code, found, errors) = users(files, "users", false)?;
        ensure!(code == Some(1) && errors.is_empty(), "{files:?}: {code:?}: {found}{errors}");
        ensure!(found.starts_with(line) && found.lines().count() == 1, "{files:?}: {found}");
        ensure!(found.contains(".sock"), "{files:?}: {found}");
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
        &[("/etc/default/kubelet", "  # ARGS=--container-runtime-endpoint=SOCKET\n")],
        &[("/etc/crictl.yaml", "runtime-endpoint: unix:///run/criprobe/criprobe.sock.old\n")],
        // Our own units, settings and processes.
        &[("/usr/lib/systemd/system/criprobe.socket", "ListenStream=/run/criprobe/criprobe.sock\n")],
        &[("/etc/systemd/system/criprobe.service.d/a.conf", "Environment=CRIPROBE_LISTEN=SOCKET\n")],
        &[("/etc/criprobe/config.yaml", "listen: SOCKET\n")],
        &[("/proc/7/comm", "criprobe\n"), ("/proc/7/cmdline", "criprobe\0serve\0--listen\0SOCKET\0")],
    ];
    for files in cases {
        assert_eq!(users(files, "users", false)?, (Some(0), String::new(), String::new()), "{files:?}");
        assert_eq!(users(files, "may-be-removed", false)?.0, Some(0), "{files:?}");
    }
    Ok(())
}

#[test]
fn a_refusal_says_how_to_switch_back_to_the_configured_runtime_and_how_to_force_it() -> Result<()> {
    let files: &[(&str, &str)] = &[
        ("/etc/crictl.yaml", "runtime-endpoint: SOCKET"),
        ("/etc/criprobe/config.yaml", "runtime: unix:///var/run/crio/crio.sock\n"),
    ];
    let (code, _, refused) = users(files, "may-be-removed", false)?;
    assert_eq!(code, Some(1));
    for what in
        ["NOT removed", "/etc/crictl.yaml:1: ", "unix:///run/crio/crio.sock", "CRIPROBE_FORCE_REMOVE=1"]
    {
        ensure!(refused.contains(what), "{what} is not in: {refused}");
    }
    let (code, _, forced) = users(files, "may-be-removed", true)?;
    assert_eq!(code, Some(0));
    ensure!(forced.contains("/etc/crictl.yaml:1: ") && !forced.contains("NOT removed"), "{forced}");
    Ok(())
}

#[test]
fn units_that_were_installed_by_hand_are_named() -> Result<()> {
    let by_hand = [("/etc/systemd/system/criprobe.service", "[Service]\n")];
    let (code, _, warning) = users(&by_hand, "warnings", false)?;
    assert_eq!(code, Some(0));
    ensure!(warning.contains("/etc/systemd/system/criprobe.service hides"), "{warning}");
    let drop_in = [("/etc/systemd/system/criprobe.service.d/a.conf", "[Service]\n")];
    assert_eq!(users(&drop_in, "warnings", false)?, (Some(0), String::new(), String::new()));
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
