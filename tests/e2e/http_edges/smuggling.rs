//! Requests that are no HTTP, and requests that try to hide another one behind them. The hidden one deletes a queue.

use outlast_tests::server::Server;
use serde_json::json;

use super::LATE;
use crate::api::make_queue;
use crate::raw::{Raw, exchange};

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_http_are_refused() {
    let server = Server::fresh().await;
    for (what, bytes) in [
        ("TLS", &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"[..]),
        ("a hello", b"hello\r\n\r\n"),
        ("HTTP/0.9", b"GET /healthz\r\n\r\n"),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        ("HTTP/9.9", b"GET /healthz HTTP/9.9\r\nhost: x\r\n\r\n"),
        ("no version", b"GET /healthz FTP\r\nhost: x\r\n\r\n"),
        ("no method", b" /healthz HTTP/1.1\r\nhost: x\r\n\r\n"),
        ("a method with a control character", b"G\x01T /healthz HTTP/1.1\r\nhost: x\r\n\r\n"),
        ("a space in the URL", b"GET /healthz ?x HTTP/1.1\r\nhost: x\r\n\r\n"),
        ("a NUL in the URL", b"GET /healthz\0 HTTP/1.1\r\nhost: x\r\n\r\n"),
        ("a NUL in a header", b"GET /healthz HTTP/1.1\r\nhost: x\0y\r\n\r\n"),
        ("a space before the colon", b"GET /healthz HTTP/1.1\r\nhost : x\r\n\r\n"),
        ("a header without a name", b"GET /healthz HTTP/1.1\r\n: x\r\n\r\n"),
        ("a folded header", b"GET /healthz HTTP/1.1\r\nhost: x\r\na: b\r\n c\r\n\r\n"),
        ("a lone carriage return", b"GET /healthz HTTP/1.1\r\nhost: x\ra: b\r\n\r\n"),
        ("a response", b"HTTP/1.1 200 OK\r\n\r\n"),
        ("SMTP", b"EHLO example.com\r\n\r\n"),
        ("zeros", &[0; 64]),
        ("ones", &[0xff; 64]),
    ] {
        let mut raw = Raw::connect(&server.base).await.unwrap();
        raw.send(bytes).await;

        let rest = String::from_utf8_lossy(&raw.rest(LATE * 3).await).into_owned();

        assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 400"), "{what}: {rest}");
    }
    server.client().get("/readyz").await.unwrap().expect(200);
}

// T26: whatever the two lengths say, the hidden request is never carried out.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_hidden_behind_another_one_is_never_carried_out() {
    let server = Server::fresh().await;
    make_queue(&server.client(), "mail", json!({})).await;
    for (what, headers, body) in hidden_requests() {
        let mut raw = Raw::connect(&server.base).await.unwrap();
        raw.send(two_in_one(&server, headers, body)).await;

        let first = raw.answer().await;
        let rest = raw.rest(LATE * 3).await;

        let status = first.map_or(0, |answer| answer.status);
        assert!(matches!(status, 0 | 200 | 400 | 413), "{what}: {status}");
        assert!(rest.is_empty(), "{what}: a second answer: {}", String::from_utf8_lossy(&rest));
        server.client().get("/v1/queues/mail").await.unwrap().expect(200);
    }
    // The control: behind a request that has an end, the other one is a request like any other.
    let mut raw = Raw::connect(&server.base).await.unwrap();
    raw.send(two_in_one(&server, "content-length: 0", "HIDDEN")).await;
    assert_eq!((raw.answer().await.unwrap().status, raw.answer().await.unwrap().status), (200, 204));
}

/// A receive with these headers and this body, in which HIDDEN is replaced by a request that deletes the queue.
fn two_in_one(server: &Server, headers: &str, body: &str) -> String {
    let key = &server.launch().key;
    let head = format!("HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n");
    let body = body.replace("HIDDEN", &format!("DELETE /v1/queues/mail {head}\r\n"));
    let headers = headers.replace("LENGTH", &body.len().to_string());
    format!("POST /v1/queues/mail/receive {head}{headers}\r\n\r\n{body}")
}

