//! `criprobe node status`: where the kubelet and crictl point, and who is connected to which socket.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{Check, Context, Error, Exit, RESTART, Site, failed};
use crate::{
    cli::{
        format::{self, Format},
        screen::{Paint, print},
        table::{Cell, Column, Table, Tight},
    },
    node::{
        edit::Settings,
        file::ConfigFile,
        kubelet::{self, Kubelet},
        peers::{self, Holder, Peers},
        plan::{CRICTL_IMAGE, CRICTL_RUNTIME, crictl_settings},
        sameness,
    },
    report::{printable::printable, view::StatusView},
};

/// The node as a whole.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeView {
    kubelet: PointerView,
    crictl: PointerView,
    /// criprobe's, then the runtime's.
    sockets: Vec<SocketView>,
    /// Why the sockets cannot be read; empty if they can.
    trouble: String,
}

/// Where one of them points.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct PointerView {
    /// Its process, if it runs.
    pid: Option<i32>,
    /// The endpoint; null if nothing sets it, or it cannot be found out.
    endpoint: Option<String>,
    /// `FILE:LINE`, or `the running kubelet`; empty if nothing sets it.
    from: String,
    /// Which socket that is.
    points_at: Target,
    /// The backup of a file that was switched.
    backup: Option<PathBuf>,
    /// What is wrong with the file; empty if nothing is.
    trouble: String,
}

/// Where somebody points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Target {
    /// The daemon's socket.
    Criprobe,
    /// The socket of the runtime behind it.
    Runtime,
    /// Any other.
    Other,
    /// There is no such client here, or nothing says where it points.
    #[default]
    Nothing,
    /// Its file cannot be read.
    Unknown,
}

/// Who is at a socket.
#[derive(Debug, Serialize)]
struct SocketView {
    /// `criprobe` or `runtime`.
    name: &'static str,
    path: PathBuf,
    listeners: Vec<HolderView>,
    clients: Vec<HolderView>,
}

/// A process at a socket.
#[derive(Debug, Serialize)]
struct HolderView {
    /// 0 if the process cannot be found.
    pid: i32,
    comm: String,
    /// How many connections it has; absent for one that listens.
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<usize>,
}

pub(super) async fn show(site: &Site, context: &Context, check: Option<Check>) -> Result<Exit, Error> {
    let daemon = context.client.get::<StatusView>("/v1/status").await.ok();
    let (mut kubelet, mut crictl) = (kubelet(site), crictl(site));
    let endpoint = daemon.map(|daemon| daemon.runtime.endpoint);
    let others = [&kubelet, &crictl].into_iter().filter(|one| one.points_at == Target::Other);
    let endpoint = endpoint.or_else(|| others.filter_map(|one| one.endpoint.clone()).next());
    let endpoint = endpoint.unwrap_or_else(|| kubelet::DEFAULT.to_owned());
    for one in [&mut kubelet, &mut crictl] {
        if one.endpoint.as_ref().is_some_and(|other| site.root.is_same_socket(other, &endpoint)) {
            one.points_at = Target::Runtime;
        }
    }
    let runtime = site.root.socket(&endpoint).unwrap_or_default();
    let (sockets, trouble) = match peers::at(&[&site.socket(), &runtime]) {
        Err(error) => (Vec::new(), format!("cannot tell who is connected: {error}")),
        Ok(peers) => {
            let named = [("criprobe", site.socket()), ("runtime", runtime)].into_iter().zip(peers);
            (named.map(|((name, path), peers)| socket(name, path, peers)).collect(), String::new())
        }
    };
    let view = NodeView { kubelet, crictl, sockets, trouble };
    print(&match context.format {
        Format::Json => format::json(&view),
        Format::Yaml => format::yaml(&view),
        Format::Table => text(&view, context, Some(context.screen.width)),
        Format::Wide => text(&view, context, None),
    })?;
    if check == Some(Check::Answering) {
        sameness::answers(&site.socket()).await.map_err(failed)?;
        return Ok(Exit::Fine);
    }
    let troubles = [&view.kubelet.trouble, &view.crictl.trouble, &view.trouble];
    let exit = troubles
        .into_iter()
        .filter(|trouble| !trouble.is_empty())
        .fold(Exit::Fine, |_, trouble| Exit::Failed.because(&printable(trouble)));
    let users = users(&view);
    match check {
        Some(Check::Unused) if !users.is_empty() => {
            Ok(Exit::Failed.because(&format!("in use: {}", users.join("; "))))
        }
        _ => Ok(exit),
    }
}

