//! Opens connections, and is the only place that may: to addresses that were checked, in turn, and checks the far end once
//! more when one is open. Then TLS, for the name that stands in the URL.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use super::settings::Deadlines;
use super::ssrf_guard::SsrfGuard;
use super::stream::Transport;
use super::target::Target;
use super::{SendError, SendPhase};

/// A name may have any number of addresses; more than these are not tried.
const ADDRESSES_TRIED_MAX: usize = 8;

pub(super) struct Dialer {
    tls: TlsConnector,
    deadlines: Deadlines,
}

impl Dialer {
    pub(super) fn new(extra_roots: &[CertificateDer<'static>], deadlines: Deadlines) -> Result<Dialer, rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            tracing::warn!("the system has no certificate authorities; https destinations need egress.ca_file");
        }
        for root in extra_roots {
            roots.add(root.clone())?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Dialer { tls: TlsConnector::from(Arc::new(config)), deadlines })
    }

    /// A connection to the first of the addresses that takes one, ready for requests to the target.
    pub(super) async fn dial(
        &self,
        target: &Target,
        addresses: &[SocketAddr],
        guard: &SsrfGuard,
        deadline: Instant,
    ) -> Result<Transport, SendError> {
        let connect_deadline = deadline.min(Instant::now() + self.deadlines.connect);
        let stream = connect(addresses, guard, connect_deadline).await?;
        let Some(name) = &target.server_name else { return Ok(Transport::Plain(stream)) };
        let tls_deadline = deadline.min(Instant::now() + self.deadlines.tls);
        self.encrypt(stream, name.clone(), tls_deadline).await
    }

    async fn encrypt(
        &self,
        stream: TcpStream,
        name: ServerName<'static>,
        deadline: Instant,
    ) -> Result<Transport, SendError> {
        match timeout_at(deadline, self.tls.connect(name, stream)).await {
            Ok(Ok(stream)) => Ok(Transport::Encrypted(Box::new(stream))),
            Ok(Err(error)) => Err(SendError::new(SendPhase::Tls, explain_tls(&error))),
            Err(_) => Err(SendError::new(SendPhase::Tls, "the TLS handshake was not complete in time")),
        }
    }
}

/// Tries one after the other. Each gets an equal share of the time that is left, so that one that does not answer does not
/// keep the others from being tried.
async fn connect(addresses: &[SocketAddr], guard: &SsrfGuard, deadline: Instant) -> Result<TcpStream, SendError> {
    let tried = addresses.len().min(ADDRESSES_TRIED_MAX);
    let mut failed = SendError::new(SendPhase::Connect, "the host has no address");
    for (address, left) in addresses.iter().zip((1..=tried).rev()) {
        let share = deadline.saturating_duration_since(Instant::now()) / u32::try_from(left).unwrap_or(u32::MAX);
        #[expect(clippy::disallowed_methods, reason = "the one place that opens connections; the address was checked")]
        let connecting = TcpStream::connect(*address);
        failed = match timeout_at(Instant::now() + share, connecting).await {
            Ok(Ok(stream)) => return verified(stream, guard),
            Ok(Err(error)) => SendError::new(SendPhase::Connect, explain_connect(&error)),
            Err(_) => SendError::new(SendPhase::Connect, "the host did not take the connection in time"),
        };
    }
    Err(failed)
}

fn verified(stream: TcpStream, guard: &SsrfGuard) -> Result<TcpStream, SendError> {
    let prepared = stream.peer_addr().and_then(|peer| stream.set_nodelay(true).map(|()| peer));
    match prepared {
        Ok(peer) if guard.allows(peer) => Ok(stream),
        Ok(_) => Err(SendError::blocked()),
        Err(error) => Err(SendError::new(SendPhase::Connect, explain_connect(&error))),
    }
}

fn explain_connect(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "the host refused the connection",
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => "the host reset the connection",
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => "there is no way to the host",
        io::ErrorKind::TimedOut => "the host did not take the connection in time",
        _ => "the host could not be connected to",
    }
}

fn explain_tls(error: &io::Error) -> String {
    let reason = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match reason {
        Some(reason @ rustls::Error::InvalidCertificate(_)) => format!("the certificate was refused: {reason}"),
        Some(reason) => format!("the TLS handshake failed: {reason}"),
        None => "the connection broke during the TLS handshake".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::TcpListener;

    use super::super::settings::EgressSettings;
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    fn guard(allowed: &[&str]) -> SsrfGuard {
        let allow_private_targets = allowed.iter().map(|block| block.parse().unwrap()).collect();
        SsrfGuard::new(&EgressSettings { allow_private_targets, ..EgressSettings::default() })
    }

    async fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    // (T02) Whatever came before, a connection whose far end is not allowed is dropped before a byte is sent.
    #[tokio::test]
    async fn the_far_end_is_checked_once_more() {
        let (_listener, address) = listener().await;

        let refused = connect(&[address], &guard(&[]), soon()).await.unwrap_err();

        assert_eq!(refused.phase, SendPhase::Blocked);
        connect(&[address], &guard(&["127.0.0.1/32"]), soon()).await.unwrap();
    }

    #[tokio::test]
    async fn addresses_are_tried_in_turn_and_only_so_many() {
        let (_listener, open) = listener().await;
        let (gone, closed) = listener().await;
        drop(gone);
        let guard = guard(&["127.0.0.1/32"]);

        connect(&[closed, closed, open], &guard, soon()).await.unwrap();
        let refused = connect(&[closed], &guard, soon()).await.unwrap_err();
        let too_late = connect(&[&[closed; ADDRESSES_TRIED_MAX][..], &[open]].concat(), &guard, soon()).await;

        assert_eq!((refused.phase, &*refused.message), (SendPhase::Connect, "the host refused the connection"));
        assert!(too_late.is_err());
    }
}
