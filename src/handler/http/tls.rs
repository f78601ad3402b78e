//! TLS for probes: any certificate is accepted. In: a connection. Out: the stream over it, or the error in Go's words.
//! At least TLS 1.2; offers HTTP/2 and HTTP/1.1, and the curves X25519, P-256 and P-384.

use std::{
    io,
    net::Ipv4Addr,
    sync::{Arc, LazyLock},
    time::Duration,
};

use tokio::time;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        AlertDescription, ClientConfig, DigitallySignedStruct, Error, NamedGroup, SignatureScheme,
        client::{
            Resumption,
            danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        },
        crypto::ring,
        pki_types::{CertificateDer, ServerName, UnixTime},
        time_provider::TimeProvider,
        version::{TLS12, TLS13},
    },
};

use super::connect::broken;
use crate::handler::{
    dial::Connection,
    watched::{Watch, Watched},
};

/// 10 s: what a handshake may take of a longer timeout (docs/kubelet-prober.md 7.3).
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// 250 ms before a redirect is followed after a handshake with P-384. Its two operations take 1 ms of CPU; those of X25519
/// and P-256 take 0.1 ms (ring 0.17 on a Xeon). A kubelet accepts the curve, too, so it stays on offer; but it is the server
/// that insists on it, and that redirects. Without a pause, ten handshakes per attempt let one pod use a core. With it, an
/// attempt makes at most four per second, and counts as slow when it makes all ten.
const PAUSE: Duration = Duration::from_millis(250);

static CONFIG: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| Arc::new(config()));

/// A stream over TLS.
pub(super) type Secured = TlsStream<Watched<Beginning>>;

/// Greets the server. `host` becomes the server's name, unless it is an address.
///
/// # Errors
/// In Go's words.
pub(super) async fn secure(connection: Connection, host: &str) -> Result<Secured, String> {
    let watched = Watched::new(connection, Beginning::default());
    let connector = TlsConnector::from(Arc::clone(&CONFIG));
    let handshake = connector.connect(server_name(host), watched).into_fallible();
    match time::timeout(HANDSHAKE_LIMIT, handshake).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err((error, watched))) => Err(describe_error(&error, &watched)),
        Err(_elapsed) => Err("net/http: TLS handshake timeout".to_owned()),
    }
}

/// Whether the server chose HTTP/2.
pub(super) fn chose_http2(stream: &Secured) -> bool {
    stream.get_ref().1.alpn_protocol() == Some(b"h2")
}

/// How long to wait before the attempt makes another handshake.
pub(super) fn pause_after(stream: &Secured) -> Duration {
    let group = stream.get_ref().1.negotiated_key_exchange_group();
    if group.is_some_and(|group| group.name() == NamedGroup::secp384r1) { PAUSE } else { Duration::ZERO }
}

/// An error of an established stream.
pub(super) fn read_error(stream: &Secured, error: &io::Error) -> String {
    describe_error(error, stream.get_ref().0)
}

/// An address as a name is what makes rustls send no name.
fn server_name(host: &str) -> ServerName<'static> {
    let name = ServerName::try_from(host.trim_end_matches('.').to_owned());
    name.unwrap_or_else(|_| ServerName::IpAddress(Ipv4Addr::UNSPECIFIED.into()))
}

fn config() -> ClientConfig {
    let mut config = ClientConfig::builder_with_details(Arc::new(ring::default_provider()), Arc::new(NoTime))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .expect("ring's cipher suites serve both versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.resumption = Resumption::disabled();
    config
}

/// The epoch. Neither certificates nor tickets are looked at, so the time decides nothing; and reading it would panic
/// where a clock is set to before 1970.
#[derive(Debug)]
struct NoTime;

impl TimeProvider for NoTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::ZERO))
    }
}

/// Takes any certificate, also one that webpki cannot read (X.509 v1), and so any signature made with it: who accepts
/// every key learns nothing from its signature.
#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    /// Those that Go's client offers, in its order.
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![
            SignatureScheme::RSA_PSS_SHA256,
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::ED25519,
            SignatureScheme::RSA_PSS_SHA384,
            SignatureScheme::RSA_PSS_SHA512,
            SignatureScheme::RSA_PKCS1_SHA256,
            SignatureScheme::RSA_PKCS1_SHA384,
            SignatureScheme::RSA_PKCS1_SHA512,
            SignatureScheme::ECDSA_NISTP384_SHA384,
            SignatureScheme::ECDSA_NISTP521_SHA512,
        ]
    }
}

/// How a peer began, to distinguish one that speaks plain HTTP from one that speaks bad TLS.
#[derive(Debug, Default)]
pub(super) struct Beginning {
    first: [u8; 5],
    seen: usize,
}

impl Watch for Beginning {
    fn on_read(&mut self, octets: &[u8]) {
        for (place, octet) in self.first.iter_mut().skip(self.seen).zip(octets) {
            *place = *octet;
            self.seen += 1;
        }
    }
}

/// Why a stream broke, in Go's words where it has some for it.
fn describe_error(error: &io::Error, watched: &Watched<Beginning>) -> String {
    let Beginning { first, seen } = watched.watch();
    if first == b"HTTP/" {
        return "http: server gave HTTP response to HTTPS client".to_owned();
    }
    if *seen == first.len() && !begins_a_handshake(*first) {
        return "tls: first record does not look like a TLS handshake".to_owned();
    }
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::AlertReceived(alert)) => format!("remote error: tls: {}", alert_text(*alert)),
        Some(other) => format!("tls: {other}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        None => broken(watched.connection(), "read", error),
    }
}

/// The first record is a handshake or an alert, of a version that exists.
fn begins_a_handshake(first: [u8; 5]) -> bool {
    matches!(first[0], 21 | 22) && first[1] < 0x10
}

/// An alert as Go names it: mostly its name in RFC 8446 in words.
fn alert_text(alert: AlertDescription) -> String {
    let own = match alert {
        AlertDescription::BadRecordMac => "bad record MAC",
        AlertDescription::CertificateExpired => "expired certificate",
        AlertDescription::CertificateRevoked => "revoked certificate",
        AlertDescription::CertificateUnknown => "unknown certificate",
        AlertDescription::DecodeError => "error decoding message",
        AlertDescription::DecryptError => "error decrypting message",
        AlertDescription::InsufficientSecurity => "insufficient security level",
        AlertDescription::ProtocolVersion => "protocol version not supported",
        AlertDescription::UnknownCA => "unknown certificate authority",
        AlertDescription::UnknownPSKIdentity => "unknown PSK identity",
        AlertDescription::UnrecognisedName => "unrecognized name",
        AlertDescription::Unknown(number) => return format!("alert({number})"),
        _ => "",
    };
    if !own.is_empty() {
        return own.to_owned();
    }
    let mut text = String::new();
    for letter in format!("{alert:?}").chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push(' ');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}