/// The name of the case, the contradicting headers, and a body in which HIDDEN is replaced by the other request.
fn hidden_requests() -> Vec<(&'static str, &'static str, &'static str)> {
    vec![
        ("both lengths, short", "content-length: 4\r\ntransfer-encoding: chunked", "0\r\n\r\nHIDDEN"),
        ("both lengths, the other way round", "transfer-encoding: chunked\r\ncontent-length: 4", "0\r\n\r\nHIDDEN"),
        ("both lengths, long", "content-length: LENGTH\r\ntransfer-encoding: chunked", "0\r\n\r\nHIDDEN"),
        ("two lengths", "content-length: 0\r\ncontent-length: LENGTH", "HIDDEN"),
        ("two lengths in one", "content-length: 0, LENGTH", "HIDDEN"),
        ("a negative length", "content-length: -1", "HIDDEN"),
        ("a length with a sign", "content-length: +0", "HIDDEN"),
        ("a length in another base", "content-length: 0x0", "HIDDEN"),
        ("a length beyond all numbers", "content-length: 99999999999999999999999", "HIDDEN"),
        ("an empty length", "content-length:", "HIDDEN"),
        ("an unknown coding", "transfer-encoding: xchunked", "0\r\n\r\nHIDDEN"),
        ("chunked and then not", "transfer-encoding: chunked, identity", "0\r\n\r\nHIDDEN"),
        ("two codings", "transfer-encoding: chunked\r\ntransfer-encoding: identity", "0\r\n\r\nHIDDEN"),
        ("a vertical tab", "transfer-encoding: \x0bchunked", "0\r\n\r\nHIDDEN"),
        ("a chunk that is no number", "transfer-encoding: chunked", "zz\r\nHIDDEN"),
        ("a negative chunk", "transfer-encoding: chunked", "-1\r\nHIDDEN"),
        ("a chunk beyond all numbers", "transfer-encoding: chunked", "ffffffffffffffffff\r\nHIDDEN"),
        ("a chunk without an end", "transfer-encoding: chunked", "1\r\naHIDDEN"),
        ("a chunk with a sign", "transfer-encoding: chunked", "+0\r\n\r\nHIDDEN"),
        ("a chunk ended by a line feed", "transfer-encoding: chunked", "0\n\nHIDDEN"),
        (
            "a length in the trailer",
            "transfer-encoding: chunked\r\nconnection: close",
            "0\r\ncontent-length: 5\r\n\r\nHIDDEN",
        ),
    ]
}

