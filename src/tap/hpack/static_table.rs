//! The entries that every connection starts with (RFC 7541, appendix A).

use super::{HeaderField, Name, Text};

/// One entry of the static table.
#[derive(Debug)]
pub(super) struct StaticEntry {
    pub(super) name: Name,
    pub(super) raw_name: &'static [u8],
    value: &'static [u8],
}

impl StaticEntry {
    pub(super) fn field(&self) -> HeaderField<'static> {
        HeaderField { name: self.name, raw_name: Text::plain(self.raw_name), value: Text::plain(self.value) }
    }
}

const fn entry(name: Name, raw_name: &'static str, value: &'static str) -> StaticEntry {
    StaticEntry { name, raw_name: raw_name.as_bytes(), value: value.as_bytes() }
}

const fn other(raw_name: &'static str, value: &'static str) -> StaticEntry {
    entry(Name::Other, raw_name, value)
}

/// Entry 1 first.
pub(super) static STATIC_TABLE: [StaticEntry; 61] = [
    other(":authority", ""),
    other(":method", "GET"),
    other(":method", "POST"),
    entry(Name::Path, ":path", "/"),
    entry(Name::Path, ":path", "/index.html"),
    other(":scheme", "http"),
    other(":scheme", "https"),
    entry(Name::Status, ":status", "200"),
    entry(Name::Status, ":status", "204"),
    entry(Name::Status, ":status", "206"),
    entry(Name::Status, ":status", "304"),
    entry(Name::Status, ":status", "400"),
    entry(Name::Status, ":status", "404"),
    entry(Name::Status, ":status", "500"),
    other("accept-charset", ""),
    other("accept-encoding", "gzip, deflate"),
    other("accept-language", ""),
    other("accept-ranges", ""),
    other("accept", ""),
    other("access-control-allow-origin", ""),
    other("age", ""),
    other("allow", ""),
    other("authorization", ""),
    other("cache-control", ""),
    other("content-disposition", ""),
    other("content-encoding", ""),
    other("content-language", ""),
    other("content-length", ""),
    other("content-location", ""),
    other("content-range", ""),
    entry(Name::Other, "content-type", ""),
    other("cookie", ""),
    other("date", ""),
    other("etag", ""),
    other("expect", ""),
    other("expires", ""),
    other("from", ""),
    other("host", ""),
    other("if-match", ""),
    other("if-modified-since", ""),
    other("if-none-match", ""),
    other("if-range", ""),
    other("if-unmodified-since", ""),
    other("last-modified", ""),
    other("link", ""),
    other("location", ""),
    other("max-forwards", ""),
    other("proxy-authenticate", ""),
    other("proxy-authorization", ""),
    other("range", ""),
    other("referer", ""),
    other("refresh", ""),
    other("retry-after", ""),
    other("server", ""),
    other("set-cookie", ""),
    other("strict-transport-security", ""),
    other("transfer-encoding", ""),
    entry(Name::UserAgent, "user-agent", ""),
    other("vary", ""),
    other("via", ""),
    other("www-authenticate", ""),
];
