//! Measures an ExecSync answer while it passes: exit code and lengths, however large the outputs are. Keeps the beginnings
//! of the outputs only if that is wanted. In: the message in pieces of any size; out: the figures, once it is whole.

use super::cri::{ExecOutputs, ExecResult, MAX_OUTPUT};
use crate::{
    carry::carried,
    proto::exec::{ExecOutput, ExecPart, ExecWalker},
};

/// The figures of one ExecSyncResponse.
#[derive(Debug, Default)]
pub(super) struct ExecMeter {
    result: ExecResult,
    walker: ExecWalker,
}

carried! { struct ExecMeter { result, walker } }

impl ExecMeter {
    /// Keeps the beginnings of the outputs, or does not.
    pub(super) fn new(keeps_outputs: bool) -> Self {
        let outputs = keeps_outputs.then(Box::<ExecOutputs>::default);
        Self { result: ExecResult { outputs, ..ExecResult::default() }, walker: ExecWalker::default() }
    }

    /// Takes the next piece of the message.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let result = &mut self.result;
        // A walker that is lost never comes to an end of the message.
        let _ = self.walker.feed(bytes, |part| match part {
            ExecPart::Begins(output, length) => {
                match output {
                    ExecOutput::Stdout => result.stdout_bytes = shorter(length),
                    ExecOutput::Stderr => result.stderr_bytes = shorter(length),
                }
                if let Some(outputs) = &mut result.outputs {
                    outputs.of(output).clear();
                }
            }
            ExecPart::ExitCode(exit_code) => result.exit_code = exit_code,
            ExecPart::Bytes(output, bytes) => {
                if let Some(outputs) = &mut result.outputs {
                    let kept = outputs.of(output);
                    let more = &bytes[..bytes.len().min(MAX_OUTPUT - kept.len())];
                    kept.reserve_exact(more.len());
                    kept.extend_from_slice(more);
                }
            }
        });
    }

    /// What the message said; `None` if it was cut short or malformed.
    pub(super) fn finish(&self) -> Option<ExecResult> {
        self.walker.is_between_fields().then(|| self.result.clone())
    }
}

impl ExecOutputs {
    fn of(&mut self, output: ExecOutput) -> &mut Vec<u8> {
        match output {
            ExecOutput::Stdout => &mut self.stdout,
            ExecOutput::Stderr => &mut self.stderr,
        }
    }
}

/// A message has less than 4 GiB, and so has each field of one that is whole.
fn shorter(length: u64) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::proto::cri::ExecSyncResponse;

    proptest! {
        #[test]
        fn any_answer_in_any_pieces_is_measured(
            stdout in prop::collection::vec(any::<u8>(), 0..600),
            stderr in prop::collection::vec(any::<u8>(), 0..300),
            exit_code: i32,
            keeps_outputs: bool,
            piece in 1usize..64,
        ) {
            let bytes = ExecSyncResponse { stdout: stdout.clone(), stderr: stderr.clone(), exit_code }.encode_to_vec();
            let mut meter = ExecMeter::new(keeps_outputs);
            let cut = |output: &[u8]| output[..output.len().min(MAX_OUTPUT)].to_vec();
            bytes.chunks(piece).for_each(|piece| meter.feed(piece));
            prop_assert_eq!(meter.finish(), Some(ExecResult {
                exit_code,
                stdout_bytes: stdout.len() as u32,
                stderr_bytes: stderr.len() as u32,
                outputs: keeps_outputs
                    .then(|| Box::new(ExecOutputs { stdout: cut(&stdout), stderr: cut(&stderr) })),
            }));
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut meter = ExecMeter::new(true);
            meter.feed(&bytes);
            let _ = meter.finish();
        }
    }

    #[test]
    fn an_answer_cut_short_says_nothing() {
        let bytes =
            ExecSyncResponse { stdout: b"hello".to_vec(), stderr: vec![], exit_code: 1 }.encode_to_vec();
        for end in 1..5 {
            let mut meter = ExecMeter::new(false);
            meter.feed(&bytes[..end]);
            assert_eq!(meter.finish(), None, "{end}");
        }
    }
}
