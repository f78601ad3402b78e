//! Turns the text of an annotation into a [`ProbeSpec`], or into all errors, with places in that text.

use super::{ProbeSpec, annotation, raw::RawProbe, validate::validate};
use crate::{
    document::{
        self, Bounds, SyntaxError, Value,
        fault::{self, FieldError},
    },
    ids::ProbeKind,
};

/// A definition may have 1,024 names and values: 512 words of a command and 64 headers of five each are 832. One with more
/// is invalid, and is not read to its end: to read 16 KiB of the shortest values takes 20 ms.
pub(super) const BOUNDS: Bounds =
    Bounds { bytes: annotation::MAX_ANNOTATION, depth: document::MAX_DEPTH, nodes: 1024 };

/// Why a text defines no probe; prints all of it in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub(crate) struct Wrong {
    /// What is wrong.
    pub fault: DefinitionFault,
    /// The handler as far as it is known: `exec`, `httpGet`, `tcpSocket`, `grpc`.
    pub handler: Option<&'static str>,
}

/// What is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DefinitionFault {
    /// It cannot be read at all.
    #[error("{0}")]
    Syntax(SyntaxError),
    /// It is no valid probe: at least one error.
    #[error("{}", fault::joined(.0))]
    Fields(Vec<FieldError>),
}

/// Reads a probe of that type.
///
/// # Errors
/// Everything that is wrong at once.
pub(crate) fn read(kind: ProbeKind, text: &str) -> Result<ProbeSpec, Wrong> {
    let fields = |errors, handler| Wrong { fault: DefinitionFault::Fields(errors), handler };
    let node = document::parse_within(text, &BOUNDS)
        .map_err(|error| Wrong { fault: DefinitionFault::Syntax(error), handler: None })?;
    if node.value == Value::Null {
        let reason = "the annotation is empty: write a probe, such as {exec: {command: [cat, /tmp/healthy]}}";
        let error = FieldError { path: String::new(), reason: reason.to_owned(), place: None };
        return Err(fields(vec![error], None));
    }
    let mut errors = Vec::new();
    let Some(raw) = RawProbe::read(&node, "", &mut errors) else { return Err(fields(errors, None)) };
    validate(&raw, kind, "", errors).map_err(|errors| fields(errors, raw.handler()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(text: &str) -> String {
        read(ProbeKind::Liveness, text).unwrap_err().to_string()
    }

    #[test]
    fn of_many_faults_the_first_are_explained_and_the_others_counted() {
        let keys: String = (0..400).map(|number| format!("periodSeconds{number}:\n")).collect();
        let Err(Wrong { fault: DefinitionFault::Fields(errors), .. }) = read(ProbeKind::Liveness, &keys)
        else {
            panic!("it is one");
        };
        let explained = errors.iter().filter(|error| error.reason.contains("did you mean")).count();
        assert_eq!((errors.len(), explained), (401, 32), "and the missing handler");
        assert!(reason(&keys).ends_with("; and 393 more"), "{}", reason(&keys));
        let headers = "{nam: x, valu: 1},".repeat(100);
        let headers = format!("httpGet: {{port: 80, httpHeaders: [{headers}]}}");
        let Err(Wrong { fault: DefinitionFault::Fields(errors), .. }) = read(ProbeKind::Liveness, &headers)
        else {
            panic!("it is one");
        };
        let explained = errors.iter().filter(|error| error.reason.contains("did you mean")).count();
        assert!(errors.len() > 200 && explained <= 32, "{explained} of {}", errors.len());
    }

    #[test]
    fn a_definition_of_more_values_than_any_probe_has_is_not_read_to_its_end() {
        let words = |count: usize| format!("exec: {{command: [{}]}}", "x,".repeat(count));
        assert!(read(ProbeKind::Liveness, &words(512)).is_ok());
        assert!(reason(&words(600)).contains("512"), "{}", reason(&words(600)));
        let headers = "{name: a, value: b},".repeat(64);
        let headers = format!("httpGet: {{port: 80, httpHeaders: [{headers}]}}");
        assert!(read(ProbeKind::Liveness, &headers).is_ok());
        let keys: String = (0..2800).map(|number| format!("{number}:\n")).collect();
        for text in
            [words(8000), keys, format!("[{}]", "{},".repeat(5000)), format!("[{}]", "[],".repeat(5000))]
        {
            assert!(reason(&text).contains("too many values"), "{}", reason(&text));
        }
    }
}
