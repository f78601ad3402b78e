//! Rows 3 and 16: labels, annotations and environments of megabytes; connections that want much to be kept.

use std::{fs, io::Write, time::Duration};

use anyhow::{Context as _, Result, ensure};
use criprobe::proto::cri as pb;

use crate::{
    made_up::{self, DATA, END_HEADERS, HEADERS, PING, RESET},
    rig::{LAZY, LIVENESS, Rig},
    support::{
        PATIENCE,
        cri::{self, Container, Cri, Pod},
        daemon::Daemon,
        eventually,
    },
};

/// 12 MB: nearly all that a message may hold.
const LARGE: usize = 12_000_000;

/// 16 MiB, in KiB: room for the code of a debug build that runs for the first time.
const ROOM: u64 = 16 << 10;

/// As the service's unit has it: without that, glibc keeps twice the largest block that it ever gave back.
const ALLOCATOR: [(&str, &str); 2] =
    [("MALLOC_MMAP_THRESHOLD_", "262144"), ("MALLOC_TRIM_THRESHOLD_", "1048576")];

/// 40 s: longer than it takes until the runtime is listed again.
const LATER: Duration = Duration::from_secs(40);

/// The memory that the daemon holds, in KiB.
fn resident(rig: &Rig) -> Result<u64> {
    resident_of(&rig.daemon)
}

fn resident_of(daemon: &Daemon) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// A pod of this name whose labels or annotations have 12 MB, in one piece or in many.
fn large(number: usize) -> pb::PodSandboxConfig {
    let mut config = cri::pod_config(&format!("large-{number}"), &[(LIVENESS, LAZY)]);
    let texts = if number.is_multiple_of(2) { &mut config.labels } else { &mut config.annotations };
    match number / 2 % 2 {
        0 => drop(texts.insert("large".to_owned(), "x".repeat(LARGE))),
        _ => texts.extend((0..LARGE / 1_000).map(|key| (format!("{key}.criprobe.dev/x"), "x".repeat(970)))),
    }
    config
}

