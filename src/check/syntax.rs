//! Explains why a file cannot be read: it is not text, or not YAML.

use super::{findings::Findings, place::Lines};
use crate::document::{self, Place, SyntaxError};

/// How the parts of a template begin and end, in Helm and its like.
const TEMPLATE: (&str, &str) = ("{{", "}}");

/// UTF-8 text, without a byte order mark.
pub(super) fn text(bytes: &[u8]) -> Result<&str, SyntaxError> {
    let no_text = |reason: String| Err(SyntaxError::NotText { place: None, reason });
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return no_text("the file is compressed: unpack it first".to_owned());
    }
    let is_utf_16 = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    if let Some(at) = bytes.iter().position(|byte| *byte == 0).filter(|_| !is_utf_16) {
        return no_text(format!("the file is binary: byte {} is 0", at + 1));
    }
    document::decode(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes))
}

/// Reports an error in a document that begins in that line. True where it looks like a template that was not rendered.
pub(super) fn report(error: &SyntaxError, first: u32, lines: &Lines<'_>, findings: &mut Findings) -> bool {
    let place = error.place();
    if let Some(template) = template(first, lines) {
        let reason = format!(
            "{}; line {} looks like a template that was not rendered: check its output, as with \
             'helm template CHART | criprobe check -'",
            error.reason(),
            template.line
        );
        findings.error(place.or(Some(template)), reason);
        return true;
    }
    let line = place.and_then(|place| lines.get(place.line)).unwrap_or_default();
    let indent = line.split(|character: char| !character.is_whitespace()).next().unwrap_or_default();
    let hint = if indent.contains('\t') { ": indent with spaces, not tabs" } else { "" };
    findings.error(place, format!("{}{hint}", error.reason()));
    false
}

/// Where the first part of a template stands, from that line on; it ends where another document begins.
fn template(first: u32, lines: &Lines<'_>) -> Option<Place> {
    let (open, close) = TEMPLATE;
    let mut number = first;
    loop {
        let line = lines.get(number)?;
        if let Some((before, after)) = line.split_once(open)
            && (after.contains(close)
                || lines.get(number.checked_add(1)?).is_some_and(|line| line.contains(close)))
        {
            let column = u32::try_from(before.chars().count()).ok()?.checked_add(1)?;
            return Some(Place { line: number, column });
        }
        number = number.checked_add(1)?;
        if number > first && line_is_marker(lines.get(number)?) {
            return None;
        }
    }
}

fn line_is_marker(line: &str) -> bool {
    line == "---" || line.starts_with("--- ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_utf_8_and_all_else_is_told() {
        assert_eq!(text(b"\xef\xbb\xbfa: b"), Ok("a: b"));
        assert_eq!(text(b""), Ok(""));
        for (bytes, place, reported) in [
            (&b"\xff\xfea\0"[..], "1:1", "UTF-16"),
            (b"\xfe\xff\0a", "1:1", "UTF-16"),
            (b"\x1f\x8b\x08\0", "", "compressed"),
            (b"\x7fELF\x02\x01\x01\0", "", "byte 8 is 0"),
            (b"a: b\nc: \xc3\xa9 \xe9", "2:6", "byte 0xe9"),
        ] {
            let error = text(bytes).unwrap_err();
            assert_eq!(error.place().map(|place| place.to_string()).unwrap_or_default(), place, "{error}");
            assert!(error.to_string().contains(reported), "{error}");
        }
    }
}
