//! From a URL to connections: host, TLS as libpq's `sslmode` means it, deadlines, the pool. Must never show a password.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Timeouts};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::options::OpenError;

/// How long a connection may take, DNS and TLS included.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(5);
/// A peer that has gone without a word is noticed within this.
const PEER_SILENT_MAX: Duration = Duration::from_secs(10);

/// Where the database is and how to talk to it.
#[derive(Clone)]
pub(super) struct ConnectTarget {
    config: Config,
    tls: MakeRustlsConnect,
    /// Host, port and database: what may be shown.
    pub(super) place: String,
}

impl ConnectTarget {
    pub(super) fn parse(url: &str) -> Result<ConnectTarget, OpenError> {
        let (plain, trust, root) = split_ssl(url)?;
        let mut config: Config =
            plain.parse().map_err(|error: tokio_postgres::Error| OpenError::Url(causes(&error)))?;
        if config.get_hosts().is_empty() {
            return Err(OpenError::Url("it names no host".to_owned()));
        }
        config.ssl_mode(match trust {
            Trust::Off => SslMode::Disable,
            Trust::IfOffered => SslMode::Prefer,
            Trust::Anybody | Trust::Signed | Trust::SignedForHost => SslMode::Require,
        });
        config
            .application_name("outlast")
            .connect_timeout(CONNECT_MAX)
            .keepalives_idle(PEER_SILENT_MAX)
            .tcp_user_timeout(PEER_SILENT_MAX);
        let place = place(&config);
        Ok(ConnectTarget { config, tls: MakeRustlsConnect::new(client_config(trust, root.as_deref())?), place })
    }

    /// `options` are settings each connection starts with; poolers mostly do not take them.
    pub(super) fn pool(&self, connections: usize, options: Option<&str>) -> Result<Pool, OpenError> {
        let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let mut config = self.config.clone();
        if let Some(options) = options {
            let given = config.get_options().map(|given| format!("{given} ")).unwrap_or_default();
            config.options(format!("{given}{options}"));
        }
        let manager = Manager::from_config(config, self.tls.clone(), manager);
        let timeouts =
            Timeouts { wait: Some(CONNECT_MAX), create: Some(CONNECT_MAX), recycle: Some(Duration::from_secs(1)) };
        Pool::builder(manager)
            .max_size(connections)
            .timeouts(timeouts)
            .runtime(deadpool_postgres::Runtime::Tokio1)
            .build()
            .map_err(|error| OpenError::Url(error.to_string()))
    }

    /// One connection outside the pool, with the address it has on this side. `None` where there is none: a Unix socket.
    pub(super) async fn connect(&self) -> Result<(Client, Option<SocketAddr>), OpenError> {
        let connecting = async {
            match self.config.get_hosts() {
                [Host::Tcp(host)] => self.connect_tcp(host).await,
                _ => {
                    let (client, connection) = self.config.connect(self.tls.clone()).await?;
                    tokio::spawn(connection);
                    Ok((client, None))
                }
            }
        };
        let silent = || OpenError::Silent { place: self.place.clone(), seconds: CONNECT_MAX.as_secs() };
        let unreachable = |source| OpenError::Unreachable { place: self.place.clone(), source };
        tokio::time::timeout(CONNECT_MAX, connecting).await.map_err(|_| silent())?.map_err(unreachable)
    }

    async fn connect_tcp(&self, host: &str) -> Result<(Client, Option<SocketAddr>), tokio_postgres::Error> {
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        #[expect(clippy::disallowed_methods, reason = "the operator names the database")]
        let connecting = TcpStream::connect((host, port));
        let Ok(stream) = connecting.await else {
            // Once more the driver's way, which gives the error in its words.
            let (client, connection) = self.config.connect(self.tls.clone()).await?;
            tokio::spawn(connection);
            return Ok((client, None));
        };
        let local = stream.local_addr().ok();
        let Ok(tls) = MakeTlsConnect::<TcpStream>::make_tls_connect(&mut self.tls.clone(), host);
        let (client, connection) = self.config.connect_raw(stream, tls).await?;
        tokio::spawn(connection);
        Ok((client, local))
    }
}

/// libpq's `sslmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    /// `disable`
    Off,
    /// `prefer`
    IfOffered,
    /// `require`: encrypted, without verification of the server.
    Anybody,
    /// `verify-ca`
    Signed,
    /// `verify-full`
    SignedForHost,
}

