//! The page in somebody's hands: filter, keys, a phone.

use anyhow::{Result, ensure};

use crate::{
    browser::{rig, visit},
    rig::{EAGER, LAZY, LIVENESS, READINESS},
};

/// Enter, Escape and the arrow down, as WebDriver encodes them.
const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";
const DOWN: &str = "\u{e015}";

const ROWS: &str = "document.querySelectorAll('.probe').length";

#[tokio::test(flavor = "multi_thread")]
async fn the_filter_wants_all_words_and_is_kept_in_the_address() -> Result<()> {
    let (mut rig, address) = rig().await?;
    rig.run("web-1", &[(LIVENESS, LAZY), (READINESS, LAZY)], &["sleep", "100000"]).await?;
    rig.run("web-2", &[(LIVENESS, LAZY)], &["sleep", "100000"]).await?;
    rig.run("database", &[(LIVENESS, LAZY)], &["sleep", "100000"]).await?;
    visit(&address, async |page| {
        page.until("all are there", &format!("{ROWS} === 4")).await?;
        page.press("/WEB liveness").await?;
        page.until("two are left", &format!("{ROWS} === 2")).await?;
        page.says("2 of 4 probes").await?;
        page.until("the counts are of these", "document.querySelector('.chip b').textContent === '2'")
            .await?;
        let hash = page.eval("return location.hash").await?;
        ensure!(hash == "#filter=WEB+liveness", "{hash}");
        page.press(" nowhere").await?;
        page.says("No probe matches the filter").await?;
        page.press(ESCAPE).await?;
        page.until("all are there again", &format!("{ROWS} === 4 && location.hash === ''")).await?;

        page.open("#filter=database").await?;
        page.until(
            "the address is a filter",
            &format!("{ROWS} === 1 && document.getElementById('filter').value === 'database'"),
        )
        .await?;
        page.open("#only=failing").await?;
        page.says("No probe matches the filter").await?;
        Ok(())
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn all_can_be_done_with_keys() -> Result<()> {
    const FOCUSED: &str = "document.activeElement?.closest('.pod')?.querySelector('.name').textContent";
    let (mut rig, address) = rig().await?;
    for pod in ["a", "b", "c"] {
        rig.run(pod, &[(LIVENESS, EAGER)], &["sleep", "100000"]).await?;
    }
    visit(&address, async |page| {
        page.until("all are there", "document.querySelectorAll('.probe[data-kind=ok]').length === 3").await?;
        page.press("jj").await?;
        page.until("the second has the focus", &format!("{FOCUSED} === 'b'")).await?;
        page.press(DOWN).await?;
        page.until("the third has it", &format!("{FOCUSED} === 'c'")).await?;
        page.press("k").await?;
        page.press(ENTER).await?;
        page.until(
            "the second is open",
            "document.querySelector('.probe.open')?.innerText.includes('default/b/app/liveness')",
        )
        .await?;
        page.until("its command", "document.querySelector('.probe.open dd code').textContent === 'true'")
            .await?;
        page.says("every 100ms, timeout 1s, no start delay").await?;
        page.says("failure after 1 failure, success after 1 success").await?;
        page.until("its attempts are listed", "document.querySelectorAll('.probe.open tbody tr').length > 0")
            .await?;
        let expanded = page.eval("return document.activeElement.getAttribute('aria-expanded')").await?;
        ensure!(expanded == "true", "{expanded}");
        page.until(
            "it keeps the focus while rows change",
            &format!("document.querySelectorAll('.probe.open tbody tr').length > 20 && {FOCUSED} === 'b'"),
        )
        .await?;
        page.press(ESCAPE).await?;
        page.until("it is closed", "!document.querySelector('.probe.open')").await?;

        page.press("?").await?;
        page.until("keys are explained", "document.getElementById('keys').open").await?;
        page.press(ESCAPE).await?;
        page.until("no more", "!document.getElementById('keys').open").await?;
        page.press("p").await?;
        page.until(
            "calls are paused",
            "document.getElementById('pause').getAttribute('aria-pressed') === 'true'",
        )
        .await?;
        page.press("t").await?;
        page.until("it is light", "document.documentElement.dataset.theme === 'light'").await?;
        page.open("").await?;
        page.until("the theme is kept", "document.documentElement.dataset.theme === 'light'").await?;
        Ok(())
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_without_scripts_says_what_to_use_instead() -> Result<()> {
    let (_rig, address) = rig().await?;
    visit(&address, async |page| {
        page.allow_scripts(false).await?;
        page.open("").await?;
        page.says("criprobe probes -w").await?;
        page.until("nothing else is there", "!document.body.innerText.includes('Waiting')").await?;
        page.allow_scripts(true).await
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_never_scrolls_sideways() -> Result<()> {
    let (mut rig, address) = rig().await?;
    let name = "checkout-with-a-name-as-long-as-kubernetes-lets-it-be-7d9f8b6c4-x2lqv";
    let fails = r#"{"exec": {"command": ["sh", "-c", "echo no; exit 1"]}, "periodSeconds": 1, "failureThreshold": 1}"#;
    rig.run(name, &[(LIVENESS, fails), (READINESS, EAGER)], &["sleep", "100000"]).await?;
    visit(&address, async |page| {
        page.size(360, 740).await?;
        page.says("1 probe fails").await?;
        page.until("it has one column", "document.documentElement.scrollWidth === 360").await?;
        page.eval("document.querySelector('.probe .line').click()").await?;
        page.until(
            "also when a row is open",
            "document.querySelector('.probe.open') && document.documentElement.scrollWidth === 360",
        )
        .await?;
        page.until(
            "fingers can hit",
            "[...document.querySelectorAll('.line')].every((one) => one.offsetHeight >= 40)",
        )
        .await?;
        Ok(())
    })
    .await?;
    Ok(())
}
