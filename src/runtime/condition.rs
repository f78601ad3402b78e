//! What has to be known of a container before anything is done to it: its id in; its state, its times, and the
//! annotations by which it is stopped, out. Nothing else of it is kept.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use prost::Message;
use tonic::{Code, Status, codegen::http::uri::PathAndQuery, transport::Channel};

use super::{MAX_MESSAGE, QUICK, call::ask};
use crate::proto::cri;

/// The annotations that a kubelet writes about how a container is stopped.
pub(crate) const PRE_STOP: &str = "io.kubernetes.container.preStopHandler";
pub(crate) const POD_GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
pub(crate) const DELETION_GRACE: &str = "io.kubernetes.pod.deletionGracePeriod";

/// 16 KiB and a byte of one of them: one byte more than is read, so that a longer one is reported as too long.
const MAX_ANNOTATION: usize = (16 << 10) + 1;

/// A container at the time of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerCondition {
    pub state: cri::ContainerState,
    pub attempt: u32,
    pub started_at: Option<SystemTime>,
    pub finished_at: Option<SystemTime>,
    pub exit_code: i32,
    /// Those of [`PRE_STOP`], [`POD_GRACE`] and [`DELETION_GRACE`] that it has.
    pub annotations: BTreeMap<String, String>,
}

/// A `ContainerStatusResponse` without its verbose texts.
#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(message, optional, tag = "1")]
    status: Option<Reported>,
}

/// The fields of a `ContainerStatus` that matter here.
#[derive(Clone, PartialEq, Message)]
struct Reported {
    #[prost(message, optional, tag = "2")]
    metadata: Option<cri::ContainerMetadata>,
    #[prost(enumeration = "cri::ContainerState", tag = "3")]
    state: i32,
    #[prost(int64, tag = "5")]
    started_at: i64,
    #[prost(int64, tag = "6")]
    finished_at: i64,
    #[prost(int32, tag = "7")]
    exit_code: i32,
    #[prost(message, repeated, tag = "13")]
    annotations: Vec<Annotation>,
}

/// One annotation; its value is not copied.
#[derive(Clone, PartialEq, Message)]
struct Annotation {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// The condition of one container; none if the runtime does not know it.
pub(super) async fn read(channel: Channel, id: &str) -> Result<Option<ContainerCondition>, Status> {
    let path = PathAndQuery::from_static("/runtime.v1.RuntimeService/ContainerStatus");
    let request = cri::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
    match ask::<Answer>(channel, path, request, QUICK, MAX_MESSAGE).await {
        Ok(answer) => Ok(answer.status.map(ContainerCondition::of)),
        Err(status) if status.code() == Code::NotFound => Ok(None),
        Err(status) => Err(status),
    }
}

impl ContainerCondition {
    fn of(reported: Reported) -> Self {
        let state = reported.state();
        let mut annotations = BTreeMap::new();
        for Annotation { key, value } in reported.annotations {
            let Some(known) = [PRE_STOP, POD_GRACE, DELETION_GRACE].into_iter().find(|known| **known == key)
            else {
                continue;
            };
            let value = &value[..value.len().min(MAX_ANNOTATION)];
            annotations.insert(known.to_owned(), String::from_utf8_lossy(value).into_owned());
        }
        Self {
            state,
            attempt: reported.metadata.unwrap_or_default().attempt,
            started_at: time(reported.started_at),
            finished_at: time(reported.finished_at),
            exit_code: reported.exit_code,
            annotations,
        }
    }
}

/// Nanoseconds since the epoch; 0 and below mean "not yet".
fn time(nanoseconds: i64) -> Option<SystemTime> {
    let nanoseconds = u64::try_from(nanoseconds).ok().filter(|nanoseconds| *nanoseconds > 0)?;
    UNIX_EPOCH.checked_add(Duration::from_nanos(nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_decides_how_it_is_stopped_is_kept() {
        let annotation = |key: &str, value: &[u8]| Annotation {
            key: key.to_owned(),
            value: Bytes::copy_from_slice(value),
        };
        let reported = Reported {
            metadata: Some(cri::ContainerMetadata { name: "app".to_owned(), attempt: 3 }),
            state: cri::ContainerState::ContainerExited as i32,
            started_at: 1_000_000_000,
            finished_at: 0,
            exit_code: 137,
            annotations: vec![
                annotation(PRE_STOP, &[b'x'; 40_000]),
                annotation(POD_GRACE, b"30"),
                annotation("secret", b"s"),
            ],
        };
        let answer = Answer { status: Some(reported) }.encode_to_vec();
        let condition = ContainerCondition::of(Answer::decode(answer.as_slice()).unwrap().status.unwrap());
        assert_eq!(condition.annotations.keys().collect::<Vec<_>>(), [PRE_STOP, POD_GRACE]);
        assert_eq!(condition.annotations[PRE_STOP].len(), MAX_ANNOTATION);
        assert_eq!((condition.attempt, condition.exit_code), (3, 137));
        assert_eq!(condition.started_at, Some(UNIX_EPOCH + Duration::from_secs(1)));
        assert_eq!((condition.finished_at, condition.state), (None, cri::ContainerState::ContainerExited));
    }
}
