//! `criprobe describe`: all of one probe, of all probes of one container, or of a pod.

mod acts;
pub(super) mod definition;
mod strip;
mod target;
mod text;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{
    Context, Error, Exit, banner,
    format::{self, Format},
    nothing,
    screen::{Screen, print},
};
use crate::{
    clock,
    report::{
        filter::{EventFilter, PodFilter, ProbeFilter},
        lookup::{self, NotFound},
        printable::printable,
        view::{ContainerView, EventView, PodDetailView, PodView, ProbeDetailView, ProbeView, joined},
    },
};
use target::Target;

/// Flags of the verb.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DescribeArgs {
    /// NAMESPACE/POD for a pod; NAMESPACE/POD/CONTAINER or the first characters of its ID for a container with all its
    /// probes; NAMESPACE/POD/CONTAINER/TYPE or a probe's key for a probe
    #[arg(value_name = "POD|CONTAINER|PROBE")]
    target: Target,
}

const EXAMPLES: &str = "\
Examples:
  criprobe describe default/web                  a pod: containers, exits, logs, probes, events
  criprobe describe default/web/app/liveness     a probe
  criprobe describe default/web/app              all probes of a container
  criprobe describe 0e2f11e3dc40                 the same, by the first characters of its ID
  criprobe describe default/web/app/liveness -o json | jq .history

The definition is shown with its defaults. In the history, each character is an attempt, oldest
first: . or ✓ success, ~ warning, X or ✗ failure, ? error, which says nothing about the container;
| marks the first attempt at another container.
What was done to the container because of the probe is listed among the attempts, as 'acted'.
'exec route' is that of the last attempt of an exec probe: session or sync (ExecSync), with the reason
if a session was asked for; where attempts differ, their table has a column ROUTE.
The newest 10 attempts, changes and events are shown. -o wide shows all that are kept: 32 attempts
with 256 bytes of output each, 8 acts, and 32 changes of the verdict.";

impl DescribeArgs {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, Error> {
        let names = self.target.names();
        let found = match find(self.target, context).await {
            Err(unknown) => return Err(nothing::with_events(context, &names, unknown).await),
            Ok(found) => found,
        };
        let (now, banner) = (clock::wall(), banner::text(context).await);
        let text = match (context.format, &found) {
            (Format::Json, Found::Pod(pod)) => format::json(pod),
            (Format::Yaml, Found::Pod(pod)) => format::yaml(pod),
            (Format::Json, Found::Probe(probe, _)) => format::json(probe),
            (Format::Json, Found::Container(_, _, probes, _)) => format::json(probes),
            (Format::Yaml, Found::Probe(probe, _)) => format::yaml(probe),
            (Format::Yaml, Found::Container(_, _, probes, _)) => format::yaml(probes),
            (Format::Table, found) => found.text(text::Page { screen: context.screen, is_whole: false, now }),
            (Format::Wide, found) => {
                let screen = Screen { width: usize::MAX, ..context.screen };
                found.text(text::Page { screen, is_whole: true, now })
            }
        };
        print(&(banner + &text))?;
        Ok(Exit::Fine)
    }
}

/// What to describe.
enum Found {
    Pod(Box<PodDetailView>),
    /// And its container, if there is one.
    Probe(Box<ProbeDetailView>, Option<Box<ContainerView>>),
    /// And the events that are about none of its probes.
    Container(Box<PodView>, Box<ContainerView>, Vec<ProbeDetailView>, Vec<EventView>),
}

impl Found {
    fn text(&self, page: text::Page) -> String {
        match self {
            Self::Pod(pod) => page.pod(pod),
            Self::Probe(probe, container) => page.probe(probe, container.as_deref()),
            Self::Container(pod, container, probes, events) => {
                let head = page.container(pod, container, events);
                let parts = std::iter::once(head).chain(probes.iter().map(|probe| page.probe(probe, None)));
                parts.collect::<Vec<_>>().join("\n")
            }
        }
    }
}

async fn find(target: Target, context: &Context) -> Result<Found, Error> {
    let (pod, container) = match target {
        Target::Probe(names) => return of_probe(&names, context).await,
        Target::Pod(names) => {
            let path = format!("/v1/pods/{}", encoded(&names));
            return Ok(Found::Pod(Box::new(context.client.get(&path).await?)));
        }
        Target::ContainerId(id) => match container(&joined([&*id]), context).await? {
            Ok(found) => found,
            Err(unknown) => return Err(Error::Usage(alone(&id, &unknown, context).await?)),
        },
        Target::KeyOrContainer(names) => {
            let written = joined(names.iter().map(String::as_str));
            match container(&written, context).await? {
                Ok(found) => found,
                Err(_) if target::is_type(&names[2]) => {
                    return of_probe(&names, context).await;
                }
                Err(unknown) => return Err(unknown.into()),
            }
        }
    };
    let filter = ProbeFilter {
        namespace: Some((&*pod.namespace).into()),
        pod: Some((&*pod.pod).into()),
        container: Some((&*container.container).into()),
        kind: None,
        since: None,
    };
    let listed: Vec<ProbeView> = context.client.get(&format!("/v1/probes{}", filter.to_query())).await?;
    let mut probes = Vec::new();
    for listed in listed.iter().filter(|listed| listed.container_id == container.container_id) {
        probes.push(probe(&[&*listed.pod_uid, &listed.container, &listed.kind], context).await?);
    }
    let events = of_container(&pod, &container, context).await?;
    Ok(Found::Container(Box::new(pod), Box::new(container), probes, events))
}

