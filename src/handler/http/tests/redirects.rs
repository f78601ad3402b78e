//! Follows redirects as the kubelet does: to the same host only, ten requests at most.

use super::*;

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

fn lines(server: &Server) -> Vec<String> {
    server.requests().iter().map(|request| request.lines().next().unwrap().to_owned()).collect()
}

fn field(request: &str, name: &str) -> Option<String> {
    request.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")).map(str::to_owned))
}

#[tokio::test]
async fn each_status_that_redirects_is_followed_to_its_verdict() {
    for (id, status) in [("G02", 301), ("G04", 302), ("G30", 303), ("G06", 307), ("G08", 308)] {
        for (end, judgement) in [(500, Judgement::Failure), (200, Judgement::Success)] {
            let server = Server::new(move |request| {
                if request.starts_with("GET /new ") {
                    Reply::status(end, "")
                } else {
                    Reply::redirect(status, "/new")
                }
            })
            .await;
            let outcome = server.probe("/", &[]).await.unwrap();
            assert_eq!((outcome.judgement, outcome.status), (judgement, Some(end)), "{id}");
            assert_eq!(lines(&server), ["GET / HTTP/1.1", "GET /new HTTP/1.1"], "{id}");
        }
    }
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
async fn another_host_is_not_asked_and_its_redirect_is_a_warning() {
    for location in ["http://other.invalid/", "//localhost/", "http://127.0.0.2/", "http:x", "http:///x"] {
        let head = format!("HTTP/1.1 302 X\r\nLocation: {location}\r\nContent-Length: 7\r\n\r\nok body");
        let server = Server::new(move |_| Reply::new(&head, Then::Close)).await;
        let outcome = server.probe("/", &[]).await.unwrap();
        let expected = "Probe terminated redirects, Response body: ok body";
        assert_eq!((outcome.judgement, text(&outcome)), (Judgement::Warning, expected), "G10 {location}");
    }
}

#[tokio::test]
async fn the_host_is_compared_with_that_of_the_first_request_and_its_port_does_not_count() {
    let end = Server::new(|_| Reply::redirect(302, "http://other.invalid/")).await;
    let port = end.address.port();
    let server = Server::new(move |_| Reply::redirect(302, &format!("http://127.0.0.1:{port}/end"))).await;
    let outcome = server.probe("/", &[]).await.unwrap();
    assert_eq!(outcome.judgement, Judgement::Warning, "G14, G26");
    assert_eq!((server.requests().len(), lines(&end)), (1, vec!["GET /end HTTP/1.1".to_owned()]));
}

#[tokio::test]
async fn ten_requests_are_sent_and_no_eleventh() {
    let server = site(&[("/loop", 302, "/loop")]).await;
    let outcome = server.probe("/loop", &[]).await.unwrap();
    assert_eq!(text(&outcome), "Get \"/loop\": stopped after 10 redirects", "G16");
    assert_eq!(server.requests().len(), 10, "G22");

    let chain = |request: &str| {
        let step: u32 = request.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
        if step == 9 { Reply::status(200, "") } else { Reply::redirect(301, &format!("/{}", step + 1)) }
    };
    let server = Server::new(chain).await;
    assert_eq!(server.probe("/0", &[]).await.unwrap().judgement, Judgement::Success, "G20");
    assert_eq!(server.requests().len(), 10);
}

#[tokio::test]
async fn another_scheme_on_the_same_host_is_a_failure() {
    let server = site(&[("/", 302, "ftp://127.0.0.1/x")]).await;
    let outcome = server.probe("/", &[]).await.unwrap();
    let expected = "Get \"ftp://127.0.0.1/x\": unsupported protocol scheme \"ftp\"";
    assert_eq!((outcome.judgement, text(&outcome)), (Judgement::Failure, expected), "G28");
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
        assert_eq!(outcome.status, Some(400), "G18");
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
