//! What stands between driver and null runtime: nothing, criprobe, socat, nginx, HAProxy. Starts and ends them.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use criprobe::clock;

use crate::{call::Call, cgroups::Cgroups, client::Client, comparators, process::Process};

/// 10 s: what does not answer by then is left out.
const START: Duration = Duration::from_secs(10);

/// How the others are set up, in one line.
pub(crate) const SETTINGS: &str =
    "nginx: a worker a core, 128k buffers; HAProxy: http-reuse always; socat: fork, its 8 KiB blocks.";

/// A way from driver to runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Via {
    Direct,
    Criprobe,
    Socat,
    Nginx,
    Haproxy,
}

impl Via {
    pub(crate) const ALL: [Self; 5] = [Self::Direct, Self::Criprobe, Self::Socat, Self::Nginx, Self::Haproxy];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Criprobe => "criprobe",
            Self::Socat => "socat",
            Self::Nginx => "nginx",
            Self::Haproxy => "HAProxy",
        }
    }
}

/// Where things are.
pub(crate) struct Places {
    /// A scratch folder of this run.
    pub(crate) folder: PathBuf,
    /// The null runtime's socket.
    pub(crate) runtime: PathBuf,
    /// The program under test.
    pub(crate) criprobe: PathBuf,
    /// Where what is started runs; else in the cgroup of this program.
    pub(crate) cgroups: Option<Arc<Cgroups>>,
}

/// One of them, up and answering.
pub(crate) struct Middle {
    pub(crate) via: Via,
    pub(crate) version: String,
    pub(crate) socket: PathBuf,
    pub(crate) process: Option<Process>,
}

impl Middle {
    /// Starts it and waits until a call through it is answered.
    pub(crate) fn start(via: Via, places: &Places) -> Result<Self> {
        Self::spawn(via, places, via.name())?.answering()
    }

    /// Starts criprobe as `name`, with these variables, and waits as well.
    pub(crate) fn start_as(name: &str, places: &Places, settings: &[(&str, &OsStr)]) -> Result<Self> {
        let (socket, log) =
            (places.folder.join(format!("{name}.sock")), places.folder.join(format!("{name}.log")));
        let mut command = criprobe(places, name, &socket);
        command.envs(settings.iter().copied());
        if let Some(cgroups) = &places.cgroups {
            command = cgroups.wrap(&command);
        }
        let process = Some(Process::start(&mut command, &log)?);
        Self { via: Via::Criprobe, version: env!("CARGO_PKG_VERSION").into(), socket, process }.answering()
    }

    fn answering(self) -> Result<Self> {
        let mut middle = self;
        let deadline = clock::now() + START;
        loop {
            let answer = middle.try_call();
            if let Some(process) = &mut middle.process {
                process.ensure_running()?;
            }
            match answer {
                Ok(()) => return Ok(middle),
                Err(error) if clock::now() > deadline => return Err(error),
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Starts it as `name` and does not wait.
    pub(crate) fn spawn(via: Via, places: &Places, name: &str) -> Result<Self> {
        let socket = places.folder.join(format!("{name}.sock"));
        let log = places.folder.join(format!("{name}.log"));
        let (mut command, version) = match via {
            Via::Direct => {
                let socket = places.runtime.clone();
                return Ok(Self { via, version: String::new(), socket, process: None });
            }
            Via::Criprobe => (criprobe(places, name, &socket), env!("CARGO_PKG_VERSION").into()),
            Via::Socat => {
                let program = program("socat")?;
                (socat(&program, places, &socket), version(&program, "-V", "socat version ")?)
            }
            Via::Nginx => {
                let program = program("nginx")?;
                (nginx(&program, places, &socket)?, version(&program, "-v", "nginx/")?)
            }
            Via::Haproxy => {
                let program = program("haproxy")?;
                (haproxy(&program, places, &socket)?, version(&program, "-v", "HAProxy version ")?)
            }
        };
        if let Some(cgroups) = &places.cgroups {
            command = cgroups.wrap(&command);
        }
        Ok(Self { via, version, socket, process: Some(Process::start(&mut command, &log)?) })
    }

    fn try_call(&self) -> Result<()> {
        Client::connect(&self.socket, Call::Version, 1 << 20)?.call_once().map(drop)
    }
}

fn program(name: &str) -> Result<PathBuf> {
    comparators::find(name).with_context(|| format!("{name} is not installed"))
}

/// The word that follows `prefix` in what the program prints about itself.
fn version(program: &Path, flag: &str, prefix: &str) -> Result<String> {
    let output = Command::new(program).arg(flag).output()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let rest = text.split_once(prefix).map(|(_, rest)| rest);
    let word = rest.and_then(|rest| rest.split_whitespace().next()).unwrap_or("unknown");
    Ok(word.to_owned())
}

fn criprobe(places: &Places, name: &str, socket: &Path) -> Command {
    let url = |path: &Path| format!("unix://{}", path.display());
    let mut command = Command::new(&places.criprobe);
    command
        .arg("serve")
        .args(["--listen", &url(socket)])
        .args(["--runtime", &url(&places.runtime)])
        .args(["--api", &url(&places.folder.join(format!("{name}-api.sock")))])
        .env("CRIPROBE_STATE", places.folder.join(format!("{name}-state")));
    command
}

/// As people use it: a process a connection, buffers of 8 KiB.
fn socat(program: &Path, places: &Places, socket: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .arg(format!("UNIX-LISTEN:{},fork,backlog=128", socket.display()))
        .arg(format!("UNIX-CONNECT:{}", places.runtime.display()));
    command
}

fn nginx(program: &Path, places: &Places, socket: &Path) -> Result<Command> {
    let folder = places.folder.display();
    // Without the line, a worker of root's nginx may not open our sockets.
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path {folder}/nginx-{kind};\n"))
        .concat();
    let config = format!(
        "{user}
daemon off;
worker_processes {NGINX_WORKERS};
pid {folder}/nginx.pid;
error_log {folder}/nginx-error.log error;
events {{ worker_connections 4096; }}
http {{
{temporary}    access_log off;
    keepalive_requests 1000000000;
    upstream runtime {{
        server unix:{runtime};
        keepalive 256;
        keepalive_requests 1000000000;
    }}
    server {{
        listen unix:{socket} http2;
        client_max_body_size 0;
        location / {{
            grpc_pass grpc://runtime;
            grpc_buffer_size 128k;
        }}
    }}
}}
",
        runtime = places.runtime.display(),
        socket = socket.display(),
    );
    let path = places.folder.join("nginx.conf");
    fs::write(&path, config)?;
    let mut command = Command::new(program);
    command.arg("-p").arg(&places.folder).arg("-c").arg(path).arg("-e").arg("stderr");
    Ok(command)
}

/// As many as there are cores: with one worker nginx was slower in every pattern but one connection with one call in
/// flight, where both do alike (measured on two cores).
const NGINX_WORKERS: &str = "auto";

fn haproxy(program: &Path, places: &Places, socket: &Path) -> Result<Command> {
    let config = format!(
        "global
    maxconn 4096
defaults
    mode http
    timeout connect 10s
    timeout client 1h
    timeout server 1h
    http-reuse always
frontend clients
    bind unix@{socket} proto h2
    default_backend runtime
backend runtime
    server runtime unix@{runtime} proto h2
",
        runtime = places.runtime.display(),
        socket = socket.display(),
    );
    let path = places.folder.join("haproxy.cfg");
    fs::write(&path, config)?;
    let mut command = Command::new(program);
    command.arg("-db").arg("-f").arg(path);
    Ok(command)
}
