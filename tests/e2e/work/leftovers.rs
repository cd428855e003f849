//! Saved work after the end of an attempt or a job: kept for a replay, dropped by a fresh one and after success,
//! and nothing of it anywhere once the job is purged.

use std::path::Path;

use outlast_tests::server::Launch;
use outlast_tests::wait;
use serde_json::{Value, json};

use super::{DEADLINE, Work};
use crate::api::{make_queue, settle};
use crate::authority::secrets::holds;

/// Looked for in what is stored.
const CANARY: &str = "canary7d21c0aa";

async fn save(work: &Work) {
    work.checkpoint(1, json!({"secret": format!("{CANARY}-checkpoint")})).await;
    work.section("one", json!(format!("{CANARY}-section"))).await;
    work.output(&format!("{CANARY}-output")).await;
    work.report(json!({"message": format!("{CANARY}-message")})).await;
}

/// The checkpoint's data and the names of the sections, as anybody can read them.
async fn left(work: &Work) -> (Value, Vec<String>) {
    let reply = work.client.get(&work.path("checkpoint")).await.unwrap();
    let data = match reply.status {
        404 => {
            assert_eq!(reply.code(), "checkpoint_not_found");
            Value::Null
        }
        _ => reply.expect(200)["data"]["secret"].clone(),
    };
    (data, work.section_names().await)
}

fn everything() -> (Value, Vec<String>) {
    (json!(format!("{CANARY}-checkpoint")), vec!["one".to_owned()])
}

fn nothing() -> (Value, Vec<String>) {
    (Value::Null, Vec::new())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_job_keeps_what_was_saved_and_its_replay_goes_on_from_there() {
    let mut work = Work::begin(json!({})).await;
    save(&work).await;
    settle(&work.client, &work.id, "nack", json!({"lease": work.lease, "retryable": false})).await;

    let after = left(&work).await;
    work.client.post(&work.path("replay"), json!({})).await.unwrap().expect(200);
    let held = work.take().await;

    assert_eq!(after, everything());
    assert_eq!((&held["replays"], &held["sections"]), (&json!(1), &json!(["one"])));
    assert_eq!(held["checkpoint"]["replays"], json!(0), "it says where it comes from");
    work.ack().await;
    assert_eq!(left(&work).await, nothing(), "after success it is not needed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_keeps_what_was_saved_and_a_fresh_replay_drops_it() {
    let mut work = Work::begin(json!({})).await;
    save(&work).await;
    work.client.post(&work.path("cancel"), json!({})).await.unwrap().expect(200);
    settle(&work.client, &work.id, "cancelled", json!({"lease": work.lease})).await;

    let after = left(&work).await;
    work.client.post(&work.path("replay"), json!({"fresh": true})).await.unwrap().expect(200);
    let held = work.take().await;

    assert_eq!(after, everything());
    assert_eq!((&held["checkpoint"], &held["sections"]), (&Value::Null, &json!([])));
    assert_eq!(left(&work).await, nothing());
    save(&work).await;
    assert_eq!(left(&work).await, everything(), "a fresh replay saves again");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_success_it_stays_only_where_the_queue_keeps_checkpoints() {
    for (keeps, wanted) in [(false, nothing()), (true, everything())] {
        let work = Work::begin(json!({ "keepCheckpoints": keeps })).await;
        save(&work).await;

        work.ack().await;

        assert_eq!(left(&work).await, wanted, "keepCheckpoints: {keeps}");
        assert_eq!(work.job().await["checkpoint"].is_null(), !keeps);
        assert_eq!(work.job().await["progress"]["pct"], json!(100));
    }
}

// When retention ends all of it goes: nothing of it is in the store, however one looks.
#[tokio::test(flavor = "multi_thread")]
async fn a_purged_job_leaves_nothing_behind() {
    let mut work = Work::begin(json!({"keepCheckpoints": true, "retention": "1h"})).await;
    save(&work).await;
    let launch = work.server.launch().clone();
    let there = rows_with_canary(&launch);
    make_queue(&work.client, "work", json!({"retention": 1})).await;

    settle(&work.client, &work.id, "nack", json!({"lease": work.lease, "retryable": false})).await;
    wait::until("the job to be purged", DEADLINE, async || {
        (work.client.get(&work.path("checkpoint")).await.unwrap().status == 404
            && work.client.get(&format!("/v1/jobs/{}", work.id)).await.unwrap().status == 404)
            .then_some(())
    })
    .await;

    for rest in ["checkpoint", "sections", "sections/one", "events"] {
        work.client.get(&work.path(rest)).await.unwrap().expect_problem(404, "job_not_found");
    }
    assert!(work.server.terminate().await.success());
    let left = rows_with_canary(&launch);
    assert!(there.len() >= 3, "the search must be able to find what is there: {there:?}");
    assert_eq!(left, Vec::<String>::new(), "rows are left");
}

/// Every row of every table that holds the mark, by its table; bytes are looked into as well.
fn rows_with_canary(launch: &Launch) -> Vec<String> {
    let Some(database) = launch.database() else {
        return in_file(&launch.data.join("outlast.db"));
    };
    let dump = database.dump();
    let lines = dump.lines().filter(|line| holds(line, CANARY));
    lines.filter_map(|line| line.split_whitespace().nth(2).map(str::to_owned)).collect()
}

fn in_file(path: &Path) -> Vec<String> {
    let connection = rusqlite::Connection::open_with_flags(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let names = "SELECT name FROM sqlite_schema WHERE type = 'table'";
    let mut tables = connection.prepare(names).unwrap();
    let tables: Vec<String> = tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let mut found = Vec::new();
    for table in tables {
        let mut statement = connection.prepare(&format!("SELECT * FROM \"{table}\"")).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let holds_it = (0..columns).any(|column| {
                let value = row.get_ref(column).unwrap();
                let bytes = value.as_bytes().unwrap_or_default();
                bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes())
            });
            if holds_it {
                found.push(table.clone());
            }
        }
    }
    found
}
