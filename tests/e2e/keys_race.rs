//! I-09, I-10: one job per idempotency key, under races and crashes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use outlast_tests::chance::{Chance, seed, volume};
use outlast_tests::http::Client;
use outlast_tests::server::{Launch, Server};
use outlast_tests::workload::snapshot::listed;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::api::{job, make_queue, text};

const RACERS: usize = 64;
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The final answer to one racer.
struct Told {
    id: String,
    duplicate: bool,
}

// I-09: 64 publishers race with one key while the server is killed and started again: one job, one id, and at most one
// of them gets the answer that the job is new (none, if that answer was lost in the crash).
#[tokio::test(flavor = "multi_thread")]
async fn racing_publishers_with_one_key_make_one_job_across_a_restart() {
    let mut chance = Chance::seeded(seed("keys"));
    let mut server = Server::fresh().await;
    for round in 0..volume(6, 300) {
        let queue = format!("round-{round}");
        make_queue(&server.client(), &queue, json!({})).await;

        let told = race_through_a_crash(&mut server, &queue, chance.between(0, 60)).await;

        let ids: BTreeSet<&str> = told.iter().map(|told| told.id.as_str()).collect();
        assert_eq!(ids.len(), 1, "one key, these ids: {ids:?}");
        let fresh = told.iter().filter(|told| !told.duplicate).count();
        assert!(fresh <= 1, "{fresh} publishers got the answer that the job is new");
        assert_eq!(listed(&server.client(), &queue).await, [told[0].id.clone()]);
    }
}

// I-09: without a crash exactly one of them gets the answer that the job is new.
#[tokio::test(flavor = "multi_thread")]
async fn racing_publishers_with_one_key_hear_of_one_new_job() {
    let server = Server::fresh().await;
    let (_addresses, address) = watch::channel(server.base.clone());
    for round in 0..volume(6, 300) {
        let queue = format!("round-{round}");
        make_queue(&server.client(), &queue, json!({})).await;

        let told = race(&server, &queue, &address).join_all().await;

        assert_eq!(told.iter().filter(|told| !told.duplicate).count(), 1);
        assert_eq!(listed(&server.client(), &queue).await.len(), 1);
    }
}

// I-10: the same key with another payload gives the first job, and says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_with_another_payload_gives_the_first_job_and_says_so() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let publish = async |payload: Value| {
        let body = json!({"payload": payload, "idempotencyKey": "k"});
        client.post("/v1/queues/work/jobs", body).await.unwrap()
    };
    let first = publish(json!({"amount": 1})).await.expect(202);

    let same = publish(json!({"amount": 1})).await.expect(200);
    assert_eq!((&same["id"], &same["duplicate"]), (&first["id"], &json!(true)));
    assert_ne!(same["payloadMismatch"], true);

    for other in [json!({"amount": 2}), json!({"amount": "1"}), json!([{"amount": 1}]), json!(null)] {
        let reply = publish(other.clone()).await.expect(200);
        assert_eq!((&reply["id"], &reply["duplicate"]), (&first["id"], &json!(true)));
        assert_eq!(reply["payloadMismatch"], true, "silent about {other}");
    }
    assert_eq!(job(&client, &text(&first["id"])).await["payload"], json!({"amount": 1}));
    assert_eq!(listed(&client, "work").await.len(), 1);
}

// I-09: the header and the field are one and the same key, and it survives a restart.
#[tokio::test(flavor = "multi_thread")]
async fn the_key_in_the_header_is_the_key_in_the_body_also_after_a_restart() {
    let mut server = Server::fresh().await;
    make_queue(&server.client(), "work", json!({})).await;
    let by_header = async |client: &Client| {
        let request = client.request(Method::POST, "/v1/queues/work/jobs");
        let request = request.header("Idempotency-Key", "k").json(&json!({"payload": 1}));
        client.send(request).await.unwrap()
    };
    let first = by_header(&server.client()).await.expect(202);

    let by_field = json!({"payload": 1, "idempotencyKey": "k"});
    let again = server.client().post("/v1/queues/work/jobs", by_field).await.unwrap().expect(200);
    server.crash_and_restart().await;
    let after = by_header(&server.client()).await.expect(200);

    assert_eq!((&again["id"], &after["id"]), (&first["id"], &first["id"]));
    assert_eq!((&again["duplicate"], &after["duplicate"]), (&json!(true), &json!(true)));
}

async fn race_through_a_crash(server: &mut Server, queue: &str, kill_after_millis: u64) -> Vec<Told> {
    let (addresses, address) = watch::channel(server.base.clone());
    let racing = race(server, queue, &address);
    // Not a wait for anything: the moment of the crash is the random input of the rig.
    tokio::time::sleep(Duration::from_millis(kill_after_millis)).await;
    server.crash_and_restart().await;
    addresses.send(server.base.clone()).unwrap();
    racing.join_all().await
}

/// All racers publish with the same key; who loses the answer tries again at the address that is then announced.
fn race(server: &Server, queue: &str, address: &watch::Receiver<String>) -> JoinSet<Told> {
    let launch: Arc<Launch> = Arc::new(server.launch().clone());
    let first = Client::with_timeout(&server.base, &launch.key, CALL_TIMEOUT);
    let mut racing = JoinSet::new();
    for _ in 0..RACERS {
        let (client, mut address) = (first.clone(), address.clone());
        let path = format!("/v1/queues/{queue}/jobs");
        racing.spawn(async move {
            let mut client = client;
            loop {
                let body = json!({"payload": {"same": true}, "idempotencyKey": "the-key"});
                if let Ok(reply) = client.post(&path, body).await
                    && matches!(reply.status, 200 | 202)
                {
                    let duplicate = reply.body["duplicate"].as_bool().unwrap();
                    assert_eq!(duplicate, reply.status == 200, "the status and the flag agree");
                    return Told { id: text(&reply.body["id"]), duplicate };
                }
                address.changed().await.expect("an answer is lost only when a restart follows");
                client.base = address.borrow().clone();
            }
        });
    }
    racing
}
