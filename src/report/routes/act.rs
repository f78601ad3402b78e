//! The routes that change a probe: pause, resume, trigger. In: its names in the path. Out: the probe after the change.

use axum::{Json, Router, extract::State, http::StatusCode, routing::post};

use super::{Names, Refusal, Shared, named};
use crate::{
    ids::ProbeKey,
    prober::command::{self, ProbeCommand},
    report::view::ProbeView,
};

/// `POST /v1/probes/.../pause` and its like. Never on TCP.
pub(super) fn routes() -> Router<Shared> {
    let probes = ["/v1/probes/{uid}/{container}/{type}", "/v1/probes/{namespace}/{pod}/{container}/{type}"];
    let mut routes = Router::new();
    for command in [ProbeCommand::Pause, ProbeCommand::Resume, ProbeCommand::Trigger] {
        for probe in probes {
            let act = move |shared: State<Shared>, names: Names| act(shared, names, command);
            routes = routes.route(&format!("{probe}/{}", word(command)), post(act));
        }
    }
    routes
}

async fn act(
    State(shared): State<Shared>,
    Names(names): Names,
    command: ProbeCommand,
) -> Result<Json<ProbeView>, Refusal> {
    let sources = &shared.sources;
    let probe = named(sources, &names).await?.probe;
    let Ok(kind) = probe.kind.parse() else {
        let reason = format!("a client runs the probe {}, criprobe only watches it", probe.id);
        return Err(Refusal::new(StatusCode::BAD_REQUEST, reason));
    };
    let key =
        ProbeKey { pod: probe.pod_uid.as_str().into(), container: probe.container.as_str().into(), kind };
    sources.prober.command(key, command).await?.map_err(|refusal| refused(&probe, &refusal))?;
    if shared.commands.admit() {
        tracing::info!(
            namespace = probe.namespace,
            pod = probe.pod,
            container = probe.container,
            probe.type = probe.kind,
            command = word(command),
            "operator command"
        );
    }
    Ok(Json(named(sources, &[probe.pod_uid, probe.container, probe.kind]).await?.probe))
}

fn refused(probe: &ProbeView, refusal: &command::CommandRefusal) -> Refusal {
    let code = match refusal {
        command::CommandRefusal::Unknown => StatusCode::NOT_FOUND,
        command::CommandRefusal::Invalid(_) | command::CommandRefusal::NotNow(_) => StatusCode::CONFLICT,
    };
    Refusal::new(code, format!("{}: {refusal}", probe.id))
}

/// The last part of its path.
fn word(command: ProbeCommand) -> &'static str {
    match command {
        ProbeCommand::Pause => "pause",
        ProbeCommand::Resume => "resume",
        ProbeCommand::Trigger => "trigger",
    }
}
