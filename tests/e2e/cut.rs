//! I-11, F29: connections that break in the middle. The proxy cuts after k bytes, for every k.

use std::collections::BTreeSet;

use outlast_tests::chance::volume;
use outlast_tests::http::Client;
use outlast_tests::proxy::Proxy;
use outlast_tests::server::Server;
use outlast_tests::workload::snapshot::listed;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::api::{make_queue, publish};

// I-11, F29: a publish whose reply is cut after k bytes, tried again with its key, is one job.
#[tokio::test(flavor = "multi_thread")]
async fn a_publish_with_a_cut_reply_tried_again_is_one_job() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let proxy = Proxy::before(&server.base).await;
    let body = |k: u64| json!({"payload": {"k": k}, "idempotencyKey": format!("key-{k:06}")});
    let whole = reply_length(&proxy, &client, "/v1/queues/work/jobs", &body(999_999)).await;

    for k in 0..whole {
        proxy.cut_reply_after(k);
        let reply = exchange(&proxy.base, &client.key, "/v1/queues/work/jobs", &body(k)).await;
        assert_eq!(reply.len() as u64, k, "the rig cuts where it says");

        let again = client.post("/v1/queues/work/jobs", body(k)).await.unwrap().expect(200);
        assert_eq!(again["duplicate"], true, "k = {k}: a reply had begun, so the job was stored");
    }

    assert_one_job_per_key(&client, "work", whole as usize + 1).await;
}

// I-11: the same for batches: all items are there once, whatever the first reply said.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_with_a_cut_reply_tried_again_is_one_job_per_item() {
    let server = Server::fresh().await;
    for (items, step) in [(10, volume(23, 1)), (100, volume(997, 1))] {
        cut_batches(&server, items, step).await;
    }
}

// F29: a publish that breaks off in the middle of the request stores nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_publish_that_breaks_off_stores_nothing() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let proxy = Proxy::before(&server.base).await;
    let body = json!({"payload": {"text": "t".repeat(50)}, "idempotencyKey": "key"});
    let whole = request(&client.key, "/v1/queues/work/jobs", &body).len() as u64;

    for k in 0..whole {
        proxy.cut_request_after(k);
        exchange(&proxy.base, &client.key, "/v1/queues/work/jobs", &body).await;
    }

    let after = publish(&client, "work", json!("whole")).await;
    assert_eq!(listed(&client, "work").await, [after]);
    let first = client.post("/v1/queues/work/jobs", body).await.unwrap().expect(202);
    assert_eq!(first["duplicate"], false);
}

async fn cut_batches(server: &Server, items: usize, step: usize) {
    let client = server.client();
    let queue = format!("batch-{items}");
    make_queue(&client, &queue, json!({})).await;
    let path = format!("/v1/queues/{queue}/jobs/batch");
    let proxy = Proxy::before(&server.base).await;
    let body = |k: u64| {
        let job = |item| json!({"payload": item, "idempotencyKey": format!("key-{k:06}-{item:03}")});
        let jobs: Vec<Value> = (0..items).map(job).collect();
        json!({ "jobs": jobs })
    };
    let whole = reply_length(&proxy, &client, &path, &body(999_999)).await;

    let mut batches = 1;
    for k in (0..whole).step_by(step) {
        proxy.cut_reply_after(k);
        exchange(&proxy.base, &client.key, &path, &body(k)).await;

        let again = client.post(&path, body(k)).await.unwrap().expect(202);
        let jobs = again["jobs"].as_array().unwrap();
        let known = jobs.iter().filter(|job| job["duplicate"] == true).count();
        assert_eq!((jobs.len(), known), (items, items), "k = {k}: the batch was stored as a whole");
        batches += 1;
    }

    assert_one_job_per_key(&client, &queue, batches * items).await;
}

async fn assert_one_job_per_key(client: &Client, queue: &str, keys: usize) {
    let ids = listed(client, queue).await;
    let distinct: BTreeSet<&String> = ids.iter().collect();
    assert_eq!((ids.len(), distinct.len()), (keys, keys), "one job per key");
}

/// How many bytes the whole reply to such a request has.
async fn reply_length(proxy: &Proxy, client: &Client, path: &str, body: &Value) -> u64 {
    proxy.pass_everything();
    let reply = exchange(&proxy.base, &client.key, path, body).await;
    let status = String::from_utf8_lossy(&reply[..reply.len().min(12)]).into_owned();
    assert_eq!(status, "HTTP/1.1 202");
    reply.len() as u64
}

/// One request on its own connection; gives whatever came back before the connection ended.
async fn exchange(base: &str, key: &str, path: &str, body: &Value) -> Vec<u8> {
    let mut socket = TcpStream::connect(base.strip_prefix("http://").unwrap()).await.unwrap();
    let mut reply = Vec::new();
    if socket.write_all(request(key, path, body).as_bytes()).await.is_ok() {
        let _ = socket.read_to_end(&mut reply).await;
    }
    reply
}

fn request(key: &str, path: &str, body: &Value) -> String {
    let body = body.to_string();
    format!(
        "POST {path} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}
