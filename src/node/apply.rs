//! Makes the changes of a plan: all of them, or none.

use super::{
    file::{Backup, ConfigFile, FileError},
    plan::{Change, Plan, Step},
};

/// Makes all changes, or none.
///
/// # Errors
/// The first that failed; those before it are undone.
pub(crate) fn carry_out(plan: &Plan<'_>) -> Result<(), FileError> {
    let mut staged = Vec::new();
    for change in &plan.changes {
        change.file.check()?;
        staged.push(match change.step {
            Step::Replace | Step::SetBack => Some(change.file.stage(&change.text)?),
            Step::Restore | Step::Forget => None,
        });
    }
    let mut done: Vec<&Change<'_>> = Vec::new();
    for (change, staged) in plan.changes.iter().zip(staged) {
        let made = match (change.step, staged) {
            (Step::Replace, Some(staged)) => staged.commit(Backup::Make),
            (_, Some(staged)) => staged.commit(Backup::Keep),
            (Step::Restore, None) => change.file.restore(),
            (_, None) => Ok(()),
        };
        if let Err(error) = made {
            undo(&done);
            return Err(error);
        }
        done.push(change);
    }
    for change in done {
        if matches!(change.step, Step::SetBack | Step::Forget) {
            // What is left of it is no obstacle: the next backup replaces it.
            let _ = change.file.remove_backup();
        }
    }
    Ok(())
}

/// Puts back what was there before the changes.
fn undo(done: &[&Change<'_>]) {
    for change in done {
        let Ok(Some(now)) = ConfigFile::open(change.file.path()) else { continue };
        let replace = |backup| now.stage(change.file.text()).and_then(|staged| staged.commit(backup));
        // The error that is reported is the one that led here.
        let _ = match change.step {
            Step::Replace => now.restore(),
            Step::SetBack => replace(Backup::Keep),
            // The backup was put in the place of the file, and is the backup again.
            Step::Restore => replace(Backup::Make),
            Step::Forget => Ok(()),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn if_one_file_cannot_be_changed_those_before_it_are_as_they_were() {
        for step in [Step::Replace, Step::SetBack, Step::Restore] {
            let dir = tempfile::tempdir().unwrap();
            let (one, two) = (dir.path().join("one"), dir.path().join("two"));
            fs::write(&one, "old").unwrap();
            fs::write(&two, "old").unwrap();
            if step != Step::Replace {
                fs::write(dir.path().join("one.criprobe-backup"), "former").unwrap();
            }
            let files = [&one, &two].map(|path| ConfigFile::open(path).unwrap().unwrap());
            let change = |file, step| Change { file, text: "new".to_owned(), hunks: Vec::new(), step };
            let changes = vec![change(&files[0], step), change(&files[1], Step::Replace)];
            fs::write(&two, "changed").unwrap();
            let error = carry_out(&Plan { changes, ..Plan::default() }).unwrap_err();
            assert!(matches!(error, FileError::Changed(_)), "{step:?}: {error}");
            let read = [&one, &two].map(|path| fs::read_to_string(path).unwrap());
            assert_eq!(read, ["old", "changed"], "{step:?}");
            let backup = fs::read_to_string(dir.path().join("one.criprobe-backup")).ok();
            let expected = (step != Step::Replace).then(|| "former".to_owned());
            assert_eq!(backup, expected, "{step:?}");
        }
    }
}
