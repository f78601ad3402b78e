//! Asks the daemon: a path in, a view or a stream of lines out. Never prints.

use std::{error::Error as _, io, time::Duration};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request, Response, StatusCode, Uri, body::Incoming};
use hyper_util::client::legacy;
use hyperlocal::{UnixClientExt, UnixConnector};
use serde::de::DeserializeOwned;

use super::{Error, access::who_may_open, endpoint::Endpoint};
use crate::report::view::ErrorView;

/// A client of one daemon.
pub(super) struct Client {
    endpoint: Endpoint,
    http: legacy::Client<UnixConnector, Full<Bytes>>,
}

/// 10 s for an answer, or for the head of a stream: the server answers within 5 s, or reports that it cannot.
const TIMEOUT: Duration = Duration::from_secs(10);

/// 128 MiB of an answer: 5,000 probes with 10 KiB of output each, escaped. A larger one is an error.
const MAX_ANSWER: usize = 128 << 20;

/// 32 MiB of a line: the longest message that a runtime takes is 16 MiB. A longer one is an error.
const MAX_LINE: usize = 32 << 20;

impl Client {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, http: legacy::Client::unix() }
    }

    /// Where the daemon is looked for.
    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Asks for a view.
    ///
    /// # Errors
    /// The daemon is not there, refuses, or answers something else.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.read(&self.answer(self.request(Method::GET, path, Bytes::new())?).await?)
    }

    /// Has something done, and gets a view of how it is then.
    ///
    /// # Errors
    /// The daemon is not there, refuses, or answers something else.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &serde_json::Value,
    ) -> Result<T, Error> {
        let request = self.request(Method::POST, path, body_of(body))?;
        self.read(&self.answer(request).await?)
    }

    /// Has something tried that may take its time, and gets a view of how it went. Dropped, it is given up.
    ///
    /// # Errors
    /// The daemon is not there, refuses, or answers something else.
    pub(super) async fn post_and_wait<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &serde_json::Value,
    ) -> Result<T, Error> {
        let request = self.request(Method::POST, path, body_of(body))?;
        self.read(&self.late_answer(request).await?)
    }

    /// Asks for a stream of views, one a line.
    ///
    /// # Errors
    /// The daemon is not there, or refuses.
    pub(super) async fn lines(&self, path: &str) -> Result<Lines<'_>, Error> {
        let response = self.in_time(self.open(path)).await?;
        Ok(Lines { client: self, body: response.into_body(), buffer: BytesMut::new(), scanned: 0 })
    }

    /// What is answered in time. Not generic, as is all that is called here: its code then exists once.
    async fn answer(&self, request: Request<Full<Bytes>>) -> Result<Bytes, Error> {
        self.in_time(self.late_answer(request)).await
    }

    async fn late_answer(&self, request: Request<Full<Bytes>>) -> Result<Bytes, Error> {
        self.whole(self.send(request).await?).await
    }

    fn read<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, Error> {
        serde_json::from_slice(body).map_err(|error| self.foreign(&error.to_string()))
    }

    async fn open(&self, path: &str) -> Result<Response<Incoming>, Error> {
        self.send(self.request(Method::GET, path, Bytes::new())?).await
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Error> {
        let response = self.http.request(request).await.map_err(|error| self.unreachable(&error))?;
        let code = response.status();
        if code == StatusCode::OK {
            return Ok(response);
        }
        let body = self.whole(response).await?;
        let reason = serde_json::from_slice::<ErrorView>(&body).map(|view| view.error);
        let reason = reason.unwrap_or_else(|_| format!("it answered {code}"));
        Err(match code {
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::PAYLOAD_TOO_LARGE => {
                Error::Usage(reason)
            }
            StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS => Error::Declined(reason),
            _ => Error::Refused(reason),
        })
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>, Error> {
        let request = Request::builder().method(method).uri(self.uri(path)?).body(Full::new(body));
        Ok(request.expect("a method and a whole URL make a request"))
    }

    async fn whole(&self, response: Response<Incoming>) -> Result<Bytes, Error> {
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        body.map(http_body_util::Collected::to_bytes).map_err(|error| self.foreign(&error.to_string()))
    }

    async fn in_time<T>(&self, answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        tokio::time::timeout(TIMEOUT, answer).await.unwrap_or_else(|_| {
            Err(self
                .unreachable_for(format!("no answer within {TIMEOUT:?}; the daemon is stuck or very busy")))
        })
    }

    /// hyperlocal's form of a URL: the host is the socket's path in hexadecimal.
    fn uri(&self, path: &str) -> Result<Uri, Error> {
        let socket = self.endpoint.path().as_os_str().as_encoded_bytes();
        let host: String = socket.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("unix://{host}:0{path}")
            .parse()
            .map_err(|error| Error::Usage(format!("cannot send these filters: {error}; use shorter ones")))
    }

    fn unreachable(&self, error: &legacy::Error) -> Error {
        let causes = std::iter::successors(error.source(), |&cause| cause.source());
        let io = causes.filter_map(|cause| cause.downcast_ref::<io::Error>()).next();
        match io {
            Some(io) if error.is_connect() => self.unreachable_for(self.connect_failure(io)),
            Some(_) | None => self.foreign(&innermost(error)),
        }
    }

    fn connect_failure(&self, error: &io::Error) -> String {
        match error.kind() {
            io::ErrorKind::NotFound => "the socket does not exist; is 'criprobe serve' running?".to_owned(),
            io::ErrorKind::ConnectionRefused => {
                "no process listens on it; is 'criprobe serve' running?".to_owned()
            }
            io::ErrorKind::PermissionDenied => {
                format!("permission denied; {} open it", who_may_open(self.endpoint.path()))
            }
            _ => format!("{error}; is 'criprobe serve' running?"),
        }
    }

    /// Something answered that does not speak as our API does.
    pub(super) fn foreign(&self, error: &str) -> Error {
        self.unreachable_for(format!("invalid answer ({error}); is this criprobe's API socket?"))
    }

    fn unreachable_for(&self, reason: String) -> Error {
        Error::Unreachable { endpoint: self.endpoint.clone(), reason }
    }
}

/// The text of a body; null is none.
fn body_of(body: &serde_json::Value) -> Bytes {
    if body.is_null() { Bytes::new() } else { body.to_string().into() }
}

fn innermost(error: &legacy::Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.last().map_or_else(|| error.to_string(), ToString::to_string)
}

/// A stream of views, one a line.
pub(super) struct Lines<'a> {
    client: &'a Client,
    body: Incoming,
    buffer: BytesMut,
    /// So much of the buffer holds no end of a line.
    scanned: usize,
}

impl Lines<'_> {
    /// The next one; `None` when the stream has ended.
    ///
    /// # Errors
    /// It broke off, or is no stream of such views.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Error> {
        loop {
            if let Some(end) = self.buffer[self.scanned..].iter().position(|&byte| byte == b'\n') {
                let line = self.buffer.split_to(self.scanned + end + 1);
                self.scanned = 0;
                let view = serde_json::from_slice(&line);
                return view.map(Some).map_err(|error| self.client.foreign(&error.to_string()));
            }
            self.scanned = self.buffer.len();
            if self.scanned > MAX_LINE {
                return Err(self.client.foreign("an endless line"));
            }
            match self.body.frame().await {
                None => return Ok(None),
                // The daemon went without a farewell.
                Some(Err(_)) => return Err(Error::Ended(self.client.endpoint.clone())),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}
