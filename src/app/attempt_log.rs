//! Writes each attempt of a probe to the file that the operator names, a line of JSON each, and has its cost noted.

use crate::{
    prober::made::MadeAttempt,
    record_file::RecordFile,
    redact::Redactor,
    report::{costs::CostsHandle, view::AttemptLineView},
};

/// 1 KiB: what an attempt takes beside its output, until it is written.
const OVERHEAD: usize = 1 << 10;

/// Takes attempts, and passes them on to this file; costs next to nothing while there is none.
pub(super) fn into(
    file: RecordFile,
    redactor: Redactor,
    costs: CostsHandle,
) -> Box<dyn FnMut(MadeAttempt) + Send> {
    Box::new(move |attempt| {
        costs.attempt_made(&attempt);
        let (weight, redactor) = (OVERHEAD + attempt.record.output.len(), redactor.clone());
        file.push(weight, move || {
            let line = serde_json::to_vec(&AttemptLineView::from(&attempt))
                .expect("texts, numbers and times can be written");
            redactor.patterns().json(line)
        });
    })
}
