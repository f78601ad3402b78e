//! Which format a client prefers: the Accept header in, a format out. Pure.

use super::exposition::Format;

/// OpenMetrics where the client names it and does not prefer plain text; Prometheus' format in all other cases, also
/// where it accepts neither, as an answer in a known format is of more use than none.
pub(crate) fn format<'a>(accept: impl Iterator<Item = &'a str>) -> Format {
    let (mut openmetrics, mut text) = (0.0, 0.0);
    for range in accept.flat_map(|header| header.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let (mut quality, mut version) = (Some(1.0), None);
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim().trim_matches('"');
            if name.trim().eq_ignore_ascii_case("q") {
                quality = value.parse().ok().filter(|quality| (0.0..=1.0).contains(quality));
            } else if name.trim().eq_ignore_ascii_case("version") {
                version = Some(value);
            }
        }
        let quality: f32 = quality.unwrap_or_default();
        if media.eq_ignore_ascii_case("application/openmetrics-text")
            && version.is_none_or(|it| it == "1.0.0")
        {
            openmetrics = quality.max(openmetrics);
        } else if media.eq_ignore_ascii_case("text/plain") && version.is_none_or(|it| it == "0.0.4") {
            text = quality.max(text);
        }
    }
    if openmetrics > 0.0 && openmetrics >= text { Format::OpenMetrics } else { Format::Prometheus }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_what_the_client_prefers() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
            application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, expected) in [
            ("", Format::Prometheus),
            ("*/*", Format::Prometheus),
            ("text/plain", Format::Prometheus),
            ("text/html, application/json", Format::Prometheus),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("Application/OpenMetrics-Text; Version=\"1.0.0\"; Q=0.1", Format::OpenMetrics),
            ("application/openmetrics-text; version=0.0.1", Format::Prometheus),
            ("application/openmetrics-text; version=2.0.0", Format::Prometheus),
            ("application/openmetrics-text; q=0", Format::Prometheus),
            ("application/openmetrics-text; q=9", Format::Prometheus),
            ("application/openmetrics-text; q=NaN", Format::Prometheus),
            ("text/plain; q=0.9, application/openmetrics-text; q=0.8", Format::Prometheus),
            ("text/plain; q=0.8, application/openmetrics-text; q=0.8", Format::OpenMetrics),
            ("text/plain; version=9; q=0.9, application/openmetrics-text; q=0.8", Format::OpenMetrics),
            (",;=,;q=,", Format::Prometheus),
            (prometheus, Format::OpenMetrics),
        ] {
            assert_eq!(format([accept].into_iter()), expected, "{accept}");
        }
        let headers = ["text/plain;q=0.5", "application/openmetrics-text"];
        assert_eq!(format(headers.into_iter()), Format::OpenMetrics, "one header or several");
    }
}
