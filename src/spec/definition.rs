//! Turns the text of an annotation into a [`ProbeSpec`], or into all errors, with places in that text.

use super::{ProbeSpec, annotation, raw::RawProbe, validate::validate};
use crate::{
    document::{
        self, SyntaxError, Value,
        fault::{self, FieldError},
    },
    ids::ProbeKind,
};

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
    let node = document::parse(text, annotation::MAX_ANNOTATION)
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
