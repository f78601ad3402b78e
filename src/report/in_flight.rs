//! The calls of clients that have begun and not ended: begins and ends in, all that are left out. Never does IO.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use super::{
    convert::{call_id, shown},
    costs::beginning,
    journal::{Crowd, group},
};
use crate::{
    ids::{ConnId, ContainerId, SandboxId},
    peer::Peer,
    tap::{
        Call,
        cri::{CriRequest, ExecCommand, Method},
    },
};

/// 4,096 calls are known; clients have a few at a time. Of one more, the oldest of the container that has most is not shown
/// any more, so that one that hangs hides no other.
pub(crate) const MOST: usize = 4_096;

/// The methods of other services of a runtime that wait for events, or are streams of them: those of containerd, and what is
/// usual in gRPC.
const WAITING: [&str; 5] = ["ServerReflectionInfo", "Stream", "Subscribe", "Wait", "Watch"];

/// 4 KiB: a longer command is kept as it will be shown.
const LONGEST_COMMAND: usize = 4_096;

/// A call that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct BegunCall {
    /// As its record will have it.
    id: String,
    /// Counts all calls.
    number: u64,
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
    /// Where each is, by its number.
    places: HashMap<u64, (ConnId, u32)>,
    /// Their numbers by what they are about.
    crowd: Crowd,
    numbered: u64,
}

impl CallsInFlight {
    /// A call began.
    pub(crate) fn begun(&self, call: &Call) {
        let mut calls = self.calls();
        let place = (call.origin.conn, call.stream);
        calls.remove(place);
        calls.numbered += 1;
        let begun = BegunCall::of(call, calls.numbered);
        calls.crowd.push(&begun.about.path(), begun.number, 0);
        calls.places.insert(begun.number, place);
        calls.by_connection.entry(place.0).or_default().insert(place.1, begun);
        if calls.places.len() > MOST
            && let Some(gone) = calls.crowd.pop(false)
            && let Some(place) = calls.places.remove(&gone)
        {
            calls.forget(place);
        }
    }

    /// A call ended.
    pub(crate) fn ended(&self, call: &Call) {
        self.calls().remove((call.origin.conn, call.stream));
    }

    /// The ends of some calls are not known: those of one connection, or any. They are forgotten, with those that are still in
    /// flight: a call that is not shown does less harm than one that is shown for ever.
    pub(crate) fn ends_lost(&self, conn: Option<ConnId>) {
        let mut calls = self.calls();
        let Some(conn) = conn else {
            let numbered = calls.numbered;
            *calls = Calls { numbered, ..Calls::default() };
            return;
        };
        for call in calls.by_connection.remove(&conn).into_iter().flat_map(HashMap::into_values) {
            calls.unnumber(&call);
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

impl Calls {
    fn remove(&mut self, place: (ConnId, u32)) {
        if let Some(call) = self.forget(place) {
            self.unnumber(&call);
        }
    }

    fn forget(&mut self, (conn, stream): (ConnId, u32)) -> Option<BegunCall> {
        let of_connection = self.by_connection.get_mut(&conn)?;
        let call = of_connection.remove(&stream);
        if of_connection.is_empty() {
            self.by_connection.remove(&conn);
        }
        call
    }

    fn unnumber(&mut self, call: &BegunCall) {
        self.places.remove(&call.number);
        self.crowd.remove(&call.about.path(), call.number);
    }
}

impl BegunCall {
    fn of(call: &Call, number: u64) -> Self {
        let command = match &call.request {
            CriRequest::ExecSync(command) | CriRequest::Exec(command) => Some(command),
            _ => None,
        };
        let command = command.map(|command| match command.weight() {
            0..=LONGEST_COMMAND => Words::Whole(command.clone()),
            _ => Words::Beginning(shown(command.arguments()).into()),
        });
        Self {
            id: call_id(call),
            number,
            began: call.began,
            method: call.method.clone(),
            peer: call.origin.peer.clone(),
            about: About::of(&call.request),
            command,
        }
    }

    /// As its record will have it.
    pub(crate) fn id(&self) -> String {
        self.id.clone()
    }

    /// Whether it is a stream of events or waits for one, so that it stays open for as long as its client likes.
    pub(crate) fn is_event_stream(&self) -> bool {
        match self.method.known_name() {
            Some(name) => name == "GetContainerEvents",
            None => WAITING.contains(&&*self.method.name),
        }
    }
}

impl About {
    /// The group of calls that it is one of.
    fn path(&self) -> [u64; 1] {
        [match self {
            Self::Node => 0,
            Self::Container(id) => group(id),
            Self::Sandbox(id) => group(id),
            Self::New([namespace, pod, _]) => group((namespace, pod)),
        }]
    }

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
    use std::collections::BTreeMap;

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
        assert_eq!(calls.calls().places.len(), left);
        let mut crowd = std::mem::take(&mut calls.calls().crowd);
        let numbers: Vec<_> = std::iter::from_fn(|| crowd.pop(false)).collect();
        assert_eq!(numbers.len(), left);
        let mut calls = calls.calls();
        let numbered: BTreeMap<_, _> = calls
            .by_connection
            .values()
            .flat_map(HashMap::values)
            .map(|call| (call.number, call.about.path()))
            .collect();
        numbered.iter().for_each(|(number, path)| calls.crowd.push(path, *number, 0));
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
    fn no_more_are_kept_than_the_bound_and_what_one_container_has_hides_no_other() {
        let calls = CallsInFlight::default();
        let about =
            |id: &str, stream| Call { request: CriRequest::OfContainer(id.into()), ..call(1, stream) };
        calls.begun(&about("web", 1));
        (2..2 * MOST as u32).for_each(|stream| calls.begun(&about("evil", stream)));
        calls.begun(&about("late", 0));
        assert_eq!(left(&calls), MOST);
        let ids: Vec<_> = calls.all().iter().map(BegunCall::id).collect();
        for (id, is_there) in [("1-1", true), ("1-2", false), ("1-8191", true), ("1-0", true)] {
            assert_eq!(ids.contains(&id.to_owned()), is_there, "{id}");
        }
        (0..2 * MOST as u32).for_each(|stream| calls.ended(&call(1, stream)));
        assert_eq!(left(&calls), 0);
        assert!(calls.calls().by_connection.is_empty());
    }

    #[test]
    fn what_waits_for_events_is_none_that_hangs() {
        for (path, is_stream) in [
            ("/runtime.v1.RuntimeService/GetContainerEvents", true),
            ("/runtime.v1.RuntimeService/StreamContainers", false),
            ("/runtime.v1.RuntimeService/ExecSync", false),
            ("/containerd.services.events.v1.Events/Subscribe", true),
            ("/containerd.services.tasks.v1.Tasks/Wait", true),
            ("/containerd.services.tasks.v1.Tasks/Start", false),
            ("/grpc.health.v1.Health/Watch", true),
            ("/grpc.health.v1.Health/Check", false),
        ] {
            let call = Call { method: Arc::new(Method::from_path(path)), ..call(1, 1) };
            assert_eq!(BegunCall::of(&call, 1).is_event_stream(), is_stream, "{path}");
        }
    }
}
