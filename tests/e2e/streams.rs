//! A job's log as server-sent events: all of it, once, in order, to the end, whatever breaks in between. (I-32, F30,
//! T38)

pub(crate) mod resume;
pub(crate) mod queue;
mod bounds;
mod proxied;

use std::time::Duration;

use outlast_tests::http::Client;
use outlast_tests::server::Server;
use outlast_tests::sse::{Asked, Frame, Next, Sse};
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use outlast_tests::ws::Ws;
use reqwest::Method;
use serde_json::{Value, json};

use crate::api::{events, make_queue, publish, receive_one, settle, text};
use crate::raw::Raw;

/// An event is at its reader well within this; on another node without Redis the patrol takes its second.
const LIVE_MAX: Duration = Duration::from_secs(8);

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_gets_the_log_so_far_then_each_event_as_it_comes_then_the_end() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let published = client.post("/v1/queues/work/jobs", json!({})).await.unwrap().expect(202);
    let id = text(&published["id"]);
    assert_eq!(published["streamUrl"], json!(format!("/v1/jobs/{id}/stream")));
    let mut stream = Sse::open(&client, &id, None).await;

    let first = stream.frame().await;
    let held = receive_one(&client, "work").await;
    let started = Stopwatch::start();
    let second = stream.frame().await;
    settle(&client, &id, "ack", json!({"lease": held["lease"], "result": {"text": "a\nb\r\u{2028}"}})).await;
    let rest = stream.rest().await;
    let taken = started.charged();

    assert_eq!((first.id, first.data["to"].as_str()), (1, Some("queued")));
    assert_eq!((second.id, second.data["to"].as_str()), (2, Some("running")));
    assert!(taken < LIVE_MAX, "{taken:?}");
    assert!(stream.retry_millis.is_some_and(|millis| (1000..=5000).contains(&millis)));
    for (name, value) in [("content-type", "text/event-stream"), ("cache-control", "no-store")] {
        assert_eq!(stream.header(name), value);
    }
    let all: Vec<Frame> = [first, second].into_iter().chain(rest).collect();
    assert_is_log(&all, &events(&client, &id).await);
}

// I-32: a late viewer sees all of it, and a closed stream.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_after_the_end_gets_the_whole_log_and_a_closed_stream() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({"maxAttempts": 1})).await;
    let id = publish(&client, "work", json!(1)).await;
    fail(&client, &id).await;
    client.post(&format!("/v1/jobs/{id}/replay"), json!({})).await.unwrap().expect(200);
    fail(&client, &id).await;
    let log = events(&client, &id).await;
    let last = log.len() as u64;

    let whole = Sse::open(&client, &id, None).await.rest().await;
    let half = Sse::open(&client, &id, Some(3)).await.rest().await;
    let by_query = client.request(Method::GET, &format!("/v1/jobs/{id}/stream?after=3")).send().await.unwrap();
    let by_query = by_query.text().await.unwrap();
    let nothing = ask(&client, &id, Some(last)).await;

    assert_is_log(&whole, &log);
    assert_eq!(whole.iter().filter(|frame| frame.data["to"] == "failed").count(), 2, "an end in the middle is no end");
    assert_is_log(&half, &log[3..]);
    assert_eq!(by_query.matches("\nevent: ").count(), half.len() + 1, "each event and the end");
    assert_eq!(nothing.status, 204, "there is nothing to come back for");
}

// A long log is read in pages, which the client does not notice.
// A replayed job has a final state for each life before: only the `end` event is the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_a_replayed_job_goes_on_to_its_end() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    fail(&client, &id).await;
    client.post(&format!("/v1/jobs/{id}/replay"), json!({})).await.unwrap().expect(200);

    let (mut sse, mut ws) = (Sse::open(&client, &id, None).await, Ws::open(&client, &id, None).await);
    let held = receive_one(&client, "work").await;
    let (mut streamed, mut sent) = (Vec::new(), Vec::new());
    while streamed.last().is_none_or(|state| *state != json!(["running", 1])) {
        streamed.extend(state(&sse.frame().await.data));
    }
    while sent.last().is_none_or(|state| *state != json!(["running", 1])) {
        sent.extend(state(&ws.frame().await));
    }
    assert_eq!((&sse.end, &ws.end), (&None, &None), "the end of the life before is not the end");
    settle(&client, &id, "ack", json!({"lease": held["lease"]})).await;
    streamed.extend(sse.rest().await.iter().filter_map(|frame| state(&frame.data)));
    let (rest, code) = ws.rest().await;
    sent.extend(rest.iter().filter_map(state));

    let wanted = [("queued", 0), ("running", 0), ("failed", 0), ("queued", 1), ("running", 1), ("succeeded", 1)];
    assert_eq!(streamed, wanted.map(|(to, replays)| json!([to, replays])));
    assert_eq!(sent, streamed);
    let end = Some(json!({"type": "end", "status": "succeeded", "replays": 1}));
    assert_eq!((&sse.end, &ws.end, code), (&end, &end, 1000));
    let mut late = Ws::open(&client, &id, Some(all_events(&client, &id).await.len() as u64)).await;
    assert_eq!(late.rest().await, (Vec::new(), 1000));
    assert_eq!(late.end, end, "a late reader gets it too");
}

