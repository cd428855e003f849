//! Looking back at events: lists with filters and pages, one event, and new jobs of it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::provider::{Stripe, event};
use super::{PATH, SECRET, drain, neighbour, shop, stored, waiting};
use crate::api::{make_queue, text};

const QUEUES: &str = "queues:
  paid: {source: shop, events: [paid], idempotency_key: $.id}
  all: {source: shop}";

#[tokio::test(flavor = "multi_thread")]
async fn events_are_listed_newest_first_in_pages_and_by_source_and_type() {
    let server = shop(QUEUES).start().await;
    let client = server.client();
    let stripe = Stripe::before(&server, PATH, SECRET);
    let mut sent = Vec::new();
    for number in 0..7 {
        let kind = if number % 3 == 0 { "paid" } else { "failed" };
        sent.push(text(&stripe.tell(&event(&format!("evt_{number}"), kind, 1)).await["event_id"]));
    }
    sent.reverse();

    let (mut paged, mut cursor) = (Vec::new(), String::new());
    for length in [3, 3, 1] {
        let page = client.get(&format!("/v1/events?limit=3{cursor}")).await.unwrap().expect(200);
        let items = page["items"].as_array().unwrap();
        assert_eq!(items.len(), length, "{page}");
        paged.extend(items.iter().map(|event| text(&event["id"])));
        cursor = page["nextCursor"].as_str().map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
    }

    assert_eq!(paged, sent);
    assert_eq!(cursor, "", "the last page says that it is");
    let kinds = |events: Vec<Value>| events.iter().map(|event| text(&event["type"])).collect::<Vec<_>>();
    assert_eq!(kinds(stored(&client, "&type=paid").await), ["paid"; 3]);
    assert_eq!(kinds(stored(&client, "&type=failed&source=shop").await), ["failed"; 4]);
    for query in ["&source=elsewhere", "&type=pai", "&type=paid.*"] {
        assert_eq!(stored(&client, query).await, Vec::<Value>::new(), "{query}");
    }
    for query in ["cursor=7", "cursor=e", "cursor=e-1", "limit=0", "limit=9999", "kind=paid"] {
        client.get(&format!("/v1/events?{query}")).await.unwrap().expect_problem(400, "invalid_request");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_replayed_into_all_queues_or_into_one() {
    let server = shop(QUEUES).start().await;
    let client = server.client();
    make_queue(&client, "by-hand", json!({})).await;
    let stripe = Stripe::before(&server, PATH, SECRET);
    let paid = text(&stripe.tell(&event("evt_1", "paid", 1)).await["event_id"]);
    let first: BTreeSet<String> =
        ids(drain(&client, "paid").await).into_iter().chain(ids(drain(&client, "all").await)).collect();
    let path = format!("/v1/events/{paid}/replay");

    let all = client.post(&path, json!({})).await.unwrap().expect(202);
    let one = client.post(&path, json!({"queue": "by-hand"})).await.unwrap().expect(202);

    assert_eq!([&all["event_id"], &one["event_id"]], [&json!(paid), &json!(paid)]);
    let places: Vec<&Value> = all["jobs"].as_array().unwrap().iter().map(|job| &job["queue"]).collect();
    assert_eq!(places, ["all", "paid"]);
    assert_eq!(one["jobs"].as_array().unwrap().len(), 1);
    for (queue, made) in [("all", &all["jobs"][0]), ("paid", &all["jobs"][1]), ("by-hand", &one["jobs"][0])] {
        let message = drain(&client, queue).await.remove(0);
        assert_eq!([&message["id"], &message["event_id"]], [&made["id"], &json!(paid)]);
        assert_eq!([&message["event_type"], &message["payload"]["id"]], ["paid", "evt_1"]);
        assert!(!first.contains(&text(&message["id"])), "a new job");
    }
    client.post(&path, json!({"queue": "nowhere"})).await.unwrap().expect_problem(404, "queue_not_found");
    client.post(&path, json!({"queues": "all"})).await.unwrap().expect_problem(400, "invalid_request");
    assert_eq!(stored(&client, "").await.len(), 1, "a replay is no event");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_are_not_there_and_events_of_others_are_not_found() {
    let server = shop(QUEUES).start().await;
    let client = server.client();
    let theirs = neighbour(&client).await;
    make_queue(&theirs, "all", json!({})).await;
    let told = Stripe::before(&server, PATH, SECRET).tell(&event("evt_1", "paid", 1)).await;
    let path = format!("/v1/events/{}", text(&told["event_id"]));
    let job = client.get("/v1/jobs?queue=all").await.unwrap().expect(200)["items"][0]["id"].clone();

    assert_eq!(client.get(&path).await.unwrap().expect(200)["payload"]["id"], "evt_1");
    theirs.get(&path).await.unwrap().expect_problem(404, "event_not_found");
    theirs
        .post(&format!("{path}/replay"), json!({"queue": "all"}))
        .await
        .unwrap()
        .expect_problem(404, "event_not_found");
    assert_eq!(stored(&theirs, "").await, Vec::<Value>::new());
    assert_eq!(waiting(&theirs, "all").await, 0);
    let unknown = "01890a5d-ac96-774b-bcce-b302099a8057".to_owned();
    for id in [unknown, "nonsense".to_owned(), text(&job)] {
        client.get(&format!("/v1/events/{id}")).await.unwrap().expect_problem(404, "event_not_found");
        client
            .post(&format!("/v1/events/{id}/replay"), json!({}))
            .await
            .unwrap()
            .expect_problem(404, "event_not_found");
    }
}

fn ids(messages: Vec<Value>) -> Vec<String> {
    messages.iter().map(|message| text(&message["id"])).collect()
}
