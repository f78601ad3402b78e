//! What is read: status, probes, pods, by what names, and the answers to wrong requests.

use super::*;

#[tokio::test]
async fn status_and_probes_are_what_the_stages_answer() {
    let api = Api::start(sample::status(), vec![sample::probe()]);
    let (code, body) = api.get("/v1/status").await;
    assert_eq!((code, serde_json::from_str::<StatusView>(&body).unwrap()), (200, sample::status()));
    let (code, body) = api.get("/v1/probes").await;
    assert_eq!((code, serde_json::from_str::<Vec<ProbeView>>(&body).unwrap()), (200, vec![sample::probe()]));
    api.drained().await;
}

#[tokio::test]
async fn probes_are_filtered_and_come_in_the_order_of_names_and_types() {
    let mut newer = sample::named_probe("b", "web", "app", "startup");
    newer.pod_uid = "another".to_owned();
    newer.attempt = 9;
    let probes = vec![
        sample::named_probe("b", "web", "app", "liveness"),
        sample::named_probe("b", "web", "app", "startup"),
        sample::named_probe("b", "web", "app", "readiness"),
        sample::named_probe("b", "web", "app", "observed-1"),
        sample::named_probe("a", "web", "app", "liveness"),
        newer,
    ];
    let api = Api::start(sample::status(), probes);
    assert_eq!(
        api.ids("/v1/probes").await,
        [
            "a/web/app/liveness",
            "b/web/app/startup",
            "b/web/app/readiness",
            "b/web/app/liveness",
            "b/web/app/observed-1",
            "b/web/app/startup",
        ]
    );
    assert_eq!(api.ids("/v1/probes?namespace=a").await, ["a/web/app/liveness"]);
    assert_eq!(
        api.ids("/v1/probes?pod=w*&type=liveness").await,
        ["a/web/app/liveness", "b/web/app/liveness"]
    );
    assert_eq!(api.ids("/v1/probes?container=none").await, [""; 0]);
    let (code, body) = api.get("/v1/probes/b/web/app/startup").await;
    assert_eq!(code, 200);
    assert_eq!(
        serde_json::from_str::<ProbeView>(&body).unwrap().attempt,
        9,
        "the newest sandbox of that name"
    );
    api.drained().await;
}

#[tokio::test]
async fn names_with_slashes_and_more_are_found_percent_encoded() {
    let key = probe_key("uid-50% off", "ü?#&", "liveness");
    let odd = ProbeView { key, ..sample::named_probe("a/b", "50% off", "ü?#&", "liveness") };
    let api = Api::start(sample::status(), vec![odd.clone()]);
    let (code, body) = api.get("/v1/probes/a%2Fb/50%25%20off/%C3%BC%3F%23%26/liveness").await;
    assert_eq!((code, serde_json::from_str::<ProbeView>(&body).unwrap()), (200, odd.clone()));
    let (code, body) = api.get("/v1/probes/uid-50%25%20off/%C3%BC%3F%23%26/liveness").await;
    assert_eq!((code, serde_json::from_str::<ProbeDetailView>(&body).unwrap().probe.pod), (200, odd.pod));
    assert_eq!(api.ids("/v1/probes?namespace=a%2Fb&pod=50%25+off").await.len(), 1);
    let (code, body) = api.get("/v1/probes/a%2Fb/web/app/liveness").await;
    let unknown = r#"{"error":"no probe a%2Fb/web/app/liveness; namespace a%2Fb has the pod 50%25 off"}"#;
    assert_eq!((code, body.as_str()), (404, unknown));
    let (code, _) = api.get("/v1/probes/%FF/web/app/liveness").await;
    assert_eq!(code, 400);
    api.drained().await;
}

#[tokio::test]
async fn one_probe_is_told_in_full_with_its_own_events() {
    let api = Api::start(sample::status(), vec![sample::probe()]);
    let mine = sample::event();
    for event in [
        EventView { pod_uid: "another".to_owned(), ..mine.clone() },
        EventView { container: "another".to_owned(), ..mine.clone() },
        EventView { probe: "readiness".to_owned(), ..mine.clone() },
        mine.clone(),
    ] {
        api.events.push(event);
    }
    let expected = ProbeDetailView { probe: sample::probe(), events: vec![mine], ..sample::detail() };
    for path in ["/v1/probes/default/web/app/liveness", "/v1/probes/uid-1/app/liveness"] {
        let (code, body) = api.get(path).await;
        assert_eq!(code, 200, "{path}: {body}");
        assert_eq!(serde_json::from_str::<ProbeDetailView>(&body).unwrap(), expected, "{path}");
    }
    api.drained().await;
}

