//! Where a container's processes run and with what environment: its configuration in, paths and variables out. Pure.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::{Component, Path, PathBuf},
};

use crate::proto::cri::{ContainerConfig, PodSandboxConfig};

/// The folder that its processes start in: it replaces the container's root, with the working directory below it.
/// An absolute working directory is looked for in there, too, as it would be in a container; `..` is ignored.
pub(super) fn work_folder(scratch: &Path, config: &ContainerConfig) -> PathBuf {
    scratch.join("root").join(inside(&config.working_dir))
}

/// Its log file: where the client wants it, else in the scratch folder.
pub(super) fn log_path(scratch: &Path, sandbox: &PodSandboxConfig, config: &ContainerConfig) -> PathBuf {
    match sandbox.log_directory.is_empty() || config.log_path.is_empty() {
        true => scratch.join("log"),
        false => Path::new(&sandbox.log_directory).join(inside(&config.log_path)),
    }
}

/// All variables of its processes: PATH, HOME and PWD, then the client's own, which win.
pub(super) fn environment(
    folder: &Path,
    config: &ContainerConfig,
    search_path: &OsStr,
) -> Vec<(OsString, OsString)> {
    let given = [("PATH", search_path), ("HOME", folder.as_os_str()), ("PWD", folder.as_os_str())];
    let given = given.map(|(key, value)| (key.into(), value.to_owned()));
    let own =
        config.envs.iter().map(|env| (env.key.clone().into(), OsStr::from_bytes(&env.value).to_owned()));
    given.into_iter().chain(own).collect()
}

fn inside(path: &str) -> PathBuf {
    Path::new(path).components().filter(|part| matches!(part, Component::Normal(_))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::cri::KeyValue;

    #[test]
    fn the_working_folder_is_always_inside() {
        let cases = [
            ("", "/s/root"),
            ("/", "/s/root"),
            ("app", "/s/root/app"),
            ("/var/lib", "/s/root/var/lib"),
            ("../../etc", "/s/root/etc"),
        ];
        for (working_dir, expected) in cases {
            let config = ContainerConfig { working_dir: working_dir.to_owned(), ..Default::default() };
            assert_eq!(work_folder(Path::new("/s"), &config), Path::new(expected), "{working_dir:?}");
        }
    }

    #[test]
    fn the_log_is_the_clients_where_it_names_folder_and_file() {
        let cases =
            [("/logs", "app/0.log", "/logs/app/0.log"), ("/logs", "", "/s/log"), ("", "0.log", "/s/log")];
        for (log_directory, log_path, expected) in cases {
            let sandbox = PodSandboxConfig { log_directory: log_directory.to_owned(), ..Default::default() };
            let config = ContainerConfig { log_path: log_path.to_owned(), ..Default::default() };
            assert_eq!(super::log_path(Path::new("/s"), &sandbox, &config), Path::new(expected));
        }
    }

    #[test]
    fn the_clients_variables_come_last() {
        let envs = vec![KeyValue { key: "PATH".into(), value: b"/mine".to_vec() }];
        let config = ContainerConfig { envs, ..Default::default() };
        let all = environment(Path::new("/f"), &config, OsStr::new("/bin"));
        let expected = [("PATH", "/bin"), ("HOME", "/f"), ("PWD", "/f"), ("PATH", "/mine")];
        assert_eq!(all, expected.map(|(key, value)| (key.into(), value.into())));
    }
}
