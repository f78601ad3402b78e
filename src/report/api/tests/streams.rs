//! Journals as lines: what is kept, what comes, what a slow reader misses.

use super::*;

#[tokio::test]
async fn a_journal_is_told_from_the_newest_that_fit() {
    let api = Api::start(sample::status(), Vec::new());
    for method in ["Version", "ExecSync", "Exec", "Status", "ExecSync"] {
        push(&api.trace, call(method));
    }
    for (path, methods) in [
        ("/v1/trace", &["Version", "ExecSync", "Exec", "Status", "ExecSync"][..]),
        ("/v1/trace?last=2", &["Status", "ExecSync"]),
        ("/v1/trace?last=2&method=Exec*", &["Exec", "ExecSync"]),
        ("/v1/trace?last=0", &[]),
        ("/v1/trace?failed=true", &[]),
        ("/v1/events", &[]),
    ] {
        assert_eq!(Lines::of(api.ask("GET", path).await).methods().await, methods, "{path}");
    }
    api.drained().await;
}

#[tokio::test]
async fn a_follower_sees_what_comes_and_ends_with_the_daemon() {
    let api = Api::start(sample::status(), Vec::new());
    push(&api.trace, call("Version"));
    let mut live = Lines::of(api.ask("GET", "/v1/trace?follow=true&method=Exec*").await);
    let kept_too = Lines::of(api.ask("GET", "/v1/trace?follow=true&last=9").await);
    for method in ["Status", "ExecSync"] {
        push(&api.trace, call(method));
    }
    assert_eq!(live.next().await.unwrap()["method"], "ExecSync");
    api.drained().await;
    assert_eq!(live.next().await, None);
    assert_eq!(kept_too.methods().await, ["Version", "Status", "ExecSync"]);
}

#[tokio::test]
async fn a_slow_follower_is_told_what_it_missed_and_holds_up_nobody() {
    let api = Api::start(sample::status(), Vec::new());
    let mut slow = Lines::of(api.ask("GET", "/v1/trace?follow=true").await);
    let output = "x".repeat(64 * 1024);
    let total = 4_000;
    for n in 0..total {
        push(&api.trace, CallView { message: output.clone(), request_bytes: n, ..call("ExecSync") });
        if n % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(api.get("/livez").await.0, 200);
    let (mut seen, mut missed, mut newest) = (0, 0, 0);
    while seen + missed < total {
        let line = slow.next().await.unwrap();
        if let Some(lost) = line["missed"].as_u64() {
            missed += lost;
        } else {
            newest = line["requestBytes"].as_u64().unwrap();
            assert_eq!(newest, seen + missed, "records come in order, and each lost one is counted");
            seen += 1;
        }
    }
    assert!(missed > 0, "the reader was slower than the socket could hold");
    assert_eq!(newest, total - 1);
    api.drained().await;
}