fn kubelet(site: &Site) -> PointerView {
    match Kubelet::find(&site.root, &site.places) {
        Err(error) => unknown(error.to_string(), None),
        Ok(kubelet) => {
            let flag = kubelet.flags.last().filter(|_| kubelet.is_by_flag());
            // A variable: the kubelet that runs shows its value.
            let flag = flag.filter(|flag| kubelet.running_flag.is_none() || !flag.value.starts_with('$'));
            let by_flag =
                flag.map(|flag| (flag.value.clone(), format!("{}:{}", flag.file.display(), flag.line)));
            let running = kubelet.running_flag.clone().map(|value| (value, "the running kubelet".to_owned()));
            let backup = kubelet.files.iter().map(ConfigFile::backup_path).find(|path| path.exists());
            let by_file = || match kubelet.setting() {
                Ok(Some((file, value))) => Ok(Some((value, place(file, kubelet::KEY)))),
                Ok(None) => Ok(None),
                Err(error) => Err(error.to_string()),
            };
            let found = by_flag.or(running).map_or_else(by_file, |found| Ok(Some(found)));
            let view = pointer(site, found, backup);
            if view.points_at == Target::Nothing && kubelet.is_there() {
                let (endpoint, points_at) = (Some(kubelet::DEFAULT.to_owned()), Target::Other);
                return PointerView { pid: kubelet.pid, endpoint, points_at, ..view };
            }
            PointerView { pid: kubelet.pid, ..view }
        }
    }
}

fn crictl(site: &Site) -> PointerView {
    let file = match site.crictl() {
        Ok(Some(file)) => file,
        Ok(None) => return PointerView::default(),
        Err(error) => return unknown(error.to_string(), None),
    };
    let found = match crictl_settings(&file) {
        Ok((runtime, image)) => {
            let is_ours = |value: &String| site.root.is_same_socket(value, &site.endpoint);
            let image = image.filter(|image| is_ours(image) && !runtime.as_ref().is_some_and(is_ours));
            let image = image.map(|value| (value, place(&file, CRICTL_IMAGE)));
            Ok(image.or_else(|| runtime.map(|value| (value, place(&file, CRICTL_RUNTIME)))))
        }
        Err(error) => Err(error.to_string()),
    };
    pointer(site, found, Some(file.backup_path()).filter(|path| path.exists()))
}

fn pointer(
    site: &Site,
    found: Result<Option<(String, String)>, String>,
    backup: Option<PathBuf>,
) -> PointerView {
    match found {
        Err(trouble) => unknown(trouble, backup),
        Ok(None) => PointerView { backup, ..PointerView::default() },
        Ok(Some((endpoint, from))) => PointerView {
            points_at: match site.root.is_same_socket(&endpoint, &site.endpoint) {
                true => Target::Criprobe,
                false => Target::Other,
            },
            endpoint: Some(endpoint),
            from,
            backup,
            ..PointerView::default()
        },
    }
}

fn unknown(trouble: String, backup: Option<PathBuf>) -> PointerView {
    PointerView { points_at: Target::Unknown, trouble, backup, ..PointerView::default() }
}

/// `FILE:LINE` of a setting.
fn place(file: &ConfigFile, key: &str) -> String {
    let line = Settings::read(file.text()).ok().and_then(|all| all.line(key));
    let line = line.map(|line| format!(":{line}")).unwrap_or_default();
    format!("{}{line}", file.path().display())
}

fn socket(name: &'static str, path: PathBuf, peers: Peers) -> SocketView {
    let view = |holder: Holder, connections| HolderView { pid: holder.pid, comm: holder.comm, connections };
    SocketView {
        name,
        path,
        listeners: peers.listeners.into_iter().map(|holder| view(holder, None)).collect(),
        clients: peers.clients.into_iter().map(|(holder, count)| view(holder, Some(count))).collect(),
    }
}

