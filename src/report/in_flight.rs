//! The calls of clients that have begun and not ended: begins and ends in, all that are left out. Never does IO.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use super::{convert::shown, costs::beginning};
use crate::{
    ids::{ConnId, ContainerId, SandboxId},
    peer::Peer,
    tap::{
        Call,
        cri::{CriRequest, ExecCommand, Method},
    },
};

/// 4,096 calls are known. Of those that begin while there are as many, nothing is shown; clients have a few at a time.
pub(crate) const MOST: usize = 4_096;

/// 4 KiB: a longer command is kept as it will be shown.
const LONGEST_COMMAND: usize = 4_096;

/// A call that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct BegunCall {
    pub began: Instant,
    pub method: Arc<Method>,
    /// Who called.
    pub peer: Arc<Peer>,
    pub about: About,
    pub command: Option<Words>,
}

/// What a call is about.
#[derive(Clone, Debug)]
pub(crate) enum About {
    Node,
    Container(ContainerId),
    Sandbox(SandboxId),
    /// A pod or a container that is being made: namespace, pod, container.
    New([Arc<str>; 3]),
}

/// A command that runs.
#[derive(Clone, Debug)]
pub(crate) enum Words {
    Whole(ExecCommand),
    Beginning(Arc<[String]>),
}

impl Words {
    /// As much of it as tells commands apart.
    pub(crate) fn beginning(&self) -> Box<[Box<str>]> {
        match self {
            Self::Whole(command) => beginning(command.arguments()),
            Self::Beginning(words) => beginning(words.iter().map(String::as_str)),
        }
    }

    pub(crate) fn shown(&self) -> Vec<String> {
        match self {
            Self::Whole(command) => shown(command.arguments()),
            Self::Beginning(words) => words.to_vec(),
        }
    }
}

/// A handle on the calls in flight; clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallsInFlight(Arc<Mutex<Calls>>);

#[derive(Debug, Default)]
struct Calls {
    by_connection: HashMap<ConnId, HashMap<u32, BegunCall>>,
    count: usize,
}

impl CallsInFlight {
    /// A call began.
    pub(crate) fn begun(&self, call: &Call) {
        let mut calls = self.calls();
        if calls.count >= MOST {
            return;
        }
        let of_connection = calls.by_connection.entry(call.origin.conn).or_default();
        if of_connection.insert(call.stream, BegunCall::of(call)).is_none() {
            calls.count += 1;
        }
    }

    /// A call ended.
    pub(crate) fn ended(&self, call: &Call) {
        let mut calls = self.calls();
        let Some(of_connection) = calls.by_connection.get_mut(&call.origin.conn) else { return };
        let was_known = of_connection.remove(&call.stream).is_some();
        if of_connection.is_empty() {
            calls.by_connection.remove(&call.origin.conn);
        }
        calls.count -= usize::from(was_known);
    }

    /// The ends of some calls are not known: those of one connection, or any. They are forgotten, with those that are still in
    /// flight: a call that is not shown does less harm than one that is shown for ever.
    pub(crate) fn ends_lost(&self, conn: Option<ConnId>) {
        let mut calls = self.calls();
        match conn {
            Some(conn) => {
                calls.count -= calls.by_connection.remove(&conn).map_or(0, |lost| lost.len());
            }
            None => *calls = Calls::default(),
        }
    }

    /// All of them, in no order.
    pub(crate) fn all(&self) -> Vec<BegunCall> {
        self.calls().by_connection.values().flat_map(HashMap::values).cloned().collect()
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BegunCall {
    fn of(call: &Call) -> Self {
        let command = match &call.request {
            CriRequest::ExecSync(command) | CriRequest::Exec(command) => Some(command),
            _ => None,
        };
        let command = command.map(|command| match command.weight() {
            0..=LONGEST_COMMAND => Words::Whole(command.clone()),
            _ => Words::Beginning(shown(command.arguments()).into()),
        });
        Self {
            began: call.began,
            method: call.method.clone(),
            peer: call.origin.peer.clone(),
            about: About::of(&call.request),
            command,
        }
    }

    /// Whether it is a stream of events, which stays open for as long as its client likes.
    pub(crate) fn is_event_stream(&self) -> bool {
        self.method.known_name() == Some("GetContainerEvents")
    }
}

impl About {
    fn of(request: &CriRequest) -> Self {
        match request {
            CriRequest::RunPodSandbox(config) => {
                let metadata = config.metadata.clone().unwrap_or_default();
                Self::New([metadata.namespace.into(), metadata.name.into(), "".into()])
            }
            CriRequest::CreateContainer(request) => {
                let pod = request.sandbox_config.as_ref().and_then(|config| config.metadata.clone());
                let container = request.config.as_ref().and_then(|config| config.metadata.clone());
                let (pod, container) = (pod.unwrap_or_default(), container.unwrap_or_default());
                Self::New([pod.namespace.into(), pod.name.into(), container.name.into()])
            }
            request => match (request.container(), request.sandbox()) {
                (Some(id), _) => Self::Container(id.into()),
                (None, Some(id)) => Self::Sandbox(id),
                (None, None) => Self::Node,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock, tap::call::CallOrigin};

    fn call(conn: u64, stream: u32) -> Call {
        Call {
            origin: Arc::new(CallOrigin { conn: ConnId(conn), peer: Arc::default(), user_agent: "".into() }),
            stream,
            method: Arc::new(Method::from_path("/runtime.v1.RuntimeService/ListContainers")),
            began: clock::now(),
            request_bytes: 0,
            traceparent: None,
            request: CriRequest::OfContainer("c".into()),
        }
    }

    fn left(calls: &CallsInFlight) -> usize {
        let left = calls.all().len();
        assert_eq!(calls.calls().count, left);
        left
    }

    #[test]
    fn a_call_is_in_flight_until_its_end_or_until_ends_are_lost() {
        let calls = CallsInFlight::default();
        for (conn, stream) in [(1, 1), (1, 3), (2, 1), (2, 1), (3, 5)] {
            calls.begun(&call(conn, stream));
        }
        assert_eq!(left(&calls), 4);
        calls.ended(&call(1, 1));
        calls.ended(&call(1, 1));
        calls.ended(&call(9, 1));
        assert_eq!(left(&calls), 3);
        calls.ends_lost(Some(ConnId(2)));
        assert_eq!(left(&calls), 2);
        calls.ends_lost(None);
        assert_eq!(left(&calls), 0);
    }

    #[test]
    fn no_client_can_have_more_kept_than_the_bound() {
        let calls = CallsInFlight::default();
        (0..2 * MOST as u32).for_each(|stream| calls.begun(&call(1, stream)));
        assert_eq!(left(&calls), MOST);
        (0..2 * MOST as u32).for_each(|stream| calls.ended(&call(1, stream)));
        assert_eq!(left(&calls), 0);
        assert!(calls.calls().by_connection.is_empty());
    }
}
