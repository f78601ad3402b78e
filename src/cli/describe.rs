//! `criprobe describe`: all of one probe, or of all probes of one container.

pub(super) mod definition;
mod strip;
mod target;
mod text;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{
    Context, Error, Exit,
    format::{self, Format},
    screen::{Screen, print},
};
use crate::{
    clock,
    report::{
        filter::{PodFilter, ProbeFilter},
        view::{ContainerView, PodView, ProbeDetailView, ProbeView},
    },
};
use target::Target;

/// Flags of the verb.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DescribeArgs {
    /// NAMESPACE/POD/CONTAINER/TYPE or a probe's key; NAMESPACE/POD/CONTAINER or the beginning of a container's id for
    /// all its probes
    #[arg(value_name = "PROBE|CONTAINER")]
    target: Target,
}

const EXAMPLES: &str = "\
Examples:
  criprobe describe default/web/app/liveness
  criprobe describe default/web/app              all probes of a container
  criprobe describe 0e2f11e3dc40                 likewise, by the beginning of its id
  criprobe describe default/web/app/liveness -o json | jq .history

The definition is shown with its defaults filled in. In the history a sign stands for an attempt,
the oldest first: . or ✓ a success, ~ a warning, X or ✗ a failure, ? an error, which says nothing
of the container. The newest 10 attempts, changes and events are shown, -o wide shows all that are
kept: 32 attempts with 256 bytes of what each said, 32 changes of the verdict.";

/// 100 columns where nobody has said how wide a line may be: `-o wide` cuts nothing.
const WIDTH: usize = 100;

impl DescribeArgs {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, Error> {
        let found = find(self.target, context).await?;
        let now = clock::wall();
        print(&match (context.format, &found) {
            (Format::Json, Found::Probe(probe)) => format::json(probe),
            (Format::Json, Found::Container(_, _, probes)) => format::json(probes),
            (Format::Yaml, Found::Probe(probe)) => format::yaml(probe),
            (Format::Yaml, Found::Container(_, _, probes)) => format::yaml(probes),
            (Format::Table, found) => {
                let width = context.screen.width;
                let width = if width == usize::MAX { WIDTH } else { width };
                found.text(text::Page { screen: Screen { width, ..context.screen }, is_whole: false, now })
            }
            (Format::Wide, found) => {
                let screen = Screen { width: usize::MAX, ..context.screen };
                found.text(text::Page { screen, is_whole: true, now })
            }
        })?;
        Ok(Exit::Fine)
    }
}

/// What was asked for.
enum Found {
    Probe(Box<ProbeDetailView>),
    Container(Box<PodView>, Box<ContainerView>, Vec<ProbeDetailView>),
}

impl Found {
    fn text(&self, page: text::Page) -> String {
        match self {
            Self::Probe(probe) => page.probe(probe),
            Self::Container(pod, container, probes) => {
                let head = page.container(pod, container);
                let parts = std::iter::once(head).chain(probes.iter().map(|probe| page.probe(probe)));
                parts.collect::<Vec<_>>().join("\n")
            }
        }
    }
}

async fn find(target: Target, context: &Context) -> Result<Found, Error> {
    let (pod, container) = match target {
        Target::Probe(names) => return Ok(Found::Probe(Box::new(probe(&names, context).await?))),
        Target::ContainerId(id) => container_of_id(&id, context).await?,
        Target::KeyOrContainer(names) => match container_of_names(&names, context).await? {
            Some(found) => found,
            None if target::is_type(&names[2]) => {
                return Ok(Found::Probe(Box::new(probe(&names, context).await?)));
            }
            None => return Err(Error::Refused(format!("no container {}", names.join("/")))),
        },
    };
    let filter = ProbeFilter {
        namespace: Some((&*pod.namespace).into()),
        pod: Some((&*pod.pod).into()),
        container: Some((&*container.container).into()),
        kind: None,
    };
    let listed: Vec<ProbeView> = context.client.get(&format!("/v1/probes{}", filter.to_query())).await?;
    let mut probes = Vec::new();
    for listed in listed.iter().filter(|listed| listed.container_id == container.container_id) {
        probes.push(probe(&[&*listed.pod_uid, &listed.container, &listed.kind], context).await?);
    }
    Ok(Found::Container(Box::new(pod), Box::new(container), probes))
}

async fn probe(names: &[impl AsRef<str>], context: &Context) -> Result<ProbeDetailView, Error> {
    let names = names.iter().map(|name| utf8_percent_encode(name.as_ref(), NON_ALPHANUMERIC).to_string());
    context.client.get(&format!("/v1/probes/{}", names.collect::<Vec<_>>().join("/"))).await
}

/// The newest container of these names.
async fn container_of_names(
    [namespace, pod, container]: &[String; 3],
    context: &Context,
) -> Result<Option<(PodView, ContainerView)>, Error> {
    let filter = PodFilter { namespace: Some((&**namespace).into()), pod: Some((&**pod).into()) };
    let pods: Vec<PodView> = context.client.get(&format!("/v1/pods{}", filter.to_query())).await?;
    let named = pods.into_iter().filter(|known| known.namespace == *namespace && known.pod == *pod);
    let named = named.filter_map(|pod| {
        let found = pod.containers.iter().find(|known| known.container == *container)?.clone();
        Some((pod, found))
    });
    Ok(named.max_by_key(|(_, container)| (container.created_at.is_none(), container.created_at)))
}

/// The one container whose id begins so.
async fn container_of_id(id: &str, context: &Context) -> Result<(PodView, ContainerView), Error> {
    let pods: Vec<PodView> = context.client.get("/v1/pods").await?;
    let all = pods.iter().flat_map(|pod| pod.containers.iter().map(move |container| (pod, container)));
    let begins: Vec<_> = all.filter(|(_, container)| container.container_id.starts_with(id)).collect();
    match begins[..] {
        [(pod, container)] => Ok((pod.clone(), container.clone())),
        [] => Err(Error::Refused(format!("no container has an id that begins with {id}"))),
        _ => {
            let count = begins.len();
            Err(Error::Refused(format!(
                "{count} containers have an id that begins with {id}: write more of it"
            )))
        }
    }
}
