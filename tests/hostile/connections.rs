//! Connections that a peer keeps in the kernel of the node, and what its answers cost: row 5.

use std::{
    collections::HashMap,
    fs,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use anyhow::{Result, ensure};
use criprobe::{clock, proto::cri as pb};
use socket2::{Domain, Socket, Type};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::{
    rig::{LIVENESS, READINESS, Rig},
    support::{
        PATIENCE,
        cri::{self, Container},
        eventually,
    },
};

/// TIME_WAIT in `/proc/net/tcp`: the kernel has forgotten all but the addresses.
const TIME_WAIT: &str = "06";

/// The states of the clients' ends of all connections to a port. Those that no process holds any more have no inode.
fn clients_of(port: u16) -> Result<Vec<(String, bool)>> {
    let (table, to) = (fs::read_to_string("/proc/net/tcp")?, format!(":{port:04X}"));
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let rows = rows.filter(|fields| fields.len() > 9 && fields[2].ends_with(&to));
    // By our end: while many connections come and go, the kernel may list one more than once.
    let clients: HashMap<_, _> =
        rows.map(|fields| (fields[1].to_owned(), (fields[3].to_owned(), fields[9] != "0"))).collect();
    Ok(clients.into_values().collect())
}

/// A server that answers each connection with what `answer` says of its number, without reading a byte, and closes none. Its
/// window is as small as it can be.
fn narrow(answer: impl Fn(SocketAddr, usize) -> String + Send + 'static) -> Result<(u16, Arc<AtomicUsize>)> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_recv_buffer_size(1)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    socket.listen(1024)?;
    socket.set_nonblocking(true)?;
    let listener = TcpListener::from_std(socket.into())?;
    let (address, asked) = (listener.local_addr()?, Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let number = counter.fetch_add(1, SeqCst);
            let _ = stream.write_all(answer(address, number).as_bytes()).await;
            held.push(stream);
        }
    });
    Ok((address.port(), asked))
}

async fn stop(rig: &mut Rig, pod_sandbox_id: String) -> Result<()> {
    rig.client.stop_pod_sandbox(pb::StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() }).await?;
    rig.client.remove_pod_sandbox(pb::RemovePodSandboxRequest { pod_sandbox_id }).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_05_servers_that_take_nothing_leave_nothing_in_the_kernel() -> Result<()> {
    let redirect = |address, number| {
        let location = format!("http://{address}/{number}/{}", "x".repeat(7_000));
        format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n")
    };
    let page = |_, _| "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_owned();
    let header = format!("httpHeaders: [{{name: X, value: {}}}],", "x".repeat(7_000));
    let mut rig = Rig::start().await?;
    let (redirects, _) = narrow(redirect)?;
    let (pages, _) = narrow(page)?;
    let asked = [(redirects, ""), (pages, header.as_str()), (pages, "")];
    let mut pods = Vec::new();
    for (number, (port, header)) in asked.iter().enumerate() {
        let probe = format!("{{httpGet: {{{header} port: {port}}}, period: 100ms, failureThreshold: 1000}}");
        let name = format!("narrow-{number}");
        pods.push(rig.run(&name, &[(LIVENESS, &probe)], Container::IDLE.command).await?.0);
    }
    for pod in &pods {
        let is_wanted = |probe: &serde_json::Value| {
            ["success", "failure"].iter().filter_map(|kind| probe["counts"][kind].as_u64()).sum::<u64>() >= 20
        };
        rig.becomes(pod, "liveness", "is tried 20 times", is_wanted).await?;
    }
    for port in [redirects, pages] {
        let all = clients_of(port)?;
        let orphans = all.iter().filter(|(state, is_held)| state != TIME_WAIT && !is_held).count();
        ensure!(orphans == 0, "{orphans} connections to {port} belong to no process: {all:?}");
        ensure!(all.len() <= 3 * 64, "{} connections to {port}", all.len());
    }
    for pod in pods {
        stop(&mut rig, pod.id.to_string()).await?;
    }
    eventually("nothing is left of them", PATIENCE, async || {
        let left = [clients_of(redirects)?, clients_of(pages)?].concat();
        Ok(left.iter().all(|(state, _)| state == TIME_WAIT).then_some(()))
    })
    .await
}

/// Reads a request, answers with `answer`, and waits for the client to close: whether it did so in order.
async fn serve(mut stream: TcpStream, answer: &str) -> bool {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return false;
        }
    }
    let answered = stream.write_all(answer.as_bytes()).await;
    answered.is_ok() && stream.read(&mut [0]).await.is_ok_and(|read| read == 0)
}

/// A server that gives each request `answer`, and never closes first: how many connections ended otherwise than in order
/// within a second, and how many in order.
async fn patient(answer: impl FnOnce(SocketAddr) -> String) -> Result<(u16, Arc<[AtomicUsize; 2]>)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let (address, counts) = (listener.local_addr()?, Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]));
    let (answer, ended) = (Arc::new(answer(address)), Arc::clone(&counts));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (answer, ended) = (Arc::clone(&answer), Arc::clone(&ended));
            tokio::spawn(async move {
                let began = clock::now();
                let in_order = serve(stream, &answer).await && clock::now() - began < Duration::from_secs(1);
                ended[usize::from(in_order)].fetch_add(1, SeqCst);
            });
        }
    });
    Ok((address.port(), counts))
}

