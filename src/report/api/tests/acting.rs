//! What operators ask for: commands, runs, and their refusals.

use super::*;
use crate::prober::PauseTerms;

#[tokio::test]
async fn commands_reach_the_probe_that_is_meant_and_refusals_come_back_with_their_code() {
    let probes = vec![
        sample::probe(),
        sample::named_probe("a/b", "odd", "app", "liveness"),
        sample::named_probe("default", "late", "app", "readiness"),
        sample::named_probe("default", "bad", "app", "startup"),
        sample::named_probe("default", "gone", "app", "startup"),
        sample::named_probe("default", "web", "app", "observed-1"),
    ];
    let api = Api::commanded(probes, |key, command| match (key.pod.as_str(), command) {
        ("uid-1" | "uid-odd", _) => Ok(()),
        ("uid-late", ProbeCommand::Trigger) => Err(CommandRefusal::NotNow("start delay of 5s".to_owned())),
        ("uid-bad", _) => Err(CommandRefusal::Invalid("exec.command: Required value".to_owned())),
        _ => Err(CommandRefusal::Unknown),
    });
    for (path, code, reported) in [
        ("default/web/app/liveness/pause", 200, r#"{"id":"default/web/app/liveness","#),
        ("default/web/app/liveness/resume", 200, r#"{"id":"default/web/app/liveness","#),
        ("uid-1/app/liveness/trigger", 200, r#"{"id":"default/web/app/liveness","#),
        ("a%2Fb/odd/app/liveness/pause", 200, r#"{"id":"a%2Fb/odd/app/liveness","#),
        (
            "default/late/app/readiness/trigger",
            409,
            "default/late/app/readiness: no attempt is possible now: start delay of 5s",
        ),
        (
            "default/bad/app/startup/pause",
            409,
            "default/bad/app/startup: the probe is invalid: exec.command: Required value",
        ),
        ("default/gone/app/startup/pause", 404, "default/gone/app/startup: there is no such probe"),
        (
            "default/web/app/observed-1/pause",
            400,
            "a client runs the probe default/web/app/observed-1, criprobe only watches it",
        ),
        (
            "default/wbe/app/liveness/pause",
            404,
            "no probe default/wbe/app/liveness; did you mean default/web/app/liveness?",
        ),
        ("uid-one/app/livenes/pause", 404, "no probe uid-one/app/livenes"),
        ("%FF/web/app/liveness/pause", 400, "the path is not UTF-8"),
        ("default/web/app/liveness/trigger?wait=true", 409, "no attempt was made: the probe is gone"),
        (
            "default/late/app/readiness/trigger?wait=true",
            409,
            "default/late/app/readiness: no attempt is possible now: start delay of 5s",
        ),
        ("default/web/app/liveness/stop", 404, "/v1/probes/default/web/app/liveness/stop does not exist"),
    ] {
        let (found, body) = api.post(&format!("/v1/probes/{path}"), "").await;
        assert_eq!(found, code, "{path}: {body}");
        assert!(body.contains(reported), "{path}: {body}");
    }
    let (code, body) = api.get("/v1/probes/default/web/app/liveness/pause").await;
    assert_eq!((code, body.contains("does not support GET")), (405, true), "{body}");
    assert_eq!(api.get("/v1/probes/uid-late/app/readiness").await.0, 200, "by its key");
    let (code, body) = api.get("/v1/probes/default/wbe/app/liveness").await;
    assert_eq!((code, body.contains("did you mean default/web/app/liveness?")), (404, true), "{body}");
    api.drained().await;
}

#[tokio::test]
async fn a_pause_has_terms_and_wrong_ones_are_refused() {
    let api = Api::commanded(vec![sample::probe()], |_, command| match command {
        ProbeCommand::Pause(PauseTerms { length: None, reason }) if reason.is_empty() => Ok(()),
        ProbeCommand::Pause(PauseTerms { length: Some(length), reason })
            if length == Duration::from_millis(600_500) && &*reason == "deploy v2" =>
        {
            Ok(())
        }
        other => Err(CommandRefusal::NotNow(format!("{other:?}"))),
    });
    let long = format!(r#"{{"reason":"{}"}}"#, "x".repeat(257));
    for (body, code, reported) in [
        ("", 200, ""),
        ("{}", 200, ""),
        (r#"{"forSeconds":600.5,"reason":" deploy v2 "}"#, 200, ""),
        (r#"{"forSeconds":0}"#, 400, "more than 0 s and at most a year"),
        (r#"{"forSeconds":31536001}"#, 400, "more than 0 s and at most a year"),
        (r#"{"forSeconds":-1}"#, 400, "the body must be"),
        (r#"{"forSeconds":1e300}"#, 400, "the body must be"),
        (r#"{"until":"noon"}"#, 400, "unknown field `until`"),
        ("[", 400, "the body must be"),
        (r#"{"reason":"a\nb"}"#, 400, "one line of at most 256 bytes"),
        (&long, 400, "one line of at most 256 bytes"),
    ] {
        let (found, answer) = api.post("/v1/probes/default/web/app/liveness/pause", body).await;
        assert_eq!(found, code, "{body}: {answer}");
        assert!(answer.contains(reported), "{body}: {answer}");
    }
    api.drained().await;
}

#[tokio::test]
async fn all_probes_of_a_container_or_a_pod_are_paused_and_what_has_none_is_said() {
    let probes = vec![
        ProbeView { pod_uid: "uid-0".to_owned(), ..sample::probe() },
        sample::probe(),
        ProbeView {
            kind: "readiness".to_owned(),
            ..sample::named_probe("default", "web", "log", "readiness")
        },
        ProbeView { pod_uid: "uid-1".to_owned(), ..sample::invalid_probe() },
        sample::named_probe("default", "db", "app", "observed-1"),
    ]
    .into_iter()
    .map(|probe| match probe.container.as_str() {
        "log" => ProbeView { pod_uid: "uid-1".to_owned(), ..probe },
        _ => probe,
    });
    let api = Api::commanded(probes.collect(), |key, _| match key.pod.as_str() {
        "uid-1" => Ok(()),
        other => panic!("only those of the newest pod, not of {other}"),
    });
    let kinds = |body: &str| -> Vec<String> {
        let probes: Vec<ProbeView> = serde_json::from_str(body).unwrap();
        probes.into_iter().map(|probe| format!("{}/{}", probe.container, probe.kind)).collect()
    };
    let (code, body) = api.post("/v1/pods/default/web/pause", r#"{"forSeconds":5}"#).await;
    assert_eq!((code, kinds(&body)), (200, vec!["app/liveness".to_owned(), "log/readiness".to_owned()]));
    let (code, body) = api.post("/v1/containers/default/web/log/resume", "").await;
    assert_eq!((code, kinds(&body)), (200, vec!["log/readiness".to_owned()]));
    for (path, code, reported) in [
        ("/v1/pods/default/db/pause", 409, "default/db has no valid probe of criprobe's own"),
        ("/v1/pods/default/wbe/pause", 404, "no pod default/wbe; did you mean default/web?"),
        (
            "/v1/containers/default/web/ap/pause",
            404,
            "no container default/web/ap; did you mean default/web/app or default/web/log?",
        ),
        ("/v1/pods/default/web/trigger", 404, "does not exist"),
    ] {
        let (found, body) = api.post(path, "").await;
        assert_eq!(found, code, "{path}: {body}");
        assert!(body.contains(reported), "{path}: {body}");
    }
    api.drained().await;
}

#[tokio::test]
async fn a_run_that_cannot_be_is_refused_before_anything_is_tried() {
    let api = Api::commanded(Vec::new(), |_, _| Ok(()));
    for (body, code, reported) in [
        ("", 400, "must be a map of keys and values"),
        ("{", 400, "not valid YAML or JSON"),
        (
            r#"{"container": "a/b/c"}"#,
            400,
            "must specify what to try: probe, exec, httpGet, tcpSocket or grpc",
        ),
        (
            r#"{"container": "a/b/c", "tcpSocket": {"port": 0}, "timeout": "x"}"#,
            400,
            r#"{"error":"tcpSocket.port: Invalid value: 0: must be between 1 and 65535, inclusive; timeout: Invalid value: \"x\": not a duration"#,
        ),
        (r#"{"container": "a/b", "probe": "liveness"}"#, 400, "write NAMESPACE/POD/CONTAINER"),
        (r#"{"container": "a/b/c", "probe": "liveness"}"#, 404, r#"{"error":"no container a/b/c"}"#),
        (&"x".repeat(64 * 1024 + 1), 413, "the body is longer than 65536 bytes"),
    ] {
        let (found, answer) = api.post("/v1/run", body).await;
        assert_eq!(found, code, "{answer}");
        assert!(answer.contains(reported), "{answer}");
    }
    let (code, body) = api.get("/v1/run").await;
    assert_eq!((code, body.as_str()), (405, r#"{"error":"/v1/run does not support GET"}"#));
    api.drained().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_too_many_is_refused_before_its_text_is_read() {
    let (asker, mut questions) = Asker::channel("prober");
    let api = Arc::new(Api::before(Fixed::default(), prober(asker)));
    let run = |body: &'static str| {
        let api = api.clone();
        tokio::spawn(async move { api.post("/v1/run", body).await })
    };
    let (mut runs, mut asked) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        runs.push(run(r#"{"container": "a/b/c", "probe": "liveness"}"#));
        asked.push(questions.recv().await.unwrap());
    }
    let (code, body) = run("{").await.unwrap();
    assert_eq!(code, 429, "{body}");
    assert!(body.contains("4 runs are already in progress: try again when one has ended"), "{body}");
    drop(asked);
    for run in runs {
        assert_eq!(run.await.unwrap().0, 503);
    }
    assert_eq!(run("{").await.unwrap().0, 400);
}

#[tokio::test]
async fn a_prober_that_is_gone_is_told_to_operators() {
    let api = Api::start(sample::status(), vec![sample::probe()]);
    for (path, body) in [
        ("/v1/probes/default/web/app/liveness/pause", ""),
        ("/v1/run", r#"{"container": "a/b/c", "probe": "liveness"}"#),
    ] {
        let answer = api.post(path, body).await;
        assert_eq!(answer, (503, r#"{"error":"prober is not running"}"#.to_owned()), "{path}");
    }
    api.drained().await;
}
