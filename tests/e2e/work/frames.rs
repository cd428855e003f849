//! Progress for those who watch: live, at most one frame a second, the latest one always before the end, and durable
//! events in between untouched by it.

use std::time::{Duration, Instant};

use outlast_tests::sse::{Frame, Sse};
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use serde_json::{Value, json};

use super::{DEADLINE, Work};
use crate::api::events;

/// A frame a second; the clock of a busy machine may see two of them a little closer.
const GAP_MIN: Duration = Duration::from_millis(900);

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_gets_a_frame_a_second_and_the_last_one_before_the_end() {
    let work = Work::begin(json!({})).await.on_one_node();
    let elsewhere = work.server.nodes.last().unwrap().client();
    let mut stream = Sse::open(&elsewhere, &work.id, None).await;
    let watching = tokio::spawn(async move {
        let mut seen: Vec<(Instant, Frame)> = Vec::new();
        while let outlast_tests::sse::Next::Frame(frame) = stream.next().await {
            seen.push((Instant::now(), frame));
        }
        seen
    });

    let began = Stopwatch::start();
    let mut reports = 0;
    wait::until("four seconds of reports", DEADLINE, async || {
        reports += 1;
        work.report(json!({"itemsDone": reports, "itemsTotal": 1_000_000})).await;
        (began.elapsed() > Duration::from_secs(4)).then_some(())
    })
    .await;
    work.report(json!({"itemsDone": 1_000_000, "message": "nearly done"})).await;
    work.ack().await;
    let seen = watching.await.unwrap();
    let seconds = began.elapsed().as_secs() as usize;

    let (progress, durable): (Vec<_>, Vec<_>) = seen.into_iter().partition(|(_, frame)| frame.event == "progress");
    println!("{reports} reports, {} frames", progress.len());
    assert!(progress.len() >= 3, "{} frames in {seconds} s", progress.len());
    assert!(progress.len() <= seconds + 3, "{} frames in {seconds} s", progress.len());
    // The one before the end does not wait for its turn.
    for pair in progress[..progress.len() - 1].windows(2) {
        assert!(pair[1].0 - pair[0].0 > GAP_MIN, "two frames within {:?}", pair[1].0 - pair[0].0);
    }
    let done: Vec<u64> = progress.iter().map(|(_, frame)| frame.data["itemsDone"].as_u64().unwrap()).collect();
    assert!(done.is_sorted(), "{done:?}");
    let last = &progress.last().unwrap().1;
    assert_eq!((&last.data["itemsDone"], &last.data["message"]), (&json!(1_000_000), &json!("nearly done")));
    assert!(progress.iter().all(|(_, frame)| frame.id == 0), "a lossy frame has no id to come back with");
    let log: Vec<Value> = durable.into_iter().map(|(_, frame)| frame.data).collect();
    assert_eq!(log, events(&work.client, &work.id).await, "the log is whole, and the end is its end");
}

// A viewer that connects in the middle need not wait for the next report.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_viewer_sees_at_once_how_far_the_work_is() {
    let work = Work::begin(json!({})).await.on_one_node();
    work.report(json!({"pct": 33, "stage": "middle"})).await;

    let mut stream = Sse::open(&work.client, &work.id, Some(2)).await;
    let frame = stream.frame().await;
    work.ack().await;
    let rest = stream.rest().await;

    assert_eq!((frame.event.as_str(), &frame.data["pct"]), ("progress", &json!(33)));
    assert_eq!(frame.data, frame_of(&frame.data), "every field of the contract");
    assert!(rest.iter().all(|frame| frame.event != "progress"), "nothing new was said: {rest:?}");
    let gone = Sse::open(&work.client, &work.id, None).await.rest().await;
    assert!(gone.iter().all(|frame| frame.event != "progress"), "after the end there is only the log");
}

fn frame_of(data: &Value) -> Value {
    let fields = ["pct", "stage", "stagePct", "stagesDone", "stagesTotal", "itemsDone", "itemsTotal", "message"];
    let all = fields.into_iter().chain(["startedAt", "at", "eta"]);
    Value::Object(all.map(|field| (field.to_owned(), data[field].clone())).collect())
}

// A report that comes with a heartbeat or a checkpoint is shown as well.
#[tokio::test(flavor = "multi_thread")]
async fn progress_of_heartbeats_and_checkpoints_is_live_too() {
    let work = Work::begin(json!({})).await.on_one_node();
    let mut stream = Sse::open(&work.client, &work.id, Some(2)).await;

    work.heartbeat(json!({"progress": {"pct": 10}})).await;
    let first = stream.frame().await;
    let body = json!({"schemaVersion": 1, "data": null, "progress": {"pct": 20}});
    work.call(reqwest::Method::PUT, "checkpoint", &body).await.expect(200);
    let (second, third) = (stream.frame().await, stream.frame().await);

    assert_eq!((first.event.as_str(), &first.data["pct"]), ("progress", &json!(10)));
    assert_eq!(second.event, "checkpoint", "what is durable is not held back");
    assert_eq!((third.event.as_str(), &third.data["pct"]), ("progress", &json!(20)));
}