async fn remove(client: &mut Cri, pod: &Pod) -> Result<()> {
    client.stop_pod_sandbox(pb::StopPodSandboxRequest { pod_sandbox_id: pod.id.to_string() }).await?;
    client.remove_pod_sandbox(pb::RemovePodSandboxRequest { pod_sandbox_id: pod.id.to_string() }).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_16_what_pods_with_labels_and_annotations_of_megabytes_took_is_given_back() -> Result<()> {
    let mut rig = Rig::with(&ALLOCATOR).await?;
    let (small, _) = rig.run("small", &[(LIVENESS, LAZY)], &["sleep", "100000"]).await?;
    rig.last(&small, "liveness", "success").await?;
    let before = resident(&rig)?;
    for number in 0..8 {
        let pod = cri::run_sandbox(&mut rig.client, large(number)).await?;
        cri::run_container(
            &mut rig.client,
            &pod,
            &Container { annotations: &[(LIVENESS, LAZY)], ..Container::IDLE },
        )
        .await?;
        rig.last(&pod, "liveness", "success").await?;
        remove(&mut rig.client, &pod).await?;
        rig.counts(1, PATIENCE).await?;
    }
    let peak = resident(&rig)?;
    let mut after = peak;
    eventually("the memory is given back", LATER, async || {
        after = resident(&rig)?;
        Ok((after <= before + ROOM).then_some(()))
    })
    .await
    .with_context(|| format!("{before} KiB before, {peak} KiB at the last, {after} KiB now"))?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_16_a_label_of_megabytes_costs_its_pod_neither_its_small_labels_nor_a_word_in_the_log()
-> Result<()> {
    let folder = tempfile::Builder::new().prefix("criprobe-conf-").tempdir()?;
    let file = folder.path().join("config.yaml");
    let rule = "rules:\n  - name: front\n    match: {labels: {tier: front}}\n    readiness: {exec: {command: [\"true\"]}, period: 200ms}\n";
    fs::write(&file, rule)?;
    let mut rig = Rig::with(&[("CRIPROBE_CONFIG", &file.display().to_string())]).await?;
    for number in 0..4 {
        let mut config = large(number);
        config.labels.insert("tier".to_owned(), "front".to_owned());
        let pod = cri::run_sandbox(&mut rig.client, config).await?;
        cri::run_container(&mut rig.client, &pod, &Container::IDLE).await?;
        let readiness = rig.last(&pod, "readiness", "success").await?;
        assert_eq!(readiness["source"], "rule:front");
        rig.last(&pod, "liveness", "success").await?;
        remove(&mut rig.client, &pod).await?;
    }
    let log = rig.daemon.log();
    for pod in ["large-0", "large-2", "large-3"] {
        let is_noted = |line: &&str| line.contains(pod) && line.contains("labels and annotations");
        ensure!(log.lines().any(|line| is_noted(&line)), "{pod} is not in the log");
    }
    Ok(())
}

/// The one container of this name, with 1.9 MB of environment.
async fn run_with_environment(client: &mut Cri, pod: &Pod, name: &str) -> Result<()> {
    let value = "x".repeat(120_000);
    let names: Vec<_> = (0..16).map(|number| format!("V{number}")).collect();
    let large = names.iter().map(|name| (&**name, &*value));
    let env: Vec<_> = large.chain([("COLOUR", "blue")]).collect();
    cri::run_container(client, pod, &Container { name, env: &env, ..Container::IDLE }).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_16_of_large_environments_only_the_variables_that_commands_name_are_kept() -> Result<()> {
    const CONTAINERS: u64 = 60;
    let folder = tempfile::Builder::new().prefix("criprobe-conf-").tempdir()?;
    let file = folder.path().join("config.yaml");
    fs::write(&file, "rules: []\n")?;
    let settings = [("CRIPROBE_CONFIG", file.display().to_string())];
    let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, &**value)).chain(ALLOCATOR).collect();
    let mut rig = Rig::with(&settings).await?;
    let before = resident(&rig)?;
    let small = r#"{"exec": {"command": ["echo", "$(COLOUR)"]}, "period": "100ms"}"#;
    let large = r#"{"exec": {"command": ["sh", "-c", "test ${#1} = 120000", "sh", "$(V7)"]}}"#;
    let annotations = [("liveness.criprobe.dev/c0", small), ("liveness.criprobe.dev/c1", large)];
    let pod = cri::run_pod(&mut rig.client, "large", &annotations).await?;
    for number in 0..CONTAINERS {
        run_with_environment(&mut rig.client, &pod, &format!("c{number}")).await?;
    }
    rig.counts(CONTAINERS, PATIENCE).await?;
    let ends_well = |container: &'static str, kind: &'static str| {
        let probe = (&pod, container, kind);
        rig.daemon.probe_becomes(probe, "succeeds", PATIENCE, |probe| probe["last"]["result"] == "success")
    };
    assert_eq!(ends_well("c0", "liveness").await?["last"]["output"], "blue\n");
    ends_well("c1", "liveness").await?;
    // Of these containers no variable was wanted until now.
    let rule = "rules:\n  - name: late\n    match: {container: c2}\n    readiness: {exec: {command: [echo, $(COLOUR)]}}\n";
    fs::write(&file, rule)?;
    assert_eq!(ends_well("c2", "readiness").await?["last"]["output"], "blue\n");
    let probe = ends_well("c0", "liveness").await?;
    assert_eq!(probe["counts"]["error"], 0, "{probe}");
    let grown = resident(&rig)?.saturating_sub(before);
    assert!(grown < 2 * ROOM, "{grown} KiB for the environments of {CONTAINERS} containers");
    Ok(())
}

/// What a client sends that wants much to be kept: calls of paths of their own, and a creation that does not end.
fn greedy(number: usize) -> Vec<u8> {
    let block = |path: &str| {
        let mut block = vec![0x83, 0x86, 0x04, 0x7f];
        let rest = path.len() - 127;
        block.extend([(rest & 127 | 128) as u8, (rest >> 7) as u8]);
        block.extend(path.bytes());
        block
    };
    let mut bytes = Vec::new();
    for call in 0..100_u32 {
        let path = format!("/{number}/{call:01000}");
        bytes.extend(made_up::frame(HEADERS, END_HEADERS, 2 * call + 1, &block(&path)));
        bytes.extend(made_up::frame(RESET, 0, 2 * call + 1, &[0, 0, 0, 8]));
    }
    let create = made_up::call("/runtime.v1.RuntimeService/CreateContainer");
    bytes.extend(made_up::frame(HEADERS, END_HEADERS, 1001, &create));
    // A message of 62,000 bytes, of which 60,000 arrive, all of its first field.
    let mut message = vec![0, 0, 0, 0xf2, 0x30, 0x0a, 0xac, 0xe4, 0x03];
    message.resize(60_000, b'x');
    for piece in message.chunks(16_000) {
        bytes.extend(made_up::frame(DATA, 0, 1001, piece));
    }
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn row_16_what_many_connections_make_criprobe_keep_is_bounded() -> Result<()> {
    const CONNECTIONS: usize = 400;
    let (socket, _dir) = made_up::start()?;
    let daemon = Daemon::spawn(&socket, &ALLOCATOR)?;
    eventually("the runtime is there", PATIENCE, async || {
        Ok(daemon.status().await.ok().filter(|status| status["runtime"]["state"] == "ok"))
    })
    .await?;
    let before = resident_of(&daemon)?;
    let mut clients = Vec::new();
    for number in 0..CONNECTIONS {
        let mut client = made_up::connect(&daemon.socket())?;
        client.write_all(&greedy(number))?;
        clients.push(client);
    }
    // The runtime answers a ping once it has all that came before.
    for client in &mut clients {
        client.set_read_timeout(Some(PATIENCE))?;
        client.write_all(&made_up::frame(PING, 0, 0, &[0; 8]))?;
        while made_up::read_frame(client)?.kind != PING {}
    }
    let grown = resident_of(&daemon)?.saturating_sub(before);
    ensure!(grown < 3 * ROOM, "{grown} KiB for {CONNECTIONS} connections");
    drop(clients);
    Ok(())
}
