//! Probes that end although their containers run.

use super::*;

/// The numbers of those that fell silent.
fn silent(watch: &mut Watch, now: Instant) -> Vec<String> {
    let containers = watch.observed();
    let silent = containers.iter().flat_map(|container| watch.silent(&container.id, now));
    let mut silent: Vec<_> = silent.map(|probe| format!("{} of {}", probe.kind, probe.comm)).collect();
    silent.sort_unstable();
    silent
}

/// A watched container with a probe whose last attempt began after 50 s.
fn probed(start: Start) -> (Watch, ExecCommand) {
    let (mut watch, cat) = (watch("c1"), command("c1", &["cat"], 1));
    feed(&mut watch, start, &cat, &steady(0.0, 6));
    (watch, cat)
}

#[test]
fn a_probe_that_ends_while_its_container_runs_is_silent_until_it_returns() {
    let start = Start::now();
    let (mut watch, cat) = probed(start);
    assert!(silent(&mut watch, start.after(90.0)).is_empty());
    assert_eq!(silent(&mut watch, start.after(105.0)), ["observed-1 of kubelet"]);
    // Longer than commands without a rhythm are remembered.
    let other = command("c1", &["other"], 1);
    feed(&mut watch, start, &other, &[(3_000.0, 0.05, "exit 0")]);
    assert_eq!(silent(&mut watch, start.after(3_001.0)), ["observed-1 of kubelet"]);
    feed(&mut watch, start, &cat, &steady(3_010.0, 4));
    assert!(silent(&mut watch, start.after(3_041.0)).is_empty(), "it is back");
    assert_eq!(silent(&mut watch, start.after(3_100.0)), ["observed-1 of kubelet"], "and silent again");
}

#[test]
fn a_container_that_is_stopped_is_expected_to_be_silent_and_one_that_stays_is_not() {
    let start = Start::now();
    let (id, sandbox) = (container("c1", &[]).id, container("c1", &[]).pod.sandbox_id.clone());
    for (stopping, failed) in [
        (Change::ContainerStopping(id.clone()), Change::ContainerStopFailed(id.clone())),
        (Change::PodStopping(sandbox.clone()), Change::PodStopFailed(sandbox.clone())),
    ] {
        let (mut watch, _) = probed(start);
        watch.changed(&stopping);
        assert!(silent(&mut watch, start.after(105.0)).is_empty(), "{stopping:?}");
        watch.changed(&failed);
        assert_eq!(silent(&mut watch, start.after(105.0)).len(), 1, "{failed:?}");
        watch.changed(&Change::ContainerGone(id.clone()));
        assert!(silent(&mut watch, start.after(105.0)).is_empty());
    }
}

#[test]
fn a_startup_probe_ends_with_its_first_success_and_is_not_silent() {
    let (start, mut watch, cat) = (Start::now(), watch("c1"), command("c1", &["cat"], 1));
    let rows: Vec<Row> = steady(0.0, 6).into_iter().map(|(began, took, _)| (began, took, "exit 1")).collect();
    feed(&mut watch, start, &cat, &rows);
    feed(&mut watch, start, &cat, &[(60.0, 0.05, "exit 0")]);
    assert!(silent(&mut watch, start.after(200.0)).is_empty());
    let dog = command("c1", &["dog"], 1);
    let failing: Vec<Row> = rows.iter().map(|(began, took, end)| (began + 300.0, *took, *end)).collect();
    feed(&mut watch, start, &dog, &failing);
    assert_eq!(silent(&mut watch, start.after(500.0)), ["observed-1 of kubelet"], "it never succeeded");
}
