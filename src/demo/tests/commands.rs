//! What ExecSync answers, and what it leaves behind: nothing.

use super::*;

#[tokio::test]
async fn exit_codes_and_outputs_are_the_commands() {
    let rig = Rig::new().await;
    let id = rig.run("web", "echo here > mark; sleep 600").await;
    rig.file(&id, "mark").await;
    let cases: [(&str, &[&str], i32, &str, &str); 7] = [
        ("success", &["true"], 0, "", ""),
        ("failure", &["false"], 1, "", ""),
        ("the container's own files", &["cat", "mark"], 0, "here\n", ""),
        ("outputs apart", &["sh", "-c", "echo out; echo err >&2; exit 3"], 3, "out\n", "err\n"),
        ("a shell that finds nothing", &["sh", "-c", "no-such-program 2>/dev/null"], 127, "", ""),
        ("killed by a signal", &["sh", "-c", "kill -s KILL $$"], 137, "", ""),
        ("no input", &["cat"], 0, "", ""),
    ];
    for (name, cmd, exit_code, stdout, stderr) in cases {
        let answer = rig.exec(&id, cmd, 10).await.unwrap();
        assert_eq!(answer.exit_code, exit_code, "{name}");
        assert_eq!(String::from_utf8(answer.stdout).unwrap(), stdout, "{name}");
        assert_eq!(String::from_utf8(answer.stderr).unwrap(), stderr, "{name}");
    }
}

#[tokio::test]
async fn what_cannot_run_is_an_error_and_no_exit_code() {
    let rig = Rig::new().await;
    let id = rig.run("web", "sleep 600").await;
    let missing = rig.exec(&id, &["no-such-program"], 1).await;
    assert_status(missing, Code::Unknown, "exec: \"no-such-program\": executable file not found in $PATH");
    assert_status(rig.exec(&id, &[], 1).await, Code::InvalidArgument, "no command");
    assert_status(
        rig.exec("nobody", &["true"], 1).await,
        Code::NotFound,
        "failed to find container \"nobody\"",
    );
    let done = rig.run("done", "exit 0").await;
    rig.exited(&done).await;
    let expected = "failed to exec in container: container is in CONTAINER_EXITED state";
    assert_status(rig.exec(&done, &["true"], 1).await, Code::Unknown, expected);
}

#[tokio::test]
async fn a_timeout_kills_the_whole_group_and_is_deadline_exceeded() {
    let rig = Rig::new().await;
    let id = rig.run("web", "sleep 600").await;
    let script = "echo $$ > parent; (sleep 600 & echo $! > grandchild; wait $!) & wait $!";
    let answer = rig.exec(&id, &["sh", "-c", script], 1).await;
    let expected = "failed to exec in container: timeout 1s exceeded: context deadline exceeded";
    assert_status(answer, Code::DeadlineExceeded, expected);
    gone(rig.pid(&id, "parent").await).await;
    gone(rig.pid(&id, "grandchild").await).await;
    assert_eq!(rig.exec(&id, &["true"], 1).await.unwrap().exit_code, 0);
}

#[tokio::test]
async fn a_cancelled_call_kills_the_whole_group() {
    let rig = Rig::new().await;
    let id = rig.run("web", "sleep 600").await;
    let script = "echo $$ > parent; (sleep 600 & echo $! > grandchild; wait $!) & wait $!";
    let cmd = ["sh", "-c", script];
    let (parent, grandchild) = tokio::select! {
        answer = rig.exec(&id, &cmd, 0) => panic!("it ended: {answer:?}"),
        pids = async { (rig.pid(&id, "parent").await, rig.pid(&id, "grandchild").await) } => pids,
    };
    gone(parent).await;
    gone(grandchild).await;
}

#[tokio::test]
async fn a_child_left_with_the_output_holds_up_nothing() {
    let rig = Rig::new().await;
    let id = rig.run("web", "sleep 600").await;
    let answer = rig.exec(&id, &["sh", "-c", "sleep 600 & echo $! > child; echo done"], 10).await.unwrap();
    assert_eq!((answer.exit_code, answer.stdout.as_slice()), (0, b"done\n".as_slice()));
    gone(rig.pid(&id, "child").await).await;
}

#[tokio::test]
async fn a_container_takes_its_commands_with_it() {
    let rig = Rig::new().await;
    let id = rig.run("web", "until test -e stop; do sleep 0.01; done").await;
    let command = rig.exec(&id, &["sh", "-c", "echo up > stop; sleep 600"], 0);
    assert_eq!(command.await.unwrap().exit_code, 137);
    rig.exited(&id).await;
}

#[tokio::test]
async fn output_is_kept_up_to_16_mib() {
    let rig = Rig::new().await;
    let id = rig.run("web", "sleep 600").await;
    let answer = rig.exec(&id, &["head", "-c", "20000000", "/dev/zero"], 0).await.unwrap();
    assert_eq!((answer.exit_code, answer.stdout.len()), (0, 16 << 20));
}

#[tokio::test]
async fn many_commands_run_side_by_side() {
    let rig = Rig::new().await;
    let id = rig.run("web", "sleep 600").await;
    let calls: Vec<_> = (0..20).map(|code| (code, format!("sleep 0.1; exit {code}"))).collect();
    let calls = calls.iter().map(|(code, script)| async {
        assert_eq!(rig.exec(&id, &["sh", "-c", script], 20).await.unwrap().exit_code, *code);
    });
    futures_util::future::join_all(calls).await;
}