// RFC 9112: what two readers may understand differently is refused, and the connection ends.
#[tokio::test(flavor = "multi_thread")]
async fn an_ambiguous_head_is_refused() {
    let server = Server::fresh().await;
    make_queue(&server.client(), "mail", json!({})).await;
    let base = &server.nodes[0].base;
    let key = &server.launch().key;
    for (what, head, status) in [
        ("no host", "POST /v1/queues/mail/receive HTTP/1.1\r\nauthorization: Bearer KEY\r\n\r\n", 400),
        ("two hosts", "GET /healthz HTTP/1.1\r\nhost: x\r\nhost: x\r\n\r\n", 400),
        ("two hosts in HTTP/1.0", "GET /healthz HTTP/1.0\r\nhost: x\r\nhost: y\r\n\r\n", 400),
        ("no host in HTTP/1.0", "GET /healthz HTTP/1.0\r\n\r\n", 200),
        (
            "an encoding before chunked",
            "POST /v1/queues/mail/receive HTTP/1.1\r\nhost: x\r\nauthorization: Bearer KEY\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            501,
        ),
        (
            "two lines of encodings",
            "POST /v1/queues/mail/receive HTTP/1.1\r\nhost: x\r\nauthorization: Bearer KEY\r\ntransfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            501,
        ),
        (
            "both lengths",
            "POST /v1/queues/mail/receive HTTP/1.1\r\nhost: x\r\nauthorization: Bearer KEY\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (
            "both lengths, the other way round",
            "POST /v1/queues/mail/receive HTTP/1.1\r\nhost: x\r\nauthorization: Bearer KEY\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
            400,
        ),
        ("a bare line feed", "GET /healthz HTTP/1.1\r\nhost: x\na: b\r\n\r\n", 400),
        ("bare line feeds only", "GET /healthz HTTP/1.1\nhost: x\n\n", 400),
        ("a bare line feed at the end", "GET /healthz HTTP/1.1\r\nhost: x\r\n\n", 400),
        (
            "chunked",
            "POST /v1/queues/mail/receive HTTP/1.1\r\nhost: x\r\nauthorization: Bearer KEY\r\ntransfer-encoding: Chunked\r\n\r\n0\r\n\r\n",
            200,
        ),
    ] {
        let head = head.replace("KEY", key);
        let mut raw = Raw::connect(base).await.unwrap();
        raw.send(&head).await;
        assert_eq!(raw.answer().await.map(|answer| answer.status), Some(status), "{what}");
        if status >= 400 {
            assert!(raw.rest(LATE * 3).await.is_empty(), "{what}");
        }
        // As the second request of a connection, cut in the middle.
        let mut raw = Raw::connect(base).await.unwrap();
        raw.send("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert_eq!(raw.answer().await.map(|answer| answer.status), Some(200), "{what}");
        let (first, second) = head.split_at(head.len() / 2);
        raw.send(first).await;
        assert!(!raw.has_news_within(std::time::Duration::from_millis(20)).await, "{what}");
        raw.send(second).await;
        assert_eq!(raw.answer().await.map(|answer| answer.status), Some(status), "{what}, second");
    }
}

// T26: one way to name a route, and no header that renames it.
#[tokio::test(flavor = "multi_thread")]
async fn no_header_changes_the_method_or_the_path() {
    let server = Server::fresh().await;
    make_queue(&server.client(), "mail", json!({})).await;
    let key = &server.launch().key;
    let with = |line: &str, headers: &str| {
        format!("{line} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n{headers}connection: close\r\n\r\n")
    };
    for header in ["x-http-method-override", "x-http-method", "x-method-override"] {
        let answer = exchange(&server.base, with("POST /v1/queues/mail", &format!("{header}: DELETE\r\n"))).await;
        assert_eq!(answer.unwrap().status, 405, "{header}");
        let answer = exchange(&server.base, with("GET /v1/queues/mail?_method=DELETE", "")).await;
        assert_eq!(answer.unwrap().status, 400);
    }
    for header in ["x-original-url", "x-rewrite-url", "x-forwarded-prefix", "x-forwarded-path"] {
        let answer = exchange(&server.base, with("GET /healthz", &format!("{header}: /v1/keys\r\n"))).await.unwrap();
        assert_eq!(answer.json(), json!({"status": "alive"}), "{header}");
    }
    for (line, status) in [
        ("GET http://elsewhere.example/v1/queues/mail", 200),
        ("GET //v1/queues/mail", 404),
        ("GET /v1/./queues/mail", 404),
        ("GET /v1/x/../queues/mail", 404),
        ("GET /v1/queues/mail/", 404),
        ("GET /v1/queues/mail;x", 404),
        ("GET /v1/queues/mail%20", 404),
        ("GET /V1/QUEUES/MAIL", 404),
        ("get /v1/queues/mail", 405),
        ("OPTIONS *", 404),
        ("CONNECT x:80", 404),
    ] {
        let answer = exchange(&server.base, with(line, "")).await;
        assert_eq!(answer.map(|answer| answer.status), Some(status), "{line}");
    }
    server.client().get("/v1/queues/mail").await.unwrap().expect(200);
}

// Requests sent at once are answered one after the other, each on its own.
#[tokio::test(flavor = "multi_thread")]
async fn pipelined_requests_are_answered_in_order() {
    let server = Server::fresh().await;
    let mut raw = Raw::connect(&server.base).await.unwrap();
    let health = "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
    let nowhere = "POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello";

    raw.send(format!("{health}{nowhere}{health}")).await;
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(raw.answer().await.unwrap().status);
    }

    assert_eq!(statuses, [200, 404, 200]);
}
