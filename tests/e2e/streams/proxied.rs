//! The same through a plain reverse proxy: nothing is held back, although the proxy buffers what is not said to be live.

use std::time::Duration;

use outlast_tests::http::Client;
use outlast_tests::nginx::Nginx;
use outlast_tests::server::Server;
use outlast_tests::sse::Sse;
use outlast_tests::wait::within;
use serde_json::json;
use tokio::time::timeout;

use crate::api::{make_queue, publish, receive_one, settle};
use crate::streams::LIVE_MAX;

/// Long enough for an event that is not held back.
const HELD_BACK: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn nginx_passes_each_event_on_as_it_comes() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    for settings in ["", "proxy_http_version 1.1;\nproxy_set_header Connection \"\";\n"] {
        let nginx = Nginx::before(&server.own_base, settings);
        let id = publish(&client, "work", json!(1)).await;
        let mut stream = Sse::open(&Client::new(&nginx.base, &client.key), &id, None).await;

        assert_eq!(within(LIVE_MAX, stream.frame()).await.expect("the log so far").id, 1);
        let held = receive_one(&client, "work").await;
        assert_eq!(within(LIVE_MAX, stream.frame()).await.expect("an event as it comes").id, 2);
        settle(&client, &id, "ack", json!({"lease": held["lease"]})).await;
        let rest = within(LIVE_MAX, stream.rest()).await.expect("the end");

        assert_eq!(rest.last().map(|frame| frame.data["to"].clone()), Some(json!("succeeded")));
    }
}

// The control: the same proxy, deaf to the header that asks it not to, does hold events back.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_header_nginx_holds_events_back() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let nginx = Nginx::before(&server.own_base, "proxy_ignore_headers X-Accel-Buffering;\n");
    let id = publish(&client, "work", json!(1)).await;

    let first =
        timeout(HELD_BACK, async { Sse::open(&Client::new(&nginx.base, &client.key), &id, None).await.frame().await });

    assert!(first.await.is_err(), "this proxy buffers nothing, so it proves nothing");
}
