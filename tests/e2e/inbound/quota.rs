//! A namespace that is full: an event comes whole or not at all, and the provider gets a retryable answer.

use serde_json::{Value, json};

use super::provider::{Stripe, event};
use super::{PATH, SECRET, drain, shop, stored, waiting};
use crate::api::text;

/// Room for one event, and for one job of a second one.
const FILE: &str = "limits: {namespace_queued: 3}
queues:
  one: {source: shop}
  two: {source: shop}";

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_does_not_fit_is_refused_whole_and_taken_when_there_is_room() {
    let server = shop(FILE).start().await;
    let client = server.client();
    let stripe = Stripe::before(&server, PATH, SECRET);
    let (first, second) = (event("evt_1", "paid", 1), event("evt_2", "paid", 1));
    stripe.tell(&first).await;

    let refused = stripe.send(&second).await.unwrap();

    let problem = refused.expect_problem(429, "too_many_requests");
    assert!(text(&problem["detail"]).contains("3 waiting jobs"), "{problem}");
    assert_eq!((waiting(&client, "one").await, waiting(&client, "two").await), (1, 1));
    assert_eq!(stored(&client, "").await.len(), 1, "nothing of it is remembered");
    assert_eq!(stripe.tell(&first).await["duplicate"], true, "a repetition needs no room");

    drain(&client, "one").await;
    let taken = stripe.tell(&second).await;
    assert_eq!((&taken["duplicate"], &taken["jobs_created"]), (&json!(false), &json!(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_says_for_each_job_whether_it_fitted() {
    let server = shop(FILE).start().await;
    let client = server.client();
    let stripe = Stripe::before(&server, PATH, SECRET);
    let id = text(&stripe.tell(&event("evt_1", "paid", 1)).await["event_id"]);

    let answer = client.post(&format!("/v1/events/{id}/replay"), json!({})).await.unwrap().expect(202);

    let jobs: Vec<Value> = answer["jobs"].as_array().unwrap().clone();
    assert_eq!(jobs.iter().map(|job| &job["queue"]).collect::<Vec<_>>(), ["one", "two"], "{answer}");
    assert_eq!(jobs.iter().filter(|job| job["id"].is_string()).count(), 1, "{answer}");
    let refused: Vec<&Value> = jobs.iter().filter(|job| job["error"]["code"] == "too_many_requests").collect();
    assert_eq!(refused.len(), 1, "{answer}");
    assert_eq!(waiting(&client, "one").await + waiting(&client, "two").await, 3);
}
