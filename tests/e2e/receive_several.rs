//! `POST /v1/receive`: jobs of several queues in one request.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use outlast_tests::http::{Client, Reply};
use outlast_tests::server::Server;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::api::{job, make_queue, publish, publish_many, settle, text};
use crate::overload::wait_for_waiters;

const SOON: Duration = Duration::from_secs(20);

async fn ask(client: &Client, queues: Value, more: Value) -> Reply {
    let mut body = json!({ "queues": queues });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    client.post("/v1/receive", body).await.unwrap()
}

async fn take(client: &Client, queues: Value, more: Value) -> Vec<Value> {
    ask(client, queues, more).await.expect(200)["jobs"].as_array().unwrap().clone()
}

fn named(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"name": name})).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_takes_jobs_of_all_queues_up_to_its_batch() {
    let server = Server::fresh().await;
    let client = server.client();
    for queue in ["a", "b", "empty"] {
        make_queue(&client, queue, json!({"visibilityTimeout": 600})).await;
    }
    publish_many(&client, "a", 3).await;
    publish_many(&client, "b", 4).await;

    let first = take(&client, named(&["a", "b", "empty"]), json!({"batch": 5, "worker": "w"})).await;
    let rest = take(&client, named(&["a", "b", "empty"]), json!({"batch": 5})).await;

    assert_eq!((first.len(), rest.len()), (5, 2));
    let mut queues: BTreeMap<String, usize> = BTreeMap::new();
    for one in first.iter().chain(&rest) {
        *queues.entry(text(&one["queue"])).or_default() += 1;
        settle(&client, &text(&one["id"]), "ack", json!({"lease": one["lease"]})).await;
    }
    assert_eq!(queues, BTreeMap::from([("a".to_owned(), 3), ("b".to_owned(), 4)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waits_is_woken_by_any_of_its_queues() {
    let server = Server::fresh().await;
    let (waiter, publisher) = (server.nodes[0].client(), server.nodes.last().unwrap().client());
    let names: Vec<String> = (0..20).map(|number| format!("q{number}")).collect();
    for name in &names {
        make_queue(&waiter, name, json!({"visibilityTimeout": 600})).await;
    }
    let all: Vec<&str> = names.iter().map(String::as_str).collect();

    for name in ["q0", "q13", "q19"] {
        let (taken, began) = tokio::join!(take(&waiter, named(&all), json!({"wait": 28, "batch": 4})), async {
            wait_for_waiters(&waiter, 5).await;
            publish(&publisher, name, json!(1)).await;
            Instant::now()
        });
        assert!(began.elapsed() < SOON, "{name}");
        assert_eq!((taken.len(), &taken[0]["queue"]), (1, &json!(name)));
    }
    let began = Instant::now();
    assert_eq!(take(&waiter, named(&all), json!({"wait": "1s"})).await.len(), 0);
    assert!(began.elapsed() >= Duration::from_secs(1));
}

// No wake-up is lost between consumers of one and of several queues: each job is taken at once by one of those who wait.
#[tokio::test(flavor = "multi_thread")]
async fn many_waiting_requests_over_many_queues_take_every_job_once() {
    let server = Server::fresh().await;
    let client = server.client();
    let names = ["a", "b", "c", "d"];
    for name in names {
        make_queue(&client, name, json!({"visibilityTimeout": 600})).await;
    }
    let mut consumers = JoinSet::new();
    for number in 0..16 {
        let client = client.clone();
        consumers.spawn(async move {
            let mut ids = Vec::new();
            loop {
                let taken = match number % 4 {
                    0 => crate::api::receive(&client, names[number / 4], json!({"wait": "4s", "batch": 2})).await,
                    _ => take(&client, named(&names), json!({"wait": "4s", "batch": 3})).await,
                };
                if taken.is_empty() {
                    return ids;
                }
                for one in taken {
                    settle(&client, &text(&one["id"]), "ack", json!({"lease": one["lease"]})).await;
                    ids.push(text(&one["id"]));
                }
            }
        });
    }
    let mut published = Vec::new();
    for round in 0..60 {
        published.push(publish(&client, names[round % 4], json!(round)).await);
    }

    let mut taken: Vec<String> = consumers.join_all().await.into_iter().flatten().collect();

    taken.sort();
    published.sort();
    assert_eq!(taken, published);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_of_more_weight_is_asked_first_more_often() {
    let server = Server::fresh().await;
    let client = server.client();
    for queue in ["heavy", "light"] {
        make_queue(&client, queue, json!({"visibilityTimeout": 600})).await;
        publish_many(&client, queue, 120).await;
    }
    let queues = json!([{"name": "light"}, {"name": "heavy", "weight": 9}]);

    let mut heavy = 0;
    for _ in 0..100 {
        let taken = take(&client, queues.clone(), json!({})).await;
        heavy += usize::from(taken[0]["queue"] == "heavy");
    }

    // 90 of 100 by chance; outside of this once in many millions of runs.
    assert!((70..100).contains(&heavy), "{heavy}");
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_that_cannot_all_be_received_from_give_nothing() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    make_queue(&client, "pushed", json!({"webhookUrl": "https://example.com/hook"})).await;
    let id = publish(&client, "work", json!(1)).await;
    let key = client.post("/v1/keys", json!({"name": "k", "scopes": ["consume:work"]})).await.unwrap().expect(201);
    let bound = Client::new(&client.base, &text(&key["key"]));
    make_queue(&client, "other", json!({})).await;

    ask(&client, named(&["work", "missing"]), json!({})).await.expect_problem(404, "queue_not_found");
    ask(&client, named(&["work", "pushed"]), json!({})).await.expect_problem(409, "not_pullable");
    ask(&bound, named(&["work", "other"]), json!({})).await.expect_problem(404, "queue_not_found");
    for (queues, names) in [
        (json!([]), "at least one"),
        (named(&["work", "work"]), "queues[1].name"),
        (json!([{"name": "work", "weight": 0}]), "queues[0].weight"),
        (json!([{"name": "work", "weight": 1001}]), "queues[0].weight"),
        (json!(["work"]), "queues[0]"),
        (json!(vec![json!({"name": "work"}); 101]), "100"),
    ] {
        let refused = ask(&client, queues, json!({})).await.expect_problem(400, "invalid_request").to_string();
        assert!(refused.contains(names), "{names}: {refused}");
    }

    assert_eq!(job(&client, &id).await["version"], 1, "nothing was handed out");
    assert_eq!(take(&bound, named(&["work"]), json!({})).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_hangs_up_takes_no_job_with_it() {
    let server = Server::fresh().await;
    let client = server.nodes[0].client();
    for queue in ["a", "b"] {
        make_queue(&client, queue, json!({"visibilityTimeout": 600})).await;
    }
    for _ in 0..3 {
        let gone = client.clone();
        let waiting = tokio::spawn(async move { take(&gone, named(&["a", "b"]), json!({"wait": 28})).await });
        wait_for_waiters(&client, 1).await;
        waiting.abort();
        publish(&client, "b", json!(1)).await;

        let taken = take(&client, named(&["a", "b"]), json!({"wait": 28})).await;

        assert_eq!(taken.len(), 1, "the job is not with the one who left");
        settle(&client, &text(&taken[0]["id"]), "ack", json!({"lease": taken[0]["lease"]})).await;
    }
}
