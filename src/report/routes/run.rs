//! `POST /v1/run`: a container and a probe definition in, the result of one attempt out. Records nothing. If the client
//! disconnects, the attempt is cancelled.

use std::sync::Arc;

use axum::{Json, Router, body::Bytes, extract::State, http::StatusCode, routing::post};

use super::{Refusal, Shared};
use crate::{
    prober::handle::{Listed, NotMade},
    report::{
        convert::run_view,
        lookup,
        view::{ContainerRef, RunView, joined},
    },
    spec::{
        ProbeSpec,
        run::{self, Trial},
        validate::exec_mode_refusal,
    },
};

/// `POST /v1/run`. Never on TCP. It may take as long as its attempt: its timeout three times, and the grace of an exec.
pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/v1/run", post(run))
}

async fn run(State(shared): State<Shared>, body: Bytes) -> Result<Json<RunView>, Refusal> {
    let prober = &shared.sources.prober;
    // First: whatever it costs to find out what is asked for, no more than these do it at once.
    let place =
        prober.place().map_err(|busy| Refusal::new(StatusCode::TOO_MANY_REQUESTS, busy.to_string()))?;
    let wrong = |reason| Refusal::new(StatusCode::BAD_REQUEST, reason);
    let text = str::from_utf8(&body).map_err(|_| wrong("the body is not UTF-8".to_owned()))?;
    let asked = run::read(text, &prober.limits()).map_err(wrong)?;
    let plans = prober.plans().await?;
    let listed = lookup::container(&asked.container, plans.iter().collect())?.clone();
    drop(plans);
    let spec = definition(asked.trial, &listed)?;
    let report = tokio::select! {
        biased;
        () = shared.drained.cancelled() => {
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the daemon is stopping".to_owned()));
        }
        report = place.attempt(&spec, &listed.view) => report.map_err(|reason| not_made(&listed, &reason))?,
    };
    Ok(Json(run_view(&report, spec.handler.name(), &listed.view)))
}

/// What is to be tried: as it was written, or as the container's own probe has it.
fn definition(trial: Trial, listed: &Listed) -> Result<ProbeSpec, Refusal> {
    let (kind, timeout, exec_mode) = match trial {
        Trial::Own(spec) => return Ok(*spec),
        Trial::Probe { kind, timeout, exec_mode } => (kind, timeout, exec_mode),
    };
    let container = ContainerRef::from(&*listed.view);
    let id = joined([&container.namespace, &container.pod, &container.container, kind.as_str()]);
    let planned = listed.planned(kind).ok_or_else(|| {
        let known: Vec<_> = listed.probes.iter().map(|planned| planned.kind.as_str()).collect();
        let known = if known.is_empty() { "no probe".to_owned() } else { known.join(" and ") };
        Refusal::new(StatusCode::NOT_FOUND, format!("no probe {id}: the container has {known}"))
    })?;
    let spec = planned.definition(&listed.view).map_err(|invalid| {
        Refusal::new(StatusCode::CONFLICT, format!("{id}: the probe is invalid: {invalid}"))
    })?;
    let mut spec = Arc::unwrap_or_clone(spec);
    if let Some(detail) = exec_mode.and_then(|_| exec_mode_refusal(spec.handler.name())) {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, format!("execMode: Forbidden: {detail}")));
    }
    spec.timeout = timeout.unwrap_or(spec.timeout);
    spec.exec_mode = exec_mode.or(spec.exec_mode);
    Ok(spec)
}

fn not_made(listed: &Listed, reason: &NotMade) -> Refusal {
    match reason {
        NotMade::Busy => Refusal::new(StatusCode::TOO_MANY_REQUESTS, reason.to_string()),
        NotMade::NotRunning(_) => {
            let id = ContainerRef::from(&*listed.view).id;
            Refusal::new(StatusCode::CONFLICT, format!("no attempt on {id} is possible: {reason}"))
        }
    }
}
