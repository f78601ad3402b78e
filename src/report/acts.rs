//! Merges what the stage that acts reports into views of probes, containers and the daemon.

use super::view::{
    ActCommandView, ActEndView, ActRecordView, ActStep, ActView, ActsView, ProbeActsView, ProbeDetailView,
    ProbeView, Seconds,
};
use crate::{
    act::status::{ActEnd, ActRecord, ActsStatus, CommandReport, Current, PlaceStatus, Step},
    config::Config,
    ids::{ProbeKey, ProbeKind},
    prober::status::{Exited, ProbePhase},
    results::event::ActCause,
    spec::{
        OnFailure,
        acting::{Acting, RestartOnExit},
    },
};

/// 512 bytes of a reason are shown, cut at a character: it is repeated with each probe of the container.
const REASON: usize = 512;

/// What the operator allows, as it is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ActLimits {
    pub is_enabled: bool,
    pub is_dry_run: bool,
    pub restart_on_exit: RestartOnExit,
    /// Acts that may begin in a minute.
    pub max_per_minute: usize,
    /// Acts that may be in progress at a time.
    pub max_concurrent: usize,
}

impl ActLimits {
    /// Those of a configuration.
    pub(super) fn of(config: &Config) -> Self {
        let (policy, act) = (&config.policy.acting, &config.act);
        Self {
            is_enabled: policy.is_enabled,
            is_dry_run: policy.is_dry_run,
            restart_on_exit: act.restart_on_exit,
            max_per_minute: act.max_per_minute.get(),
            max_concurrent: act.max_concurrent.get(),
        }
    }
}

/// The node's acts.
pub(super) fn node(status: &ActsStatus, limits: ActLimits) -> ActsView {
    ActsView {
        enabled: limits.is_enabled,
        dry_run: limits.is_dry_run,
        max_per_minute: limits.max_per_minute as u64,
        max_concurrent: limits.max_concurrent as u64,
        last_minute: status.last_minute as u64,
        in_progress: status.in_progress as u64,
        withheld: status.withheld as u64,
        trouble: status.trouble.clone(),
    }
}

/// Shows in a probe of a list what is going on with its container.
///
/// An act that is withheld is shown with the probe that asks for it, one in progress with all probes of the container. Of
/// a container that ended by itself and stays so, the setting is named where its probe would restart it.
pub(super) fn show(
    view: &mut ProbeView,
    (key, acting, exited): (&ProbeKey, Acting, Option<Exited>),
    status: &ActsStatus,
    setting: RestartOnExit,
) {
    let current = place(key, status).and_then(|place| place.current.as_ref());
    let Some(current) = current.filter(|current| concerns(current, key.kind)) else {
        let stays = view.phase == ProbePhase::Waiting
            && exited.is_some_and(|exited| !setting.restarts(exited.code))
            && !view.stopped_by_client;
        if stays && acting.effective() == OnFailure::Restart {
            view.reason +=
                &format!("; not restarted, as it exited by itself (act.restartOnExit: {})", setting.as_str());
        }
        return;
    };
    let act = ActView::from(current);
    let said = act.in_words();
    view.reason = if view.reason.is_empty() { said } else { format!("{said}; {}", view.reason) };
    view.act = Some(act);
}

/// Adds to all of one probe what its verdict does, and what was done last. Of a probe that only reports, on a container
/// that nothing was ever done to, there is nothing to add.
pub(super) fn describe(
    view: &mut ProbeDetailView,
    (key, acting, exited): (&ProbeKey, Acting, Option<Exited>),
    status: &ActsStatus,
    limits: ActLimits,
) {
    show(&mut view.probe, (key, acting, exited), status, limits.restart_on_exit);
    let place = place(key, status);
    if acting == Acting::default() && place.is_none() {
        return;
    }
    let unknown = PlaceStatus::default();
    let place = place.unwrap_or(&unknown);
    view.acts = Some(ProbeActsView {
        asked: acting.asked.as_str().to_owned(),
        action: acting.effective().as_str().to_owned(),
        refusal: match acting.refusal {
            Some(refusal) => refusal.to_string(),
            None if acting.is_dry_run => DRY_RUN.to_owned(),
            None => String::new(),
        },
        node: node(status, limits),
        next_allowed_at: place.next_allowed.map(Into::into),
        back_off_seconds: Seconds(place.back_off),
        last: place.last.as_ref().map(Into::into),
    });
}

