//! Providers send events again. Duplicate events and duplicate jobs.

use std::collections::BTreeSet;

use outlast_tests::chance::{Chance, seed, volume};
use outlast_tests::server::Launch;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::provider::{Stripe, event, signed};
use super::{PATH, SECRET, drain, metric, shop, stored, waiting};
use crate::api::{settle, text};

/// Sent at once, over all nodes.
const RACERS: usize = 16;

fn summary(answer: &Value) -> (String, bool, u64) {
    let (duplicate, jobs) = (answer["duplicate"].as_bool().unwrap(), answer["jobs_created"].as_u64().unwrap());
    (text(&answer["event_id"]), duplicate, jobs)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_event_again_is_the_first_one_and_makes_no_job() {
    let server = shop("queues: {all: {source: shop}}").start().await;
    let client = server.client();
    let stripe = Stripe::before(&server, PATH, SECRET);

    let (first, duplicate, jobs) = summary(&stripe.tell(&event("evt_1", "invoice.paid", 1)).await);
    assert_eq!((duplicate, jobs), (false, 1));
    // The id decides, not the rest.
    for body in [event("evt_1", "invoice.paid", 1), event("evt_1", "invoice.paid", 2)] {
        assert_eq!(summary(&stripe.tell(&body).await), (first.clone(), true, 0));
    }
    // Also when its job is done.
    let message = drain(&client, "all").await.remove(0);
    settle(&client, &text(&message["id"]), "ack", json!({})).await;
    assert_eq!(summary(&stripe.tell(&event("evt_1", "invoice.paid", 1)).await), (first.clone(), true, 0));

    assert_eq!((stored(&client, "").await.len(), waiting(&client, "all").await), (1, 0));
    assert_eq!(
        (metric(&server, "outlast_events_total").await, metric(&server, "outlast_events_repeated_total").await),
        (1, 3)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_at_once_exactly_one_is_the_first() {
    let server = shop("queues: {all: {source: shop}}").start().await;
    let client = server.client();
    let stripe = Stripe::before(&server, PATH, SECRET);
    let rounds = volume(10, 500);

    for round in 0..rounds {
        let mut racing = JoinSet::new();
        for racer in 0..RACERS {
            let stripe = stripe.at(&server.nodes[racer % server.nodes.len()].base);
            racing
                .spawn(async move { summary(&stripe.tell(&event(&format!("evt_{round}"), "invoice.paid", 1)).await) });
        }
        let answers = racing.join_all().await;

        let ids: BTreeSet<&String> = answers.iter().map(|(id, ..)| id).collect();
        assert_eq!(ids.len(), 1, "{answers:?}");
        let first = answers.iter().filter(|(_, duplicate, jobs)| (*duplicate, *jobs) == (false, 1)).count();
        let repeated = answers.iter().filter(|(_, duplicate, jobs)| (*duplicate, *jobs) == (true, 0)).count();
        assert_eq!((first, repeated), (1, RACERS - 1), "{answers:?}");
    }

    assert_eq!((stored(&client, "").await.len(), waiting(&client, "all").await), (rounds, rounds as u64));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_may_say_by_what_its_jobs_are_the_same() {
    let server = shop("queues: {keyed: {source: shop, idempotency_key: $.data.key}}").start().await;
    let client = server.client();
    let stripe = Stripe::before(&server, PATH, SECRET);
    let mut number = 0;
    let mut body = |data: Value| {
        number += 1;
        json!({"id": format!("evt_{number}"), "type": "t", "data": data}).to_string()
    };

    let (text_id, duplicate, jobs) = summary(&stripe.tell(&body(json!({"key": "one"}))).await);
    assert_eq!((duplicate, jobs), (false, 1));
    assert_eq!(summary(&stripe.tell(&body(json!({"key": "one", "other": 1}))).await), (text_id, true, 0));
    let (number_id, ..) = summary(&stripe.tell(&body(json!({"key": 17}))).await);
    assert_eq!(summary(&stripe.tell(&body(json!({"key": 17}))).await), (number_id, true, 0));
    // Without one each counts, and so does one that is neither text nor number.
    for data in
        [json!({}), json!({}), json!({"key": null}), json!({"key": ""}), json!({"key": [1]}), json!({"key": [1]})]
    {
        let (_, duplicate, jobs) = summary(&stripe.tell(&body(data)).await);
        assert_eq!((duplicate, jobs), (false, 1));
    }
    // Longer than a key may be: still distinguished.
    for (tail, expected) in [("a", 1), ("b", 1), ("a", 0)] {
        let (.., jobs) = summary(&stripe.tell(&body(json!({"key": "k".repeat(2000) + tail}))).await);
        assert_eq!(jobs, expected, "{tail}");
    }

    assert_eq!(waiting(&client, "keyed").await, 10);
    assert_eq!(stored(&client, "").await.len(), 13, "events that made no job are remembered all the same");
}

// A repetition in one queue is none in another.
#[tokio::test(flavor = "multi_thread")]
async fn each_queue_has_its_own_idea_of_what_is_the_same() {
    let queues = "queues: {every: {source: shop}, keyed: {source: shop, idempotency_key: $.data.object.amount_due}}";
    let server = shop(queues).start().await;
    let client = server.client();
    let stripe = Stripe::before(&server, PATH, SECRET);

    let (first, _, jobs) = summary(&stripe.tell(&event("evt_1", "t", 7)).await);
    let (second, duplicate, fewer) = summary(&stripe.tell(&event("evt_2", "t", 7)).await);

    assert_eq!((jobs, duplicate, fewer), (2, false, 1));
    assert_ne!(first, second);
    assert_eq!((waiting(&client, "every").await, waiting(&client, "keyed").await), (2, 1));
}

// Terraform's ids have three parts of any letters; a database that has to find them again has its own idea of how long
// a key is.
#[tokio::test(flavor = "multi_thread")]
async fn the_longest_id_is_distinguished_from_its_neighbour() {
    let config =
        format!("sources: {{shop: {{verify: terraform, secret: {SECRET}}}}}\nqueues: {{all: {{source: shop}}}}");
    let server = Launch::fresh().with_config(&config).start().await;
    let client = server.client();
    let mut chance = Chance::seeded(seed("longest id"));
    let mut part = || -> String {
        let mut letter = || char::from_u32(0x20000 + chance.below(40_000) as u32).expect("an assigned plane");
        (0..255).map(|_| letter()).collect()
    };
    let (run, trigger, time) = (part(), part(), part());
    let post = async |time: &str| {
        let body = json!({"run_id": run, "notifications": [{"trigger": trigger, "run_updated_at": time}]}).to_string();
        let (headers, _) = signed("terraform", SECRET, "", ("application/json", &body), 0);
        let request = client.keyless(Method::POST, PATH).headers(headers).body(body);
        summary(&client.send(request).await.unwrap().expect(200))
    };

    let (first, duplicate, _) = post(&time).await;
    let again = post(&time).await;
    let (other, differs, _) = post(&part()).await;

    assert_eq!((duplicate, again), (false, (first.clone(), true, 0)));
    assert!(!differs && other != first);
}