/// Who would notice if criprobe's socket were gone.
fn users(view: &NodeView) -> Vec<String> {
    let pointing = [("the kubelet", &view.kubelet), ("crictl", &view.crictl)].into_iter();
    let pointing = pointing.filter(|(_, one)| one.points_at == Target::Criprobe);
    let pointing = pointing.map(|(who, one)| format!("{who} points at criprobe in {}", one.from));
    let clients = view.sockets.iter().filter(|socket| socket.name == "criprobe");
    let clients =
        clients.flat_map(|socket| &socket.clients).map(|client| format!("{} is connected", holder(client)));
    pointing.chain(clients).map(|user| printable(&user).into_owned()).collect()
}

fn text(view: &NodeView, context: &Context, limit: Option<usize>) -> String {
    let column = |name, tight| Column { name, tight };
    let plain = |text: &str| Cell::new(&printable(text), Paint::Plain);
    let mut pointers = Table::new(vec![
        column("CLIENT", Tight::Stays),
        column("POINTS AT", Tight::Stays),
        column("ENDPOINT", Tight::Shrinks),
        column("FROM", Tight::Shrinks),
    ]);
    for (name, one) in [("kubelet", &view.kubelet), ("crictl", &view.crictl)] {
        let name = one.pid.map_or_else(|| name.to_owned(), |pid| format!("{name}[{pid}]"));
        let (what, paint) = match one.points_at {
            Target::Criprobe => ("criprobe", Paint::Good),
            Target::Runtime => ("runtime", Paint::Plain),
            Target::Other => ("other", Paint::Doubtful),
            Target::Nothing => ("nothing", Paint::Faint),
            Target::Unknown => ("unknown", Paint::Bad),
        };
        let from = if one.from.is_empty() && one.endpoint.is_some() { "default" } else { &one.from };
        pointers.row(vec![
            plain(&name),
            Cell::new(what, paint),
            plain(one.endpoint.as_deref().unwrap_or("-")),
            plain(if from.is_empty() { "-" } else { from }),
        ]);
    }
    let mut sockets = Table::new(vec![
        column("SOCKET", Tight::Stays),
        column("PATH", Tight::Shrinks),
        column("LISTENS", Tight::Stays),
        column("CONNECTED", Tight::Shrinks),
    ]);
    for socket in &view.sockets {
        let clients = socket.clients.iter().map(|client| match client.connections {
            Some(count @ 2..) => format!("{} ({count})", holder(client)),
            _ => holder(client),
        });
        let listed = |holders: Vec<String>| {
            if holders.is_empty() { "-".to_owned() } else { holders.join(", ") }
        };
        sockets.row(vec![
            plain(socket.name),
            plain(&shown(&socket.path)),
            plain(&listed(socket.listeners.iter().map(holder).collect())),
            plain(&listed(clients.collect())),
        ]);
    }
    let mut lines = pointers.render(context.screen, limit);
    for backup in [&view.kubelet, &view.crictl].into_iter().filter_map(|one| one.backup.as_ref()) {
        lines.push(format!("the former file is {}", printable(&shown(backup))));
    }
    if !view.sockets.is_empty() {
        lines.push(String::new());
        lines.extend(sockets.render(context.screen, limit));
    }
    let is_connected = |name| {
        let mut at = view.sockets.iter().filter(|socket| socket.name == name);
        at.any(|socket| socket.clients.iter().any(|client| client.comm == "kubelet"))
    };
    // Its endpoint for images may still be the runtime's; then it is connected to both.
    let is_criprobe = view.kubelet.points_at == Target::Criprobe;
    let stale = match is_criprobe {
        true => is_connected("runtime") && !is_connected("criprobe"),
        false => is_connected("criprobe"),
    };
    if stale {
        let to = if is_criprobe { "the runtime itself" } else { "criprobe" };
        lines.push(format!("the kubelet is still connected to {to}: {RESTART}"));
    }
    lines.join("\n") + "\n"
}

fn holder(holder: &HolderView) -> String {
    match holder.pid {
        0 => "unknown".to_owned(),
        pid => format!("{}[{pid}]", holder.comm),
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
