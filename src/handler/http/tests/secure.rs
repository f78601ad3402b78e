//! HTTPS: any certificate will do, the server may choose HTTP/2, and what is not TLS is reported in Go's words.
//!
//! `tests/data/prober/v1.der` is a certificate of X.509 v1, made with its key by OpenSSL 3.0:
//! `openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout v1.pem -subj /CN=v1.invalid -out
//! v1.csr && openssl x509 -req -in v1.csr -signkey v1.pem -days 1 -outform DER -out v1.der && openssl pkcs8 -topk8
//! -nocrypt -in v1.pem -outform DER -out v1.key.der`. It has expired, too, which must not matter either.

use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        NamedGroup, ServerConfig, SupportedProtocolVersion,
        crypto::{CryptoProvider, ring},
        pki_types::{CertificateDer, PrivateKeyDer},
        server::{ClientHello, ResolvesServerCert},
        sign::CertifiedKey,
        version::{TLS12, TLS13},
    },
    server::TlsStream,
};

use super::*;

/// Shows one certificate, whatever it is, and keeps the name that it was asked for.
#[derive(Debug)]
struct Shown {
    key: Arc<CertifiedKey>,
    names: Arc<Mutex<Vec<Option<String>>>>,
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.names.lock().unwrap().push(hello.server_name().map(str::to_owned));
        Some(Arc::clone(&self.key))
    }
}

fn certified(certificate: CertificateDer<'static>, key: &[u8]) -> Arc<CertifiedKey> {
    let key = PrivateKeyDer::Pkcs8(key.to_vec().into());
    let key = ring::sign::any_supported_type(&key).unwrap();
    Arc::new(CertifiedKey::new(vec![certificate], key))
}

fn made(change: impl FnOnce(&mut CertificateParams)) -> Arc<CertifiedKey> {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["other.invalid".to_owned()]).unwrap();
    change(&mut params);
    certified(params.self_signed(&key).unwrap().der().clone(), key.serialized_der())
}

pub(crate) fn of_another_name() -> Arc<CertifiedKey> {
    made(|_| {})
}

/// A server of TLS that hands each stream to `serve`.
pub(crate) struct Secure {
    pub(crate) address: SocketAddr,
    pub(crate) names: Arc<Mutex<Vec<Option<String>>>>,
}

impl Secure {
    pub(crate) async fn new<F, S>(
        key: Arc<CertifiedKey>,
        version: &'static SupportedProtocolVersion,
        alpn: &[&str],
        serve: F,
    ) -> Self
    where
        F: Fn(TlsStream<TcpStream>) -> S + Send + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        Self::with(ring::default_provider(), key, version, alpn, serve).await
    }

    async fn with<F, S>(
        provider: CryptoProvider,
        key: Arc<CertifiedKey>,
        version: &'static SupportedProtocolVersion,
        alpn: &[&str],
        serve: F,
    ) -> Self
    where
        F: Fn(TlsStream<TcpStream>) -> S + Send + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        let names = Arc::default();
        let resolver = Arc::new(Shown { key, names: Arc::clone(&names) });
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if let Ok(stream) = acceptor.accept(stream).await {
                    tokio::spawn(serve(stream));
                }
            }
        });
        Self { address, names }
    }

    async fn probe(&self, host: &str, headers: &[(&str, &str)]) -> Result<Outcome, Fault> {
        let headers: Vec<_> =
            headers.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        attempt(&Target { is_secure: true, headers: &headers, ..at(host, self.address) }, LIMIT).await
    }
}

/// Answers one request in HTTP/1.1 with its own first lines, and leaves without a word of TLS.
pub(crate) async fn http1(mut stream: TlsStream<TcpStream>) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut request).await.unwrap_or_default() == 0 {
            return;
        }
    }
    stream.write_all(&[b"HTTP/1.1 200 OK\r\n\r\n".as_slice(), &request].concat()).await.unwrap();
    stream.flush().await.unwrap();
}

