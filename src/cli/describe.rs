//! `criprobe describe`: all of one probe, or of all probes of one container.

mod acts;
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
        filter::ProbeFilter,
        lookup::{self, NotFound},
        view::{ContainerView, PodView, ProbeDetailView, ProbeView, joined},
    },
};
use target::Target;

/// Flags of the verb.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DescribeArgs {
    /// NAMESPACE/POD/CONTAINER/TYPE or a probe's key; for all probes of a container, NAMESPACE/POD/CONTAINER or the
    /// first characters of its ID
    #[arg(value_name = "PROBE|CONTAINER")]
    target: Target,
}

const EXAMPLES: &str = "\
Examples:
  criprobe describe default/web/app/liveness
  criprobe describe default/web/app              all probes of a container
  criprobe describe 0e2f11e3dc40                 the same, by the first characters of its ID
  criprobe describe default/web/app/liveness -o json | jq .history

The definition is shown with its defaults. In the history, each character is an attempt, oldest
first: . or ✓ success, ~ warning, X or ✗ failure, ? error, which says nothing about the container.
What was done to the container because of the probe is listed among the attempts, as 'acted'.
The newest 10 attempts, changes and events are shown. -o wide shows all that are kept: 32 attempts
with 256 bytes of output each, 8 acts, and 32 changes of the verdict.";

impl DescribeArgs {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, Error> {
        let found = find(self.target, context).await?;
        let now = clock::wall();
        print(&match (context.format, &found) {
            (Format::Json, Found::Probe(probe)) => format::json(probe),
            (Format::Json, Found::Container(_, _, probes)) => format::json(probes),
            (Format::Yaml, Found::Probe(probe)) => format::yaml(probe),
            (Format::Yaml, Found::Container(_, _, probes)) => format::yaml(probes),
            (Format::Table, found) => found.text(text::Page { screen: context.screen, is_whole: false, now }),
            (Format::Wide, found) => {
                let screen = Screen { width: usize::MAX, ..context.screen };
                found.text(text::Page { screen, is_whole: true, now })
            }
        })?;
        Ok(Exit::Fine)
    }
}

/// What to describe.
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
        Target::ContainerId(id) => container(&joined([&*id]), context).await?.map_err(Error::from)?,
        Target::KeyOrContainer(names) => {
            let written = joined(names.iter().map(String::as_str));
            match container(&written, context).await? {
                Ok(found) => found,
                Err(_) if target::is_type(&names[2]) => {
                    return Ok(Found::Probe(Box::new(probe(&names, context).await?)));
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
