//! A background loop that panics: the server goes on, `/readyz` says which loop is down, and the loop starts again.

use std::time::Duration;

use outlast_tests::server::Launch;
use outlast_tests::wait::until;
use serde_json::json;

use crate::api::{make_queue, publish, receive_one, settle, text};
use crate::embedded::answer_first::unsafe_server;

const DEADLINE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_that_panics_is_shown_and_starts_again() {
    let launch = Launch::of(unsafe_server()).with_env("OUTLAST_TEST_DURABILITY", "full");
    let server = launch.with_env("OUTLAST_TEST_PANICS", "3").start().await;
    let client = server.client();

    let down = until("the loop is shown as down", DEADLINE, async || {
        let reply = client.get("/readyz").await.unwrap();
        (reply.status == 503).then_some(reply)
    })
    .await;
    let problem = down.expect_problem(503, "unavailable");
    assert!(problem["detail"].as_str().unwrap().contains("peer signals"), "{problem}");
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let job = receive_one(&client, "work").await;
    settle(&client, &id, "ack", json!({"lease": text(&job["lease"])})).await;

    until("the loop runs again", DEADLINE, async || {
        let page = client.get("/metrics").await.unwrap().expect(200);
        let restarts = page.as_str()?.lines().find_map(|line| line.strip_prefix("outlast_loop_failures_total "))?;
        let is_ready = client.get("/readyz").await.unwrap().status == 200;
        (restarts == "3" && is_ready).then_some(())
    })
    .await;
}
