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

// A worker that lost the answer to a part sends it again: the part is appended once.
#[tokio::test(flavor = "multi_thread")]
async fn a_numbered_part_is_appended_once_also_over_a_crash() {
    let mut work = Work::begin(json!({})).await;
    let part = async |work: &Work, number: u64| {
        let body = json!({"text": format!("part {number}\n"), "part": number});
        work.call(Method::POST, "output", &body).await
    };

    let mut seqs = Vec::new();
    for number in 1..=4 {
        seqs.push(part(&work, number).await.expect(200)["seq"].clone());
        work.section(&format!("s{number}"), json!(number)).await;
        work.output("between\n").await;
    }
    let version = work.job().await["version"].clone();
    work.crash().await;
    for number in [4, 1, 3, 2] {
        let again = part(&work, number).await.expect(200);
        assert_eq!((&again["accepted"], &again["seq"]), (&json!(true), &seqs[number as usize - 1]), "part {number}");
    }
    let gap = part(&work, 6).await.expect_problem(409, "output_gap").to_string();
    assert!(gap.contains("part 5"), "{gap}");
    assert_eq!(work.job().await["version"], version, "repetitions and gaps leave no trace");
    part(&work, 5).await.expect(200);

    work.fail().await;
    let lost = part(&work, 6).await;
    lost.expect_problem(409, "lease_lost");
    work.take().await;
    part(&work, 2).await.expect_problem(409, "output_gap");
    part(&work, 1).await.expect(200);
    work.ack().await;
    let late = Sse::open(&work.client, &work.id, None).await.rest().await;
    let parts: Vec<(u64, u64)> = late
        .iter()
        .filter(|frame| frame.event == "output")
        .filter_map(|frame| Some((frame.data["attempt"].as_u64()?, frame.data["part"].as_u64()?)))
        .collect();
    assert_eq!(parts, [(1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (2, 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_is_a_number_from_one_on() {
    let work = Work::begin(json!({})).await;
    for part in [json!(0), json!(-1), json!(1.5), json!("1")] {
        let refused = work.call(Method::POST, "output", &json!({"text": "x", "part": part})).await;
        assert!(refused.expect_problem(400, "invalid_request").to_string().contains("part"), "{part}");
    }
}
