//! Follows redirects as the kubelet does: to the same host only, ten requests at most. The kubelet's own cases are
//! `tests/data/prober/http-redirects.json`.

use serde::Deserialize;
use tokio_rustls::rustls::version::TLS13;

use super::{secure::Secure, *};
use crate::results::AttemptResult;

/// One row: `pages` of the server that is asked first, and `elsewhere` those on another port of its host.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    rule: String,
    #[serde(default = "root")]
    path: String,
    #[serde(default)]
    headers: Vec<(String, String)>,
    pages: Vec<Page>,
    #[serde(default)]
    elsewhere: Vec<Page>,
    result: String,
    status: Option<u16>,
    output: Option<String>,
    /// How many the first server saw, and the other one.
    requests: Option<(usize, usize)>,
}

/// What a server says of one path. If there is a host, another one gets a 400.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    path: String,
    status: u16,
    location: Option<String>,
    #[serde(default)]
    body: String,
    host: Option<String>,
}

fn root() -> String {
    "/".to_owned()
}

/// Answers with pages; `places` are put in for their names in a location.
async fn serving(pages: Vec<Page>, places: Vec<(&'static str, SocketAddr)>) -> Server {
    Server::new(move |request| {
        let page = pages.iter().find(|page| request.starts_with(&format!("GET {} ", page.path)));
        let Some(Page { status, location, body, host, .. }) = page else { return Reply::status(404, "") };
        if host.is_some() && *host != field(request, "Host") {
            return Reply::status(400, "");
        }
        let Some(location) = location else { return Reply::status(*status, body) };
        let filled = |location: String, (name, place): &(&str, SocketAddr)| {
            location.replace(&format!("{{{name}}}"), &place.to_string())
        };
        let location = places.iter().fold(location.clone(), filled);
        let length = body.len();
        let head = format!("HTTP/1.1 {status} X\r\nLocation: {location}\r\nContent-Length: {length}");
        Reply::new(format!("{head}\r\n\r\n{body}"), Then::Close)
    })
    .await
}

#[tokio::test]
async fn redirects_are_followed_and_judged_as_by_the_kubelet() {
    let rows: Vec<Row> =
        serde_json::from_str(include_str!("../../../../tests/data/prober/http-redirects.json")).unwrap();
    for row in rows {
        let reported = format!("{}: {}", row.id, row.rule);
        let secure = Secure::new(secure::of_another_name(), &TLS13, &[], secure::http1).await;
        let elsewhere = serving(row.elsewhere, Vec::new()).await;
        let places = vec![("elsewhere", elsewhere.address), ("secure", secure.address)];
        let server = serving(row.pages, places).await;
        let headers: Vec<_> = row.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        let outcome = server.probe(&row.path, &headers).await.unwrap();
        assert_eq!(AttemptResult::from(outcome.judgement).as_str(), row.result, "{reported}");
        assert_eq!(outcome.status, row.status, "{reported}");
        if let Some(output) = row.output {
            assert_eq!(text(&outcome), output, "{reported}");
        }
        if let Some(requests) = row.requests {
            assert_eq!((server.requests().len(), elsewhere.requests().len()), requests, "{reported}");
        }
    }
}

/// Answers by path: what is listed, else 404.
async fn site(pages: &'static [(&'static str, u16, &'static str)]) -> Server {
    Server::new(|request| {
        let path = request.split(' ').nth(1).unwrap();
        match pages.iter().find(|(page, ..)| *page == path) {
            Some((_, status @ 300..=399, location)) => Reply::redirect(*status, location),
            Some((_, status, body)) => Reply::status(*status, body),
            None => Reply::status(404, ""),
        }
    })
    .await
}

fn field(request: &str, name: &str) -> Option<String> {
    request.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")).map(str::to_owned))
}

#[tokio::test]
async fn other_statuses_and_those_without_location_are_final() {
    for (status, location) in
        [(300, "/new"), (304, "/new"), (305, "/new"), (306, "/new"), (301, ""), (308, "")]
    {
        let server = Server::new(move |_| Reply::redirect(status, location)).await;
        let outcome = server.probe("/", &[]).await.unwrap();
        assert_eq!((outcome.judgement, outcome.status), (Judgement::Warning, Some(status)));
        assert_eq!(server.requests().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn row_05_a_redirect_to_a_longer_url_than_servers_take_is_a_failure() {
    let long = |octets: usize| format!("/{}", "x".repeat(octets));
    let rows = [
        (long(7_000), 10),
        (long(9_000), 1),
        // It would lead to a short URL, but reading it takes time.
        (format!("{}/../x", long(9_000)), 1),
        // Relative: each redirect is short, and the URLs grow.
        (format!("x{}/", "x".repeat(2_000)), 5),
    ];
    for (location, requests) in rows {
        let server = Server::new(move |_| Reply::redirect(302, &location)).await;
        let outcome = server.probe("/", &[]).await.unwrap();
        assert_eq!(outcome.judgement, Judgement::Failure);
        assert_eq!(server.requests().len(), requests, "{outcome:?}");
        let is_long = text(&outcome).ends_with(": the URL of the redirect has more than 8192 bytes");
        assert_eq!(is_long, requests != 10, "{outcome:?}");
    }
}

#[tokio::test]
async fn another_host_is_not_asked_and_its_redirect_is_a_warning() {
    for location in ["http://other.invalid/", "//localhost/", "http://127.0.0.2/", "http:x", "http:///x"] {
        let head = format!("HTTP/1.1 302 X\r\nLocation: {location}\r\nContent-Length: 7\r\n\r\nok body");
        let server = Server::new(move |_| Reply::new(&head, Then::Close)).await;
        let outcome = server.probe("/", &[]).await.unwrap();
        let expected = "Probe terminated redirects, Response body: ok body";
        assert_eq!((outcome.judgement, text(&outcome)), (Judgement::Warning, expected), "{location}");
    }
}

#[tokio::test]
async fn a_custom_host_goes_on_where_the_location_is_relative() {
    for (is_absolute, host) in [(false, "www.fail.com".to_owned()), (true, String::new())] {
        let server = Server::new(move |request| {
            let port = field(request, "X-Port").unwrap();
            match (request.starts_with("GET / "), is_absolute) {
                (true, true) => Reply::redirect(302, &format!("http://127.0.0.1:{port}/new")),
                (true, false) => Reply::redirect(302, "/new"),
                (false, _) => Reply::status(400, ""),
            }
        })
        .await;
        let port = server.address.port().to_string();
        let outcome = server.probe("/", &[("Host", "www.fail.com"), ("X-Port", &port)]).await.unwrap();
        assert_eq!(outcome.status, Some(400));
        let host = if host.is_empty() { format!("127.0.0.1:{port}") } else { host };
        assert_eq!(field(&server.requests()[1], "Host"), Some(host));
    }
}

#[tokio::test]
async fn headers_go_on_with_a_referer_unless_there_is_one() {
    let pages = &[("/a?b", 302, "../c"), ("/c", 302, "/d"), ("/d", 200, "")];
    let server = site(pages).await;
    let port = server.address.port();
    server.probe("//u:p@x/a?b#f", &[("X-Foo", "1")]).await.unwrap();
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    assert_eq!(field(&requests[0], "Referer"), None);
    assert_eq!(field(&requests[1], "Referer"), Some(format!("http://127.0.0.1:{port}/a?b#f")));
    assert_eq!(field(&requests[2], "Referer"), Some(format!("http://127.0.0.1:{port}/c")));
    for request in &requests {
        assert_eq!(field(request, "X-Foo").as_deref(), Some("1"));
        assert_eq!(field(request, "Authorization").as_deref(), Some("Basic dTpw"), "the user goes on, too");
    }
    let server = site(pages).await;
    server.probe("/a?b", &[("Referer", "own")]).await.unwrap();
    assert_eq!(field(&server.requests()[2], "Referer").as_deref(), Some("own"));
}

#[tokio::test]
async fn a_little_of_a_redirects_body_is_waited_for_and_nothing_of_a_long_one() {
    for (length, is_read) in [(2048, true), (2049, false)] {
        let head = format!("HTTP/1.1 302 X\r\nLocation: /new\r\nContent-Length: {length}\r\n\r\nx");
        let server = Server::new(move |request| {
            if request.starts_with("GET /new ") {
                Reply::status(200, "")
            } else {
                Reply::new(&head, Then::Hold)
            }
        })
        .await;
        let ended = server.probe_within(Duration::from_millis(300), "/", &[]).await.unwrap();
        if is_read {
            let url = format!("Get \"http://{}/new\": ", server.address);
            assert!(text(&ended).starts_with(&url), "{}", text(&ended));
            assert!(text(&ended).ends_with("(Client.Timeout exceeded while awaiting headers)"));
        } else {
            assert_eq!(ended.judgement, Judgement::Success);
        }
    }
}

#[tokio::test]
async fn a_port_that_is_not_permitted_is_not_asked_and_its_redirect_is_a_warning() {
    let elsewhere = Server::new(|_| Reply::status(200, "of others")).await;
    let other = elsewhere.address.port();
    for (location, is_followed) in [
        (format!("http://127.0.0.1:{other}/"), false),
        (format!("//127.0.0.1:{other}/"), false),
        (format!("http://u:p@127.0.0.1:{other}/x"), false),
        (format!("http://127.0.0.1:0{other}/"), false),
        (format!("https://127.0.0.1:{other}/"), false),
        ("http://127.0.0.1/".to_owned(), false),
        ("https://127.0.0.1/".to_owned(), false),
        (format!("http://2130706433:{other}/"), false),
        (format!("http://[::ffff:127.0.0.1]:{other}/"), false),
        ("/new".to_owned(), true),
    ] {
        let head = format!("HTTP/1.1 302 X\r\nLocation: {location}\r\nContent-Length: 3\r\n\r\nown");
        let server = Server::new(move |request| {
            if request.starts_with("GET /new ") {
                Reply::status(200, "followed")
            } else {
                Reply::new(&head, Then::Close)
            }
        })
        .await;
        let own = [server.address.port()];
        let target = Target { ports: Ports::Only(&own), ..at("127.0.0.1", server.address) };
        let outcome = attempt(&target, LIMIT).await.unwrap();
        let expected = if is_followed {
            (Judgement::Success, "followed")
        } else {
            (Judgement::Warning, "Probe terminated redirects, Response body: own")
        };
        assert_eq!((outcome.judgement, text(&outcome)), expected, "{location}");
        assert_eq!(elsewhere.requests().len(), 0, "{location}");

        let permitted = [own[0], other];
        let target = Target { ports: Ports::Only(&permitted), ..target };
        if location.starts_with("http://127.0.0.1:") {
            assert_eq!(text(&attempt(&target, LIMIT).await.unwrap()), "of others", "{location}");
            elsewhere.requests.lock().unwrap().clear();
        }
    }
}
