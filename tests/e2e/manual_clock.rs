//! `outlast dev --clock manual`: delays, backoff, leases and retention without waiting. Only the embedded store has it.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use outlast_tests::http::Client;
use outlast_tests::server::{Server, outlast_binary};
use outlast_tests::wait;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::api::{job, make_queue, receive, receive_one, settle, text};
use crate::time_limits::time;

const DEADLINE: Duration = Duration::from_secs(30);

struct Dev {
    client: Client,
    _process: Child,
    _data: TempDir,
}

fn command(data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(outlast_binary());
    command.arg("dev").arg("--data").arg(data).args(["--listen", "127.0.0.1:0"]).args(arguments);
    command.env_remove("OUTLAST_URL").env_remove("OUTLAST_KEY");
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

impl Dev {
    async fn start() -> Dev {
        let data = TempDir::with_prefix("outlast-dev-").unwrap();
        let mut process = command(data.path(), &["--clock", "manual"]).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let base = loop {
            let line = lines.next_line().await.unwrap().expect("the server starts");
            if let Some((_, base)) = line.split_once("listening on ") {
                break base.to_owned();
            }
        };
        let key = std::fs::read_to_string(data.path().join("admin.key")).unwrap();
        Dev { client: Client::new(&base, key.trim()), _process: process, _data: data }
    }

    async fn advance(&self, by: &str) -> Value {
        self.client.post("/v1/dev/clock", json!({"advance": by})).await.unwrap().expect(200)["now"].clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn time_passes_only_by_the_call() {
    let dev = Dev::start().await;
    let client = &dev.client;
    make_queue(client, "work", json!({"visibilityTimeout": "1h", "backoff": {"type": "fixed", "delay": "2h"}})).await;
    let before = dev.advance("0").await;
    let delayed = client.post("/v1/queues/work/jobs", json!({"delay": "3d"})).await.unwrap().expect(202);
    let id = text(&delayed["id"]);
    assert_eq!(receive(client, "work", json!({"wait": "1s"})).await.len(), 0, "only the call moves the time");
    assert_eq!(dev.advance("0").await, before);

    // A receive that waits is woken by a delay that ends.
    let (held, _) = tokio::join!(receive_one(client, "work"), dev.advance("3d"));
    assert_eq!((held["id"].as_str(), &held["attempt"]), (Some(id.as_str()), &json!(1)));
    settle(client, &id, "nack", json!({"lease": held["lease"]})).await;
    assert_eq!(job(client, &id).await["status"], "pending");
    dev.advance("2h").await;
    let held = receive_one(client, "work").await;
    assert_eq!(held["attempt"], 2);

    // A jump of the clock is no outage: the lease is lost and not extended.
    dev.advance("61m").await;
    wait::until("the lease to be lost", DEADLINE, async || {
        (job(client, &id).await["status"] == "queued").then_some(())
    })
    .await;
    let late = client.post(&format!("/v1/jobs/{id}/ack"), json!({"lease": held["lease"]})).await.unwrap();
    late.expect_problem(409, "lease_lost");
    let last = receive_one(client, "work").await;
    settle(client, &id, "ack", json!({"lease": last["lease"], "result": 1})).await;
    // The result expires, and its job is purged after its retention.
    for (what, status) in [("the result to expire", 410), ("the job to be purged", 404)] {
        dev.advance("3650d").await;
        wait::until(what, DEADLINE, async || {
            (client.get(&format!("/v1/jobs/{id}")).await.unwrap().status == status).then_some(())
        })
        .await;
    }
    assert!(time(&dev.advance("1ms").await) > time(&before));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_operator_moves_the_clock_and_only_where_it_is_manual() {
    let dev = Dev::start().await;
    for (body, named) in [
        (json!({}), "advance"),
        (json!({"advance": -1}), "advance"),
        (json!({"advance": "36501d"}), "advance"),
        (json!({"advance": 1, "back": 1}), "back"),
    ] {
        let refused = dev.client.post("/v1/dev/clock", body).await.unwrap().expect_problem(400, "invalid_request");
        assert!(refused.to_string().contains(named), "{refused}");
    }
    for request in [
        json!({"name": "reader", "scopes": ["read", "manage"]}),
        json!({"name": "tenant", "scopes": ["admin"], "namespace": "other"}),
    ] {
        let key = dev.client.post("/v1/keys", request).await.unwrap().expect(201);
        let other = Client::new(&dev.client.base, &text(&key["key"]));
        other.post("/v1/dev/clock", json!({"advance": 1})).await.unwrap().expect_problem(403, "forbidden");
    }
    let server = Server::fresh().await;
    let elsewhere = server.client().post("/v1/dev/clock", json!({"advance": 1})).await.unwrap();
    elsewhere.expect_problem(404, "route_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manual_clock_needs_the_embedded_store() {
    let data = TempDir::with_prefix("outlast-dev-").unwrap();
    let arguments = ["--clock", "manual", "--database-url", "postgres://127.0.0.1:1/x", "--blobs-url", "file:///tmp/x"];
    let output = command(data.path(), &arguments).output().await.unwrap();

    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("--clock manual"), "{said}");
}
