//! Row 15: too few descriptors are our own want, never the pod's failure.

mod handlers {
    use std::net::TcpListener;

    use anyhow::{Context as _, Result};
    use http_body_util::{BodyExt as _, Full};
    use hyper::{Request, body::Bytes};
    use hyper_util::client::legacy::Client;
    use hyperlocal::{UnixClientExt as _, UnixConnector};
    use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
    use serde_json::json;

    use crate::{
        rig::{LIVENESS, READINESS, Rig},
        support::PATIENCE,
    };

    /// Lets the daemon open no descriptor beyond this number; returns what it could before.
    fn limit(rig: &Rig, limit: Rlimit) -> Result<Rlimit> {
        let pid = i32::try_from(rig.daemon.pid()).ok().and_then(Pid::from_raw).context("a pid")?;
        Ok(prlimit(Some(pid), Resource::Nofile, limit)?)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn row_15_probes_without_a_descriptor_are_errors_and_no_verdict_changes() -> Result<()> {
        let mut rig = Rig::start().await?;
        // It accepts, and so passes a tcp probe; nobody answers the other two, which would be failures.
        let server = TcpListener::bind("127.0.0.1:0")?;
        let port = server.local_addr()?.port();
        let with = |handler: &str, key: &str| {
            json!({handler: {key: port}, "period": "200ms", "timeout": "50ms", "failureThreshold": 1000})
                .to_string()
        };
        let (tcp, http) = (with("tcpSocket", "port"), with("httpGet", "port"));
        let grpc = with("grpc", "port");
        let probes = [(LIVENESS, tcp.as_str()), (READINESS, http.as_str())];
        let (pod, _) = rig.run("wanting", &probes, &["sleep", "100000"]).await?;
        let (other, _) = rig.run("wanting-too", &[(READINESS, &grpc)], &["sleep", "100000"]).await?;
        rig.last(&pod, "liveness", "success").await?;
        rig.last(&pod, "readiness", "failure").await?;
        rig.last(&other, "readiness", "failure").await?;

        // A follower that is there already needs no further descriptor.
        let client: Client<UnixConnector, Full<Bytes>> = Client::unix();
        let url: hyper::Uri = hyperlocal::Uri::new(rig.daemon.api(), "/v1/events?follow=true").into();
        let mut events = client.request(Request::get(url).body(Full::default())?).await?.into_body();
        // The hard limit is the one that the daemon has from us.
        let maximum = getrlimit(Resource::Nofile).maximum;
        let before = limit(&rig, Rlimit { current: Some(4), maximum })?;
        let mut missing = vec!["Liveness probe errored", "Readiness probe errored"];
        let waits = async {
            let mut text = String::new();
            let mut errors = 0;
            while !missing.is_empty() || errors < 6 {
                let frame = events.frame().await.context("the events end")??;
                text.push_str(&String::from_utf8_lossy(frame.data_ref().context("no data")?));
                errors = text.matches("too many open files").count();
                missing.retain(|words| !text.contains(words));
            }
            anyhow::Ok(text)
        };
        let text = tokio::time::timeout(PATIENCE, waits).await.context("no errors are told")??;
        let failures: Vec<_> = text
            .lines()
            .filter(|line| line.contains("too many open files") && line.contains("probe failed"))
            .collect();
        assert!(failures.is_empty(), "{failures:?}");
        limit(&rig, before)?;

        let back = rig.last(&pod, "liveness", "success").await?;
        assert_eq!((&back["counts"]["failure"], &back["state"]), (&json!(0), &json!("success")), "{back}");
        for (pod, kind) in [(&pod, "readiness"), (&other, "readiness")] {
            let found = rig.last(pod, kind, "failure").await?;
            assert!(found["counts"]["error"].as_u64() > Some(0), "{found}");
        }
        drop(server);
        Ok(())
    }
}
