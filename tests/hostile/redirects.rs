//! Row 9: neither a redirect nor a way of writing an address leads to a service of the node that is not meant.

use std::{
    fs,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::Result;
use criprobe::proto::cri as pb;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::{
    rig::{LIVENESS, READINESS, Rig},
    support::cri::{self, Container, Pod},
};

/// Answers every request with this; counts them.
async fn serve(ip: IpAddr, answer: String) -> Result<(SocketAddr, Arc<AtomicUsize>)> {
    let listener = TcpListener::bind((ip, 0)).await?;
    let (address, asked) = (listener.local_addr()?, Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counter.fetch_add(1, Ordering::SeqCst);
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n")
                && stream.read_buf(&mut request).await.is_ok_and(|read| read > 0)
            {}
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    Ok((address, asked))
}

fn page(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn redirect(to: SocketAddr) -> String {
    format!("HTTP/1.1 302 Found\r\nLocation: http://{to}/\r\nContent-Length: 3\r\n\r\nown")
}

/// A pod with a container `app` that declares one port.
async fn run(rig: &mut Rig, on_host: bool, annotations: &[(&str, &str)], port: u16) -> Result<Pod> {
    let mut config = cri::pod_config(if on_host { "host" } else { "own" }, annotations);
    if on_host {
        let namespace_options = Some(pb::NamespaceOption { network: 2, ..Default::default() });
        let security = pb::LinuxSandboxSecurityContext { namespace_options };
        config.linux.get_or_insert_default().security_context = Some(security);
    }
    let pod = cri::run_sandbox(&mut rig.client, config).await?;
    let ports = format!(r#"[{{"containerPort":{port},"protocol":"TCP"}}]"#);
    let annotations = [("io.kubernetes.container.ports", ports.as_str())];
    let container = Container { annotations: &annotations, ..Container::IDLE };
    cri::run_container(&mut rig.client, &pod, &container).await?;
    Ok(pod)
}

/// A daemon that is configured so.
async fn configured(prober: &str) -> Result<(Rig, tempfile::TempDir)> {
    let folder = tempfile::Builder::new().prefix("criprobe-conf-").tempdir()?;
    let path = folder.path().join("config.yaml");
    fs::write(&path, format!("prober: {prober}\n"))?;
    let rig = Rig::with(&[("CRIPROBE_CONFIG", &path.display().to_string())]).await?;
    Ok((rig, folder))
}

/// An address of this machine that is not its loopback.
fn own_address() -> Result<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect("192.0.2.1:9")?;
    Ok(socket.local_addr()?.ip())
}

const STOPPED: &str = "Probe terminated redirects, Response body: own";

#[tokio::test(flavor = "multi_thread")]
async fn row_09_a_redirect_to_a_port_of_the_node_that_is_not_declared_ends_at_the_redirect() -> Result<()> {
    let loopback = IpAddr::from([127, 0, 0, 1]);
    let (mut rig, _folder) = configured("{nodeIP: 127.0.0.1}").await?;
    let (private, asked) = serve(loopback, page("of the node alone")).await?;
    let (declared, _) = serve(loopback, redirect(private)).await?;
    let probe = json!({"httpGet": {"port": declared.port()}, "period": "200ms"}).to_string();
    let pod = run(&mut rig, true, &[(LIVENESS, &probe)], declared.port()).await?;
    let found = rig.last(&pod, "liveness", "warning").await?;
    assert_eq!((&found["last"]["output"], &found["last"]["status"]), (&json!(STOPPED), &json!(302)));
    assert_eq!(asked.load(Ordering::SeqCst), 0, "the other port was asked");

    // A pod's own address is its own business, as with the kubelet. In this rig that is the same address.
    let pod = run(&mut rig, false, &[(LIVENESS, &probe)], declared.port()).await?;
    let found = rig.last(&pod, "liveness", "success").await?;
    assert_eq!(found["last"]["output"], "of the node alone");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_09_a_redirect_to_another_port_of_an_allowed_host_ends_at_the_redirect() -> Result<()> {
    let host = own_address()?;
    let (mut rig, _folder) = configured(&format!("{{allowHosts: [{host}]}}")).await?;
    let (private, asked) = serve(host, page("of others")).await?;
    let (allowed, _) = serve(host, redirect(private)).await?;
    let probe =
        json!({"httpGet": {"host": host.to_string(), "port": allowed.port()}, "period": "200ms"}).to_string();
    let pod = run(&mut rig, false, &[(READINESS, &probe)], 1).await?;
    let found = rig.last(&pod, "readiness", "warning").await?;
    assert_eq!(found["last"]["output"], STOPPED);
    assert_eq!(asked.load(Ordering::SeqCst), 0, "the other port was asked");

    // What the operator allows to annotations, a single attempt may ask, too, and nothing else.
    let asks = |host: &str| {
        let url = json!({"host": host, "port": private.port()});
        json!({"container": "default/own/app", "httpGet": url}).to_string()
    };
    let (status, answer) = rig.daemon.post("/v1/run", &asks(&host.to_string())).await?;
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains("of others"), "{answer}");
    assert_eq!(rig.daemon.post("/v1/run", &asks("198.51.100.1")).await?.0, 400);
    let url = format!("http://{private}/");
    let (ended, printed) = rig.daemon.run(&["run", "default/own/app", "--http-get", &url])?;
    assert!(ended && printed.contains("of others"), "{printed}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_09_an_allowed_network_leads_to_no_loopback_however_it_is_written() -> Result<()> {
    let (mut rig, _folder) = configured("{allowHosts: ['0.0.0.0/0', '::/0']}").await?;
    let probe = json!({"tcpSocket": {"host": "64:ff9b::7f00:1", "port": 9}, "period": "200ms"}).to_string();
    let pod = run(&mut rig, false, &[(LIVENESS, &probe)], 9).await?;
    let found = rig.becomes(&pod, "liveness", "is invalid", |probe| probe["phase"] == "invalid").await?;
    let reason = found["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("never allowed"), "{reason}");
    for host in ["127.0.0.1", "::127.0.0.1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "64:ff9b:1::1", "[::1]"] {
        let asked = json!({"container": "default/own/app", "tcpSocket": {"host": host, "port": 9}});
        let (status, answer) = rig.daemon.post("/v1/run", &asked.to_string()).await?;
        assert_eq!(status, 400, "{host}: {answer}");
    }
    Ok(())
}
