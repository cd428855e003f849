//! Checkpoints: the next attempt gets exactly the last acknowledged one, whichever worker it is and however it gets the
//! job, and never one that it cannot read. (I-35)

use outlast_tests::http::Client;
use outlast_tests::receiver::{Answer, Receiver};
use outlast_tests::server::Server;
use outlast_tests::wait;
use reqwest::Method;
use serde_json::{Value, json};

use super::{DEADLINE, Work, raw};
use crate::api::{events, job, make_queue, publish, receive, settle, text};

/// JSON whose numbers no double holds, with spaces and escapes that a parser would not write like this.
const EXACT: &str =
    r#"{"big": 123456789012345678901234567890.000000000000000000001 ,"e":1E-300,"z":-0.0,"u":"\u00e9\/"}"#;

// I-35
#[tokio::test(flavor = "multi_thread")]
async fn the_next_attempt_gets_the_last_checkpoint_byte_for_byte() {
    let work = Work::begin(json!({})).await;
    work.checkpoint(1, json!("an earlier one")).await;
    let body = format!("{{\"schemaVersion\":7,\"data\":{EXACT},\"progress\":{{\"pct\":40}}}}");
    let accepted = work.call_raw(Method::PUT, "checkpoint", body).await.expect(200);

    let shown = raw(&work.client, &work.path("checkpoint")).await;
    work.fail().await;
    let request = work.client.request(Method::POST, "/v1/queues/work/receive").json(&json!({"wait": 30}));
    let received = request.send().await.unwrap().text().await.unwrap();

    let fields = (&accepted["accepted"], &accepted["status"], &accepted["id"]);
    assert_eq!(fields, (&json!(true), &json!("running"), &json!(work.id)));
    assert!(accepted["version"].is_u64());
    for (place, text) in [("GET", &shown), ("receive", &received)] {
        assert!(text.contains(&format!("\"data\":{EXACT}")), "{place}: {text}");
    }
    let meta = job(&work.client, &work.id).await["checkpoint"].clone();
    assert_eq!((&meta["schemaVersion"], &meta["length"]), (&json!(7), &json!(EXACT.len())));
    assert_eq!((&meta["attempt"], &meta["sections"]), (&json!(1), &json!(0)));
    let shown: Value = serde_json::from_str(&shown).unwrap();
    for (field, value) in [
        ("length", json!(EXACT.len())),
        ("attempt", json!(1)),
        ("replays", json!(0)),
        ("blobUrl", Value::Null),
        ("sha256", Value::Null),
    ] {
        assert_eq!(shown[field], value, "{field}");
    }
    assert_eq!(shown["at"], meta["at"]);
}

