//! Reads what pods were written with, so that their observed probes can be named: annotations of `kubectl apply`, and the
//! manifests of static pods. Only reads, on threads that may block, and only if there is something to name.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use crate::{
    observed::{LONGEST_MANIFEST, Manifest, ObservedHandle, StaticPod},
    stage::Tasks,
};

/// Where a kubelet has the manifests of static pods (`staticPodPath`), as kubeadm sets it.
const FOLDER: &str = "/etc/kubernetes/manifests";

/// 100 files are read, in the order of their names; a node has a handful.
const MOST_FILES: usize = 100;

/// Starts the task that reads them.
pub(super) fn spawn(observed: ObservedHandle, tasks: &mut Tasks) {
    tasks.spawn(tasks.supervise("manifests", async move || {
        tokio::join!(read_annotations(&observed), read_files(&observed, FOLDER.into()));
    }));
}

/// Reads one annotation after the other.
async fn read_annotations(observed: &ObservedHandle) {
    loop {
        let text = observed.next_text().await;
        if let Ok(read) = tokio::task::spawn_blocking(move || text.read()).await {
            observed.learn_text(read);
        }
    }
}

/// Reads the kubelet's folder when it is asked for.
async fn read_files(observed: &ObservedHandle, folder: PathBuf) {
    loop {
        let wanted = observed.static_pods().await;
        let folder = folder.clone();
        let read = tokio::task::spawn_blocking(move || all(&folder)).await;
        let manifests = read.ok().and_then(Result::ok).unwrap_or_default();
        for pod in wanted {
            observed.learn_file(&pod.uid, manifest(&manifests, &pod).map(|found| found.written.clone()));
        }
    }
}

/// The kubelet calls a static pod by its manifest's name and the node's: of several that fit, the longest does.
fn manifest<'a>(manifests: &'a [Manifest], pod: &StaticPod) -> Option<&'a Manifest> {
    let fits = |manifest: &&Manifest| {
        let rest = pod.name.strip_prefix(&*manifest.name);
        *manifest.namespace == *pod.namespace && rest.is_some_and(|node| node.starts_with('-'))
    };
    manifests.iter().filter(fits).max_by_key(|manifest| manifest.name.len())
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
    Ok(Manifest::read(&text))
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
            manifest(&manifests, &pod).map(|manifest| manifest.name == "etcd-events")
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
