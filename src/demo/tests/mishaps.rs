//! Faults on request, restarts, and ends of every kind.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

async fn version(rig: &Rig) -> Result<(), tonic::Status> {
    rig.client.clone().version(cri::VersionRequest::default()).await.map(drop)
}

#[tokio::test]
async fn a_code_is_answered_as_often_as_asked() {
    let rig = Rig::new().await;
    let faults = rig.runtime.faults();
    let kind = FaultKind::Code(Code::ResourceExhausted, "too much, % and all".to_owned());
    faults.add(InjectedFault { method: "Ver*".to_owned(), times: Some(2), kind });
    for _ in 0..2 {
        assert_status(version(&rig).await, Code::ResourceExhausted, "too much, % and all");
    }
    version(&rig).await.unwrap();
    assert_eq!(faults.count("Version"), 3);
    let calls = faults.calls();
    assert!(calls.windows(2).all(|pair| pair[0].at <= pair[1].at));
}

#[tokio::test]
async fn a_delayed_call_is_handled_late() {
    let rig = Rig::new().await;
    let delay = Duration::from_millis(300);
    rig.runtime.faults().add(InjectedFault::once("ListContainers", FaultKind::Delay(delay)));
    let began = clock::now();
    let (list, id) = tokio::join!(rig.list(), rig.run("web", "sleep 600"));
    assert!(clock::now() - began >= delay);
    assert_eq!(list.iter().map(|one| &one.id).collect::<Vec<_>>(), [&id]);
}

#[tokio::test]
async fn a_delayed_answer_tells_of_the_past() {
    let rig = Rig::new().await;
    rig.runtime
        .faults()
        .add(InjectedFault::once("ListContainers", FaultKind::DelayAnswer(Duration::from_millis(300))));
    let made_meanwhile = async {
        eventually("the list was asked for", || async {
            (rig.runtime.faults().count("ListContainers") == 1).then_some(())
        })
        .await;
        rig.run("web", "sleep 600").await
    };
    let (list, _) = tokio::join!(rig.list(), made_meanwhile);
    assert!(list.is_empty());
    assert_eq!(rig.list().await.len(), 1);
}

#[tokio::test]
async fn a_hanging_call_hangs_alone() {
    let rig = Rig::new().await;
    rig.runtime.faults().add(InjectedFault::once("Version", FaultKind::Hang));
    tokio::select! {
        answer = version(&rig) => panic!("answered: {answer:?}"),
        () = async { for _ in 0..20 { rig.list().await; } } => {}
    }
    version(&rig).await.unwrap();
}

#[tokio::test]
async fn hundreds_of_calls_share_a_connection_and_may_be_cancelled_together() {
    let rig = Rig::new().await;
    let faults = rig.runtime.faults();
    let five_hundred = || futures_util::future::join_all((0..500).map(|_| version(&rig)));
    faults.add(InjectedFault::always("Version", FaultKind::Hang));
    tokio::select! {
        answers = five_hundred() => panic!("answered: {answers:?}"),
        () = eventually("all are there", || async { (faults.count("Version") == 500).then_some(()) }) => {}
    }
    faults.clear();
    assert!(five_hundred().await.into_iter().all(|answer| answer.is_ok()));
}

#[tokio::test]
async fn a_dropped_connection_takes_its_calls_but_not_those_of_others() {
    let rig = Rig::new().await;
    let other = RuntimeServiceClient::new(channel(&rig.runtime).await);
    let id = rig.run("web", "sleep 600").await;
    rig.runtime.faults().add(InjectedFault::once("Version", FaultKind::DropConnection));
    let doomed = rig.exec(&id, &["sh", "-c", "echo $$ > doomed; sleep 600"], 0);
    let mut other_exec = other.clone();
    let request = cri::ExecSyncRequest {
        container_id: id.clone(),
        cmd: ["sh", "-c", "until test -e go; do sleep 0.01; done"].map(str::to_owned).to_vec(),
        timeout: 0,
    };
    let drop_it = async {
        let pid = rig.pid(&id, "doomed").await;
        version(&rig).await.unwrap_err();
        gone(pid).await;
        fs::write(rig.root(&id).join("go"), "").unwrap();
    };
    let (doomed, others, ()) = tokio::join!(doomed, other_exec.exec_sync(request), drop_it);
    doomed.unwrap_err();
    assert_eq!(others.unwrap().into_inner().exit_code, 0);
    eventually("the client has connected again", || async { version(&rig).await.ok() }).await;
}

