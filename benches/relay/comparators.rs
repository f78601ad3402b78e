//! Gets programs such as nginx from Debian if they are missing and that is possible. Never starts a service.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, ensure};

use crate::process;

/// Asked by Debian's packages whether they may start what they installed.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Installs what is missing of these programs or files, each with its package, if we are root on a system with apt; says on
/// stderr what it does and what it cannot.
pub(crate) fn install_missing(wanted: &[(&str, &'static str)]) {
    let missing =
        || wanted.iter().filter(|(program, _)| find(program).is_none()).map(|(_, package)| *package);
    let packages: Vec<&str> = missing().collect();
    if packages.is_empty() {
        return;
    }
    if !rustix::process::geteuid().is_root() || find("apt-get").is_none() {
        eprintln!("not there, and not to be installed without root and apt: {}", packages.join(", "));
        return;
    }
    eprintln!("installing {} with apt-get (their services are not started)", packages.join(", "));
    if let Err(error) = install(&packages) {
        eprintln!("{error}; left out: {}", missing().collect::<Vec<_>>().join(", "));
    }
}

/// Where a program, or a file with an absolute path, is; also in the folders of daemons, which a user's PATH may omit.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn install(packages: &[&str]) -> Result<()> {
    let _policy = NoServices::new()?;
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").args(["-qq", "-o", "Dpkg::Use-Pty=0"]);
        command.args(arguments).output()
    };
    let mut arguments = vec!["install", "--yes", "--no-install-recommends"];
    arguments.extend(packages);
    if apt(&arguments)?.status.success() {
        return Ok(());
    }
    apt(&["update"])?;
    let output = apt(&arguments)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "apt-get failed: {}", said.lines().last().unwrap_or("(no output)"));
    Ok(())
}

/// Forbids packages to start services while it lives, unless a policy for that exists already.
struct NoServices {
    is_ours: bool,
}

impl NoServices {
    fn new() -> Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        let is_ours = !Path::new(POLICY).exists();
        if is_ours {
            process::remove_when_interrupted(POLICY.into());
            fs::write(POLICY, "#!/bin/sh\nexit 101\n")?;
            fs::set_permissions(POLICY, fs::Permissions::from_mode(0o755))?;
        }
        Ok(Self { is_ours })
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.is_ours {
            let _ = fs::remove_file(POLICY);
        }
    }
}
