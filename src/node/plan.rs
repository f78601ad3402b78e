//! What has to change so that a kubelet and crictl use criprobe, or no longer do: files as they were read in, new texts out.
//! Writes nothing.

use std::path::PathBuf;

use super::{
    Root,
    edit::{self, EditError, Hunk, Settings, hunks},
    file::{ConfigFile, FileError},
    kubelet::{self, FLAG, FlagIn, Kubelet, KubeletError},
};

/// crictl's setting.
pub(crate) const CRICTL_RUNTIME: &str = "runtime-endpoint";

/// The same for images; without it, crictl uses the other one for them, too.
pub(crate) const CRICTL_IMAGE: &str = "image-endpoint";

/// A change of one file.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    /// The file as it is.
    pub(crate) file: &'a ConfigFile,
    /// What is to be in it.
    pub(crate) text: String,
    /// The lines that differ.
    pub(crate) hunks: Vec<Hunk>,
    /// How it is done.
    pub(crate) step: Step,
}

/// How a file is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is replaced, and becomes the backup.
    Replace,
    /// It is replaced, and its backup, if there is one, is obsolete.
    SetBack,
    /// Its backup becomes the file again.
    Restore,
    /// It stays; only its backup is removed.
    Forget,
}

/// All changes, and what is to be said about them.
#[derive(Debug, Default)]
pub(crate) struct Plan<'a> {
    /// In the order in which they are made.
    pub(crate) changes: Vec<Change<'a>>,
    /// Who used which endpoint until now.
    pub(crate) used: Vec<(&'static str, String)>,
    /// One line each.
    pub(crate) notes: Vec<String>,
    /// Whether the kubelet's configuration changes.
    pub(crate) is_kubelets: bool,
}

/// Why nothing can be planned.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    /// The kubelet's files.
    #[error(transparent)]
    Kubelet(#[from] KubeletError),
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The content of a file.
    #[error("{0}: {1}")]
    Content(PathBuf, EditError),
    /// The flag is in a file that is not ours to edit.
    #[error("{}:{}: the flag {FLAG} takes precedence over the kubelet's configuration file: change it here to \
             {FLAG}={wanted}, run 'systemctl daemon-reload && systemctl restart kubelet', then run this command again", .flag.file.display(), .flag.line)]
    Flag {
        /// Where.
        flag: FlagIn,
        /// What it should say.
        wanted: String,
    },
    /// The flag is in no file that we know.
    #[error(
        "{kubelet} runs with {FLAG}={value}, which takes precedence over its configuration file, but no unit or file of \
             variables that criprobe knows contains it: change it to {FLAG}={wanted} where it comes from, or restart the \
             kubelet if that is done already"
    )]
    RunningFlag {
        /// The kubelet.
        kubelet: String,
        /// What it says.
        value: String,
        /// What it should say.
        wanted: String,
    },
    /// A kubelet without a file.
    #[error("{0} runs, but its configuration file {1} does not exist: name it with --kubelet-config FILE")]
    NoConfig(String, PathBuf),
    /// Nothing says what was there before.
    #[error("{file}: points at criprobe, but there is no backup {backup} that points elsewhere: say where it should point with --to URL", file = .0.display(), backup = .1.display())]
    NoBackup(PathBuf, PathBuf),
}

