//! What puts criprobe on many nodes: the manifests decode into Kubernetes' own types without a field that these do not know,
//! and the script installs, upgrades, undoes and uninstalls on a scratch node.
#![allow(clippy::unwrap_used)]

mod manifests;
mod script;
