//! Changes while deliveries are under way: cancel, purge, delete, another URL, another mode.

use std::time::Duration;

use outlast_tests::receiver::{Answer, Gate, Receiver};
use outlast_tests::wait;
use serde_json::{Value, json};

use super::{DEADLINE, Push, at_once, attempts, until_phase, until_status};
use crate::api::{publish_many, receive, receive_one, settle, text};

async fn cancel(push: &Push, id: &str) -> Value {
    push.client.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await.unwrap().expect(200)
}

// A job that is cancelled while it is delivered ends as its endpoint says when that is a success, and is not tried
// again when it is not.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_while_delivering_ends_with_the_delivery() {
    let push = Push::set().await;
    for (status, ending) in [(200, "succeeded"), (500, "cancelled"), (429, "cancelled")] {
        let (queue, gate) = (format!("work-{status}"), Gate::shut());
        push.receiver.answer(&format!("/{queue}"), [Answer::status(status).once_open(&gate)]);
        push.queue(&queue, json!({"maxAttempts": 5, "backoff": at_once(), "backpressureDelay": 0})).await;
        let id = push.publish(&queue, json!(1)).await;
        push.arrival(&queue).await;

        let asked = cancel(&push, &id).await;
        gate.open();

        assert_eq!((&asked["status"], &asked["cancelRequested"]), (&json!("running"), &json!(true)));
        assert_eq!(push.ended(&id).await["status"], ending, "{status}");
        assert_eq!(push.count(&queue), 1, "{status}");
    }
}

// A job that waits for its ack and is cancelled has its drain time, then its lease is taken away.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_that_waits_for_its_ack_has_its_drain_time() {
    let push = Push::set().await;
    push.queue("work", json!({"mode": "ack", "drainTimeout": 1})).await;
    let id = push.publish("work", json!(1)).await;
    until_phase(&push.client, &id, "awaiting_ack").await;

    cancel(&push, &id).await;

    let job = until_status(&push.client, &id, "cancelled").await;
    assert_eq!(job["cancelReason"], "user");
    let late = json!({"lease": push.arrival("work").await.lease()});
    push.client.post(&format!("/v1/jobs/{id}/ack"), late).await.unwrap().expect_problem(409, "lease_lost");
    assert_eq!(push.count("work"), 1);
}

// A webhook that never answers does not keep its job from ending: the drain time ends before the webhook's own, and the
// answer that comes at last changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_ends_a_delivery_without_an_answer_after_the_drain_time() {
    let push = Push::set().await;
    let gate = Gate::shut();
    push.receiver.answer("/work", [Answer::status(200).once_open(&gate)]);
    push.queue("work", json!({"webhookTimeout": 60, "drainTimeout": 1})).await;
    let id = push.publish("work", json!(1)).await;
    push.arrival("work").await;

    let asked = cancel(&push, &id).await;
    let ended = push.ended(&id).await;
    gate.open();
    push.all_quiet().await;

    assert_eq!((&asked["status"], &ended["status"]), (&json!("running"), &json!("cancelled")), "{ended}");
    let attempt = attempts(&push.client, &id).await.remove(0);
    assert_eq!((&attempt["phase"], &attempt["outcome"]), (&json!("delivering"), &json!("revoked")));
    let after = push.job(&id).await;
    assert_eq!((&after["version"], &after["events"]), (&ended["version"], &ended["events"]));
    assert_eq!(push.count("work"), 1);
}

// A purge takes the jobs that wait and leaves the one that is under way.
#[tokio::test(flavor = "multi_thread")]
async fn a_purge_leaves_what_is_under_way() {
    let push = Push::set().await;
    let gate = Gate::shut();
    push.receiver.answer("/work", [Answer::status(200).once_open(&gate)]);
    push.queue("work", json!({"concurrency": 1})).await;
    publish_many(&push.client, "work", 20).await;
    let first = text(&push.arrival("work").await.json()["id"]);

    push.client.post("/v1/queues/work/purge", json!({})).await.unwrap().expect(202);
    wait::until("the purge to end", DEADLINE, async || {
        (push.show("work").await["counts"]["cancelled"] == 19).then_some(())
    })
    .await;
    gate.open();

    assert_eq!(push.ended(&first).await["status"], "succeeded");
    push.all_quiet().await;
    assert_eq!(push.count("work"), 1);
}