/// Where a `state` event leads, and in which life.
fn state(event: &Value) -> Option<Value> {
    (event["type"] == "state").then(|| json!([event["to"], event["replays"]]))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_of_many_pages_is_one_stream() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    for _ in 0..60 {
        defer(&client, "work").await;
    }
    client.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await.unwrap().expect(200);

    let whole = Sse::open(&client, &id, None).await.rest().await;

    assert!(whole.len() > 150, "only {} events", whole.len());
    assert_is_log(&whole, &all_events(&client, &id).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_makes_no_sense_is_refused_and_named() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let path = format!("/v1/jobs/{id}/stream");

    for wrong in ["", "x", "-1", "1.5", "+1", "1 2", "9223372036854775808", "2"] {
        let request = client.request(Method::GET, &path).header("last-event-id", wrong);
        let problem = client.send(request).await.unwrap().expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["field"], json!("Last-Event-ID"), "{wrong:?}: {problem}");
    }
    let beyond = client.get(&format!("{path}?after=2")).await.unwrap().expect_problem(400, "invalid_request");
    assert_eq!(beyond["errors"][0]["field"], json!("after"));
}

// T13: somebody else's job is not there.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_another_namespace_has_no_stream() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let request = json!({"name": "n", "scopes": ["admin"], "namespace": "neighbour"});
    let key = client.post("/v1/keys", request).await.unwrap().expect(201);
    let theirs = Client::new(&client.base, &text(&key["key"]));

    ask(&theirs, &id, None).await.expect_problem(404, "job_not_found");
    ask(&theirs, &id, Some(1)).await.expect_problem(404, "job_not_found");
    let nobody = "01890000-0000-7000-8000-000000000000";
    ask(&client, nobody, None).await.expect_problem(404, "job_not_found");
}

// A purge names no job, and some end by the clock: the readers hear of it all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_sees_an_end_by_a_bulk_operation_or_the_clock() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let purged = publish(&client, "work", json!(1)).await;
    let soon = (jiff::Timestamp::now() + jiff::SignedDuration::from_secs(1)).to_string();
    let late = client.post("/v1/queues/work/jobs", json!({"startBy": soon, "delay": 600})).await.unwrap().expect(202);
    let mut of_purged = Sse::open(&client, &purged, Some(1)).await;
    let mut of_late = Sse::open(&client, &text(&late["id"]), Some(1)).await;

    let by_clock = of_late.rest().await;
    client.post("/v1/queues/work/purge", json!({})).await.unwrap().expect(202);
    let by_purge = of_purged.rest().await;

    for frames in [by_clock, by_purge] {
        assert_eq!(frames.last().map(|frame| text(&frame.data["to"])), Some("cancelled".to_owned()));
    }
}

// A report whose sender hangs up is executed, and its answer has no receiver.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_sees_an_end_whose_reporter_hung_up() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({"visibilityTimeout": "1h"})).await;
    let mut carried_out = 0;
    for _ in 0..30 {
        let id = publish(&client, "work", json!(1)).await;
        let held = receive_one(&client, "work").await;
        let mut stream = Sse::open(&client, &id, Some(2)).await;
        let mut raw = Raw::connect(&client.base).await.unwrap();
        raw.send(format!("POST /v1/jobs/{id}/ack HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n", client.key))
            .await;
        drop(raw);

        // It may have been noticed before anything was carried out; then the job is as it was.
        let path = format!("/v1/jobs/{id}?wait=500ms&version=2");
        if client.get(&path).await.unwrap().expect(200)["status"] == "succeeded" {
            carried_out += 1;
        } else {
            settle(&client, &id, "ack", json!({"lease": held["lease"]})).await;
        }
        let frames = stream.rest().await;

        assert_eq!(frames.last().map(|frame| text(&frame.data["to"])), Some("succeeded".to_owned()));
    }
    println!("{carried_out} of 30 acks were carried out");
    assert!(carried_out > 0, "the rig: no report was carried out for one who hung up");
}

