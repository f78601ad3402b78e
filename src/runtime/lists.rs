//! The complete lists, decoded only as far as needed: for each item, the fields that change during its life, and the
//! rest as raw bytes. Most items of a list are known already, so the rest is rarely decoded.

use std::marker::PhantomData;

use bytes::Bytes;
use prost::{DecodeError, Message};
use tonic::{Status, codegen::http::uri::PathAndQuery, transport::Channel};

use super::{LONG, MAX_MESSAGE, call::ask};
use crate::proto::{
    cri,
    trim::{self, Malformed, Trim, Trimmed},
};

/// An answer of ListContainers or ListPodSandbox: the items are field 1 of both.
#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    items: Vec<Bytes>,
}

/// The fields of a `PodSandbox` that can change.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SandboxBrief {
    #[prost(string, tag = "1")]
    pub id: String,
    /// A `PodSandboxState`.
    #[prost(int32, tag = "3")]
    pub state: i32,
    /// Nanoseconds since the epoch.
    #[prost(int64, tag = "4")]
    pub created_at: i64,
}

/// The fields of a `Container` that can change, and its sandbox.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ContainerBrief {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(string, tag = "2")]
    pub pod_sandbox_id: String,
    /// A `ContainerState`.
    #[prost(int32, tag = "6")]
    pub state: i32,
}

/// One item of a list: `B` is the decoded part, `W` the whole message.
#[derive(Clone, Debug)]
pub(crate) struct Item<B, W> {
    /// The decoded part.
    pub brief: B,
    bytes: Bytes,
    whole: PhantomData<fn() -> W>,
}

/// A sandbox of a list.
pub(crate) type SandboxItem = Item<SandboxBrief, cri::PodSandbox>;

/// A container of a list.
pub(crate) type ContainerItem = Item<ContainerBrief, cri::Container>;

impl<B: Message + Default, W: Trim> Item<B, W> {
    /// Decodes the brief part of a received item.
    fn read(bytes: Bytes) -> Result<Self, DecodeError> {
        Ok(Self { brief: B::decode(bytes.clone())?, bytes, whole: PhantomData })
    }

    /// Decodes the whole item.
    ///
    /// # Errors
    /// A field outside the brief part is malformed.
    pub(crate) fn whole(&self) -> Result<Trimmed<W>, Malformed> {
        trim::decode(&self.bytes)
    }
}

/// An item as it would be in a list.
impl<B: Message + Default, W: Trim> From<W> for Item<B, W> {
    fn from(whole: W) -> Self {
        Self::read(whole.encode_to_vec().into()).expect("the brief is a part of the whole")
    }
}

/// All sandboxes.
///
/// # Errors
/// The error of the runtime or of the connection to it.
pub(super) async fn sandboxes(channel: Channel) -> Result<Vec<SandboxItem>, Status> {
    let path = PathAndQuery::from_static("/runtime.v1.RuntimeService/ListPodSandbox");
    list(channel, path, cri::ListPodSandboxRequest::default()).await
}

/// All containers.
///
/// # Errors
/// The error of the runtime or of the connection to it.
pub(super) async fn containers(channel: Channel) -> Result<Vec<ContainerItem>, Status> {
    let path = PathAndQuery::from_static("/runtime.v1.RuntimeService/ListContainers");
    list(channel, path, cri::ListContainersRequest::default()).await
}

async fn list<B, W>(
    channel: Channel,
    path: PathAndQuery,
    request: impl Message,
) -> Result<Vec<Item<B, W>>, Status>
where
    B: Message + Default,
    W: Trim,
{
    let answer: Answer = ask(channel, path, request, LONG, MAX_MESSAGE).await?;
    let items = answer.items;
    let read = items.into_iter().map(Item::read).collect::<Result<Vec<_>, _>>();
    read.map_err(|error| Status::internal(format!("an item of the list cannot be read: {error}")))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn the_brief_is_what_the_whole_says() {
        let whole = cri::Container {
            id: "c".into(),
            pod_sandbox_id: "s".into(),
            metadata: Some(cri::ContainerMetadata { name: "app".into(), attempt: 3 }),
            state: cri::ContainerState::ContainerExited as i32,
            created_at: 7,
            labels: [("tier".to_owned(), "front".to_owned())].into(),
            ..Default::default()
        };
        let item = ContainerItem::from(whole.clone());
        let brief = ContainerBrief { id: "c".into(), pod_sandbox_id: "s".into(), state: 2 };
        let whole = cri::Container { labels: HashMap::new(), ..whole };
        assert_eq!((item.brief.clone(), item.whole().unwrap().into_inner()), (brief, whole));
        let whole = cri::PodSandbox { id: "s".into(), state: 1, created_at: 7, ..Default::default() };
        let item = SandboxItem::from(whole.clone());
        assert_eq!(
            (item.brief.clone(), item.whole().unwrap().into_inner()),
            (SandboxBrief { id: "s".into(), state: 1, created_at: 7 }, whole)
        );
    }

    #[test]
    fn both_answers_have_their_items_where_we_look() {
        let container = cri::Container { id: "c".into(), ..Default::default() };
        let containers = cri::ListContainersResponse { containers: vec![container] }.encode_to_vec();
        let sandbox = cri::PodSandbox { id: "s".into(), ..Default::default() };
        let sandboxes = cri::ListPodSandboxResponse { items: vec![sandbox] }.encode_to_vec();
        for (answer, id) in [(containers, "c"), (sandboxes, "s")] {
            let items = Answer::decode(answer.as_slice()).unwrap().items;
            assert_eq!(SandboxItem::read(items[0].clone()).unwrap().brief.id, id);
        }
    }

    #[test]
    fn what_is_no_item_is_an_error() {
        assert!(SandboxItem::read(Bytes::from_static(b"\x0a\x05ab")).is_err());
        // The brief part does not decode the metadata, which is field 2.
        let item = SandboxItem::read(Bytes::from_static(b"\x0a\x01s\x12\x02\x0a\x05")).unwrap();
        assert!(item.whole().is_err());
    }
}
