//! Progress as it is reported and read: merged, never backwards, worked out from items and stages, gone when the
//! attempt is, and refused from anybody but the holder of the lease.

use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use reqwest::Method;
use serde_json::{Value, json};

use super::{DEADLINE, Work};
use crate::api::text;

// Numbers only grow within an attempt, whatever comes in whichever order.
#[tokio::test(flavor = "multi_thread")]
async fn progress_never_goes_back_within_an_attempt() {
    let mut work = Work::begin(json!({})).await.on_one_node();
    let mut furthest = 0.0;
    for pct in [5.0, 30.0, 12.0, 30.0, 29.9, 71.5, 3.0, 0.0, 70.0] {
        furthest = f64::max(furthest, pct);

        let told = work.report(json!({"pct": pct, "itemsDone": pct as u64, "message": format!("at {pct}")})).await;
        let read = work.job().await["progress"].clone();

        assert_eq!(told["pct"].as_f64(), Some(furthest), "after {pct}");
        assert_eq!(told["itemsDone"], json!(furthest as u64));
        assert_eq!(told["message"], json!(format!("at {pct}")), "words are the latest");
        assert_eq!(read, told, "the worker's answer is what a viewer sees");
    }
    work.fail().await;
    work.take().await;
    assert_eq!(work.job().await["progress"], Value::Null, "another attempt begins at its beginning");
    let anew = work.report(json!({"pct": 1})).await;
    assert_eq!(anew["pct"], json!(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_percentage_is_worked_out_from_items_or_stages() {
    let mut work = Work::begin(json!({})).await.on_one_node();

    let items = work.report(json!({"itemsDone": 40, "itemsTotal": 160})).await;
    work.fail().await;
    work.take().await;
    let stages = work.report(json!({"stagesDone": 1, "stagesTotal": 4, "stage": "b", "stagePct": 50})).await;
    work.fail().await;
    work.take().await;
    let unknown = work.report(json!({"itemsDone": 40})).await;
    let none = work.report(json!({"itemsDone": 41, "itemsTotal": 0})).await;

    assert_eq!(items["pct"], json!(25));
    assert_eq!(stages["pct"], json!(37.5));
    assert_eq!((&unknown["pct"], &none["pct"]), (&Value::Null, &Value::Null), "the total is unknown");
    let mut fields: Vec<&String> = items.as_object().unwrap().keys().collect();
    fields.sort();
    let all = ["at", "eta", "itemsDone", "itemsTotal", "message", "pct", "stage", "stagePct", "stagesDone"];
    assert_eq!(fields, all.into_iter().chain(["stagesTotal", "startedAt"]).collect::<Vec<_>>());
}

// An estimate needs a tenth of the work and a second of time; then it is near what a steady worker takes.
#[tokio::test(flavor = "multi_thread")]
async fn there_is_no_estimate_before_a_tenth_and_a_sensible_one_after() {
    let work = Work::begin(json!({})).await.on_one_node();
    let began = Stopwatch::start();

    // Five percent a second.
    let (mut early, mut late) = (0, 0);
    let progress = wait::until("an estimate at a fifth", DEADLINE, async || {
        let pct = began.elapsed().as_secs_f64() * 5.0;
        let told = work.report(json!({ "pct": pct })).await;
        if pct < 10.0 {
            early += 1;
            assert_eq!(told["eta"], Value::Null, "{told}");
        } else {
            late += 1;
            assert!(told["eta"].is_string(), "{told}");
        }
        (pct >= 20.0).then_some(told)
    })
    .await;

    let time = |field: &str| text(&progress[field]).parse::<jiff::Timestamp>().unwrap();
    let left = time("eta").duration_since(time("at")).as_secs_f64();
    // A report that was held up on its way says four times as much too little or too much.
    let slack = 4.0 * (1.0 + began.withheld().as_secs_f64());
    assert!((left - 16.0).abs() <= slack, "16 s are left, not {left}: {progress}");
    assert!(early > 3 && late > 3, "{early} and {late} reports");
    let reply = work.client.get(&format!("/v1/jobs/{}", work.id)).await.unwrap();
    let retry_after: u64 = reply.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!(
        (8..=20).contains(&retry_after),
        "asking again is worth it when the work is done, not after {retry_after} s"
    );
}

// I-15: who has lost its lease says nothing more, and a viewer sees nothing of it.
#[tokio::test(flavor = "multi_thread")]
async fn progress_of_a_lost_lease_is_refused_and_leaves_no_trace() {
    let mut work = Work::begin(json!({})).await;
    work.report(json!({"pct": 10, "message": "first"})).await;
    let zombie = work.lease.clone();
    work.fail().await;
    work.take().await;
    work.report(json!({"pct": 5, "message": "second"})).await;
    let before = work.job().await;

    for _ in 0..5 {
        let body = json!({"pct": 99, "message": "zombie", "lease": zombie});
        work.client.put(&work.path("progress"), body).await.unwrap().expect_problem(409, "lease_lost");
    }

    let after = work.job().await;
    assert_eq!((&after["progress"], &after["version"]), (&before["progress"], &before["version"]));
    work.ack().await;
    let ended = work.call(Method::PUT, "progress", &json!({"pct": 99})).await;
    assert_eq!(ended.status, 409, "{}", ended.body);
    let progress = &work.job().await["progress"];
    assert_eq!((&progress["pct"], &progress["message"]), (&json!(100), &Value::Null), "of a job that succeeded");
}

// Plain curl: without a lease the present one is meant, unless the queue wants it.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_without_a_lease_means_the_present_one_unless_fencing_is_required() {
    let loose = Work::begin(json!({})).await;
    let strict = Work::begin(json!({"fencing": "required"})).await;

    for pct in [1, 2] {
        loose.client.put(&loose.path("progress"), json!({ "pct": pct })).await.unwrap().expect(200);
        let refused = strict.client.put(&strict.path("progress"), json!({ "pct": pct })).await.unwrap();
        refused.expect_problem(400, "lease_required");
        strict.report(json!({ "pct": pct })).await;
    }

    assert_eq!(loose.job().await["progress"]["pct"], json!(2));
}

// Reports cost no durable write each, but all of them are seen, here and in lists.
#[tokio::test(flavor = "multi_thread")]
async fn many_reports_are_few_changes_of_the_job_and_lists_show_the_latest() {
    let work = Work::begin(json!({})).await.on_one_node();
    let version = work.job().await["version"].as_u64().unwrap();
    for done in 1..=500 {
        work.report(json!({"itemsDone": done, "itemsTotal": 500})).await;
    }

    let job = work.job().await;
    let list = wait::until("the list to show the latest", DEADLINE, async || {
        let page = work.client.get("/v1/jobs?queue=work&status=running").await.unwrap().expect(200);
        (page["items"][0]["progress"]["itemsDone"] == 500).then_some(page)
    })
    .await;

    assert_eq!(job["progress"]["pct"], json!(100));
    assert_eq!(list["items"][0]["liveness"], json!("working"));
    let changes = job["version"].as_u64().unwrap() - version;
    assert!(changes < 60, "{changes} durable changes for 500 reports");
    assert!(changes > 0, "the first report is written down");
}

// The persisted progress is there after a crash: less, but never more and never an error.
#[tokio::test(flavor = "multi_thread")]
async fn progress_is_roughly_known_after_a_crash_and_goes_on_from_there() {
    let mut work = Work::begin(json!({})).await;
    work.report(json!({"pct": 10, "stage": "begin"})).await;
    work.heartbeat(json!({"progress": {"pct": 40}})).await;
    work.report(json!({"pct": 41})).await;

    work.crash().await;

    let known = work.job().await["progress"].clone();
    let pct = known["pct"].as_f64().unwrap_or_else(|| panic!("nothing is known: {known}"));
    assert!((40.0..=41.0).contains(&pct), "the heartbeat wrote 40 down: {known}");
    assert_eq!(known["stage"], json!("begin"));
    assert!(work.report(json!({"pct": 20})).await["pct"].as_f64().unwrap() >= 40.0);
    assert_eq!(work.report(json!({"pct": 50})).await["pct"], json!(50));
}