// A checkpoint and its progress are one: there is no moment with only one of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_and_its_progress_are_one_change() {
    let work = Work::begin(json!({})).await;
    let version = work.job().await["version"].as_u64().unwrap();

    for step in 1..=20u64 {
        let body = json!({"schemaVersion": 1, "data": {"step": step}, "progress": {"itemsDone": step}});
        let accepted = work.call(Method::PUT, "checkpoint", &body).await.expect(200);

        assert_eq!(accepted["version"], json!(version + step));
        assert_eq!(work.job().await["progress"]["itemsDone"], json!(step));
    }

    let log = events(&work.client, &work.id).await;
    let saved: Vec<&Value> = log.iter().filter(|event| event["type"] == "checkpoint").collect();
    assert_eq!(saved.len(), 20);
    assert!(saved.iter().all(|event| event["schemaVersion"] == 1 && event["length"].is_u64()), "{saved:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_names_its_versions_never_gets_another_one() {
    let work = Work::begin(json!({})).await;
    work.checkpoint(2, json!("form two")).await;
    work.section("a", json!(1)).await;

    let mut lease = work.lease.clone();
    for (accepts, is_taken) in [
        (json!([2]), true),
        (json!([1, 2, 3]), true),
        (json!([1]), false),
        (json!([]), false),
        (json!([3, 4294967295u32]), false),
        (Value::Null, true),
    ] {
        settle(&work.client, &work.id, "release", json!({ "lease": lease })).await;
        let mut request = json!({"wait": 30});
        if !accepts.is_null() {
            request["acceptsSchema"] = accepts.clone();
        }
        let held = receive(&work.client, "work", request).await.remove(0);
        lease = text(&held["lease"]);

        let data = held["checkpoint"]["data"].clone();
        let incompatible = held.get("checkpointIncompatible").cloned().unwrap_or(json!(false));
        let wanted = if is_taken { (json!("form two"), json!(false)) } else { (Value::Null, json!(true)) };
        assert_eq!((data, incompatible), wanted, "{accepts}: {held}");
        assert_eq!(held["checkpoint"].is_null(), !is_taken);
        assert_eq!(held["sections"], json!(["a"]), "sections have no version");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_without_a_checkpoint_says_so_everywhere() {
    let mut work = Work::begin(json!({})).await;
    work.client.get(&work.path("checkpoint")).await.unwrap().expect_problem(404, "checkpoint_not_found");
    assert_eq!(work.job().await["checkpoint"], Value::Null);
    work.fail().await;

    let held = work.take().await;

    assert_eq!((&held["checkpoint"], &held["sections"]), (&Value::Null, &json!([])));
    let unknown = "/v1/jobs/01890000-0000-7000-8000-000000000000/checkpoint";
    work.client.get(unknown).await.unwrap().expect_problem(404, "job_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_has_a_limit_and_what_is_at_it_is_kept() {
    let work = Work::begin(json!({})).await;
    let of_length = |length: usize| format!("{{\"schemaVersion\":1,\"data\":\"{}\"}}", "x".repeat(length - 2));
    let most = 256 << 10;

    work.call_raw(Method::PUT, "checkpoint", of_length(most)).await.expect(200);
    let refused = work.call_raw(Method::PUT, "checkpoint", of_length(most + 1)).await;

    let detail = text(&refused.expect_problem(413, "payload_too_large")["detail"]);
    assert!(detail.contains("checkpoint/blob"), "it says where more can go: {detail}");
    assert_eq!(work.job().await["checkpoint"]["length"], json!(most));
    for wrong in [json!({"data": 1}), json!({"schemaVersion": 1}), json!({"schemaVersion": -1, "data": 1})] {
        work.call(Method::PUT, "checkpoint", &wrong).await.expect_problem(400, "invalid_request");
    }
}

// I-15
#[tokio::test(flavor = "multi_thread")]
async fn saves_of_a_lost_lease_are_refused_and_leave_no_trace() {
    let mut work = Work::begin(json!({})).await;
    work.checkpoint(1, json!("good")).await;
    work.section("good", json!(1)).await;
    let zombie = work.lease.clone();
    work.fail().await;
    work.take().await;
    let before = work.job().await;
    let owner = std::mem::replace(&mut work.lease, zombie);

    for (method, rest, body) in [
        (Method::PUT, "checkpoint", json!({"schemaVersion": 1, "data": "bad"})),
        (Method::PUT, "sections/bad", json!(1)),
        (Method::PUT, "sections/good", json!(2)),
        (Method::POST, "output", json!({"text": "bad"})),
    ] {
        work.call(method, rest, &body).await.expect_problem(409, "lease_lost");
    }
    work.lease = owner;

    assert_eq!(work.job().await, before);
    assert_eq!(work.section_names().await, ["good"]);
    let section = work.client.get(&work.path("sections/good")).await.unwrap().expect(200);
    assert_eq!(section, json!(1));
    let saved = work.client.get(&work.path("checkpoint")).await.unwrap().expect(200);
    assert_eq!(saved["data"], json!("good"));
}

// Section 7 of the contract: a delivery has it in the body.
#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_carries_what_the_attempt_before_has_saved() {
    let server = Server::fresh().await;
    let client = server.client();
    let receiver = Receiver::start().await;
    receiver.answer("/work", [Answer::status(202)]);
    let settings = json!({
        "webhookUrl": receiver.url("/work"), "mode": "ack", "backoff": {"type": "fixed", "delay": 0},
    });
    let made = client.put("/v1/queues/work", settings).await.unwrap().expect(201);
    receiver.trust("/work", &text(&made["signingSecret"]));
    let id = publish(&client, "work", json!(1)).await;
    let first = receiver.arrivals("/work", 1, DEADLINE).await.remove(0).json();
    until_awaiting(&client, &id).await;
    save(&client, &id, &text(&first["lease"])).await;

    settle(&client, &id, "nack", json!({"lease": first["lease"]})).await;
    let second = receiver.arrivals("/work", 2, DEADLINE).await.remove(1);

    assert_eq!((&first["checkpoint"], &first["sections"]), (&Value::Null, &json!([])));
    let body = String::from_utf8(second.body.clone()).unwrap();
    assert!(body.contains(&format!("\"data\":{EXACT}")), "{body}");
    let second = second.json();
    assert_eq!(second["sections"], json!(["one", "two"]));
    assert_eq!(second["checkpoint"]["schemaVersion"], json!(4));
    let shown = client.get(&format!("/v1/jobs/{id}/checkpoint")).await.unwrap().expect(200);
    let fields = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let (mut pushed, mut shown) = (fields(&second["checkpoint"]), fields(&shown));
    pushed.sort();
    shown.sort();
    assert_eq!(pushed, shown, "one form, wherever it is read");
    until_awaiting(&client, &id).await;
    settle(&client, &id, "ack", json!({"lease": second["lease"]})).await;
}

async fn save(client: &Client, id: &str, lease: &str) {
    let body = format!("{{\"schemaVersion\":4,\"data\":{EXACT},\"lease\":\"{lease}\"}}");
    let request = client.request(Method::PUT, &format!("/v1/jobs/{id}/checkpoint"));
    client.send(request.header("content-type", "application/json").body(body)).await.unwrap().expect(200);
    for name in ["two", "one"] {
        client.put(&format!("/v1/jobs/{id}/sections/{name}"), json!(1)).await.unwrap().expect(200);
    }
}

async fn until_awaiting(client: &Client, id: &str) {
    wait::until("the receipt", DEADLINE, async || {
        (job(client, id).await["runningPhase"] == "awaiting_ack").then_some(())
    })
    .await;
}

// T13: somebody else's job has nothing to read and takes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn saved_work_of_another_namespaces_job_does_not_exist() {
    let work = Work::begin(json!({})).await;
    work.checkpoint(1, json!("secret")).await;
    work.section("s", json!("secret")).await;
    let request = json!({"name": "n", "scopes": ["admin"], "namespace": "neighbour"});
    let key = work.client.post("/v1/keys", request).await.unwrap().expect(201);
    let theirs = Client::new(&work.client.base, &text(&key["key"]));
    make_queue(&theirs, "work", json!({})).await;

    for rest in ["checkpoint", "sections", "sections/s"] {
        theirs.get(&work.path(rest)).await.unwrap().expect_problem(404, "job_not_found");
    }
    for (rest, body) in [
        ("checkpoint", json!({"schemaVersion": 1, "data": 1})),
        ("sections/s", json!(1)),
        ("progress", json!({"pct": 1})),
    ] {
        theirs.put(&work.path(rest), body).await.unwrap().expect_problem(404, "job_not_found");
    }
    for (rest, body) in [("output", json!({"text": "x"})), ("directives", json!({"directives": []}))] {
        theirs.post(&work.path(rest), body).await.unwrap().expect_problem(404, "job_not_found");
    }
}
