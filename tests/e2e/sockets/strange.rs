//! Behaviour of a socket with peers that break the protocol.

use std::time::Duration;

use outlast_tests::http::Client;
use outlast_tests::server::Server;
use outlast_tests::wait::within;
use outlast_tests::ws::{Heard, Refused, Ws};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

use crate::api::{make_queue, publish};
use crate::raw::Raw;
use crate::sockets::{NORMAL, cancel};

const PROTOCOL: u16 = 1002;
const INVALID: u16 = 1007;
const SIZE: u16 = 1009;

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_make_no_sense_are_answered_and_harm_nothing() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let mut socket = Ws::open(&client, &id, Some(1)).await;

    for text in ["", "x", "null", "[]", "{}", r#"{"type":1}"#, r#"{"type":"cancel "}"#, r#"{"type":"nack"}"#] {
        socket.send(Message::text(text)).await;
        let answer = socket.frame().await;
        assert_eq!((&answer["type"], &answer["code"]), (&json!("error"), &json!("invalid_request")), "{text:?}");
    }
    socket.send(Message::text("[".repeat(4000))).await;
    assert_eq!(socket.frame().await["type"], json!("error"));
    socket.send(Message::binary(vec![0xff; 100])).await;
    assert_eq!(socket.frame().await["type"], json!("error"));
    socket.send(cancel()).await;
    let (rest, code) = socket.rest().await;

    assert_eq!((rest.len(), code), (2, NORMAL));
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_that_break_the_protocol_close_the_socket_with_the_reason() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;

    let mut long = Ws::open(&client, &id, Some(1)).await;
    long.send(Message::text("x".repeat(5000))).await;
    assert_eq!(long.next().await, Heard::Closed(SIZE));

    // A text of one byte that is no UTF-8; one that is not masked; an opcode there is not; a ping in two parts; a
    // length of eight bytes that is past any memory.
    let cases: [(&[u8], u16); 5] = [
        (&[0x81, 0x81, 0, 0, 0, 0, 0xff], INVALID),
        (&[0x81, 0x01, b'x'], PROTOCOL),
        (&[0x83, 0x80, 0, 0, 0, 0], PROTOCOL),
        (&[0x09, 0x80, 0, 0, 0, 0], PROTOCOL),
        (&[0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0], SIZE),
    ];
    for (bytes, code) in cases {
        assert_eq!(closed_after(&client, &id, bytes).await, code, "{bytes:?}");
    }
    let untouched = client.get(&format!("/v1/jobs/{id}")).await.unwrap().expect(200);
    assert_eq!(untouched["status"], json!("queued"));
}

/// Sends bytes behind the handshake; the code the server closes with.
async fn closed_after(client: &Client, id: &str, bytes: &[u8]) -> u16 {
    let address = client.base.strip_prefix("http://").unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let mut stream = Ws::over(stream, client, id, Some(1)).await.unwrap().into_inner();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let _ = within(Duration::from_secs(20), stream.read_to_end(&mut answer)).await.expect("the server closes");
    assert_eq!(answer.first(), Some(&0x88), "a close and nothing before it: {answer:?}");
    u16::from_be_bytes([answer[2], answer[3]])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_no_handshake_gets_the_missing_header_named() {
    let server = Server::fresh().await;
    // A proxy would put some of it right.
    let client = server.client().at(&server.own_base);
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let whole = "upgrade: h2c, WebSocket\r\nconnection: keep-alive, Upgrade\r\nsec-websocket-version: 13\r\n\
                 sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

    for (version, from, to, field) in [
        ("1.1", "WebSocket", "other", "Upgrade"),
        ("1.0", "", "", "Upgrade"),
        ("1.1", ", Upgrade", "", "Connection"),
        ("1.1", "13", "8", "Sec-WebSocket-Version"),
        ("1.1", "Bub25j", "", "Sec-WebSocket-Key"),
    ] {
        let answer = ask_by_hand(&client, &id, version, &whole.replace(from, to)).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{field}");
        assert_eq!(answer.json()["errors"][0]["field"], json!(field));
    }
    let open = ask_by_hand(&client, &id, "1.1", whole).await;

    assert_eq!(open.status, 101);
    // The example of RFC 6455.
    assert_eq!(open.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(Ws::ask(&client, &id, Some(9)).await.err(), Some(Refused::Status(400)));
    let nobody = "01890000-0000-7000-8000-000000000000";
    assert_eq!(Ws::ask(&client, nobody, None).await.err(), Some(Refused::Status(404)));
    let stranger = Client::new(&client.base, "ol_nobody");
    assert_eq!(Ws::ask(&stranger, &id, None).await.err(), Some(Refused::Status(401)));
}

async fn ask_by_hand(client: &Client, id: &str, version: &str, headers: &str) -> crate::raw::Answer {
    let mut raw = Raw::connect(&client.base).await.unwrap();
    let key = &client.key;
    raw.send(format!("GET /v1/jobs/{id}/ws HTTP/{version}\r\nhost: x\r\nauthorization: Bearer {key}\r\n{headers}\r\n"))
        .await;
    raw.answer().await.expect("an answer")
}