/// What makes the kubelet and crictl use the socket `target`, an endpoint as people write it.
///
/// # Errors
/// A file cannot be read or changed, or a flag is in the way.
pub(crate) fn switch<'a>(
    root: &Root,
    kubelet: &'a Kubelet,
    crictl: Option<&'a ConfigFile>,
    target: &str,
) -> Result<Plan<'a>, PlanError> {
    let mut plan = Plan::default();
    let is_target = |endpoint: &str| root.is_same_socket(endpoint, target);
    plan.check_flags(kubelet, target, is_target)?;
    let setting = kubelet.setting()?;
    match (setting, kubelet.files.first()) {
        _ if kubelet.is_by_flag() => {
            let is_late = kubelet.running_flag.as_deref().is_some_and(|running| !is_target(running));
            let late = if is_late { ", but runs without it: restart the kubelet" } else { "" };
            plan.notes.push(format!("the kubelet points at criprobe already, by its flag {FLAG}{late}"));
        }
        (Some((file, value)), _) if is_target(&value) => {
            plan.notes.push(format!("{}: the kubelet points at criprobe already", file.path().display()));
        }
        (Some((file, value)), _) => {
            plan.set(file, &[kubelet::KEY], target)?;
            plan.used.push(("the kubelet", value));
        }
        (None, Some(file)) => {
            plan.set(file, &[kubelet::KEY], target)?;
            plan.used.push(("the kubelet", kubelet::DEFAULT.to_owned()));
        }
        (None, None) => match kubelet.pid {
            Some(pid) => {
                return Err(PlanError::NoConfig(kubelet::named(pid), kubelet.config.clone()));
            }
            None => plan.notes.push(format!("no kubelet: {} does not exist", kubelet.config.display())),
        },
    }
    plan.is_kubelets = !plan.changes.is_empty();
    let Some(file) = crictl else {
        plan.notes.push("crictl has no configuration file, and is left as it is".to_owned());
        return Ok(plan);
    };
    let (runtime, image) = crictl_settings(file)?;
    let mut keys = Vec::new();
    match &runtime {
        Some(value) if is_target(value) => {
            plan.notes.push(format!("{}: crictl points at criprobe already", file.path().display()));
        }
        Some(value) => {
            plan.used.push(("crictl", value.clone()));
            keys.push(CRICTL_RUNTIME);
        }
        None => keys.push(CRICTL_RUNTIME),
    }
    match (&image, &runtime) {
        (None, _) => {}
        (Some(image), _) if is_target(image) => {}
        (Some(image), Some(runtime)) if root.is_same_socket(image, runtime) => keys.push(CRICTL_IMAGE),
        (Some(image), _) => {
            plan.notes.push(format!("{}: {CRICTL_IMAGE} stays {image}", file.path().display()));
        }
    }
    if !keys.is_empty() {
        plan.set(file, &keys, target)?;
    }
    Ok(plan)
}

/// What undoes [`switch`]: the backup if the file has not changed since, otherwise the former value alone. `to` is the value
/// where there is no backup.
///
/// # Errors
/// A file cannot be read or changed, or nothing says what its value was.
pub(crate) fn revert<'a>(
    root: &Root,
    kubelet: &'a Kubelet,
    crictl: Option<&'a ConfigFile>,
    target: &str,
    to: Option<&str>,
) -> Result<Plan<'a>, PlanError> {
    let mut plan = Plan::default();
    let wanted = to.unwrap_or("the runtime's own socket");
    plan.check_flags(kubelet, wanted, |endpoint| !root.is_same_socket(endpoint, target))?;
    for file in &kubelet.files {
        plan.set_back(root, file, &[kubelet::KEY], target, to)?;
    }
    plan.is_kubelets = plan.changes.iter().any(|change| change.step != Step::Forget);
    if let Some(file) = crictl {
        plan.set_back(root, file, &[CRICTL_RUNTIME, CRICTL_IMAGE], target, to)?;
    }
    Ok(plan)
}

/// What crictl's file says about the socket of the runtime, and that of images.
///
/// # Errors
/// It cannot be parsed.
pub(crate) fn crictl_settings(file: &ConfigFile) -> Result<(Option<String>, Option<String>), PlanError> {
    let read = || {
        let all = Settings::read(file.text())?;
        let of = |key| Ok::<_, EditError>(all.get(key)?.map(str::to_owned));
        Ok((of(CRICTL_RUNTIME)?, of(CRICTL_IMAGE)?))
    };
    read().map_err(content(file))
}