/// The events of a container, and of others of its name before, that are about none of its probes.
async fn of_container(
    pod: &PodView,
    container: &ContainerView,
    context: &Context,
) -> Result<Vec<EventView>, Error> {
    if matches!(context.format, Format::Json | Format::Yaml) {
        return Ok(Vec::new());
    }
    let filter = EventFilter {
        namespace: Some((&*pod.namespace).into()),
        pod: Some((&*pod.pod).into()),
        container: Some((&*container.container).into()),
        since: None,
        last: None,
        follow: false,
    };
    let mut lines = context.client.lines(&format!("/v1/events{}", filter.to_query())).await?;
    let mut events = Vec::new();
    while let Some(event) = lines.next::<EventView>().await? {
        if event.pod_uid == pod.pod_uid && event.container == container.container && event.probe.is_empty() {
            events.push(event);
        }
    }
    Ok(events)
}

async fn probe(names: &[impl AsRef<str>], context: &Context) -> Result<ProbeDetailView, Error> {
    context.client.get(&format!("/v1/probes/{}", encoded(names))).await
}

/// Names as part of a path.
fn encoded(names: &[impl AsRef<str>]) -> String {
    let names = names.iter().map(|name| utf8_percent_encode(name.as_ref(), NON_ALPHANUMERIC).to_string());
    names.collect::<Vec<_>>().join("/")
}

/// A probe, and the container that it looks at.
async fn of_probe(names: &[impl AsRef<str>], context: &Context) -> Result<Found, Error> {
    let probe = Box::new(probe(names, context).await?);
    if matches!(context.format, Format::Json | Format::Yaml) {
        return Ok(Found::Probe(probe, None));
    }
    let (namespace, pod) = (Some((&*probe.probe.namespace).into()), Some((&*probe.probe.pod).into()));
    let filter = PodFilter { namespace, pod };
    let pods: Vec<PodView> = context.client.get(&format!("/v1/pods{}", filter.to_query())).await?;
    let mut containers = pods.into_iter().flat_map(|pod| pod.containers);
    let container = containers.find(|container| container.container_id == probe.probe.container_id);
    Ok(Found::Probe(probe, container.map(Box::new)))
}

/// What is wrong with a name alone that no container ID begins with: it may be that of a namespace or of a pod.
async fn alone(name: &str, unknown: &NotFound, context: &Context) -> Result<String, Error> {
    let pods: Vec<PodView> = context.client.get("/v1/pods").await?;
    let full = |pod: &PodView| joined([&*pod.namespace, &*pod.pod]);
    let within: Vec<_> = pods.iter().filter(|pod| pod.namespace == name).map(full).collect();
    let named: Vec<_> = pods.iter().filter(|pod| pod.pod == name).map(full).collect();
    let shown = printable(name);
    Ok(match (&within[..], &named[..]) {
        ([first, ..], _) => format!(
            "{shown} is a namespace: write NAMESPACE/POD for one of its pods, as {first}; 'criprobe pods {shown}' lists them"
        ),
        ([], [first, ..]) => format!("{shown} is the name of a pod: write it with its namespace, {first}"),
        // It may be the name of a container, which is known already.
        ([], []) if pods.iter().flat_map(|pod| &pod.containers).any(|one| one.container == name) => {
            unknown.to_string()
        }
        ([], []) => {
            let known = pods.iter().flat_map(|pod| [&*pod.namespace, &*pod.pod]);
            format!("{unknown}{}", lookup::suggestion(name, known))
        }
    })
}

/// The container that is written so, or why there is none.
async fn container(
    written: &str,
    context: &Context,
) -> Result<Result<(PodView, ContainerView), NotFound>, Error> {
    let pods: Vec<PodView> = context.client.get("/v1/pods").await?;
    let all = pods.iter().flat_map(|pod| pod.containers.iter().map(move |container| (pod, container)));
    let found = lookup::container(written, all.collect());
    Ok(found.map(|(pod, container)| (pod.clone(), container.clone())))
}

impl From<NotFound> for Error {
    fn from(error: NotFound) -> Self {
        Self::Usage(error.to_string())
    }
}
