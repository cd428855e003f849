//! How the client finds its server and key, and reads what comes back.

use std::sync::mpsc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::display::Display;

/// Answers each connection with the next of `answers` and hands the requests out.
async fn server(answers: Vec<String>) -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, requests) = mpsc::channel();
    tokio::spawn(async move {
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 65_536];
            let length = stream.read(&mut request).await.unwrap();
            let _ = sender.send(String::from_utf8_lossy(&request[..length]).into_owned());
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    });
    (format!("http://{address}"), requests)
}

fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
}

fn client(url: &str) -> Client {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let remote = Remote {
        url: Some(url.to_owned()),
        key: Some("ol_test".to_owned()),
        data: None,
        config: None,
        timeout: Duration::from_secs(5),
        json: false,
    };
    Client::new(&remote, &Environment::default()).unwrap()
}

async fn check_refusal(status: &str, body: &str, exit: Exit, rendered: &str) {
    let (url, _requests) = server(vec![answer(status, body)]).await;

    let failure = client(&url).send(Call::get(&["v1", "queues", "mail"])).await.unwrap_err();

    assert_eq!(failure.exit, exit, "{status}");
    assert_eq!(failure.render(Display::PLAIN), rendered, "{status}");
}

#[tokio::test]
async fn refusals_become_messages_and_exit_codes() {
    check_refusal(
        "404 Not Found",
        r#"{"code":"queue_not_found","detail":"no such queue","status":404}"#,
        Exit::NotFound,
        "error: queue \"mail\" not found (queue_not_found)\nhint: `outlast queues list` shows the queues of this key's \
         namespace; `outlast queues create` creates one\n",
    )
    .await;
    check_refusal(
        "401 Unauthorized",
        r#"{"code":"unauthorized","detail":"the key is not valid","status":401}"#,
        Exit::Unauthorised,
        "error: the key is not valid (unauthorized)\nhint: the key given with --key is not valid for this server\n",
    )
    .await;
    check_refusal(
        "400 Bad Request",
        r#"{"code":"invalid_request","detail":"bad \u001b[31mfield","errors":[{"field":"maxAttempt","message":"unknown field"}]}"#,
        Exit::Refused,
        "error: bad \\u{1b}[31mfield (invalid_request)\n  maxAttempt: unknown field\n",
    )
    .await;
    check_refusal(
        "502 Bad Gateway",
        "<html>",
        Exit::Refused,
        "error: the server answered 502 Bad Gateway without an explanation\nhint: does --url point to an Outlast server?\n",
    )
    .await;
}

#[tokio::test]
async fn a_server_that_is_not_there_has_its_own_exit_code() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);

    let failure = client(&url).send(Call::get(&["v1", "queues"])).await.unwrap_err();

    assert_eq!(failure.exit, Exit::Unreachable);
    assert!(failure.is_temporary);
    assert!(failure.message.starts_with(&format!("cannot reach {url}: ")), "{}", failure.message);
}

#[tokio::test]
async fn an_expired_job_is_an_answer() {
    let (url, _requests) = server(vec![answer("410 Gone", r#"{"id":"j","status":"expired"}"#)]).await;

    let job = client(&url).job("j", &[], Duration::ZERO).await.unwrap();

    assert_eq!(job.json["status"], "expired");
}

#[tokio::test]
async fn a_request_carries_key_query_and_encoded_names() {
    let (url, requests) = server(vec![answer("200 OK", "{}")]).await;

    let path = ["v1", "queues", "a/b c"];
    client(&format!("{url}/prefix/")).send(Call::get(&path).query("tag.x", "1&2")).await.unwrap();

    let request = requests.recv().unwrap();
    assert!(request.starts_with("GET /prefix/v1/queues/a%2Fb%20c?tag.x=1%262 HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("authorization: Bearer ol_test\r\n"), "{request}");
}

#[tokio::test]
async fn a_name_cannot_lead_to_another_route() {
    for name in ["", ".", ".."] {
        let failure = client("http://127.0.0.1:1").send(Call::delete(&["v1", "keys", name])).await.unwrap_err();
        assert_eq!(failure.exit, Exit::Usage, "{name}");
    }
}

#[tokio::test]
async fn a_list_is_followed_through_empty_pages_to_its_limit() {
    let pages = vec![
        answer("200 OK", r#"{"items":[{"n":1.10}],"nextCursor":"a"}"#),
        answer("200 OK", r#"{"items":[],"nextCursor":"b"}"#),
        answer("200 OK", r#"{"items":[{"n":12345678901234567890123}],"nextCursor":"c"}"#),
    ];
    let (url, requests) = server(pages).await;

    let page = client(&url).list(&["v1", "jobs"], &[("queue", "q".to_owned())], None, 2).await.unwrap();

    assert_eq!(page.to_json().unwrap(), r#"{"items":[{"n":1.10},{"n":12345678901234567890123}],"nextCursor":"c"}"#);
    let asked: Vec<String> = requests.try_iter().map(|request| request.lines().next().unwrap().to_owned()).collect();
    assert_eq!(
        asked,
        [
            "GET /v1/jobs?queue=q&limit=2 HTTP/1.1",
            "GET /v1/jobs?queue=q&limit=1&cursor=a HTTP/1.1",
            "GET /v1/jobs?queue=q&limit=1&cursor=b HTTP/1.1",
        ]
    );
}
