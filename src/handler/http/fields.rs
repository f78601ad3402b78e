//! The fields of a head or a trailer, line by line, as Go's `textproto` reads them. Pure; keeps only what decides how a
//! response goes on, so that a long head costs no memory.

use std::collections::BTreeMap;

use super::headers::is_token_byte;
use crate::handler::{OUTPUT_LIMIT, go};

/// The fields that are kept.
const KEPT: &[&str] =
    &["Connection", "Content-Length", "Location", "Trailer", "Transfer-Encoding", "Upgrade"];

/// Fields, up to the empty line.
#[derive(Debug, Default)]
pub(super) struct Fields {
    /// The line that may still go on.
    open: Option<Vec<u8>>,
    kept: BTreeMap<&'static str, Vec<Vec<u8>>>,
}

impl Fields {
    /// Takes the next line, without its end; whether it was the last. One that begins with a blank goes on with the one
    /// before.
    ///
    /// # Errors
    /// In Go's words.
    pub(super) fn on_line(&mut self, line: &[u8]) -> Result<bool, String> {
        let is_continued = matches!(line.first(), Some(b' ' | b'\t'));
        match &mut self.open {
            Some(open) if is_continued => {
                open.push(b' ');
                open.extend_from_slice(line.trim_ascii());
                return Ok(false);
            }
            None if is_continued => {
                return Err(format!("malformed MIME header initial line: {}", shown(line)));
            }
            Some(_) | None => self.close_line()?,
        }
        if line.is_empty() {
            return Ok(true);
        }
        let line = line.trim_ascii();
        if !line.contains(&b':') {
            return Err(format!("malformed MIME header: missing colon: {}", go::quoted(line)));
        }
        self.open = Some(line.to_vec());
        Ok(false)
    }

    /// The values of a kept field, in their order.
    pub(super) fn all(&self, name: &str) -> &[Vec<u8>] {
        self.kept.get(name).map_or(&[], Vec::as_slice)
    }

    fn close_line(&mut self) -> Result<(), String> {
        let Some(line) = self.open.take() else { return Ok(()) };
        let malformed = || format!("malformed MIME header line: {}", shown(&line));
        let colon = line.iter().position(|byte| *byte == b':').ok_or_else(malformed)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        // A name with blanks in it is taken, and means nothing.
        let is_name = !name.is_empty() && name.iter().all(|byte| *byte == b' ' || is_token_byte(*byte));
        if !is_name || value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
            return Err(malformed());
        }
        if let Some(kept) = KEPT.iter().find(|kept| kept.as_bytes().eq_ignore_ascii_case(name)) {
            self.kept.entry(kept).or_default().push(value.to_vec());
        }
        Ok(())
    }
}

/// The beginning of a line, as much as an output may hold.
fn shown(line: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(&line[..line.len().min(OUTPUT_LIMIT)])
}