const PAGE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn circle(address: SocketAddr) -> String {
    format!("HTTP/1.1 302 Found\r\nLocation: http://{address}/\r\nContent-Length: 0\r\n\r\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn row_05_a_server_that_behaves_sees_its_connections_closed_in_order() -> Result<()> {
    let (port, counts) = patient(|_| PAGE.to_owned()).await?;
    let mut rig = Rig::start().await?;
    let probe = format!("{{httpGet: {{port: {port}}}, period: 100ms}}");
    rig.run("orderly", &[(LIVENESS, &probe)], Container::IDLE.command).await?;
    eventually("20 connections ended", PATIENCE, async || Ok((counts[1].load(SeqCst) >= 20).then_some(())))
        .await?;
    assert_eq!(counts[0].load(SeqCst), 0, "were reset, or closed late");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_05_redirects_leave_few_connections_in_time_wait() -> Result<()> {
    let (port, counts) = patient(circle).await?;
    let mut rig = Rig::start().await?;
    let probe = format!("{{httpGet: {{port: {port}}}, period: 100ms, failureThreshold: 1000}}");
    let began = clock::now();
    rig.run("circle", &[(LIVENESS, &probe), (READINESS, &probe)], Container::IDLE.command).await?;
    eventually("800 connections ended", PATIENCE, async || {
        let ended: usize = counts.iter().map(|count| count.load(SeqCst)).sum();
        Ok((ended >= 800).then_some(()))
    })
    .await?;
    let waiting = clients_of(port)?.iter().filter(|(state, _)| state == TIME_WAIT).count();
    // What a pod has at once, and each second.
    let permitted = 80 + 52 * ((clock::now() - began).as_secs() as usize + 1);
    let is_good = (1..=permitted).contains(&waiting);
    ensure!(is_good, "{waiting} connections wait, {permitted} are permitted; reset and in order: {counts:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_05_redirects_of_some_pods_reset_no_connection_of_another() -> Result<()> {
    let (circles, _) = patient(circle).await?;
    let (port, counts) = patient(|_| PAGE.to_owned()).await?;
    let mut rig = Rig::start().await?;
    let probe = format!("{{httpGet: {{port: {circles}}}, period: 100ms, failureThreshold: 1000}}");
    for number in 0..8 {
        let probes = [(LIVENESS, probe.as_str()), (READINESS, &probe)];
        rig.run(&format!("circle-{number}"), &probes, Container::IDLE.command).await?;
    }
    let probe = format!("{{httpGet: {{port: {port}}}, period: 500ms, timeoutSeconds: 10}}");
    rig.run("modest", &[(LIVENESS, &probe)], Container::IDLE.command).await?;
    eventually("20 connections ended", PATIENCE, async || {
        let ended: usize = counts.iter().map(|count| count.load(SeqCst)).sum();
        Ok((ended >= 20).then_some(()))
    })
    .await?;
    assert_eq!(counts[0].load(SeqCst), 0, "were reset, or closed late");
    Ok(())
}

/// The CPU time that a process has used.
fn cpu_of(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = fields[11].parse::<u32>()? + fields[12].parse::<u32>()?;
    Ok(Duration::from_millis(10) * ticks)
}

#[tokio::test(flavor = "multi_thread")]
async fn row_05_answers_that_cost_much_use_a_part_of_a_core_however_many_are_asked_for() -> Result<()> {
    let costly = |address| {
        let lines = "a:\r\n".repeat(7_000);
        format!("HTTP/1.1 302 Found\r\n{lines}Location: http://{address}/\r\nContent-Length: 0\r\n\r\n")
    };
    let (port, counts) = patient(costly).await?;
    let mut rig = Rig::start().await?;
    let probe =
        format!("{{httpGet: {{port: {port}}}, period: 200ms, timeoutSeconds: 5, failureThreshold: 1000}}");
    let names = ["app", "b", "c", "d", "e"];
    let keys = names.map(|name| ["liveness", "readiness"].map(|kind| format!("{kind}.criprobe.dev/{name}")));
    let probes: Vec<_> = keys.as_flattened().iter().map(|key| (key.as_str(), probe.as_str())).collect();
    let pod = cri::run_pod(&mut rig.client, "costly", &probes).await?;
    for name in names {
        cri::run_container(&mut rig.client, &pod, &Container { name, ..Container::IDLE }).await?;
    }
    let ended = || counts.iter().map(|count| count.load(SeqCst)).sum::<usize>();
    eventually("40 connections ended", PATIENCE, async || Ok((ended() >= 40).then_some(()))).await?;
    let (before, began) = (cpu_of(rig.daemon.pid())?, clock::now());
    let is_over = || clock::now() - began >= Duration::from_secs(4);
    eventually("4 s have passed", PATIENCE, async || Ok(is_over().then_some(()))).await?;
    let (used, took) = (cpu_of(rig.daemon.pid())? - before, clock::now() - began);
    ensure!(used < took * 2 / 5, "{used:?} of CPU in {took:?}, {} connections", ended());
    Ok(())
}
