//! The calls that are measured: their paths, requests and answers, encoded once.

use std::{collections::HashMap, sync::LazyLock};

use criprobe::proto::cri;
use prost::Message;

/// One kind of call that the null runtime answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Version,
    ExecSync,
    ListContainers,
    /// Empty, for criprobe's own resync.
    ListPodSandbox,
    /// A message of 16 MiB, no call of the CRI.
    Huge,
}

impl Call {
    /// Those that are compared.
    pub(crate) const MEASURED: [Self; 3] = [Self::Version, Self::ExecSync, Self::ListContainers];
    const ALL: [Self; 5] =
        [Self::Version, Self::ExecSync, Self::ListContainers, Self::ListPodSandbox, Self::Huge];

    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Version => "/runtime.v1.RuntimeService/Version",
            Self::ExecSync => "/runtime.v1.RuntimeService/ExecSync",
            Self::ListContainers => "/runtime.v1.RuntimeService/ListContainers",
            Self::ListPodSandbox => "/runtime.v1.RuntimeService/ListPodSandbox",
            Self::Huge => "/criprobe.bench.RelayService/Huge",
        }
    }

    pub(crate) fn of_path(path: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|call| call.path().as_bytes() == path)
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Version => "Version",
            Self::ExecSync => "ExecSync (3 bytes of stdout)",
            Self::ListContainers => "ListContainers (200 containers, 80 KB)",
            Self::ListPodSandbox => "ListPodSandbox (none)",
            Self::Huge => "a message of 16 MiB",
        }
    }

    /// The request, with gRPC's five octets before it.
    pub(crate) fn request(self) -> Vec<u8> {
        match self {
            Self::Version => framed(&cri::VersionRequest { version: "0.1.0".into() }),
            Self::ExecSync => framed(&cri::ExecSyncRequest {
                container_id: hex_id(7),
                cmd: vec!["cat".into(), "/tmp/healthy".into()],
                timeout: 1,
            }),
            Self::ListContainers | Self::ListPodSandbox | Self::Huge => {
                framed(&cri::ListContainersRequest { filter: None })
            }
        }
    }

    /// The answer, with gRPC's five octets before it.
    pub(crate) fn answer(self) -> &'static [u8] {
        static VERSION: LazyLock<Vec<u8>> = LazyLock::new(|| {
            framed(&cri::VersionResponse {
                version: "0.1.0".into(),
                runtime_name: "null".into(),
                runtime_version: "1.0.0".into(),
                runtime_api_version: "v1".into(),
            })
        });
        static EXEC_SYNC: LazyLock<Vec<u8>> = LazyLock::new(|| {
            framed(&cri::ExecSyncResponse { stdout: b"ok\n".to_vec(), stderr: vec![], exit_code: 0 })
        });
        static LIST: LazyLock<Vec<u8>> = LazyLock::new(|| {
            framed(&cri::ListContainersResponse { containers: (0..200).map(container).collect() })
        });
        // It is never decoded.
        static HUGE: LazyLock<Vec<u8>> = LazyLock::new(|| prefixed(&vec![0x7a; HUGE_LENGTH]));
        match self {
            Self::Version => &VERSION,
            Self::ExecSync => &EXEC_SYNC,
            Self::ListContainers => &LIST,
            Self::ListPodSandbox => &[0; 5],
            Self::Huge => &HUGE,
        }
    }
}

/// 16 MiB, the most that kubelet, crictl and containerd take.
pub(crate) const HUGE_LENGTH: usize = 16 << 20;

fn framed(message: &impl Message) -> Vec<u8> {
    prefixed(&message.encode_to_vec())
}

fn prefixed(message: &[u8]) -> Vec<u8> {
    let mut framed = vec![0];
    framed.extend((message.len() as u32).to_be_bytes());
    framed.extend(message);
    framed
}

/// 64 hexadecimal digits, as containerd's ids have.
fn hex_id(seed: u64) -> String {
    (0..4).map(|part| format!("{:016x}", (seed * 4 + part + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect()
}

fn container(number: u64) -> cri::Container {
    let labels = HashMap::from([
        ("io.kubernetes.container.name".into(), "app".into()),
        ("io.kubernetes.pod.name".into(), format!("web-{number}")),
        ("io.kubernetes.pod.namespace".into(), "default".into()),
        ("io.kubernetes.pod.uid".into(), format!("5f3a1c9e-7b2d-4e86-9c41-{number:012}")),
    ]);
    cri::Container {
        id: hex_id(number),
        pod_sandbox_id: hex_id(number + 1000),
        metadata: Some(cri::ContainerMetadata { name: "app".into(), attempt: 0 }),
        image_ref: format!("sha256:{}", hex_id(1)),
        state: cri::ContainerState::ContainerRunning as i32,
        created_at: 1_700_000_000_000_000_000 + number as i64,
        labels,
        ..Default::default()
    }
}