// A queue that is deleted while it delivers is gone afterwards, and the server is well; a new one of its name starts
// afresh.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_can_be_deleted_while_it_delivers() {
    let push = Push::set().await;
    let gate = Gate::shut();
    push.receiver.answer("/work", [Answer::status(200).once_open(&gate)]);
    let old = push.queue("work", json!({"concurrency": 5})).await;
    publish_many(&push.client, "work", 50).await;
    push.arrivals("work", 5).await;

    push.client.delete("/v1/queues/work").await.unwrap().expect_problem(409, "queue_not_empty");
    push.client.delete("/v1/queues/work?force=true").await.unwrap().expect(202);
    gate.open();
    wait::until("the queue to be gone", DEADLINE, async || {
        (push.client.get("/v1/queues/work").await.unwrap().status == 404).then_some(())
    })
    .await;
    push.all_quiet().await;

    let count = push.count("work");
    let new = push.queue("work", json!({})).await;
    let id = push.publish("work", json!("fresh")).await;
    assert_eq!(push.ended(&id).await["status"], "succeeded");
    let delivery = push.arrivals("work", count + 1).await.pop().unwrap();
    assert!(new != old && delivery.is_signed_with(&new) && delivery.json()["payload"] == "fresh");
    assert!(!push.server.log().contains("panicked"));
}

// Another URL holds for the next delivery; the one that is under way ends where it went.
#[tokio::test(flavor = "multi_thread")]
async fn another_url_holds_for_the_next_delivery() {
    let push = Push::set().await;
    let other = Receiver::start().await;
    let gate = Gate::shut();
    push.receiver.answer("/work", [Answer::status(404).once_open(&gate)]);
    push.queue("work", json!({"maxAttempts": 3, "backoff": at_once()})).await;
    let id = push.publish("work", json!(1)).await;
    push.arrival("work").await;

    let moved = push.patch("work", json!({"webhookUrl": other.url("/new")})).await;
    other.trust("/new", &text(&moved["signingSecret"]));
    gate.open();

    assert_eq!(push.ended(&id).await["attempt"], json!(2));
    assert_eq!((push.count("work"), other.count("/new")), (1, 1));
}

// A queue can change from pull to push and back; jobs that wait go where the queue says now.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_changes_from_pull_to_push_and_back() {
    let push = Push::set().await;
    push.client.put("/v1/queues/work", json!({})).await.unwrap().expect(201);
    let first = push.publish("work", json!(1)).await;

    let pushed = push.patch("work", json!({"mode": "standard", "webhookUrl": push.receiver.url("/work")})).await;
    push.receiver.trust("/work", &text(&pushed["signingSecret"]));
    assert_eq!(push.ended(&first).await["status"], "succeeded");
    let refused = push.client.post("/v1/queues/work/receive", json!({})).await.unwrap();
    assert!(matches!(refused.status, 400 | 409), "a push queue is not for pullers: {}", refused.body);

    push.patch("work", json!({"mode": "pull", "webhookUrl": null})).await;
    let second = push.publish("work", json!(2)).await;
    let held = receive_one(&push.client, "work").await;
    assert_eq!(held["id"], json!(second));
    settle(&push.client, &second, "ack", json!({"lease": held["lease"]})).await;
    assert_eq!(push.count("work"), 1);

    let again = push.patch("work", json!({"mode": "ack", "webhookUrl": push.receiver.url("/work")})).await;
    push.receiver.trust("/work", &text(&again["signingSecret"]));
    let third = push.publish("work", json!(3)).await;
    push.arrivals("work", 2).await;
    until_phase(&push.client, &third, "awaiting_ack").await;
    settle(&push.client, &third, "ack", json!({})).await;
}

// A push queue that allows it is drained by pullers as well: each job goes to one of them or to the endpoint, never
// both.
#[tokio::test(flavor = "multi_thread")]
async fn pullers_may_help_where_the_queue_allows_it() {
    let push = Push::set().await;
    push.receiver.answer("/work", [Answer::status(200).after(Duration::from_millis(20))]);
    push.queue("work", json!({"allowPull": true, "concurrency": 2, "maxAttempts": 1})).await;
    publish_many(&push.client, "work", 60).await;

    let mut pulled = Vec::new();
    loop {
        let jobs = receive(&push.client, "work", json!({"batch": 1})).await;
        for job in &jobs {
            settle(&push.client, &text(&job["id"]), "ack", json!({"lease": job["lease"]})).await;
            pulled.push(text(&job["id"]));
        }
        if push.show("work").await["counts"]["succeeded"] == 60 {
            break;
        }
    }

    let delivered: Vec<String> =
        push.receiver.deliveries("/work").iter().map(|delivery| text(&delivery.json()["id"])).collect();
    println!("{} pulled, {} delivered", pulled.len(), delivered.len());
    assert_eq!(pulled.len() + delivered.len(), 60);
    assert!(pulled.iter().all(|id| !delivered.contains(id)));
    assert!(!delivered.is_empty(), "the endpoint got some");
}
