//! Whatever pods are called and whatever their probes print: it is shown as text, and the page stays as it is.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::{
    browser::{Page, rig, visit},
    rig::LIVENESS,
    support::cri,
};

/// Markup, escape sequences, marks that turn text around, and lines of 10 KiB: in octal, as `printf` writes them.
const OUTPUT: &str = r#"printf '<script>document.title="owned"</script><img src=x onerror="owned=1">'
printf '\033[31mred\033[0m\n'
printf '\342\200\256txt.exe\342\200\254 \326\251\n'
head -c 10240 /dev/zero | tr '\0' W
exit 1"#;

/// What markup would have left behind.
const IS_CLEAN: &str = "window.owned === undefined && !document.title.includes('owned') \
    && document.querySelectorAll('body script, main :is(img, iframe, a, style, [onerror])').length === 0";

async fn is_clean(page: &Page) -> Result<()> {
    ensure!(page.eval(&format!("return {IS_CLEAN}")).await? == true, "markup took effect");
    for (width, height) in [(1280, 900), (360, 780)] {
        page.size(width, height).await?;
        page.until("nothing is wider than the window", "document.documentElement.scrollWidth <= innerWidth")
            .await?;
    }
    page.size(1280, 900).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_probe_prints_is_shown_as_text() -> Result<()> {
    let (mut rig, address) = rig().await?;
    let command = ["sh", "-c", OUTPUT];
    let probe = json!({"exec": {"command": command}, "periodSeconds": 1, "failureThreshold": 1});
    rig.run("prints", &[(LIVENESS, &probe.to_string())], &["sleep", "100000"]).await?;
    visit(&address, async |page| {
        let output = page
            .until("its output", "document.querySelector('.probe[data-kind=failing] .output')?.textContent")
            .await?;
        let output = output.as_str().unwrap_or_default();
        for part in ["<script>document.title=", "onerror=", "\u{241b}[31mred", r"\u{202e}txt.exe\u{202c}"] {
            ensure!(output.contains(part), "without {part:?}: {output:?}");
        }
        ensure!(!output.contains(['\u{1b}', '\u{202e}']), "{output:?}");
        is_clean(page).await?;
        // All of it, where long lines scroll.
        page.press("j\u{e007}").await?;
        page.until("it is open", "document.querySelector('.probe.open .output')").await?;
        is_clean(page).await
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_commands_are_shown_as_text() -> Result<()> {
    let (mut rig, address) = rig().await?;
    let names =
        ["__proto__", "constructor", "<img src=x onerror='owned=1'>", "\u{202e}turned", &"long".repeat(60)];
    let mut ids = Vec::new();
    for name in names {
        ids.push(rig.run(name, &[(LIVENESS, crate::rig::LAZY)], &["sleep", "100000"]).await?.1);
    }
    visit(&address, async |page| {
        page.until("all have a row", "document.querySelectorAll('.probe').length === 5").await?;
        for text in ["__proto__", "constructor", "<img src=x onerror='owned=1'>", r"\u{202e}turned"] {
            page.says(text).await?;
        }
        let command = ["sh", "-c", "true '<b>\u{1b}[1m\u{202e}</b>'"];
        for id in &ids {
            cri::exec(&mut rig.client, id, &command).await?;
        }
        page.until(
            "calls show it",
            r#"document.getElementById('list').innerText.includes('<b>\u241b[1m\\u{202e}</b>')"#,
        )
        .await?;
        is_clean(page).await
    })
    .await?;
    Ok(())
}
