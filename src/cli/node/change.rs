//! `criprobe node switch` and `revert`: the plan, the checks before it, and what was done, in lines.

use std::{fmt::Write, path::Path};

use super::{Context, Error, Exit, RESTART, Site, failed};
use crate::{
    cli::{
        format::Format,
        screen::{Paint, Screen, print},
    },
    node::{
        apply, is_same_file,
        kubelet::Kubelet,
        plan::{self, Plan, Step},
        sameness::{self, Proof},
    },
    report::{
        printable::printable,
        view::{RuntimeState, StatusView},
    },
};

pub(super) async fn switch(site: &Site, context: &Context, is_dry: bool) -> Result<Exit, Error> {
    check_format("switch", context.format)?;
    let kubelet = Kubelet::find(&site.root, &site.places).map_err(failed)?;
    let crictl = site.crictl()?;
    let plan = plan::switch(&site.root, &kubelet, crictl.as_ref(), &site.endpoint).map_err(failed)?;
    let mut text = notes(&plan);
    if plan.changes.is_empty() {
        print(&text)?;
        return Ok(Exit::Fine);
    }
    for change in &plan.changes {
        change.file.check().map_err(failed)?;
    }
    if is_dry {
        print(&diff(&plan, context.screen))?;
    }
    if let Some(proof) = checked(site, context, &plan).await? {
        let version = printable(&proof.version.name).into_owned() + " " + &printable(&proof.version.version);
        let shared = match proof.shared {
            0 => "the same socket, and no pods yet".to_owned(),
            1 => "1 pod is in both".to_owned(),
            shared => format!("{shared} pods are in both"),
        };
        let _ =
            writeln!(text, "the runtime behind criprobe is the one that is used now: {version}, {shared}");
    }
    done(&plan, text, is_dry, context.screen)
}

pub(super) fn revert(site: &Site, context: &Context, to: Option<&str>, is_dry: bool) -> Result<Exit, Error> {
    check_format("revert", context.format)?;
    if let Some(to) = to.filter(|to| site.root.is_same_socket(to, &site.endpoint)) {
        return Err(Error::Usage(format!("--to {to} is criprobe's own socket: name the runtime's")));
    }
    let kubelet = Kubelet::find(&site.root, &site.places).map_err(failed)?;
    let crictl = site.crictl()?;
    let plan = plan::revert(&site.root, &kubelet, crictl.as_ref(), &site.endpoint, to).map_err(failed)?;
    let mut text = notes(&plan);
    if plan.changes.is_empty() {
        text.push_str("nothing points at criprobe\n");
        print(&text)?;
        return Ok(Exit::Fine);
    }
    for change in &plan.changes {
        change.file.check().map_err(failed)?;
    }
    if is_dry {
        print(&diff(&plan, context.screen))?;
    }
    done(&plan, text, is_dry, context.screen)
}

/// Makes sure that clients reach the same runtime through criprobe as until now.
async fn checked(site: &Site, context: &Context, plan: &Plan<'_>) -> Result<Option<Proof>, Error> {
    let status: StatusView = context.client.get("/v1/status").await?;
    let (listen, socket) = (site.root.socket(&status.listen), site.socket());
    if !listen.is_some_and(|listen| listen == socket || is_same_file(&listen, &socket)) {
        return Err(failed(format!(
            "the daemon at {} listens on {}, not on {}: name its socket with --endpoint, or its API with --api",
            context.client.endpoint(),
            status.listen,
            site.endpoint,
        )));
    }
    if status.draining {
        return Err(Error::Declined("the daemon is stopping: start it again first".to_owned()));
    }
    if status.runtime.state == RuntimeState::Away {
        return Err(failed(format!("the runtime behind criprobe is away: {}", status.runtime.reason)));
    }
    let behind = site.root.socket(&status.runtime.endpoint).unwrap_or_default();
    let mut proof = None;
    for (who, endpoint) in &plan.used {
        let Some(used) = site.root.socket(endpoint) else {
            return Err(failed(format!("{who} uses {endpoint}, which is not a Unix socket")));
        };
        let same = sameness::compare(&socket, &behind, (who, &used)).await;
        proof = Some(same.map_err(failed)?);
    }
    Ok(proof)
}

/// Carries the plan out, unless this is only a try, and says so.
fn done(plan: &Plan<'_>, mut text: String, is_dry: bool, screen: Screen) -> Result<Exit, Error> {
    if is_dry {
        text.push_str("nothing was changed\n");
        print(&text)?;
        return Ok(Exit::Fine);
    }
    apply::carry_out(plan).map_err(failed)?;
    text.insert_str(0, &diff(plan, screen));
    for change in &plan.changes {
        let (path, backup) = (change.file.path().display(), change.file.backup_path());
        let _ = match change.step {
            Step::Replace => {
                writeln!(text, "changed {path}; the former file is {}", backup.display())
            }
            Step::SetBack => writeln!(text, "changed {path}"),
            Step::Restore => writeln!(text, "restored {path} from its backup"),
            Step::Forget => writeln!(text, "removed {}", backup.display()),
        };
    }
    if plan.is_kubelets {
        let _ = writeln!(text, "the kubelet uses it after a restart: {RESTART}");
    }
    print(&text)?;
    Ok(Exit::Fine)
}

fn notes(plan: &Plan<'_>) -> String {
    plan.notes.iter().map(|note| printable(note).into_owned() + "\n").collect()
}

/// The changed lines, in the form that patch(1) reads.
fn diff(plan: &Plan<'_>, screen: Screen) -> String {
    let mut text = String::new();
    for change in plan.changes.iter().filter(|change| !change.hunks.is_empty()) {
        let path = change.file.path();
        let _ = writeln!(text, "{}\n{}", header("---", path), header("+++", path));
        for hunk in &change.hunks {
            // Of no lines, the line before them.
            let range = |lines: &[String]| match lines.len() {
                0 => format!("{},0", hunk.line - 1),
                1 => hunk.line.to_string(),
                count => format!("{},{count}", hunk.line),
            };
            let _ = writeln!(text, "@@ -{} +{} @@", range(&hunk.old), range(&hunk.new));
            for (sign, lines, paint) in [('-', &hunk.old, Paint::Bad), ('+', &hunk.new, Paint::Good)] {
                for line in lines {
                    let line = format!("{sign}{}", printable(line).replace("\\t", "\t"));
                    let _ = writeln!(text, "{}", screen.paint(&line, paint));
                }
            }
        }
    }
    text
}

fn header(sign: &str, path: &Path) -> String {
    format!("{sign} {}", printable(&path.display().to_string()))
}

fn check_format(verb: &str, format: Format) -> Result<(), Error> {
    if format == Format::Table {
        return Ok(());
    }
    Err(Error::Usage(format!("'node {verb}' does not support -o: it prints a diff; 'node status' does")))
}
