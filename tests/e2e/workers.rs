//! `GET /v1/workers`: which workers ask for jobs, and what they hold. On every engine.

use std::time::Duration;

use outlast_tests::http::Client;
use outlast_tests::server::Server;
use outlast_tests::wait;
use serde_json::{Value, json};

use crate::api::{make_queue, publish_many, receive, settle, text};

const DEADLINE: Duration = Duration::from_secs(30);

async fn workers(client: &Client) -> Vec<Value> {
    let list = client.get("/v1/workers").await.unwrap().expect(200);
    assert_eq!(list["complete"], true);
    list["items"].as_array().unwrap().clone()
}

fn named<'a>(workers: &'a [Value], name: &str) -> Option<&'a Value> {
    workers.iter().find(|worker| worker["worker"] == name)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_listed_on_every_node_with_its_program_and_its_jobs() {
    let server = Server::fresh().await;
    let client = server.nodes[0].client();
    make_queue(&client, "mail", json!({"visibilityTimeout": 600})).await;
    make_queue(&client, "film", json!({"visibilityTimeout": 600})).await;
    publish_many(&client, "mail", 3).await;
    let agent = json!({"host": "box-1", "pid": 77, "sdk": "outlast-python/0.1.0"});
    let held = receive(&client, "mail", json!({"batch": 2, "worker": "w-1", "agent": agent})).await;
    let mut taken: Vec<String> = held.iter().map(|one| text(&one["id"])).collect();
    taken.sort();
    receive(&client, "mail", json!({})).await;
    let both = json!({"queues": [{"name": "film"}, {"name": "mail"}], "worker": "w-2"});
    client.post("/v1/receive", both).await.unwrap().expect(200);

    for node in &server.nodes {
        let client = node.client();
        let workers = wait::until("both workers", DEADLINE, async || {
            let workers = workers(&client).await;
            (named(&workers, "w-1").is_some_and(|one| one["seenAt"].is_string())
                && named(&workers, "w-2").is_some_and(|one| one["seenAt"].is_string()))
            .then_some(workers)
        })
        .await;

        let first = named(&workers, "w-1").unwrap();
        assert_eq!((&first["agent"], &first["queues"], &first["holds"]), (&agent, &json!(["mail"]), &json!(2)));
        let mut jobs: Vec<String> = first["jobs"].as_array().unwrap().iter().map(text).collect();
        jobs.sort();
        assert_eq!(jobs, taken);
        let second = named(&workers, "w-2").unwrap();
        assert_eq!((&second["queues"], &second["holds"]), (&json!(["film", "mail"]), &json!(0)));
        assert_eq!(second["agent"], json!({"host": null, "pid": null, "sdk": null}));
        assert_eq!(workers.len(), 2, "one without a name is not listed");
    }
    for one in held {
        settle(&client, &text(&one["id"]), "ack", json!({"lease": one["lease"]})).await;
    }
    assert_eq!(named(&workers(&client).await, "w-1").unwrap()["holds"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_sees_the_workers_of_its_queues_and_namespace_only() {
    let server = Server::fresh().await;
    let client = server.nodes[0].client();
    for queue in ["mail", "film"] {
        make_queue(&client, queue, json!({})).await;
        receive(&client, queue, json!({"worker": format!("of-{queue}")})).await;
    }
    let key = async |body: Value| {
        let key = client.post("/v1/keys", body).await.unwrap().expect(201);
        Client::new(&client.base, &text(&key["key"]))
    };
    let bound = key(json!({"name": "bound", "scopes": ["read:film"]})).await;
    let foreign = key(json!({"name": "foreign", "scopes": ["read"], "namespace": "other"})).await;
    let consumer = key(json!({"name": "consumer", "scopes": ["consume"]})).await;

    let seen = workers(&bound).await;

    assert_eq!((seen.len(), &seen[0]["worker"]), (1, &json!("of-film")));
    assert_eq!(workers(&foreign).await, Vec::<Value>::new());
    assert_eq!(workers(&client).await.len(), 2);
    consumer.get("/v1/workers").await.unwrap().expect_problem(403, "forbidden");
}

// One key can make the server remember no more than so many workers, and leaves those of another namespace alone.
#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_workers_that_are_remembered_is_bounded() {
    let server = Server::fresh().await;
    let client = server.nodes[0].client();
    make_queue(&client, "mail", json!({})).await;
    let request = json!({"name": "v", "scopes": ["admin"], "namespace": "victim"});
    let victim = client.post("/v1/keys", request).await.unwrap().expect(201);
    let victim = Client::new(&client.base, &text(&victim["key"]));
    make_queue(&victim, "mail", json!({})).await;
    for number in 0..1100 {
        receive(&client, "mail", json!({"worker": format!("w-{number}")})).await;
    }
    receive(&victim, "mail", json!({"worker": "of-the-victim"})).await;

    assert_eq!(workers(&client).await.len(), 1000);
    assert_eq!(workers(&victim).await.len(), 1);
    for agent in [json!({"host": "x".repeat(256)}), json!({"pid": -1}), json!({"version": 1}), json!("python")] {
        let refused = client.post("/v1/queues/mail/receive", json!({"agent": agent})).await.unwrap();
        assert!(refused.expect_problem(400, "invalid_request").to_string().contains("agent"), "{agent}");
    }
}
