//! Reads the manifests of static pods, so that observed probes of theirs can be named: the requested pods in, the text
//! of their manifests out. Only reads, and only if there is something to name.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use crate::{
    observed::{LONGEST_MANIFEST, ObservedHandle, StaticPod, names},
    stage::Tasks,
};

/// Where a kubelet has the manifests of static pods (`staticPodPath`), as kubeadm sets it.
const FOLDER: &str = "/etc/kubernetes/manifests";

/// 100 files are read, in the order of their names; a node has a handful.
const MOST_FILES: usize = 100;

/// Starts the task that reads them from the kubelet's folder.
pub(super) fn spawn(observed: ObservedHandle, tasks: &mut Tasks) {
    tasks.spawn(tasks.supervise("manifests", async move || read(&observed, FOLDER.into()).await));
}

/// Reads what is asked for, as long as there is somebody who may ask.
async fn read(observed: &ObservedHandle, folder: PathBuf) {
    loop {
        let pods = observed.static_pods().await;
        let (folder, wanted) = (folder.clone(), pods.clone());
        let read = tokio::task::spawn_blocking(move || all(&folder)).await;
        let manifests = read.ok().and_then(Result::ok).unwrap_or_default();
        for pod in wanted {
            observed.learn(&pod.uid, manifest(&manifests, &pod));
        }
    }
}

/// A manifest and its place in the cluster.
struct Manifest {
    name: String,
    namespace: String,
    text: String,
}

/// The kubelet calls a static pod by its manifest's name and the node's: of several that fit, the longest does.
fn manifest<'a>(manifests: &'a [Manifest], pod: &StaticPod) -> Option<&'a str> {
    let fits = |manifest: &&Manifest| {
        let rest = pod.name.strip_prefix(&*manifest.name);
        *manifest.namespace == *pod.namespace && rest.is_some_and(|node| node.starts_with('-'))
    };
    manifests.iter().filter(fits).max_by_key(|manifest| manifest.name.len()).map(|manifest| &*manifest.text)
}

/// Those in the folder itself; hidden files are none, as for the kubelet.
fn all(folder: &Path) -> io::Result<Vec<Manifest>> {
    let mut paths: Vec<_> = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.file_name().is_some_and(|name| !name.as_encoded_bytes().starts_with(b".")));
    paths.sort();
    Ok(paths.iter().take(MOST_FILES).filter_map(|path| one(path).ok().flatten()).collect())
}

fn one(path: &Path) -> io::Result<Option<Manifest>> {
    // A pipe would never end.
    if !fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    let mut text = String::new();
    File::open(path)?.take(LONGEST_MANIFEST as u64 + 1).read_to_string(&mut text)?;
    Ok(names(&text).map(|(name, namespace)| Manifest { name, namespace, text }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_static_pod_is_found_by_the_longest_name_that_it_begins_with_and_nothing_else_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| fs::write(folder.path().join(file), text).unwrap();
        write("etcd.yaml", "metadata: {name: etcd, namespace: kube-system}");
        write("events.json", r#"{"metadata": {"name": "etcd-events", "namespace": "kube-system"}}"#);
        write("bare.yaml", "metadata: {name: bare}");
        write(".hidden.yaml", "metadata: {name: hidden}");
        write("broken.yaml", "metadata: {");
        write("nameless.yaml", "kind: Pod");
        write("long.yaml", &format!("metadata: {{name: long}}\n#{}", "x".repeat(LONGEST_MANIFEST)));
        fs::create_dir(folder.path().join("folder")).unwrap();
        let manifests = all(folder.path()).unwrap();
        let found = |namespace: &str, name: &str| {
            let pod = StaticPod { uid: "u".into(), namespace: namespace.into(), name: name.into() };
            manifest(&manifests, &pod).map(|text| text.contains("etcd-events"))
        };
        assert_eq!(found("kube-system", "etcd-node-1"), Some(false));
        assert_eq!(found("kube-system", "etcd-events-node-1"), Some(true));
        assert_eq!(found("default", "bare-node-1"), Some(false));
        for (namespace, name) in [
            ("default", "etcd-node-1"),
            ("kube-system", "etcd"),
            ("kube-system", "etcds-node-1"),
            ("default", "hidden-node-1"),
            ("default", "long-node-1"),
        ] {
            assert_eq!(found(namespace, name), None, "{namespace}/{name}");
        }
        assert!(all(&folder.path().join("nowhere")).is_err());
    }
}
