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
            Step::Replace(_) => Some(change.file.stage(&change.text)?),
            Step::Restore | Step::Forget => None,
        });
    }
    let mut done: Vec<&Change<'_>> = Vec::new();
    for (change, staged) in plan.changes.iter().zip(staged) {
        let made = match (change.step, staged) {
            (Step::Replace(backup), Some(staged)) => staged.commit(backup),
            (Step::Restore, _) => change.file.restore(),
            (Step::Forget | Step::Replace(_), _) => change.file.remove_backup(),
        };
        if let Err(error) = made {
            undo(&done);
            return Err(error);
        }
        done.push(change);
    }
    Ok(())
}

/// Puts back what was there before the changes.
fn undo(done: &[&Change<'_>]) {
    for change in done {
        let Ok(Some(now)) = ConfigFile::open(change.file.path()) else { continue };
        let _ = match change.step {
            Step::Replace(Backup::Make) => now.restore(),
            // The backup is gone: the same content without it.
            Step::Replace(Backup::Remove) => {
                now.stage(change.file.text()).and_then(|staged| staged.commit(Backup::Remove))
            }
            // The file was the switched one, and the backup is in its place.
            Step::Restore => now.stage(change.file.text()).and_then(|staged| staged.commit(Backup::Make)),
            Step::Forget => Ok(()),
        };
    }
}
