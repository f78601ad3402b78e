//! Pods and containers from their making to their removal.

use std::collections::HashMap;

use prost::Message as _;
use serde_json::{Value, json};

use super::*;
use crate::proto::{
    cri::{ContainerEventType, ContainerState, NamespaceMode, PodSandboxState},
    encoded::Encoded,
};

async fn pod_status(rig: &Rig, id: &str) -> Result<cri::PodSandboxStatusResponse, tonic::Status> {
    let request = cri::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: true };
    rig.client.clone().pod_sandbox_status(request).await.map(tonic::Response::into_inner)
}

async fn stop(rig: &Rig, id: &str, timeout: i64) {
    let request = cri::StopContainerRequest { container_id: id.to_owned(), timeout };
    rig.client.clone().stop_container(request).await.unwrap();
}

async fn remove(rig: &Rig, id: &str) {
    let request = cri::RemoveContainerRequest { container_id: id.to_owned() };
    rig.client.clone().remove_container(request).await.unwrap();
}

async fn stop_pod(rig: &Rig, id: &str) {
    let request = cri::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
    rig.client.clone().stop_pod_sandbox(request).await.unwrap();
}

async fn remove_pod(rig: &Rig, id: &str) {
    let request = cri::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
    rig.client.clone().remove_pod_sandbox(request).await.unwrap();
}

