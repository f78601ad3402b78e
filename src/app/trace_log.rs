//! Passes each call that ended to the journal, and to the file that the operator names, a line of JSON each.

use std::sync::Arc;

use crate::{
    record_file::RecordFile,
    redact::Redactor,
    report::{JournaledCall, journal::Journal},
};

/// 8 MiB of calls wait for the file's disk: with usual commands those of a second, if there are 5,000 in it. They are the
/// journal's own for as long as it keeps them.
pub(super) const QUEUE: usize = 8 << 20;

/// Where calls go. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct CallSink {
    pub journal: Journal<dyn JournaledCall>,
    pub file: RecordFile,
    pub redactor: Redactor,
}

impl CallSink {
    /// Takes a call. The file's own thread makes its line, as redaction may take longer than the stages have.
    pub(super) fn push(&self, call: Arc<dyn JournaledCall>) {
        let (kept, redactor) = (Arc::clone(&call), self.redactor.clone());
        self.file.push(call.size(), move || {
            let line = serde_json::to_vec(&kept.view()).expect("texts, numbers and times can be written");
            redactor.patterns().json(line)
        });
        self.journal.push(call);
    }
}