/// Answers one request in HTTP/2 by its path.
async fn http2(stream: TlsStream<TcpStream>) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((request, mut answer))) = connection.accept().await {
        let said = format!("{:?} {} {:?}", request.version(), request.uri(), request.headers());
        let mut head = http::Response::new(());
        let body: bytes::Bytes = match request.uri().path() {
            "/reset" => {
                answer.send_reset(h2::Reason::INTERNAL_ERROR);
                continue;
            }
            "/long" => vec![b'x'; 20_480].into(),
            "/early" => {
                let early = http::Response::builder().status(http::StatusCode::EARLY_HINTS).body(()).unwrap();
                for _ in 0..5_000 {
                    answer.send_informational(early.clone()).unwrap();
                }
                "at last".into()
            }
            "/moved" => {
                *head.status_mut() = http::StatusCode::FOUND;
                head.headers_mut().insert("location", "/".parse().unwrap());
                bytes::Bytes::new()
            }
            "/short" => {
                head.headers_mut().insert("content-length", "10".parse().unwrap());
                "part".into()
            }
            _ => said.into(),
        };
        answer.send_response(head, false).unwrap().send_data(body, true).unwrap();
    }
}

#[tokio::test]
async fn any_certificate_will_do() {
    let v1 = || {
        let certificate = include_bytes!("../../../../tests/data/prober/v1.der");
        certified(certificate.to_vec().into(), include_bytes!("../../../../tests/data/prober/v1.key.der"))
    };
    let expired = || made(|params| params.not_after = date_time_ymd(2001, 2, 3));
    let not_yet = || made(|params| params.not_before = date_time_ymd(4000, 1, 1));
    let no_certificate = || {
        let key = KeyPair::generate().unwrap();
        certified(CertificateDer::from(b"no certificate".to_vec()), key.serialized_der())
    };
    for version in [&TLS12, &TLS13] {
        let rows = [
            ("self-signed, of another name", of_another_name()),
            ("expired", expired()),
            ("not valid yet", not_yet()),
            ("X.509 v1", v1()),
            ("none at all", no_certificate()),
        ];
        for (name, key) in rows {
            let server = Secure::new(key, version, &[], http1).await;
            let outcome = server.probe("127.0.0.1", &[]).await.unwrap();
            assert_eq!(outcome.judgement, Judgement::Success, "{name}: {}", text(&outcome));
        }
    }
}

#[tokio::test]
async fn the_urls_host_is_the_servers_name_unless_it_is_an_address() {
    let server = Secure::new(of_another_name(), &TLS13, &["http/1.1"], http1).await;
    let rows = [
        ("127.0.0.1", None),
        ("a.invalid", Some("a.invalid")),
        ("a_b.invalid.", Some("a_b.invalid")),
        ("::1", None),
    ];
    for (host, name) in rows {
        let outcome = server.probe(host, &[("Host", "b.invalid")]).await.unwrap();
        assert!(text(&outcome).contains("\r\nHost: b.invalid\r\n"));
        let names = std::mem::take(&mut *server.names.lock().unwrap());
        assert_eq!(names, [name.map(str::to_owned)], "{host}");
    }
}

#[tokio::test]
async fn a_server_may_choose_http2() {
    for alpn in [&["h2"][..], &["h2", "http/1.1"]] {
        let server = Secure::new(of_another_name(), &TLS13, alpn, http2).await;
        let outcome = server.probe("127.0.0.1", &[("X-Foo", "1")]).await.unwrap();
        let said = text(&outcome).to_owned();
        assert!(said.starts_with(&format!("HTTP/2.0 https://{}/ ", server.address)), "{said}");
        assert!(said.contains("kube-probe/1.36") && said.contains("\"x-foo\": \"1\""), "{said}");
        assert!(!said.contains("connection"), "{said}");
    }
}