#[tokio::test]
async fn it_says_what_it_is() {
    let mut rig = Rig::new().await;
    let version = rig.client.version(cri::VersionRequest::default()).await.unwrap().into_inner();
    assert_eq!(version.runtime_name, "criprobe-demo");
    assert_eq!(version.runtime_api_version, "v1");
    let status = rig.client.status(cri::StatusRequest { verbose: true }).await.unwrap().into_inner();
    assert!(status.info["message"].contains("isolates nothing"));
    let conditions = status.status.unwrap().conditions;
    let conditions: Vec<_> = conditions.iter().map(|one| (one.r#type.as_str(), one.status)).collect();
    assert_eq!(conditions, [("RuntimeReady", true), ("NetworkReady", true)]);
    let config = rig.client.runtime_config(cri::RuntimeConfigRequest {}).await.unwrap().into_inner();
    assert_eq!(config.linux.unwrap().cgroup_driver(), cri::CgroupDriver::Cgroupfs);
    let attach = rig.client.attach(cri::AttachRequest::default()).await;
    assert_status(attach, Code::Unimplemented, "streams for Exec only");
}

#[tokio::test]
async fn every_method_that_is_written_down_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new(dir.path().join("cri.sock"), dir.path().join("scratch"));
    let runtime = EmbeddedRuntime::start(Options { poses_as_containerd: true, ..options }).unwrap();
    let channel = channel(&runtime).await;
    let written = include_bytes!("../../../proto/descriptors.bin");
    let written = prost_types::FileDescriptorSet::decode(written.as_slice()).unwrap();
    let mut count = 0;
    for file in written.file.iter().filter(|file| !file.package().starts_with("grpc.health")) {
        for service in &file.service {
            for method in
                service.method.iter().map(prost_types::MethodDescriptorProto::name).chain(["NoMethod"])
            {
                let path = format!("/{}.{}/{method}", file.package(), service.name());
                let mut client = tonic::client::Grpc::new(channel.clone());
                client.ready().await.unwrap();
                let request = tonic::Request::new(bytes::Bytes::new());
                let answer = client.server_streaming(request, path.parse().unwrap(), Encoded).await;
                // One that is served, but does nothing here, says why.
                let is_unknown = answer.as_ref().is_err_and(|status| {
                    status.code() == Code::Unimplemented
                        && !status.message().starts_with("the embedded runtime")
                });
                assert_eq!(is_unknown, method == "NoMethod", "{path}: {:?}", answer.err());
                count += 1;
            }
        }
    }
    assert!(count > 30, "{count}");
}

#[tokio::test]
async fn a_container_lives_from_created_to_removed() {
    let rig = Rig::new().await;
    let sandbox = rig.sandbox("web").await;
    let id = rig.create(&sandbox, container("app")).await;
    let created = rig.status(&id).await;
    assert_eq!(created.state(), ContainerState::ContainerCreated);
    assert!(created.created_at > 0);
    assert_eq!((created.started_at, created.finished_at), (0, 0));

    rig.start(&id).await.unwrap();
    let running = rig.status(&id).await;
    assert_eq!(running.state(), ContainerState::ContainerRunning);
    assert!(running.started_at >= created.created_at);
    assert_status(rig.start(&id).await, Code::Unknown, "container is in CONTAINER_RUNNING state");

    stop(&rig, &id, 5).await;
    let exited = rig.status(&id).await;
    assert_eq!(exited.state(), ContainerState::ContainerExited);
    assert_eq!((exited.exit_code, exited.reason.as_str()), (143, "Error"));
    assert_eq!(exited.started_at, running.started_at);
    assert!(exited.finished_at > exited.started_at);
    stop(&rig, &id, 5).await;

    assert!(rig.root(&id).is_dir());
    remove(&rig, &id).await;
    assert!(!rig.runtime.node.folder.join(&id).exists());
    assert!(rig.list().await.is_empty());
    remove(&rig, &id).await;
    stop(&rig, &id, 0).await;
    let request = cri::ContainerStatusRequest { container_id: id, verbose: false };
    assert_status(rig.client.clone().container_status(request).await, Code::NotFound, "not found");
}

#[tokio::test]
async fn the_end_of_a_container_tells_how_it_ended() {
    let rig = Rig::new().await;
    let cases = [
        ("completed", "exit 0", 0, "Completed"),
        ("failed", "exit 3", 3, "Error"),
        ("killed", "kill -s KILL $$", 137, "Error"),
    ];
    for (name, script, exit_code, reason) in cases {
        let id = rig.run(name, script).await;
        let status = rig.exited(&id).await;
        assert_eq!((status.exit_code, status.reason.as_str()), (exit_code, reason), "{name}");
    }
}

#[tokio::test]
async fn a_container_that_does_not_start_has_exited_with_128() {
    let rig = Rig::new().await;
    let sandbox = rig.sandbox("web").await;
    let config = cri::ContainerConfig { command: vec!["no-such-program".to_owned()], ..container("app") };
    let id = rig.create(&sandbox, config).await;
    let words = "exec: \"no-such-program\": executable file not found in $PATH";
    assert_status(rig.start(&id).await, Code::Unknown, words);
    let status = rig.status(&id).await;
    assert_eq!(status.state(), ContainerState::ContainerExited);
    assert_eq!((status.exit_code, status.reason.as_str()), (128, "StartError"));
    assert!(status.message.contains(words));
}

#[tokio::test]
async fn stopping_asks_first_and_kills_after_the_timeout() {
    let rig = Rig::new().await;
    let polite =
        rig.run("polite", "trap 'exit 7' TERM; echo up > up; while :; do sleep 60 & wait $!; done").await;
    rig.file(&polite, "up").await;
    stop(&rig, &polite, 30).await;
    assert_eq!(rig.status(&polite).await.exit_code, 7);

    let deaf = rig.run("deaf", "trap '' TERM; echo up > up; while :; do sleep 60; done").await;
    rig.file(&deaf, "up").await;
    stop(&rig, &deaf, 1).await;
    assert_eq!(rig.status(&deaf).await.exit_code, 137);

    let hurried = rig.run("hurried", "trap 'exit 7' TERM; echo up > up; while :; do sleep 60; done").await;
    rig.file(&hurried, "up").await;
    stop(&rig, &hurried, 0).await;
    assert_eq!(rig.status(&hurried).await.exit_code, 137);
}

#[tokio::test]
async fn nothing_of_a_container_outlives_its_first_process() {
    let rig = Rig::new().await;
    let id = rig.run("web", "sleep 600 & echo $! > child; wait $!").await;
    let child = rig.pid(&id, "child").await;
    assert!(is_alive(child));
    stop(&rig, &id, 10).await;
    gone(child).await;
}

#[tokio::test]
async fn a_container_runs_in_its_folder_with_its_environment() {
    let rig = Rig::new().await;
    let sandbox = rig.sandbox("web").await;
    let config = cri::ContainerConfig {
        working_dir: "/srv/app".to_owned(),
        envs: vec![cri::KeyValue { key: "GREETING".to_owned(), value: b"hello".to_vec() }],
        ..shell("app", "echo \"$GREETING $PWD\" > said; pwd > where; sleep 600")
    };
    let id = rig.create(&sandbox, config).await;
    rig.start(&id).await.unwrap();
    let folder = rig.root(&id).join("srv/app");
    assert_eq!(rig.file(&id, "srv/app/said").await, format!("hello {}\n", folder.display()));
    assert_eq!(rig.file(&id, "srv/app/where").await, format!("{}\n", folder.display()));
}

#[tokio::test]
async fn output_goes_to_the_log_in_cri_format_and_the_log_reopens() {
    let rig = Rig::new().await;
    let logs = rig.dir.path().join("logs");
    let config = cri::PodSandboxConfig { log_directory: logs.display().to_string(), ..pod("web") };
    let request = cri::RunPodSandboxRequest { config: Some(config), ..Default::default() };
    let sandbox = rig.client.clone().run_pod_sandbox(request).await.unwrap().into_inner().pod_sandbox_id;
    let script = "echo one; echo two >&2; until test -e more; do sleep 0.01; done; echo three; sleep 600";
    let config = cri::ContainerConfig { log_path: "app/0.log".to_owned(), ..shell("app", script) };
    let id = rig.create(&sandbox, config).await;
    rig.start(&id).await.unwrap();
    let path = logs.join("app/0.log");
    assert_eq!(rig.status(&id).await.log_path, path.display().to_string());
    let lines = |count: usize| {
        eventually("the log has its lines", move || {
            let text = fs::read_to_string(logs.join("app/0.log")).unwrap_or_default();
            let lines: Vec<_> = text.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect();
            async move { (lines.len() == count).then_some(lines) }
        })
    };
    let mut first = lines.clone()(2).await;
    first.sort();
    assert_eq!(first, ["stderr F two", "stdout F one"]);

    fs::rename(&path, rig.dir.path().join("old.log")).unwrap();
    let request = cri::ReopenContainerLogRequest { container_id: id.clone() };
    rig.client.clone().reopen_container_log(request).await.unwrap();
    fs::write(rig.root(&id).join("more"), "").unwrap();
    assert_eq!(lines(1).await, ["stdout F three"]);
}

#[tokio::test]
async fn a_pod_takes_its_containers_with_it() {
    let rig = Rig::new().await;
    let sandbox = rig.sandbox("web").await;
    let id = rig.create(&sandbox, container("app")).await;
    rig.start(&id).await.unwrap();
    let status = pod_status(&rig, &sandbox).await.unwrap();
    assert_eq!(status.containers_statuses.len(), 1);
    let status = status.status.unwrap();
    assert_eq!(status.state(), PodSandboxState::SandboxReady);
    assert_eq!(status.network.unwrap().ip, "127.0.0.1");

    stop_pod(&rig, &sandbox).await;
    stop_pod(&rig, &sandbox).await;
    assert_eq!(rig.status(&id).await.exit_code, 137);
    let status = pod_status(&rig, &sandbox).await.unwrap().status.unwrap();
    assert_eq!(status.state(), PodSandboxState::SandboxNotready);
    let request = cri::CreateContainerRequest {
        pod_sandbox_id: sandbox.clone(),
        config: Some(container("late")),
        sandbox_config: None,
    };
    assert_status(rig.client.clone().create_container(request).await, Code::Unknown, "is not running");

    remove_pod(&rig, &sandbox).await;
    remove_pod(&rig, &sandbox).await;
    stop_pod(&rig, &sandbox).await;
    assert_status(pod_status(&rig, &sandbox).await, Code::NotFound, "not found");
    assert!(rig.list().await.is_empty());
}

#[tokio::test]
async fn a_pod_in_the_nodes_network_has_no_address() {
    let rig = Rig::new().await;
    let options = cri::NamespaceOption { network: NamespaceMode::Node.into(), ..Default::default() };
    let context = cri::LinuxSandboxSecurityContext { namespace_options: Some(options) };
    let linux = cri::LinuxPodSandboxConfig { security_context: Some(context), cgroup_parent: String::new() };
    let config = cri::PodSandboxConfig { linux: Some(linux), ..pod("web") };
    let request = cri::RunPodSandboxRequest { config: Some(config), ..Default::default() };
    let id = rig.client.clone().run_pod_sandbox(request).await.unwrap().into_inner().pod_sandbox_id;
    let answer = pod_status(&rig, &id).await.unwrap();
    let status = answer.status.unwrap();
    assert_eq!(status.network.unwrap().ip, "");
    let options = status.linux.unwrap().namespaces.unwrap().options.unwrap();
    assert_eq!(options.network(), NamespaceMode::Node);
    let info: Value = serde_json::from_str(&answer.info["info"]).unwrap();
    assert_eq!(info["config"]["linux"]["security_context"]["namespace_options"]["network"], 2);
    assert_eq!(info["config"]["metadata"]["namespace"], "test");
}

#[tokio::test]
async fn names_are_taken_until_removal() {
    let rig = Rig::new().await;
    let run = |config| {
        let request = cri::RunPodSandboxRequest { config, ..Default::default() };
        let mut client = rig.client.clone();
        async move { client.run_pod_sandbox(request).await }
    };
    let sandbox = rig.sandbox("web").await;
    assert_status(run(Some(pod("web"))).await, Code::AlreadyExists, "is reserved for");
    assert_status(run(None).await, Code::InvalidArgument, "metadata");
    let mut next = pod("web");
    next.metadata.as_mut().unwrap().attempt = 1;
    run(Some(next)).await.unwrap();

    rig.create(&sandbox, container("app")).await;
    let request = cri::CreateContainerRequest {
        pod_sandbox_id: sandbox.clone(),
        config: Some(container("app")),
        sandbox_config: None,
    };
    assert_status(rig.client.clone().create_container(request).await, Code::AlreadyExists, "is reserved for");
    stop_pod(&rig, &sandbox).await;
    assert_status(run(Some(pod("web"))).await, Code::AlreadyExists, "is reserved for");
    remove_pod(&rig, &sandbox).await;
    run(Some(pod("web"))).await.unwrap();
}

#[tokio::test]
async fn verbose_status_tells_config_pid_and_sandbox() {
    for (env_values, shown) in [(EnvValues::Plain, "s3cret"), (EnvValues::Base64, "czNjcmV0")] {
        let rig = Rig::with(env_values).await;
        let sandbox = rig.sandbox("web").await;
        let labels = HashMap::from([("tier".to_owned(), "front".to_owned())]);
        let config = cri::ContainerConfig {
            envs: vec![cri::KeyValue { key: "TOKEN".to_owned(), value: b"s3cret".to_vec() }],
            annotations: labels.clone(),
            labels,
            ..shell("app", "echo $$ > pid; sleep 600; :")
        };
        let id = rig.create(&sandbox, config).await;
        rig.start(&id).await.unwrap();
        let request = cri::ContainerStatusRequest { container_id: id.clone(), verbose: true };
        let answer = rig.client.clone().container_status(request).await.unwrap().into_inner();
        let info: Value = serde_json::from_str(&answer.info["info"]).unwrap();
        let expected = json!({
            "sandboxID": sandbox,
            "pid": rig.pid(&id, "pid").await,
            "removing": false,
            "config": {
                "metadata": { "name": "app", "attempt": 0 },
                "image": { "image": "any" },
                "command": ["sh", "-c"],
                "args": ["echo $$ > pid; sleep 600; :"],
                "envs": [{ "key": "TOKEN", "value": shown }],
                "labels": { "tier": "front" },
                "annotations": { "tier": "front" },
            },
            "runtimeSpec": { "process": { "env": ["TOKEN=s3cret"] } },
        });
        assert_eq!(info, expected);
    }
}

#[tokio::test]
async fn lists_are_filtered_over_the_socket() {
    let rig = Rig::new().await;
    let (web, _db) = (rig.run("web", "sleep 600").await, rig.run("db", "exit 0").await);
    rig.exited(&_db).await;
    let state = Some(cri::ContainerStateValue { state: ContainerState::ContainerRunning.into() });
    let filter = cri::ContainerFilter { state, ..Default::default() };
    let request = cri::ListContainersRequest { filter: Some(filter) };
    let running = rig.client.clone().list_containers(request).await.unwrap().into_inner().containers;
    assert_eq!(running.iter().map(|one| &one.id).collect::<Vec<_>>(), [&web]);
    let request = cri::ListPodSandboxRequest::default();
    let pods = rig.client.clone().list_pod_sandbox(request).await.unwrap().into_inner().items;
    let names: Vec<_> = pods.iter().map(|pod| pod.metadata.as_ref().unwrap().name.as_str()).collect();
    assert_eq!(names, ["web", "db"]);
    assert_eq!(rig.status(&web[..12]).await.id, web);
}

#[tokio::test]
async fn events_tell_a_pods_life_in_order() {
    let mut rig = Rig::new().await;
    let mut events = rig.client.get_container_events(cri::GetEventsRequest {}).await.unwrap().into_inner();
    let sandbox = rig.sandbox("web").await;
    let id = rig.create(&sandbox, shell("app", "exit 5")).await;
    rig.start(&id).await.unwrap();
    rig.exited(&id).await;
    remove_pod(&rig, &sandbox).await;
    use ContainerEventType::{
        ContainerCreatedEvent as Created, ContainerDeletedEvent as Deleted, ContainerStartedEvent as Started,
        ContainerStoppedEvent as Stopped,
    };
    let expected = [
        (&sandbox, Created),
        (&sandbox, Started),
        (&id, Created),
        (&id, Started),
        (&id, Stopped),
        (&sandbox, Stopped),
        (&id, Deleted),
        (&sandbox, Deleted),
    ];
    for (about, kind) in expected {
        let event = events.message().await.unwrap().unwrap();
        assert_eq!((&event.container_id, event.container_event_type()), (about, kind));
        assert_eq!(event.pod_sandbox_status.unwrap().id, sandbox);
        if (about, kind) == (&id, Stopped) {
            assert_eq!(event.containers_statuses[0].exit_code, 5);
        }
    }
}

#[tokio::test]
async fn a_paused_container_stands_still_and_answers_no_command_until_it_is_resumed() {
    let rig = Rig::new().await;
    let id = rig.run("web", "while :; do echo x >> beat; sleep 0.01; done").await;
    let container = ContainerId::from(id.as_str());
    let length = async || fs::read(rig.root(&id).join("beat")).map(|beat| beat.len()).unwrap_or_default();
    eventually("it runs", || async { (length().await > 0).then_some(()) }).await;
    let begun = rig.exec(&id, &["sh", "-c", "touch begun; until test -e go; do sleep 0.01; done"], 0);
    let mut begun = Box::pin(begun);
    tokio::select! {
        answer = &mut begun => panic!("answered: {answer:?}"),
        () = eventually("it has begun", || async { rig.root(&id).join("begun").exists().then_some(()) }) => {}
    }
    assert!(rig.runtime.set_paused(&container, true) && !rig.runtime.set_paused(&container, true));
    assert_eq!(
        rig.status(&id).await.state(),
        cri::ContainerState::ContainerRunning,
        "as containerd shows it"
    );
    let refused = rig.exec(&id, &["true"], 1).await;
    assert_status(refused, Code::Unknown, "cannot exec in a paused state: unknown");
    fs::write(rig.root(&id).join("go"), "").unwrap();
    let before = length().await;
    let half_a_second = Duration::from_millis(500);
    assert!(tokio::time::timeout(half_a_second, &mut begun).await.is_err(), "a command in flight hangs");
    assert!(length().await <= before + 2, "its process stands still");
    assert!(rig.runtime.set_paused(&container, false));
    assert_eq!(begun.await.unwrap().exit_code, 0);
    eventually("it runs on", || async { (length().await > before + 2).then_some(()) }).await;
    rig.runtime.set_paused(&container, true);
    stop(&rig, &id, 0).await;
    assert_eq!(rig.exited(&id).await.exit_code, 137, "it can be killed");
    assert!(!rig.runtime.set_paused(&container, false), "what has ended cannot be resumed");
}

#[tokio::test]
async fn usage_is_that_of_the_containers_processes() {
    let rig = Rig::new().await;
    let id = rig.run("web", "while :; do :; done").await;
    let stats = eventually("the container has used time", || async {
        let request = cri::ContainerStatsRequest { container_id: id.clone() };
        let stats = rig.client.clone().container_stats(request).await.unwrap().into_inner().stats.unwrap();
        (stats.cpu.as_ref()?.usage_core_nano_seconds?.value > 0).then_some(stats)
    })
    .await;
    assert!(stats.memory.unwrap().working_set_bytes.unwrap().value > 0);
    rig.run("done", "exit 0").await;
    eventually("only the running one is listed", || async {
        let request = cri::ListContainerStatsRequest::default();
        let stats = rig.client.clone().list_container_stats(request).await.unwrap().into_inner().stats;
        (stats.len() == 1 && stats[0].attributes.as_ref()?.id == id).then_some(())
    })
    .await;
}

#[tokio::test]
async fn images_are_names() {
    let rig = Rig::new().await;
    let mut images = ImageServiceClient::new(channel(&rig.runtime).await);
    let spec = |image: &str| Some(cri::ImageSpec { image: image.to_owned(), ..Default::default() });
    let status = |image: &str| cri::ImageStatusRequest { image: spec(image), verbose: false };
    assert_eq!(images.image_status(status("busybox")).await.unwrap().into_inner().image, None);
    let auth = Some(cri::AuthConfig { username: "me".to_owned(), password: "secret".to_owned() });
    let pull = cri::PullImageRequest { image: spec("busybox"), auth, sandbox_config: None };
    let id = images.pull_image(pull).await.unwrap().into_inner().image_ref;
    for name in ["busybox", "busybox:latest", &id] {
        let image = images.image_status(status(name)).await.unwrap().into_inner().image.unwrap();
        assert_eq!((&image.id, &image.repo_tags), (&id, &vec!["busybox:latest".to_owned()]), "{name}");
    }
    let list = images.list_images(cri::ListImagesRequest::default()).await.unwrap().into_inner().images;
    assert_eq!(list.len(), 1);
    let usage = images.image_fs_info(cri::ImageFsInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(usage.image_filesystems.len(), 1);
    images.remove_image(cri::RemoveImageRequest { image: spec("busybox") }).await.unwrap();
    assert_eq!(images.image_status(status("busybox")).await.unwrap().into_inner().image, None);
    let nameless = images.pull_image(cri::PullImageRequest::default()).await;
    assert_status(nameless, Code::InvalidArgument, "no image is named");
}

#[tokio::test]
async fn the_demos_pods_come_up_and_go() {
    let rig = Rig::new().await;
    let channel = channel(&rig.runtime).await;
    let created = pods::create_pods(channel.clone(), "any", "test").await.unwrap();
    assert_eq!(
        created.iter().map(|pod| pod.name).collect::<Vec<_>>(),
        ["steady", "moody", "slow-start", "fragile"]
    );
    for pod in created.iter().filter(|pod| pod.name != "slow-start") {
        let id = pod.container_id.as_ref().unwrap().as_str();
        eventually("the pod is healthy", || async {
            (rig.exec(id, &["cat", "healthy"], 1).await.ok()?.exit_code == 0).then_some(())
        })
        .await;
    }
    let error = pods::create_pods(channel.clone(), "any", "test").await.unwrap_err();
    assert_eq!(
        (error.call, error.pod, error.source.code()),
        ("RunPodSandbox", "steady", Code::AlreadyExists)
    );
    assert_eq!(rig.list().await.len(), 4);
    pods::remove_pods(channel.clone(), &created).await.unwrap();
    pods::remove_pods(channel, &created).await.unwrap();
    assert!(rig.list().await.is_empty());
    assert_eq!(fs::read_dir(&rig.runtime.node.folder).unwrap().count(), 0);
}
