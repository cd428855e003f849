//! Tokens to one job, for browsers: how they are made, what they open, how they end, and what a page of another origin
//! may see. Which route takes which token is in `authority/tokens.rs`. (T38, I-37)

use std::time::Duration;

use outlast_tests::http::Client;
use outlast_tests::server::{Launch, Server};
use outlast_tests::sse::{Next, Sse};
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use reqwest::Method;
use serde_json::{Value, json};

use crate::api::{make_queue, publish, text};
use crate::scene::MANY_WRONG_KEYS;

/// The promised time for every stream when its key is revoked.
const REVOKED_MAX: Duration = Duration::from_secs(5);

async fn scene() -> (Server, Client, String) {
    scene_on(Launch::fresh()).await
}

async fn scene_on(launch: Launch) -> (Server, Client, String) {
    let server = launch.start().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!("for a browser")).await;
    (server, client, id)
}

async fn mint(client: &Client, id: &str, request: Value) -> Value {
    client.post(&format!("/v1/jobs/{id}/token"), request).await.unwrap().expect(201)
}

async fn key(client: &Client, request: Value) -> (Client, String) {
    let key = client.post("/v1/keys", request).await.unwrap().expect(201);
    (Client::new(&client.base, &text(&key["key"])), text(&key["id"]))
}

