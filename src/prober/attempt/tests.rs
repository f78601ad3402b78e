//! Tries, targets and refusals, against a small gRPC server and a real listener.

use std::{net::TcpListener, sync::atomic::Ordering, time::Duration};

use super::*;
use crate::{
    clock,
    handler::exec::tests::{Runtime, exec},
    ids::ProbeKind,
    prober::fixtures::{container, spec},
};

const LOCALHOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn exec_spec(command: &[&str]) -> ProbeSpec {
    let command = command.iter().map(|&word| word.to_owned()).collect();
    ProbeSpec { handler: Handler::Exec { command }, ..spec(ProbeKind::Liveness) }
}

fn tcp_spec(host: Option<&str>, port: PortRef) -> ProbeSpec {
    ProbeSpec {
        handler: Handler::TcpSocket { host: host.map(str::to_owned), port },
        ..spec(ProbeKind::Liveness)
    }
}

fn grpc_spec(port: u16) -> ProbeSpec {
    ProbeSpec { handler: Handler::Grpc { port, service: String::new() }, ..spec(ProbeKind::Liveness) }
}

#[tokio::test]
async fn whatever_goes_wrong_with_grpc_is_a_failure_and_not_tried_again() {
    let listener = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let spec =
        ProbeSpec { timeout: Duration::from_millis(200), ..grpc_spec(listener.local_addr().unwrap().port()) };
    let handlers = Handlers { exec: exec(Runtime::Hangs).0, node_ip: None };
    let began = clock::now();
    let tried = handlers.attempt(&spec, &view(PodNetwork::Pod(vec![LOCALHOST]))).await;
    assert_eq!(tried.result, AttemptResult::Failure, "I18");
    assert!(clock::now() - began < 2 * spec.timeout);
}

fn view(network: PodNetwork) -> ContainerView {
    let view = container("web", "c1", 0);
    ContainerView {
        pod: Arc::new(crate::inventory::view::PodView { network, ..(*view.pod).clone() }),
        ..view
    }
}

fn text(tried: &Tried) -> &str {
    std::str::from_utf8(&tried.output).unwrap()
}

#[tokio::test(start_paused = true)]
async fn only_an_error_is_tried_again_and_three_times_at_most() {
    let rows = [
        (
            "K04",
            Runtime::Answers { exit_code: 0, stdout: "", stderr: String::new() },
            AttemptResult::Success,
            1,
        ),
        (
            "K06",
            Runtime::Answers { exit_code: 1, stdout: "", stderr: String::new() },
            AttemptResult::Failure,
            1,
        ),
        ("J10", Runtime::Refuses(tonic::Code::DeadlineExceeded), AttemptResult::Failure, 1),
        ("K10", Runtime::RefusesOnceThenFails, AttemptResult::Failure, 2),
        ("K12", Runtime::Refuses(tonic::Code::NotFound), AttemptResult::Error, 3),
    ];
    for (name, runtime, result, asked) in rows {
        let (exec, counter) = exec(runtime);
        let handlers = Handlers { exec, node_ip: None };
        let tried = handlers.attempt(&exec_spec(&["true"]), &container("web", "c1", 0)).await;
        assert_eq!((tried.result, counter.load(Ordering::Relaxed)), (result, asked), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_runtime_is_not_asked_again_so_that_the_place_is_free_at_once() {
    let (exec, asked) = exec(Runtime::Hangs);
    let began = clock::now();
    let handlers = Handlers { exec, node_ip: None };
    let tried = handlers.attempt(&exec_spec(&["true"]), &container("web", "c1", 0)).await;
    assert_eq!(
        (tried.result, tried.is_unanswered, text(&tried)),
        (AttemptResult::Error, true, "runtime did not answer")
    );
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    assert_eq!((clock::now() - began).as_secs(), 6, "1 s of timeout and 5 s of grace");
}

#[tokio::test(start_paused = true)]
async fn a_command_with_variables_is_not_run_before_they_are_known() {
    let (exec, asked) = exec(Runtime::Refuses(tonic::Code::NotFound));
    let handlers = Handlers { exec, node_ip: None };
    let tried = handlers.attempt(&exec_spec(&["cat", "$(FILE)"]), &container("web", "c1", 0)).await;
    assert_eq!((tried.result, asked.load(Ordering::Relaxed)), (AttemptResult::Error, 0));
}

#[tokio::test]
async fn a_pod_is_dialled_at_its_own_address_or_at_the_nodes_or_not_at_all() {
    let listener = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let port = PortRef::Number(listener.local_addr().unwrap().port());
    let (success, error) = (AttemptResult::Success, AttemptResult::Error);
    let rows = [
        ("its own", PodNetwork::Pod(vec![LOCALHOST]), None, success),
        ("the node's", PodNetwork::Host, Some(LOCALHOST), success),
        ("the node's, which is not known", PodNetwork::Host, None, error),
        ("unknown: never loopback", PodNetwork::Unknown, Some(LOCALHOST), error),
    ];
    for (name, network, node_ip, result) in rows {
        let handlers = Handlers { exec: exec(Runtime::Hangs).0, node_ip };
        let spec = ProbeSpec { timeout: Duration::from_secs(5), ..tcp_spec(None, port.clone()) };
        let tried = handlers.attempt(&spec, &view(network)).await;
        assert_eq!(tried.result, result, "{name}: {}", text(&tried));
    }
}

#[tokio::test]
async fn what_cannot_be_dialled_is_an_error_that_says_why() {
    let handlers = Handlers { exec: exec(Runtime::Hangs).0, node_ip: None };
    let rows = [
        (tcp_spec(None, PortRef::Name("http".to_owned())), "the container declares no port named \"http\""),
        (grpc_spec(80), "the pod's address is not known"),
        (tcp_spec(Some("::1"), PortRef::Number(80)), "host \"::1\" is not one that the operator allows"),
    ];
    for (spec, reason) in rows {
        let tried = handlers.attempt(&spec, &view(PodNetwork::Unknown)).await;
        assert_eq!((tried.result, text(&tried)), (AttemptResult::Error, reason), "H10");
    }
}
