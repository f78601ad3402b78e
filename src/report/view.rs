//! The only JSON shapes: what the API writes and the command line reads. Plain data, with no logic beyond their own
//! values.
//!
//! Fields appear in the order of their declaration, and are part of the interface: fields may be added, never renamed.
//! Readers ignore unknown fields.

mod act;
mod attempt_line;
mod call;
mod check;
mod configuration;
pub(crate) mod degraded;
mod detail;
mod event;
mod exec_route;
mod live;
mod pause;
mod phases;
mod pod;
mod probe;
mod run;
#[cfg(test)]
pub(crate) mod sample;
mod status;
mod top;
mod units;

use serde::{Deserialize, Serialize};

pub use crate::{
    prober::status::ProbePhase,
    results::phases::Phase,
    results::{AttemptResult, Counts, Run, Verdict, event::EventType},
    spec::ExecMode,
    tap::CallEnd,
};
pub use act::{ActCommandView, ActEndView, ActRecordView, ActStep, ActView, ActsView, ProbeActsView};
pub use attempt_line::AttemptLineView;
pub use call::{CallView, ExecView, PeerView, SessionView};
pub use check::{
    CheckView, CheckedContainer, CheckedDocument, CheckedFile, CheckedPod, CheckedProbe, CheckedRule,
    DocumentKind, Finding, Grade, PlanChange, Role,
};
pub use configuration::{
    ConfigurationView, HealthcheckView, HistoryView, MatchView, RuleView, SettingValue, SettingView,
};
pub use detail::{
    ActNoteView, ChangeView, ClientView, DefinitionView, FailureCommandView, HandlerView, HeaderView,
    PortView, ProbeDetailView,
};
pub use event::EventView;
pub use exec_route::ExecRouteView;
pub(crate) use exec_route::mode;
pub use live::{
    BeatView, HelloView, LiveStatusView, MissedCallsView, RowProbeView, RowView, StripPhases, StripView,
};
pub use pause::{CommandedView, PauseView, PausedProbeView, TriggeredView};
pub use phases::PhasesView;
pub(crate) use phases::{SplitView, is_slow};
pub use pod::{ContainerStateView, ContainerView, ExitView, FailingProbeView, PodDetailView, PodView};
pub use probe::{AttemptView, ErrorsView, LatencyView, ProbeView, joined, probe_id, probe_key};
pub use run::{ContainerRef, RunView};
pub use status::{
    BlindView, CallsView, ConfigView, ConnectionsView, HttpView, InventoryView, LateView, LogView,
    ProbesView, ReadyzCheck, RecordFileView, RecordKind, RuntimeState, RuntimeView, StageRestartView,
    StateFileView, StatusView, UnprovenView, WaitingView,
};
pub use top::{
    CallInFlightView, CostPhasesView, CostView, InFlightView, OthersView, RuntimeCpuView, TopView,
};
pub use units::{Seconds, Time};

/// 32 bytes: what an allocation takes besides what it was made for: its header, and what rounding and fragmentation waste.
const ALLOCATION: usize = 32;

/// What a text takes, in bytes.
fn text_size(text: &String) -> usize {
    ALLOCATION + text.capacity()
}

/// Replaces records in a stream that were lost because its reader was too slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissedView {
    /// How many, before any filter.
    pub missed: u64,
}

/// The body of every answer that is an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorView {
    /// What is wrong, in words.
    pub error: String,
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use serde::{Serialize, de::DeserializeOwned};

    use super::{sample, *};

    #[test]
    fn the_shapes_are_these() {
        insta::assert_json_snapshot!("probe", sample::probe());
        insta::assert_json_snapshot!("probe_invalid", sample::invalid_probe());
        insta::assert_json_snapshot!("probe_detail", sample::detail());
        insta::assert_json_snapshot!("probe_acting", sample::acting_detail());
        insta::assert_json_snapshot!("probe_observed", sample::observed_detail());
        insta::assert_json_snapshot!("pod", sample::pod());
        insta::assert_json_snapshot!("pod_detail", sample::pod_detail());
        insta::assert_json_snapshot!("call", sample::call());
        insta::assert_json_snapshot!("call_refused", sample::refused_call());
        insta::assert_json_snapshot!("event", sample::event());
        insta::assert_json_snapshot!("event_repeated", sample::repeated_event());
        insta::assert_json_snapshot!("attempt_line", sample::attempt_line());
        insta::assert_json_snapshot!("status", sample::status());
        insta::assert_json_snapshot!("run", sample::run());
        insta::assert_json_snapshot!("top", sample::top());
    }

    #[test]
    fn what_is_written_is_read_back_and_unknown_fields_are_ignored() {
        fn back<T: Serialize + DeserializeOwned + PartialEq + Debug>(view: &T) {
            let json = serde_json::to_string(view).unwrap();
            assert_eq!(&serde_json::from_str::<T>(&json).unwrap(), view);
            let newer = json.replacen('{', r#"{"unheardOf":[1],"#, 1);
            assert_eq!(&serde_json::from_str::<T>(&newer).unwrap(), view);
        }
        back(&sample::probe());
        back(&sample::failing_probe());
        back(&sample::invalid_probe());
        back(&sample::detail());
        back(&sample::invalid_detail());
        back(&sample::acting_detail());
        back(&sample::pod());
        back(&sample::pod_detail());
        for handler in sample::handlers() {
            let definition = sample::detail().definition.map(|plain| DefinitionView { handler, ..plain });
            back(&definition.expect("the sample has one"));
        }
        back(&sample::call());
        back(&sample::refused_call());
        back(&sample::event());
        back(&sample::repeated_event());
        back(&sample::attempt_line());
        back(&sample::status());
        back(&sample::run());
        back(&sample::top());
    }

    #[test]
    fn a_call_has_failed_unless_all_of_it_went_well() {
        let exited = |exit_code| {
            let exec = ExecView { exit_code, ..ExecView::default() };
            CallView { exec: Some(exec), ..sample::call() }
        };
        for (call, failed) in [
            (sample::call(), false),
            (sample::refused_call(), true),
            (exited(Some(1)), true),
            (exited(None), false),
            (CallView { end: CallEnd::Lost, code: String::new(), ..sample::call() }, true),
        ] {
            assert_eq!(call.is_failed(), failed, "{call:?}");
        }
    }
}
