//! Writes a container's output into a file in the CRI log format: `TIME stdout|stderr F|P TEXT`, one line each.
//! Bytes in, lines in a file out; never interprets them.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::clock;

/// 16 KiB of text in one log line, as containerd has it; longer ones are written in parts that are tagged `P`.
const MAX_LINE: usize = 16 << 10;

/// 64 MiB in one log file; what comes after that is read and dropped until the log is opened again.
const MAX_FILE: u64 = 64 << 20;

/// One container's log.
pub(super) struct Log {
    path: PathBuf,
    file: Mutex<(File, u64)>,
}

impl Log {
    /// Opens the file for appending, and creates it if it is missing.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let file = Mutex::new(append(&path)?);
        Ok(Self { path, file })
    }

    /// Opens the file again, after it was rotated away.
    ///
    /// # Errors
    /// When it cannot be opened; the old one stays in use then.
    pub(super) fn reopen(&self) -> io::Result<()> {
        let file = append(&self.path)?;
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = file;
        Ok(())
    }

    /// Writes all that comes from `pipe`, until its end.
    pub(super) async fn pump(&self, stream: &str, mut pipe: impl AsyncRead + Unpin) {
        let mut pending = Vec::new();
        loop {
            match pipe.read_buf(&mut pending).await {
                Ok(0) | Err(_) => break,
                Ok(_) => self.write(stream, &mut pending, false),
            }
        }
        self.write(stream, &mut pending, true);
    }

    fn write(&self, stream: &str, pending: &mut Vec<u8>, is_last: bool) {
        let time = format!("{:.9}", jiff::Timestamp::try_from(clock::wall()).unwrap_or_default());
        let lines = take_lines(pending, is_last);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        for (tag, text) in lines {
            let line = [format!("{time} {stream} {tag} ").as_bytes(), &text, b"\n"].concat();
            file.1 += line.len() as u64;
            if file.1 <= MAX_FILE
                && let Err(error) = file.0.write_all(&line)
            {
                tracing::debug!(%error, path = %self.path.display(), "container log line lost");
            }
        }
    }
}

fn append(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let length = file.metadata()?.len();
    Ok((file, length))
}

/// Takes the whole lines out of `pending`, tagged `F`, and those beginnings of a line that are too long to wait for its
/// end, tagged `P`. At the last call an unfinished line is a part, too.
fn take_lines(pending: &mut Vec<u8>, is_last: bool) -> Vec<(char, Vec<u8>)> {
    let mut lines = Vec::new();
    let mut rest = pending.as_slice();
    loop {
        let window = &rest[..rest.len().min(MAX_LINE + 1)];
        if let Some(end) = window.iter().position(|byte| *byte == b'\n') {
            lines.push(('F', rest[..end].to_vec()));
            rest = &rest[end + 1..];
        } else if rest.len() > MAX_LINE {
            lines.push(('P', rest[..MAX_LINE].to_vec()));
            rest = &rest[MAX_LINE..];
        } else {
            break;
        }
    }
    if is_last && !rest.is_empty() {
        lines.push(('P', rest.to_vec()));
        rest = &[];
    }
    *pending = rest.to_vec();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_cut_at_line_ends_and_at_the_bound() {
        let long = "x".repeat(MAX_LINE);
        let too_long = format!("{long}yz\n");
        let cases = [
            ("nothing", "", false, vec![], ""),
            ("a line", "one\n", false, vec![("F", "one")], ""),
            ("an unfinished line waits", "one\ntw", false, vec![("F", "one")], "tw"),
            ("an unfinished line at the end", "tw", true, vec![("P", "tw")], ""),
            ("empty lines count", "\n\n", false, vec![("F", ""), ("F", "")], ""),
            ("a line of the bound is whole", &format!("{long}\n"), false, vec![("F", &*long)], ""),
            ("a longer one comes in parts", &too_long, false, vec![("P", &*long), ("F", "yz")], ""),
        ];
        for (name, input, is_last, expected, rest) in cases {
            let mut pending = input.as_bytes().to_vec();
            let lines = take_lines(&mut pending, is_last);
            let lines: Vec<_> = lines
                .into_iter()
                .map(|(tag, text)| (tag.to_string(), String::from_utf8(text).unwrap()))
                .collect();
            let expected: Vec<_> =
                expected.into_iter().map(|(tag, text)| (tag.to_owned(), text.to_owned())).collect();
            assert_eq!(lines, expected, "{name}");
            assert_eq!(pending, rest.as_bytes(), "{name}");
        }
    }

    proptest::proptest! {
        #[test]
        fn lines_do_not_depend_on_how_the_output_was_split(text in "[ab\n]{0,60}", cut in 0usize..60) {
            let bytes = text.as_bytes();
            let cut = cut.min(bytes.len());
            let mut whole = bytes.to_vec();
            let expected = take_lines(&mut whole, true);
            let mut pending = bytes[..cut].to_vec();
            let mut lines = take_lines(&mut pending, false);
            pending.extend_from_slice(&bytes[cut..]);
            lines.extend(take_lines(&mut pending, true));
            proptest::prop_assert_eq!(lines, expected);
        }
    }
}
