//! Which requests that create containers are kept as they came, so that their containers can be made again. In: the message
//! of a request; out: the same message, if it is kept. Pure.

use std::{fmt, sync::Arc};

use crate::{
    carry::{Carry, Reader, Unreadable, Writer},
    proto::trim::{Malformed, fields::Field},
};

/// 256 KiB: the longest request that is kept. A usual one has 2 KiB. The runtime is asked for the configuration of a container
/// whose request was longer.
const MAX_KEPT: usize = 256 << 10;

/// The label of the pods and containers that a kubelet manages. It makes its containers again by itself.
const KUBELETS: &[u8] = b"io.kubernetes.pod.uid";

/// The fields of a CreateContainerRequest that contain labels, and the number of the labels in each: the configurations of
/// the container and of its sandbox.
const LABELS: [(u32, u32); 2] = [(2, 9), (3, 6)];

/// A CreateContainerRequest in its encoded form. It may contain secrets, so `Debug` does not show it. Cheap to clone.
#[derive(Clone)]
pub struct CreationRequest(Arc<[u8]>);

impl CreationRequest {
    /// A request that was decoded, unless it is too long or a kubelet's.
    pub fn of(message: Arc<[u8]>) -> Option<Self> {
        let is_kept = message.len() <= MAX_KEPT && is_kubelets(&message) == Ok(false);
        is_kept.then_some(Self(message))
    }

    /// The message.
    pub fn bytes(&self) -> &Arc<[u8]> {
        &self.0
    }

    /// Its size.
    pub(super) fn weight(&self) -> usize {
        self.0.len()
    }
}

impl Carry for CreationRequest {
    const LAYOUT: u64 = Vec::LAYOUT;

    fn write(&self, into: &mut Writer) {
        self.0.write(into);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        Self::of(Arc::read(from)?).ok_or(Unreadable::Damaged)
    }
}

impl fmt::Debug for CreationRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CreationRequest({} bytes)", self.0.len())
    }
}

fn is_kubelets(mut message: &[u8]) -> Result<bool, Malformed> {
    while let Some(field) = Field::next(&mut message)? {
        for (config, labels) in LABELS {
            if field.tag == config && has_label(field.payload.ok_or(Malformed)?, labels)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn has_label(mut config: &[u8], labels: u32) -> Result<bool, Malformed> {
    while let Some(field) = Field::next(&mut config)? {
        if field.tag != labels {
            continue;
        }
        let mut entry = field.payload.ok_or(Malformed)?;
        while let Some(part) = Field::next(&mut entry)? {
            if part.tag == 1 && part.payload == Some(KUBELETS) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::proto::cri;

    /// A request with these labels of the container and of the sandbox.
    fn request(container: &[&str], sandbox: &[&str]) -> Vec<u8> {
        let labels = |keys: &[&str]| keys.iter().map(|key| ((*key).to_owned(), "x".to_owned())).collect();
        cri::CreateContainerRequest {
            pod_sandbox_id: "s1".into(),
            config: Some(cri::ContainerConfig {
                command: vec!["io.kubernetes.pod.uid".into()],
                labels: labels(container),
                annotations: labels(&["io.kubernetes.pod.uid"]),
                ..Default::default()
            }),
            sandbox_config: Some(cri::PodSandboxConfig { labels: labels(sandbox), ..Default::default() }),
        }
        .encode_to_vec()
    }

    #[test]
    fn requests_are_kept_unless_they_are_long_or_a_kubelets() {
        let long = |length: usize| {
            let mut message = request(&[], &[]);
            message.extend(b"\x7a\xff\xff\x0f");
            message.resize(length, 0);
            let missing = length - request(&[], &[]).len() - 4;
            let (at, length) = (request(&[], &[]).len() + 1, missing as u32);
            message[at..at + 3].copy_from_slice(&[
                length as u8 | 0x80,
                (length >> 7) as u8 | 0x80,
                (length >> 14) as u8,
            ]);
            message
        };
        let rows = [
            ("no label", request(&[], &[]), true),
            ("other labels", request(&["app", "io.kubernetes.pod.name"], &["io.kubernetes.pod.uid.x"]), true),
            ("a kubelet's container", request(&["app", "io.kubernetes.pod.uid"], &[]), false),
            ("a kubelet's pod", request(&[], &["io.kubernetes.pod.uid"]), false),
            ("as long as may be", long(MAX_KEPT), true),
            ("longer", long(MAX_KEPT + 1), false),
            ("malformed", b"\x12\x05".to_vec(), false),
            ("a number for the config", b"\x10\x01".to_vec(), false),
        ];
        for (rule, message, is_kept) in rows {
            let kept = CreationRequest::of(message.clone().into());
            assert_eq!(kept.map(|kept| kept.bytes().to_vec()), is_kept.then_some(message), "{rule}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(message in prop::collection::vec(prop_oneof![0u8..80, any::<u8>()], 0..60)) {
            let _ = CreationRequest::of(message.into());
        }
    }
}