/// Takes `sslmode` and `sslrootcert` out of the URL, since the driver knows only some of their values.
fn split_ssl(url: &str) -> Result<(String, Trust, Option<String>), OpenError> {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let (mut trust, mut root, mut rest) = (Trust::IfOffered, None, Vec::new());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("sslmode", mode)) => {
                trust = match mode {
                    "disable" => Trust::Off,
                    "allow" | "prefer" => Trust::IfOffered,
                    "require" => Trust::Anybody,
                    "verify-ca" => Trust::Signed,
                    "verify-full" => Trust::SignedForHost,
                    other => {
                        let allowed = "disable, prefer, require, verify-ca and verify-full";
                        return Err(OpenError::Url(format!("sslmode is {other:?}; allowed are {allowed}")));
                    }
                }
            }
            Some(("sslrootcert", path)) => root = Some(path.replace("%2F", "/").replace("%2f", "/")),
            _ => rest.push(pair),
        }
    }
    let query = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
    Ok((format!("{base}{query}"), trust, root))
}

fn client_config(trust: Trust, root: Option<&str>) -> Result<ClientConfig, OpenError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let bad = |error: rustls::Error| OpenError::Certificate(error.to_string());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(bad)?;
    let unverified = matches!(trust, Trust::Off | Trust::IfOffered | Trust::Anybody);
    if unverified {
        let verifier = Arc::new(AcceptAnyCertificate(provider));
        return Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth());
    }
    let roots = Arc::new(roots(root)?);
    if trust == Trust::Signed {
        let inner = rustls::client::WebPkiServerVerifier::builder_with_provider(roots, provider)
            .build()
            .map_err(|error| OpenError::Certificate(error.to_string()))?;
        let verifier = Arc::new(AnyHost(inner));
        return Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth());
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// The given file of certificates, or those of the system.
fn roots(path: Option<&str>) -> Result<RootCertStore, OpenError> {
    let mut store = RootCertStore::empty();
    match path {
        Some(path) => {
            let bad = |error: String| OpenError::Certificate(format!("{path}: {error}"));
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| bad(error.to_string()))? {
                store
                    .add(certificate.map_err(|error| bad(error.to_string()))?)
                    .map_err(|error| bad(error.to_string()))?;
            }
        }
        None => {
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    match store.is_empty() {
        true => {
            Err(OpenError::Certificate("there is no certificate to trust; name a file with sslrootcert".to_owned()))
        }
        false => Ok(store),
    }
}

/// Encryption without knowing the peer, which is what `prefer` and `require` mean to libpq and so to operators.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<rustls::crypto::CryptoProvider>);

type Verified = Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error>;

impl rustls::client::danger::ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(&self, text: &[u8], by: &CertificateDer<'_>, how: &DigitallySignedStruct) -> Verified {
        rustls::crypto::verify_tls12_signature(text, by, how, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(&self, text: &[u8], by: &CertificateDer<'_>, how: &DigitallySignedStruct) -> Verified {
        rustls::crypto::verify_tls13_signature(text, by, how, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A certificate that is signed, for whatever host.
#[derive(Debug)]
struct AnyHost(Arc<rustls::client::WebPkiServerVerifier>);

impl rustls::client::danger::ServerCertVerifier for AnyHost {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        use rustls::CertificateError::{NotValidForName, NotValidForNameContext};
        match self.0.verify_server_cert(end, between, host, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
                Ok(rustls::client::danger::ServerCertVerified::assertion())
            }
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(&self, text: &[u8], by: &CertificateDer<'_>, how: &DigitallySignedStruct) -> Verified {
        self.0.verify_tls12_signature(text, by, how)
    }

    fn verify_tls13_signature(&self, text: &[u8], by: &CertificateDer<'_>, how: &DigitallySignedStruct) -> Verified {
        self.0.verify_tls13_signature(text, by, how)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

fn place(config: &Config) -> String {
    let mut place = String::new();
    for (at, host) in config.get_hosts().iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let port = config.get_ports().get(at).or(config.get_ports().first()).copied().unwrap_or(5432);
        let _ = match host {
            Host::Tcp(name) => write!(place, "{comma}{name}:{port}"),
            Host::Unix(path) => write!(place, "{comma}{}:{port}", path.display()),
        };
    }
    let _ = write!(place, "/{}", config.get_dbname().unwrap_or_default());
    place
}

/// An error with everything behind it, since the driver's own text says little.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_of_a_url_has_no_password() {
        let target = ConnectTarget::parse("postgres://me:hush@db.example:6432/jobs?sslmode=disable").unwrap();

        assert_eq!(target.place, "db.example:6432/jobs");
    }

    #[test]
    fn every_sslmode_of_libpq_is_understood_and_others_are_refused_by_name() {
        for (mode, trust) in [
            ("disable", Trust::Off),
            ("prefer", Trust::IfOffered),
            ("require", Trust::Anybody),
            ("verify-ca", Trust::Signed),
            ("verify-full", Trust::SignedForHost),
        ] {
            let (plain, found, _) = split_ssl(&format!("postgres://h/d?sslmode={mode}&application_name=x")).unwrap();
            assert_eq!((plain.as_str(), found), ("postgres://h/d?application_name=x", trust));
        }
        let refused = split_ssl("postgres://h/d?sslmode=yes").unwrap_err().to_string();
        assert!(refused.contains("\"yes\"") && refused.contains("verify-full"), "{refused}");
    }
}
