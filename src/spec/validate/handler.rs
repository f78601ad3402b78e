//! Checks the handler of a probe: exactly one, with fields by Kubernetes' rules. Fields of the wrong type were reported
//! when they were read, and are skipped.

use super::Check;
use crate::{
    document::{
        Place,
        fault::{FieldError, quoted},
        fields::{Field, NumberOrText},
    },
    spec::{
        Handler, HttpGet, PortRef, Scheme,
        raw::{RawExec, RawGrpc, RawHeader, RawHttpGet, RawProbe, RawTcpSocket},
    },
};

/// 512 words of a command, and 64 headers: each takes some 60 bytes however short it is, so that a definition of 16 KiB could
/// take a megabyte. Kubernetes has no such bounds.
pub(in crate::spec) const MOST_WORDS: usize = 512;
const MOST_HEADERS: usize = 64;

/// Kubernetes' bound of a port name, in characters; a longer one is an error.
const MAX_PORT_NAME: usize = 15;

impl Check<'_> {
    /// The one handler; surplus ones are forbidden without a further look, as Kubernetes does.
    pub(super) fn handler(&mut self, raw: &RawProbe) -> Option<Handler> {
        let handler = if !raw.exec.is_absent() {
            self.exec(&raw.exec)
        } else if !raw.http_get.is_absent() {
            self.http_get(&raw.http_get)
        } else if !raw.tcp_socket.is_absent() {
            self.tcp_socket(&raw.tcp_socket)
        } else if !raw.grpc.is_absent() {
            self.grpc(&raw.grpc)
        } else {
            let detail = "must specify a handler type: exec, httpGet, tcpSocket or grpc";
            self.errors.push(FieldError::required(self.path.into(), self.place, detail));
            None
        };
        let written = [
            ("exec", raw.exec.is_absent(), raw.exec.place()),
            ("httpGet", raw.http_get.is_absent(), raw.http_get.place()),
            ("tcpSocket", raw.tcp_socket.is_absent(), raw.tcp_socket.place()),
            ("grpc", raw.grpc.is_absent(), raw.grpc.place()),
        ];
        for (name, _, place) in written.into_iter().filter(|(_, is_absent, _)| !is_absent).skip(1) {
            let path = self.at(name);
            self.errors.push(FieldError::forbidden(path, place, "may not specify more than 1 handler type"));
        }
        handler
    }

    fn exec(&mut self, field: &Field<RawExec>) -> Option<Handler> {
        let command = self.command("exec.command", &field.value()?.command, field.place())?;
        Some(Handler::Exec { command })
    }

    /// A command of at least one word; `whole` is where the map is that should have it.
    pub(super) fn command(
        &mut self,
        name: &str,
        field: &Field<Vec<String>>,
        whole: Option<Place>,
    ) -> Option<Vec<String>> {
        match field {
            Field::Bad => None,
            Field::Given(command) if command.value.len() > MOST_WORDS => {
                let detail = format!("must have at most {MOST_WORDS} words");
                self.invalid(name, command.place, command.value.len(), &detail);
                None
            }
            Field::Given(command) if !command.value.is_empty() => Some(command.value.clone()),
            Field::Given(_) | Field::Absent => {
                let path = self.at(name);
                self.errors.push(FieldError::required(path, field.place().or(whole), ""));
                None
            }
        }
    }

    fn http_get(&mut self, field: &Field<RawHttpGet>) -> Option<Handler> {
        let raw = field.value()?;
        let port = self.port("httpGet.port", &raw.port, field.place());
        let headers = self.headers(&raw.http_headers);
        let scheme = self.scheme(&raw.scheme);
        let path = filled(&raw.path).map_or("/", String::as_str).to_owned();
        let host = filled(&raw.host).cloned();
        Some(Handler::HttpGet(HttpGet { scheme: scheme?, host, port: port?, path, headers: headers? }))
    }

    fn tcp_socket(&mut self, field: &Field<RawTcpSocket>) -> Option<Handler> {
        let raw = field.value()?;
        let port = self.port("tcpSocket.port", &raw.port, field.place())?;
        Some(Handler::TcpSocket { host: filled(&raw.host).cloned(), port })
    }

    fn grpc(&mut self, field: &Field<RawGrpc>) -> Option<Handler> {
        let raw = field.value()?;
        let port = match &raw.port {
            Field::Bad => None,
            Field::Absent | Field::Given(_) => {
                let number = raw.port.value().copied().unwrap_or(0);
                self.port_number("grpc.port", number, raw.port.place().or(field.place()))
            }
        };
        Some(Handler::Grpc { port: port?, service: raw.service.value().cloned().unwrap_or_default() })
    }

    /// A port that is not written is 0 to Kubernetes, and so out of range.
    fn port(&mut self, name: &str, port: &Field<NumberOrText>, whole: Option<Place>) -> Option<PortRef> {
        match port {
            Field::Bad => None,
            Field::Absent => self.port_number(name, 0, whole).map(PortRef::Number),
            Field::Given(written) => match &written.value {
                NumberOrText::Number(number) => {
                    self.port_number(name, *number, written.place).map(PortRef::Number)
                }
                NumberOrText::Text(text) => {
                    let faults = port_name_faults(text);
                    for fault in &faults {
                        let error = FieldError::invalid(self.at(name), written.place, quoted(text), fault);
                        self.errors.push(error);
                    }
                    faults.is_empty().then(|| PortRef::Name(text.clone()))
                }
            },
        }
    }

    fn port_number(&mut self, name: &str, number: i64, place: Option<Place>) -> Option<u16> {
        let port = u16::try_from(number).ok().filter(|port| *port != 0);
        if port.is_none() {
            self.invalid(name, place, number, "must be between 1 and 65535, inclusive");
        }
        port
    }

    fn scheme(&mut self, scheme: &Field<String>) -> Option<Scheme> {
        match filled(scheme).map(String::as_str) {
            None => Some(Scheme::Http),
            Some("HTTP") => Some(Scheme::Http),
            Some("HTTPS") => Some(Scheme::Https),
            Some(other) => {
                let path = self.at("httpGet.scheme");
                self.errors.push(FieldError::unsupported(path, scheme.place(), other, &["HTTP", "HTTPS"]));
                None
            }
        }
    }

    fn headers(&mut self, headers: &Field<Vec<RawHeader>>) -> Option<Vec<(String, String)>> {
        let before = self.errors.len();
        let mut checked = Vec::new();
        let count = headers.value().map_or(0, Vec::len);
        if count > MOST_HEADERS {
            let detail = format!("must have at most {MOST_HEADERS} items");
            self.invalid("httpGet.httpHeaders", headers.place(), count, &detail);
            return None;
        }
        for header in headers.value().into_iter().flatten() {
            let name = header.name.value().cloned().unwrap_or_default();
            let is_valid = !name.is_empty() && name.bytes().all(|b| b == b'-' || b.is_ascii_alphanumeric());
            if !is_valid && header.name != Field::Bad {
                let place = header.name.place().or(header.place);
                let detail = "a valid HTTP header must consist of alphanumeric characters or '-'";
                self.invalid("httpGet.httpHeaders", place, quoted(&name), detail);
            }
            checked.push((name, header.value.value().cloned().unwrap_or_default()));
        }
        (self.errors.len() == before).then_some(checked)
    }
}

/// A text that is written and not empty: to Kubernetes, an empty one is absent.
fn filled(field: &Field<String>) -> Option<&String> {
    field.value().filter(|text| !text.is_empty())
}

/// Every rule of Kubernetes' port names that this one breaks.
fn port_name_faults(name: &str) -> Vec<&'static str> {
    let is_known = |b: u8| b == b'-' || b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_number = !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit());
    let letter = if is_number {
        "must contain at least one letter (a-z): write a number without quotes"
    } else {
        "must contain at least one letter (a-z)"
    };
    [
        (name.chars().count() > MAX_PORT_NAME, "must be no more than 15 characters"),
        (
            name.is_empty() || !name.bytes().all(is_known),
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        ),
        (!name.bytes().any(|b| b.is_ascii_lowercase()), letter),
        (name.contains("--"), "must not contain consecutive hyphens"),
        (name.starts_with('-') || name.ends_with('-'), "must not begin or end with a hyphen"),
    ]
    .into_iter()
    .filter_map(|(is_broken, rule)| is_broken.then_some(rule))
    .collect()
}