/// Why nothing acts in a dry run.
const DRY_RUN: &str = "acts are only reported (act.dryRun)";

fn place<'a>(key: &ProbeKey, status: &'a ActsStatus) -> Option<&'a PlaceStatus> {
    if status.places.is_empty() {
        return None;
    }
    status.places.get(&(key.pod.clone(), key.container.clone()))
}

fn concerns(current: &Current, kind: ProbeKind) -> bool {
    match (&current.step, current.cause) {
        (Step::Withheld { .. }, ActCause::Probe(asking)) => asking == kind,
        _ => true,
    }
}

impl From<&Current> for ActView {
    fn from(current: &Current) -> Self {
        let (step, reason, next_at) = match &current.step {
            Step::Withheld { reason, until } => (ActStep::Withheld, &**reason, *until),
            Step::Command => (ActStep::Command, "", None),
            Step::Hook => (ActStep::PreStop, "", None),
            Step::Stopping => (ActStep::Stopping, "", None),
            Step::BackOff(until) => (ActStep::BackOff, "", Some(*until)),
            Step::Creating => (ActStep::Creating, "", None),
            Step::Retrying { reason, at } => (ActStep::Retrying, &**reason, *at),
        };
        Self {
            action: current.action.as_str().to_owned(),
            step,
            reason: reason[..reason.floor_char_boundary(REASON)].to_owned(),
            since: current.since.into(),
            next_at: next_at.map(Into::into),
        }
    }
}

impl From<&ActRecord> for ActRecordView {
    fn from(record: &ActRecord) -> Self {
        let (end, reason, successor_id) = match &record.end {
            None => (None, "", String::new()),
            Some(ActEnd::Stopped) => (Some(ActEndView::Stopped), "", String::new()),
            Some(ActEnd::Restarted(id)) => (Some(ActEndView::Restarted), "", id.to_string()),
            Some(ActEnd::DryRun) => (Some(ActEndView::DryRun), "", String::new()),
            Some(ActEnd::GivenUp(reason)) => (Some(ActEndView::GivenUp), &**reason, String::new()),
        };
        Self {
            at: record.at.into(),
            container_id: record.container.to_string(),
            action: record.action.as_str().to_owned(),
            after: record.cause.as_noun(),
            end,
            reason: reason[..reason.floor_char_boundary(REASON)].to_owned(),
            successor_id,
            took_seconds: Seconds(record.took),
            command: record.command.as_ref().map(Into::into),
        }
    }
}

