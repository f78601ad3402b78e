//! The image: nothing but a static binary, the same bytes each time, and containerd runs it.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use criprobe::proto::cri::ContainerState;
use serde_json::Value;

use crate::{
    made::{build, folder, output, project},
    support::{PATIENCE, containerd::Lab, cri, eventually, lab},
};

/// A static program that exits with 7. The binary of the tests is not static, and a build of one takes minutes.
fn program(dir: &Path) -> Result<PathBuf> {
    fs::create_dir_all(dir)?;
    let (source, program) = (dir.join("seven.c"), dir.join("seven"));
    fs::write(&source, "int main(void) { return 7; }\n")?;
    output(Command::new("cc").args(["-static", "-o"]).args([&program, &source]))?;
    Ok(program)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_image_is_the_same_each_time_and_containerd_runs_it() -> Result<()> {
    if !lab::is_available("packagers.sh")? {
        return Ok(());
    }
    let dir = folder("image");
    let program = program(&dir)?;
    let archive = build("image", "0.0.1", &program, &dir.join("one"))?;
    let again = build("image", "0.0.1", &program, &dir.join("two"))?;
    ensure!(fs::read(&archive)? == fs::read(&again)?, "two builds of the same binary differ");

    // Another implementation reads it.
    let place = format!("oci-archive:{}", archive.display());
    let shown: Value = serde_json::from_str(&output(Command::new("skopeo").args(["inspect", &place]))?)?;
    assert_eq!(shown["Layers"].as_array().map(Vec::len), Some(1));
    assert_eq!(shown["Os"], "linux");
    let config = output(Command::new("skopeo").args(["inspect", "--config", &place]))?;
    let config: Value = serde_json::from_str(&config)?;
    assert_eq!(config["config"]["Entrypoint"], serde_json::json!(["/usr/bin/criprobe"]));
    assert_eq!(config["config"]["Cmd"], serde_json::json!(["serve"]));

    let Some(lab) = Lab::shared()? else { return Ok(()) };
    let socket = lab.socket();
    let ctr = || {
        let mut ctr = Command::new("ctr");
        ctr.arg("-a").arg(&socket).args(["-n", "k8s.io"]);
        ctr
    };
    output(ctr().args(["images", "import"]).arg(&archive))?;
    let mut client = lab.client().await?;
    let pod = cri::run_pod(&mut client, "image", &[]).await?;
    let container =
        cri::Container { image: "localhost/criprobe:0.0.1", command: &[], ..cri::Container::IDLE };
    let id = eventually("the runtime knows the image", PATIENCE, async || {
        Ok(cri::run_container(&mut client, &pod, &container).await.ok())
    })
    .await?;
    let code = eventually("its program ends", PATIENCE, async || {
        let (state, code) = cri::container_state(&mut client, &id).await?;
        Ok((state == ContainerState::ContainerExited).then_some(code))
    })
    .await?;
    assert_eq!(code, 7);
    Ok(())
}

#[test]
fn a_binary_that_needs_libraries_is_no_image() -> Result<()> {
    if !lab::is_available("packagers.sh")? {
        return Ok(());
    }
    let refused = build("image", "0.0.1", Path::new(env!("CARGO_BIN_EXE_criprobe")), &folder("dynamic"));
    let refused = refused.err().context("it is packaged")?;
    ensure!(refused.to_string().contains("the binary is not static"), "{refused:#}");
    Ok(())
}

#[test]
fn a_build_that_has_become_too_large_is_not_packaged() -> Result<()> {
    let dir = folder("large");
    let (bin, target) = (dir.join("bin"), dir.join("target"));
    fs::create_dir_all(&bin)?;
    // In the place of cargo, as a build takes minutes.
    let cargo = bin.join("cargo");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH")?);
    let triple = output(Command::new("rustc").arg("-vV"))?;
    let triple = triple.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc has a host")?;
    for (bytes, refusal) in [
        ((12 << 20) - 1, "the binary is not static"),
        (12 << 20, "the binary has 12582912 bytes, and must have less than 12582912"),
    ] {
        let made = "\"$CARGO_TARGET_DIR/release/criprobe\"";
        let steps = format!(
            "mkdir -p \"${{CARGO_TARGET_DIR}}/release\"; cp /bin/sh {made}; truncate -s {bytes} {made}"
        );
        fs::write(&cargo, format!("#!/bin/sh -e\n{steps}\n"))?;
        fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755))?;
        let mut build = Command::new(project().join("packaging/build.sh"));
        build.arg("image").env("PATH", &path).env("TRIPLE", triple);
        build.env("CARGO_TARGET_DIR", &target).env("OUT", dir.join("out")).env_remove("BINARY");
        let refused = output(&mut build).err().with_context(|| format!("{bytes} bytes are packaged"))?;
        ensure!(refused.to_string().contains(refusal), "{bytes} bytes: {refused:#}");
    }
    Ok(())
}
