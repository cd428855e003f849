//! Whoever tries keys is slowed down, and nobody else is. (T10)

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

// T10: after some wrong keys an address gets 429 and a time to wait; valid keys from the same address work all the while,
// first uses included.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_tries_keys_is_slowed_down_and_valid_keys_from_there_are_not() {
    let server = Launch::fresh().with_config(LIMITED).start().await;
    let victim = server.client();
    make_queue(&victim, "work", json!({})).await;
    let made = victim.post("/v1/keys", json!({"name": "new", "scopes": ["read"]})).await.unwrap().expect(201);

    let mut answers = Vec::new();
    for number in 0..40 {
        answers.push(guess(&victim.base, number).await);
        if number == 0 {
            victim.get("/v1/queues/work").await.unwrap().expect(200);
        }
    }
    let slowed: Vec<&Reply> = answers.iter().filter(|answer| answer.status == 429).collect();
    assert!(slowed.len() >= 10, "{} of 40 wrong keys were slowed down", slowed.len());
    assert_eq!(answers[0].status, 401);
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

    let mut slowed = 0;
    for number in 0..40 {
        let wrong = Client::new(&client.base, &format!("olt_{number}"));
        let job = "/v1/jobs/01970000-0000-7000-8000-000000000000";
        slowed += usize::from(wrong.get(job).await.unwrap().status == 429);
    }
    assert!(slowed >= 10, "{slowed} of 40");
}
