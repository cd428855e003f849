//! TLS: the peer must be the host of the URL, with a valid certificate, over a supported version. (T34, F23)

use std::sync::Arc;

use outlast_engine::egress::{EgressSettings, SendPhase};
use outlast_tests::certificates::{Authority, Identity, Recipe, Signer};
use outlast_tests::dns::{NameServer, addresses};
use outlast_tests::responder::{Responder, read_request};
use rustls::ServerConfig;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

use crate::scene::{OK, allowing, egress, send};

const HOST: &str = "hooks.example.test";
const GOOD: &str = "subjectAltName = DNS:hooks.example.test\n";

/// Answers over TLS as `identity`. The heads that it sees begin with the name that was asked for.
async fn serve(identity: Identity) -> Responder {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = provider.key_provider.load_private_key(identity.key).unwrap();
    // Without the check that a server would make of its own certificate.
    let certified = SingleCertAndKey::from(CertifiedKey::new(identity.chain, key));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(certified));
    let acceptor = TlsAcceptor::from(Arc::new(config));
    Responder::handling("127.0.0.2:0", move |stream, seen| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            let asked_for = stream.get_ref().1.server_name().unwrap_or("nobody").to_owned();
            while let Some(mut request) = read_request(&mut stream).await {
                request.head = format!("{asked_for} {}", request.head);
                seen.add(request);
                if stream.write_all(OK.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    })
    .await
}

/// Every name is 127.0.0.2; `authority` is trusted.
async fn trusting(authority: &Authority) -> (EgressSettings, NameServer) {
    let server = NameServer::start(60, |_| addresses(&["127.0.0.2"])).await;
    let nameservers = vec![server.address];
    (EgressSettings { nameservers, extra_roots: vec![authority.root()], ..allowing(&["127.0.0.2"]) }, server)
}

