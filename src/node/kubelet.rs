//! Where a node's kubelet takes its runtime's socket from: flags, its configuration file, drop-ins. Reads files and /proc;
//! changes nothing.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{
    Root,
    edit::{EditError, MAX_BYTES, Settings},
    file::{ConfigFile, FileError},
    flags::{self, environment_files},
};
use crate::peer;

/// The setting in a kubelet's configuration.
pub(crate) const KEY: &str = "containerRuntimeEndpoint";

/// The flag, which takes precedence over all files.
pub(crate) const FLAG: &str = "--container-runtime-endpoint";

/// What a kubelet since 1.27 uses if nothing is set.
pub(crate) const DEFAULT: &str = "unix:///run/containerd/containerd.sock";

/// Where kubeadm and most others have the configuration.
const CONFIG: &str = "/var/lib/kubelet/config.yaml";

/// Folders of units, as systemd reads them.
const UNITS: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// Files of variables that units of a kubelet usually read: kubeadm's, Debian's, Red Hat's.
const ENVIRONMENTS: [&str; 3] =
    ["/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet", "/etc/sysconfig/kubelet"];

/// 1,000 files, and 8 folders deep: what is beyond is not read. A node has a few.
const MAX_FILES: usize = 1_000;
const MAX_DEPTH: usize = 8;

/// The kubelet's settings, in all the places that they may be in.
#[derive(Debug, Default)]
pub(crate) struct Kubelet {
    /// Its process, if it runs.
    pub(crate) pid: Option<i32>,
    /// The flag in units and files of variables.
    pub(crate) flags: Vec<FlagIn>,
    /// The flag of the process.
    pub(crate) running_flag: Option<String>,
    /// The file of the configuration and its drop-ins, in the order in which they are read.
    pub(crate) files: Vec<ConfigFile>,
    /// Where the configuration should be.
    pub(crate) config: PathBuf,
}

/// The flag in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlagIn {
    /// The file.
    pub(crate) file: PathBuf,
    /// Its line, from 1.
    pub(crate) line: usize,
    /// Its value; empty if it is not on the same line.
    pub(crate) value: String,
}

/// What an operator says about where the files are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    /// The configuration file.
    pub(crate) config: Option<PathBuf>,
    /// The folder of drop-ins.
    pub(crate) config_dir: Option<PathBuf>,
}

/// Why the settings cannot be found out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KubeletError {
    /// One of its files.
    #[error(transparent)]
    File(#[from] FileError),
    /// The content of one of its files.
    #[error("{0}: {1}")]
    Content(PathBuf, EditError),
    /// Another kind of file.
    #[error(
        "{0} is not a KubeletConfiguration of kubelet.config.k8s.io: name the right file with --kubelet-config"
    )]
    OtherKind(PathBuf),
    /// There are several.
    #[error(
        "several kubelets are running (pids {0}): say which configuration is meant with --kubelet-config FILE"
    )]
    Several(String),
    /// The file that was named is not there.
    #[error("{0} does not exist: name the kubelet's configuration file with --kubelet-config")]
    Missing(PathBuf),
    /// A folder of drop-ins cannot be read.
    #[error("cannot read the folder {0}: {1}")]
    Folder(PathBuf, #[source] io::Error),
}

impl Kubelet {
    /// Looks for it.
    ///
    /// # Errors
    /// A file of it cannot be read.
    pub(crate) fn find(root: &Root, places: &Places) -> Result<Self, KubeletError> {
        let processes = processes(root);
        if processes.len() > 1 && places.config.is_none() {
            let pids: Vec<_> = processes.iter().map(|(pid, _)| pid.to_string()).collect();
            return Err(KubeletError::Several(pids.join(", ")));
        }
        let (pid, words) = match processes.into_iter().next() {
            Some((pid, words)) => (Some(pid), words),
            None => (None, Vec::new()),
        };
        let texts = unit_files(root);
        let written = |flag: &str| {
            let of_process = flags::of_words(&words, flag);
            let of_files = || {
                let mut all = texts.iter().flat_map(|(_, text)| flags::of_text(text, flag));
                all.next_back().map(|flag| flag.value).filter(|value| !value.is_empty())
            };
            of_process.or_else(of_files).map(PathBuf::from).filter(|path| path.is_absolute())
        };
        let given = |path: &Option<PathBuf>, flag| match path {
            Some(path) => Some(path.clone()),
            None => written(flag).map(|path| root.at(&path)),
        };
        let config = given(&places.config, "--config").unwrap_or_else(|| root.at(Path::new(CONFIG)));
        let mut files = Vec::new();
        files.extend(ConfigFile::open(&config)?);
        if files.is_empty() && places.config.is_some() {
            return Err(KubeletError::Missing(config));
        }
        if let Some(folder) = given(&places.config_dir, "--config-dir") {
            let mut paths = Vec::new();
            drop_ins(&folder, 0, &mut paths).map_err(|error| KubeletError::Folder(folder.clone(), error))?;
            for path in paths {
                files.extend(ConfigFile::open(&path)?);
            }
        }
        for file in &files {
            check_kind(file)?;
        }
        let flags = texts.iter().flat_map(|(file, text)| {
            flags::of_text(text, FLAG).into_iter().map(|flag| FlagIn {
                file: file.clone(),
                line: flag.line,
                value: flag.value,
            })
        });
        Ok(Self { pid, flags: flags.collect(), running_flag: flags::of_words(&words, FLAG), files, config })
    }

