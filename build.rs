//! Compiles the protocol files under `proto/` with protox, so that no protoc is needed on the user's machine.

use std::path::PathBuf;
use std::{env, error::Error, fs};

/// Messages that may hold secrets: environment values, registry credentials, stream URLs, outputs of commands.
/// They get no derived `Debug`, so that no log line can print them by accident.
const NO_DEBUG: [&str; 7] = [
    "runtime.v1.KeyValue",
    "runtime.v1.AuthConfig",
    "runtime.v1.ExecResponse",
    "runtime.v1.AttachResponse",
    "runtime.v1.PortForwardResponse",
    "runtime.v1.ExecSyncResponse",
    "runtime.v1.ContainerStatusResponse",
];

fn main() -> Result<(), Box<dyn Error>> {
    let files = [
        "proto/cri.proto",
        "proto/containerd.proto",
        "proto/containerd_content.proto",
        "proto/containerd_events.proto",
        "proto/health.proto",
    ];
    for file in files {
        println!("cargo::rerun-if-changed={file}");
    }
    let descriptors = protox::compile(files, ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::create_dir_all(&out)?;
    let mut config = prost_build::Config::new();
    config.skip_debug(NO_DEBUG);
    config.enable_type_names();
    tonic_prost_build::configure()
        .emit_rerun_if_changed(false)
        .compile_fds_with_config(descriptors, config)?;
    Ok(())
}
