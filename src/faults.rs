//! Points at which a test may have the daemon stop, or killed.

/// Does nothing.
#[cfg(not(feature = "faults"))]
pub(crate) async fn point(_name: &str) {}

/// Kills this process, as `kill -9` does, once a file of this name is in the folder that CRIPROBE_FAULTS names, and removes
/// the file. With a file `NAME.wait` it stays here until that file is gone.
#[cfg(feature = "faults")]
pub(crate) async fn point(name: &str) {
    let Some(folder) = std::env::var_os("CRIPROBE_FAULTS") else { return };
    let file = std::path::Path::new(&folder).join(name);
    while file.with_extension("wait").exists() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    if std::fs::remove_file(&file).is_ok() {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        std::future::pending::<()>().await;
    }
}
