//! What is in the packages.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};

use crate::made::{FIRST, folder, output, package, project};

/// What both packages have.
const FILES: [&str; 10] = [
    "/etc/criprobe/config.yaml",
    "/usr/bin/criprobe",
    "/usr/lib/criprobe/maintenance",
    "/usr/lib/systemd/system/criprobe.service",
    "/usr/lib/systemd/system/criprobe.socket",
    "/usr/share/bash-completion/completions/criprobe",
    "/usr/share/criprobe/grafana/criprobe.json",
    "/usr/share/criprobe/prometheus/rules.yaml",
    "/usr/share/fish/vendor_completions.d/criprobe.fish",
    "/usr/share/man/man8/criprobe.8.gz",
];

/// Fails if one of the files is not in a package, or a verb has no man page.
fn all_are_in(files: &BTreeSet<String>, others: &[&str]) -> Result<()> {
    for file in FILES.iter().chain(others) {
        ensure!(files.contains(*file), "{file} is not in {files:?}");
    }
    for verb in ["serve", "status", "probes", "trace", "check"] {
        ensure!(files.contains(&format!("/usr/share/man/man8/criprobe-{verb}.8.gz")), "{verb}: {files:?}");
    }
    Ok(())
}

#[test]
fn the_deb_has_everything_and_lintian_finds_no_error() -> Result<()> {
    let Some(deb) = package("deb", FIRST)? else { return Ok(()) };
    let mut files = BTreeSet::new();
    for line in output(Command::new("dpkg-deb").arg("--contents").arg(&deb))?.lines() {
        let mut words = line.split_whitespace();
        let (mode, owner) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let path =
            words.nth(3).context("a line of dpkg-deb ends with a path")?.trim_start_matches('.').to_owned();
        ensure!(owner == "0/0", "{line}");
        let is_run = path == "/usr/bin/criprobe" || path == "/usr/lib/criprobe/maintenance";
        ensure!(mode.starts_with('d') || mode == if is_run { "-rwxr-xr-x" } else { "-rw-r--r--" }, "{line}");
        files.insert(path);
    }
    let doc = ["changelog.gz", "changelog.Debian.gz", "copyright", "THIRD-PARTY-NOTICES"]
        .map(|name| format!("/usr/share/doc/criprobe/{name}"));
    all_are_in(&files, &doc.each_ref().map(String::as_str))?;
    ensure!(files.contains("/usr/share/zsh/vendor-completions/_criprobe"), "{files:?}");
    assert_eq!(
        output(Command::new("dpkg-deb").arg("--info").arg(&deb).arg("conffiles"))?,
        "/etc/criprobe/config.yaml\n"
    );

    let mut lintian = Command::new("lintian");
    // It has the debug build's size, and no more of it.
    lintian.args(["--fail-on", "error", "--allow-root"]).arg(&deb);
    output(&mut lintian).map(drop)
}

#[test]
fn the_rpm_has_everything_too() -> Result<()> {
    let Some(rpm) = package("rpm", FIRST)? else { return Ok(()) };
    let query = |what: &str| output(Command::new("rpm").args(["--query", "--package", what]).arg(&rpm));
    let files = query("--list")?.lines().map(str::to_owned).collect();
    all_are_in(
        &files,
        &[
            "/usr/share/zsh/site-functions/_criprobe",
            "/usr/share/licenses/criprobe/LICENSE",
            "/usr/share/licenses/criprobe/THIRD-PARTY-NOTICES",
        ],
    )?;
    assert_eq!(query("--configfiles")?, "/etc/criprobe/config.yaml\n");
    let owners = query("--queryformat=[%{FILEUSERNAME}:%{FILEGROUPNAME}\n]")?;
    ensure!(owners.lines().all(|owner| owner == "root:root"), "{owners}");
    Ok(())
}

#[test]
fn the_configuration_that_is_installed_shows_every_setting_and_sets_none() -> Result<()> {
    let Some(deb) = package("deb", FIRST)? else { return Ok(()) };
    let root = folder("contents");
    output(Command::new("dpkg-deb").arg("--extract").args([&deb, &root]))?;
    let sample = root.join("etc/criprobe/config.yaml");
    let criprobe = |file: &Path| output(Command::new(env!("CARGO_BIN_EXE_criprobe")).arg("check").arg(file));
    criprobe(&sample)?;
    let sample = fs::read_to_string(sample)?;
    ensure!(sample.lines().all(|line| line.is_empty() || line.starts_with('#')), "{sample}");
    let lines: BTreeSet<_> = sample.lines().collect();
    let defaults = project().join("packaging/config.yaml");
    criprobe(&defaults)?;
    for line in fs::read_to_string(defaults)?.lines().filter(|line| !line.is_empty()) {
        let commented = format!("#{line}");
        ensure!(lines.contains(line) || lines.contains(commented.as_str()), "{line}");
    }
    // The scripts of shells are at least ones that bash can read.
    let script = root.join("usr/share/bash-completion/completions/criprobe");
    output(Command::new("bash").arg("-n").arg(script)).map(drop)
}

#[test]
fn the_notices_name_each_crate_that_is_in_the_binary() -> Result<()> {
    let notices = fs::read_to_string(project().join("packaging/THIRD-PARTY-NOTICES"))?;
    let named: BTreeSet<_> =
        notices.lines().filter_map(|line| line.strip_prefix("    ")?.trim_end().split_once(' ')).collect();
    let tree = output(
        Command::new(env!("CARGO"))
            .args(["tree", "--locked", "--package", "criprobe", "--edges", "normal,no-proc-macro"])
            .args(["--prefix", "none", "--format", "{p}"])
            .current_dir(project()),
    )?;
    // `libc v0.2.186`, and more after a space.
    let crates: BTreeSet<_> = tree
        .lines()
        .filter_map(|line| line.split_once(" v"))
        .map(|(name, rest)| (name, rest.split(' ').next().unwrap_or(rest)))
        .collect();
    ensure!(crates.len() > 50, "{tree}");
    let missing: Vec<_> = crates
        .iter()
        .filter(|(name, _)| !name.starts_with("criprobe"))
        .filter(|one| !named.contains(*one))
        .collect();
    ensure!(missing.is_empty(), "run `make notices`: {missing:?} are not named");
    Ok(())
}
