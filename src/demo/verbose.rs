//! Writes the `info` of verbose statuses as containerd does: one key, `info`, whose value is JSON. State in, text out.
//! The JSON contains the values of environment variables, as containerd's does: it is only for the caller, and never
//! logged.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value, json};

use super::state::{Container, Sandbox};
use crate::proto::cri;

/// How values of environment variables appear in the JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EnvValues {
    /// As text: containerd up to 2.2.
    #[default]
    Plain,
    /// In base64: runtimes that were built with cri-api 0.36, which made the values bytes.
    Base64,
}

/// What ContainerStatus(verbose) reports besides.
pub(super) fn container(container: &Container, values: EnvValues) -> HashMap<String, String> {
    info(&json!({
        "sandboxID": container.sandbox.as_str(),
        "pid": container.run().map_or(0, |run| run.group.pid()),
        "removing": false,
        "config": container_config(&container.config, values),
        "runtimeSpec": { "process": { "env": process_env(&container.config) } },
    }))
}

/// What PodSandboxStatus(verbose) reports besides.
pub(super) fn sandbox(sandbox: &Sandbox) -> HashMap<String, String> {
    let config = &sandbox.config;
    let mut shown = Map::new();
    if let Some(cri::PodSandboxMetadata { name, uid, namespace, attempt }) = &config.metadata {
        let metadata = json!({ "name": name, "uid": uid, "namespace": namespace, "attempt": attempt });
        shown.insert("metadata".to_owned(), metadata);
    }
    insert(&mut shown, "hostname", &config.hostname);
    insert(&mut shown, "log_directory", &config.log_directory);
    shown.insert("labels".to_owned(), json!(config.labels));
    shown.insert("annotations".to_owned(), json!(config.annotations));
    let linux = config.linux.as_ref();
    let context = linux.and_then(|linux| linux.security_context.as_ref());
    if let Some(options) = context.and_then(|context| context.namespace_options.as_ref()) {
        let options = json!({ "network": options.network, "pid": options.pid, "ipc": options.ipc });
        shown.insert("linux".to_owned(), json!({ "security_context": { "namespace_options": options } }));
    }
    info(&json!({ "pid": 0, "runtimeHandler": sandbox.runtime_handler, "config": shown }))
}

fn info(value: &Value) -> HashMap<String, String> {
    HashMap::from([("info".to_owned(), value.to_string())])
}

fn container_config(config: &cri::ContainerConfig, values: EnvValues) -> Value {
    let mut shown = Map::new();
    if let Some(cri::ContainerMetadata { name, attempt }) = &config.metadata {
        shown.insert("metadata".to_owned(), json!({ "name": name, "attempt": attempt }));
    }
    if let Some(image) = &config.image {
        shown.insert("image".to_owned(), json!({ "image": image.image }));
    }
    let envs =
        config.envs.iter().map(|env| json!({ "key": env.key, "value": env_value(&env.value, values) }));
    shown.insert("command".to_owned(), json!(config.command));
    shown.insert("args".to_owned(), json!(config.args));
    shown.insert("envs".to_owned(), envs.collect());
    shown.insert("labels".to_owned(), json!(config.labels));
    shown.insert("annotations".to_owned(), json!(config.annotations));
    insert(&mut shown, "working_dir", &config.working_dir);
    insert(&mut shown, "log_path", &config.log_path);
    shown.into()
}

/// What the client set of the process's environment, always as text: the last of each name.
fn process_env(config: &cri::ContainerConfig) -> Vec<String> {
    let last: BTreeMap<_, _> = config.envs.iter().map(|env| (&env.key, &env.value)).collect();
    last.into_iter().map(|(key, value)| format!("{key}={}", String::from_utf8_lossy(value))).collect()
}

fn insert(shown: &mut Map<String, Value>, key: &str, value: &str) {
    if !value.is_empty() {
        shown.insert(key.to_owned(), value.into());
    }
}

fn env_value(value: &[u8], values: EnvValues) -> String {
    match values {
        EnvValues::Plain => String::from_utf8_lossy(value).into_owned(),
        EnvValues::Base64 => base64(value),
    }
}

/// Standard base64 with padding (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= chunk.len() { digit.into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        let cases = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, encoded) in cases {
            assert_eq!(base64(plain.as_bytes()), encoded, "{plain}");
        }
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }
}