impl<'a> Plan<'a> {
    /// Makes sure that no flag says something else.
    fn check_flags(
        &mut self,
        kubelet: &Kubelet,
        wanted: &str,
        is_right: impl Fn(&str) -> bool,
    ) -> Result<(), PlanError> {
        // The value of a variable is known from the kubelet that runs with it.
        let value = |flag: &FlagIn| match &kubelet.running_flag {
            Some(running) if flag.value.starts_with('$') => running.clone(),
            _ => flag.value.clone(),
        };
        let wrong = kubelet.flags.iter().find(|flag| !is_right(&value(flag)));
        match (wrong, &kubelet.running_flag, kubelet.pid) {
            (Some(flag), None, Some(pid)) => {
                let (kubelet, file, line) = (kubelet::named(pid), flag.file.display(), flag.line);
                self.notes
                    .push(format!("{file}:{line} contains {FLAG}, but {kubelet} was started without it"));
                Ok(())
            }
            (Some(flag), _, _) => Err(PlanError::Flag { flag: flag.clone(), wanted: wanted.to_owned() }),
            (None, Some(value), Some(pid)) if kubelet.flags.is_empty() && !is_right(value) => {
                let (value, wanted) = (value.clone(), wanted.to_owned());
                Err(PlanError::RunningFlag { kubelet: kubelet::named(pid), value, wanted })
            }
            (None, _, _) => Ok(()),
        }
    }

    fn set(&mut self, file: &'a ConfigFile, keys: &[&str], value: &str) -> Result<(), PlanError> {
        let text = all_set(file.text(), keys, Some(value)).map_err(content(file))?;
        self.push(file, text, Step::Replace);
        Ok(())
    }

    fn set_back(
        &mut self,
        root: &Root,
        file: &'a ConfigFile,
        keys: &[&str],
        target: &str,
        to: Option<&str>,
    ) -> Result<(), PlanError> {
        let now = Settings::read(file.text()).map_err(content(file))?;
        let mut ours = Vec::new();
        for key in keys {
            let value = now.get(key).map_err(content(file))?;
            ours.extend(value.filter(|value| root.is_same_socket(value, target)).map(|value| (*key, value)));
        }
        let path = file.path().display();
        let backup = file.backup()?;
        let former = backup.as_ref().map(|backup| Settings::read(backup.text()).map_err(content(backup)));
        let former = former.transpose()?;
        // One that was edited, and points at criprobe, too, says nothing.
        let is_of_use = |former: &Settings<'_>| {
            let at_target =
                |value: Option<&str>| value.is_some_and(|value| root.is_same_socket(value, target));
            ours.is_empty() || !ours.iter().all(|(key, _)| former.get(key).is_ok_and(at_target))
        };
        let usable = backup.as_ref().zip(former).filter(|(_, former)| is_of_use(former));
        let Some((backup, former)) = usable else {
            let Some(to) = to else {
                return match ours.is_empty() {
                    true => Ok(()),
                    false => Err(PlanError::NoBackup(file.path().to_owned(), file.backup_path())),
                };
            };
            let keys: Vec<_> = ours.iter().map(|(key, _)| *key).collect();
            if !keys.is_empty() {
                let text = all_set(file.text(), &keys, Some(to)).map_err(content(file))?;
                self.push(file, text, Step::SetBack);
            }
            return Ok(());
        };
        if ours.is_empty() {
            self.notes.push(format!(
                "{path} no longer points at criprobe, and is left as it is; its backup is obsolete"
            ));
            self.push(file, file.text().to_owned(), Step::Forget);
            return Ok(());
        }
        let switched = ours
            .iter()
            .try_fold(backup.text().to_owned(), |text, (key, value)| edit::set(&text, key, Some(value)));
        if switched.is_ok_and(|switched| switched == file.text()) {
            self.push(file, backup.text().to_owned(), Step::Restore);
            return Ok(());
        }
        let mut text = file.text().to_owned();
        for (key, _) in &ours {
            let value = former.get(key).map_err(content(backup))?;
            text = edit::set(&text, key, value).map_err(content(file))?;
            self.notes.push(format!("{path} has changed since the backup was made: only {key} is set back"));
        }
        self.push(file, text, Step::SetBack);
        Ok(())
    }

    fn push(&mut self, file: &'a ConfigFile, text: String, step: Step) {
        let hunks = hunks(file.text(), &text);
        self.changes.push(Change { file, text, hunks, step });
    }
}

fn all_set(text: &str, keys: &[&str], value: Option<&str>) -> Result<String, EditError> {
    keys.iter().try_fold(text.to_owned(), |text, key| edit::set(&text, key, value))
}

fn content(file: &ConfigFile) -> impl Fn(EditError) -> PlanError {
    let path = file.path().to_owned();
    move |error| PlanError::Content(path.clone(), error)
}
