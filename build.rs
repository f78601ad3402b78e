//! Generates the messages and services of `proto/` from the descriptors beside them, so that a build needs neither protoc
//! nor any other compiler of .proto files. `make proto` writes the descriptors.

use std::{error::Error, fs};

/// Seen from `wire/`, the package that this is the build script of.
const DESCRIPTORS: &str = "../proto/descriptors.bin";

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
    println!("cargo::rerun-if-changed={DESCRIPTORS}");
    if let Err(error) = fs::metadata(DESCRIPTORS) {
        println!(
            "cargo::error=read proto/descriptors.bin: {error}; `make proto` writes it from proto/*.proto"
        );
        return Ok(());
    }
    let mut config = prost_build::Config::new();
    config.skip_debug(NO_DEBUG).file_descriptor_set_path(DESCRIPTORS).skip_protoc_run();
    let no_sources: [&str; 0] = [];
    tonic_prost_build::configure().emit_rerun_if_changed(false).compile_with_config(
        config,
        &no_sources,
        &no_sources,
    )?;
    Ok(())
}