impl From<&CommandReport> for ActCommandView {
    fn from(report: &CommandReport) -> Self {
        Self {
            exit_code: report.exit_code,
            took_seconds: Seconds(report.took),
            output: report.output.shared(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        ids::{ContainerId, PodUid},
        report::view::sample,
        results::text::BoundedText,
        spec::acting::ActRefusal,
    };

    fn key(kind: ProbeKind) -> ProbeKey {
        ProbeKey { pod: PodUid::from("uid-1"), container: "app".into(), kind }
    }

    fn status(current: Option<Step>, last: Option<ActRecord>) -> ActsStatus {
        let cause = ActCause::Probe(ProbeKind::Liveness);
        let current = current.map(|step| Current {
            container: ContainerId::from("c1"),
            action: OnFailure::Restart,
            cause,
            since: sample::at(0).0,
            step,
        });
        let place = PlaceStatus {
            current,
            last,
            next_allowed: Some(sample::at(20_000).0),
            back_off: Duration::from_secs(20),
        };
        let places = [((PodUid::from("uid-1"), "app".into()), place)].into();
        ActsStatus { last_minute: 2, in_progress: 1, withheld: 3, trouble: "full".to_owned(), places }
    }

    fn withheld_for(reason: &str) -> Step {
        Step::Withheld { reason: reason.to_owned(), until: None }
    }

    #[test]
    fn a_probe_shows_what_is_going_on_with_its_container() {
        let withheld = "6 acts in the last minute (act.maxPerMinute)";
        let until = sample::at(20_000).0;
        let retrying = Step::Retrying { reason: "no image".to_owned(), at: Some(until) };
        let gone = "the container exited with code 137";
        for (step, kind, before, reason) in [
            (withheld_for(withheld), ProbeKind::Liveness, "", format!("withheld: {withheld}")),
            (withheld_for(withheld), ProbeKind::Readiness, "", String::new()),
            (Step::Stopping, ProbeKind::Readiness, "", "stopping".to_owned()),
            (
                Step::BackOff(until),
                ProbeKind::Startup,
                gone,
                format!("restart: back-off until 10:00:20Z; {gone}"),
            ),
            (
                retrying,
                ProbeKind::Liveness,
                "",
                "restart failed at 10:00:00Z, next try 10:00:20Z: no image".to_owned(),
            ),
        ] {
            let mut view = ProbeView { reason: before.to_owned(), ..sample::probe() };
            show(
                &mut view,
                (&key(kind), Acting::default(), None),
                &status(Some(step), None),
                RestartOnExit::Never,
            );
            assert_eq!((view.act.is_some(), &view.reason), (!reason.is_empty(), &reason));
        }
        let mut other = sample::probe();
        let elsewhere = ProbeKey { container: "log".into(), ..key(ProbeKind::Liveness) };
        show(
            &mut other,
            (&elsewhere, Acting::default(), None),
            &status(Some(Step::Stopping), None),
            RestartOnExit::Never,
        );
        assert_eq!(other, sample::probe());
    }

    #[test]
    fn a_container_that_ended_by_itself_and_stays_so_names_the_setting() {
        let restarting = Acting { asked: OnFailure::Restart, ..Acting::default() };
        let never = "; not restarted, as it exited by itself (act.restartOnExit: never)";
        let on_failure = never.replace("never", "onFailure");
        for (acting, code, setting, is_clients, added) in [
            (restarting, 3, RestartOnExit::Never, false, never),
            (restarting, 0, RestartOnExit::OnFailure, false, &*on_failure),
            (restarting, 3, RestartOnExit::OnFailure, false, ""),
            (restarting, 3, RestartOnExit::Never, true, ""),
            (Acting::default(), 3, RestartOnExit::Never, false, ""),
        ] {
            let reason = format!("the container exited with code {code}");
            let phase = ProbePhase::Waiting;
            let mut view =
                ProbeView { reason: reason.clone(), phase, stopped_by_client: is_clients, ..sample::probe() };
            let exited = Some(Exited { code: Some(code) });
            show(&mut view, (&key(ProbeKind::Liveness), acting, exited), &status(None, None), setting);
            assert_eq!(view.reason, reason + added);
        }
    }

    #[test]
    fn a_reason_is_cut_at_a_character() {
        let mut view = sample::probe();
        let long = withheld_for(&"ü".repeat(REASON));
        let of = (&key(ProbeKind::Liveness), Acting::default(), None);
        show(&mut view, of, &status(Some(long), None), RestartOnExit::Never);
        assert_eq!(view.act.map(|act| act.reason.len()), Some(REASON));
    }

    #[test]
    fn all_of_a_probe_says_what_it_does_and_what_was_done() {
        let cause = ActCause::Probe(ProbeKind::Liveness);
        let record = ActRecord {
            at: sample::at(0).0,
            container: ContainerId::from("c0"),
            action: OnFailure::Restart,
            cause,
            end: Some(ActEnd::GivenUp("a client stopped or removed the container".to_owned())),
            took: Duration::from_secs(1),
            command: Some(CommandReport {
                exit_code: Some(0),
                output: BoundedText::from("dumped"),
                took: Duration::from_millis(300),
            }),
        };
        let limits = ActLimits {
            is_enabled: true,
            is_dry_run: false,
            restart_on_exit: RestartOnExit::Never,
            max_per_minute: 6,
            max_concurrent: 1,
        };
        let acting =
            Acting { asked: OnFailure::Restart, refusal: Some(ActRefusal::KubeletsPod), is_dry_run: false };
        let mut view = sample::detail();
        describe(&mut view, (&key(ProbeKind::Liveness), acting, None), &status(None, Some(record)), limits);
        insta::assert_json_snapshot!("probe_acts", view.acts);

        let dry = Acting { asked: OnFailure::Stop, refusal: None, is_dry_run: true };
        let mut view = sample::detail();
        describe(&mut view, (&key(ProbeKind::Liveness), dry, None), &ActsStatus::default(), limits);
        let acts = view.acts.unwrap();
        assert_eq!((&*acts.asked, &*acts.action, &*acts.refusal), ("stop", "report", DRY_RUN));

        let mut view = sample::detail();
        let nothing = ActsStatus::default();
        describe(&mut view, (&key(ProbeKind::Readiness), Acting::default(), None), &nothing, limits);
        assert_eq!(view, sample::detail(), "it only reports, and nothing was done");
    }
}
