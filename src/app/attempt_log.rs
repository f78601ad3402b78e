//! Writes each attempt of a probe to the file that the operator names, a line of JSON each.

use crate::{prober::made::MadeAttempt, record_file::RecordFile, report::view::AttemptLineView};

/// Takes attempts, and passes them on to this file; costs next to nothing while there is none.
pub(super) fn into(file: RecordFile) -> Box<dyn FnMut(MadeAttempt) + Send> {
    Box::new(move |attempt| {
        file.push(|| {
            serde_json::to_vec(&AttemptLineView::from(&attempt))
                .expect("texts, numbers and times can be written")
        });
    })
}