    /// The last file that sets the runtime's socket, with the value: it takes precedence over those before it.
    ///
    /// # Errors
    /// The setting is something other than text.
    pub(crate) fn setting(&self) -> Result<Option<(&ConfigFile, String)>, KubeletError> {
        let mut found = None;
        for file in &self.files {
            let value = Settings::read(file.text()).and_then(|all| Ok(all.get(KEY)?.map(str::to_owned)));
            let value = value.map_err(|error| KubeletError::Content(file.path().to_owned(), error))?;
            found = value.map(|value| (file, value)).or(found);
        }
        Ok(found)
    }

    /// Whether a flag decides, as far as we can know: that of its process, or, while it does not run, that in a file.
    pub(crate) fn is_by_flag(&self) -> bool {
        self.running_flag.is_some() || self.pid.is_none() && !self.flags.is_empty()
    }

    /// Whether there is any sign of it on this node.
    pub(crate) fn is_there(&self) -> bool {
        self.pid.is_some() || !self.flags.is_empty() || !self.files.is_empty()
    }
}

fn check_kind(file: &ConfigFile) -> Result<(), KubeletError> {
    let content = |error| KubeletError::Content(file.path().to_owned(), error);
    let all = Settings::read(file.text()).map_err(content)?;
    let kind = all.get("kind").map_err(content)?;
    let version = all.get("apiVersion").map_err(content)?.unwrap_or_default();
    if kind == Some("KubeletConfiguration") && version.starts_with("kubelet.config.k8s.io/") {
        return Ok(());
    }
    Err(KubeletError::OtherKind(file.path().to_owned()))
}

/// Kubelets that run on the node itself, with their words: not those in containers with files of their own.
fn processes(root: &Root) -> Vec<(i32, Vec<String>)> {
    let proc = root.at(Path::new("/proc"));
    let namespace = |process: &Path| fs::read_link(process.join("ns/mnt")).ok();
    let ours = namespace(&proc.join("self"));
    let Ok(entries) = fs::read_dir(&proc) else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let kubelets = pids.filter_map(|pid| {
        let process = proc.join(pid.to_string());
        let is_kubelet = fs::read_to_string(process.join("comm")).is_ok_and(|comm| comm.trim() == "kubelet");
        let theirs = is_kubelet.then(|| namespace(&process))?;
        let is_elsewhere = ours.is_some() && theirs.is_some() && ours != theirs;
        let words = fs::read(process.join("cmdline")).ok().filter(|_| !is_elsewhere)?;
        let words = words.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
        Some((pid, words.collect()))
    });
    let mut kubelets: Vec<_> = kubelets.collect();
    kubelets.sort();
    kubelets
}

/// The texts of the kubelet's units, their drop-ins, and the files of variables: each once, the one that counts last. What
/// cannot be read is left out.
fn unit_files(root: &Root) -> Vec<(PathBuf, String)> {
    // Of files with one name, the one in the first folder counts.
    let mut paths: Vec<PathBuf> = Vec::new();
    for folder in UNITS {
        let folder = root.at(Path::new(folder));
        let mut of_folder = vec![folder.join("kubelet.service")];
        // Those of a folder that cannot be read are left out, too.
        let _ = drop_ins(&folder.join("kubelet.service.d"), MAX_DEPTH, &mut of_folder);
        // A link to /dev/null counts, too: it hides those of its name.
        of_folder
            .retain(|path| path.exists() && !paths.iter().any(|known| known.file_name() == path.file_name()));
        paths.extend(of_folder);
    }
    let mut texts = Vec::new();
    let mut seen = Vec::new();
    let mut add = |path: PathBuf, texts: &mut Vec<(PathBuf, String)>| {
        let Ok(meta) = fs::metadata(&path) else { return };
        let id = (meta.dev(), meta.ino());
        let is_wanted = meta.is_file() && meta.len() <= MAX_BYTES as u64 && !seen.contains(&id);
        if let Some(text) = is_wanted.then(|| fs::read_to_string(&path).ok()).flatten() {
            seen.push(id);
            texts.push((path, text));
        }
    };
    paths.into_iter().for_each(|path| add(path, &mut texts));
    let named: Vec<PathBuf> = texts
        .iter()
        .flat_map(|(_, text)| environment_files(text))
        .map(|file| root.at(Path::new(file)))
        .collect();
    let usual = ENVIRONMENTS.iter().map(|file| root.at(Path::new(file)));
    named.into_iter().chain(usual).for_each(|path| add(path, &mut texts));
    texts
}

/// All `*.conf` files in and below a folder, in the order in which they are read; none if there is no such folder.
fn drop_ins(folder: &Path, depth: usize, into: &mut Vec<PathBuf>) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.take(MAX_FILES).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        let is_folder = path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
        if is_folder && depth < MAX_DEPTH {
            drop_ins(&path, depth + 1, into)?;
        } else if !is_folder && path.extension().is_some_and(|end| end == "conf") {
            into.push(path);
        }
    }
    Ok(())
}

/// `kubelet[812]`.
pub(crate) fn named(pid: i32) -> String {
    peer::Peer { pid, uid: 0, comm: "kubelet".to_owned() }.to_string()
}