#[tokio::test]
async fn answers_are_made_huge() {
    let rig = Rig::new().await;
    let id = rig.run("web", "sleep 600").await;
    rig.runtime.faults().add(InjectedFault::once("ListContainers", FaultKind::HugeAnswer(15 << 20)));
    let padded = rig.list().await;
    assert_eq!(padded[0].image.as_ref().unwrap().annotations["padding"].len(), 15 << 20);
    rig.runtime.faults().add(InjectedFault::once("ExecSync", FaultKind::HugeAnswer(5 << 20)));
    let answer = rig.exec(&id, &["echo", "hi"], 5).await.unwrap();
    assert_eq!(answer.stdout.len(), 5 << 20);
    assert!(answer.stdout.starts_with(b"hi\nxxx"));
    assert_eq!(rig.exec(&id, &["echo", "hi"], 5).await.unwrap().stdout, b"hi\n");
}

#[tokio::test]
async fn containers_outlive_a_restart_of_the_server() {
    let mut rig = Rig::new().await;
    let id = rig.run("web", "echo $$ > pid; sleep 600; :").await;
    let pid = rig.pid(&id, "pid").await;
    let mut events = rig.client.get_container_events(cri::GetEventsRequest {}).await.unwrap().into_inner();
    rig.runtime.stop_serving().await;
    assert!(!rig.runtime.socket().exists());
    assert!(!matches!(events.message().await, Ok(Some(_))));
    version(&rig).await.unwrap_err();
    assert!(is_alive(pid));

    let warm_up = Duration::from_millis(300);
    rig.runtime.serve_again(warm_up).unwrap();
    let client = RuntimeServiceClient::new(channel(&rig.runtime).await);
    let early = client.clone().version(cri::VersionRequest::default()).await;
    assert_status(early, Code::Unknown, "server is not initialized yet");
    eventually("it is initialized", || async { version(&rig).await.ok() }).await;
    assert_eq!(rig.status(&id).await.state(), cri::ContainerState::ContainerRunning);
}

#[tokio::test]
async fn shutdown_leaves_no_process_no_folder_and_no_socket() {
    let rig = Rig::new().await;
    let id = rig.run("web", "trap '' TERM; sleep 600 & echo $! > child; while :; do sleep 60; done").await;
    let child = rig.pid(&id, "child").await;
    let command = tokio::spawn({
        let mut client = rig.client.clone();
        let cmd = ["sh", "-c", "echo $$ > command; sleep 600"].map(str::to_owned).to_vec();
        let request = cri::ExecSyncRequest { container_id: id.clone(), cmd, timeout: 0 };
        async move { client.exec_sync(request).await.map(drop) }
    });
    let command_pid = rig.pid(&id, "command").await;
    rig.runtime.shutdown().await;
    command.await.unwrap().unwrap_err();
    gone(child).await;
    gone(command_pid).await;
    assert_eq!(fs::read_dir(rig.dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn dropping_it_kills_and_tidies_too() {
    let rig = Rig::new().await;
    let id = rig.run("web", "sleep 600 & echo $! > child; wait").await;
    let child = rig.pid(&id, "child").await;
    drop(rig.runtime);
    gone(child).await;
    eventually("the folder is gone", || async {
        (fs::read_dir(rig.dir.path()).unwrap().count() == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_guard_kills_what_is_left_when_we_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("run");
    fs::create_dir_all(folder.join("inner")).unwrap();
    let guard = guard::Guard::start(&folder).unwrap();
    let start = || {
        let command = tokio::process::Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let pid = rustix::process::Pid::from_raw(command.id().unwrap().cast_signed()).unwrap();
        guard.add(pid);
        (command, pid)
    };
    let ((mut first, _), (mut spared, spared_pid), (mut last, _)) = (start(), start(), start());
    guard.remove(spared_pid);
    // The end of its input is all that it sees of our end.
    drop(guard);
    for killed in [&mut first, &mut last] {
        assert_eq!(process::ExitCode::from(killed.wait().await.unwrap()), process::ExitCode(137));
    }
    assert_eq!(spared.try_wait().unwrap(), None);
    spared.kill().await.unwrap();
    assert!(!folder.exists());
}

#[tokio::test]
async fn a_socket_is_taken_over_only_when_it_is_stale() {
    let rig = Rig::new().await;
    let socket = rig.runtime.socket();
    assert_eq!(fs::metadata(socket).unwrap().permissions().mode() & 0o777, 0o600);
    let second = |socket: &Path| EmbeddedRuntime::start(Options::new(socket, rig.dir.path().join("second")));
    assert_eq!(second(socket).err().unwrap().kind(), io::ErrorKind::AddrInUse);
    assert!(!rig.dir.path().join("second").exists());
    version(&rig).await.unwrap();

    let file = rig.dir.path().join("file");
    fs::write(&file, "precious").unwrap();
    assert_eq!(second(&file).err().unwrap().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");

    let stale = rig.dir.path().join("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    second(&stale).unwrap().shutdown().await;
    assert!(!stale.exists());
}