// T38: a stream lives no longer than its key.
#[tokio::test(flavor = "multi_thread")]
async fn streams_end_within_five_seconds_of_the_revocation_of_their_key() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let key = client.post("/v1/keys", json!({"name": "k", "scopes": ["read"]})).await.unwrap().expect(201);
    let short = json!({"name": "s", "scopes": ["read"], "expiresIn": 8});
    let short = client.post("/v1/keys", short).await.unwrap().expect(201);
    let mut mine = Sse::open(&client, &id, Some(1)).await;
    let mut expiring = Sse::open(&Client::new(&client.base, &text(&short["key"])), &id, Some(1)).await;
    let mut theirs = Vec::new();
    for _ in 0..30 {
        theirs.push(Sse::open(&Client::new(&client.base, &text(&key["key"])), &id, Some(1)).await);
    }

    let revoked = Stopwatch::start();
    client.delete(&format!("/v1/keys/{}", text(&key["id"]))).await.unwrap().expect(200);
    for stream in &mut theirs {
        assert_eq!(stream.next().await, Next::End);
    }
    let taken = revoked.charged();
    assert_eq!(expiring.next().await, Next::End, "a key that expires ends its stream too");
    client.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await.unwrap().expect(200);
    let others = mine.rest().await;

    println!("closed after {taken:?}");
    assert!(taken < Duration::from_secs(5), "{taken:?}");
    assert_eq!(others.len(), 1, "streams of other keys go on");
}

// A server that stops does not wait for its readers, nor they for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_server_ends_its_streams_at_once() {
    let mut server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let mut streams = Vec::new();
    for _ in 0..6 {
        streams.push(Sse::open(&client, &id, Some(1)).await);
    }

    let started = Stopwatch::start();
    server.ask_to_stop();
    for stream in &mut streams {
        assert_eq!(stream.next().await, Next::End);
    }
    let status = server.terminate().await;

    assert!(status.success() && started.charged() < Duration::from_secs(10), "{status} after {}", started.reading());
}

/// Waits until no stream is open, by the server's own count on each node.
pub(crate) async fn until_none_is_open(server: &Server) {
    for node in &server.nodes {
        let client = node.client();
        wait::until("all streams to be closed", Duration::from_secs(20), async || {
            let metrics = client.get("/metrics").await.ok()?.body;
            metrics.as_str()?.contains("outlast_streams_open 0\n").then_some(())
        })
        .await;
    }
}

/// An answer that is no stream.
async fn ask(client: &Client, id: &str, after: Option<u64>) -> outlast_tests::http::Reply {
    match Sse::ask(client, id, after).await.unwrap() {
        Asked::Answer(reply) => reply,
        Asked::Open(_) => panic!("a stream has opened"),
    }
}

/// The frames are these events, each with its number and type, and the last one is an end.
#[track_caller]
fn assert_is_log(frames: &[Frame], log: &[Value]) {
    let data: Vec<&Value> = frames.iter().map(|frame| &frame.data).collect();
    assert_eq!(data, log.iter().collect::<Vec<_>>());
    for frame in frames {
        assert_eq!((json!(frame.id), json!(frame.event)), (frame.data["seq"].clone(), frame.data["type"].clone()));
    }
    let last = frames.last().expect("a log is never empty");
    assert!(["succeeded", "failed", "cancelled", "expired"].map(Some).contains(&last.data["to"].as_str()), "{last:?}");
}

/// The whole log, over all pages.
async fn all_events(client: &Client, id: &str) -> Vec<Value> {
    let mut log: Vec<Value> = Vec::new();
    loop {
        let page = client.get(&format!("/v1/jobs/{id}/events?limit=1000&after={}", log.len())).await.unwrap();
        let items = page.expect(200)["items"].as_array().unwrap().clone();
        if items.is_empty() {
            return log;
        }
        log.extend(items);
    }
}

async fn fail(client: &Client, id: &str) {
    let held = receive_one(client, "work").await;
    settle(client, id, "nack", json!({"retryable": false, "lease": held["lease"]})).await;
}

/// Takes the only job of the queue and puts it back: three more events.
async fn defer(client: &Client, queue: &str) {
    let held = receive_one(client, queue).await;
    let body = json!({"retryAfter": 0, "scope": "job", "lease": held["lease"]});
    settle(client, &text(&held["id"]), "defer", body).await;
}
