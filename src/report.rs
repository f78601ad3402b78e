//! The output for people and programs: queries the stages for snapshots, keeps journals, and provides both as JSON
//! through the API. Changes nothing in a stage except on an operator's request, and never slows one down.

pub(crate) mod acts;
pub mod api;
mod body;
mod commands;
pub(crate) mod configuration;
pub(crate) mod convert;
pub(crate) mod costs;
mod detail;
mod exposed;
pub(crate) mod filter;
pub(crate) mod in_flight;
pub mod journal;
mod lines;
pub mod live;
pub(crate) mod lookup;
pub mod metrics;
pub mod name;
mod nearest;
pub(crate) mod observed;
mod pieces;
mod places;
mod pods;
pub mod printable;
mod problems;
mod redacted;
pub(crate) mod repeats;
pub(crate) mod rights;
mod room;
mod routes;
mod rule;
pub(crate) mod since;
pub(crate) mod stages;
pub mod top;
mod unready;
pub mod view;

use std::{fmt, sync::Arc};

use futures_util::future::BoxFuture;

use journal::Journal;
use live::LiveFacts;
use metrics::Format;
use name::ProbeName;
use top::TopFilter;
use view::{
    CallView, ConfigurationView, EventView, PodView, ProbeDetailView, ProbeView, RuntimeView, StatusView,
    TopView,
};

use crate::{prober::ProberHandle, redact::Redactor, stage::Unanswered};

/// Everything that a report is made of.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Answers questions about the present.
    pub snapshots: Arc<dyn Snapshots>,
    /// Calls, as they end.
    pub trace: Journal<dyn JournaledCall>,
    /// Events, as they happen.
    pub events: Journal<EventView>,
    /// Does what operators ask for.
    pub prober: ProberHandle,
    /// What leaves through the API passes it.
    pub redactor: Redactor,
    /// The node's hostname; empty where it is not known.
    pub node: Arc<str>,
}

/// A snapshot on its way, or the name of the stage that did not answer.
pub type Snapshot<'a, T> = BoxFuture<'a, Result<T, Unanswered>>;

/// Views of the daemon as it is now. `stages::Stages` makes them of what the stages answer.
pub trait Snapshots: fmt::Debug + Send + Sync {
    /// The daemon as a whole.
    fn status(&self) -> Snapshot<'_, StatusView>;

    /// All probes; those of older sandboxes come before those of newer ones.
    fn probes(&self) -> Snapshot<'_, Vec<ProbeView>>;

    /// One probe in full, but for its events; `None` if there is no such probe.
    fn probe(&self, name: ProbeName) -> Snapshot<'_, Option<ProbeDetailView>>;

    /// All pods, by namespace and name.
    fn pods(&self) -> Snapshot<'_, Vec<PodView>>;

    /// All probes with their histories, and all pods.
    fn live(&self) -> Snapshot<'_, LiveFacts> {
        Box::pin(async { Ok(LiveFacts::without_history(self.probes().await?, self.pods().await?)) })
    }

    /// The runtime, as it is known now: asks no stage, so it is answered even if all of them are stuck.
    fn runtime(&self) -> RuntimeView;

    /// What runs now, and what the commands of the last minutes cost.
    fn top(&self, filter: TopFilter) -> Snapshot<'_, TopView>;

    /// The configuration in effect.
    fn configuration(&self) -> Snapshot<'_, ConfigurationView>;

    /// All metrics as text.
    fn metrics(&self, format: Format) -> Snapshot<'_, String>;
}

/// A call that ended. It becomes a view only when it is read: most are never read.
pub trait JournaledCall: fmt::Debug + Send + Sync {
    /// What is shown of it.
    fn view(&self) -> CallView;

    /// What it takes, in bytes.
    fn size(&self) -> usize;
}
