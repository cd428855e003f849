//! An address that tries wrong keys is slowed down; valid keys from that address are not. (T10)

use std::time::Duration;

use outlast_tests::http::{Client, Reply};
use outlast_tests::server::Launch;
use outlast_tests::wait;
use serde_json::json;

use crate::api::{make_queue, text};

const DEADLINE: Duration = Duration::from_secs(30);
const LIMITED: &str = "limits: {failed_keys_per_address: 5}\nqueues:\n  own: {api_key: key-of-own-with-twenty}\n";

async fn guess(base: &str, number: usize) -> Reply {
    Client::new(base, &format!("ol_{number:012}_{:043}", 7)).get("/v1/queues").await.unwrap()
}

/// Guesses, twenty at a time, until ten of them were slowed down: every node has an allowance of its own, which grows
/// again while a slow machine guesses.
async fn slowed_down(guess: impl AsyncFn(usize) -> Reply) -> Vec<Reply> {
    let mut slowed = Vec::new();
    for round in 0..100 {
        let guesses = (0..20).map(|number| guess(round * 20 + number));
        let answers = futures_util::future::join_all(guesses).await;
        slowed.extend(answers.into_iter().filter(|answer| answer.status == 429));
        if slowed.len() >= 10 {
            return slowed;
        }
    }
    panic!("{} of 2000 guesses were slowed down", slowed.len());
}

// T10: after some wrong keys an address gets 429 and a time to wait; valid keys from the same address work all the while,
// first uses included.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_tries_keys_is_slowed_down_and_valid_keys_from_there_are_not() {
    let server = Launch::fresh().with_config(LIMITED).start().await;
    let victim = server.client();
    make_queue(&victim, "work", json!({})).await;
    let made = victim.post("/v1/keys", json!({"name": "new", "scopes": ["read"]})).await.unwrap().expect(201);

    assert_eq!(guess(&victim.base, 0).await.status, 401);
    victim.get("/v1/queues/work").await.unwrap().expect(200);
    let slowed = slowed_down(async |number| guess(&victim.base, number).await).await;
    for answer in slowed {
        assert_eq!(answer.headers["retry-after"], "1");
        assert_eq!(answer.headers["connection"], "close");
        answer.clone().expect_problem(429, "too_many_requests");
    }
    // While the address is slowed down.
    loop {
        let is_slowed = guess(&victim.base, 99).await.status == 429;
        victim.get("/v1/queues/work").await.unwrap().expect(200);
        Client::new(&victim.base, &text(&made["key"])).get("/v1/queues").await.unwrap().expect(200);
        let of_queue = Client::new(&victim.base, "key-of-own-with-twenty");
        of_queue.get("/api/queues/own/messages").await.unwrap().expect(200);
        if is_slowed {
            break;
        }
    }
    wait::until("a wrong key to get an ordinary answer again", DEADLINE, async || {
        (guess(&victim.base, 100).await.status == 401).then_some(())
    })
    .await;
}

// A call without a key is no guess, and a token that is no good is one.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_a_key_is_never_slowed_down_and_a_wrong_token_is() {
    let server = Launch::fresh().with_config(LIMITED).start().await;
    let client = server.client();
    for _ in 0..20 {
        let bare = client.keyless(reqwest::Method::GET, "/v1/queues");
        client.send(bare).await.unwrap().expect_problem(401, "unauthorized");
    }

    slowed_down(async |number| {
        let wrong = Client::new(&client.base, &format!("olt_{number}"));
        wrong.get("/v1/jobs/01970000-0000-7000-8000-000000000000").await.unwrap()
    })
    .await;
}
