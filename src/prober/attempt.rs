//! What one attempt of a worker does: a definition and a container in, one result out, after up to three tries. Never
//! judges by thresholds, and never remembers.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, OnceLock},
    time::Duration,
};

use super::{ProberSettings, variables::Variables};
use crate::{
    handler::{
        Fault, Outcome, cpu,
        exec::{After, Exec, PendingCall},
        go, grpc, http,
        lookup::Host,
        tcp,
    },
    ids::ProbeKey,
    inventory::pod::{Container, PodNetwork},
    results::{
        AttemptResult,
        exec_route::{ExecRoute, WhySync},
        phases::PhasesSlot,
        text::BoundedText,
    },
    spec::{
        ExecMode, ExecModeSetting, Handler, PortRef, ProbeSpec, Reach, Scheme,
        expand::{self, Env, Expansion, MAX_COMMAND, MAX_PODS_COMMAND},
        policy::is_never_a_pods,
        ports::DeclaredPorts,
    },
};

/// 3: how often an attempt is tried while it is an error, back to back (docs/kubelet-prober.md 5). Any result ends it.
const TRIES: u32 = 3;

/// 1 s: the kubelet's shortest period. Below it an error is tried once: the next attempt comes sooner than the kubelet's
/// would, and errors are what costs the runtime and us most, thirty a second of one probe.
const SHORTEST: Duration = Duration::from_secs(1);

/// One attempt to be made.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Whose it is.
    pub key: ProbeKey,
    /// What to do.
    pub spec: Arc<ProbeSpec>,
    /// On what.
    pub view: Arc<Container>,
    /// What its command needs of the container's environment.
    pub variables: Arc<Variables>,
    /// The ports that the container declares, read when an attempt first needs them.
    pub ports: Arc<OnceLock<DeclaredPorts>>,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptOutcome {
    /// The result of the last try.
    pub result: AttemptResult,
    /// What it said; of an error, why.
    pub output: BoundedText,
    /// Of the command, where there was one and it ended.
    pub exit_code: Option<i32>,
    /// Of the HTTP response, where there was one.
    pub status: Option<u16>,
    /// Of an error, the state that its event names: `unknown` or `failure`.
    pub error_state: &'static str,
    /// Whether it ended because the runtime was silent.
    pub is_unanswered: bool,
    /// Whether it could not be made because the runtime is away: that has events of its own.
    pub is_outage: bool,
    /// How many tries it took, from 1.
    pub tries: u32,
    /// Where the time of the last try went, of a command.
    pub phases: Option<PhasesSlot>,
    /// The route of the last try, of a command that reached the runtime.
    pub route: Option<ExecRoute>,
}

/// An attempt that was judged.
pub(crate) struct Attempted {
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// What the runtime still does for it. Its place is free when this has ended.
    pub pending: Option<PendingCall>,
}

/// What attempts are made with. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Handlers {
    pub(crate) exec: Exec,
    /// How commands are run.
    pub(crate) exec_mode: ExecModeSetting,
    pub(crate) node_ip: Option<IpAddr>,
}

impl Handlers {
    /// Those that the settings ask for; commands are run by `exec`.
    pub(crate) fn new(exec: &Exec, settings: &ProberSettings) -> Self {
        Self {
            exec: exec.with_grace(settings.exec_grace),
            exec_mode: settings.exec_mode,
            node_ip: settings.node_ip,
        }
    }

    /// The same under other settings.
    #[must_use]
    pub(crate) fn under(&self, settings: &ProberSettings) -> Self {
        Self {
            exec: self.exec.with_grace(settings.exec_grace),
            exec_mode: settings.exec_mode,
            node_ip: settings.node_ip,
        }
    }

    /// Makes one attempt, and waits until the runtime has nothing more to do for it. `ports`: those of the container, as
    /// far as they were read.
    pub(crate) async fn attempt(
        &self,
        spec: &ProbeSpec,
        view: &Container,
        variables: &Variables,
        ports: &OnceLock<DeclaredPorts>,
    ) -> AttemptOutcome {
        let Attempted { outcome, pending } = self.judge(spec, view, variables, ports).await;
        if let Some(pending) = pending {
            pending.await;
        }
        outcome
    }

    /// Tries a handler once for an act, and waits until the runtime has nothing more to do for it.
    pub(crate) async fn try_once(&self, spec: &ProbeSpec, view: &Container) -> AttemptOutcome {
        let (ports, variables, mut after) = (OnceLock::new(), Variables::default(), After::default());
        let ended = self.once(spec, Declared { view, ports: &ports }, &variables, &mut after).await;
        if let Some(pending) = after.pending {
            pending.await;
        }
        ended.into()
    }