#[tokio::test]
async fn pods_are_filtered_by_their_names() {
    let api = Api::start(sample::status(), Vec::new());
    for (query, pods) in
        [("", 1), ("?namespace=default&pod=w*", 1), ("?pod=other", 0), ("?namespace=shop", 0)]
    {
        let (code, body) = api.get(&format!("/v1/pods{query}")).await;
        assert_eq!(code, 200, "{query}: {body}");
        let expected = vec![sample::pod(); pods];
        assert_eq!(serde_json::from_str::<Vec<PodView>>(&body).unwrap(), expected, "{query}");
    }
    api.drained().await;
}

#[tokio::test]
async fn one_pod_is_told_in_full_with_its_own_probes_and_events() {
    let stranger = ProbeView { pod_uid: "another".to_owned(), ..sample::probe() };
    let readiness = sample::named_probe("default", "web", "app", "readiness");
    let readiness = ProbeView { pod_uid: "uid-1".to_owned(), ..readiness };
    let api = Api::start(sample::status(), vec![sample::probe(), stranger, readiness.clone()]);
    let mine = EventView { probe: String::new(), ..sample::event() };
    for event in [EventView { pod_uid: "another".to_owned(), ..mine.clone() }, mine.clone()] {
        api.events.push(event);
    }
    let (code, body) = api.get("/v1/pods/default/web").await;
    let probes = vec![readiness, sample::probe()];
    let expected = PodDetailView { pod: sample::pod(), probes, events: vec![mine] };
    assert_eq!((code, serde_json::from_str::<PodDetailView>(&body).unwrap()), (200, expected));
    let (code, body) = api.get("/v1/pods/default/wbe").await;
    assert_eq!((code, &*body), (404, r#"{"error":"no pod default/wbe; did you mean default/web?"}"#));
    assert_eq!(api.get("/v1/pods/%FF/web").await.0, 400);
    api.drained().await;
}

#[tokio::test]
async fn wrong_questions_are_refused_with_a_reason_in_json() {
    let api = Api::start(sample::status(), Vec::new());
    for (method, path, code, reason) in [
        ("GET", "/v2", 404, "/v2 does not exist"),
        ("GET", "/v1/pod", 404, "/v1/pod does not exist"),
        ("GET", "/v1/pods?container=app", 400, "known parameters are namespace, pod"),
        ("GET", "/v1/probes/default/web/app/liveness", 404, "no probe default/web/app/liveness"),
        ("GET", "/v1/probes/u%2F1/app/liveness", 404, "no probe u%2F1/app/liveness"),
        ("POST", "/v1/status", 405, "/v1/status does not support POST"),
        ("GET", "/v1/probes?podd=x", 400, "did you mean \"pod\"?"),
        ("GET", "/v1/probes?type=zzz", 400, "startup, readiness, liveness"),
        ("GET", "/v1/probes/%FF/web/app/liveness", 400, "the path is not UTF-8"),
        ("GET", "/v1/trace?slower=soon", 400, "not a duration: write one such as 250ms"),
        ("GET", "/v1/trace?last=-1", 400, "last"),
        ("GET", "/v1/events?follow=perhaps", 400, "follow"),
    ] {
        let response = api.ask(method, path).await;
        assert_eq!(response.status(), code, "{path}");
        assert_eq!(response.headers()["content-type"], "application/json", "{path}");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let error = serde_json::from_slice::<crate::report::view::ErrorView>(&body).unwrap().error;
        assert!(error.contains(reason), "{path}: {error}");
    }
    api.drained().await;
}

#[tokio::test]
async fn metrics_come_in_the_format_that_the_client_prefers_and_whole() {
    let api = Api::start(sample::status(), vec![]);
    let openmetrics = "application/openmetrics-text; version=1.0.0";
    for (accept, kind, format) in [
        ("*/*", "text/plain; version=0.0.4; charset=utf-8", "Prometheus\n"),
        (openmetrics, "application/openmetrics-text; version=1.0.0; charset=utf-8", "OpenMetrics\n"),
    ] {
        let uri: hyper::Uri = Uri::new(&api.socket, "/metrics").into();
        let request = Request::builder().uri(uri).header("accept", accept).body(Empty::new()).unwrap();
        let response = tokio::time::timeout(DEADLINE, api.client.request(request)).await.unwrap().unwrap();
        assert_eq!(response.headers()["content-type"], kind);
        assert_eq!(Api::whole(response).await, (200, format.repeat(10_000)));
    }
}