/// A client that shows the token as if it were a key.
fn holder(client: &Client, token: &Value) -> Client {
    Client::new(&client.base, &text(token))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_shows_its_job_by_header_and_by_url() {
    let (server, client, id) = scene().await;
    let made = mint(&client, &id, json!({"can": ["read", "cancel"], "expiresIn": "10m"})).await;
    let by_header = holder(&client, &made["token"]);

    let shown = by_header.get(&format!("/v1/jobs/{id}?wait=0&version=0")).await.unwrap().expect(200);
    let by_url = client.send(client.keyless(Method::GET, &text(&made["statusUrl"]))).await.unwrap().expect(200);
    let events = by_header.get(&format!("/v1/jobs/{id}/events?after=0")).await.unwrap().expect(200);
    let mut stream = client.keyless(Method::GET, &text(&made["streamUrl"])).send().await.unwrap();
    let first = stream.chunk().await.unwrap().expect("a stream begins");
    let mut followed = Sse::open(&by_header, &id, Some(0)).await;
    let queued = followed.frame().await;
    by_header.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await.unwrap().expect(200);
    let rest = followed.rest().await;

    assert_eq!((&shown["id"], &by_url["payload"]), (&json!(id), &json!("for a browser")));
    assert_eq!(made["can"], json!(["read", "cancel"]));
    assert!(text(&made["token"]).starts_with("olt_") && made["expiresAt"].is_string());
    assert!(!events["items"].as_array().unwrap().is_empty());
    assert!(stream.status() == 200 && first.starts_with(b"retry: "));
    assert_eq!(stream.headers()["access-control-allow-origin"], "*");
    assert_eq!((queued.id, rest.last().unwrap().data["to"].clone()), (1, json!("cancelled")));
    assert!(!server.log().contains("olt_"), "a token is in the log");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_can_do_no_more_than_the_key_that_makes_it() {
    let (_server, client, id) = scene().await;
    make_queue(&client, "elsewhere", json!({})).await;
    let (reader, _) = key(&client, json!({"name": "r", "scopes": ["read", "manage:elsewhere"]})).await;
    let (publisher, _) = key(&client, json!({"name": "p", "scopes": ["publish"]})).await;
    let (stranger, _) = key(&client, json!({"name": "s", "scopes": ["read:elsewhere"]})).await;
    let (neighbour, _) = key(&client, json!({"name": "n", "scopes": ["admin"], "namespace": "neighbour"})).await;
    let path = format!("/v1/jobs/{id}/token");

    mint(&reader, &id, json!({"can": ["read", "download"]})).await;
    reader.post(&path, json!({"can": ["cancel"]})).await.unwrap().expect_problem(403, "forbidden");
    publisher.post(&path, json!({"can": ["read"]})).await.unwrap().expect_problem(403, "forbidden");
    for foreign in [stranger, neighbour] {
        foreign.post(&path, json!({"can": ["read"]})).await.unwrap().expect_problem(404, "job_not_found");
    }
    let made = mint(&client, &id, json!({"can": ["read", "cancel", "download"]})).await;
    let again = holder(&client, &made["token"]).post(&path, json!({"can": ["read"]})).await.unwrap();
    again.expect_problem(403, "forbidden");
    for wrong in [
        json!({}),
        json!({"can": []}),
        json!({"can": ["write"]}),
        json!({"can": "read"}),
        json!({"can": ["read"], "expiresIn": "8d"}),
        json!({"can": ["read"], "expiresIn": 0}),
    ] {
        client.post(&path, wrong.clone()).await.unwrap().expect_problem(400, "invalid_request");
    }
}

/// The control is the untouched token, before and after.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_was_changed_and_a_key_in_a_url_open_nothing() {
    let (_server, client, id) = scene_on(Launch::fresh().with_config(MANY_WRONG_KEYS)).await;
    let made = mint(&client, &id, json!({"can": ["read"]})).await;
    let token = text(&made["token"]);
    let ask = async |token: &str| {
        let url = format!("/v1/jobs/{id}?token={token}");
        client.send(client.keyless(Method::GET, &url)).await.unwrap()
    };
    ask(&token).await.expect(200);

    for at in 4..token.len() {
        let other = if token.as_bytes()[at] == b'A' { "B" } else { "A" };
        let changed = format!("{}{other}{}", &token[..at], &token[at + 1..]);
        ask(&changed).await.expect_problem(401, "unauthorized");
    }
    for wrong in [&token[4..], &token[..token.len() - 1], &client.key, "", "olt_", &format!("{token}&token={token}")] {
        ask(wrong).await.expect_problem(401, "unauthorized");
    }
    let other = publish(&client, "work", json!("another")).await;
    let elsewhere = client.keyless(Method::GET, &format!("/v1/jobs/{other}?token={token}"));
    client.send(elsewhere).await.unwrap().expect_problem(404, "job_not_found");

    ask(&token).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_by_token_end_with_their_key_and_with_their_time() {
    let (_server, client, id) = scene().await;
    let (minter, minter_id) = key(&client, json!({"name": "m", "scopes": ["read"]})).await;
    let made = mint(&minter, &id, json!({"can": ["read"]})).await;
    let short = mint(&client, &id, json!({"can": ["read"], "expiresIn": 8})).await;
    let mut mine = Sse::open(&client, &id, Some(1)).await;
    let opened = Stopwatch::start();
    let mut expiring = Sse::open(&holder(&client, &short["token"]), &id, Some(1)).await;
    // In a task of its own, so that it is read while the others are opened.
    let expiring = tokio::spawn(async move { (expiring.next().await, opened.charged()) });
    let mut theirs = Vec::new();
    for _ in 0..50 {
        theirs.push(Sse::open(&holder(&client, &made["token"]), &id, Some(1)).await);
    }

    let revoked = Stopwatch::start();
    client.delete(&format!("/v1/keys/{minter_id}")).await.unwrap().expect(200);
    for stream in &mut theirs {
        assert_eq!(stream.next().await, Next::End);
    }
    let taken = revoked.charged();
    let after = holder(&client, &made["token"]).get(&format!("/v1/jobs/{id}")).await.unwrap();
    let (ended, lived) = expiring.await.unwrap();
    assert_eq!(ended, Next::End, "a stream ends when its token expires");
    let over = holder(&client, &short["token"]);
    wait::until("the token to be over", Duration::from_secs(5), async || {
        (over.get(&format!("/v1/jobs/{id}")).await.unwrap().status == 401).then_some(())
    })
    .await;
    client.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await.unwrap().expect(200);

    println!("closed after {taken:?}");
    assert!(taken < REVOKED_MAX, "{taken:?}");
    after.expect_problem(401, "unauthorized");
    assert!(lived < Duration::from_secs(8) + REVOKED_MAX, "{lived:?}");
    assert_eq!(mine.rest().await.len(), 1, "streams of other keys go on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_outlives_a_restart_of_the_server() {
    let (mut server, client, id) = scene().await;
    let made = mint(&client, &id, json!({"can": ["read"]})).await;

    server.crash_and_restart().await;

    let client = server.client();
    holder(&client, &made["token"]).get(&format!("/v1/jobs/{id}")).await.unwrap().expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_origin_may_call_with_a_token_and_not_otherwise() {
    let (_server, client, id) = scene().await;
    let token = text(&mint(&client, &id, json!({"can": ["read"]})).await["token"]);
    let url = format!("/v1/jobs/{id}");
    let send = async |request: reqwest::RequestBuilder| {
        client.send(request.header("origin", "https://page.example")).await.unwrap()
    };

    let asked = send(client.keyless(Method::OPTIONS, &url)).await;
    let with_token = send(client.keyless(Method::GET, &format!("{url}?token={token}"))).await;
    let with_another = send(client.keyless(Method::GET, &format!("{url}?token=olt_x"))).await;
    let with_key = send(client.request(Method::GET, &url)).await;
    let with_nothing = send(client.keyless(Method::GET, &url)).await;
    let elsewhere = send(client.keyless(Method::OPTIONS, "/v1/queues")).await;

    let header = |reply: &outlast_tests::http::Reply, name: &str| {
        reply.headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
    };
    assert_eq!((asked.status, header(&asked, "access-control-allow-origin").as_str()), (204, "*"));
    assert_eq!(header(&asked, "access-control-allow-methods"), "GET, DELETE");
    assert!(header(&asked, "access-control-allow-headers").contains("Authorization"));
    for (reply, status) in [(&with_token, 200), (&with_another, 401)] {
        assert_eq!((reply.status, header(reply, "access-control-allow-origin").as_str()), (status, "*"));
        assert_eq!(header(reply, "referrer-policy"), "no-referrer");
    }
    for (reply, status) in [(&with_key, 200), (&with_nothing, 401), (&elsewhere, 405)] {
        assert_eq!((reply.status, header(reply, "access-control-allow-origin").as_str()), (status, ""));
    }
    for reply in [&asked, &with_token, &with_another, &with_key, &with_nothing, &elsewhere] {
        assert_eq!(header(reply, "access-control-allow-credentials"), "");
    }
}

const SECRETS: [&str; 5] =
    ["for a browser", "tag-of-a-tenant", "worker-of-a-tenant", "error of a provider", "tenant-key"];

/// A job with something to hide in each of its parts, running for the second time.
async fn secretive() -> (Server, Client, String, String) {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({"backoff": {"type": "fixed", "delay": 0}})).await;
    let job = json!({"payload": "for a browser", "tags": {"a": "tag-of-a-tenant"}, "key": "tenant-key"});
    let id = text(&client.post("/v1/queues/work/jobs", job).await.unwrap().expect(202)["id"]);
    let take = async || {
        let body = json!({"wait": 30, "worker": "worker-of-a-tenant"});
        let jobs = client.post("/v1/queues/work/receive", body).await.unwrap().expect(200);
        text(&jobs["jobs"][0]["lease"])
    };
    let nack = json!({"lease": take().await, "reason": "error of a provider"});
    client.post(&format!("/v1/jobs/{id}/nack"), nack).await.unwrap().expect(200);
    let lease = take().await;
    let output = json!({"lease": lease, "text": "words for the reader", "part": 1});
    client.post(&format!("/v1/jobs/{id}/output"), output).await.unwrap().expect(200);
    let progress = json!({"lease": lease, "pct": 40, "stage": "writing"});
    client.put(&format!("/v1/jobs/{id}/progress"), progress).await.unwrap().expect(200);
    (server, client, id, lease)
}

// A page for the end user shows how far the job is, and nothing of the publisher or the worker.
#[tokio::test(flavor = "multi_thread")]
async fn one_who_may_watch_sees_status_and_progress_and_nothing_else() {
    let (_server, client, id, lease) = secretive().await;
    for can in [json!(["watch"]), json!(["watch", "output"])] {
        let sees_output = can.as_array().unwrap().len() == 2;
        let made = mint(&client, &id, json!({"can": can})).await;
        let watcher = holder(&client, &made["token"]);

        let job = wait::until("the progress", Duration::from_secs(30), async || {
            let job = watcher.get(&format!("/v1/jobs/{id}")).await.unwrap().expect(200);
            (job["progress"]["pct"] == 40).then_some(job)
        })
        .await;
        let events = watcher.get(&format!("/v1/jobs/{id}/events")).await.unwrap().expect(200);

        let mut members: Vec<&String> = job.as_object().unwrap().keys().collect();
        members.sort();
        let wanted = ["createdAt", "finishedAt", "id", "progress", "resultMeta", "startedAt", "status", "version"];
        assert_eq!(members, wanted);
        assert_eq!((&job["status"], &job["progress"]["stage"]), (&json!("running"), &json!("writing")));
        for event in events["items"].as_array().unwrap() {
            let mut members: Vec<&str> = event.as_object().unwrap().keys().map(String::as_str).collect();
            members.sort_unstable();
            match event["type"].as_str().unwrap() {
                "state" => assert_eq!(members, ["at", "from", "replays", "seq", "to", "type"]),
                "output" if sees_output => assert_eq!(event["text"], "words for the reader"),
                other => panic!("a {other} event is shown"),
            }
        }
        assert_eq!(events.to_string().contains("words for the reader"), sees_output);
        let shown = format!("{job}{events}");
        assert!(SECRETS.iter().all(|secret| !shown.contains(secret)), "{shown}");
        watcher.get(&format!("/v1/jobs/{id}/result")).await.unwrap().expect_problem(403, "forbidden");
        watcher.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await.unwrap().expect_problem(403, "forbidden");
    }
    drop(lease);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_streams_of_one_who_may_watch_have_states_progress_and_the_end() {
    let (_server, client, id, lease) = secretive().await;
    let watch = mint(&client, &id, json!({"can": ["watch"]})).await;
    let with_output = mint(&client, &id, json!({"can": ["watch", "output"]})).await;
    let streams = [holder(&client, &watch["token"]), holder(&client, &with_output["token"])];
    let mut open = Vec::new();
    for watcher in &streams {
        open.push(Sse::open(watcher, &id, Some(0)).await);
    }

    let ack = json!({"lease": lease, "result": {"secret": "for a browser"}});
    client.post(&format!("/v1/jobs/{id}/ack"), ack).await.unwrap().expect(200);

    for (mut stream, sees_output) in open.into_iter().zip([false, true]) {
        let frames = stream.rest().await;
        let kinds: Vec<&str> = frames.iter().map(|frame| frame.event.as_str()).collect();
        assert!(kinds.iter().all(|kind| matches!(*kind, "state" | "progress" | "end" | "output")), "{kinds:?}");
        assert_eq!(kinds.contains(&"output"), sees_output, "{kinds:?}");
        assert!(kinds.iter().filter(|kind| **kind == "state").count() >= 4, "{kinds:?}");
        let shown: String = frames.iter().map(|frame| frame.data.to_string()).collect();
        assert!(SECRETS.iter().all(|secret| !shown.contains(secret)) && !shown.contains("reason"), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_cancels_without_reading_gets_the_reduced_job() {
    let (_server, client, id, _lease) = secretive().await;
    for (can, is_whole) in
        [(json!(["cancel"]), false), (json!(["watch", "cancel"]), false), (json!(["read", "cancel"]), true)]
    {
        let made = mint(&client, &id, json!({"can": can})).await;
        let shown = holder(&client, &made["token"]).post(&format!("/v1/jobs/{id}/cancel"), json!({})).await.unwrap();
        let shown = shown.expect(200);
        assert_eq!(shown.get("payload").is_some(), is_whole, "{can}");
        assert_eq!(SECRETS.iter().any(|secret| shown.to_string().contains(secret)), is_whole, "{can}");
    }
    let refused = client.post(&format!("/v1/jobs/{id}/token"), json!({"can": ["read", "output"]})).await.unwrap();
    assert!(refused.expect_problem(400, "invalid_request").to_string().contains("watch"));
}
