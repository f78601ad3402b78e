//! Rows appear and change while one looks at them, without a reload, also across an outage of the daemon.

use anyhow::{Result, ensure};
use rustix::process::Signal;

use crate::{
    browser::{rig, visit},
    rig::{EAGER, LAZY, LIVENESS, READINESS},
    support::{PATIENCE, cri, eventually},
};

/// Fails as soon as the file is gone, and says which.
const HEALTHY: &str =
    r#"{"exec": {"command": ["cat", "healthy"]}, "period": "200ms", "failureThreshold": 1}"#;
const MAKES_HEALTHY: [&str; 3] = ["sh", "-c", "echo fine > healthy; sleep 100000"];

#[tokio::test(flavor = "multi_thread")]
async fn rows_appear_and_a_verdict_flips_without_a_reload() -> Result<()> {
    let (mut rig, address) = rig().await?;
    visit(&address, async |page| {
        page.says("No probes on this node").await?;
        page.eval("window.isFirst = true").await?;
        let (pod, id) = rig.run("web", &[(LIVENESS, HEALTHY)], &MAKES_HEALTHY).await?;
        rig.run("calm", &[(READINESS, EAGER.replace("100ms", "1s").as_str())], &["sleep", "100000"]).await?;
        page.until("both are ok", "document.querySelectorAll('.probe[data-kind=ok]').length === 2").await?;
        page.says("All probes are fine").await?;

        cri::exec(&mut rig.client, &id, &["rm", "healthy"]).await?;
        page.says("1 probe fails").await?;
        let first = "document.querySelector('.pod').innerText";
        page.until("it is first", &format!("{first}.includes('web') && {first}.includes('failing')")).await?;
        page.until("it says why", &format!("{first}.includes('healthy: No such file')")).await?;
        let failures = "document.querySelector('.probe .strip .f').getAttribute('d').length > 0";
        page.until("its attempts are a strip with failures", failures).await?;
        page.until("the call is listed", "document.getElementById('list').innerText.includes('rm healthy')")
            .await?;
        page.until("the title says so", "document.title.includes('1 failing')").await?;

        cri::exec(&mut rig.client, &id, &["sh", "-c", "echo fine > healthy"]).await?;
        page.says("All probes are fine").await?;
        let request = criprobe::proto::cri::RemovePodSandboxRequest { pod_sandbox_id: pod.id.to_string() };
        rig.client.remove_pod_sandbox(request).await?;
        page.until("its row is gone", "document.querySelectorAll('.probe').length === 1").await?;
        ensure!(page.eval("return window.isFirst").await? == true, "the page was loaded again");
        Ok(())
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_without_probes_are_one_line() -> Result<()> {
    let (mut rig, address) = rig().await?;
    rig.run("bare", &[], &["sleep", "100000"]).await?;
    rig.run("probed", &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
    visit(&address, async |page| {
        page.says("1 pod without probes").await?;
        page.eval("document.querySelector('#bare summary').click()").await?;
        page.says("default/bare").await
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_cost_tells_people_from_probes_and_calls_in_flight_grow_older() -> Result<()> {
    let (mut rig, address) = rig().await?;
    let (_, id) = rig.run("web", &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
    visit(&address, async |page| {
        for _ in 0..3 {
            cri::exec(&mut rig.client, &id, &["sh", "-c", "sleep 0.1"]).await?;
        }
        let bars = "['.people', '.probes'].every((one) => document.querySelector(`#costs ${one}`))";
        page.until("people and probes are told apart", bars).await?;
        let mut client = rig.client.clone();
        let call = tokio::spawn(async move { cri::exec(&mut client, &id, &["sleep", "60"]).await });
        let age = "parseInt(document.querySelector('#flights .age')?.textContent)";
        let is_listed = "document.getElementById('flights').innerText.includes('sleep 60')";
        page.until("a call in flight is shown", &format!("{age} >= 0 && {is_listed}")).await?;
        let young = page.eval(&format!("return {age}")).await?;
        page.until("it grows older", &format!("{age} > {young}")).await?;
        call.abort();
        Ok(())
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn it_says_that_it_is_stale_and_goes_on_by_itself() -> Result<()> {
    let (mut rig, address) = rig().await?;
    rig.run("web", &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
    visit(&address, async |page| {
        const LINK: &str = "document.getElementById('link').innerText";
        page.until(
            "it is live",
            &format!("{LINK} === 'live' && document.querySelectorAll('.probe').length === 1"),
        )
        .await?;
        page.eval("window.isFirst = true").await?;
        rig.daemon.signal(Signal::STOP);
        let stale = page.until("it is stale", &format!("{LINK}.startsWith('stale for') && {LINK}")).await;
        rig.daemon.signal(Signal::CONT);
        stale?;
        page.until("it is live again", &format!("{LINK} === 'live'")).await?;

        rig.daemon.terminate();
        page.until("it is stale", &format!("{LINK}.startsWith('stale for')")).await?;
        ensure!(
            page.eval("return document.querySelectorAll('.probe').length").await? == 1,
            "what was known is gone"
        );
        rig.daemon.start_again(rig.runtime.socket(), &[("CRIPROBE_API_HTTP", &address)]).await?;
        page.until("it is live again", &format!("{LINK} === 'live'")).await?;
        page.until("its row is there", "document.querySelectorAll('.probe[data-kind=ok]').length === 1")
            .await?;
        ensure!(page.eval("return window.isFirst").await? == true, "the page was loaded again");
        Ok(())
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_runtime_is_on_top() -> Result<()> {
    let (mut rig, address) = rig().await?;
    rig.run("web", &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
    visit(&address, async |page| {
        page.says("All probes are fine").await?;
        rig.runtime.stop_serving().await;
        let trouble = "document.getElementById('trouble')";
        page.until("it says so", &format!("!{trouble}.hidden && {trouble}.innerText.includes('away')"))
            .await?;
        page.says("cannot be tried").await?;
        rig.runtime.serve_again(std::time::Duration::ZERO)?;
        page.until("it is over", "document.getElementById('trouble').hidden").await?;
        page.says("All probes are fine").await?;
        Ok(())
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_fetched_from_elsewhere() -> Result<()> {
    let (_rig, address) = rig().await?;
    visit(&address, async |page| {
        page.says("No probes on this node").await?;
        let fetched =
            page.eval("return performance.getEntriesByType('resource').map((one) => one.name)").await?;
        let fetched: Vec<_> =
            fetched.as_array().into_iter().flatten().filter_map(|name| name.as_str()).collect();
        ensure!(fetched.iter().any(|name| name.ends_with("/page.js")), "{fetched:?}");
        let own = |name: &&str| name.starts_with(&page.url) || name.starts_with("data:");
        ensure!(fetched.iter().all(own), "{fetched:?}");
        Ok(())
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn before_the_first_list_it_waits_and_nothing_is_green() -> Result<()> {
    let (mut rig, address) = rig().await?;
    rig.daemon.terminate();
    rig.runtime.stop_serving().await;
    rig.daemon.spawn_again(rig.runtime.socket(), &[("CRIPROBE_API_HTTP", &address)]).await?;
    eventually("it runs", PATIENCE, async || Ok(rig.daemon.get("/livez").await.ok())).await?;
    visit(&address, async |page| {
        page.says("Waiting for the list").await?;
        page.until("it says why", "document.getElementById('trouble').innerText.includes('away')").await?;
        page.says("Waiting for the list").await?;
        let is_green =
            "document.title.includes('✓') || document.getElementById('headline').dataset.kind === 'ok'";
        ensure!(page.eval(&format!("return {is_green}")).await? == false, "it is green");
        let text = page.eval("return document.body.innerText").await?.to_string();
        ensure!(!text.contains("No probe") && !text.contains("0 probes"), "{text}");
        rig.runtime.serve_again(std::time::Duration::ZERO)?;
        page.says("No probes on this node").await?;
        page.until("now it is green", is_green).await?;
        Ok(())
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_from_before_the_page_was_opened_are_listed_and_no_call_is_listed_twice() -> Result<()> {
    let (mut rig, address) = rig().await?;
    let (_, id) = rig.run("web", &[], &["sleep", "100000"]).await?;
    for number in 0..60 {
        cri::exec(&mut rig.client, &id, &["echo", &format!("before-{number}-")]).await?;
    }
    visit(&address, async |page| {
        const LISTED: &str = "[...document.querySelectorAll('#list code')].map((one) => one.textContent)";
        let listed = async |turn: &str| {
            let last = format!("{LISTED}.includes('echo {turn}')");
            page.until("the last is listed", &last).await?;
            let listed = page.eval(&format!("return {LISTED}")).await?;
            let listed: Vec<_> = listed.as_array().into_iter().flatten().map(ToString::to_string).collect();
            let distinct: std::collections::BTreeSet<_> = listed.iter().collect();
            ensure!(distinct.len() == listed.len(), "some are listed twice: {listed:?}");
            Ok(listed.len())
        };
        assert_eq!(listed("before-59-").await?, 50);
        cri::exec(&mut rig.client, &id, &["echo", "open"]).await?;
        assert_eq!(listed("open").await?, 51);
        // The calls of the time without a connection come with those from before.
        page.eval("source.close()").await?;
        cri::exec(&mut rig.client, &id, &["echo", "between"]).await?;
        page.eval("connect()").await?;
        assert_eq!(listed("between").await?, 52);
        let text = page.eval("return document.getElementById('list').innerText").await?.to_string();
        ensure!(!text.contains("reconnected"), "none is missing: {text}");
        Ok(())
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_as_it_is_once_is_whole_when_it_is_loaded() -> Result<()> {
    const PODS: usize = 40;
    let (mut rig, address) = rig().await?;
    for number in 0..PODS {
        rig.run(&format!("web-{number}"), &[(LIVENESS, LAZY)], &["sleep", "100000"]).await?;
    }
    visit(&address, async |page| {
        for _ in 0..3 {
            page.open("?once").await?;
            let seen = page
                .eval(
                    "return [document.querySelectorAll('.probe').length, document.getElementById('sum').innerText, \
                     document.getElementById('link').innerText.slice(0, 6), document.querySelectorAll('#list li').length > 9, \
                     document.getElementById('cost').hidden]",
                )
                .await?;
            let expected = serde_json::json!([PODS, format!("{PODS} probes in {PODS} pods · "), "as of ", true, false]);
            assert_eq!(seen, expected);
        }
        Ok(())
    })
    .await?;
    Ok(())
}
