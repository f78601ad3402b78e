//! Readiness, and stages that do not answer.

use super::*;

#[tokio::test]
async fn readiness_follows_the_runtime_the_first_list_and_the_drain() {
    let ready = sample::status();
    let mut away = sample::status();
    away.runtime.state = RuntimeState::Away;
    away.runtime.reason = "connection refused".to_owned();
    let mut unlisted = sample::status();
    unlisted.inventory.last_resync_at = None;
    let mut draining = sample::status();
    draining.draining = true;
    let mut doubtful = sample::status();
    doubtful.config.errors = vec!["c.yaml:1:1: wrong".to_owned()];
    let mut late = sample::status();
    late.probes.late = LateView::of([Duration::from_secs(9)]);
    for (status, code, text, verbose) in [
        (
            late,
            200,
            "ok\n",
            "[+] shutdown ok\n[+] runtime ok\n[+] inventory ok\n\
             [!] probes doubtful: 1 waiting for a place for more than two periods, the longest for 9s\n[+] acts ok\n[+] config ok\n",
        ),
        (
            ready,
            200,
            "ok\n",
            "[+] shutdown ok\n[+] runtime ok\n[+] inventory ok\n[+] probes ok\n[+] acts ok\n[+] config ok\n",
        ),
        (
            draining,
            503,
            "the daemon is draining: it stops soon\n",
            "[-] shutdown failed: the daemon is draining: it stops soon\n[+] runtime ok\n[+] inventory ok\n[+] probes ok\n[+] acts ok\n[+] config ok\n",
        ),
        (
            away,
            503,
            "the runtime is away: connection refused\n",
            "[+] shutdown ok\n[-] runtime failed: the runtime is away: connection refused\n[+] inventory ok\n[+] probes ok\n[+] acts ok\n[+] config ok\n",
        ),
        (
            unlisted,
            503,
            "the runtime's pods and containers have not been listed yet\n",
            "[+] shutdown ok\n[+] runtime ok\n[-] inventory failed: the runtime's pods and containers have not been listed yet\n[+] probes ok\n[+] acts ok\n[+] config ok\n",
        ),
        (
            doubtful,
            200,
            "ok\n",
            "[+] shutdown ok\n[+] runtime ok\n[+] inventory ok\n[+] probes ok\n[+] acts ok\n\
             [!] config doubtful: c.yaml:1:1: wrong; the previous configuration stays in effect\n",
        ),
    ] {
        let runtime = serde_json::to_string(&status.runtime).unwrap();
        let api = Api::start(status, Vec::new());
        assert_eq!(api.get("/v1/runtime").await, (200, runtime));
        assert_eq!(api.get("/livez").await, (200, "ok\n".to_owned()));
        assert_eq!(api.get("/readyz").await, (code, text.to_owned()));
        assert_eq!(api.get("/readyz?verbose").await, (code, verbose.to_owned()));
        api.drained().await;
    }
}

#[tokio::test]
async fn a_stage_that_does_not_answer_costs_its_readers_an_answer_only() {
    let snapshots = Fixed { status: Err(Unanswered::Late("status")), ..Fixed::default() };
    let api = Api::before(snapshots, prober(Asker::channel("prober").0));
    let (code, body) = api.get("/v1/probes").await;
    assert_eq!((code, body.as_str()), (503, r#"{"error":"prober is not running"}"#));
    let (late, livez) = tokio::join!(api.get("/v1/status"), api.get("/livez"));
    assert_eq!(late, (503, r#"{"error":"status did not answer within 2s"}"#.to_owned()));
    assert_eq!(livez.0, 200);
    api.drained().await;
}
