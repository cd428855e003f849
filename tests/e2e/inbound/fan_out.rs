//! One event, several queues.

use serde_json::{Value, json};

use super::provider::{Stripe, event};
use super::{PATH, SECRET, drain, metric, shop, stored};
use crate::api::text;

#[tokio::test(flavor = "multi_thread")]
async fn an_event_makes_a_job_in_every_queue_that_takes_it() {
    let queues = "queues:
  exact: {source: shop, events: [invoice.paid]}
  beginning: {source: shop, events: ['invoice.*']}
  all: {source: shop}
  others: {source: shop, events: [customer.*, invoice]}
  rich: {source: shop, filter: '$.data.object.amount_due > 100'}
  none: {}";
    let server = shop(queues).start().await;
    let client = server.client();
    let stripe = Stripe::before(&server, PATH, SECRET);

    let paid = stripe.tell(&event("evt_1", "invoice.paid", 100)).await;
    let failed = stripe.tell(&event("evt_2", "invoice.payment_failed", 101)).await;

    assert_eq!((&paid["jobs_created"], &failed["jobs_created"]), (&json!(3), &json!(3)));
    for (queue, expected) in [
        ("exact", &[&paid][..]),
        ("beginning", &[&paid, &failed]),
        ("all", &[&paid, &failed]),
        ("others", &[]),
        ("rich", &[&failed]),
        ("none", &[]),
    ] {
        let messages = drain(&client, queue).await;
        let ids: Vec<&Value> = messages.iter().map(|message| &message["event_id"]).collect();
        assert_eq!(ids, expected.iter().map(|told| &told["event_id"]).collect::<Vec<_>>(), "{queue}");
    }
}

// A filter that would take seconds is aborted and counted; other queues are not delayed.
#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_is_given_up_does_not_block_the_other_queues() {
    let queues = "queues:
  before: {source: shop}
  bomb: {source: shop, filter: '$..*..*..* == 1'}
  later: {source: shop, filter: '$.data.items[0] == 0'}";
    let server = shop(queues).start().await;
    let client = server.client();
    let stripe = Stripe::before(&server, PATH, SECRET);
    let large: Vec<usize> = (0..50_000).collect();
    let body = json!({"id": "evt_large", "type": "t", "data": {"items": large}}).to_string();

    let told = stripe.tell(&body).await;
    let small = stripe.tell(&json!({"id": "evt_small", "type": "t", "data": {"a": {"b": 1}}}).to_string()).await;

    assert_eq!((&told["duplicate"], &told["jobs_created"]), (&json!(false), &json!(2)));
    assert_eq!(small["jobs_created"], json!(2), "the same filter works on an event of a usual size: {small}");
    for (queue, count) in [("before", 2), ("bomb", 1), ("later", 1)] {
        assert_eq!(drain(&client, queue).await.len(), count, "{queue}");
    }
    assert_eq!(metric(&server, "outlast_filters_exhausted_total").await, 1);
    let event = stored(&client, "").await.pop().unwrap();
    assert_eq!((&event["id"], &event["jobsCreated"]), (&told["event_id"], &json!(2)));
    assert!(server.log().contains("a filter was given up"), "and the log says whose");

    // Nothing is lost by that: it can be replayed into the queue.
    let path = format!("/v1/events/{}/replay", text(&told["event_id"]));
    client.post(&path, json!({"queue": "bomb"})).await.unwrap().expect(202);
    assert_eq!(drain(&client, "bomb").await.len(), 1);
}