    /// Makes one attempt, and returns as soon as it is judged. `ports`: as above.
    pub(crate) async fn judge(
        &self,
        spec: &ProbeSpec,
        view: &Container,
        variables: &Variables,
        ports: &OnceLock<DeclaredPorts>,
    ) -> Attempted {
        let (declared, mut after) = (Declared { view, ports }, After::default());
        let most = if spec.period < SHORTEST { 1 } else { TRIES };
        let mut tries = 1;
        // Section 5: only an error leads to another try, at once; any result ends it, a failure too.
        loop {
            match self.once(spec, declared, variables, &mut after).await {
                Err(fault) if fault.is_worth_another_try() && tries < most => tries += 1,
                ended => {
                    let After { pending, phases, route } = after;
                    let outcome = AttemptOutcome { tries, phases, route, ..ended.into() };
                    return Attempted { outcome, pending };
                }
            }
        }
    }

    /// One try, with a limit of its own: the timeout does not bound the three together.
    ///
    /// What is large is boxed, so that a tcpSocket attempt does not carry the room that a TLS handshake needs: it is
    /// moved several times before it begins, 5,000 times a second on a full node.
    async fn once(
        &self,
        spec: &ProbeSpec,
        declared: Declared<'_>,
        variables: &Variables,
        after: &mut After,
    ) -> Result<Outcome, Fault> {
        let view = declared.view;
        let pod = &view.pod.uid;
        match &spec.handler {
            Handler::Exec { command } => Box::pin(self.run(command, spec, view, variables, after)).await,
            Handler::TcpSocket { host, port } => {
                let port = declared.port(port)?;
                let host = self.host(host.as_deref(), port, spec.reach, declared)?;
                tcp::attempt(pod, host, port, spec.timeout).await
            }
            Handler::HttpGet(asked) => {
                let port = declared.port(&asked.port)?;
                let (name, address) = match self.host(asked.host.as_deref(), port, spec.reach, declared)? {
                    Host::Name(name) => (name.to_owned(), None),
                    // As it was written, where it was: the same address may be written in several ways.
                    Host::Address(ip) => (asked.host.clone().unwrap_or_else(|| ip.to_string()), Some(ip)),
                };
                let ports = declared.shared(asked.host.as_deref(), port);
                let target = http::Target {
                    pod,
                    is_secure: asked.scheme == Scheme::Https,
                    host: &name,
                    address,
                    port,
                    ports: ports.as_deref().map_or(http::Ports::Any, http::Ports::Only),
                    path: &asked.path,
                    headers: &asked.headers,
                };
                let attempt = Box::pin(http::attempt(&target, spec.timeout));
                cpu::limit(pod, spec.timeout, attempt).await
            }
            Handler::Grpc { port, service } => {
                let address = SocketAddr::new(self.pod_address(*port, spec.reach, declared)?, *port);
                let attempt = Box::pin(grpc::attempt(pod, address, service, spec.timeout));
                cpu::limit(pod, spec.timeout, attempt).await
            }
        }
    }

    /// Runs a command of a probe with the container's variables in it.
    async fn run(
        &self,
        command: &[String],
        spec: &ProbeSpec,
        view: &Container,
        variables: &Variables,
        after: &mut After,
    ) -> Result<Outcome, Fault> {
        if spec.is_literal {
            let command = Expansion::literal(command);
            return self.exec(command, spec, view, after).await;
        }
        let limit = match spec.reach {
            Reach::Declared => MAX_PODS_COMMAND,
            Reach::Any => MAX_COMMAND,
        };
        // A command is not run before its variables are known: it would be another one.
        let names = expand::names(command);
        let env = if names.is_empty() {
            Env::default()
        } else {
            variables.read(self.exec.runtime(), view, &names, limit).await?
        };
        let command = Expansion::new(command, &env, limit).map_err(Fault::target)?;
        self.exec(command, spec, view, after).await
    }

    /// Runs an expanded command as its probe, or else the operator, asks for; by ExecSync if the operator has switched
    /// sessions off.
    async fn exec(
        &self,
        command: Expansion<'_>,
        spec: &ProbeSpec,
        view: &Container,
        after: &mut After,
    ) -> Result<Outcome, Fault> {
        match (self.exec_mode, spec.exec_mode) {
            (ExecModeSetting::Never, Some(ExecMode::Session)) => {
                let outcome = self.exec.attempt(&view.id, command, spec.timeout, after).await;
                after.route = after.route.map(|_| ExecRoute::Fallback(WhySync::Off));
                outcome
            }
            (_, Some(ExecMode::Session)) | (ExecModeSetting::Session, None) => {
                let times = (spec.timeout, spec.period);
                Box::pin(self.exec.attempt_by_session(&view.id, command, times, after)).await
            }
            (_, Some(ExecMode::Sync)) | (ExecModeSetting::Sync | ExecModeSetting::Never, None) => {
                self.exec.attempt(&view.id, command, spec.timeout, after).await
            }
        }
    }

