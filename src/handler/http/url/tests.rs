//! URLs against Go's own: `tests/data/prober/urls.jsonl` is what `tests/tools/go_urls.go` printed.

use proptest::prelude::*;
use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, untagged)]
enum Row {
    Join {
        base: String,
        location: String,
        url: Option<String>,
        hostname: String,
        error: Option<String>,
    },
    Probe {
        path: String,
        host: String,
        url: Option<String>,
        target: Option<String>,
        hostname: Option<String>,
        error: Option<String>,
    },
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn urls_are_those_that_go_builds_and_joins() {
    let rows = include_str!("../../../../tests/data/prober/urls.jsonl");
    let mut wrong = Vec::new();
    for line in rows.lines() {
        let (case, ours, gos) = match serde_json::from_str(line).unwrap() {
            Row::Probe { path, host, url, target, hostname, error } => {
                let ours = match Url::of_probe("http", &host, 80, &path) {
                    Ok(url) => [text(&url.to_bytes()), text(&url.request_target()), text(url.hostname())],
                    Err(error) => [error.to_string(), String::new(), String::new()],
                };
                let url = url.or(error).unwrap_or_default();
                let hostname = hostname.unwrap_or_default();
                // An opaque URL is never sent: it has no host.
                let target = if hostname.is_empty() { ours[1].clone() } else { target.unwrap_or_default() };
                (format!("{host:?} {path:?}"), ours, [url, target, hostname])
            }
            Row::Join { base, location, url, hostname, error } => {
                let base_url = Url::parse(base.as_bytes()).unwrap();
                let ours = match Url::parse(location.as_bytes()) {
                    Ok(reference) => {
                        let url = base_url.join(reference);
                        [text(&url.to_bytes()), text(url.hostname()), String::new()]
                    }
                    Err(error) => [error.to_string(), String::new(), String::new()],
                };
                (
                    format!("{base:?} {location:?}"),
                    ours,
                    [url.or(error).unwrap_or_default(), hostname, String::new()],
                )
            }
        };
        if ours != gos {
            wrong.push(format!("{case}: {ours:?}, but Go {gos:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_parts_of_a_host_are_told_apart() {
    let rows = [
        ("http://h/", "h", ""),
        ("http://h:81/", "h", "81"),
        ("http://h:/", "h", ""),
        ("http://[::1]/", "::1", ""),
        ("http://[::1]:81/", "::1", "81"),
        ("http://[fe80::1%25eth0]:81/", "fe80::1%eth0", "81"),
    ];
    for (url, hostname, port) in rows {
        let url = Url::parse(url.as_bytes()).unwrap();
        assert_eq!(
            (text(url.hostname()), text(url.port())),
            (hostname.to_owned(), port.to_owned()),
            "{url:?}"
        );
    }
}

#[test]
fn a_password_is_shown_to_nobody() {
    let url = Url::parse(b"http://u%20:p@h/x").unwrap();
    assert_eq!(text(&url.redacted()), "http://u :***@h/x");
    assert_eq!(text(&url.without_user()), "http://h/x");
    assert_eq!(text(&Url::parse(b"http://u@h/x").unwrap().redacted()), "http://u@h/x");
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>, base in "[/a-z.?#%@:\\[\\]]{0,12}") {
        let base = Url::parse(format!("http://h:80/{base}").as_bytes());
        if let (Ok(base), Ok(url)) = (base, Url::parse(&bytes)) {
            let joined = base.join(url);
            prop_assert!(joined.request_target().starts_with(b"/"));
        }
    }

    #[test]
    fn what_was_printed_reads_the_same(path in "[/a-z.?#%@:\\[\\] ü]{0,12}") {
        if let Ok(url) = Url::of_probe("http", "h", 80, &path) {
            prop_assert_eq!(Url::parse(&url.to_bytes()).unwrap(), url);
        }
    }
}
