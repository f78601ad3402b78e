//! Asks health servers as the kubelet does: `tests/data/prober/grpc.json`.

use std::sync::atomic::AtomicU32;

use tokio::io::AsyncWriteExt;

use super::*;
use crate::handler::grpc::tests::{Running, closed_port, healthy, raw};

/// One row. The healthy server is the one of the handler's own tests, which answers by the name of the service.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Row {
    id: String,
    rule: String,
    peer: Peer,
    #[serde(default)]
    service: String,
    #[serde(default = "five_seconds")]
    timeout_ms: u64,
    result: String,
    /// `{address}` is replaced by the server's.
    output: Option<String>,
    /// How long it takes at least.
    took_ms: Option<u64>,
    /// How often the server was dialled, where each try dials it once.
    tries: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
enum Peer {
    #[serde(rename = "serves")]
    Serves,
    #[serde(rename = "HTTP/1")]
    Http1,
    #[serde(rename = "closes")]
    Closes,
    #[serde(rename = "refuses")]
    Refuses,
}

fn five_seconds() -> u64 {
    5000
}

static DIALLED: AtomicU32 = AtomicU32::new(0);

async fn running(peer: Peer) -> Option<Running> {
    match peer {
        Peer::Serves => Some(healthy("127.0.0.1").await),
        Peer::Http1 => Some(
            raw(|mut stream| async move { stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await })
                .await,
        ),
        Peer::Closes => Some(
            raw(|_stream| async {
                DIALLED.fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
            .await,
        ),
        Peer::Refuses => None,
    }
}

#[tokio::test]
async fn a_health_server_is_judged_as_the_kubelet_judges() {
    let rows: Vec<Row> =
        serde_json::from_str(include_str!("../../../../tests/data/prober/grpc.json")).unwrap();
    for row in rows {
        let reported = format!("{}: {}", row.id, row.rule);
        let server = running(row.peer).await;
        let address = server.as_ref().map_or_else(closed_port, |server| server.address);
        let spec = ProbeSpec {
            handler: Handler::Grpc { port: address.port(), service: row.service },
            timeout: Duration::from_millis(row.timeout_ms),
            ..spec(ProbeKind::Liveness)
        };
        let handlers =
            Handlers { exec: exec(Runtime::Hangs).0, exec_mode: ExecModeSetting::Sync, node_ip: None };
        DIALLED.store(0, Ordering::Relaxed);
        // No one waits that a clock that runs ahead could overtake.
        if row.peer == Peer::Refuses {
            tokio::time::pause();
        }
        let began = clock::now();
        let outcome = handlers
            .attempt(&spec, &view(PodNetwork::Pod(vec![LOCALHOST])), &Variables::default(), &OnceLock::new())
            .await;
        let took = clock::now() - began;
        if row.peer == Peer::Refuses {
            tokio::time::resume();
        }
        assert_eq!(outcome.result.as_str(), row.result, "{reported}: {}", text(&outcome));
        if let Some(output) = row.output {
            assert_eq!(text(&outcome), output.replace("{address}", &address.to_string()), "{reported}");
        }
        if let Some(took_ms) = row.took_ms {
            let expected = Duration::from_millis(took_ms);
            assert!(took >= expected && took < 2 * expected, "{reported}: {took:?}");
        }
        if let Some(tries) = row.tries {
            assert_eq!(DIALLED.load(Ordering::Relaxed), tries, "{reported}");
        }
    }
}