#[tokio::test]
async fn answers_in_http2_are_judged_as_others() {
    let server = Secure::new(of_another_name(), &TLS13, &["h2"], http2).await;
    let ask = async |path| {
        attempt(&Target { is_secure: true, path, ..at("127.0.0.1", server.address) }, LIMIT).await
    };
    assert_eq!(ask("/long").await.unwrap().output.len(), OUTPUT_LIMIT);
    assert_eq!(text(&ask("/early").await.unwrap()), "at last", "a flood of 1xx is passed over");
    assert_eq!(ask("/moved").await.unwrap().judgement, Judgement::Success);
    let reset = ask("/reset").await.unwrap();
    let url = format!("Get \"https://{}/reset\"", server.address);
    assert_eq!(text(&reset), format!("{url}: stream error: stream ID 1; INTERNAL_ERROR; received from peer"));
    let short = ask("/short").await;
    assert_eq!(short, Err(Fault::Body("stream error: stream ID 1; PROTOCOL_ERROR".into())));
}

/// Redirects one request to where it was sent.
async fn circle(mut stream: TlsStream<TcpStream>) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut request).await.unwrap_or_default() == 0 {
            return;
        }
    }
    let _ = stream.write_all(b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n").await;
}

#[tokio::test]
async fn every_curve_is_accepted_and_redirects_wait_after_handshakes_that_take_long() {
    let groups = ring::default_provider().kx_groups;
    assert_eq!(groups.len(), 3, "X25519, P-256 and P-384");
    for group in groups {
        for version in [&TLS12, &TLS13] {
            let (name, provider) =
                (group.name(), CryptoProvider { kx_groups: vec![group], ..ring::default_provider() });
            let asked = Arc::new(AtomicUsize::new(0));
            let counter = Arc::clone(&asked);
            let serve = move |stream| {
                counter.fetch_add(1, Ordering::SeqCst);
                circle(stream)
            };
            let server = Secure::with(provider, of_another_name(), version, &[], serve).await;
            let outcome = server.probe("127.0.0.1", &[]).await.unwrap();
            assert!(text(&outcome).ends_with(": stopped after 10 redirects"), "{name:?}: {outcome:?}");
            if name == NamedGroup::secp384r1 {
                asked.store(0, Ordering::SeqCst);
                let target = Target { is_secure: true, ..at("127.0.0.1", server.address) };
                let _ = attempt(&target, Duration::from_millis(1100)).await;
                let handshakes = asked.load(Ordering::SeqCst);
                assert!((1..=5).contains(&handshakes), "{handshakes} in 1.1 s");
            }
        }
    }
}

#[tokio::test]
async fn what_is_no_tls_is_told_in_gos_words() {
    let rows: [(&[u8], bool, &str); 6] = [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", false, "http: server gave HTTP response to HTTPS client"),
        (b"SSH-2.0-OpenSSH\r\n", true, "tls: first record does not look like a TLS handshake"),
        (b"\x15\x03\x01\x00\x02\x02\x46", false, "remote error: tls: protocol version not supported"),
        (b"\x15\x03\x01\x00\x02\x02\x28", false, "remote error: tls: handshake failure"),
        (b"\x15\x03\x01\x00\x02\x02\x78", false, "remote error: tls: no application protocol"),
        (b"", false, "EOF"),
    ];
    for (bytes, holds, error) in rows {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut hello = vec![0; 4096];
            assert_ne!(stream.read(&mut hello).await.unwrap(), 0);
            stream.write_all(bytes).await.unwrap();
            if holds {
                while stream.read(&mut hello).await.is_ok_and(|count| count > 0) {}
            }
        });
        let outcome = attempt(&Target { is_secure: true, ..at("127.0.0.1", address) }, LIMIT).await.unwrap();
        let expected = format!("Get \"https://{address}/\": {error}");
        assert_eq!((outcome.judgement, text(&outcome)), (Judgement::Failure, expected.as_str()));
    }
}

#[tokio::test]
async fn a_handshake_that_hangs_is_a_failure_at_the_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let target = Target { is_secure: true, ..at("127.0.0.1", address) };
    let outcome = attempt(&target, Duration::from_millis(200)).await.unwrap();
    assert_eq!(text(&outcome), describe_error(format!("https://{address}/").as_bytes(), HEAD_TIMEOUT));
}
