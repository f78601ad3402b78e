//! Reports when the files of calls and attempts cannot be written, each trouble once: their status in; an event and a line
//! of the log out when it begins, when its reason changes, and when it ends; and when such a file was deleted.

use std::time::Duration;

use tokio::time::sleep;

use crate::{
    clock,
    record_file::RecordFile,
    report::{
        journal::Journal,
        view::{EventType, EventView, RecordFileView, RecordKind},
    },
    stage::Tasks,
};

/// 1 s: how often the files' status is read. A trouble that is over sooner may be missed; what it cost is counted.
const LOOK: Duration = Duration::from_secs(1);

/// Starts the task that follows these files.
pub(super) fn spawn(files: [(RecordKind, RecordFile); 2], journal: Journal<EventView>, tasks: &mut Tasks) {
    tasks.spawn(tasks.supervise("records", async move || {
        let mut files = files.each_ref().map(|(kind, file)| (*kind, file.clone(), Trouble::default()));
        loop {
            for (kind, file, known) in &mut files {
                let status = file.status();
                let deleted = status.as_ref().map_or(0, |status| status.deleted);
                let status = status.map(RecordFileView::from);
                if let Some((severity, message)) = known.on(*kind, status.as_ref(), deleted) {
                    report(severity, message, &journal);
                }
            }
            sleep(LOOK).await;
        }
    }));
}

fn report(severity: EventType, message: String, journal: &Journal<EventView>) {
    let reason = match severity {
        EventType::Warning => {
            tracing::warn!(message);
            "RecordsNotWritten"
        }
        EventType::Normal => {
            tracing::info!(message);
            "RecordsWritten"
        }
    };
    journal.push(EventView::of_node(severity, reason, message, clock::wall().into()));
}

/// What was reported last: the file, what is wrong with it, empty if nothing is, and how many were deleted.
#[derive(Debug, Default)]
struct Trouble {
    file: String,
    reason: String,
    deleted: u64,
}

impl Trouble {
    /// What is new, if anything is. Another file begins without trouble.
    fn on(
        &mut self,
        kind: RecordKind,
        status: Option<&RecordFileView>,
        deleted: u64,
    ) -> Option<(EventType, String)> {
        let Some(RecordFileView { file, trouble, dropped, .. }) = status else {
            *self = Self { deleted: self.deleted, ..Self::default() };
            return None;
        };
        let is_same = self.file == *file;
        if !is_same {
            self.deleted = deleted;
        }
        let before = if is_same { &*self.reason } else { "" };
        let news = match (before, &**trouble) {
            // While there is trouble, that is the news.
            ("", "") => (std::mem::replace(&mut self.deleted, deleted) != deleted).then(|| {
                let kind = kind.as_str();
                (EventType::Normal, format!("{kind} are written to a new {file}: the one before was deleted"))
            }),
            (before, trouble) if before == trouble => None,
            (_, "") => Some((
                EventType::Normal,
                format!("{} are written to {file} again; dropped since the start: {dropped}", kind.as_str()),
            )),
            (_, _) => Some((EventType::Warning, kind.problem(status?)?)),
        };
        (self.file, self.reason) = (file.clone(), trouble.clone());
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trouble_is_reported_once_and_so_is_its_end() {
        let view = |file: &str, trouble: &str| {
            let (file, trouble) = (file.to_owned(), trouble.to_owned());
            Some(RecordFileView { file, written: 1, dropped: 7, trouble })
        };
        let mut known = Trouble::default();
        for (row, (status, deleted, expected)) in [
            (None, 0, None),
            (view("/a", ""), 0, None),
            (
                view("/a", "it is full"),
                0,
                Some("Warning calls are not written to /a (trace.file): it is full"),
            ),
            (view("/a", "it is full"), 0, None),
            (view("/a", "it hangs"), 0, Some("Warning calls are not written to /a (trace.file): it hangs")),
            (view("/a", ""), 0, Some("Normal calls are written to /a again; dropped since the start: 7")),
            (view("/a", ""), 0, None),
            (
                view("/a", "it is full"),
                0,
                Some("Warning calls are not written to /a (trace.file): it is full"),
            ),
            // It is no longer written to.
            (view("/b", ""), 0, None),
            (view("/c", "it hangs"), 0, Some("Warning calls are not written to /c (trace.file): it hangs")),
            (None, 0, None),
            (view("/c", ""), 0, None),
            (view("/c", ""), 1, Some("Normal calls are written to a new /c: the one before was deleted")),
            (view("/c", ""), 1, None),
            (view("/c", "it hangs"), 2, Some("Warning calls are not written to /c (trace.file): it hangs")),
            (view("/c", ""), 2, Some("Normal calls are written to /c again; dropped since the start: 7")),
            (view("/c", ""), 2, Some("Normal calls are written to a new /c: the one before was deleted")),
            (view("/c", "it hangs"), 3, Some("Warning calls are not written to /c (trace.file): it hangs")),
            (view("/c", "it hangs"), 4, None),
            (view("/d", ""), 4, None),
            (view("/d", ""), 4, None),
        ]
        .into_iter()
        .enumerate()
        {
            let news = known.on(RecordKind::Calls, status.as_ref(), deleted);
            let news = news.map(|(severity, message)| format!("{} {message}", severity.as_str()));
            assert_eq!(news.as_deref(), expected, "row {row}");
        }
    }
}