    /// Whom to dial: the host that is named, which the operator wrote or allowed, else the pod.
    fn host<'a>(
        &self,
        named: Option<&'a str>,
        port: u16,
        reach: Reach,
        declared: Declared<'_>,
    ) -> Result<Host<'a>, Fault> {
        match named {
            Some(name) => Ok(Host::of(name)),
            None => self.pod_address(port, reach, declared).map(Host::Address),
        }
    }

    /// Where the pod is. One whose address is not known is never dialled at the node's own loopback instead; and what is
    /// in the node's network reaches no port of the node's that its container does not declare, unless the operator
    /// says so.
    fn pod_address(&self, port: u16, reach: Reach, declared: Declared<'_>) -> Result<IpAddr, Fault> {
        match &declared.view.pod.network {
            PodNetwork::Pod(addresses) => match addresses.first().copied() {
                Some(address) if is_never_a_pods(address) => {
                    return Err(Fault::target(format_args!(
                        "the pod's address {address} cannot be that of a pod: link-local, multicast and unspecified \
                         addresses, and addresses that map to these or to loopback, are never probed"
                    )));
                }
                first => first,
            },
            PodNetwork::Host if reach == Reach::Declared && !declared.ports().declares(port) => {
                return Err(Fault::target(format_args!(
                    "the container does not declare port {port}: a pod in the node's network is probed only at ports \
                     that its container declares, unless a rule allows others"
                )));
            }
            PodNetwork::Host => {
                let unset = "the pod is in the node's network, and the node's address is not known: set prober.nodeIP";
                Some(self.node_ip.ok_or_else(|| Fault::target(unset))?)
            }
            PodNetwork::Unknown => None,
        }
        .ok_or_else(|| Fault::target("the pod's address is not known"))
    }
}

/// A container with the ports that it declares.
#[derive(Clone, Copy)]
struct Declared<'a> {
    view: &'a Container,
    ports: &'a OnceLock<DeclaredPorts>,
}

impl<'a> Declared<'a> {
    /// Reads them once: they may be thousands.
    fn ports(self) -> &'a DeclaredPorts {
        self.ports.get_or_init(|| DeclaredPorts::read(&self.view.annotations))
    }

    /// The port to go to, among those that the container declares where it is named.
    fn port(self, port: &PortRef) -> Result<u16, Fault> {
        let resolved = match port {
            PortRef::Number(_) => DeclaredPorts::default().resolve(port),
            PortRef::Name(_) => self.ports().resolve(port),
        };
        resolved.map_err(Fault::target)
    }

    /// The ports that a probe may be redirected to; none where that is any. A pod's own address is the pod's own business. A
    /// host that is named, and the node's network, are others', too: there it is the port that is probed, and what the
    /// container declares in the node's network. Also under a rule: it is not the operator who redirects.
    fn shared(self, named: Option<&str>, port: u16) -> Option<Vec<u16>> {
        match (named, &self.view.pod.network) {
            (Some(_), _) => Some(vec![port]),
            (None, PodNetwork::Pod(_)) => None,
            (None, PodNetwork::Host | PodNetwork::Unknown) => {
                Some(self.ports().numbers().chain([port]).collect())
            }
        }
    }
}

impl From<AttemptOutcome> for Attempted {
    fn from(outcome: AttemptOutcome) -> Self {
        Self { outcome, pending: None }
    }
}

impl AttemptOutcome {
    /// An attempt that was given up after so long, because others wait for its place: says nothing of the container. While the
    /// runtime `is_away`, that is why.
    pub(super) fn gave_way(held: Duration, is_away: bool) -> Self {
        if is_away {
            return Self { is_unanswered: false, ..Self::from(Err::<Outcome, _>(Fault::Silent)) };
        }
        let held = Duration::from_millis(u64::try_from(held.as_millis() / 100 * 100).unwrap_or(u64::MAX));
        let after = go::duration(held);
        let text =
            format_args!("gave up after {after}: too many attempts are slow, and others wait for a place");
        Self {
            result: AttemptResult::Error,
            output: BoundedText::of(text),
            exit_code: None,
            status: None,
            error_state: "unknown",
            is_unanswered: false,
            is_outage: false,
            tries: 1,
            phases: None,
            route: None,
        }
    }
}

impl From<Result<Outcome, Fault>> for AttemptOutcome {
    fn from(ended: Result<Outcome, Fault>) -> Self {
        match ended {
            Ok(outcome) => Self {
                result: outcome.judgement.into(),
                output: outcome.output,
                exit_code: outcome.exit_code,
                status: outcome.status,
                error_state: "",
                is_unanswered: false,
                is_outage: false,
                tries: 1,
                phases: None,
                route: None,
            },
            Err(fault) => Self {
                result: AttemptResult::Error,
                output: BoundedText::of(&fault),
                exit_code: None,
                status: None,
                error_state: fault.state(),
                is_unanswered: matches!(fault, Fault::Silent | Fault::Unanswered(_)),
                is_outage: matches!(fault, Fault::Silent | Fault::Away(_)),
                tries: 1,
                phases: None,
                route: None,
            },
        }
    }
}

#[cfg(test)]
mod tests;
