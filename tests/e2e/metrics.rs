//! Visibility at `/metrics`: a key of a namespace its queues, an operator and the private listener the whole process.

use outlast_tests::http::Client;
use outlast_tests::server::Server;
use serde_json::json;

use crate::api::{make_queue, publish, text};

/// The names of all samples.
async fn names(client: &Client) -> Vec<String> {
    let page = client.get("/metrics").await.unwrap().expect(200);
    let samples = page.as_str().unwrap().lines().filter(|line| !line.starts_with('#'));
    samples.map(|line| line.split(['{', ' ']).next().unwrap().to_owned()).collect()
}

async fn key(operator: &Client, namespace: &str, scope: &str) -> Client {
    let request = json!({"name": scope, "scopes": [scope], "namespace": namespace});
    let issued = operator.post("/v1/keys", request).await.unwrap().expect(201);
    Client::new(&operator.base, &text(&issued["key"]))
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_operator_sees_what_counts_all_namespaces() {
    let server = Server::fresh().await;
    let operator = server.nodes[0].client();
    make_queue(&operator, "ours", json!({})).await;
    publish(&operator, "ours", json!(1)).await;
    let theirs = key(&operator, "theirs", "admin").await;
    make_queue(&theirs, "mail", json!({})).await;

    let of_namespace = ["outlast_jobs", "outlast_queue_paused", "outlast_queue_held"];
    for reader in [key(&operator, "theirs", "read").await, theirs, key(&operator, "default", "read").await] {
        let seen = names(&reader).await;
        assert!(!seen.is_empty());
        assert!(seen.iter().all(|name| of_namespace.contains(&name.as_str())), "{seen:?}");
    }
    let seen = names(&operator).await;

    for name in ["outlast_jobs_published_total", "outlast_http_answers_total", "outlast_streams_open", "outlast_jobs"] {
        assert!(seen.iter().any(|known| known == name), "{name} in {seen:?}");
    }
}