fn url(responder: &Responder, host: &str) -> String {
    format!("https://{host}:{}/", responder.address.port())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_the_operators_own_authority_is_taken() {
    let authority = Authority::new();
    let (settings, _server) = trusting(&authority).await;
    let egress = egress(settings);
    for (extensions, host, asked_for) in [
        (GOOD, HOST, HOST),
        (GOOD, "HOOKS.example.test.", HOST),
        ("subjectAltName = DNS:*.example.test\n", HOST, HOST),
        ("subjectAltName = IP:127.0.0.2\n", "127.0.0.2", "nobody"),
    ] {
        let responder = serve(authority.issue(Recipe::host(extensions))).await;

        for _ in 0..3 {
            let answer = send(&egress, &url(&responder, host)).await.unwrap_or_else(|error| panic!("{host}: {error}"));
            assert_eq!(answer.status, 200);
        }

        assert_eq!(responder.seen.connections(), 1, "connections are used again");
        assert!(responder.seen.requests()[0].head.starts_with(asked_for), "{:?}", responder.seen.requests()[0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_do_not_hold_are_refused_before_anything_is_sent() {
    let authority = Authority::new();
    let stranger = Authority::new();
    let (settings, _server) = trusting(&authority).await;
    let egress = egress(settings);
    let good = Recipe::host(GOOD);
    for (case, by, recipe) in [
        ("for another host", &authority, Recipe::host("subjectAltName = DNS:other.example.test\n")),
        ("for a name below", &authority, Recipe::host("subjectAltName = DNS:a.hooks.example.test\n")),
        ("for the name above", &authority, Recipe::host("subjectAltName = DNS:example.test\n")),
        ("a wildcard too high", &authority, Recipe::host("subjectAltName = DNS:*.test\n")),
        ("a wildcard below", &authority, Recipe::host("subjectAltName = DNS:*.hooks.example.test\n")),
        ("a wildcard in a label", &authority, Recipe::host("subjectAltName = DNS:h*.example.test\n")),
        ("for the address, not the name", &authority, Recipe::host("subjectAltName = IP:127.0.0.2\n")),
        ("the name as an e-mail domain", &authority, Recipe::host("subjectAltName = email:a@hooks.example.test\n")),
        (
            "the name as its subject only",
            &authority,
            Recipe { common_name: HOST, ..Recipe::host("basicConstraints = CA:FALSE\n") },
        ),
        ("of version 1", &authority, Recipe { common_name: HOST, ..Recipe::host("") }),
        ("expired", &authority, Recipe { made_at: Some("2020-01-01"), ..good }),
        ("not yet valid", &authority, Recipe { made_at: Some("2035-01-01"), ..good }),
        ("self-signed", &authority, Recipe { signer: Signer::Itself, ..good }),
        ("of a stranger", &stranger, good),
        ("signed by one who may not", &authority, Recipe { signer: Signer::Leaf, ..good }),
        (
            "for clients",
            &authority,
            Recipe::host("subjectAltName = DNS:hooks.example.test\nextendedKeyUsage = clientAuth\n"),
        ),
        (
            "for signing code",
            &authority,
            Recipe::host("subjectAltName = DNS:hooks.example.test\nextendedKeyUsage = codeSigning\n"),
        ),
        (
            "an authority's",
            &authority,
            Recipe::host("subjectAltName = DNS:hooks.example.test\nbasicConstraints = critical,CA:TRUE\n"),
        ),
        ("signed with an old digest", &authority, Recipe { digest: "-sha1", ..good }),
        (
            "an unknown critical extension",
            &authority,
            Recipe::host("subjectAltName = DNS:hooks.example.test\n1.2.3.4.5 = critical,ASN1:NULL\n"),
        ),
    ] {
        let responder = serve(by.issue(recipe)).await;

        let error = send(&egress, &url(&responder, HOST)).await.err().unwrap_or_else(|| panic!("{case}: it was taken"));

        assert_eq!(error.phase, SendPhase::Tls, "{case}: {error}");
        assert!(responder.seen.requests().is_empty(), "{case}");
        assert!(responder.seen.connections() > 0, "{case}: it was called");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_operators_file_its_authority_is_a_stranger() {
    let authority = Authority::new();
    let (settings, _server) = trusting(&authority).await;
    let egress = egress(EgressSettings { extra_roots: Vec::new(), ..settings });
    let responder = serve(authority.issue(Recipe::host(GOOD))).await;

    let error = send(&egress, &url(&responder, HOST)).await.unwrap_err();

    assert_eq!((error.phase, responder.seen.requests().len()), (SendPhase::Tls, 0), "{error}");
    assert!(error.message.starts_with("the certificate was refused"), "{error}");
}

// Old versions have to be spoken by hand: no library here does.
#[tokio::test(flavor = "multi_thread")]
async fn old_versions_of_tls_are_refused() {
    let authority = Authority::new();
    let (settings, _server) = trusting(&authority).await;
    let egress = egress(settings);
    for version in [[3, 0], [3, 1], [3, 2]] {
        let responder = Responder::handling("127.0.0.2:0", move |mut stream, _| async move {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(&server_hello(version)).await;
            while stream.read(&mut [0; 4096]).await.is_ok_and(|count| count > 0) {}
        })
        .await;

        let error = send(&egress, &url(&responder, HOST)).await.unwrap_err();

        assert_eq!(error.phase, SendPhase::Tls, "{error}");
        assert!(error.message.contains("handshake failed"), "it was refused, not late: {error}");
    }
}

/// A record with a ServerHello that chooses `version`, an RSA cipher and nothing else.
fn server_hello(version: [u8; 2]) -> Vec<u8> {
    let body = [&version[..], &[7; 32], &[0, 0x00, 0x2f, 0]].concat();
    let length = u8::try_from(body.len()).unwrap();
    [&[22], &version[..], &[0, length + 4, 2, 0, 0, length], &body].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_speaks_no_tls_is_refused_and_one_that_says_nothing_is_left_in_time() {
    let authority = Authority::new();
    let (mut settings, _server) = trusting(&authority).await;
    settings.deadlines.tls = std::time::Duration::from_millis(200);
    let egress = egress(settings);
    let plain = Responder::handling("127.0.0.2:0", |mut stream, _| async move {
        let _ = stream.write_all(OK.as_bytes()).await;
        while stream.read(&mut [0; 4096]).await.is_ok_and(|count| count > 0) {}
    })
    .await;
    let silent = Responder::handling("127.0.0.2:0", |mut stream, _| async move {
        while stream.read(&mut [0; 4096]).await.is_ok_and(|count| count > 0) {}
    })
    .await;

    for responder in [plain, silent] {
        let error = send(&egress, &url(&responder, HOST)).await.unwrap_err();
        assert_eq!(error.phase, SendPhase::Tls, "{error}");
    }
}
