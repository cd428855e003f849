//! First contact: the address in a browser, `https` by mistake, data without its envelope, a wait for a result.

use outlast_tests::server::Server;
use reqwest::Method;
use serde_json::{Value, json};

use crate::api::{job, make_queue, publish, receive_one, settle, text};
use crate::raw::Raw;

// The address of the server in a browser shows a page, and says nothing that only holders of keys may know.
#[tokio::test(flavor = "multi_thread")]
async fn the_root_is_a_page_for_people() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "secret-queue", json!({})).await;

    for (accept, media_type) in
        [("text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", "text/html"), ("*/*", "text/plain"), ("", "text/plain")]
    {
        let mut raw = Raw::connect(&client.base).await.unwrap();
        let accept = if accept.is_empty() { String::new() } else { format!("accept: {accept}\r\n") };
        raw.send(format!("GET / HTTP/1.1\r\nhost: x\r\n{accept}\r\n")).await;
        let answer = raw.answer().await.unwrap();

        assert_eq!(answer.status, 200, "{}", answer.body);
        assert!(answer.header("content-type").unwrap().starts_with(media_type), "{}", answer.head);
        assert!(answer.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
        assert!(answer.body.contains("/openapi.json") && answer.body.contains("/healthz"), "{}", answer.body);
        for hidden in [env!("CARGO_PKG_VERSION"), "secret-queue", "ol_a", server.launch().key.as_str()] {
            assert!(!answer.body.contains(hidden), "{hidden} is in the page");
        }
    }
}

// TLS on a port that speaks plain HTTP is answered with what is wrong, and other connections go on.
#[tokio::test(flavor = "multi_thread")]
async fn https_to_the_plain_port_gets_an_explanation() {
    let server = Server::fresh().await;
    let client = server.client();
    // A hello of TLS 1.2, cut off: the first record is all that it takes.
    let mut raw = Raw::connect(&client.base).await.unwrap();
    raw.send([0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03]).await;

    let answer = raw.answer().await.unwrap();

    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("use http:// instead of https://"), "{}", answer.body);
    client.get("/healthz").await.unwrap().expect(200);
}

// The most frequent first mistake names its remedy.
#[tokio::test(flavor = "multi_thread")]
async fn a_payload_posted_bare_gets_an_error_that_names_its_field() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "mail", json!({})).await;
    let hint = "put your data under `payload`";

    for (body, field) in
        [(json!({"to": "ada@example.com"}), "to"), (json!([1, 2]), "body"), (json!("text"), "body"), (json!(7), "body")]
    {
        let reply = client.post("/v1/queues/mail/jobs", body.clone()).await.unwrap();
        let problem = reply.expect_problem(400, "invalid_request");
        let error = &problem["errors"][0];
        assert_eq!(error["field"], field, "{body}");
        assert!(text(&error["message"]).contains(hint), "{body}: {problem}");
    }
    let batch = client.post("/v1/queues/mail/jobs/batch", json!({"jobs": [{"to": 1}]})).await.unwrap().expect(202);
    assert!(batch.to_string().contains(hint), "{batch}");
    let near = client.post("/v1/queues/mail/jobs", json!({"payloda": 1})).await.unwrap();
    let near = near.expect_problem(400, "invalid_request");
    assert!(text(&near["errors"][0]["message"]).contains("did you mean \"payload\""), "{near}");
}

// Work that has succeeded is done, whether or not anything was reported of it.
#[tokio::test(flavor = "multi_thread")]
async fn progress_is_whole_after_success() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({"maxAttempts": 1})).await;
    for (report, verb, pct) in [
        (Value::Null, "ack", json!(100)),
        (json!({"itemsDone": 40, "itemsTotal": 161}), "ack", json!(100)),
        (json!({"pct": 40}), "nack", Value::Null),
    ] {
        let id = publish(&client, "work", json!(1)).await;
        let held = receive_one(&client, "work").await;
        if !report.is_null() {
            let request = client.request(Method::PUT, &format!("/v1/jobs/{id}/progress"));
            client
                .send(request.header("x-outlast-lease", text(&held["lease"])).json(&report))
                .await
                .unwrap()
                .expect(200);
        }
        settle(&client, &id, verb, json!({"lease": held["lease"]})).await;

        let shown = job(&client, &id).await;
        let listed = client.get("/v1/jobs?queue=work&limit=1").await.unwrap().expect(200);

        for progress in [&shown["progress"], &listed["items"][0]["progress"]] {
            assert_eq!(progress["pct"].as_f64(), pct.as_f64(), "{verb} after {report}: {progress}");
        }
    }
}

// A publisher that waits for the job gets its result with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_publish_brings_the_inline_result() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let exact = "{\"exact\":12345678901234567890.10}";
    let worker = {
        let client = client.clone();
        tokio::spawn(async move {
            let held = crate::api::receive(&client, "work", json!({"wait": 30})).await.remove(0);
            let body = format!("{{\"lease\":{},\"result\":{exact}}}", held["lease"]);
            let request = client.request(Method::POST, &format!("/v1/jobs/{}/ack", text(&held["id"])));
            client.send(request.header("content-type", "application/json").body(body)).await.unwrap().expect(200);
        })
    };
    let mut raw = Raw::connect(&client.base).await.unwrap();
    let head = format!("host: x\r\nauthorization: Bearer {}\r\nprefer: wait=30\r\ncontent-length: 2", client.key);
    raw.send(format!("POST /v1/queues/work/jobs HTTP/1.1\r\n{head}\r\n\r\n{{}}")).await;

    let answer = raw.answer().await.unwrap();

    worker.await.unwrap();
    assert_eq!((answer.status, &answer.json()["status"]), (200, &json!("succeeded")), "{}", answer.body);
    assert!(answer.body.contains(&format!("\"result\":{exact}")), "the result is as it was sent: {}", answer.body);
    assert_eq!(answer.json()["progress"]["pct"].as_f64(), Some(100.0));
}
