//! Output: text that is appended to the log, live for those who watch, whole for those who come late, and bounded.

use outlast_tests::sse::{Frame, Sse};
use reqwest::Method;
use serde_json::json;

use super::Work;
use crate::api::text;

fn joined(frames: &[Frame]) -> String {
    frames.iter().filter(|frame| frame.event == "output").map(|frame| text(&frame.data["text"])).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_live_for_viewers_and_whole_for_late_ones() {
    let mut work = Work::begin(json!({})).await;
    let mut live = Sse::open(&work.client, &work.id, Some(2)).await;
    let mut seq = 2;
    let mut said = String::new();

    for token in ["Once", " upon\n", "a\r\ntime", " \u{1f980}\u{2028}", "\u{1}\u{1b}[31m", "data: x\n\nid: 7\n\n", "."]
    {
        let accepted = work.output(token).await;
        let frame = live.frame().await;

        seq += 1;
        said.push_str(token);
        assert_eq!(accepted["seq"], json!(seq));
        assert_eq!((frame.id, frame.event.as_str(), text(&frame.data["text"]).as_str()), (seq, "output", token));
        assert_eq!((&frame.data["attempt"], &frame.data["type"]), (&json!(1), &json!("output")));
    }
    work.fail().await;
    work.take().await;
    work.output("second attempt").await;
    work.ack().await;
    live.rest().await;
    let late = Sse::open(&work.client, &work.id, None).await.rest().await;

    assert_eq!(joined(&late), format!("{said}second attempt"));
    let attempts: Vec<u64> = late.iter().filter_map(|frame| frame.data["attempt"].as_u64()).collect();
    assert_eq!((attempts.first(), attempts.last()), (Some(&1), Some(&2)), "a viewer can tell the attempts apart");
}

// Eight MiB per job, over all attempts and runs; sixteen KiB per call.
#[tokio::test(flavor = "multi_thread")]
async fn output_is_bounded_per_call_and_per_job() {
    let mut work = Work::begin(json!({})).await;
    let most = "x".repeat(16 << 10);
    let calls = (8 << 20) / most.len();
    work.call(Method::POST, "output", &json!({"text": format!("{most}x")}))
        .await
        .expect_problem(400, "invalid_request");
    for _ in 0..calls - 1 {
        work.output(&most).await;
    }
    work.fail().await;
    work.take().await;

    work.output(&most).await;
    let full = work.call(Method::POST, "output", &json!({"text": "x"})).await;
    let detail = text(&full.expect_problem(409, "output_full")["detail"]);
    work.heartbeat(json!({})).await;
    work.ack().await;
    let late = Sse::open(&work.client, &work.id, None).await.rest().await;

    assert!(!detail.is_empty());
    assert_eq!(joined(&late).len(), 8 << 20, "all of it is there for a late viewer");
    assert_eq!(late.last().map(|frame| text(&frame.data["to"])), Some("succeeded".to_owned()));
}
