//! The head of a response: lines in; status, where to instead, and how the body is framed out. As Go's client reads
//! them, with its words for what is wrong. Pure.

use super::{fields::Fields, headers::holds_token};
use crate::handler::go;

/// A head that came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Three digits, as the server gave them.
    pub status: u16,
    /// Where to instead; empty without one.
    pub location: Vec<u8>,
    /// Where the body ends.
    pub framing: Framing,
}

/// Where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// After that many bytes.
    Length(u64),
    /// As the chunks say.
    Chunked,
    /// With the connection.
    UntilClose,
}

impl Head {
    /// Whether another head follows: all 1xx but 101 only announce it.
    pub(super) fn is_interim(&self) -> bool {
        matches!(self.status, 100 | 102..=199)
    }
}

/// Reads a head: the status line, then fields.
#[derive(Debug, Default)]
pub(super) struct HeadReader {
    status_line: Option<StatusLine>,
    fields: Fields,
}

#[derive(Clone, Copy, Debug)]
struct StatusLine {
    status: u16,
    /// HTTP/1.0 and below know no chunks.
    has_chunks: bool,
}

impl HeadReader {
    /// Takes the next line, without its end. `Some` when the head is whole.
    ///
    /// # Errors
    /// In Go's words.
    pub(super) fn on_line(&mut self, line: &[u8]) -> Result<Option<Head>, String> {
        match self.status_line {
            None => self.status_line = Some(read_status_line(line)?),
            Some(status_line) if self.fields.on_line(line)? => return self.whole(status_line).map(Some),
            Some(_) => {}
        }
        Ok(None)
    }

    fn whole(&self, StatusLine { status, has_chunks }: StatusLine) -> Result<Head, String> {
        let is_chunked = has_chunks && self.is_chunked()?;
        let length = self.content_length()?;
        if is_chunked {
            self.check_trailer()?;
        }
        let framing = match (status, length) {
            (101, _) if self.switches_protocol() => Framing::UntilClose,
            (100..=199 | 204 | 304, _) => Framing::Length(0),
            _ if is_chunked => Framing::Chunked,
            (_, Some(length)) => Framing::Length(length),
            (_, None) => Framing::UntilClose,
        };
        let location = self.fields.all("Location").first().cloned().unwrap_or_default();
        Ok(Head { status, location, framing })
    }

    fn is_chunked(&self) -> Result<bool, String> {
        match self.fields.all("Transfer-Encoding") {
            [] => Ok(false),
            [one] if one.eq_ignore_ascii_case(b"chunked") => Ok(true),
            [one] => Err(format!("unsupported transfer encoding: {}", go::quoted(one))),
            many => Err(format!("too many transfer encodings: {}", listed(many))),
        }
    }

    fn content_length(&self) -> Result<Option<u64>, String> {
        let [first, others @ ..] = self.fields.all("Content-Length") else { return Ok(None) };
        if others.iter().any(|other| other != first) {
            let all = listed(self.fields.all("Content-Length"));
            return Err(format!("http: message cannot contain multiple Content-Length headers; got {all}"));
        }
        if first.is_empty() {
            return Err("invalid empty Content-Length \"\"".to_owned());
        }
        let digits = str::from_utf8(first).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let length =
            digits.and_then(|digits| digits.parse().ok()).filter(|length| i64::try_from(*length).is_ok());
        length.map(Some).ok_or_else(|| format!("bad Content-Length {}", go::quoted(first)))
    }

    /// A trailer may not announce what frames the message.
    fn check_trailer(&self) -> Result<(), String> {
        let announced = self.fields.all("Trailer").iter().flat_map(|list| list.split(|byte| *byte == b','));
        for name in announced.map(<[u8]>::trim_ascii) {
            let framing = ["Transfer-Encoding", "Trailer", "Content-Length"];
            if let Some(name) =
                framing.into_iter().find(|framing| framing.as_bytes().eq_ignore_ascii_case(name))
            {
                return Err(format!("bad trailer key \"{name}\""));
            }
        }
        Ok(())
    }

    fn switches_protocol(&self) -> bool {
        let asks = |value: &Vec<u8>| holds_token(&String::from_utf8_lossy(value), "Upgrade");
        self.fields.all("Upgrade").first().is_some_and(|upgrade| !upgrade.is_empty())
            && self.fields.all("Connection").iter().any(asks)
    }
}

/// `HTTP/1.1 200 OK`, of any version that two digits can name; what follows the status is not looked at.
fn read_status_line(line: &[u8]) -> Result<StatusLine, String> {
    let malformed = |what: &str, text: &[u8]| format!("malformed HTTP {what} {}", go::quoted(text));
    let Some(blank) = line.iter().position(|byte| *byte == b' ') else {
        return Err(malformed("response", line));
    };
    let (version, rest) = (&line[..blank], &line[blank..]);
    let skipped = rest.iter().position(|byte| *byte != b' ').unwrap_or(rest.len());
    let code = rest[skipped..].split(|byte| *byte == b' ').next().unwrap_or_default();
    let status = str::from_utf8(code).ok().filter(|code| code.len() == 3).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| malformed("status code", code))?;
    match version {
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Ok(StatusLine { status, has_chunks: (*major, *minor) >= (b'1', b'1') })
        }
        _ => Err(malformed("version", version)),
    }
}

/// Values as Go lists them: `["1" "2"]`.
fn listed(values: &[Vec<u8>]) -> String {
    let values: Vec<_> = values.iter().map(|value| go::quoted(value)).collect();
    format!("[{}]", values.join(" "))
}
