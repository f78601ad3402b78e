//! What the daemon listens on: the clients' socket, which may have been passed by the service manager, the API's, and a TCP
//! address. Nothing accepts here.

use std::{io, net::TcpListener, sync::Arc};

use thiserror::Error;

use super::errors::describe_error;
use crate::{
    config::Config,
    listen::{
        self, Access, Bound, ListenError, SocketFile,
        tcp::{self, TcpError},
    },
    manager::PassedSocket,
    report::rights::HttpRights,
};

/// Why the daemon did not start.
#[derive(Debug, Error)]
pub(crate) enum StartError {
    /// A socket could not be made.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The TCP address cannot be bound.
    #[error(transparent)]
    Tcp(#[from] TcpError),
    /// The kernel refused something that it never refuses.
    #[error("cannot start")]
    Io(#[from] io::Error),
}

/// What a daemon listens on.
pub(super) struct Bindings {
    pub(super) clients: Bound,
    /// The service manager keeps the clients' socket.
    pub(super) is_kept: bool,
    /// The API's socket.
    pub(super) api: Option<Bound>,
    /// The API's TCP address.
    pub(super) http: Option<(TcpListener, HttpRights)>,
    /// Why the API is not served where the configuration says, if it is not.
    pub(super) unserved: Option<String>,
}

impl Bindings {
    /// Binds the clients' socket, if it was not passed, and the API's. The first gets `lent`, the access of the runtime's,
    /// if that is there.
    ///
    /// With a passed socket, or connections to go on with, clients are waiting: neither trouble of the API nor a file that is
    /// gone keeps the relay from them.
    ///
    /// # Errors
    /// A socket cannot be made.
    pub(super) fn new(
        config: &Config,
        lent: Option<Access>,
        passed: Option<PassedSocket>,
        is_resumed: bool,
        node: &Arc<str>,
    ) -> Result<Self, StartError> {
        let has_clients = passed.is_some() || is_resumed;
        let make = |path| listen::bind(path, lent.unwrap_or(Access::PRIVATE), Some(&config.runtime));
        let (clients, is_kept) = match passed {
            None => (make(&config.listen)?, false),
            Some(PassedSocket { listener, path }) => {
                match listen::adopt(listener, &path, lent, &config.runtime) {
                    Err(gone @ ListenError::Gone(_)) => {
                        tracing::error!(note = %gone, "what the service manager passed does not fit");
                        (make(&path)?, false)
                    }
                    adopted => (adopted?, true),
                }
            }
        };
        let mut made: Vec<_> = (!is_kept).then(|| clients.file.clone()).into_iter().collect();
        let mut troubles = Vec::new();
        let api = listen::bind(&config.api.listen, api_access(config), Some(&config.runtime));
        let api = match api.map_err(StartError::from) {
            Ok(bound) => Some(bound),
            Err(error) if has_clients && !error.is_runtime_itself() => {
                troubles.push(error);
                None
            }
            Err(error) => {
                made.iter().for_each(remove);
                return Err(error);
            }
        };
        made.extend(api.iter().map(|bound| bound.file.clone()));
        let http = match http(config, node) {
            Ok(http) => http,
            Err(error) if has_clients => {
                troubles.push(error);
                None
            }
            Err(error) => {
                made.iter().for_each(remove);
                return Err(error);
            }
        };
        let troubles: Vec<_> = troubles.into_iter().map(|error| describe_error(&error.into())).collect();
        for trouble in &troubles {
            tracing::error!(
                trouble,
                "clients are served, but the API is not: mend this, and restart criprobe"
            );
        }
        let unserved = (!troubles.is_empty()).then(|| troubles.join("; "));
        Ok(Self { clients, is_kept, api, http, unserved })
    }

    /// The files that end with the daemon.
    pub(super) fn files(&self) -> Vec<SocketFile> {
        let clients = (!self.is_kept).then_some(&self.clients);
        clients.into_iter().chain(&self.api).map(|bound| bound.file.clone()).collect()
    }
}

impl StartError {
    /// Whether a path of ours is that of the runtime's socket.
    pub(super) fn is_runtime_itself(&self) -> bool {
        matches!(self, Self::Listen(ListenError::IsRuntime(_)))
    }
}

/// Binds the TCP address, if there is one.
fn http(config: &Config, node: &Arc<str>) -> Result<Option<(TcpListener, HttpRights)>, StartError> {
    let Some(address) = config.api.http else { return Ok(None) };
    let listener = tcp::bind(address)?;
    let address = listener.local_addr()?;
    let rights = HttpRights { address, page: config.api.page, node: node.clone() };
    let page = rights.serve_page();
    tracing::info!(http = %address, page, "serving TCP");
    if page && !rights.is_loopback() {
        tracing::warn!(
            http = %address,
            "api.page is always: anyone who can reach this address can read all commands, outputs of probes and calls"
        );
    }
    Ok(Some((listener, rights)))
}

/// Removes a socket's file; where that fails, the next start replaces it.
pub(super) fn remove(socket: &SocketFile) {
    if let Err(reason) = socket.unlink() {
        tracing::warn!(path = %socket.path().display(), %reason, "cannot remove the socket file");
    }
}

/// The access to the API: of root, or of root and a group.
fn api_access(config: &Config) -> Access {
    config.api.group.map_or(Access::PRIVATE, |gid| Access { mode: 0o660, uid: None, gid: Some(gid) })
}
